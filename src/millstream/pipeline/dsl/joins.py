"""Declares joins and gatherings: what is joined with what, within which time, and the result's columns.

This needs no Spark. Mistakes are found here as far as the columns are known: if a user's function comes
before a join, the other mistakes are found when Spark has told the columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.declaring import Time, caller
from millstream.pipeline.dsl.expressions import ExpressionError, duration_ms, no_such_column, output_name
from millstream.pipeline.dsl.stateful import Input, StatefulChannel, channel, declare
from millstream.pipeline.dsl.streams import Stream, Union
from millstream.pipeline.dsl.tables import Table
from millstream.pipeline.dsl.windows import Window
from millstream.pipeline.kernel.channels import late_channel
from millstream.pipeline.kernel.joins.naming import CHANGE_TIME, DELETED, JOIN_TIME, TIME_BASIS, joined
from millstream.sqltypes.ddl import quoted

if TYPE_CHECKING:
    from millstream.pipeline.dsl.topology import Topology

On = str | Sequence[str] | Mapping[str, str]
_PART = re.compile(r"[^\W\d]\w*")


def declare_join(
    left: Stream,
    right: object,
    on: On,
    within: object,
    how: str,
    order: str | None,
    as_of: str | None,
    *,
    name: str | None,
    at: str,
) -> StatefulChannel:
    """Declares the join of a stream with another stream or with a table."""
    if isinstance(right, Table):
        if within is not None or order is not None:
            raise TopologyError(
                "a table has a row for every time: within= and order= go with a stream", where=at
            )
        return _with_table(left, right, on, how, as_of or "event", name=name, at=at)
    if isinstance(right, Window):
        raise TopologyError("a window has no rows before .agg(...)", where=at)
    if not isinstance(right, Stream):
        raise TopologyError(f"a join is with a stream or a table; {right!r} is neither", where=at)
    if as_of is not None:
        raise TopologyError(
            f"as_of= goes with a table, and {right.name!r} is a stream; .as_table(key=...) makes it one",
            where=at,
        )
    if within is None:
        raise TopologyError(
            "a join of streams needs within=, for example within='10 minutes', or all rows would have to be"
            f" kept for ever. If the latest row of {right.name!r} is meant, .as_table(key=...) makes it one",
            where=at,
        )
    return _with_stream(left, right, on, within, how, order or "arrival", name=name, at=at)


def _with_stream(
    left: Stream, right: Stream, on: On, within: object, how: str, order: str, *, name: str | None, at: str
) -> StatefulChannel:
    from millstream.pipeline.kernel.joins.streams import OWN, JoinWithin, JoinWithinInOrder

    _same_flow(left, right, at)
    _choose("how", how, ("inner", "left", "right", "outer"), at)
    _choose("order", order, ("arrival", "time"), at)
    lower, upper = _bounds(within, at)
    by, others = _on(on, at)
    inputs = [Input(left, by), Input(right, others)]
    time = _time_of(JOIN_TIME, (left, right), at)
    plan_class = JoinWithinInOrder if order == "time" else JoinWithin
    plan = plan_class(how, len(by), lower, upper, time.basis, _results(left, right))
    # A row that waited for a match in vain is this much older than the watermark when it is given.
    behind = max(upper if how in ("left", "outer") else 0, -lower if how in ("right", "outer") else 0, 0)
    return declare(
        "join",
        inputs,
        plan,
        at=at,
        name=name,
        columns=_columns(inputs[0].keys, inputs[0], inputs[1], OWN, at),
        time=time.of_results(JOIN_TIME, behind_us=behind),
    )


def _with_table(
    stream: Stream, table: Table, on: On, how: str, as_of: str, *, name: str | None, at: str
) -> StatefulChannel:
    from millstream.pipeline.kernel.joins.streams import OWN
    from millstream.pipeline.kernel.joins.tables import AsOf, Latest

    _same_flow(stream, table.changes, at)
    _choose("how", how, ("inner", "left"), at)
    _choose("as_of", as_of, ("event", "latest"), at)
    inputs = [
        Input(table.changes, tuple(quoted(key) for key in table.key)),
        Input(stream, _on_key_of(table, on, at)),
    ]
    time = _time_of(JOIN_TIME, (stream,), at)
    changed = _time(table.changes, at)
    plan_class = AsOf if as_of == "event" else Latest
    plan = plan_class(how, len(table.key), changed.column, time.basis, _results(stream, table.changes))
    return declare(
        "join",
        inputs,
        plan,
        at=at,
        name=name,
        columns=_columns(inputs[1].keys, inputs[1], inputs[0], OWN, at, ((), (DELETED, TIME_BASIS))),
        time=time,
    )


def declare_table_join(
    left: Table, right: object, on: On | None, how: str, *, name: str | None, at: str
) -> Table:
    """Declares the join of two tables; the result is a table."""
    from millstream.pipeline.kernel.joins.tables import CHANGE_COLUMNS, TableJoin

    if not isinstance(right, Table):
        raise TopologyError(
            "a table is joined with a table; a stream looks up a table with stream.join(table)", where=at
        )
    _same_flow(left.changes, right.changes, at)
    by = tuple(quoted(key) for key in left.key) if on is None else _on_key_of(right, on, at)
    keys = tuple(str(output_name(key)) for key in by)
    if sorted(keys) != sorted(left.key):
        return _by_foreign_key(left, right, keys, how, name=name, at=at)
    _choose("how", how, ("inner", "left", "right", "outer"), at)
    if len(right.key) != len(left.key):
        raise TopologyError(
            f"{left.name!r} has the key {', '.join(left.key)}, {right.name!r} {', '.join(right.key)}: say"
            " with on= which columns are the other's key",
            where=at,
        )
    inputs = [Input(left.changes, by), Input(right.changes, tuple(quoted(key) for key in right.key))]
    time = _time_of(CHANGE_TIME, (left.changes, right.changes), at)
    times = _time(left.changes, at).column, _time(right.changes, at).column
    plan = TableJoin(how, len(by), times, time.basis, _results(left.changes, right.changes))
    changes = declare(
        "join",
        inputs,
        plan,
        at=at,
        name=name,
        columns=_columns(keys, inputs[0], inputs[1], CHANGE_COLUMNS, at, ((DELETED,), (DELETED,))),
        time=time,
    )
    return Table(changes, keys, at, late=lambda at: changes.late)


def _by_foreign_key(
    left: Table, right: Table, foreign: tuple[str, ...], how: str, *, name: str | None, at: str
) -> Table:
    from millstream.pipeline.kernel.joins.foreign_key import AWAY, SENT_AT, Assign, Match, Settle
    from millstream.pipeline.kernel.joins.streams import RIGHT
    from millstream.pipeline.kernel.joins.tables import CHANGE_COLUMNS

    if how not in ("inner", "left"):
        raise TopologyError(
            f"how={how!r}: {', '.join(foreign)} is not the key of {left.name!r}, so a row of {right.name!r}"
            " that nothing names would have no key: inner or left",
            where=at,
        )
    columns = left.changes.columns
    for column in foreign:
        if columns is not None and column not in columns:
            raise TopologyError(f"on={column!r}: {no_such_column(column, columns)}", where=at)
    time = _time_of(CHANGE_TIME, (left.changes, right.changes), at)
    key = tuple(quoted(column) for column in left.key)
    left_time, right_time = _time(left.changes, at), _time(right.changes, at)
    assigned = declare(
        "assigned",
        [Input(left.changes, key)],
        Assign(len(key), foreign, left_time.column),
        at=at,
        name=None if name is None else f"{name}.assigned",
        columns=None if columns is None else (*columns, AWAY, SENT_AT),
        time=left_time.of_results(SENT_AT),
    )
    inputs = [
        Input(assigned, tuple(quoted(column) for column in foreign)),
        Input(right.changes, tuple(quoted(column) for column in right.key)),
    ]
    result = _columns(
        left.key, Input(left.changes, key), inputs[1], CHANGE_COLUMNS, at, ((DELETED,), (DELETED,))
    )
    matched = declare(
        "matched",
        inputs,
        Match(
            how, len(foreign), left.key, right_time.column, time.basis, _results(left.changes, right.changes)
        ),
        at=at,
        name=None if name is None else f"{name}.matched",
        columns=result,
        time=time,
    )
    changes = declare(
        "join", [Input(matched, key)], Settle(len(key)), at=at, name=name, columns=result, time=time
    )

    def late(at: str) -> Stream:
        of_right = left.changes.flow._channel(
            matched.stateful, late_channel(RIGHT), f"{changes.name}.late.{right.name}", at
        )
        return Union(left.changes.flow, (assigned.late, of_right), None, f"{changes.name}.late", at)

    return Table(changes, left.key, at, late=late)


# ---- gathering ---------------------------------------------------------------------------------------


class Gathered(StatefulChannel):
    """The complete events. Incomplete events and repeated parts are channels beside it."""

    _incomplete: StatefulChannel | None = None
    _duplicates: StatefulChannel | None = None

    @property
    def incomplete(self) -> StatefulChannel:
        """The events that lacked parts when their time was over; ``missing`` names these parts."""
        from millstream.pipeline.kernel.joins.gather import INCOMPLETE, MISSING

        if self._incomplete is None:
            columns = self.columns
            if columns is not None:
                columns = (*columns[:-2], MISSING, *columns[-2:])
            self._incomplete = channel(self, INCOMPLETE, at=caller(), columns=columns, time=self.time)
        return self._incomplete

    @property
    def duplicates(self) -> StatefulChannel:
        """The rows of a part that had arrived already; ``part`` is its name."""
        from millstream.pipeline.kernel.joins.gather import DUPLICATES, PART

        if self._duplicates is None:
            keys = self.stateful.inputs[0].keys
            columns = (*keys, PART, *(self.columns or ())[len(keys) :]) if self.columns is not None else None
            self._duplicates = channel(self, DUPLICATES, at=caller(), columns=columns, time=self.time)
        return self._duplicates


def declare_gather(
    flow: Topology,
    streams: Sequence[Stream],
    named: Mapping[str, Stream],
    by: str | Sequence[str],
    timeout: str,
    *,
    name: str | None,
    at: str,
) -> Gathered:
    """Declares the gathering of an event's parts by key."""
    from millstream.pipeline.kernel.joins.gather import (
        DUPLICATES,
        GATHER_TIME,
        INCOMPLETE,
        MISSING,
        PART,
        Gather,
    )

    parts: dict[str, Stream] = {}
    given: list[tuple[str | None, object]] = [*((None, stream) for stream in streams), *named.items()]
    for part, stream in given:
        if isinstance(stream, Window):
            raise TopologyError("a window has no rows before .agg(...)", where=at)
        if not isinstance(stream, Stream):
            raise TopologyError(f"a part is a stream; {stream!r} is not one", where=at)
        if stream.flow is not flow:
            raise TopologyError(f"{stream.name!r} belongs to topology {stream.flow.name!r}", where=at)
        called = part or stream.name
        if not _PART.fullmatch(called):
            raise TopologyError(
                f"{called!r} can't be a column: give the part a name, as in gather(price=..., ...)",
                where=at,
            )
        if called in parts:
            raise TopologyError(f"there are two parts {called!r}: give one another name", where=at)
        parts[called] = stream
    if len(parts) < 2:
        raise TopologyError("gather brings at least two streams together", where=at)
    keys = (by,) if isinstance(by, str) else tuple(by)
    inputs = [Input(stream, keys) for stream in parts.values()]
    taken = {
        *(str(output_name(key)) for key in keys),
        *(GATHER_TIME, TIME_BASIS, MISSING, PART, INCOMPLETE, DUPLICATES),
    }
    for part in parts:
        if part in taken:
            raise TopologyError(f"a part can't be called {part!r}: the result has such a column", where=at)
    time = _time_of(GATHER_TIME, tuple(parts.values()), at)
    made = declare(
        "gather",
        inputs,
        Gather(tuple(parts), len(keys), 1000 * _duration("timeout", timeout, at), time.basis),
        at=at,
        name=name,
        columns=(*inputs[0].keys, *parts, GATHER_TIME, TIME_BASIS),
        time=time,
        stream=Gathered,
    )
    assert isinstance(made, Gathered)
    return made


