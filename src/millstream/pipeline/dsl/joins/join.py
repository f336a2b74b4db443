"""Joins of streams and tables: what is joined with what, within which time, and the result's columns.

Mistakes are found here as far as the columns are known: if a user's function comes before a join, the other
mistakes are found when Spark has told the columns.
"""

from __future__ import annotations

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.expressions import no_such_column, output_name
from millstream.pipeline.dsl.graph import KeyedInput, StreamNode
from millstream.pipeline.dsl.joins.matching import (
    On,
    are_results,
    bounds_of,
    check_choice,
    check_same_flow,
    checked_time,
    on_columns,
    on_key_of,
    result_columns,
    time_of,
)
from millstream.pipeline.dsl.joins.tables import TableChanges
from millstream.pipeline.dsl.stateful import ChannelNode, declare, late_rows
from millstream.pipeline.kernel.channels import LATE
from millstream.pipeline.kernel.joins.naming import CHANGE_TIME, DELETED, JOIN_TIME, TIME_BASIS
from millstream.sqltypes.ddl import quoted


def declare_join(
    left: StreamNode,
    right: StreamNode | TableChanges,
    on: On,
    within: object,
    how: str,
    order: str | None,
    as_of: str | None,
    *,
    name: str | None,
    at: str,
) -> ChannelNode:
    """Declares the join of a stream with another stream or with a table."""
    if isinstance(right, TableChanges):
        if within is not None or order is not None:
            raise TopologyError(
                "within= and order= require a stream on the right; a table has one row for every time",
                where=at,
            )
        return _with_table(left, right, on, how, as_of or "event", name=name, at=at)
    if as_of is not None:
        raise TopologyError(
            f"as_of= requires a table, and {right.name!r} is a stream; .as_table(key=...) makes it one",
            where=at,
        )
    if within is None:
        raise TopologyError(
            "a join of streams needs within=, for example within='10 minutes': without it, all rows would"
            f" have to be kept forever. To join with the latest row of {right.name!r}, use"
            " .as_table(key=...)",
            where=at,
        )
    return _with_stream(left, right, on, within, how, order or "arrival", name=name, at=at)


def _with_stream(
    left: StreamNode,
    right: StreamNode,
    on: On,
    within: object,
    how: str,
    order: str,
    *,
    name: str | None,
    at: str,
) -> ChannelNode:
    from millstream.pipeline.kernel.joins.streams import OWN, JoinWithin, JoinWithinInOrder

    check_same_flow(left, right, at)
    check_choice("how", how, ("inner", "left", "right", "outer"), at)
    check_choice("order", order, ("arrival", "time"), at)
    lower, upper = bounds_of(within, at)
    by, others = on_columns(on, at)
    inputs = [KeyedInput(left, by), KeyedInput(right, others)]
    time = time_of(JOIN_TIME, (left, right), at)
    plan_class = JoinWithinInOrder if order == "time" else JoinWithin
    plan = plan_class(how, len(by), lower, upper, time.basis, are_results(left, right))
    # A row that waited for a match in vain is this much older than the watermark when it is given.
    behind = max(upper if how in ("left", "outer") else 0, -lower if how in ("right", "outer") else 0, 0)
    return declare(
        ChannelNode,
        "join",
        inputs,
        plan,
        at=at,
        name=name,
        columns=result_columns(inputs[0].keys, inputs[0], inputs[1], OWN, at),
        time=time.of_results(JOIN_TIME, behind_us=behind),
    )


def _with_table(
    stream: StreamNode, table: TableChanges, on: On, how: str, as_of: str, *, name: str | None, at: str
) -> ChannelNode:
    from millstream.pipeline.kernel.joins.streams import OWN
    from millstream.pipeline.kernel.joins.tables import AsOfLookup, LatestLookup

    check_same_flow(stream, table.changes, at)
    check_choice("how", how, ("inner", "left"), at)
    check_choice("as_of", as_of, ("event", "latest"), at)
    inputs = [
        KeyedInput(table.changes, tuple(quoted(key) for key in table.key)),
        KeyedInput(stream, on_key_of(table, on, at)),
    ]
    time = time_of(JOIN_TIME, (stream,), at)
    changed = checked_time(table.changes, at)
    plan_class = AsOfLookup if as_of == "event" else LatestLookup
    plan = plan_class(how, len(table.key), changed.column, time.basis, are_results(stream, table.changes))
    return declare(
        ChannelNode,
        "join",
        inputs,
        plan,
        at=at,
        name=name,
        columns=result_columns(inputs[1].keys, inputs[1], inputs[0], OWN, at, ((), (DELETED, TIME_BASIS))),
        time=time,
    )


