"""Amounts as people write them: sizes, time spans, counts, runs of numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_UNITS_MS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 86_400_000),
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")


class DurationError(ValueError):
    """A text is not a duration, or not one of whole milliseconds; the message says why."""


def bytes_text(size: float) -> str:
    """A size: ``1.5 MB``."""
    amount = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 999.5:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:,.3g} TB"


def duration_text(milliseconds: int) -> str:
    """A time span in its two largest units: ``3 h 12 min``."""
    if milliseconds < 1000:
        return f"{max(0, milliseconds)} ms"
    seconds = milliseconds // 1000
    if seconds < 60:
        return f"{milliseconds / 1000:.3g} s"
    for unit, size, smaller, part in (
        ("d", 86_400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if seconds >= size:
            rest = seconds % size // part
            return f"{seconds // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    raise AssertionError(seconds)


def exact_duration(milliseconds: int) -> str:
    """A time span without loss, in one unit: ``2 minutes``, ``90 seconds``. ``duration_ms`` reads it back."""
    for unit, size in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000)):
        if milliseconds and milliseconds % size == 0:
            amount = milliseconds // size
            return f"{amount} {unit}" + ("" if amount == 1 else "s")
    return f"{milliseconds} ms"


def duration_ms(text: object, *, zero: bool = False) -> int:
    """The milliseconds in ``30s``, ``2 minutes`` or ``1 hour 30 minutes``."""
    total, position = 0.0, 0
    stripped = text.strip() if isinstance(text, str) else ""
    while position < len(stripped):
        match = _DURATION.match(stripped, position)
        if match is None or match[2].lower() not in _UNITS_MS:
            break
        total += float(match[1]) * _UNITS_MS[match[2].lower()]
        position = match.end()
    if not stripped or position < len(stripped):
        raise DurationError(f"{text!r} is not a duration; write it as '30 seconds', '2 minutes' or '1 hour'")
    if total != int(total) or (total == 0 and not zero):
        raise DurationError(f"{text!r} must be at least one millisecond, in whole milliseconds")
    return int(total)


def count(number: int, noun: str) -> str:
    """``1 record``, ``12,000 records``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def runs(numbers: Iterable[int]) -> str:
    """``0-3,7``: consecutive numbers are written as a range."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in parts)


def listed(names: Sequence[str], most: int = 3) -> str:
    """``payments, orders and 4 more``."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def did_you_mean(name: str, known: Iterable[str], *, most: int = 1) -> str:
    """``did you mean 'payments'?``, with the known names nearest to one that was mistyped; empty if none is
    near. Capitals don't matter.
    """
    import difflib  # only needed after a mistake

    by_lower = {each.lower(): each for each in known}
    near = [by_lower[each] for each in difflib.get_close_matches(name.lower(), by_lower, n=most)]
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""
