"""Subscriptions and assignments, which consumers of the classic protocol exchange through the broker.

The bytes are opaque to a classic group. The broker parses them only where it has to know more: for the
topics that members read, and when a group changes from one protocol to the other::

    subscription   version int16, topics [string], user data bytes,
                   from 1 on: owned [topic string, partitions [int32]], from 2 on: generation int32,
                   from 3 on: rack string
    assignment     version int16, [topic string, partitions [int32]], user data bytes
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_SHORT, _INT = struct.Struct(">h"), struct.Struct(">i")
_HIGHEST = 3  # the highest version written here; newer ones are read as this one, as the format allows

Partitions = Mapping[str, Iterable[int]]  # by topic


class Subscription(NamedTuple):
    topics: frozenset[str]
    owned: dict[str, list[int]]
    rack: str | None = None


class _Reader:
    """Reads values from its position on. Raises ``struct.error`` or ValueError if the bytes don't fit."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    def int16(self) -> int:
        (value,) = _SHORT.unpack_from(self.data, self.at)
        self.at += 2
        return int(value)

    def int32(self) -> int:
        (value,) = _INT.unpack_from(self.data, self.at)
        self.at += 4
        return int(value)

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.data):
            raise ValueError(f"{size} bytes are missing")
        self.at += size
        return self.data[self.at - size : self.at]

    def string(self) -> str:
        return self.take(self.int16()).decode()

    def skip_bytes(self) -> None:
        self.take(max(self.int32(), 0))

    def partitions(self) -> dict[str, list[int]]:
        return {self.string(): [self.int32() for _ in range(self.int32())] for _ in range(self.int32())}


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics in a consumer's subscription, or None if the bytes are not a subscription.

    Reads only the part with which every version of the subscription begins: the version, then the names.
    """
    try:
        reader = _Reader(metadata, 2)
        return frozenset(reader.string() for _ in range(reader.int32()))
    except (struct.error, ValueError):
        return None


def read_subscription(metadata: bytes) -> Subscription | None:
    """The whole subscription, or None if the bytes are not one."""
    try:
        reader = _Reader(metadata)
        version = reader.int16()
        topics = frozenset(reader.string() for _ in range(reader.int32()))
        reader.skip_bytes()
        owned = reader.partitions() if version >= 1 else {}
        if version >= 2:
            reader.int32()
        size = reader.int16() if version >= 3 else -1
        return Subscription(topics, owned, reader.take(size).decode() if size >= 0 else None)
    except (struct.error, ValueError):
        return None


def read_assignment(assignment: bytes) -> dict[str, list[int]] | None:
    """The partitions by topic, or None if the bytes are not an assignment. No bytes are an empty one."""
    if not assignment:
        return {}
    try:
        return _Reader(assignment, 2).partitions()
    except (struct.error, ValueError):
        return None


def write_assignment(partitions: Partitions, subscription: bytes) -> bytes:
    """The bytes of an assignment, in the version of the member's subscription, at most ``_HIGHEST``."""
    version = min(max(int.from_bytes(subscription[:2], "big"), 0), _HIGHEST)
    out = bytearray(_SHORT.pack(version) + _INT.pack(len(partitions)))
    for topic, indexes in partitions.items():
        name, numbers = topic.encode(), list(indexes)
        out += _SHORT.pack(len(name)) + name + _INT.pack(len(numbers))
        for number in numbers:
            out += _INT.pack(number)
    return bytes(out + _INT.pack(-1))
