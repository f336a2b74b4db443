"""The response to Metadata, versions 0 to 13, written by hand so that the bytes of each topic can be cached.

    response  from 3: throttle time int32 | brokers | from 2: cluster id string | from 1: controller id int32
              | topics | 8 to 10: cluster operations int32 | from 13: error int16
    broker    id int32 | host string | port int32 | from 1: rack string
    topic     error int16 | name string | from 10: id uuid | from 1: is internal bool | partitions
              | from 8: operations int32
    partition error int16 | index int32 | leader int32 | from 7: leader epoch int32 | replicas | in sync
              | from 5: offline

Clients ask for all topics every few minutes, and some ask for each topic that they use. With a thousand
topics of a few partitions, a response is a megabyte of nearly always the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from millstream.wire.frame import INT, SHORT, compact_bytes, string_bytes, unsigned_varint

FLEXIBLE = 9
LEADER_NOT_AVAILABLE = 5
NO_LEADER = -1
NOT_ASKED = -(2**31)  # the authorized operations, if the client did not ask for them

_PARTITION_0 = Struct(">hiiiiii")
_PARTITION_5 = Struct(">hiiiiiii")
_PARTITION_7 = Struct(">hiiiiiiii")
_PARTITION_9 = Struct(">hiiiBiBiBB")


def _string(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    return compact_bytes(text.encode()) if flexible else string_bytes(text)


def _count(count: int, flexible: bool) -> bytes:
    return unsigned_varint(count + 1) if flexible else INT.pack(count)


def metadata_topic(
    version: int,
    error: int,
    name: str | None,
    topic_id: bytes,
    leader: int,
    leader_epochs: Sequence[int | None],
    operations: int = NOT_ASKED,
) -> bytes:
    """The bytes of one topic. ``leader_epochs`` has an entry for each partition: its leader epoch, or None if
    it has no leader because its only replica is offline. From version 12 on, the name can be null."""
    flexible = version >= FLEXIBLE
    out = bytearray(SHORT.pack(error))
    out += _string(name if version >= 12 else name or "", flexible)
    if version >= 10:
        out += topic_id
    if version >= 1:
        out.append(0)
    out += _count(len(leader_epochs), flexible)
    for index, epoch in enumerate(leader_epochs):
        if epoch is None:
            out += _leaderless(version, index, leader)
        elif flexible:
            out += _PARTITION_9.pack(0, index, leader, epoch, 2, leader, 2, leader, 1, 0)
        elif version >= 7:
            out += _PARTITION_7.pack(0, index, leader, epoch, 1, leader, 1, leader, 0)
        elif version >= 5:
            out += _PARTITION_5.pack(0, index, leader, 1, leader, 1, leader, 0)
        else:
            out += _PARTITION_0.pack(0, index, leader, 1, leader, 1, leader)
    if version >= 8:
        out += INT.pack(operations)
    if flexible:
        out.append(0)
    return bytes(out)


def _leaderless(version: int, index: int, replica: int) -> bytes:
    flexible = version >= FLEXIBLE
    one, none = _count(1, flexible) + INT.pack(replica), _count(0, flexible)
    out = SHORT.pack(LEADER_NOT_AVAILABLE) + INT.pack(index) + INT.pack(NO_LEADER)
    if version >= 7:
        out += INT.pack(-1)
    out += one + none
    if version >= 5:
        out += one
    return out + b"\0" if flexible else out


def metadata_answer(
    version: int,
    brokers: Sequence[tuple[int, str, int]],
    controller_id: int,
    cluster_id: str,
    topics: Sequence[bytes],
    operations: int = NOT_ASKED,
) -> bytes:
    """The body of a response, with topics made by ``metadata_topic``. ``brokers``: id, host and port."""
    flexible = version >= FLEXIBLE
    out = bytearray()
    if version >= 3:
        out += b"\0\0\0\0"
    out += _count(len(brokers), flexible)
    for node_id, host, port in brokers:
        out += INT.pack(node_id) + _string(host, flexible) + INT.pack(port)
        if version >= 1:
            out += _string(None, flexible)
        if flexible:
            out.append(0)
    if version >= 2:
        out += _string(cluster_id, flexible)
    if version >= 1:
        out += INT.pack(controller_id)
    out += _count(len(topics), flexible)
    tail = b""
    if 8 <= version <= 10:
        tail += INT.pack(operations)
    if version >= 13:
        tail += b"\0\0"
    if flexible:
        tail += b"\0"
    return b"".join((out, *topics, tail))
