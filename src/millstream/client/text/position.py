"""Positions in a partition as people write them: ``start``, ``47``, ``-3``, ``@-1h``, ``10:20``.

    start, end          the oldest record kept; the position after the newest
    47                  offset 47
    +5                  5 records after the start (in ``group seek``: after the committed offset)
    -3                  3 records before the end (in ``group seek``: before the committed offset)
    @2026-01-01         the first record at or after a time: a date, a date and time (UTC unless it names
    @2026-01-01T10:30   a zone), milliseconds or seconds since 1970, or an age such as @-1h or @-1d12h
    A:B                 from A up to B, without B itself; ``:B`` from the start, ``A:`` from A onwards

Pure: parsing returns a value, which becomes an offset once a broker has reported the bounds of a partition.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from millstream.core.errors import ConfigError

Kind = Literal["start", "end", "offset", "after", "before", "time"]

_WORDS: dict[str, Kind] = {
    "start": "start",
    "earliest": "start",
    "beginning": "start",
    "end": "end",
    "latest": "end",
}
_UNITS_MS = {
    "w": 7 * 86_400_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
    "ms": 1,
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[wdhms])")
_LARGEST_OFFSET = 2**63 - 1


class TopicPartition(NamedTuple):
    """One partition of one topic.

    >>> str(TopicPartition("orders", 2))
    'orders[2]'
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class Bounds(NamedTuple):
    """The offsets that a partition has now: the oldest one kept, and the next one to be assigned."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Position:
    """One position. By ``kind``, ``value`` is an offset, a number of records or milliseconds since 1970."""

    kind: Kind
    value: int = 0

    def __str__(self) -> str:
        match self.kind:
            case "offset":
                return str(self.value)
            case "after":
                return f"+{self.value}"
            case "before":
                return f"-{self.value}"
            case "time":
                return f"@{self.value}"
            case _:
                return self.kind

    def resolve(self, bounds: Bounds, *, time_offset: int | None = None, origin: int | None = None) -> int:
        """The offset that this position means, never outside ``bounds``.

        ``time_offset`` is the broker's answer for a time (None: every record is older). ``origin`` is what
        ``+`` and ``-`` count from, if not from the start and the end.
        """
        start, end = bounds
        match self.kind:
            case "start":
                wanted = start
            case "end":
                wanted = end
            case "offset":
                wanted = self.value
            case "after":
                wanted = (start if origin is None else origin) + self.value
            case "before":
                wanted = (end if origin is None else origin) - self.value
            case "time":
                wanted = end if time_offset is None else time_offset
        return max(start, min(wanted, end))


START = Position("start")
END = Position("end")


@dataclass(frozen=True, slots=True)
class Range:
    """From one position to another. Without ``stop`` it continues with whatever is appended."""

    start: Position
    stop: Position | None = None

    def __str__(self) -> str:
        return str(self.start) if self.stop is None else f"{self.start}:{self.stop}"


def chosen_partitions(places: Sequence[TopicPartition], wanted: Sequence[int]) -> list[TopicPartition]:
    """The partitions with the wanted numbers, or all if none are wanted. Raises ConfigError."""
    if not wanted:
        return list(places)
    there = {place.partition for place in places}
    for index in wanted:
        if index not in there:
            raise ConfigError(
                f"there is no partition {index}; {places[0].topic} has 0 to {len(there) - 1}"
                if places
                else f"there is no partition {index}"
            )
    return [place for place in places if place.partition in set(wanted)]


def parse_duration_ms(text: str) -> int:
    """Parse ``1h``, ``1d12h``, ``250ms``, ``1.5s`` into milliseconds."""
    total, at = 0.0, 0
    for part in _DURATION.finditer(text):
        if part.start() != at:
            break
        total += float(part[1]) * _UNITS_MS[part[2]]
        at = part.end()
    if not text or at != len(text):
        raise ConfigError(f"{text!r} is not a duration; write it like 30s, 15m, 1h or 1d12h")
    return round(total)


def parse_position(text: str, now_ms: int) -> Position:
    """Parse one position, not a range."""
    word = text.strip()
    position = _offset(word)
    if position is None and word.startswith("@"):
        position = Position("time", _time_ms(word[1:], now_ms))
    if position is None:
        raise ConfigError(
            f"{text!r} is not a position; write start, end, an offset (47), -3 (before the end), "
            "+3 (after the start) or a time (@-1h, @2026-01-01)"
        )
    return position


def parse_range(text: str, now_ms: int) -> Range:
    """Parse a position or a range of positions."""
    word = text.strip()
    try:
        return Range(parse_position(word, now_ms))
    except ConfigError:
        if ":" not in word:
            raise
    # Times contain colons too: of the possible cuts, the one with the longest first part is meant.
    for cut in reversed([at for at, letter in enumerate(word) if letter == ":"]):
        left, right = word[:cut], word[cut + 1 :]
        try:
            start = parse_position(left, now_ms) if left else START
            return Range(start, _stop(right, now_ms, after_time=start.kind == "time"))
        except ConfigError:
            continue
    raise ConfigError(
        f"{text!r} is not a range; write FROM:UNTIL with each a position, as in 10:20, @-1h:end or :end"
    )


def _stop(text: str, now_ms: int, *, after_time: bool) -> Position | None:
    if not text:
        return None
    if after_time and not text.startswith("@") and (text.isdigit() or _offset(text) is None):
        return Position("time", _time_ms(text, now_ms))  # as in @2026-01-01:2026-01-02 and @-2h:-1h
    return parse_position(text, now_ms)


def _offset(word: str) -> Position | None:
    kind = _WORDS.get(word.lower())
    if kind is not None:
        return Position(kind)
    digits = word[1:] if word[:1] in ("+", "-") else word
    if not (digits.isascii() and digits.isdigit()):
        return None
    value = int(digits)
    if value > _LARGEST_OFFSET:
        raise ConfigError(f"{word!r} is larger than any offset")
    if word[0] == "-":
        return Position("before", value)
    return Position("after" if word[0] == "+" else "offset", value)


def _time_ms(text: str, now_ms: int) -> int:
    if text.lower() == "now":
        return now_ms
    if text.startswith("-"):
        return max(0, now_ms - parse_duration_ms(text[1:]))
    if text.isascii() and text.isdigit():
        # Since 2001, milliseconds have 13 digits and seconds have 10. Fewer than 9 digits are neither.
        if len(text) >= 12:
            return min(int(text), _LARGEST_OFFSET)
        if len(text) >= 9:
            return int(text) * 1000
        raise ConfigError(f"@{text} is not a time: milliseconds have 13 digits, seconds 10")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"@{text} is not a time; write @2026-01-01, @2026-01-01T10:30, @-1h or milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1000))
