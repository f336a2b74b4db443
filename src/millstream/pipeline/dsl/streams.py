"""Streams and tables as users handle them. Every method declares a part of the graph and returns its result.

A ``Stream`` is a handle of a node of the graph. What a declaration means, and what it refuses, is in the
module of its kind (``filters``, ``windows``, ``joins``, ...). Nothing but ``topology`` imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from millstream.core.errors import TopologyError
from millstream.core.units import did_you_mean
from millstream.pipeline.dsl.declaring import caller
from millstream.pipeline.dsl.filters import declare_channel, declare_otherwise, declare_where
from millstream.pipeline.dsl.functions import FunctionNode, declare_function, function_channel_of
from millstream.pipeline.dsl.graph import StreamNode
from millstream.pipeline.dsl.joins.gather import GatherNode
from millstream.pipeline.dsl.joins.join import declare_join, declare_table_join
from millstream.pipeline.dsl.joins.tables import TableChanges, declare_as_table, declare_table_topic
from millstream.pipeline.dsl.late_streams import late_of
from millstream.pipeline.dsl.pattern_steps import Step, Steps
from millstream.pipeline.dsl.patterns import PatternBounds, PatternNode, declare_pattern
from millstream.pipeline.dsl.processors import ProcessNode, Processor, StateBounds, declare_process
from millstream.pipeline.dsl.selections import declare_select
from millstream.pipeline.dsl.sinks import declare_topic_sink, declare_view_sink
from millstream.pipeline.dsl.sources import SourceNode, rejected_of
from millstream.pipeline.dsl.stateful import ChannelNode
from millstream.pipeline.dsl.windows.bounds import WindowSpec, check_window
from millstream.pipeline.dsl.windows.window import WindowNode, declare_window
from millstream.pipeline.kernel.channels import AHEAD, LATE
from millstream.pipeline.kernel.joins.naming import DELETED
from millstream.pipeline.kernel.windows.calls import PythonAggregate


class Stream:
    """A stream of rows: every source, operator, window, union and channel gives one.

    ``columns`` are its columns if they can be known without Spark, else None.
    """

    def __init__(self, node: StreamNode) -> None:
        self.node = node

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def columns(self) -> tuple[str, ...] | None:
        return self.node.columns

    # ---- operators ----------------------------------------------------------------------------------

    def operator(
        self,
        function: Callable[[Any], Any] | None = None,
        *,
        name: str | None = None,
        channels: Sequence[str] | None = None,
        time: str | None = None,
    ) -> Any:
        """Apply a function from DataFrame to DataFrame. Usually a decorator; the function's name is kept.

        With ``channels``, the function returns a dict with a DataFrame for each of them, and
        ``.channel(name)`` takes one. ``time`` is the timestamp column that the result goes by, if it is not
        the stream's.
        """
        at = caller()
        if function is None:
            return lambda given: self._operator(given, name, channels, time, at)
        return self._operator(function, name, channels, time, at)

    def _operator(
        self, function: object, name: str | None, channels: Sequence[str] | None, time: str | None, at: str
    ) -> Stream:
        if isinstance(function, Stream):
            raise TopologyError(
                f"{function.name!r} is already an operator; to add another operator to it, use"
                f" @{function.name}.operator",
                where=at,
            )
        return Stream(declare_function(self.node, function, name, channels, time, at))

    def where(self, condition: str) -> Stream:
        """The rows for which the SQL condition is true."""
        return Stream(declare_where(self.node, condition, caller()))

    def select(self, *expressions: str) -> Stream:
        """The columns that SQL expressions give, each ``column``, ``expression AS name`` or ``*``."""
        return Stream(declare_select(self.node, expressions, caller()))

    def channel(self, name: str, where: str | None = None) -> Stream:
        """The rows that match ``where``, or one channel of an operator that splits its rows."""
        at = caller()
        if isinstance(self.node, FunctionNode) and not self.node.has_rows:
            return Stream(function_channel_of(self.node, name, where, at))
        return Stream(declare_channel(self.node, name, where, at))

    def otherwise(self, name: str) -> Stream:
        """The rows that go into none of this stream's channels."""
        return Stream(declare_otherwise(self.node, name, caller()))

    # ---- windows ------------------------------------------------------------------------------------

    def window(
        self,
        *,
        by: str | Sequence[str],
        size: str | None = None,
        every: str | None = None,
        gap: str | None = None,
        opens: str | None = None,
        closes: str | None = None,
        timeout: str | None = None,
        timeout_from: str | None = None,
        emit: str | None = None,
        retract: bool = False,
        engine: str | None = None,
        name: str | None = None,
    ) -> Window:
        """Group rows by key and time.

        ``size``: tumbling windows. With ``every="10 seconds"`` they are hopping, and with ``every="event"``
        they move with each event. ``gap``: sessions. ``opens``: sessions that begin with an event for which
        this SQL is true. They end with an event for which ``closes`` is true, or ``timeout`` after the first
        or the last event (``timeout_from``).

        ``emit="update"`` gives a window's result again whenever it changes. With ``retract``, the old result
        is taken back first. ``emit="final"`` gives the result once, when the watermark has passed the
        window's end. By default sessions are final, and tumbling and hopping windows update. ``engine`` is
        chosen automatically if left out.
        """
        at = caller()
        spec = check_window(
            at,
            by=by,
            size=size,
            every=every,
            gap=gap,
            opens=opens,
            closes=closes,
            timeout=timeout,
            timeout_from=timeout_from,
            emit=emit,
            retract=retract,
            engine=engine,
        )
        for key in spec.by:
            self.node.check(key, "the key", at)
        for word, condition in (("opens=", opens), ("closes=", closes)):
            if condition is not None:
                self.node.check(condition, word, at)
        self.node.check_time(at)
        return Window(self.node, spec, name, at)

    # ---- joins --------------------------------------------------------------------------------------

    def join(
        self,
        other: Stream | Table,
        *,
        on: str | Sequence[str] | Mapping[str, str],
        within: str | tuple[str, str] | None = None,
        how: str = "inner",
        order: str | None = None,
        as_of: str | None = None,
        name: str | None = None,
    ) -> StatefulStream:
        """Join rows of this stream and another that have equal keys and whose times are ``within`` a span of
        each other; or join each row of this stream with the row that its key has in a table.

        ``on``: columns that both have, or a dict from this stream's columns to the other's. ``within``:
        ``"10 minutes"`` in either direction, or ``("-5 minutes", "10 minutes")`` for the other's time minus
        this one's. ``how``: inner, left, right or outer; with a table, inner or left. ``order="time"`` gives
        results in time order, once nothing older can come, instead of at once. ``as_of="latest"`` uses a
        table as it is when the event arrives, instead of as it was at the event's time.
        """
        at = caller()
        if isinstance(other, Table):
            right: StreamNode | TableChanges = other.table
        else:
            right = node_of(other, "a join is with a stream or a table; {!r} is neither", at)
        return StatefulStream(declare_join(self.node, right, on, within, how, order, as_of, name=name, at=at))

    def as_table(self, *, key: str | Sequence[str], delete_when: str | None = None) -> Table:
        """The stream as changes of a table, which has the latest row of every key. A row for which
        ``delete_when`` is true deletes its key."""
        return Table(declare_as_table(self.node, key, delete_when, at=caller()))

    # ---- sequences, and the user's own ---------------------------------------------------------------

    def pattern(
        self,
        *,
        by: str | Sequence[str],
        steps: Sequence[Step] | Steps | Step,
        within: str | None = None,
        give: Mapping[str, str] | None = None,
        after_match: str = "skip past last",
        strict: bool = False,
        max_partial: int = 1000,
        max_events: int = 10_000,
        on_error: str = "fail",
        name: str | None = None,
    ) -> PatternStream:
        """Find sequences of events of one key: ``steps`` are ``step("small", "eur < 2").times(3)``,
        ``no(...)``.

        ``within``: the longest time from the first event to the last. ``give``: the values in a match's row,
        for example ``{"total": "sum(small.eur)"}``; without it, all events of every step. ``after_match``:
        ``"skip past last"``, so that no event is in two matches, ``"skip to next"`` or ``"all"``. ``strict``:
        no other event may come in between. ``max_partial`` and ``max_events`` bound what is kept for a key.
        ``on_error``: whether a function that raises stops the job (``"fail"``) or its event goes to
        ``.failed`` (``"channel"``).
        """
        bounds = PatternBounds(max_partial, max_events)
        return PatternStream(
            declare_pattern(
                self.node, by, steps, within, give, after_match, strict, bounds, on_error, name, caller()
            )
        )

    def process(
        self,
        *,
        key: str | Sequence[str],
        with_: type[Processor] | Processor,
        output: object,
        channels: Mapping[str, object] | None = None,
        time: str | None = None,
        ttl: str | None = None,
        ttl_clock: str = "event",
        max_state_bytes: int = 1_000_000,
        on_error: str = "fail",
        name: str | None = None,
    ) -> ProcessedStream:
        """Apply your own stateful function: a ``millstream.Processor`` that is called for every event.

        ``output`` is the schema of the rows that it emits. ``channels`` are the schemas of its further
        channels, by name. ``time``: the timestamp column of the output that is filled with the event's or
        timer's time, for stateful operators that follow. ``ttl``: how long the state of a key is kept after
        the key's last event or timer, by ``ttl_clock``, ``"event"`` or ``"processing"``. ``on_error``:
        whether an exception stops the job (``"fail"``) or its event goes to ``.failed`` (``"channel"``).
        """
        state = StateBounds(ttl, ttl_clock, max_state_bytes)
        return ProcessedStream(
            declare_process([self.node], key, with_, output, channels, time, state, on_error, name, caller())
        )

    # ---- sinks --------------------------------------------------------------------------------------

    def to_topic(
        self,
        topic: str,
        *,
        key: str | None = None,
        value: str | Sequence[str] | None = None,
        time: str | None = None,
        delete_when: str | None = None,
        format: str = "json",
        schema: str | None = None,
        subject: str | None = None,
        registry: str | None = None,
        message: str | None = None,
    ) -> Stream:
        """Write every row as a record. Returns the stream, so that more sinks can follow.

        ``key`` is an SQL expression. ``value``: leave it out for all columns as JSON, or give a list for
        these columns as JSON, or one SQL expression whose text or bytes are the value. ``time`` is a
        timestamp column for the record's timestamp; by default that is the time of writing. A row for which
        ``delete_when`` is true is written without a value: in a compacted topic, and for ``flow.table``,
        that deletes its key. ``format``: ``"avro"``, ``"protobuf"`` or ``"json-schema"`` instead of JSON.
        The schema, given or made from the columns, is registered as ``subject`` (by default
        ``TOPIC-value``) in ``registry`` when the job starts. ``message`` names one of several messages of a
        Protobuf schema; by default the first is written.
        """
        declare_topic_sink(
            self.node,
            topic,
            key=key,
            value=value,
            time=time,
            delete_when=delete_when,
            format=format,
            schema=schema,
            subject=subject,
            registry=registry,
            message=message,
            at=caller(),
        )
        return self

    def to_view(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        delete_when: str | None = None,
        order: str | None = None,
        changelog: str | None = None,
    ) -> Stream:
        """Keep the latest row of every key in a table that ``millstream view query`` reads.

        A row for which ``delete_when`` is true deletes its key from the table. ``order`` is the column that
        decides which row of a key is later; by default the end of the window or the stream's time.
        ``changelog`` is a compacted topic that receives every change of the table: the key as JSON, and the
        new row as JSON, or no value for a deletion.
        """
        declare_view_sink(
            self.node,
            name,
            key=key,
            delete_when=delete_when,
            order=order,
            changelog=changelog,
            at=caller(),
        )
        return self

    def __getattr__(self, name: str) -> NoReturn:
        if name in (LATE, AHEAD):
            raise TopologyError(
                f".{name} exists on a source and on the result of a window, a join or another stateful"
                " operator",
                where=caller(),
            )
        raise AttributeError(_no_such_attribute("a stream", name, Stream))

    def __repr__(self) -> str:
        return repr(self.node)


