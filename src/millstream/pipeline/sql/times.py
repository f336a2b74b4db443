"""SQL functions of dates and times, in UTC as in every Spark session that millstream makes."""

from __future__ import annotations

import calendar
import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from millstream.pipeline.sql import types
from millstream.pipeline.sql.building import (
    Build,
    Compiled,
    Scope,
    Table,
    check_count,
    coerced,
    converted,
    strict,
)
from millstream.pipeline.sql.casts import UTC, BadValue, from_micros, micros, midnight, zone_of
from millstream.pipeline.sql.date_patterns import read, written
from millstream.pipeline.sql.nodes import AnalysisError, Unsupported
from millstream.pipeline.sql.numbers import tried
from millstream.pipeline.sql.operators import plus_months
from millstream.pipeline.sql.types import BIGINT, DATE, DOUBLE, INT, NTZ, STRING, TIMESTAMP

_DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
_PLAIN = "yyyy-MM-dd HH:mm:ss"
_SECONDS = types.decimal(8, 6)
_UNITS = {"microsecond": 1, "millisecond": 1000, "second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6}
_UNITS |= {"day": 86_400 * 10**6, "week": 7 * 86_400 * 10**6}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def _now(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 0, 0)
    moment = scope.moment
    return Compiled(TIMESTAMP, lambda row: moment.now)


def _today(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 0, 0)
    moment = scope.moment
    return Compiled(DATE, lambda row: moment.now.date())


def _utc(value: dt.datetime) -> dt.datetime:
    return value.astimezone(UTC)


def _of_day(function: Callable[[Any], Any]) -> Build:
    return strict(function, (DATE,), INT)


def _of_time(function: Callable[[dt.datetime], Any]) -> Build:
    return strict(lambda value: function(_utc(value)), (TIMESTAMP,), INT)


_FIELDS: dict[str, Build] = {
    "year": _of_day(lambda day: day.year),
    "quarter": _of_day(lambda day: (day.month + 2) // 3),
    "month": _of_day(lambda day: day.month),
    "week": _of_day(lambda day: day.isocalendar()[1]),
    "day": _of_day(lambda day: day.day),
    "dayofweek": _of_day(lambda day: day.isoweekday() % 7 + 1),
    "weekday": _of_day(lambda day: day.weekday()),
    "doy": _of_day(lambda day: day.timetuple().tm_yday),
    "hour": _of_time(lambda time: time.hour),
    "minute": _of_time(lambda time: time.minute),
    "second": _of_time(lambda time: time.second),
}
_PART_NAMES = {
    **{name: name for name in ("year", "quarter", "month", "week", "day", "doy", "hour", "minute")},
    **{f"{name}s": name for name in ("year", "month", "week", "day", "hour", "minute")},
    "dow": "dayofweek",
    "dayofweek": "dayofweek",
}


def _date_part(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 2, 2)
    if not given[0].constant:
        raise AnalysisError(f"{name} needs a constant unit")
    unit = str(given[0].run([])).lower()
    if unit in ("second", "seconds"):
        return strict(
            lambda time: Decimal(time.second) + Decimal(time.microsecond).scaleb(-6), (TIMESTAMP,), _SECONDS
        )(name, given[1:], scope)
    if unit not in _PART_NAMES:
        raise Unsupported(f"{name} of {unit}")
    return _FIELDS[_PART_NAMES[unit]](name, given[1:], scope)


# ---- cutting off -------------------------------------------------------------------------------------


def _truncated(unit: str, time: dt.datetime) -> dt.datetime | None:
    time, unit = _utc(time), unit.lower()
    if unit in ("year", "yyyy", "yy"):
        return dt.datetime(time.year, 1, 1, tzinfo=UTC)
    if unit == "quarter":
        return dt.datetime(time.year, (time.month - 1) // 3 * 3 + 1, 1, tzinfo=UTC)
    if unit in ("month", "mm", "mon"):
        return dt.datetime(time.year, time.month, 1, tzinfo=UTC)
    if unit == "week":
        day = midnight(time.date())
        return day - dt.timedelta(days=day.weekday())
    if unit in ("day", "dd"):
        return midnight(time.date())
    if unit in _UNITS:
        value = micros(time)
        return from_micros(value - value % _UNITS[unit])
    return None


def _trunc_date(day: dt.date, unit: str) -> dt.date | None:
    if unit.lower() in ("day", "dd", *_UNITS) and unit.lower() != "week":
        return None
    found = _truncated(unit, midnight(day))
    return None if found is None else found.date()


# ---- counting on -------------------------------------------------------------------------------------


def _plus_days(day: dt.date, days: int) -> dt.date:
    try:
        return day + dt.timedelta(days=days)
    except OverflowError:
        raise BadValue(f"{day} plus {days} days is outside the years 1 to 9999") from None


def _months_between(one: dt.datetime, other: dt.datetime) -> float:
    one, other = _utc(one), _utc(other)
    months = (one.year - other.year) * 12 + one.month - other.month
    last = [calendar.monthrange(time.year, time.month)[1] == time.day for time in (one, other)]
    if one.day == other.day or all(last):
        return float(months)
    seconds = [time.day * 86_400 + time.hour * 3600 + time.minute * 60 + time.second for time in (one, other)]
    return float(round(Decimal(months) + Decimal(seconds[0] - seconds[1]) / Decimal(31 * 86_400), 8))


def _next_day(day: dt.date, name: str) -> dt.date:
    found = name.strip().upper()[:2]
    if found not in _DAYS:
        raise BadValue(f"{name!r} is not a day of the week")
    return day + dt.timedelta(days=(_DAYS.index(found) - day.weekday() - 1) % 7 + 1)


def _timestamp_add(unit: str, count: int, time: dt.datetime) -> dt.datetime:
    unit = unit.lower().removesuffix("s")
    if unit in _MONTHS:
        return plus_months(_utc(time), count * _MONTHS[unit])  # type: ignore[no-any-return]
    if unit not in _UNITS:
        raise Unsupported(f"timestampadd of {unit}")
    return from_micros(micros(time) + count * _UNITS[unit])


def _timestamp_diff(unit: str, start: dt.datetime, end: dt.datetime) -> int:
    unit = unit.lower().removesuffix("s")
    if unit in _UNITS:
        span = micros(end) - micros(start)
        return span // _UNITS[unit] if span >= 0 else -(-span // _UNITS[unit])
    if unit not in _MONTHS:
        raise Unsupported(f"timestampdiff of {unit}")
    sign = 1 if end >= start else -1
    low, high = sorted((_utc(start), _utc(end)))
    if high.time() < low.time():
        high -= dt.timedelta(days=1)
    # A month has passed only when the same day has come, not when a shorter month ends before it.
    months = (
        (high.year * 12 + high.month) * 32 + high.day - (low.year * 12 + low.month) * 32 - low.day
    ) // 32
    return sign * (months // _MONTHS[unit])


# ---- reading and writing -----------------------------------------------------------------------------


def _read(text: str, pattern: str) -> dt.datetime:
    found = read(text, pattern)
    if found is None:
        raise BadValue(f"the text {text!r} is not a time in the pattern {pattern!r}")
    return found


def _to_date(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 1, 2)
    if len(given) == 1:
        return converted(given[0], DATE)
    return strict(lambda text, pattern: _read(text, pattern).date(), (STRING, STRING), DATE)(
        name, given, scope
    )


def _to_timestamp(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 1, 2)
    if len(given) == 1 or given[0].type != STRING:
        return converted(given[0], TIMESTAMP)
    return strict(_read, (STRING, STRING), TIMESTAMP)(name, given, scope)


def _unix_timestamp(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 0, 2)
    if not given:
        given = [_now(name, [], scope)]
    if given[0].type == STRING:
        pattern = given[1:] or [Compiled(STRING, lambda row: _PLAIN, constant=True)]
        read_by = strict(
            lambda text, by: int(Decimal(micros(_read(text, by))) / 10**6), (STRING, STRING), BIGINT
        )
        return read_by(name, [given[0], *pattern], scope)
    return strict(lambda time: int(Decimal(micros(time)) / 10**6), (TIMESTAMP,), BIGINT)(
        name, given[:1], scope
    )


def _from_unixtime(seconds: int, pattern: str = _PLAIN) -> str:
    return written(from_micros(seconds * 10**6), pattern)


def _make_date(year: int, month: int, day: int) -> dt.date:
    try:
        return dt.date(year, month, day)
    except ValueError as error:
        raise BadValue(f"make_date: {error}") from None


def _make_timestamp(year: int, month: int, day: int, hour: int, minute: int, second: Decimal) -> dt.datetime:
    try:
        start = dt.datetime(year, month, day, hour, minute, tzinfo=UTC)
    except ValueError as error:
        raise BadValue(f"make_timestamp: {error}") from None
    return start + dt.timedelta(microseconds=int(second * 10**6))


def _shifted(direction: int) -> Callable[[dt.datetime, str], dt.datetime]:
    def shift(time: dt.datetime, zone: str) -> dt.datetime:
        try:
            there = zone_of(zone)
        except (ValueError, KeyError, OSError):
            raise BadValue(f"there is no time zone {zone!r}") from None
        if direction > 0:
            return time.astimezone(there).replace(tzinfo=UTC)
        return _utc(time).replace(tzinfo=there).astimezone(UTC)

    return shift


def _units(size: int) -> Build:
    return strict(lambda time: micros(time) // size, (TIMESTAMP,), BIGINT)


def _timestamp_seconds(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 1, 1)
    return converted(coerced(name, given[0], "number"), TIMESTAMP)


_DATE_ADD = strict(_plus_days, (DATE, INT), DATE)
_DATE_DIFF = strict(lambda one, other: (one - other).days, (DATE, DATE), INT)

TABLE: Table = {
    "current_timestamp": _now,
    "now": _now,
    "current_date": _today,
    "curdate": _today,
    **{name: build for name, build in _FIELDS.items() if name not in ("week", "doy")},
    "weekofyear": _FIELDS["week"],
    "dayofmonth": _FIELDS["day"],
    "dayofyear": _FIELDS["doy"],
    "date_part": _date_part,
    "datepart": _date_part,
    "dayname": strict(lambda day: written(midnight(day), "EEE"), (DATE,), STRING),
    "monthname": strict(lambda day: written(midnight(day), "MMM"), (DATE,), STRING),
    "date_trunc": strict(_truncated, (STRING, TIMESTAMP), TIMESTAMP),
    "trunc": strict(_trunc_date, (DATE, STRING), DATE),
    "date_add": _DATE_ADD,
    "dateadd": _DATE_ADD,
    "date_sub": strict(lambda day, days: _plus_days(day, -days), (DATE, INT), DATE),
    "datediff": _DATE_DIFF,
    "date_diff": _DATE_DIFF,
    "add_months": strict(plus_months, (DATE, INT), DATE),
    "months_between": strict(_months_between, (TIMESTAMP, TIMESTAMP), DOUBLE),
    "last_day": strict(
        lambda day: day.replace(day=calendar.monthrange(day.year, day.month)[1]), (DATE,), DATE
    ),
    "next_day": strict(_next_day, (DATE, STRING), DATE),
    "timestampadd": strict(_timestamp_add, (STRING, INT, TIMESTAMP), TIMESTAMP),
    "timestampdiff": strict(_timestamp_diff, (STRING, TIMESTAMP, TIMESTAMP), BIGINT),
    "to_date": _to_date,
    "to_timestamp": _to_timestamp,
    "try_to_date": tried(_to_date),
    "try_to_timestamp": tried(_to_timestamp),
    "date_format": strict(lambda time, pattern: written(_utc(time), pattern), (TIMESTAMP, STRING), STRING),
    "unix_timestamp": _unix_timestamp,
    "to_unix_timestamp": _unix_timestamp,
    "from_unixtime": strict(_from_unixtime, (BIGINT, STRING), STRING, optional=1),
    "unix_seconds": _units(10**6),
    "unix_millis": _units(1000),
    "unix_micros": _units(1),
    "unix_date": strict(lambda day: (day - dt.date(1970, 1, 1)).days, (DATE,), INT),
    "date_from_unix_date": strict(lambda days: _plus_days(dt.date(1970, 1, 1), days), (INT,), DATE),
    "timestamp_seconds": _timestamp_seconds,
    "timestamp_millis": strict(lambda value: from_micros(value * 1000), (BIGINT,), TIMESTAMP),
    "timestamp_micros": strict(from_micros, (BIGINT,), TIMESTAMP),
    "make_date": strict(_make_date, (INT, INT, INT), DATE),
    "make_timestamp": strict(_make_timestamp, (INT, INT, INT, INT, INT, types.decimal(16, 6)), TIMESTAMP),
    "from_utc_timestamp": strict(_shifted(1), (TIMESTAMP, STRING), TIMESTAMP),
    "to_utc_timestamp": strict(_shifted(-1), (TIMESTAMP, STRING), TIMESTAMP),
    "localtimestamp": lambda name, given, scope: converted(_now(name, given, scope), NTZ),
}
