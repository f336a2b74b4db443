"""The streams of a topology: sources, and everything derived from them. Declarations only, no Spark.

Every stream remembers the line of the user's file that made it. An error in it is reported at that line,
whether it is found now or when Spark plans the job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.declaring import Time, caller, check_function, check_topic, check_view
from millstream.pipeline.dsl.expressions import (
    ExpressionError,
    check_sql,
    duration_text,
    no_such_column,
    output_name,
)
from millstream.pipeline.dsl.sinks import TopicSink, ViewSink
from millstream.pipeline.formats.encoded import declare_encoding
from millstream.sqltypes.ddl import Schema

if TYPE_CHECKING:
    from millstream.pipeline.dsl.patterns import PatternStream, Step, Steps
    from millstream.pipeline.dsl.processors import ProcessedStream, Processor
    from millstream.pipeline.dsl.stateful import StatefulChannel
    from millstream.pipeline.dsl.tables import Changes, Table
    from millstream.pipeline.dsl.topology import Topology
    from millstream.pipeline.dsl.windows import Window
    from millstream.pipeline.formats.encoded import Encoded

REJECTED_COLUMNS = ("reason", "topic", "partition", "offset", "timestamp", "key", "value")


class Stream:
    """A stream of rows: every source, operator, window, union and channel gives one.

    ``columns`` are its columns if they can be known without Spark, else None.
    """

    kind = "stream"
    no_time: str | None = None  # why stateful operators can't take its rows

    def __init__(
        self,
        flow: Topology,
        inputs: tuple[Stream, ...],
        *,
        at: str,
        name: str | None = None,
        columns: tuple[str, ...] | None = None,
        time: Time | None = None,
    ) -> None:
        self.flow = flow
        self.inputs = inputs
        self.at = at
        self.columns = columns
        self.time = time
        self.given_name = name
        self.named = name is not None
        self.name = flow._register(self, name)

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
    ) -> Operator:
        if isinstance(function, Stream):
            raise TopologyError(
                f"{function.name!r} is already a stream: start the next operator from it,"
                f" with @{function.name}.operator",
                where=at,
            )
        function, at = check_function(function, at)
        chosen = name or (None if function.__name__ == "<lambda>" else function.__name__)
        if time is not None and self.time is None:
            raise TopologyError(f"time={time!r}: the stream that {chosen!r} takes has no time", where=at)
        split = tuple(channels) if channels is not None else None
        return Operator(self, function, chosen, split, time, at)

    def where(self, condition: str) -> Where:
        """The rows for which the SQL condition is true."""
        at = caller()
        self._check(condition, "the condition", at)
        return Where(self.flow, (self,), condition, at)

    def select(self, *expressions: str) -> Select:
        """The columns that SQL expressions give, each ``column``, ``expression AS name`` or ``*``."""
        at = caller()
        if not expressions:
            raise TopologyError("select needs at least one expression", where=at)
        for expression in expressions:
            if expression != "*":
                self._check(expression, "the expression", at)
        return Select(self.flow, self, expressions, at)

    def channel(self, name: str, where: str | None = None) -> Stream:
        """The rows that match ``where``, or one channel of an operator that splits its rows."""
        at = caller()
        if isinstance(self, Operator) and self.channels is not None:
            if where is not None:
                raise TopologyError(
                    f"{self.name!r} fills its channels itself; take {name!r} without where=", where=at
                )
            if name not in self.channels:
                raise TopologyError(
                    f"{self.name!r} has no channel {name!r}; it has {', '.join(self.channels)}", where=at
                )
            return SplitChannel(self, name, at)
        if where is None:
            raise TopologyError(f"channel {name!r} needs where=, the SQL condition of its rows", where=at)
        self._check(where, f"the condition of channel {name!r}", at)
        return Channel(self.flow, (self,), where, at, name=name)

    def otherwise(self, name: str) -> Otherwise:
        """The rows that go into none of this stream's channels."""
        at = caller()
        channels = [
            node for node in self.flow.streams if isinstance(node, Channel) and node.inputs == (self,)
        ]
        if not channels:
            raise TopologyError(f"{self.name!r} has no channels yet; make them before otherwise()", where=at)
        return Otherwise(self, tuple(channel.condition for channel in channels), name, at)

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
        from millstream.pipeline.dsl.window_bounds import check_window
        from millstream.pipeline.dsl.windows import Window

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
            self._check(key, "the key", at)
        for word, condition in (("opens=", opens), ("closes=", closes)):
            if condition is not None:
                self._check(condition, word, at)
        self._needs_time(at)
        return Window(self, spec, name, at)

    def _needs_time(self, at: str) -> None:
        """Refuse a stream for which it is not clear by which time its rows go."""
        for source in self.upstream():
            if source.no_time is not None:
                raise TopologyError(source.no_time, where=at)
            if isinstance(source, Rejected):
                raise TopologyError(
                    "rejected records have no event time, and this operator goes by time; write them to a"
                    " topic and read that with time='log'",
                    where=at,
                )
            if isinstance(source, Source) and source.time is None:
                raise TopologyError(
                    f"this operator goes by time, and source {source.topic!r} ({source.at}) does not say"
                    " which time its events have: give it time='a timestamp column', 'log' or 'processing'",
                    where=at,
                )
        if self.time is None:
            raise TopologyError(
                f"the streams that meet in {self.name!r} differ in time=, lateness=, idle_after= or ahead=; "
                "make these the same, or window each stream before the union",
                where=at,
            )
        if self.columns is not None and self.time.column not in self.columns:
            raise TopologyError(
                f"the stream goes by {self.time.basis}, but select left column {self.time.column!r} out",
                where=at,
            )

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
    ) -> StatefulChannel:
        """Join rows of this stream and another that have equal keys and whose times are ``within`` a span of
        each other; or join each row of this stream with the row that its key has in a table.

        ``on``: columns that both have, or a dict from this stream's columns to the other's. ``within``:
        ``"10 minutes"`` in either direction, or ``("-5 minutes", "10 minutes")`` for the other's time minus
        this one's. ``how``: inner, left, right or outer; with a table, inner or left. ``order="time"`` gives
        results in time order, once nothing older can come, instead of at once. ``as_of="latest"`` uses a
        table as it is when the event arrives, instead of as it was at the event's time.
        """
        from millstream.pipeline.dsl.joins import declare_join

        return declare_join(self, other, on, within, how, order, as_of, name=name, at=caller())

    def as_table(self, *, key: str | Sequence[str], delete_when: str | None = None) -> Table:
        """The stream as changes of a table, which has the latest row of every key. A row for which
        ``delete_when`` is true deletes its key."""
        from millstream.pipeline.dsl.tables import declare_as_table

        return declare_as_table(self, key, delete_when, at=caller())

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
        from millstream.pipeline.dsl.patterns import Bounds, declare_pattern

        bounds = Bounds(max_partial, max_events)
        return declare_pattern(
            self, by, steps, within, give, after_match, strict, bounds, on_error, name, caller()
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
        from millstream.pipeline.dsl.processors import Keeping, declare_process

        state = Keeping(ttl, ttl_clock, max_state_bytes)
        return declare_process([self], key, with_, output, channels, time, state, on_error, name, caller())

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
        at = caller()
        check_topic(topic, at)
        if key is not None:
            self._check(key, "the key", at)
        if time is not None:
            self._check(time, "the time", at)
        for part in [value] if isinstance(value, str) else value or []:
            self._check(part, "the value", at)
        if delete_when is not None:
            self._check(delete_when, "delete_when", at)
            if key is None:
                raise TopologyError("delete_when= needs key=: a record without a value deletes it", where=at)
        columns = value if value is None or isinstance(value, str) else tuple(value)
        encoding = declare_encoding(format, schema, subject or f"{topic}-value", registry, message, value, at)
        self.flow._add_sink(TopicSink(self, topic, at, key, columns, time, delete_when, encoding))
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
        at = caller()
        check_view(name, at)
        keys = (key,) if isinstance(key, str) else tuple(key)
        if not keys:
            raise TopologyError(f"view {name!r} needs key=, the columns that tell its rows apart", where=at)
        for column in (*keys, *([order] if order else [])):
            if self.columns is not None and column not in self.columns:
                raise TopologyError(f"view {name!r}: {no_such_column(column, self.columns)}", where=at)
        if delete_when is not None:
            self._check(delete_when, "delete_when", at)
        if changelog is not None:
            check_topic(changelog, at)
        self.flow._add_sink(
            ViewSink(self, name, at, key=keys, delete_when=delete_when, order=order, changelog=changelog)
        )
        return self

    # ---- looking at it ------------------------------------------------------------------------------

    def upstream(self) -> list[Stream]:
        """This stream and all streams that it is made from, each once: branch by branch, as Spark numbers its
        state."""
        found: dict[int, Stream] = {}
        stack: list[Stream] = [self]
        while stack:
            node = stack.pop()
            if id(node) not in found:
                found[id(node)] = node
                stack.extend(reversed(node.inputs))
        return list(found.values())

    def about(self) -> str:
        """What the stream does, in a few words, for drawings."""
        return ""

    @property
    def known_as(self) -> str:
        """Its name or, if it has none, the name of the named stream that its rows go to, as long as they go
        nowhere else."""
        stream = self
        while not stream.named:
            consumers = [other for other in self.flow.streams if stream in other.inputs]
            if len(consumers) != 1:
                return self.name
            stream = consumers[0]
        return stream.name

    def _check(self, sql: object, what: str, at: str) -> None:
        try:
            check_sql(sql, self.columns, what=what)
        except ExpressionError as error:
            raise TopologyError(str(error), where=at) from None

    def __getattr__(self, name: str) -> NoReturn:
        if name in ("late", "ahead"):
            raise TopologyError(
                f".{name} is of a source or of what a window, a join or another stateful operator gives",
                where=caller(),
            )
        raise AttributeError(f"a {type(self).__name__.lower()} has no {name!r}")

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name!r} from {self.at}>"