class Source(Stream):
    """A topic's records, parsed into columns."""

    node: SourceNode

    @property
    def late(self) -> Stream:
        """The rows that came too late for one of the stateful operators that this source feeds."""
        return Stream(late_of(self.node, LATE, caller()))

    @property
    def ahead(self) -> Stream:
        """The rows whose time was further in the future than ``ahead=`` allows."""
        return Stream(late_of(self.node, AHEAD, caller()))

    @property
    def rejected(self) -> Stream:
        """The records that did not parse: the reason, their place in the log, and their bytes."""
        return Stream(rejected_of(self.node, caller()))


class StatefulStream(Stream):
    """The results of a stateful operator. Rows that did not count are streams beside them."""

    node: ChannelNode

    @property
    def late(self) -> Stream:
        """The rows that came too late to count, as the operator got them, with ``late_ms``: how late."""
        return Stream(self.node.late_rows(LATE, caller()))

    @property
    def ahead(self) -> Stream:
        """The rows whose time was too far in the future, with ``ahead_ms``: how far."""
        return Stream(self.node.late_rows(AHEAD, caller()))


class Window:
    """A window that still needs its aggregates: ``.agg(n="count(*)", spent="sum(amount)")``."""

    def __init__(self, stream: StreamNode, spec: WindowSpec, name: str | None, at: str) -> None:
        self._stream, self._spec, self._name, self._at = stream, spec, name, at
        stream.flow.without_aggregates[self] = at

    def agg(self, **aggregates: str | PythonAggregate) -> Aggregate:
        """Named aggregates over the rows of each window: SQL, or functions made with millstream.aggregate."""
        made = declare_window(self._stream, self._spec, aggregates, self._name, at=self._at, agg_at=caller())
        self._stream.flow.without_aggregates.pop(self, None)
        return Aggregate(made)


