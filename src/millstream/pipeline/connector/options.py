"""The options of ``format("millstream")``: names, meanings and checks, declared once.

The names are those of Spark's own Kafka source and sink wherever these have the option. An unknown name is
refused, with the closest known name: if a misspelt option were ignored, data would be read from the wrong
place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from millstream.client.connect import DEFAULT_ADDRESS, Connection
from millstream.client.protocol.security import PROPERTIES
from millstream.client.text.position import parse_duration_ms
from millstream.core.errors import ConfigError
from millstream.core.units import did_you_mean
from millstream.records.compression import codec_named

Use = Literal["read", "write", "both"]

# A column that a topology requests in addition to a record's own: a struct of the fields that were read from
# a value that is plain JSON. The value itself is then null, because nothing would use it and it would be
# copied from process to process. The column's comment lists, as JSON, the fields that a value must have to be
# plain.
PLAIN = "_millstream_plain"


@dataclass(frozen=True, slots=True)
class Option:
    """A declared option: its name, its aliases, whether reading or writing takes it, and what it means."""

    name: str
    use: Use
    doc: str
    aliases: tuple[str, ...] = ()


OPTIONS: tuple[Option, ...] = (
    Option(
        "bootstrap",
        "both",
        f"Address of the broker, HOST:PORT, or several with commas. Default: {DEFAULT_ADDRESS}.",
        ("kafka.bootstrap.servers",),
    ),
    Option(
        "topic",
        "both",
        "Reading: the topic, or several with commas. Writing: the topic of all rows, whatever their `topic`"
        " column says.",
        ("subscribe", "topics", "path"),
    ),
    Option(
        "pattern",
        "read",
        "A regular expression; all topics whose whole name it matches are read, those created later too.",
        ("subscribePattern",),
    ),
    Option("assign", "read", 'Only these partitions, as JSON: `{"topic": [0, 2]}`.'),
    Option(
        "startingOffsets",
        "read",
        "Where a new query starts: `earliest`, `latest`, a time (`@-1h`, `@2026-01-01`, `@` and"
        " milliseconds), `group` for what `groupId` has committed (`group:earliest`, `group:latest` say what"
        ' to do where it has not), or JSON with an offset or a time for each partition: `{"topic": {"0": 23,'
        ' "1": -2, "2": "@-1h"}}` (-2 earliest, -1 latest). Default: `latest` for a stream, `earliest` for a'
        " batch. A query with a checkpoint continues from there.",
        ("startingOffsetsByTimestamp",),
    ),
    Option(
        "endingOffsets",
        "read",
        "Where to stop, not included; as startingOffsets. For a batch, and for a stream with"
        " `trigger(availableNow=True)`. Default: `latest`.",
        ("endingOffsetsByTimestamp",),
    ),
    Option("startingTimestamp", "read", "Milliseconds since 1970: the same as startingOffsets `@` and them."),
    Option("endingTimestamp", "read", "Milliseconds since 1970: the same as endingOffsets `@` and them."),
    Option(
        "groupId",
        "read",
        "A consumer group. A stream commits to it what has been processed, for tools that watch lag; with"
        " startingOffsets `group` a new query starts from it.",
        ("kafka.group.id",),
    ),
    Option("commitOffsets", "read", "Whether processed offsets are committed to groupId. Default: true."),
    Option(
        "maxOffsetsPerTrigger",
        "read",
        "Most records in one micro-batch, shared among partitions by how much each has waiting.",
    ),
    Option(
        "minOffsetsPerTrigger",
        "read",
        "A micro-batch waits for this many records, but not longer than maxTriggerDelay.",
    ),
    Option(
        "maxTriggerDelay", "read", "How long minOffsetsPerTrigger may wait, as `30s` or `15m`. Default: 15m."
    ),
    Option(
        "maxBytesPerTrigger",
        "read",
        "Most bytes of batches in one micro-batch, estimated from a sample of what is waiting.",
    ),
    Option(
        "minPartitions",
        "read",
        "At least this many Spark tasks: partitions with much to read are split.",
    ),
    Option("maxRecordsPerPartition", "read", "No Spark task reads more records than this."),
    Option(
        "failOnDataLoss",
        "read",
        "Whether to stop when records to be read are gone (deleted by retention, with their topic, or by"
        " hand), saying which. `false` logs it and continues. Default: true.",
    ),
    Option("includeHeaders", "read", "Whether there is a `headers` column. Default: true."),
    Option(
        "tickFile",
        "read",
        "A file on the driver's machine with a time in it, milliseconds since 1970: once it has come, there"
        " is a micro-batch even if there are no records. `millstream run` uses it for what waits for time.",
    ),
    Option(
        "kafka.isolation.level",
        "read",
        "`read_committed` leaves out records of open and aborted transactions; `read_uncommitted` gives all."
        " Default: read_committed.",
    ),
    Option(
        "kafka.max.partition.fetch.bytes",
        "read",
        "Most bytes asked of the broker at once. Default: 8388608.",
        ("kafka.fetch.max.bytes",),
    ),
    Option(
        "kafka.compression.type",
        "write",
        "Codec of the batches: none, gzip, snappy, lz4, zstd. Default: none.",
    ),
    Option("kafka.batch.size", "write", "Most bytes of a batch before compression. Default: 524288."),
    Option(
        "kafka.acks",
        "write",
        "`all`: every row is synced (or replicated) when the task ends. `1`: only the leader has it, and the"
        " producer is not idempotent. Default: all.",
    ),
    Option(
        "kafka.enable.idempotence",
        "write",
        "Whether a batch sent again after a lost answer is recognised. Without it rows may be there twice or"
        " out of order. Default: true.",
    ),
    Option(
        "kafka.request.timeout.ms",
        "both",
        "How long a broker that is away or does not answer is waited for. Default: 30000.",
    ),
    Option("kafka.client.id", "both", "The name told to the broker. Default: millstream-spark."),
    *(Option(f"kafka.{name}", "both", f"TLS or SASL, as librdkafka's `{name}`.") for name in PROPERTIES),
)

# Spark also passes its own options to a sink.
_SPARKS_OWN = ("checkpointlocation", "queryname", "outputmode")
_BY_NAME = {name.lower(): option for option in OPTIONS for name in (option.name, *option.aliases)}


class GivenOptions:
    """The options that a user gave, by their declared names. Two names of one option must not contradict each
    other."""

    def __init__(self, given: Mapping[str, str], use: Use) -> None:
        self._values: dict[str, str] = {}
        self._called: dict[str, str] = {}
        for name, value in given.items():
            if name.lower() in _SPARKS_OWN:
                continue
            option = _BY_NAME.get(name.lower())
            if option is None:
                raise ConfigError(f"format millstream: there is no option {name!r}{_closest(name, use)}")
            if option.use not in (use, "both"):
                raise ConfigError(f"format millstream: option {name!r} is only for {option.use[:4]}ing")
            earlier = self._called.get(option.name)
            if earlier is not None and self._values[option.name] != value:
                raise ConfigError(
                    f"format millstream: options {earlier!r} and {name!r} mean the same; give one"
                )
            self._called[option.name] = name
            self._values[option.name] = value

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def called(self, name: str) -> str:
        """The name by which the user gave the option."""
        return self._called.get(name, name)

    def wrong(self, name: str, expected: str) -> ConfigError:
        return ConfigError(f"option {self.called(name)}: {self._values[name]!r} is not {expected}")

    def flag(self, name: str, default: bool) -> bool:
        value = self._values.get(name)
        if value is None:
            return default
        if value.strip().lower() not in ("true", "false"):
            raise self.wrong(name, "true or false")
        return value.strip().lower() == "true"

    def number(self, name: str, least: int = 1) -> int | None:
        value = self._values.get(name)
        if value is None:
            return None
        if not value.strip().isdigit() or int(value) < least:
            raise self.wrong(name, f"a whole number of at least {least}")
        return int(value)

    def one_of(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self._values.get(name, default).strip().lower()
        if value not in choices:
            raise self.wrong(name, f"one of {', '.join(choices)}")
        return value

    def connection(self) -> Connection:
        """The broker's address and the client's settings."""
        options = {"client.id": self._values.get("kafka.client.id", "millstream-spark")}
        for name in PROPERTIES:
            if f"kafka.{name}" in self._values:
                options[name] = self._values[f"kafka.{name}"]
        seconds = (self.number("kafka.request.timeout.ms") or 30_000) / 1000
        connection = Connection(self._values.get("bootstrap", DEFAULT_ADDRESS), options, seconds)
        connection.servers()  # raises if the address is wrong, and says why
        return connection


def _closest(name: str, use: Use) -> str:
    taken = [option for option in OPTIONS if option.use in (use, "both")]
    if hint := did_you_mean(name, (known for option in taken for known in (option.name, *option.aliases))):
        return f"; {hint}"
    security = {f"kafka.{name}" for name in PROPERTIES}
    plain = sorted(option.name for option in taken if option.name not in security)
    return f"; there are {', '.join(plain)}, and kafka.* for TLS and SASL"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read, where to start and end, and how."""

    connection: Connection
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assign: str | None = None
    start: str | None = None
    end: str | None = None
    group: str | None = None
    commit: bool = True
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 900_000
    max_bytes: int | None = None
    min_partitions: int | None = None
    max_records: int | None = None
    fail_on_data_loss: bool = True
    headers: bool = True
    read_committed: bool = True
    fetch_bytes: int = 8 * 1024 * 1024
    tick_file: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        given = GivenOptions(options, "read")
        chosen = [name for name in ("topic", "pattern", "assign") if given.text(name) is not None]
        if len(chosen) != 1:
            what = " and ".join(given.called(name) for name in chosen) or "none of them"
            raise ConfigError(
                f"format millstream needs exactly one of topic, pattern or assign; given: {what}"
            )
        topics = tuple(part.strip() for part in (given.text("topic") or "").split(",") if part.strip())
        if chosen == ["topic"] and not topics:
            raise given.wrong("topic", "the name of a topic")
        pattern = given.text("pattern")
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as problem:
                raise given.wrong("pattern", f"a regular expression ({problem})") from None
        return cls(
            connection=given.connection(),
            topics=topics,
            pattern=pattern,
            assign=given.text("assign"),
            start=_place(given, "startingOffsets", "startingTimestamp"),
            end=_place(given, "endingOffsets", "endingTimestamp"),
            group=given.text("groupId"),
            commit=given.flag("commitOffsets", True),
            max_offsets=given.number("maxOffsetsPerTrigger"),
            min_offsets=given.number("minOffsetsPerTrigger"),
            max_delay_ms=parse_duration_ms(given.text("maxTriggerDelay") or "15m"),
            max_bytes=given.number("maxBytesPerTrigger"),
            min_partitions=given.number("minPartitions"),
            max_records=given.number("maxRecordsPerPartition"),
            fail_on_data_loss=given.flag("failOnDataLoss", True),
            headers=given.flag("includeHeaders", True),
            read_committed=given.one_of(
                "kafka.isolation.level", ("read_committed", "read_uncommitted"), "read_committed"
            )
            == "read_committed",
            fetch_bytes=given.number("kafka.max.partition.fetch.bytes", 1024) or 8 * 1024 * 1024,
            tick_file=given.text("tickFile"),
        )


