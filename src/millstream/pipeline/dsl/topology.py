"""A topology: sources, operators and sinks as one graph, written in a Python file.

    flow = Topology("fraud")
    payments = flow.source("payments", schema="card string, eur double, paid_at timestamp", time="paid_at")
    bursts = payments.window(by="card", size="1 minute").agg(n="count(*)").where("n > 5")
    bursts.to_topic("alerts", key="card")

Nothing here needs Spark: a mistake is reported with its line before any engine starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.declaring import caller, calling_module, check_size, check_state, check_topic
from millstream.pipeline.dsl.graph import Sink, StreamGraph
from millstream.pipeline.dsl.joins.gather import declare_gather
from millstream.pipeline.dsl.joins.tables import declare_table
from millstream.pipeline.dsl.processors import Processor, StateBounds, declare_process
from millstream.pipeline.dsl.sources import SourceNode, declare_source, sources_of
from millstream.pipeline.dsl.streams import (
    GatheredStream,
    ProcessedStream,
    Source,
    Stream,
    Table,
    Window,
    node_of,
)
from millstream.pipeline.dsl.unions import declare_union

GUARANTEES = ("at-most-once", "at-least-once", "exactly-once")
MAX_ROWS = 500_000  # a backlog of days must not become one batch: a worker may have to hold all its rows
_MOST_IN_MEMORY = 2_000_000_000  # bytes of state as written; in memory it takes several times as much


class Topology(StreamGraph):
    """A job: its sources, its operators and its sinks."""

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
        self.module = calling_module()  # for the names of its variables, and for the code that workers need
        check_topic(name, self.at)  # it names a consumer group and a directory
        if guarantee not in GUARANTEES:
            raise TopologyError(
                f"guarantee={guarantee!r} is not one of {', '.join(map(repr, GUARANTEES))}", where=self.at
            )
        if not isinstance(buckets, int) or not 1 <= buckets <= 4096:
            raise TopologyError(f"buckets={buckets!r} must be a number from 1 to 4096", where=self.at)
        super().__init__(name, buckets=buckets, state=check_state(state, self.at))
        self.guarantee = guarantee
        self.max_state = check_size("max_state", max_state, self.at)
        if max_state is None and state == "memory":
            self.max_state = _MOST_IN_MEMORY

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
        return Source(
            declare_source(
                self,
                topic,
                schema=schema,
                format=format,
                time=time,
                lateness=lateness,
                idle_after=idle_after,
                ahead=ahead,
                include=include,
                start=start,
                max_rows=max_rows,
                feedback=feedback,
                name=name,
                registry=registry,
                subject=subject,
                message=message,
                at=caller(),
            )
        )

    def union(self, *streams: Stream | Window, tag: str | None = None, name: str | None = None) -> Stream:
        """The rows of several streams as one. ``tag`` adds a column with the name of each row's stream."""
        at = caller()
        if len(streams) < 2:
            raise TopologyError("a union joins at least two streams", where=at)
        parts = [node_of(stream, "a union is of streams; {!r} is not one", at) for stream in streams]
        return Stream(declare_union(self, parts, tag, name, at))

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
        at = caller()
        if not streams:
            raise TopologyError("process needs at least one stream", where=at)
        for stream in streams:
            if not isinstance(stream, Stream) or stream.node.flow is not self:
                raise TopologyError(f"{stream!r} is not a stream of this topology", where=at)
        state, nodes = StateBounds(ttl, ttl_clock, max_state_bytes), [stream.node for stream in streams]
        return ProcessedStream(
            declare_process(nodes, key, with_, output, channels, time, state, on_error, name, at)
        )

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
        source = declare_source(
            self,
            topic,
            schema=schema,
            format="json",
            time=time,
            lateness=lateness,
            idle_after=idle_after,
            ahead=ahead,
            include=include,
            start=start,
            max_rows=max_rows,
            feedback=feedback,
            name=name,
            at=caller(),
        )
        return Table(declare_table(source, key, delete_when))

    def gather(
        self,
        *streams: Stream,
        by: str | Sequence[str],
        timeout: str,
        name: str | None = None,
        **parts: Stream,
    ) -> GatheredStream:
        """Put the parts of one event, which went different ways, together again: one row once every part has
        come. A part is a column of the result, with the part's columns in it, named as it is given here:
        ``flow.gather(price=priced, risk=scored, by="event_id", timeout="30 seconds")``. A part that is given
        without a name has its stream's name.

        ``.incomplete`` has the events that were not complete ``timeout`` after their first part.
        ``.duplicates`` has the parts that came again.
        """
        at = caller()
        given = [*((None, stream) for stream in streams), *parts.items()]
        nodes = [(part, node_of(stream, "a part is a stream; {!r} is not one", at)) for part, stream in given]
        return GatheredStream(declare_gather(self, nodes, by, timeout, name=name, at=at))

    # ---- checking -----------------------------------------------------------------------------------

    @property
    def sources(self) -> list[SourceNode]:
        return sources_of(self.streams)

    def check(self) -> list[str]:
        """Refuse a topology that can't run; return warnings about streams that go nowhere."""
        if not self.sources:
            raise TopologyError(f"topology {self.name!r} reads nothing: add flow.source(...)", where=self.at)
        if not self.sinks:
            raise TopologyError(
                f"topology {self.name!r} writes nothing: add .to_topic(...) or .to_view(...)", where=self.at
            )
        for at in self.without_aggregates.values():
            raise TopologyError("this window has no aggregates: add .agg(n='count(*)')", where=at)
        self.settle()
        self._check_cycles()
        used = {id(node) for sink in self.sinks for node in sink.stream.upstream()}
        consumed = {id(node) for stream in self.streams for node in stream.inputs}
        return [
            f"{stream.at}: {stream.kind} {stream.name!r} goes nowhere; it is left out"
            for stream in self.streams
            if id(stream) not in used and id(stream) not in consumed and not stream.is_record
        ]

    def _check_cycles(self) -> None:
        """Refuse a topic that is written from itself unless the user confirms it, because it makes events
        forever."""
        edges: dict[str, dict[str, Sink]] = {}
        for sink in self.sinks:
            for topic in sink.topics:
                for node in sources_of(sink.stream.upstream()):
                    if not node.feedback:
                        edges.setdefault(node.topic, {})[topic] = sink
        for start in edges:
            path = self._path(edges, start, start, [start], set())
            if path is not None:
                raise TopologyError(
                    f"the topics {' -> '.join(path)} are a cycle: events would circulate forever. If that"
                    f" is intended, read {start!r} with feedback=True",
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
