"""Fetch, versions 4 to 18, read and written by hand.

    request   below 15: replica id int32 | max wait int32 | min bytes int32 | max bytes int32
              | isolation level int8 | from 7: session id int32, session epoch int32 | topics
              | from 7: forgotten topics | from 11: rack string
    topic     name string (from 13: id uuid) | partitions
    partition index int32 | from 9: current leader epoch int32 | offset int64
              | from 12: last fetched epoch int32 | from 5: log start offset int64 | max bytes int32

    response  throttle time int32 | from 7: error int16, session id int32 | topics
    topic     name (from 13: id) | partitions
    partition index int32 | error int16 | high watermark int64 | last stable offset int64
              | from 5: log start offset int64 | aborted transactions
              | from 11: preferred replica int32 | records

From version 12 strings and arrays are compact and every structure ends with tags. A response is a list of
parts, because large slices of records stay in their file until the socket takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple, Protocol

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
    skip_tags,
    string_bytes,
    unsigned_varint,
)

FIRST, LAST = 4, 18
FLEXIBLE = 12
BY_ID = 13
SESSIONS = 7
LARGE = 32 * 1024  # larger slices of records go from the file to the socket, without being read here
INLINED = 128 * 1024  # bytes of smaller slices that are read into one response; the rest is read when sent

NO_SESSION = 0
FINAL_EPOCH = -1  # the session ends with this request, or none is wanted
INITIAL_EPOCH = 0  # the request asks for a new session

_LIMITS = Struct(">iiib")
_SESSION = Struct(">ii")
# A partition in a request, by the first version that has this layout. The last one has an empty tag section.
_PARTITION_4 = Struct(">iqi")
_PARTITION_5 = Struct(">iqqi")
_PARTITION_9 = Struct(">iiqqi")
_PARTITION_12 = Struct(">iiqiqib")

MOST_PARTITIONS = 100_000  # in one request
_PIECE = 500  # partitions that are parsed between two calls of ``breathe``

_HEAD_4 = Struct(">ihqqii")
_HEAD_5 = Struct(">ihqqqii")
_HEAD_11 = Struct(">ihqqqiii")
_HEAD_12 = Struct(">ihqqqBi")
_ABORTED = Struct(">qq")


# What a reader wants from one partition: its number, the leader epoch that the reader knows, an offset, the
# epoch of the record before it, and the most bytes. A plain tuple, because readers ask for very many of them.
FetchPartition = tuple[int, int, int, int, int]


class FetchRequest(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[TopicKey, list[FetchPartition]]]
    forgotten: Sequence[tuple[TopicKey, Sequence[int]]]
    partitions_at: int = 0  # the position of the last topic's partitions in the buffer


class StoredRecords(Protocol):
    """Records that are left where they are stored. The log provides these."""

    @property
    def size(self) -> int: ...

    def bytes(self) -> bytes: ...


class FetchResult(NamedTuple):
    """The result for one partition."""

    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    start_offset: int
    records: StoredRecords | None
    aborted: Sequence[tuple[int, int]] | None  # producer id and first offset; None: not asked for


Part = bytes | bytearray | StoredRecords


def read_fetch(buffer: Buffer, position: int, end: int, version: int) -> FetchRequest:
    """Parse the request whose body is from ``position`` to ``end``. Raises ProtocolError if it is invalid."""
    try:
        request, position = _read(buffer, position, end, version)
    except (StructError, IndexError):
        raise ProtocolError("sent a Fetch request that is cut off") from None
    except ProtocolError as error:
        raise ProtocolError(f"sent a Fetch request that can't be read: {error}") from None
    if position > end:
        raise ProtocolError("sent a Fetch request that is longer than its frame")
    return request


def _read(buffer: Buffer, position: int, end: int, version: int) -> tuple[FetchRequest, int]:
    flexible = version >= FLEXIBLE
    if version < 15:
        position += 4  # the replica id, which is not used: a standby is served like any reader
    max_wait, min_bytes, max_bytes, isolation_level = _LIMITS.unpack_from(buffer, position)
    position += 13
    session_id, session_epoch = NO_SESSION, FINAL_EPOCH
    if version >= SESSIONS:
        session_id, session_epoch = _SESSION.unpack_from(buffer, position)
        position += 8
    count, position = read_count(buffer, position, end, flexible)
    topics: list[tuple[TopicKey, list[FetchPartition]]] = []
    left = MOST_PARTITIONS
    partitions_at = 0
    for _ in range(count):
        key, position = _read_topic_key(buffer, position, version)
        partition_count, position = read_count(buffer, position, end, flexible)
        left -= partition_count + 1
        if left < 0:
            raise ProtocolError(f"it has more than {MOST_PARTITIONS} topics and partitions")
        breathe()
        partitions_at = position
        partitions, position = _read_partitions(buffer, position, end, partition_count, version)
        topics.append((key, partitions))
    forgotten = []
    if version >= SESSIONS:
        count, position = read_count(buffer, position, end, flexible)
        for _ in range(count):
            key, position = _read_topic_key(buffer, position, version)
            partition_count, position = read_count(buffer, position, end, flexible)
            breathe()
            forgotten.append((key, Struct(f">{partition_count}i").unpack_from(buffer, position)))
            position += 4 * partition_count
            if flexible:
                position = skip_tags(buffer, position)
    if version >= 11:
        _, position = (read_compact_string if flexible else read_string)(buffer, position)
    if flexible:
        position = skip_tags(buffer, position)
    return (
        FetchRequest(
            max_wait,
            min_bytes,
            max_bytes,
            isolation_level,
            session_id,
            session_epoch,
            topics,
            forgotten,
            partitions_at,
        ),
        position,
    )


def _read_topic_key(buffer: Buffer, position: int, version: int) -> tuple[TopicKey, int]:
    if version >= BY_ID:
        return bytes(buffer[position : position + 16]), position + 16
    name, position = (read_compact_string if version >= FLEXIBLE else read_string)(buffer, position)
    if name is None:
        raise ProtocolError("a topic's name is null")
    return name, position


def _read_partitions(
    buffer: Buffer, position: int, end: int, count: int, version: int
) -> tuple[list[FetchPartition], int]:
    size = partition_size(version)
    if count * size > end - position:
        raise ProtocolError(f"an array of {count} does not fit in its request")
    wanted = read_wanted(memoryview(buffer)[position : position + count * size], version)
    if wanted is None:  # a partition with tags
        wanted = []
        for _ in range(count):
            breathe()
            index, epoch, offset, fetched_epoch, _, limit, _ = _PARTITION_12.unpack_from(buffer, position)
            wanted.append((index, epoch, offset, fetched_epoch, limit))
            position = skip_tags(buffer, position + size - 1)
    else:
        position += count * size
    if version >= FLEXIBLE:
        position = skip_tags(buffer, position)  # the topic's own
    return wanted, position


def partition_size(version: int) -> int:
    """The bytes that a partition takes in a request, including an empty tag section in flexible versions."""
    return 33 if version >= FLEXIBLE else 28 if version >= 9 else 24 if version >= 5 else 16


def read_wanted(partitions: memoryview, version: int) -> list[FetchPartition] | None:
    """Parse a request's consecutive partitions; None if any of them has tags."""
    piece = _PIECE * partition_size(version)
    if len(partitions) > piece:
        all_wanted: list[FetchPartition] = []
        for start in range(0, len(partitions), piece):
            breathe()
            wanted = read_wanted(partitions[start : start + piece], version)
            if wanted is None:
                return None
            all_wanted += wanted
        return all_wanted
    if version >= FLEXIBLE:
        found = list(_PARTITION_12.iter_unpack(partitions))
        if any(tags for *_, tags in found):
            return None
        return [(i, epoch, offset, fetched, limit) for i, epoch, offset, fetched, _, limit, _ in found]
    if version >= 9:
        return [(i, epoch, o, -1, limit) for i, epoch, o, _, limit in _PARTITION_9.iter_unpack(partitions)]
    if version >= 5:
        return [(i, -1, o, -1, limit) for i, o, _, limit in _PARTITION_5.iter_unpack(partitions)]
    return [(i, -1, o, -1, limit) for i, o, limit in _PARTITION_4.iter_unpack(partitions)]