def declare_table_join(
    left: TableChanges, right: TableChanges, on: On | None, how: str, *, name: str | None, at: str
) -> TableChanges:
    """Declares the join of two tables; the result is a table."""
    from millstream.pipeline.kernel.joins.tables import CHANGE_COLUMNS, TableJoin

    check_same_flow(left.changes, right.changes, at)
    by = tuple(quoted(key) for key in left.key) if on is None else on_key_of(right, on, at)
    keys = tuple(str(output_name(key)) for key in by)
    if sorted(keys) != sorted(left.key):
        return _by_foreign_key(left, right, keys, how, name=name, at=at)
    check_choice("how", how, ("inner", "left", "right", "outer"), at)
    if len(right.key) != len(left.key):
        raise TopologyError(
            f"{left.name!r} has the key {', '.join(left.key)}, {right.name!r} {', '.join(right.key)}: use"
            " on= to say which columns hold the other's key",
            where=at,
        )
    inputs = [
        KeyedInput(left.changes, by),
        KeyedInput(right.changes, tuple(quoted(key) for key in right.key)),
    ]
    time = time_of(CHANGE_TIME, (left.changes, right.changes), at)
    times = checked_time(left.changes, at).column, checked_time(right.changes, at).column
    plan = TableJoin(how, len(by), times, time.basis, are_results(left.changes, right.changes))
    changes = declare(
        ChannelNode,
        "join",
        inputs,
        plan,
        at=at,
        name=name,
        columns=result_columns(keys, inputs[0], inputs[1], CHANGE_COLUMNS, at, ((DELETED,), (DELETED,))),
        time=time,
    )
    return TableChanges(changes, keys, at, late=lambda at: changes.late_rows(LATE, at))


class ForeignKeyJoinNode(ChannelNode):
    """The changes of two tables joined by a foreign key: what the last of three operators emits."""

    def late_parts(self, word: str, at: str) -> tuple[StreamNode, ...]:
        """The first operator sets aside late changes of the left table, the second those of the right."""
        from millstream.pipeline.kernel.joins.streams import LEFT, RIGHT

        (matched,) = self.inputs
        assigned = matched.inputs[LEFT]
        assert assigned.state is not None
        assert matched.state is not None
        return (
            late_rows(assigned.state, 0, word, at),
            late_rows(matched.state, RIGHT, word, at, of=self.name),
        )


def _by_foreign_key(
    left: TableChanges, right: TableChanges, foreign: tuple[str, ...], how: str, *, name: str | None, at: str
) -> TableChanges:
    from millstream.pipeline.kernel.joins.foreign_key import (
        AWAY,
        SENT_AT,
        ForeignKeyJoin,
        ForeignKeyReorder,
        ForeignKeyRoute,
    )
    from millstream.pipeline.kernel.joins.tables import CHANGE_COLUMNS

    if how not in ("inner", "left"):
        raise TopologyError(
            f"how={how!r}: {', '.join(foreign)} is not the key of {left.name!r}, so a row of {right.name!r}"
            " without a match would have no key; use 'inner' or 'left'",
            where=at,
        )
    columns = left.changes.columns
    for column in foreign:
        if columns is not None and column not in columns:
            raise TopologyError(f"on={column!r}: {no_such_column(column, columns)}", where=at)
    time = time_of(CHANGE_TIME, (left.changes, right.changes), at)
    key = tuple(quoted(column) for column in left.key)
    left_time, right_time = checked_time(left.changes, at), checked_time(right.changes, at)
    assigned = declare(
        ChannelNode,
        "assigned",
        [KeyedInput(left.changes, key)],
        ForeignKeyRoute(len(key), foreign, left_time.column),
        at=at,
        name=None if name is None else f"{name}.assigned",
        columns=None if columns is None else (*columns, AWAY, SENT_AT),
        time=left_time.of_results(SENT_AT),
    )
    inputs = [
        KeyedInput(assigned, tuple(quoted(column) for column in foreign)),
        KeyedInput(right.changes, tuple(quoted(column) for column in right.key)),
    ]
    result = result_columns(
        left.key, KeyedInput(left.changes, key), inputs[1], CHANGE_COLUMNS, at, ((DELETED,), (DELETED,))
    )
    matched = declare(
        ChannelNode,
        "matched",
        inputs,
        ForeignKeyJoin(
            how,
            len(foreign),
            left.key,
            right_time.column,
            time.basis,
            are_results(left.changes, right.changes),
        ),
        at=at,
        name=None if name is None else f"{name}.matched",
        columns=result,
        time=time,
    )
    changes = declare(
        ForeignKeyJoinNode,
        "join",
        [KeyedInput(matched, key)],
        ForeignKeyReorder(len(key)),
        at=at,
        name=name,
        columns=result,
        time=time,
    )

    return TableChanges(changes, left.key, at, late=lambda at: changes.late_rows(LATE, at))
