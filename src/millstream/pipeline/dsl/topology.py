"""A topology: sources, operators and sinks as one graph, written in a Python file.

    flow = Topology("fraud")
    payments = flow.source("payments", schema="card string, eur double, paid_at timestamp", time="paid_at")
    bursts = payments.window(by="card", size="1 minute").agg(n="count(*)").where("n > 5")
    bursts.to_topic("alerts", key="card")

Nothing here needs Spark: a mistake is reported with its line before any engine starts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from millstream.core.errors import MillstreamError, TopologyError
from millstream.pipeline.dsl.declaring import Time, caller, check_size, check_state, check_topic
from millstream.pipeline.dsl.expressions import ExpressionError, duration_ms, no_such_column
from millstream.pipeline.dsl.late import SourceChannel
from millstream.pipeline.dsl.sinks import Sink, TopicSink, ViewSink
from millstream.pipeline.dsl.stateful import Stateful, StatefulChannel
from millstream.pipeline.dsl.streams import Rejected, Source, Stream, Union
from millstream.pipeline.dsl.windows import Aggregate, Window
from millstream.pipeline.formats import encoded
from millstream.sqltypes.ddl import Field, Schema, SchemaError, schema_of

if TYPE_CHECKING:
    from millstream.pipeline.dsl.joins import Gathered
    from millstream.pipeline.dsl.processors import ProcessedStream, Processor
    from millstream.pipeline.dsl.tables import Table

GUARANTEES = ("at-most-once", "at-least-once", "exactly-once")
FORMATS = ("json", "text", "binary", *encoded.FORMATS)
MAX_ROWS = 500_000  # a backlog of days must not become one batch: a worker may have to hold all its rows
RECORD_PARTS = ("key", "topic", "partition", "offset", "timestamp", "headers")
_MOST_IN_MEMORY = 2_000_000_000  # bytes of state as written; in memory it takes several times as much
_START = re.compile(r"earliest|latest|@.+")


class Topology:
    """A job: what it reads, what it does with the rows, and where the results go."""

    def __init__(
        self,
        name: str,
        *,
        guarantee: str = "at-least-once",
        buckets: int = 8,
        state: str = "memory",
        max_state: str | None = None,
    ) -> None:
        """``guarantee`` is what the job promises about its results. ``buckets`` is the number of parts into
        which the keys of stateful operators are divided. It is the most tasks that can work on one operator,
        and is fixed for the life of a checkpoint. ``state`` is where workers keep the state of those
        operators: in ``"memory"``, on ``"disk"``, or outside, in ``"postgresql://..."`` or
        ``"cassandra://host/keyspace"``. ``max_state`` bounds the state of each operator: the job stops when
        one is larger. By default the bound is 2 GB in memory, and elsewhere there is none."""
        self.at = caller()
        check_topic(name, self.at)  # it names a consumer group and a directory
        if guarantee not in GUARANTEES:
            raise TopologyError(
                f"guarantee={guarantee!r} is not one of {', '.join(map(repr, GUARANTEES))}", where=self.at
            )
        if not isinstance(buckets, int) or not 1 <= buckets <= 4096:
            raise TopologyError(f"buckets={buckets!r} must be a number from 1 to 4096", where=self.at)
        self.name = name
        self.guarantee = guarantee
        self.buckets = buckets
        self.state = check_state(state, self.at)
        self.max_state = check_size("max_state", max_state, self.at)
        if max_state is None and state == "memory":
            self.max_state = _MOST_IN_MEMORY
        self.source_numbers: dict[str, int] = {}  # by name; if left empty, sources count in the file's order
        self.kernel_only: str | None = None  # why no window may be Spark's own; None: windows may be
        self.streams: list[Stream] = []
        self.sinks: list[Sink] = []
        self._names: dict[str, Stream] = {}
        self._windows: list[Window] = []

    # ---- building -----------------------------------------------------------------------------------

    def source(
        self,
        topic: str,
        *,
        schema: object = None,
        format: str = "json",
        time: str | None = None,
        lateness: str = "0 seconds",
        idle_after: str | None = None,
        ahead: str | None = None,
        include: Sequence[str] = (),
        start: str = "earliest",
        max_rows: int | None = MAX_ROWS,
        feedback: bool = False,
        name: str | None = None,
        registry: str | None = None,
        subject: str | None = None,
        message: str | None = None,
    ) -> Source:
        """Read a topic.

        ``schema``: Spark DDL, a dataclass or a StructType (text and binary have one column, ``value``). For
        values that carry the id of a schema, ``format`` is ``"avro"``, ``"protobuf"`` or ``"json-schema"``.
        Then ``schema`` may also be an Avro or JSON schema or a .proto file, as text or as the file's name. If
        it is left out, it is the latest schema of ``subject`` (by default ``TOPIC-value``) in ``registry``
        (its URL) when the flow is loaded. ``message`` names one message of a .proto file, by default the
        first.

        ``time``: the timestamp column that the stream goes by, or ``"log"`` for the record's own timestamp,
        or ``"processing"``. ``lateness``: how long the watermark waits for late rows. ``idle_after``: how
        long it waits for a partition in which nothing comes at all (by default forever). ``ahead``: how far
        in the future the time of an event may be to be believed (by default any distance).

        ``include``: parts of the record to have as columns ``record_key``, ``record_offset``, ... ``start``:
        where a first run begins, ``earliest``, ``latest`` or ``@2026-01-01``. ``max_rows`` bounds a
        micro-batch. With None it takes everything there is, as for a table, which is of use only when it is
        complete. ``feedback=True`` confirms that this flow is meant to read a topic that it writes itself.
        """
        at = caller()
        check_topic(topic, at)
        if format not in FORMATS:
            raise TopologyError(f"format={format!r} is not one of {', '.join(FORMATS)}", where=at)
        reading, parsed = None, None
        if format in encoded.FORMATS:
            reading, parsed = self._encoded(
                format, schema, registry, subject or f"{topic}-value", message, at
            )
        elif registry is not None or subject is not None or message is not None:
            raise TopologyError(f"format={format!r} has no schema in a registry", where=at)
        else:
            parsed = self._schema(schema, format, at)
        for part in include:
            if part not in RECORD_PARTS:
                raise TopologyError(f"include={part!r} is not one of {', '.join(RECORD_PARTS)}", where=at)
        if not _START.fullmatch(start):
            raise TopologyError(f"start={start!r} is not 'earliest', 'latest' or '@' and a time", where=at)
        if max_rows is not None and (not isinstance(max_rows, int) or max_rows < 1):
            raise TopologyError(f"max_rows={max_rows!r} must be a number of rows, at least 1", where=at)
        return Source(
            self,
            topic,
            at=at,
            name=name,
            format=format,
            encoded=reading,
            schema=parsed,
            time=self._time(time, lateness, idle_after, ahead, parsed, at),
            include=tuple(include),
            start=start,
            max_rows=max_rows,
            feedback=feedback,
        )

    def union(self, *streams: Stream | Window, tag: str | None = None, name: str | None = None) -> Union:
        """The rows of several streams as one. ``tag`` adds a column with the name of each row's stream."""
        at = caller()
        if len(streams) < 2:
            raise TopologyError("a union joins at least two streams", where=at)
        parts: list[Stream] = []
        for stream in streams:
            if isinstance(stream, Window):
                raise TopologyError("a window has no rows before .agg(...)", where=at)
            if not isinstance(stream, Stream):
                raise TopologyError(f"a union is of streams; {stream!r} is not one", where=at)
            if stream.flow is not self:
                raise TopologyError(f"{stream.name!r} belongs to topology {stream.flow.name!r}", where=at)
            if tag is not None and stream.columns is not None and tag in stream.columns:
                raise TopologyError(
                    f"{stream.name!r} already has a column {tag!r}; tag= must be new", where=at
                )
            if stream in parts:
                raise TopologyError(
                    f"{stream.name!r} stands twice in this union: its rows would too", where=at
                )
            parts.append(stream)
        return Union(self, tuple(parts), tag, name, at)

    def process(
        self,
        streams: Sequence[Stream],
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
        """Apply a processor to several streams, as ``Stream.process`` does to one. Their events come in one
        time order, and ``event.stream`` names each event's stream. All streams need the columns that ``key``
        names."""
        from millstream.pipeline.dsl.processors import Keeping, declare_process

        at = caller()
        if not streams:
            raise TopologyError("process needs at least one stream", where=at)
        for stream in streams:
            if not isinstance(stream, Stream) or stream.flow is not self:
                raise TopologyError(f"{stream!r} is not a stream of this topology", where=at)
        state = Keeping(ttl, ttl_clock, max_state_bytes)
        return declare_process(streams, key, with_, output, channels, time, state, on_error, name, at)

    def table(
        self,
        topic: str,
        *,
        schema: object,
        key: str | Sequence[str],
        time: str = "log",
        lateness: str = "0 seconds",
        idle_after: str | None = "1 second",
        ahead: str | None = None,
        delete_when: str | None = None,
        include: Sequence[str] = (),
        start: str = "earliest",
        max_rows: int | None = None,
        feedback: bool = False,
        name: str | None = None,
    ) -> Table:
        """A topic of JSON records as a table. The latest record of every ``key`` is its row. A record without
        a value deletes the row of the record's own key.

        The options are those of a source, with other defaults: a table goes by the time of its records in the
        log, and once it has been quiet for a second, it does not hold up what is joined with it.
        ``delete_when`` is an SQL condition for records that delete although they have a value.
        """
        from millstream.pipeline.dsl.tables import declare_table

        source = self.source(
            topic,
            schema=schema,
            time=time,
            lateness=lateness,
            idle_after=idle_after,
            ahead=ahead,
            include=include,
            start=start,
            max_rows=max_rows,
            feedback=feedback,
            name=name,
        )
        return declare_table(source, key, delete_when)

    def gather(
        self,
        *streams: Stream,
        by: str | Sequence[str],
        timeout: str,
        name: str | None = None,
        **parts: Stream,
    ) -> Gathered:
        """Put the parts of one event, which went different ways, together again: one row once every part has
        come. A part is a column of the result, with the part's columns in it, named as it is given here:
        ``flow.gather(price=priced, risk=scored, by="event_id", timeout="30 seconds")``. A part that is given
        without a name has its stream's name.

        ``.incomplete`` has the events that were not complete ``timeout`` after their first part.
        ``.duplicates`` has the parts that came again.
        """
        from millstream.pipeline.dsl.joins import declare_gather

        return declare_gather(self, streams, parts, by, timeout, name=name, at=caller())

    def _encoded(
        self, format: str, given: object, registry: str | None, subject: str, message: str | None, at: str
    ) -> tuple[encoded.Encoded, Schema]:
        if message is not None and format != "protobuf":
            raise TopologyError("message= goes with format='protobuf'", where=at)
        try:
            return encoded.declared(format, given, registry, subject, message)
        except (SchemaError, MillstreamError) as error:
            raise TopologyError(str(error), where=at) from None

    def _schema(self, given: object, format: str, at: str) -> Schema:
        if format != "json":
            if given is not None:
                raise TopologyError(f"format={format!r} has one column, value; leave schema out", where=at)
            return Schema((Field("value", "string" if format == "text" else "binary"),))
        if given is None:
            raise TopologyError(
                "a JSON source needs schema=, for example schema='card string, amount double'", where=at
            )
        try:
            return schema_of(given)
        except SchemaError as error:
            raise TopologyError(str(error), where=at) from None

    def _time(
        self,
        time: str | None,
        lateness: str,
        idle_after: str | None,
        ahead: str | None,
        schema: Schema,
        at: str,
    ) -> Time | None:
        given: dict[str, int | None] = {"lateness": None, "idle_after": None, "ahead": None}
        for name, text in (("lateness", lateness), ("idle_after", idle_after), ("ahead", ahead)):
            try:
                given[name] = None if text is None else duration_ms(text, zero=name == "lateness")
            except ExpressionError as error:
                raise TopologyError(f"{name}: {error}", where=at) from None
        late_ms, rest = given["lateness"] or 0, (given["idle_after"], given["ahead"])
        if time is None:
            for name, ms in given.items():
                if ms:
                    raise TopologyError(f"{name}= goes with time=, the time it is counted in", where=at)
            return None
        field = schema.field(time)
        if time in ("log", "processing"):
            if field is not None or schema.field(f"{time}_time") is not None:
                raise TopologyError(
                    f"time={time!r} is ambiguous: the schema has a column of that name", where=at
                )
            return Time(time, f"{time}_time", late_ms, *rest)
        if field is None:
            raise TopologyError(
                f"time={time!r}: {no_such_column(time, schema.names)}; or 'log' or 'processing'", where=at
            )
        if field.type != "timestamp":
            raise TopologyError(f"time={time!r} must be a timestamp column; it is {field.type}", where=at)
        return Time("event", field.name, late_ms, *rest)

    def _register(self, stream: Stream, name: str | None) -> str:
        if name is None:
            number = sum(1 for other in self.streams if other.kind == stream.kind) + 1
            name = f"{stream.kind} {number}"
        if name in self._names:
            raise TopologyError(
                f"there is already a stream {name!r} ({self._names[name].at}); choose another name",
                where=stream.at,
            )
        self._names[name] = stream
        self.streams.append(stream)
        return name

    def _channel(self, stateful: Stateful, channel: str, name: str, at: str) -> StatefulChannel:
        """A channel of a stateful operator, made once, however often it is requested."""
        for stream in self.streams:
            if not isinstance(stream, StatefulChannel) or stream.stateful is not stateful:
                continue
            if stream.channel_name == channel:
                return stream
        return StatefulChannel(stateful, channel, at=at, name=name)

    def _rename(self, stream: Stream, name: str) -> None:
        """Name a stream that was given no name after the variable that holds it, and its channels after
        it."""
        if stream.named or name in self._names:
            return
        old = stream.name
        self._call(stream, name)
        stream.named = True
        if isinstance(stream, StatefulChannel) and stream.stateful.main is stream:
            for other in self.streams:
                of_it = isinstance(other, StatefulChannel) and other.stateful is stream.stateful
                called = other.name.replace(f"{old}.", f"{name}.", 1)
                if of_it and other.name.startswith(f"{old}.") and called not in self._names:
                    self._call(other, called)

    def _call(self, stream: Stream, name: str) -> None:
        del self._names[stream.name]
        self._names[name] = stream
        stream.name = name

    def _add_sink(self, sink: Sink) -> None:
        for other in self.sinks:
            if (
                isinstance(sink, ViewSink)
                and isinstance(other, ViewSink)
                and other.name.lower() == sink.name.lower()
            ):
                raise TopologyError(
                    f"view {sink.name!r} is already written at {other.at}; join the streams with flow.union",
                    where=sink.at,
                )
            shared = [topic for topic in sink.topics if topic in other.topics]
            if shared and (isinstance(sink, ViewSink) or isinstance(other, ViewSink)):
                raise TopologyError(
                    f"topic {shared[0]!r} is the changelog of a view, which nothing else may write into"
                    f" ({other.at}); take another",
                    where=sink.at,
                )
            if (
                isinstance(sink, TopicSink)
                and isinstance(other, TopicSink)
                and other.topic == sink.topic
                and other.stream is sink.stream
            ):
                raise TopologyError(
                    f"this stream already goes to topic {sink.topic!r} ({other.at})", where=sink.at
                )
        self.sinks.append(sink)

    # ---- checking -----------------------------------------------------------------------------------

    @property
    def sources(self) -> list[Source]:
        return [stream for stream in self.streams if isinstance(stream, Source)]

    def number_of(self, source: Source) -> int:
        """The number by which operators know a source. A checkpoint keeps the numbers of the sources that it
        has seen."""
        return self.source_numbers.get(source.name, self.sources.index(source))

    def check(self) -> list[str]:
        """Refuse a topology that can't run; return warnings about streams that go nowhere."""
        if not self.sources:
            raise TopologyError(f"topology {self.name!r} reads nothing: add flow.source(...)", where=self.at)
        if not self.sinks:
            raise TopologyError(
                f"topology {self.name!r} writes nothing: add .to_topic(...) or .to_view(...)", where=self.at
            )
        for window in self._windows:
            if not window.aggregated:
                raise TopologyError("this window has no aggregates: add .agg(n='count(*)')", where=window.at)
        self._settle()
        self._check_cycles()
        used = {id(node) for sink in self.sinks for node in sink.stream.upstream()}
        consumed = {id(node) for stream in self.streams for node in stream.inputs}
        return [
            f"{stream.at}: {stream.kind} {stream.name!r} goes nowhere; it is left out"
            for stream in self.streams
            if id(stream) not in used and id(stream) not in consumed and not isinstance(stream, Rejected)
        ]

    def _settle(self) -> None:
        """Everything is declared: settle what depends on all of it."""
        for stream in list(self.streams):
            if isinstance(stream, SourceChannel):
                stream.settle()
        for stream in list(self.streams):
            if isinstance(stream, Aggregate):
                stream.settle()

    def _check_cycles(self) -> None:
        """Refuse a topic that is written from itself unless the user confirms it, because it makes events
        forever."""
        edges: dict[str, dict[str, Sink]] = {}
        for sink in self.sinks:
            for topic in sink.topics:
                for node in sink.stream.upstream():
                    if isinstance(node, Source) and not node.feedback:
                        edges.setdefault(node.topic, {})[topic] = sink
        for start in edges:
            path = self._path(edges, start, start, [start], set())
            if path is not None:
                raise TopologyError(
                    f"the topics {' -> '.join(path)} are a cycle: events would go round for ever."
                    f" If that is meant, say so where {start!r} is read, with feedback=True",
                    where=edges[path[-2]][path[-1]].at,
                )

    def _path(
        self, edges: dict[str, dict[str, Sink]], here: str, goal: str, path: list[str], seen: set[str]
    ) -> list[str] | None:
        for following in edges.get(here, {}):
            if following == goal:
                return [*path, goal]
            if following not in seen:
                seen.add(following)
                found = self._path(edges, following, goal, [*path, following], seen)
                if found is not None:
                    return found
        return None

    def __repr__(self) -> str:
        return f"<topology {self.name!r}: {len(self.sources)} sources, {len(self.sinks)} sinks>"
