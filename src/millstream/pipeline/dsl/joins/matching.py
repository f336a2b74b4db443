"""What joins and gatherings have in common: how rows match, and the columns and the time of the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.core.errors import TopologyError
from millstream.core.units import DurationError, duration_ms
from millstream.pipeline.dsl.declaring import StreamTime
from millstream.pipeline.dsl.graph import KeyedInput, StreamNode
from millstream.pipeline.dsl.joins.tables import TableChanges
from millstream.pipeline.kernel.joins.naming import joined

On = str | Sequence[str] | Mapping[str, str]


def on_columns(on: On, at: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The keys of both sides."""
    keys: tuple[object, ...] = (on,)
    if isinstance(on, Mapping):
        keys = (*on, *on.values())
    elif isinstance(on, Sequence) and not isinstance(on, str):
        keys = tuple(on)
    by = tuple(key for key in keys if isinstance(key, str))
    if len(by) != len(keys):
        raise TopologyError(f"on={on!r} is not a column, a list of columns, or a dict of them", where=at)
    return (by[: len(on)], by[len(on) :]) if isinstance(on, Mapping) else (by, by)


def on_key_of(table: TableChanges, on: On, at: str) -> tuple[str, ...]:
    """The stream's columns that are matched with a table's key, in the key's order."""
    by, others = on_columns(on, at)
    if not isinstance(on, Mapping):
        if len(by) != len(table.key):
            raise TopologyError(
                f"table {table.name!r} has the key {', '.join(table.key)}: on= must name as many columns",
                where=at,
            )
        return by
    if sorted(others) != sorted(table.key):
        raise TopologyError(
            f"a table is joined by its key, and that of {table.name!r} is {', '.join(table.key)}, not"
            f" {', '.join(others)}",
            where=at,
        )
    return tuple(by[others.index(key)] for key in table.key)


def bounds_of(within: object, at: str) -> tuple[int, int]:
    """The least and the most by which the right side may be later, in microseconds."""
    if isinstance(within, str):
        span = micros_of("within", within, at)
        return -span, span
    if isinstance(within, Sequence) and len(within) == 2:
        lower, upper = (_signed(bound, at) for bound in within)
        if lower > upper:
            raise TopologyError(f"within={within!r}: give the lower bound first", where=at)
        return lower, upper
    raise TopologyError(
        f"within={within!r} is neither a duration nor two of them, as in ('-5 minutes', '10 minutes')",
        where=at,
    )


def _signed(text: object, at: str) -> int:
    sign = -1 if isinstance(text, str) and text.strip().startswith("-") else 1
    plain = text.strip().lstrip("-") if isinstance(text, str) else text
    return sign * micros_of("within", plain, at)


def micros_of(what: str, text: object, at: str) -> int:
    try:
        return 1000 * duration_ms(text, zero=what == "within")
    except DurationError as error:
        raise TopologyError(f"{what}: {error}", where=at) from None


def check_choice(what: str, chosen: object, among: Sequence[str], at: str) -> None:
    if chosen not in among:
        raise TopologyError(f"{what}={chosen!r} is not one of {', '.join(map(repr, among))}", where=at)


def check_same_flow(left: StreamNode, right: StreamNode, at: str) -> None:
    if left.flow is not right.flow:
        raise TopologyError(f"{right.name!r} belongs to topology {right.flow.name!r}", where=at)


def checked_time(stream: StreamNode, at: str) -> StreamTime:
    stream.check_time(at)
    assert stream.time is not None
    return stream.time


def time_of(column: str, streams: Sequence[StreamNode], at: str) -> StreamTime:
    """The time of a result that is made of several streams: its name has the names of all their times."""
    times = [checked_time(stream, at) for stream in streams]
    if len({time.basis for time in times}) == 1:
        return times[0].of_results(column)
    origins = dict.fromkeys(
        time.origin or time.column if time.kind == "event" else time.basis for time in times
    )
    return StreamTime("event", column, origin=", ".join(origins))


def are_results(*streams: StreamNode) -> tuple[bool, bool]:
    """Which of the two are results of another operator, and so bring columns that say so."""
    left, right = (stream.time is not None and stream.time.origin is not None for stream in streams)
    return left, right


def result_columns(
    keys: Sequence[str],
    left: KeyedInput,
    right: KeyedInput,
    own: Sequence[str],
    at: str,
    but: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> tuple[str, ...] | None:
    """The columns of the result, if they are known: those of both sides except ``but``, then its own."""
    if left.stream.columns is None or right.stream.columns is None:
        return None
    lefts = [name for name in left.stream.columns if name not in (*left.keys, *but[0])]
    rights = [name for name in right.stream.columns if name not in (*right.keys, *but[1])]
    try:
        kept = joined(keys, lefts, rights, own, are_results(left.stream, right.stream))
    except TopologyError as error:
        raise TopologyError(str(error), where=at) from None
    return (*keys, *(name for side in kept for _, name in side), *own)
