"""Tables: topics, or any streams, whose rows are changes of a table.

A table is not a stream: it has one row per key, and only its changes flow. The changes are a stream with the
columns of the row and ``deleted``, which says that the key's row is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.expressions import no_such_column
from millstream.pipeline.dsl.graph import StreamNode
from millstream.pipeline.dsl.selections import declare_select
from millstream.pipeline.dsl.sinks import declare_topic_sink
from millstream.pipeline.dsl.sources import SourceNode, TableRecords
from millstream.pipeline.kernel.joins.naming import CHANGE_TIME, DELETED, TIME_BASIS
from millstream.sqltypes.ddl import quoted


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The changes of a table, and its key. ``late`` makes the stream of the changes that came when a later
    change of their key was already known."""

    changes: StreamNode
    key: tuple[str, ...]
    at: str
    late: Callable[[str], StreamNode] | None = None

    @property
    def name(self) -> str:
        return self.changes.name


def declare_table_topic(table: TableChanges, topic: str, at: str) -> None:
    """Write a table's changes as records, in the form in which ``flow.table`` reads them."""
    columns, time = table.changes.columns, table.changes.time
    assert time is not None
    key = [quoted(name) for name in table.key]
    own = (DELETED, CHANGE_TIME, TIME_BASIS)
    declare_topic_sink(
        table.changes,
        topic,
        key=key[0] if len(key) == 1 else f"to_json(struct({', '.join(key)}))",
        value=None if columns is None else [quoted(name) for name in columns if name not in own],
        time=time.sql,
        delete_when=DELETED,
        at=at,
    )


def declare_table(source: SourceNode, key: str | Sequence[str], delete_when: str | None) -> TableChanges:
    """Declare a table whose changes are a source's records."""
    at = source.at
    keys: tuple[str, ...] = ()
    for column in _keys(key, at):
        field = source.schema.field(column)
        if field is None:
            raise TopologyError(
                f"key={column!r}: {no_such_column(column, source.schema.names)}. Name the key in the"
                " schema, even if only the record's key holds it",
                where=at,
            )
        if field.type.startswith(("array", "map", "struct", "variant")):
            raise TopologyError(f"the key {column!r} is {field.type}; a key must be a plain value", where=at)
        keys = (*keys, field.name)
    if delete_when is not None:
        source.check(delete_when, "delete_when", at)
    elif source.schema.field(DELETED) is not None:
        raise TopologyError(
            f"the schema has a column {DELETED!r}, and a table adds one of that name, which says that a key"
            f" was deleted. Say what yours means, with delete_when={DELETED!r} or another condition",
            where=at,
        )
    source.table = TableRecords(keys, delete_when)
    source.columns = (*(name for name in source.columns or () if name.lower() != DELETED), DELETED)
    return TableChanges(source, keys, at)


def declare_as_table(
    stream: StreamNode, key: str | Sequence[str], delete_when: str | None, *, at: str
) -> TableChanges:
    """Declare a table whose changes are a stream's rows."""
    keys = _keys(key, at)
    stream.check_time(at)
    columns = stream.columns
    for column in keys:
        if columns is not None and column not in columns:
            raise TopologyError(f"key={column!r}: {no_such_column(column, columns)}", where=at)
    has_own = columns is not None and DELETED in columns
    if delete_when is None and has_own:
        return TableChanges(stream, keys, at)
    if delete_when is not None:
        stream.check(delete_when, "delete_when", at)
    others = ["*"] if not has_own else [quoted(name) for name in columns or () if name != DELETED]
    deleted = "false" if delete_when is None else f"coalesce(({delete_when}), false)"
    selected = declare_select(stream, (*others, f"{deleted} AS {DELETED}"), at)
    return TableChanges(selected, keys, at)


def _keys(key: str | Sequence[str], at: str) -> tuple[str, ...]:
    keys = (key,) if isinstance(key, str) else tuple(key)
    if not keys or not all(isinstance(column, str) and column for column in keys):
        raise TopologyError("a table needs key=, the columns that identify its rows", where=at)
    return keys
