"""Casts values between types as Spark's ANSI mode does: an impossible cast is an error, not a null."""

from __future__ import annotations

import datetime as dt
import math
import re
import struct as packing
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from millstream.pipeline.sql import types
from millstream.pipeline.sql.nodes import AnalysisError, Unsupported
from millstream.pipeline.sql.types import Type

UTC = dt.UTC
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)
WIDE = Context(prec=80, rounding=ROUND_HALF_UP)
_MICRO = dt.timedelta(microseconds=1)

Function = Callable[[Any], Any]


class BadValue(AnalysisError):
    """A value that an expression can't take, found when the expression was evaluated."""


def micros(time: dt.datetime) -> int:
    """Microseconds since 1970."""
    return (time - EPOCH) // _MICRO


def from_micros(value: int) -> dt.datetime:
    try:
        return EPOCH + dt.timedelta(microseconds=value)
    except OverflowError:
        raise BadValue(f"the time {value} microseconds from 1970 is outside the years 1 to 9999") from None


def checked(value: int, kind: Type) -> int:
    """An integer, after a check that its type can hold it."""
    bits = types.INTEGERS[kind]
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise BadValue(f"{value} overflows {kind.text}")
    return value


def single(value: float) -> float:
    """A double rounded to a float."""
    try:
        return float(packing.unpack("f", packing.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def fitted(value: Decimal, kind: Type) -> Decimal:
    """A decimal with its type's number of fraction digits, rounded half up."""
    precision, scale = kind.size
    found = value.quantize(Decimal(1).scaleb(-scale), context=WIDE)
    if abs(found) >= Decimal(10) ** (precision - scale):
        raise BadValue(f"{value} cannot be represented as {kind.text}")
    return found


def cast(source: Type, target: Type) -> Function:
    """The function that casts values that are not null. Raises AnalysisError if there is no such cast."""
    if source == target:
        return _same
    if target == types.STRING:
        return to_text(source)
    if source == types.VOID:
        return _same
    if source.name == target.name and source.inner:
        return _nested(source, target)
    found = _TO.get(target.name, {}).get(source.name)
    if found is None and source in types.INTEGERS:
        found = _TO.get(target.name, {}).get("integer")
    if found is None:
        raise AnalysisError(f"cannot cast {source.text} to {target.text}")
    return found(target)


def _same(value: Any) -> Any:
    return value


def _nested(source: Type, target: Type) -> Function:
    if len(source.inner) != len(target.inner):
        raise AnalysisError(f"cannot cast {source.text} to {target.text}")
    inner = [cast(a, b) for a, b in zip(source.inner, target.inner, strict=True)]

    def or_none(function: Function, value: Any) -> Any:
        return None if value is None else function(value)

    if source.name == "array":
        return lambda value: [or_none(inner[0], one) for one in value]
    if source.name == "map":
        return lambda value: {inner[0](key): or_none(inner[1], one) for key, one in value.items()}
    return lambda value: {
        name: or_none(function, one)
        for name, function, one in zip(target.names, inner, value.values(), strict=True)
    }


# ---- to text -----------------------------------------------------------------------------------------


def to_text(kind: Type) -> Function:
    if kind == types.BINARY:
        return lambda value: value.decode("utf-8", "surrogateescape")
    if kind.name == "array":
        inner = _shown(kind.element)
        return lambda value: "[" + ", ".join(map(inner, value)) + "]"
    if kind.name == "map":
        key, element = _shown(kind.inner[0]), _shown(kind.inner[1])
        return lambda value: "{" + ", ".join(f"{key(k)} -> {element(v)}" for k, v in value.items()) + "}"
    if kind.name == "struct":
        parts = [_shown(one) for one in kind.inner]
        return lambda value: (
            "{" + ", ".join(part(one) for part, one in zip(parts, value.values(), strict=True)) + "}"
        )
    if kind in _TEXT:
        return _TEXT[kind]
    if kind.name == "decimal":
        return lambda value: format(value, "f")
    if kind in types.INTEGERS:
        return str
    raise Unsupported(f"a cast of {kind.text} to string")


def _shown(kind: Type) -> Function:
    function = to_text(kind)
    return lambda value: "null" if value is None else function(value)


def double_text(value: float) -> str:
    """A double as Java writes it: 1.0, 1.0E10, 1.5E-5."""
    return _java(repr(value), value)


def float_text(value: float) -> str:
    return _java(str(np.float32(value)), value)


def _java(shortest: str, value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    sign, digits, exponent = Decimal(shortest).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) + int(exponent) - 1  # of ten, for the first digit
    minus = "-" if sign else ""
    if -3 <= power < 7:
        if power < 0:
            return f"{minus}0.{'0' * (-power - 1)}{text}"
        whole = text[: power + 1].ljust(power + 1, "0")
        return f"{minus}{whole}.{text[power + 1 :] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{power}"


def timestamp_text(value: dt.datetime) -> str:
    text = f"{value.year:04d}-{value.month:02d}-{value.day:02d} {value:%H:%M:%S}"
    return text + (f".{value.microsecond:06d}".rstrip("0") if value.microsecond else "")


_TEXT: dict[Type, Function] = {
    types.STRING: _same,
    types.VOID: _same,
    types.BOOLEAN: lambda value: "true" if value else "false",
    types.DOUBLE: double_text,
    types.FLOAT: float_text,
    types.DATE: lambda value: value.isoformat(),
    types.TIMESTAMP: lambda value: timestamp_text(value.astimezone(UTC)),
    types.NTZ: timestamp_text,
}

# ---- from text ---------------------------------------------------------------------------------------

_DATE = re.compile(r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TIMESTAMP = re.compile(
    r"(?:(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2}))?)?)?"
    r"(?:(?:[ T]|^T?)(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?\s*(\S+)?"
)
_ZONE = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?")
_MOVING = ("now", "today", "yesterday", "tomorrow", "epoch")
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}


def _wrong(text: str, kind: Type) -> BadValue:
    return BadValue(f"the value {text!r} of the type string cannot be cast to {kind.text}")


def _text_to_integer(target: Type) -> Function:
    def convert(text: str) -> int:
        stripped = text.strip()
        if not re.fullmatch(r"[+-]?\d+", stripped, re.ASCII):
            raise _wrong(text, target)
        try:
            return checked(int(stripped), target)
        except BadValue:
            raise _wrong(text, target) from None

    return convert


def _text_to_fraction(target: Type) -> Function:
    def convert(text: str) -> float:
        stripped = text.strip().lower()
        if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?[df]?", stripped, re.ASCII):
            value = float(stripped.rstrip("df"))
        elif re.fullmatch(r"[+-]?(inf|infinity)|nan", stripped):
            value = float(stripped)
        else:
            raise _wrong(text, target)
        return single(value) if target == types.FLOAT else value

    return convert


def _text_to_decimal(target: Type) -> Function:
    def convert(text: str) -> Decimal:
        try:
            return fitted(Decimal(text.strip()), target)
        except (InvalidOperation, BadValue):
            raise _wrong(text, target) from None

    return convert


def _text_to_boolean(target: Type) -> Function:
    def convert(text: str) -> bool:
        word = text.strip().lower()
        if word not in _TRUE | _FALSE:
            raise _wrong(text, target)
        return word in _TRUE

    return convert


def _text_to_date(target: Type) -> Function:
    def convert(text: str) -> dt.date:
        match = _DATE.fullmatch(text.strip())
        if text.strip().lower() in _MOVING:
            raise Unsupported(f"the date {text!r}")
        try:
            if match is not None:
                return dt.date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
        except ValueError:
            pass
        raise _wrong(text, target)

    return convert


def timestamp_of(text: str) -> tuple[dt.datetime, dt.tzinfo | None] | None:
    """The time in a text, and the zone if the text has one; None if the text is not a time."""
    match = _TIMESTAMP.fullmatch(text.strip())
    if (match is not None and match[1] is None and match[4] is not None) or text.strip().lower() in _MOVING:
        raise Unsupported(f"the time {text!r}, which Spark takes for one of today,")
    if match is None or match[1] is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    try:
        at = dt.datetime(  # noqa: DTZ001 - the zone comes beside it
            int(year),
            int(month or 1),
            int(day or 1),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "0").ljust(6, "0")[:6]),
        )
        return at, None if zone is None else zone_of(zone)
    except (ValueError, OSError, KeyError):
        return None