class Source(Stream):
    """A topic's records, parsed into columns."""

    kind = "source"

    def __init__(
        self,
        flow: Topology,
        topic: str,
        *,
        at: str,
        name: str | None,
        format: str,
        encoded: Encoded | None,
        schema: Schema,
        time: Time | None,
        include: tuple[str, ...],
        start: str,
        max_rows: int | None,
        feedback: bool,
    ) -> None:
        self.topic = topic
        self.format = format
        self.encoded = encoded  # how to read values that carry the id of a schema
        self.schema = schema
        self.include = include
        self.start = start
        self.max_rows = max_rows
        self.feedback = feedback
        self.table: Changes | None = None  # what its records say about a table, if it is one
        extra = [time.column] if time is not None and time.kind != "event" else []
        columns = (*schema.names, *(f"record_{part}" for part in include), *extra)
        super().__init__(flow, (), at=at, name=name or topic, columns=columns, time=time)
        self._rejected: Rejected | None = None
        self._beside: dict[str, Stream] = {}

    @property
    def is_json(self) -> bool:
        return self.format in ("json", "json-schema")

    @property
    def late(self) -> Stream:
        """The rows that came too late for one of the stateful operators that this source feeds."""
        return self._found("late", caller())

    @property
    def ahead(self) -> Stream:
        """The rows whose time was further in the future than ``ahead=`` allows."""
        return self._found("ahead", caller())

    def _found(self, word: str, at: str) -> Stream:
        from millstream.pipeline.dsl.late import SourceChannel

        if word not in self._beside:
            self._beside[word] = SourceChannel(self, word, at)
        return self._beside[word]

    @property
    def rejected(self) -> Rejected:
        """The records that did not parse: the reason, their place in the log, and their bytes."""
        if self._rejected is None:
            self._rejected = Rejected(self, caller())
        return self._rejected

    def about(self) -> str:
        parts = [self.format]
        if self.time is not None:
            parts.append(self.time.basis)
            if self.time.lateness_ms:
                parts.append(f"{duration_text(self.time.lateness_ms)} late at most")
        return ", ".join(parts)


