"""Java's patterns for dates and times (``yyyy-MM-dd HH:mm``), for writing and for reading."""

from __future__ import annotations

import datetime as dt
import functools
import re

from millstream.pipeline.sql.casts import UTC, BadValue, zone_of
from millstream.pipeline.sql.nodes import Unsupported

_NAMES = "January February March April May June July August September October November December"
_MONTHS = _NAMES.split()
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_PART = re.compile(r"'((?:[^']|'')*)'|([a-zA-Z])\2*|[^a-zA-Z']")
_READ = {
    "y": r"(?P<y>\d{4})",
    "M": r"(?P<M>\d{1,2})",
    "d": r"(?P<d>\d{1,2})",
    "H": r"(?P<H>\d{1,2})",
    "h": r"(?P<h>\d{1,2})",
    "m": r"(?P<m>\d{1,2})",
    "s": r"(?P<s>\d{1,2})",
}


@functools.lru_cache(maxsize=128)
def _parts(pattern: str) -> tuple[tuple[str, int, str], ...]:
    """The letters of a pattern with their counts, and the literal text in it."""
    found, position = [], 0
    while position < len(pattern):
        match = _PART.match(pattern, position)
        if match is None:
            raise BadValue(f"the time pattern {pattern!r} has a quote that is not closed")
        position = match.end()
        if match[2] is not None:
            found.append((match[2], len(match[0]), ""))
        else:
            found.append(("", 0, match[0] if match[1] is None else match[1].replace("''", "'") or "'"))
    return tuple(found)


def written(time: dt.datetime, pattern: str) -> str:
    """A time written by a pattern, in the zone that it has."""
    return "".join(text or _one(time, letter, count, pattern) for letter, count, text in _parts(pattern))


def _one(time: dt.datetime, letter: str, count: int, pattern: str) -> str:
    if letter in "yu":
        return f"{time.year % 100:02d}" if count == 2 else f"{time.year:0{count}d}"
    if letter in "ML" and count >= 3:
        return _MONTHS[time.month - 1][: 3 if count == 3 else None]
    if letter == "E":
        return _DAYS[time.weekday()][: None if count == 4 else 3]
    if letter == "a" and count == 1:
        return "AM" if time.hour < 12 else "PM"
    if letter == "S":
        return f"{time.microsecond:06d}".ljust(9, "0")[:count]
    if letter == "q" or letter == "Q":
        return f"{(time.month + 2) // 3:0{count}d}"
    if letter in "XxZ":
        return _offset(time, letter, count, pattern)
    numbers = {
        "M": time.month,
        "L": time.month,
        "d": time.day,
        "D": time.timetuple().tm_yday,
        "H": time.hour,
        "h": (time.hour - 1) % 12 + 1,
        "k": (time.hour - 1) % 24 + 1,
        "K": time.hour % 12,
        "m": time.minute,
        "s": time.second,
    }
    if letter not in numbers or count > (3 if letter == "D" else 2):
        raise Unsupported(f"{letter * count!r} in the time pattern {pattern!r}")
    return f"{numbers[letter]:0{count}d}"


def _offset(time: dt.datetime, letter: str, count: int, pattern: str) -> str:
    offset = time.utcoffset() or dt.timedelta()
    if not offset and letter == "X":
        return "Z"
    minutes = int(offset.total_seconds()) // 60
    sign, (hours, rest) = "+" if minutes >= 0 else "-", divmod(abs(minutes), 60)
    if count == 3 and letter in "Xx":
        return f"{sign}{hours:02d}:{rest:02d}"
    if (count == 2 and letter in "Xx") or (letter == "Z" and count <= 3):
        return f"{sign}{hours:02d}{rest:02d}"
    raise Unsupported(f"{letter * count!r} in the time pattern {pattern!r}")


@functools.lru_cache(maxsize=128)
def _reader(pattern: str) -> re.Pattern[str]:
    made = []
    for letter, count, text in _parts(pattern):
        if text:
            made.append(re.escape(text))
        elif letter in "ML" and count in (3, 4):
            names = [name[: 3 if count == 3 else None] for name in _MONTHS]
            made.append(f"(?P<name>{'|'.join(names)})")
        elif letter == "y" and count == 2:
            made.append(r"(?P<yy>\d{2})")
        elif letter in _READ and count <= 4:
            exact = _READ[letter] if count == 1 or letter == "y" else _READ[letter].replace("1,2", "2")
            made.append(exact)
        elif letter == "S":
            made.append(rf"(?P<S>\d{{{count}}})")
        elif letter == "a":
            made.append("(?P<a>AM|PM)")
        elif letter in "XxZ":
            made.append(r"(?P<zone>Z|[+-]\d{2}(?::?\d{2})?)")
        else:
            raise Unsupported(f"{letter * count!r} in the time pattern {pattern!r}")
    return re.compile("".join(made))


def read(text: str, pattern: str) -> dt.datetime | None:
    """The time in a text, read by a pattern, in UTC if the text has no zone; None if it doesn't fit."""
    match = _reader(pattern).fullmatch(text)
    if match is None:
        return None
    found = {name: value for name, value in match.groupdict().items() if value is not None}
    hour = int(found.get("H", 0))
    if "h" in found:
        hour = int(found["h"]) % 12 + (12 if found.get("a") == "PM" else 0)
    month = int(found.get("M", 1))
    if "name" in found:
        month = 1 + next(at for at, name in enumerate(_MONTHS) if name.startswith(found["name"]))
    year = int(found["y"]) if "y" in found else 2000 + int(found["yy"]) if "yy" in found else 1970
    try:
        return dt.datetime(
            year,
            month,
            int(found.get("d", 1)),
            hour,
            int(found.get("m", 0)),
            int(found.get("s", 0)),
            int(found.get("S", "0").ljust(6, "0")[:6]),
            tzinfo=zone_of(found["zone"]) if "zone" in found else UTC,
        ).astimezone(UTC)
    except ValueError:
        return None