def zone_of(text: str) -> dt.tzinfo:
    """A time zone by its name or offset. ValueError, KeyError or OSError if there is none."""
    if text in ("Z", "UTC", "GMT", "UT"):
        return UTC
    match = _ZONE.fullmatch(text)
    if match is None:
        return ZoneInfo(text)
    offset = dt.timedelta(hours=int(match[2]), minutes=int(match[3] or 0), seconds=int(match[4] or 0))
    return dt.timezone(offset if match[1] == "+" else -offset)


def _text_to_timestamp(target: Type) -> Function:
    def convert(text: str) -> dt.datetime:
        found = timestamp_of(text)
        if found is None:
            raise _wrong(text, target)
        at, zone = found
        try:
            return at if target == types.NTZ else at.replace(tzinfo=zone or UTC).astimezone(UTC)
        except OverflowError:
            raise _wrong(text, target) from None  # in UTC it is in the year 0 or 10000

    return convert


# ---- numbers and times -------------------------------------------------------------------------------


def _to_integer(target: Type) -> Function:
    def convert(value: Any) -> int:
        if isinstance(value, float) and not math.isfinite(value):
            raise BadValue(f"the value {double_text(value)} cannot be cast to {target.text}: it overflows")
        return checked(int(value), target)

    return convert


def _to_fraction(target: Type) -> Function:
    return (lambda value: single(float(value))) if target == types.FLOAT else float