class Aggregate(StatefulStream):
    """The results of a window: its keys, window_start, window_end, the aggregates, and the time it went
    by."""

    node: WindowNode

    @property
    def outside(self) -> Stream:
        """The events that came while their key had no open session."""
        return StatefulStream(self.node.outside(caller()))


class PatternStream(StatefulStream):
    """The matches of a pattern."""

    node: PatternNode

    @property
    def overflow(self) -> StatefulStream:
        """The partial matches that were dropped because their key had too many."""
        return StatefulStream(self.node.overflow(caller()))

    @property
    def timed_out(self) -> StatefulStream:
        """The partial matches that ran out of time."""
        return StatefulStream(self.node.timed_out(caller()))

    @property
    def failed(self) -> StatefulStream:
        """The events on which a function of the pattern failed, with ``error`` and ``error_at``."""
        return StatefulStream(self.node.failed(caller()))


class ProcessedStream(StatefulStream):
    """The rows that a processor emits with ``context.emit``."""

    node: ProcessNode

    def channel(self, name: str, where: str | None = None) -> Stream:
        """The rows emitted with ``context.emit_to(name, ...)``; with ``where``, this stream's rows that
        match."""
        if where is not None:
            return super().channel(name, where)
        return StatefulStream(self.node.emitted_to(name, caller()))

    @property
    def failed(self) -> Stream:
        """The events on which the processor failed, with ``error`` and ``error_at``."""
        return StatefulStream(self.node.failed(caller()))


