"""How far files were read, stored in the log itself: with the lines, in one transaction.

A compacted topic holds one record for each content that a tail follows; the newest one says how far it was
read. It is written in the transaction that writes the lines, so both are there or neither is. After a
restart, once the transactional id is taken over (which settles what a predecessor left open), it says
exactly what was written. (A group's offsets with metadata would do for one file, but a tail may follow
hundreds, and offsets expire while a tail is away.)

    key    NAME of the tail, line feed, id of the content; without an id: the tail has begun
    value  JSON: family; path, device, inode, size and time of the file; order; offset, head, near and samples
           of the mark; piece, whole, ended, read_ms; null: forgotten
"""

from __future__ import annotations

import json
from typing import Any

from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.consume import PartitionReader
from millstream.client.text.position import TopicPartition
from millstream.client.transaction import Transaction
from millstream.core.errors import MillstreamError
from millstream.integration.files.content import FileStat, Mark
from millstream.integration.files.follow import TrackedFile

TOPIC = "__millstream_tail"
_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "8388608", "min.cleanable.dirty.ratio": "0.5"}


class TailProgress:
    """The progress of one tail, by its name."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._name = name

    def prepare(self) -> None:
        """Create the topic if it does not exist."""
        with Admin(self._connection) as admin:
            admin.create_topic(TOPIC, partitions=1, config=_SETTINGS, if_not_exists=True)

    def load(self) -> tuple[bool, list[TrackedFile]]:
        """Whether this tail has begun, and what it tracks. To be called after taking over the transactional
        id, because that settles what a predecessor left open."""
        place = TopicPartition(TOPIC, 0)
        newest: dict[str, bytes | None] = {}
        with Admin(self._connection) as admin:
            bounds = admin.bounds([place], committed_only=True)[place]
        mine = f"{self._name}\n"
        with PartitionReader(self._connection, {place: bounds.start}, {place: bounds.end}) as reader:
            while not reader.finished:
                for record in reader.read(10_000, 0.2):
                    key = (record.key() or b"").decode("utf-8", "replace")
                    if key.startswith(mine):
                        newest[key.removeprefix(mine)] = record.value()
        begun = newest.pop("", None) is not None
        return begun, [tracked_of(id, value) for id, value in newest.items() if value is not None]

    def begin(self, txn: Transaction) -> None:
        txn.send(TOPIC, b"{}", key=f"{self._name}\n", partition=0)

    def save(self, txn: Transaction, tracked: TrackedFile) -> None:
        """Write how far a content was read."""
        value = json.dumps(fields_of(tracked))
        txn.send(TOPIC, value, key=f"{self._name}\n{tracked.id}", partition=0)

    def forget(self, txn: Transaction, tracked: TrackedFile) -> None:
        txn.send(TOPIC, None, key=f"{self._name}\n{tracked.id}", partition=0)


def fields_of(tracked: TrackedFile) -> dict[str, Any]:
    """What is stored of a content; ``tracked_of`` reads it."""
    place = tracked.place
    return {
        "family": tracked.family,
        "path": place.path,
        "device": place.device,
        "inode": place.inode,
        "size": place.size,
        "modified_ns": place.modified_ns,
        "order": tracked.order,
        **tracked.mark.as_fields(),
        "piece": tracked.piece,
        "whole": tracked.whole,
        "ended": tracked.ended,
        "read_ms": tracked.read_ms,
    }


def tracked_of(id: str, value: bytes) -> TrackedFile:
    try:
        fields = json.loads(value)
        mark = Mark.from_fields(fields)
        place = FileStat(*(fields[name] for name in ("path", "device", "inode", "size", "modified_ns")))
        return TrackedFile(
            id,
            fields["family"],
            place,
            mark,
            fields["order"],
            fields["piece"],
            bool(fields["whole"]),
            fields["ended"],
            read_ms=fields["read_ms"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise MillstreamError(
            f"topic {TOPIC} holds progress that can't be read ({error}); choose another --name to start over"
        ) from None
