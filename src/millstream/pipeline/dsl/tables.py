"""Tables: topics, or any streams, whose rows are changes of a table. Declarations only, no Spark.

A table is not a stream: it has one row per key, and only its changes flow. The changes are a stream
(``.changes``) with the columns of the row and ``deleted``, which says that the key's row is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.declaring import caller
from millstream.pipeline.dsl.expressions import no_such_column
from millstream.pipeline.dsl.streams import Rejected, Source, Stream
from millstream.pipeline.kernel.joins.naming import CHANGE_TIME, DELETED, TIME_BASIS
from millstream.sqltypes.ddl import quoted


@dataclass(frozen=True, slots=True)
class Changes:
    """How the records of a topic describe a table: which columns are its key, and which records delete."""

    key: tuple[str, ...]
    delete_when: str | None


class Table:
    """The latest row of every key."""

    def __init__(
        self, changes: Stream, key: tuple[str, ...], at: str, late: Callable[[str], Stream] | None = None
    ) -> None:
        self.changes = changes
        self.key = key
        self.at = at
        self._late = late

    @property
    def flow(self) -> object:
        return self.changes.flow

    @property
    def name(self) -> str:
        return self.changes.name

    @property
    def rejected(self) -> Rejected:
        """The records that did not parse."""
        if not isinstance(self.changes, Source):
            raise TopologyError(
                f"table {self.name!r} reads no topic: it has no rejected records", where=caller()
            )
        return self.changes.rejected

    @property
    def late(self) -> Stream:
        """The changes that came when a later change of their key was already known."""
        if self._late is None:
            raise TopologyError(
                f"which changes of {self.name!r} are late shows where it is joined: take .late of that",
                where=caller(),
            )
        return self._late(caller())

    def join(
        self,
        other: Table,
        *,
        on: str | Sequence[str] | Mapping[str, str] | None = None,
        how: str = "inner",
        name: str | None = None,
    ) -> Table:
        """A table of the joined rows of both tables, which changes with either.

        Without ``on``, both have the same key. ``on`` names columns of this table that are the other's key,
        or is a dict from the former to the latter: ``orders.join(customers, on={"customer": "id"})``.
        ``how``: inner, left, right or outer; inner or left if ``on`` is not this table's own key.
        """
        from millstream.pipeline.dsl.joins import declare_table_join

        return declare_table_join(self, other, on, how, name=name, at=caller())

    def to_view(self, name: str) -> Table:
        """Keep the table as a view."""
        self.changes.to_view(name, key=self.key, delete_when=DELETED)
        return self

    def to_topic(self, topic: str) -> Table:
        """Write the table's changes as records. The record's key is the key's text, or a JSON object if the
        key has several columns. The value is the row as JSON, or none for a deletion. The timestamp is the
        time of the change. ``flow.table`` can read the topic as it is."""
        columns, time = self.changes.columns, self.changes.time
        assert time is not None
        key = [quoted(name) for name in self.key]
        own = (DELETED, CHANGE_TIME, TIME_BASIS)
        self.changes.to_topic(
            topic,
            key=key[0] if len(key) == 1 else f"to_json(struct({', '.join(key)}))",
            value=None if columns is None else [quoted(name) for name in columns if name not in own],
            time=time.sql,
            delete_when=DELETED,
        )
        return self

    def __getattr__(self, name: str) -> NoReturn:
        if hasattr(Stream, name):
            raise TopologyError(
                f"{self.name!r} is a table; .{name} is of streams: table.changes is its stream of changes",
                where=caller(),
            )
        raise AttributeError(f"a table has no {name!r}")

    def __repr__(self) -> str:
        return f"<table {self.name!r} from {self.at}>"


def declare_table(source: Source, key: str | Sequence[str], delete_when: str | None) -> Table:
    """Declare a table whose changes are a source's records."""
    at = source.at
    keys: tuple[str, ...] = ()
    for column in _keys(key, at):
        field = source.schema.field(column)
        if field is None:
            raise TopologyError(
                f"key={column!r}: {no_such_column(column, source.schema.names)}. A key that stands in the"
                " record's key alone is named in the schema too",
                where=at,
            )
        if field.type.startswith(("array", "map", "struct", "variant")):
            raise TopologyError(f"the key {column!r} is {field.type}; a key is a plain value", where=at)
        keys = (*keys, field.name)
    if delete_when is not None:
        source._check(delete_when, "delete_when", at)
    elif source.schema.field(DELETED) is not None:
        raise TopologyError(
            f"a table has a column {DELETED!r} of its own, which says that a key is gone; the schema has one"
            f" too: say what it means, with delete_when={DELETED!r} or another condition",
            where=at,
        )
    source.table = Changes(keys, delete_when)
    source.columns = (*(name for name in source.columns or () if name.lower() != DELETED), DELETED)
    return Table(source, keys, at)


def declare_as_table(stream: Stream, key: str | Sequence[str], delete_when: str | None, *, at: str) -> Table:
    """Declare a table whose changes are a stream's rows."""
    keys = _keys(key, at)
    stream._needs_time(at)
    columns = stream.columns
    for column in keys:
        if columns is not None and column not in columns:
            raise TopologyError(f"key={column!r}: {no_such_column(column, columns)}", where=at)
    has_own = columns is not None and DELETED in columns
    if delete_when is None and has_own:
        return Table(stream, keys, at)
    if delete_when is not None:
        stream._check(delete_when, "delete_when", at)
    others = ["*"] if not has_own else [quoted(name) for name in columns or () if name != DELETED]
    deleted = "false" if delete_when is None else f"coalesce(({delete_when}), false)"
    return Table(stream.select(*others, f"{deleted} AS {DELETED}"), keys, at)


def _keys(key: str | Sequence[str], at: str) -> tuple[str, ...]:
    keys = (key,) if isinstance(key, str) else tuple(key)
    if not keys or not all(isinstance(column, str) and column for column in keys):
        raise TopologyError("a table needs key=, the columns that tell its rows apart", where=at)
    return keys
