"""Streams and tables as users handle them. Every method declares a part of the graph and returns its result.

A ``Stream`` is a handle of a node of the graph. What a declaration means, and what it refuses, is in the
module of its kind (``filters``, ``windows``, ``joins``, ...). Nothing but ``topology`` imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from millstream.core.errors import TopologyError
from millstream.core.units import did_you_mean
from millstream.pipeline.dsl.columns import SqlTexts
from millstream.pipeline.dsl.declaring import caller
from millstream.pipeline.dsl.deduplication import DeduplicateNode, declare_deduplicate
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
from millstream.pipeline.dsl.sink_methods import HasSinks
from millstream.pipeline.dsl.sinks import declare_view_sink
from millstream.pipeline.dsl.sources import SourceNode, rejected_of
from millstream.pipeline.dsl.stateful import ChannelNode
from millstream.pipeline.dsl.windows.bounds import WindowSpec, check_window
from millstream.pipeline.dsl.windows.window import WindowNode, declare_window, named_aggregate
from millstream.pipeline.kernel.channels import AHEAD, LATE
from millstream.pipeline.kernel.joins.naming import DELETED
from millstream.pipeline.kernel.windows.calls import PythonAggregate

if TYPE_CHECKING:
    from millstream.pipeline.dsl.columns import Keys, Sql


class Stream(HasSinks):
    """A stream of rows: every source, operator, window, union and channel gives one.

    ``columns`` are its columns if they can be known without Spark, else None.

        >>> payments.where("eur > 2").select("card", "eur * 1.08 AS usd").columns
        ('card', 'usd')
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

            >>> @payments.operator
            ... def priced(df):
            ...     return df.withColumn("usd", F.col("eur") * 1.08)
            >>> priced.name
            'priced'
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

    def where(self, condition: Sql) -> Stream:
        """The rows for which the SQL condition is true.

        >>> payments.where("eur > 2 AND country = 'DE'")
        >>> payments.where((F.col("eur") > 2) & (F.col("country") == "DE"))   # the same
        """
        at = caller()
        return Stream(declare_where(self.node, self._texts.condition(condition, "the condition", at), at))

    def select(self, *expressions: Sql) -> Stream:
        """The columns that SQL expressions give, each ``column``, ``expression AS name`` or ``*``.

        >>> payments.select("card", "eur * 1.08 AS usd").columns
        ('card', 'usd')
        >>> payments.select("*", (F.col("eur") * 1.08).alias("usd")).columns
        ('card', 'eur', 'country', 'at', 'usd')
        """
        at = caller()
        given = tuple(self._texts.sql(one, "the expression", at) for one in expressions)
        return Stream(declare_select(self.node, given, at))

    def channel(self, name: str, where: Sql | None = None) -> Stream:
        """The rows that match ``where``, or one channel of an operator that splits its rows.

        >>> payments.channel("large", "eur >= 500").to_topic("payments.large")
        """
        at = caller()
        where = self._texts.condition(where, f"the condition of channel {name!r}", at)
        if isinstance(self.node, FunctionNode) and not self.node.has_rows:
            return Stream(function_channel_of(self.node, name, where, at))
        return Stream(declare_channel(self.node, name, where, at))

    def otherwise(self, name: str) -> Stream:
        """The rows that go into none of this stream's channels.

        >>> large = payments.channel("large", F.col("eur") >= 500)
        >>> payments.otherwise("small").to_topic("payments.small")
        """
        return Stream(declare_otherwise(self.node, name, caller()))

    # ---- windows ------------------------------------------------------------------------------------

    def window(
        self,
        *,
        by: Keys,
        size: str | None = None,
        every: str | None = None,
        gap: str | None = None,
        opens: Sql | None = None,
        closes: Sql | None = None,
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

            >>> minutes = payments.window(by="card", size="1 minute").agg(n="count(*)")
            >>> minutes.columns
            ('card', 'window_start', 'window_end', 'n', 'time_basis')
            >>> moving = payments.window(by="card", size="10 minutes", every="event").agg(spent="sum(eur)")
            >>> visits = payments.window(by="card", gap="30 minutes").agg(F.count("*").alias("payments"))
        """
        at = caller()
        opens = self._texts.condition(opens, "opens=", at)
        closes = self._texts.condition(closes, "closes=", at)
        spec = check_window(
            at,
            by=self._texts.keys(by, "the key", at),
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
        on: Keys | Mapping[str, Sql],
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

            >>> refunds = flow.source("refunds", schema="card string, eur double, at timestamp", time="at")
            >>> both = payments.join(refunds, on="card", within="10 minutes")
            >>> known = payments.join(cards, on={"card": "card"}, how="left")
            >>> known.columns
            ('card', 'eur', 'country', 'at', 'limit', 'log_time', 'join_time', 'time_basis')
        """
        at = caller()
        if isinstance(other, Table):
            right: StreamNode | TableChanges = other.table
        else:
            right = node_of(other, "a join is with a stream or a table; {!r} is neither", at)
        on = self._texts.keys(on, "on=", at)
        return StatefulStream(declare_join(self.node, right, on, within, how, order, as_of, name=name, at=at))

    def as_table(self, *, key: Keys, delete_when: Sql | None = None) -> Table:
        """The stream as changes of a table, which has the latest row of every key. A row for which
        ``delete_when`` is true deletes its key.

            >>> latest = payments.as_table(key="card", delete_when="eur = 0")
            >>> latest.to_view("latest_payments")
        """
        at = caller()
        key = self._texts.names(key, "the key of a table", at)
        delete_when = self._texts.condition(delete_when, "delete_when", at)
        return Table(declare_as_table(self.node, key, delete_when, at=at))

    # ---- duplicates ---------------------------------------------------------------------------------

    def deduplicate(self, *, by: Keys, within: str, name: str | None = None) -> DeduplicatedStream:
        """The first event of each key. Events of the key less than ``within`` after it are dropped, and are
        in ``.duplicates``.

        The first event is the one with the earliest time, whichever arrived first, so an event comes out once
        the watermark has passed it. If the stream's source has no ``time=``, events go by their arrival in
        the log.

            >>> once = payments.deduplicate(by=["card", "eur"], within="1 hour")
            >>> once.duplicates.to_topic("payments.again")
        """
        at = caller()
        by = self._texts.keys(by, "by=", at)
        return DeduplicatedStream(declare_deduplicate(self.node, by, within, name=name, at=at))

    # ---- sequences, and the user's own ---------------------------------------------------------------

    def pattern(
        self,
        *,
        by: Keys,
        steps: Sequence[Step] | Steps | Step,
        within: str | None = None,
        give: Mapping[str, Sql] | None = None,
        after_match: str = "skip past last",
        strict: bool = False,
        max_partial: int = 1000,
        max_events: int = 10_000,
        on_error: str = "fail",
        name: str | None = None,
    ) -> PatternStream:
        """Find sequences of events of one key: ``steps`` are ``step("small", "eur < 2").times(3)``,
        ``absent(...)``.

        ``within``: the longest time from the first event to the last. ``give``: the values in a match's row,
        for example ``{"total": "sum(small.eur)"}``; without it, all events of every step. ``after_match``:
        ``"skip past last"``, so that no event is in two matches, ``"skip to next"`` or ``"all"``. ``strict``:
        no other event may come in between. ``max_partial`` and ``max_events`` bound what is kept for a key.
        ``on_error``: whether a function that raises stops the job (``"fail"``) or its event goes to
        ``.failed`` (``"channel"``).

            >>> tested = payments.pattern(
            ...     by="card",
            ...     within="5 minutes",
            ...     steps=[step("small", "eur < 2").times(3), step("big", F.col("eur") > 500)],
            ...     give={"stolen": "sum(big.eur)"},
            ... )
            >>> tested.columns
            ('card', 'match_start', 'match_end', 'stolen', 'time_basis')
        """
        at = caller()
        bounds = PatternBounds(max_partial, max_events)
        by = self._texts.keys(by, "the key", at)
        told = (
            None if give is None else {n: self._texts.condition(v, f"give: {n}", at) for n, v in give.items()}
        )
        return PatternStream(
            declare_pattern(
                self.node, by, steps, within, told, after_match, strict, bounds, on_error, name, at
            )
        )

    def process(
        self,
        *,
        key: Keys,
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

            >>> class Running(Processor):
            ...     def on_event(self, event, context):
            ...         context.state = (context.state or 0.0) + event.eur
            ...         context.emit(spent=context.state)
            >>> spent = payments.process(key="card", with_=Running, output="card string, spent double")
        """
        at = caller()
        state = StateBounds(ttl, ttl_clock, max_state_bytes)
        key = self._texts.keys(key, "the key", at)
        return ProcessedStream(
            declare_process([self.node], key, with_, output, channels, time, state, on_error, name, at)
        )

    @property
    def _texts(self) -> SqlTexts:
        return self.node.flow.texts

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
    """A topic's records, parsed into columns.

    >>> payments = flow.source("paid", schema="card string, eur double, at timestamp", time="at")
    >>> payments.rejected.to_topic("paid.rejected")
    """

    node: SourceNode

    @property
    def late(self) -> Stream:
        """The rows that came too late for one of the stateful operators that this source feeds.

        >>> payments.late.to_topic("payments.late")
        """
        return Stream(late_of(self.node, LATE, caller()))

    @property
    def ahead(self) -> Stream:
        """The rows whose time was further in the future than ``ahead=`` allows.

        >>> clocks = flow.source("readings", schema="id string, at timestamp", time="at", ahead="1 hour")
        >>> clocks.ahead.to_topic("readings.ahead")
        """
        return Stream(late_of(self.node, AHEAD, caller()))

    @property
    def rejected(self) -> Stream:
        """The records that did not parse: the reason, their place in the log, and their bytes.

        >>> payments.rejected.to_topic("payments.rejected")
        """
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
    """A window that still needs its aggregates: ``.agg(n="count(*)", spent="sum(amount)")``.

    >>> payments.window(by="card", size="1 minute").agg(n="count(*)", spent="sum(eur)")
    """

    def __init__(self, stream: StreamNode, spec: WindowSpec, name: str | None, at: str) -> None:
        self._stream, self._spec, self._name, self._at = stream, spec, name, at
        stream.flow.without_aggregates[self] = at

    def agg(self, *named: Sql, **aggregates: Sql | PythonAggregate) -> Aggregate:
        """Aggregates over the rows of each window: SQL, or functions made with millstream.aggregate. An
        aggregate is given by its name, ``n="count(*)"``, or has an alias, ``F.count("*").alias("n")``.

            >>> window = payments.window(by="card", size="1 minute")
            >>> made = window.agg(F.sum("eur").alias("spent"), n=F.count("*"), most="max(eur)")
            >>> made.columns
            ('card', 'window_start', 'window_end', 'spent', 'n', 'most', 'time_basis')
        """
        at, texts = caller(), self._stream.flow.texts
        given: dict[str, Any] = {}
        for one in named:
            name, sql = named_aggregate(texts.sql(one, "the aggregate", at), at)
            if name in given or name in aggregates:
                raise TopologyError(f"there are two aggregates called {name!r}", where=at)
            given[name] = sql
        for name, aggregate in aggregates.items():
            given[name] = texts.condition(aggregate, f"aggregate {name}=", at)
        made = declare_window(self._stream, self._spec, given, self._name, at=self._at, agg_at=at)
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


class DeduplicatedStream(StatefulStream):
    """The first event of each key."""

    node: DeduplicateNode

    @property
    def duplicates(self) -> StatefulStream:
        """The events that were dropped because their key had come a short time before."""
        return StatefulStream(self.node.duplicates(caller()))


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
    """The latest row of every key.

    >>> cards.name
    'cards'
    >>> payments.join(cards, on="card").where("eur > limit").to_topic("too.much")
    """

    def __init__(self, table: TableChanges) -> None:
        self.table = table

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def changes(self) -> Stream:
        """The stream of the table's changes. A row that is gone has ``deleted``.

        >>> cards.changes.columns
        ('card', 'limit', 'log_time', 'deleted')
        """
        return Stream(self.table.changes)

    @property
    def rejected(self) -> Stream:
        """The records that did not parse.

        >>> cards.rejected.to_topic("cards.rejected")
        """
        if not isinstance(self.table.changes, SourceNode):
            raise TopologyError(
                f"table {self.name!r} reads no topic: it has no rejected records", where=caller()
            )
        return Stream(rejected_of(self.table.changes, caller()))

    @property
    def late(self) -> Stream:
        """The changes that came when a later change of their key was already known.

        >>> holders = flow.table("holders", schema="card string, name string", key="card")
        >>> cards.join(holders).late.to_topic("late.changes")
        """
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
        on: Keys | Mapping[str, Sql] | None = None,
        how: str = "inner",
        name: str | None = None,
    ) -> Table:
        """A table of the joined rows of both tables, which changes with either.

        Without ``on``, both have the same key. ``on`` names columns of this table that are the other's key,
        or is a dict from the former to the latter: ``orders.join(customers, on={"customer": "id"})``.
        ``how``: inner, left, right or outer; inner or left if ``on`` is not this table's own key.

            >>> holders = flow.table("holders", schema="card string, name string", key="card")
            >>> cards.join(holders, how="left").to_view("cards_with_names")
        """
        at = caller()
        if not isinstance(other, Table):
            raise TopologyError(
                "a table can only be joined with a table; to look up rows of a table, use stream.join(table)",
                where=at,
            )
        on = self.table.changes.flow.texts.keys(on, "on=", at)
        return Table(declare_table_join(self.table, other.table, on, how, name=name, at=at))

    def to_view(self, name: str, *, index: str | Sequence[str | Sequence[str]] = ()) -> Table:
        """Keep the table as a view. ``index`` is as for a stream's view.

        >>> cards.to_view("cards", index="limit")
        """
        table = self.table
        declare_view_sink(table.changes, name, key=table.key, delete_when=DELETED, index=index, at=caller())
        return self

    def to_topic(self, topic: str) -> Table:
        """Write the table's changes as records. The record's key is the key's text, or a JSON object if the
        key has several columns. The value is the row as JSON, or none for a deletion. The timestamp is the
        time of the change. ``flow.table`` can read the topic as it is.

            >>> cards.to_topic("cards.checked")
        """
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
