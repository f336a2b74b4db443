"""Amounts as people write them: sizes, time spans, counts, runs of numbers."""

from __future__ import annotations

from collections.abc import Iterable


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
