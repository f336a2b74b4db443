"""Produce, versions 3 to 13, read and written by hand: most requests of a busy broker are Produce requests.

    request   transactional id nullable string | acks int16 | timeout int32 | topics
    topic     name string (from 13: id uuid) | partitions
    partition index int32 | records nullable bytes

    response  topics | throttle time int32
    topic     name (from 13: id) | partitions
    partition index int32 | error int16 | base offset int64 | log append time int64
              | from 5: log start offset int64 | from 8: record errors, error message

From version 9 strings and arrays are compact and every structure ends with tags. Records are not copied: they
are given as positions in the receive buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from millstream.core.errors import ProtocolError
from millstream.core.loop_slices import MANY, breathe, sliced
from millstream.wire.frame import (
    INT,
    Buffer,
    StructError,
    TopicKey,
    compact_bytes,
    read_compact_string,
    read_count,
    read_string,
    read_unsigned_varint,
    skip_tags,
    string_bytes,
    unsigned_varint,
)

FIRST, LAST = 3, 13
FLEXIBLE = 9
BY_ID = 13
MOST_PARTITIONS = 100_000  # in one request

_ACKS_TIMEOUT = Struct(">hi")
_RESULT = Struct(">ihqq")


class PartitionRecords(NamedTuple):
    """One partition's records, as positions in the request's buffer."""

    partition: int
    partition_at: int  # the position of that number; all bytes before it repeat from request to request
    start: int
    end: int  # -1: the records are null


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: Sequence[tuple[TopicKey, Sequence[PartitionRecords]]]


class PartitionResult(NamedTuple):
    """The result for one partition's records."""

    partition: int
    error: int = 0
    base_offset: int = -1
    append_time: int = -1
    start_offset: int = -1
    message: str | None = None
    records: Sequence[int] = ()  # the indexes in the batch of the records that the message is about


class TooManyPartitions(ProtocolError):
    """The request has more topics and partitions than the limit given."""


def read_produce(
    buffer: Buffer, position: int, end: int, version: int, most: int = MOST_PARTITIONS
) -> ProduceRequest:
    """Parse the request whose body is from ``position`` to ``end``. Raises TooManyPartitions if it has more
    than ``most`` topics and partitions, and ProtocolError if it is invalid."""
    try:
        request, position = _read(buffer, position, end, version, most)
    except TooManyPartitions:
        raise
    except (StructError, IndexError):
        raise ProtocolError("sent a Produce request that is cut off") from None
    except ProtocolError as error:
        raise ProtocolError(f"sent a Produce request that can't be read: {error}") from None
    if position > end:
        raise ProtocolError("sent a Produce request that is longer than its frame")
    return request


def _read(buffer: Buffer, position: int, end: int, version: int, most: int) -> tuple[ProduceRequest, int]:
    flexible = version >= FLEXIBLE
    text = read_compact_string if flexible else read_string
    transactional_id, position = text(buffer, position)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(buffer, position)
    count, position = read_count(buffer, position + 6, end, flexible)
    topics: list[tuple[TopicKey, list[PartitionRecords]]] = []
    left = most
    for _ in range(count):
        breathe()
        key: TopicKey | None
        if version >= BY_ID:
            key = bytes(buffer[position : position + 16])
            position += 16
        else:
            key, position = text(buffer, position)
            if key is None:
                raise ProtocolError("a topic's name is null")
        partition_count, position = read_count(buffer, position, end, flexible)
        left -= partition_count + 1
        if left < 0:
            raise TooManyPartitions(f"sent a Produce request of more than {most} topics and partitions")
        partitions = []
        for _ in range(partition_count):
            breathe()
            index_at = position
            (index,) = INT.unpack_from(buffer, position)
            position += 4
            if flexible:
                size, position = read_unsigned_varint(buffer, position)
                size -= 1
            else:
                (size,) = INT.unpack_from(buffer, position)
                position += 4
            start = position
            if size > end - start:
                raise ProtocolError("records end after their Produce request")
            if size < 0:
                partitions.append(PartitionRecords(index, index_at, start, -1))
            else:
                position += size
                partitions.append(PartitionRecords(index, index_at, start, position))
            if flexible:
                position = skip_tags(buffer, position)
        if flexible:
            position = skip_tags(buffer, position)
        topics.append((key, partitions))
    if flexible:
        position = skip_tags(buffer, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics), position


def produce_answer(
    version: int,
    topics: Iterable[tuple[str, bytes, Sequence[PartitionResult]]],
    throttle_ms: int = 0,
) -> bytearray:
    """The body of a response. Each topic is given with its name and the bytes of its id."""
    topics = list(topics)
    flexible = version >= FLEXIBLE
    out = bytearray(unsigned_varint(len(topics) + 1) if flexible else INT.pack(len(topics)))
    for name, topic_id, results in sliced(topics):
        if version >= BY_ID:
            out += topic_id
        elif flexible:
            out += compact_bytes(name.encode())
        else:
            out += string_bytes(name)
        out += unsigned_varint(len(results) + 1) if flexible else INT.pack(len(results))
        for result in results if len(results) < MANY else sliced(results):
            out += _RESULT.pack(result.partition, result.error, result.base_offset, result.append_time)
            if version >= 5:
                out += result.start_offset.to_bytes(8, "big", signed=True)
            if flexible:
                message = b"\0" if result.message is None else compact_bytes(result.message.encode())
                out += unsigned_varint(len(result.records) + 1)
                for number in result.records:
                    out += INT.pack(number) + message + b"\0"
                out += message + b"\0"
            elif version >= 8:
                message = b"\xff\xff" if result.message is None else string_bytes(result.message)
                out += INT.pack(len(result.records))
                for number in result.records:
                    out += INT.pack(number) + message
                out += message
        if flexible:
            out += b"\0"
    out += INT.pack(throttle_ms)
    if flexible:
        out += b"\0"
    return out


class AckTemplate(NamedTuple):
    """The response for the appended records of one partition, except for the five numbers that vary.

    ``pack(size, correlation_id, before, 0, base_offset, append_time, start_offset, after)`` is the frame.
    """

    pack: Callable[..., bytes]
    size: int
    before: bytes
    after: bytes


def ack_template(version: int, name: str, topic_id: bytes, index: int) -> AckTemplate:
    """The template of a partition, for version 5 and up: lower versions have no log start offset."""
    probe = bytes(produce_answer(version, [(name, topic_id, [PartitionResult(index, 0, 0, 0, 0)])]))
    # The part that varies is 26 bytes of zeros: error, base offset, append time, start offset.
    after = {True: 2 + 1 + 1 + 4 + 1, False: (6 if version >= 8 else 0) + 4}[version >= FLEXIBLE]
    before = (b"\0" if version >= FLEXIBLE else b"") + probe[: len(probe) - after - 26]
    struct = Struct(f">ii{len(before)}shqqq{after}s")
    return AckTemplate(struct.pack, struct.size - 4, before, probe[len(probe) - after :])