def topic_head(version: int, name: str, topic_id: bytes) -> bytes:
    """The bytes that begin a topic in a response, up to the number of its partitions."""
    if version >= BY_ID:
        return topic_id
    if version >= FLEXIBLE:
        return compact_bytes(name.encode())
    return string_bytes(name)


def fetch_answer(
    version: int,
    session_id: int,
    error: int,
    topics: Sequence[tuple[bytes, Sequence[FetchResult]]],
    throttle_ms: int = 0,
) -> list[Part]:
    """The body of a response, in parts. Each topic comes with its ``topic_head``."""
    flexible = version >= FLEXIBLE
    out = bytearray(throttle_ms.to_bytes(4, "big"))
    if version >= SESSIONS:
        out += error.to_bytes(2, "big", signed=True) + session_id.to_bytes(4, "big", signed=True)
    out += unsigned_varint(len(topics) + 1) if flexible else len(topics).to_bytes(4, "big")
    parts: list[Part] = []
    inlined = 0
    for head, partitions in sliced(topics):
        out += head
        out += unsigned_varint(len(partitions) + 1) if flexible else len(partitions).to_bytes(4, "big")
        for fetched in partitions if len(partitions) < MANY else sliced(partitions):
            records = fetched.records
            size = records.size if records is not None else 0
            out += partition_head(version, fetched, size)
            if records is not None and size:
                inlined += size
                if size > LARGE or inlined > INLINED:
                    parts.append(out)
                    parts.append(records)
                    out = bytearray()
                else:
                    out += whole(records)
            if flexible:
                out.append(0)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    parts.append(out)
    return parts