# ---- what they have in common ------------------------------------------------------------------------


def _on(on: On, at: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
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


def _on_key_of(table: Table, on: On, at: str) -> tuple[str, ...]:
    """The stream's columns that are matched with a table's key, in the key's order."""
    by, others = _on(on, at)
    if not isinstance(on, Mapping):
        if len(by) != len(table.key):
            raise TopologyError(
                f"table {table.name!r} has the key {', '.join(table.key)}: on= names as many columns",
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


def _bounds(within: object, at: str) -> tuple[int, int]:
    """The least and the most by which the right side may be later, in microseconds."""
    if isinstance(within, str):
        span = 1000 * _duration("within", within, at)
        return -span, span
    if isinstance(within, Sequence) and len(within) == 2:
        lower, upper = (_signed(bound, at) for bound in within)
        if lower > upper:
            raise TopologyError(f"within={within!r}: the first is the lower bound", where=at)
        return lower, upper
    raise TopologyError(
        f"within={within!r} is not a duration, nor two of them, as in ('-5 minutes', '10 minutes')", where=at
    )


def _signed(text: object, at: str) -> int:
    sign = -1 if isinstance(text, str) and text.strip().startswith("-") else 1
    plain = text.strip().lstrip("-") if isinstance(text, str) else text
    return sign * 1000 * _duration("within", plain, at)


def _duration(what: str, text: object, at: str) -> int:
    try:
        return duration_ms(text, zero=what == "within")
    except ExpressionError as error:
        raise TopologyError(f"{what}: {error}", where=at) from None


def _choose(what: str, chosen: object, among: Sequence[str], at: str) -> None:
    if chosen not in among:
        raise TopologyError(f"{what}={chosen!r} is not one of {', '.join(map(repr, among))}", where=at)


def _same_flow(left: Stream, right: Stream, at: str) -> None:
    if left.flow is not right.flow:
        raise TopologyError(f"{right.name!r} belongs to topology {right.flow.name!r}", where=at)


def _time(stream: Stream, at: str) -> Time:
    stream._needs_time(at)
    assert stream.time is not None
    return stream.time


def _time_of(column: str, streams: Sequence[Stream], at: str) -> Time:
    """The time of a result that is made of several streams: its name has the names of all their times."""
    times = [_time(stream, at) for stream in streams]
    if len({time.basis for time in times}) == 1:
        return times[0].of_results(column)
    origins = dict.fromkeys(
        time.origin or time.column if time.kind == "event" else time.basis for time in times
    )
    return Time("event", column, origin=", ".join(origins))


def _results(*streams: Stream) -> tuple[bool, bool]:
    """Which of the two are results of another operator, and so bring columns that say so."""
    left, right = (stream.time is not None and stream.time.origin is not None for stream in streams)
    return left, right


def _columns(
    keys: Sequence[str],
    left: Input,
    right: Input,
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
        kept = joined(keys, lefts, rights, own, _results(left.stream, right.stream))
    except TopologyError as error:
        raise TopologyError(str(error), where=at) from None
    return (*keys, *(name for side in kept for _, name in side), *own)