class GatheredStream(StatefulStream):
    """The complete events. Incomplete events and repeated parts are channels beside it."""

    node: GatherNode

    @property
    def incomplete(self) -> StatefulStream:
        """The events that lacked parts when their time was over; ``missing`` names these parts."""
        return StatefulStream(self.node.incomplete(caller()))

    @property
    def duplicates(self) -> StatefulStream:
        """The rows of a part that had arrived already; ``part`` is its name."""
        return StatefulStream(self.node.duplicates(caller()))


class Table:
    """The latest row of every key."""

    def __init__(self, table: TableChanges) -> None:
        self.table = table

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def changes(self) -> Stream:
        """The stream of the table's changes. A row that is gone has ``deleted``."""
        return Stream(self.table.changes)

    @property
    def rejected(self) -> Stream:
        """The records that did not parse."""
        if not isinstance(self.table.changes, SourceNode):
            raise TopologyError(
                f"table {self.name!r} reads no topic: it has no rejected records", where=caller()
            )
        return Stream(rejected_of(self.table.changes, caller()))

    @property
    def late(self) -> Stream:
        """The changes that came when a later change of their key was already known."""
        if self.table.late is None:
            raise TopologyError(
                f"changes of {self.name!r} are late only with respect to a join: use .late of the join",
                where=caller(),
            )
        return Stream(self.table.late(caller()))

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
        at = caller()
        if not isinstance(other, Table):
            raise TopologyError(
                "a table can only be joined with a table; to look up rows of a table, use stream.join(table)",
                where=at,
            )
        return Table(declare_table_join(self.table, other.table, on, how, name=name, at=at))

    def to_view(self, name: str) -> Table:
        """Keep the table as a view."""
        table = self.table
        declare_view_sink(table.changes, name, key=table.key, delete_when=DELETED, at=caller())
        return self

    def to_topic(self, topic: str) -> Table:
        """Write the table's changes as records. The record's key is the key's text, or a JSON object if the
        key has several columns. The value is the row as JSON, or none for a deletion. The timestamp is the
        time of the change. ``flow.table`` can read the topic as it is."""
        declare_table_topic(self.table, topic, caller())
        return self

    def __getattr__(self, name: str) -> NoReturn:
        if hasattr(Stream, name):
            raise TopologyError(
                f"{self.name!r} is a table, and .{name} exists on streams only; table.changes is its stream"
                " of changes",
                where=caller(),
            )
        raise AttributeError(_no_such_attribute("a table", name, Table))

    def __repr__(self) -> str:
        return f"<table {self.name!r} from {self.table.at}>"


def node_of(given: object, unless: str, at: str) -> StreamNode:
    """The node of a given stream. For anything else, raises an error with the text ``unless``."""
    if isinstance(given, Window):
        raise TopologyError("a window has no rows until .agg(...)", where=at)
    if not isinstance(given, Stream):
        raise TopologyError(unless.format(given), where=at)
    return given.node


def _no_such_attribute(what: str, name: str, kind: type) -> str:
    hint = did_you_mean(name, (each for each in dir(kind) if not each.startswith("_")))
    return f"{what} has no {name!r}{hint and f'; {hint}'}"