def whole(records: StoredRecords) -> bytes:
    """The records of a slice, exactly as long as announced: fewer bytes would shift all that follows."""
    data = records.bytes()
    if len(data) != records.size:
        raise OSError(f"a log is shorter than it was: of {records.size} bytes, {len(data)} are there")
    return data


def partition_head(version: int, fetched: FetchResult, size: int) -> bytes:
    """The bytes of a partition in a response, up to the first byte of its records."""
    index, error, high, stable, start, _, aborted = fetched
    if aborted:
        return _head_with_aborted(version, fetched, size)
    if version >= FLEXIBLE:
        head = _HEAD_12.pack(index, error, high, stable, start, 0 if aborted is None else 1, -1)
        return head + unsigned_varint(size + 1)
    none = -1 if aborted is None else 0
    if version >= 11:
        return _HEAD_11.pack(index, error, high, stable, start, none, -1, size)
    if version >= 5:
        return _HEAD_5.pack(index, error, high, stable, start, none, size)
    return _HEAD_4.pack(index, error, high, stable, none, size)


def _head_with_aborted(version: int, fetched: FetchResult, size: int) -> bytes:
    assert fetched.aborted
    head = partition_head(version, fetched._replace(aborted=()), size)
    flexible = version >= FLEXIBLE
    # The empty list comes after the offsets. Cut there and replace it with the transactions.
    cut = 22 if version < 5 else 30
    after = cut + (1 if flexible else 4)
    entries = b"".join(_ABORTED.pack(*entry) + (b"\0" if flexible else b"") for entry in fetched.aborted)
    count = len(fetched.aborted)
    return head[:cut] + (unsigned_varint(count + 1) if flexible else INT.pack(count)) + entries + head[after:]
