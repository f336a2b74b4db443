"""Sources: topics whose records are parsed into columns, and the records that did not parse."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.core.errors import MillstreamError, TopologyError
from millstream.core.subscription import includes, pattern_in, subscription_to
from millstream.core.units import DurationError, duration_ms, exact_duration
from millstream.core.user_regex import BadPattern, compile_pattern
from millstream.pipeline.dsl.counts import rejected_count, source_count
from millstream.pipeline.dsl.declaring import StreamTime, check_topic
from millstream.pipeline.dsl.expressions import no_such_column
from millstream.pipeline.dsl.graph import StreamGraph, StreamNode, digest
from millstream.pipeline.formats import value_schemas
from millstream.sqltypes.ddl import Field, Schema, SchemaError, schema_of

if TYPE_CHECKING:
    from millstream.pipeline.formats.value_schemas import SourceSchema

FORMATS = ("json", "text", "binary", *value_schemas.FORMATS)
RECORD_PARTS = ("key", "topic", "partition", "offset", "timestamp", "headers")
REJECTED_COLUMNS = ("reason", "topic", "partition", "offset", "timestamp", "key", "value")
_START = re.compile(r"earliest|latest|@.+")


@dataclass(frozen=True, slots=True)
class TableRecords:
    """How the records of a topic describe a table: which columns are its key, and which records delete."""

    key: tuple[str, ...]
    delete_when: str | None


class SourceNode(StreamNode):
    kind = "source"
    topic: str
    always_counted = True

    def __init__(
        self,
        flow: StreamGraph,
        topic: str,
        *,
        at: str,
        name: str | None,
        format: str,
        value_schema: SourceSchema | None,
        schema: Schema,
        time: StreamTime | None,
        include: tuple[str, ...],
        start: str,
        max_rows: int | None,
        feedback: bool,
    ) -> None:
        self.topic = topic  # or the subscription to a pattern: see core/subscription.py
        self.pattern = pattern_in(topic)
        self.format = format
        self.value_schema = value_schema  # if the values carry the id of a schema
        self.schema = schema
        self.include = include
        self.start = start
        self.max_rows = max_rows
        self.feedback = feedback
        self.table: TableRecords | None = None  # what its records say about a table, if it is one
        self.rejected: RejectedNode | None = None
        extra = [time.column] if time is not None and time.kind != "event" else []
        columns = (*schema.names, *(f"record_{part}" for part in include), *extra)
        # A pattern is no name. Its source is named like other streams, after the variable that holds it.
        name = name or (topic if self.pattern is None else None)
        super().__init__(flow, (), at=at, name=name, columns=columns, time=time)
        if time is None:
            self.no_time = (
                f"this operator goes by time, and source {self.pattern or topic!r} ({at}) does not say which"
                " time its events have: give it time='a timestamp column', 'log' or 'processing'"
            )

    def reads(self, topic: str) -> bool:
        return includes(self.topic, topic)

    @property
    def is_json(self) -> bool:
        return self.format in ("json", "json-schema")

    def origin(self) -> Any:
        time = None if self.time is None else [self.time.kind, self.time.column]
        table = None if self.table is None else [list(self.table.key), self.table.delete_when]
        return {"source": self.topic, "format": self.format, "time": time, "table": table}

    @property
    def identity(self) -> str:
        """What distinguishes a source from others: its topic, how it is read, and the time it goes by."""
        return digest(self.origin())

    def feeding(self) -> list[StreamNode]:
        return [self]

    @property
    def count(self) -> str:
        return source_count(self.name)

    def about(self) -> str:
        parts = [self.format]
        if self.time is not None:
            parts.append(self.time.basis)
            if self.time.lateness_ms:
                parts.append(f"{exact_duration(self.time.lateness_ms)} late at most")
        return ", ".join(parts)

    def label(self) -> str:
        return self.about()


def sources_of(streams: Iterable[StreamNode]) -> list[SourceNode]:
    return [stream for stream in streams if isinstance(stream, SourceNode)]


class RejectedNode(StreamNode):
    """The records that did not parse."""

    kind = "rejected"
    is_record = True
    always_counted = True
    no_time = (
        "rejected records have no event time, and this operator goes by time; write them to a topic and read"
        " that with time='log'"
    )

    def __init__(self, source: SourceNode, at: str) -> None:
        self.source = source
        super().__init__(
            source.flow, (source,), at=at, name=f"{source.name}.rejected", columns=REJECTED_COLUMNS
        )

    def origin(self) -> Any:
        return {"rejected": [self.source.origin()]}

    @property
    def count(self) -> str:
        return rejected_count(self.source.name)

    def about(self) -> str:
        return "did not parse"

    def label(self) -> str:
        return self.about()


def rejected_of(source: SourceNode, at: str) -> RejectedNode:
    """The records of a source that did not parse; made once."""
    if source.rejected is None:
        source.rejected = RejectedNode(source, at)
    return source.rejected


def declare_source(
    flow: StreamGraph,
    topic: str | None,
    *,
    pattern: str | None = None,
    schema: object,
    format: str,
    time: str | None,
    lateness: str,
    idle_after: str | None,
    ahead: str | None,
    include: Sequence[str],
    start: str,
    max_rows: int | None,
    feedback: bool,
    name: str | None,
    registry: str | None = None,
    subject: str | None = None,
    message: str | None = None,
    at: str,
) -> SourceNode:
    topic = _subscription(topic, pattern, at)
    if format not in FORMATS:
        raise TopologyError(f"format={format!r} is not one of {', '.join(FORMATS)}", where=at)
    value_schema, parsed = None, None
    if format in value_schemas.FORMATS:
        if pattern is not None and schema is None and subject is None:
            raise TopologyError(
                f"format={format!r} with pattern= needs schema= or subject=: there is no one topic"
                " whose schema it could be",
                where=at,
            )
        value_schema, parsed = _value_schema(
            format, schema, registry, subject or f"{topic}-value", message, at
        )
    elif registry is not None or subject is not None or message is not None:
        raise TopologyError(f"format={format!r} has no schema in a registry", where=at)
    else:
        parsed = _schema(schema, format, at)
    for part in include:
        if part not in RECORD_PARTS:
            raise TopologyError(f"include={part!r} is not one of {', '.join(RECORD_PARTS)}", where=at)
    if not _START.fullmatch(start):
        raise TopologyError(
            f"start={start!r} is not 'earliest', 'latest' or '@' followed by a time", where=at
        )
    if max_rows is not None and (not isinstance(max_rows, int) or max_rows < 1):
        raise TopologyError(f"max_rows={max_rows!r} must be a whole number of at least 1", where=at)
    return SourceNode(
        flow,
        topic,
        at=at,
        name=name,
        format=format,
        value_schema=value_schema,
        schema=parsed,
        time=_time(time, lateness, idle_after, ahead, parsed, at),
        include=tuple(include),
        start=start,
        max_rows=max_rows,
        feedback=feedback,
    )


def _subscription(topic: str | None, pattern: str | None, at: str) -> str:
    if (topic is None) == (pattern is None):
        raise TopologyError(
            "a source reads a topic or the topics of a pattern: flow.source('orders', ...) or"
            r" flow.source(pattern=r'orders\..*', ...)",
            where=at,
        )
    if pattern is None:
        check_topic(topic, at)
        return str(topic)
    if not isinstance(pattern, str) or not pattern:
        raise TopologyError(f"pattern={pattern!r} is not a regular expression", where=at)
    try:
        compile_pattern(pattern)
    except BadPattern as error:
        raise TopologyError(
            f"pattern={pattern!r} is not a regular expression of RE2: {error}", where=at
        ) from None
    return subscription_to(pattern)


def _value_schema(
    format: str, given: object, registry: str | None, subject: str, message: str | None, at: str
) -> tuple[SourceSchema, Schema]:
    if message is not None and format != "protobuf":
        raise TopologyError("message= requires format='protobuf'", where=at)
    try:
        return value_schemas.declare_source_schema(format, given, registry, subject, message)
    except (SchemaError, MillstreamError) as error:
        raise TopologyError(str(error), where=at) from None


def _schema(given: object, format: str, at: str) -> Schema:
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
    time: str | None,
    lateness: str,
    idle_after: str | None,
    ahead: str | None,
    schema: Schema,
    at: str,
) -> StreamTime | None:
    given: dict[str, int | None] = {"lateness": None, "idle_after": None, "ahead": None}
    for name, text in (("lateness", lateness), ("idle_after", idle_after), ("ahead", ahead)):
        try:
            given[name] = None if text is None else duration_ms(text, zero=name == "lateness")
        except DurationError as error:
            raise TopologyError(f"{name}: {error}", where=at) from None
    late_ms, rest = given["lateness"] or 0, (given["idle_after"], given["ahead"])
    if time is None:
        for name, ms in given.items():
            if ms:
                raise TopologyError(f"{name}= requires time=, the time that it refers to", where=at)
        return None
    field = schema.field(time)
    if time in ("log", "processing"):
        if field is not None or schema.field(f"{time}_time") is not None:
            raise TopologyError(f"time={time!r} is ambiguous: the schema has a column of that name", where=at)
        return StreamTime(time, f"{time}_time", late_ms, *rest)
    if field is None:
        raise TopologyError(
            f"time={time!r}: {no_such_column(time, schema.names)}; or 'log' or 'processing'", where=at
        )
    if field.type != "timestamp":
        raise TopologyError(f"time={time!r} must be a timestamp column; it is {field.type}", where=at)
    return StreamTime("event", field.name, late_ms, *rest)
