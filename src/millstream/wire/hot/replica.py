"""Fetch, version 13, from the standby's side: write the request for records and read the response.

A standby asks by topic id, so that a topic that was deleted and created again with the same name counts as
another one. It gets the batches as they are in the leader's files. The server's side is ``wire.hot.fetch``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import NamedTuple

from millstream.core.errors import ProtocolError
from millstream.wire.frame import Buffer, StructError, read_unsigned_varint, skip_tags, unsigned_varint

VERSION = 13
REPLICA = 1  # any number but a consumer's -1

_HEAD = Struct(">iiiibii")  # replica, wait, min and max bytes, isolation, session id and epoch
_WANTED = Struct(">iiqiqib")  # partition, leader epoch, offset, last epoch, log start, most bytes, no tags
_ANSWERED = Struct(">ihi")  # throttle time, error, session
_FETCHED = Struct(">ihqqq")  # partition, error, high watermark, last stable offset, log start offset


class Copied(NamedTuple):
    """One partition of a response; ``records`` is a view of the response's buffer."""

    topic_id: bytes
    partition: int
    error: int
    records: memoryview


def fetch_request(wanted: Mapping[bytes, Sequence[tuple[int, int]]], *, most: int) -> bytes:
    """The body of a request. ``wanted`` has partition numbers and offsets by topic id. ``most`` is the limit
    in bytes, in all and for each partition: the leader fills the first, and gives the others what is left."""
    out = bytearray(_HEAD.pack(REPLICA, 0, 0, most, 0, 0, -1))
    out += unsigned_varint(len(wanted) + 1)
    for topic_id, partitions in wanted.items():
        out += topic_id + unsigned_varint(len(partitions) + 1)
        for partition, offset in partitions:
            out += _WANTED.pack(partition, -1, offset, -1, -1, most, 0)
        out.append(0)
    out += b"\1\1\0"  # nothing to forget, no rack, no tags
    return bytes(out)


def read_copied(body: memoryview) -> Iterable[Copied]:
    """Parse a response. Raises ProtocolError if it is invalid."""
    try:
        yield from _read(body)
    except (StructError, IndexError):
        raise ProtocolError("sent an answer to Fetch that is cut off") from None


def _read(body: memoryview) -> Iterable[Copied]:
    _, error, _ = _ANSWERED.unpack_from(body)
    if error:
        raise ProtocolError(f"refused a Fetch with error {error}")
    topics, at = _count(body, _ANSWERED.size)
    for _ in range(topics):
        topic_id = bytes(body[at : at + 16])
        partitions, at = _count(body, at + 16)
        for _ in range(partitions):
            index, error, *_ = _FETCHED.unpack_from(body, at)
            aborted, at = _count(body, at + _FETCHED.size)
            at += 17 * aborted + 4  # with a byte of tags each; and the preferred replica
            size, at = _count(body, at)
            yield Copied(topic_id, index, error, body[at : at + size])
            at = skip_tags(body, at + size)
        at = skip_tags(body, at)


def _count(body: Buffer, at: int) -> tuple[int, int]:
    count, at = read_unsigned_varint(body, at)
    return max(count - 1, 0), at