class Rejected(Stream):
    kind = "rejected"

    def __init__(self, source: Source, at: str) -> None:
        self.source = source
        super().__init__(
            source.flow, (source,), at=at, name=f"{source.name}.rejected", columns=REJECTED_COLUMNS
        )

    def about(self) -> str:
        return "did not parse"


class Operator(Stream):
    kind = "operator"

    def __init__(
        self,
        stream: Stream,
        function: FunctionType,
        name: str | None,
        channels: tuple[str, ...] | None,
        time: str | None,
        at: str,
    ) -> None:
        if channels is not None and (not channels or len(set(channels)) != len(channels)):
            raise TopologyError("channels= names each channel once, and at least one", where=at)
        self.function = function
        self.channels = channels
        goes_by = stream.time
        if goes_by is not None and time is not None:
            goes_by = replace(goes_by, column=time, origin=None)
        super().__init__(stream.flow, (stream,), at=at, name=name, time=goes_by)

    def about(self) -> str:
        doc = (self.function.__doc__ or "").strip().splitlines()
        return doc[0].rstrip(".") if doc else ""


class SplitChannel(Stream):
    kind = "channel"

    def __init__(self, operator: Operator, channel: str, at: str) -> None:
        self.channel_name = channel
        super().__init__(
            operator.flow, (operator,), at=at, name=f"{operator.name}.{channel}", time=operator.time
        )