def _place(given: GivenOptions, offsets: str, timestamp: str) -> str | None:
    text = given.text(offsets)
    if given.text(timestamp) is not None:
        if text is not None:
            raise ConfigError(f"options {offsets} and {timestamp} contradict each other; give only one")
        return f"@{given.number(timestamp, 0)}"
    by_time = given.called(offsets).lower().endswith("bytimestamp")
    return f"times:{text}" if by_time and text is not None else text


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where to write rows, and how."""

    connection: Connection
    topic: str | None = None
    codec: int = 0
    batch_bytes: int = 512 * 1024
    acks: int = -1
    idempotent: bool = True

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        given = GivenOptions(options, "write")
        acks = {"all": -1, "-1": -1, "1": 1}[given.one_of("kafka.acks", ("all", "-1", "1"), "all")]
        idempotent = given.flag("kafka.enable.idempotence", acks == -1)
        if idempotent and acks != -1:
            raise given.wrong("kafka.acks", "all, which an idempotent producer requires")
        return cls(
            connection=given.connection(),
            topic=given.text("topic"),
            codec=codec_named(given.text("kafka.compression.type") or "none"),
            batch_bytes=given.number("kafka.batch.size", 1024) or 512 * 1024,
            acks=acks,
            idempotent=idempotent,
        )
