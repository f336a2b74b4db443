"""Changes to a topic: one function for each, used by forms and the REST interface; each raises its errors."""

from __future__ import annotations

import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from msgspec import Meta

from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.produce import send_one
from millstream.client.text.lines import Outgoing
from millstream.client.text.position import TopicPartition, parse_position
from millstream.console.messages.search import chosen
from millstream.core.errors import ConfigError, RequestFailed

Written = Literal["text", "json", "hex"]
TopicName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=249,
        pattern=r"^[a-zA-Z0-9_-][a-zA-Z0-9._-]*$",
        description="Letters, digits, '.', '_' and '-'.",
    ),
]
SettingName = Annotated[str, Meta(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. Without ``partitions`` or ``replicas``, the broker's defaults apply."""

    name: TopicName
    partitions: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    replicas: Annotated[int, Meta(ge=1, le=1000)] | None = None
    settings: dict[SettingName, str] = field(default_factory=dict)


def create(admin: Admin, topic: NewTopic) -> None:
    admin.create_topic(
        topic.name,
        partitions=topic.partitions or -1,
        replicas=topic.replicas or -1,
        config=topic.settings,
    )


# Producing -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewHeader:
    name: Annotated[str, Meta(min_length=1, max_length=1000)]
    value: str | None = None


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to produce. A null ``value`` is a tombstone: with compaction, it deletes the key. ``format``
    says how ``value`` is written, and ``key_format`` how ``key`` is: ``json`` is checked and sent unchanged,
    ``hex`` is decoded to bytes. Without ``partition``, the key decides.
    """

    value: str | None = None
    key: str | None = None
    headers: list[NewHeader] = field(default_factory=list)
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    format: Written = "text"
    key_format: Written = "text"


@dataclass(frozen=True, slots=True)
class Produced:
    """Where a produced record is. It was synced to disk before this response."""

    topic: str
    partition: int
    offset: int


def produce(connection: Connection, topic: str, record: NewRecord) -> Produced:
    if record.value is None and record.key is None:
        raise ConfigError("key: a tombstone needs one, as it says which key is deleted")
    outgoing = Outgoing(
        _bytes("value", record.value, record.format),
        _bytes("key", record.key, record.key_format),
        [(header.name, _bytes(f"header {header.name}", header.value, "text")) for header in record.headers],
        -1 if record.partition is None else record.partition,
    )
    return Produced(topic, *send_one(connection, topic, outgoing))


def _bytes(what: str, text: str | None, written: Written) -> bytes | None:
    if text is None:
        return None
    if written == "hex":
        try:
            return binascii.unhexlify("".join(text.split()).removeprefix("0x"))
        except ValueError:
            raise ConfigError(f"{what}: not hex; write pairs of digits, such as 00 ff 1a") from None
    if written == "json":
        try:
            json.loads(text)
        except ValueError as error:
            raise ConfigError(f"{what}: not JSON: {error}") from None
        except RecursionError:
            raise ConfigError(f"{what}: nested too deeply") from None
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{what}: contains a lone surrogate, which is not valid text") from None


def parse_headers(text: str) -> list[NewHeader]:
    """Headers from lines of ``name: value``. A ``name`` alone means the value null."""
    headers = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not name.strip():
            raise ConfigError(f"headers: line {number} has no name; write name: value")
        headers.append(NewHeader(name.strip(), value.strip() if colon else None))
    return headers


# Settings and partitions -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SettingChanges:
    """The settings to set, and those to reset to their inherited values."""

    set: dict[SettingName, str] = field(default_factory=dict)
    reset: list[SettingName] = field(default_factory=list)


def alter(admin: Admin, topic: str, changes: SettingChanges) -> None:
    if not changes.set and not changes.reset:
        raise ConfigError("nothing to change: name settings in `set` or `reset`")
    admin.alter_topic(topic, changes.set, changes.reset)


@dataclass(frozen=True, slots=True)
class MorePartitions:
    """More partitions for a topic. ``total`` is the new number."""

    total: Annotated[int, Meta(ge=1, le=10_000)]


def add_partitions(admin: Admin, topic: str, wanted: MorePartitions) -> None:
    before = len(admin.partitions([topic]))
    if wanted.total <= before:
        raise RequestFailed(
            37, "INVALID_PARTITIONS", f"{topic} has {before} partitions; a topic can only get more"
        )
    admin.add_partitions(topic, wanted.total)


# Deleting --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trim:
    """A trim of one partition, or of all. Records from ``to`` on are kept: an offset, ``end``, ``-100`` (the
    last hundred), ``@-7d`` or ``@2026-01-01``.
    """

    to: Annotated[str, Meta(min_length=1, max_length=100)]
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None


@dataclass(frozen=True, slots=True)
class TrimmedPartition:
    partition: int
    old_start: int
    new_start: int
    end: int

    @property
    def records(self) -> int:
        return self.new_start - self.old_start


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What a trim deletes. ``records`` is the number of deleted records in all partitions."""

    to: str
    partitions: list[TrimmedPartition]
    records: int

    @property
    def starts(self) -> dict[int, int]:
        """The new first offset of each partition that loses records."""
        return {row.partition: row.new_start for row in self.partitions if row.records > 0}


def plan_trim(admin: Admin, topic: str, wanted: Trim, now_ms: int) -> Trimmed:
    """What a trim would delete; changes nothing."""
    position = parse_position(wanted.to, now_ms)
    places = chosen(admin.partitions([topic]), wanted.partition)
    bounds = admin.bounds(places)
    starts = admin.resolve(dict.fromkeys(places, position), bounds=bounds)
    rows = [
        TrimmedPartition(place.partition, bounds[place].start, starts[place], bounds[place].end)
        for place in places
    ]
    return Trimmed(wanted.to, rows, sum(row.records for row in rows))


def trim_to(admin: Admin, topic: str, starts: Mapping[int, int]) -> None:
    """Delete the records before the planned offsets. Records that arrived since the plan are not touched."""
    if not starts:
        raise ConfigError("nothing to delete: say up to where, partition by partition")
    admin.trim({TopicPartition(topic, partition): offset for partition, offset in starts.items()})


def delete(admin: Admin, topic: str) -> None:
    error = admin.delete_topics([topic])[topic]
    if error is not None:
        raise error