class Where(Stream):
    """Rows that match a condition."""

    kind = "where"

    def __init__(
        self, flow: Topology, inputs: tuple[Stream], condition: str, at: str, name: str | None = None
    ) -> None:
        self.condition = condition
        super().__init__(flow, inputs, at=at, name=name, columns=inputs[0].columns, time=inputs[0].time)

    def about(self) -> str:
        return self.condition


class Channel(Where):
    kind = "channel"


class Otherwise(Stream):
    kind = "channel"

    def __init__(self, stream: Stream, conditions: tuple[str, ...], name: str, at: str) -> None:
        self.conditions = conditions
        super().__init__(stream.flow, (stream,), at=at, name=name, columns=stream.columns, time=stream.time)

    def about(self) -> str:
        return "in no other channel"


class Select(Stream):
    kind = "select"

    def __init__(self, flow: Topology, stream: Stream, expressions: tuple[str, ...], at: str) -> None:
        self.expressions = expressions
        super().__init__(flow, (stream,), at=at, columns=self._columns(stream), time=stream.time)

    def _columns(self, stream: Stream) -> tuple[str, ...] | None:
        columns: list[str] = []
        for expression in self.expressions:
            if expression == "*":
                if stream.columns is None:
                    return None
                columns.extend(stream.columns)
            elif (name := output_name(expression)) is not None:
                columns.append(name)
            else:
                return None
        return tuple(columns)

    def about(self) -> str:
        return ", ".join(self.expressions)


class Union(Stream):
    """Rows of several streams in one. A column that a stream lacks is null in that stream's rows."""

    kind = "union"

    def __init__(
        self, flow: Topology, streams: tuple[Stream, ...], tag: str | None, name: str | None, at: str
    ) -> None:
        self.tag = tag
        columns: tuple[str, ...] | None = None
        if all(stream.columns is not None for stream in streams):
            columns = tuple(dict.fromkeys(c for stream in streams for c in stream.columns or ()))
            if tag is not None:
                columns = (*columns, tag)
        times = {stream.time for stream in streams}
        time = times.pop() if len(times) == 1 else None
        super().__init__(flow, streams, at=at, name=name, columns=columns, time=time)

    def tag_of(self, branch: Stream) -> str:
        """The value of the tag in the rows of a branch."""
        return branch.name

    def about(self) -> str:
        return f"{self.tag} says which" if self.tag else ""