def _to_decimal(target: Type) -> Function:
    return lambda value: fitted(Decimal(int(value) if isinstance(value, bool) else value), target)


def _fraction_to_decimal(target: Type) -> Function:
    def convert(value: float) -> Decimal:
        if not math.isfinite(value):
            raise BadValue(f"{double_text(value)} cannot be represented as {target.text}")
        return fitted(Decimal(repr(value)), target)

    return convert


def _timestamp_to_integer(target: Type) -> Function:
    return lambda value: checked(micros(value) // 1_000_000, target)


def _number_to_timestamp(_: Type) -> Function:
    def convert(value: Any) -> dt.datetime:
        if isinstance(value, float) and not math.isfinite(value):
            raise BadValue(f"{double_text(value)} is not a time")
        return from_micros(int(value * 1_000_000))

    return convert


def _always(function: Function) -> Callable[[Type], Function]:
    return lambda _: function


def midnight(date: dt.date) -> dt.datetime:
    return dt.datetime(date.year, date.month, date.day, tzinfo=UTC)


_INTEGER: dict[str, Callable[[Type], Function]] = {
    "string": _text_to_integer,
    **dict.fromkeys(("integer", "boolean", "float", "double", "decimal"), _to_integer),
    "timestamp": _timestamp_to_integer,
}
_FRACTION: dict[str, Callable[[Type], Function]] = {
    "string": _text_to_fraction,
    **dict.fromkeys(("integer", "boolean", "float", "double", "decimal"), _to_fraction),
    "timestamp": _always(lambda value: micros(value) / 1_000_000),
}
_TO: dict[str, dict[str, Callable[[Type], Function]]] = {
    **{kind.name: _INTEGER for kind in types.INTEGERS},
    "float": _FRACTION,
    "double": _FRACTION,
    "decimal": {
        "string": _text_to_decimal,
        **dict.fromkeys(("integer", "boolean", "decimal"), _to_decimal),
        **dict.fromkeys(("float", "double"), _fraction_to_decimal),
    },
    "boolean": {
        "string": _text_to_boolean,
        **dict.fromkeys(("integer", "float", "double", "decimal"), _always(bool)),
    },
    "binary": {"string": _always(lambda value: value.encode("utf-8", "surrogateescape"))},
    "date": {
        "string": _text_to_date,
        "timestamp": _always(lambda value: value.astimezone(UTC).date()),
        "timestamp_ntz": _always(lambda value: value.date()),
    },
    "timestamp": {
        "string": _text_to_timestamp,
        "date": _always(midnight),
        "timestamp_ntz": _always(lambda value: value.replace(tzinfo=UTC)),
        **dict.fromkeys(("integer", "float", "double", "decimal"), _number_to_timestamp),
    },
    "timestamp_ntz": {
        "string": _text_to_timestamp,
        "date": _always(lambda value: midnight(value).replace(tzinfo=None)),
        "timestamp": _always(lambda value: value.astimezone(UTC).replace(tzinfo=None)),
    },
}
