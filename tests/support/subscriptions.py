"""The bytes that consumers of the classic protocol exchange: subscriptions and assignments."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def subscription(
    *topics: str, owned: Mapping[str, Sequence[int]] | None = None, rack: str | None = None, version: int = 3
) -> bytes:
    """A subscription as consumers of this version write it."""
    out = struct.pack(">hi", version, len(topics)) + b"".join(map(_string, topics)) + struct.pack(">i", -1)
    if version >= 1:
        out += struct.pack(">i", len(owned or {}))
        for topic, indexes in (owned or {}).items():
            out += _string(topic) + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
    if version >= 2:
        out += struct.pack(">i", -1)
    if version >= 3:
        out += struct.pack(">h", -1) if rack is None else _string(rack)
    return out


def assignment(partitions: Mapping[str, Sequence[int]]) -> bytes:
    """An assignment, as the leader of a group writes it."""
    out = struct.pack(">hi", 1, len(partitions))
    for topic, indexes in partitions.items():
        out += _string(topic) + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes)
    return out + struct.pack(">i", -1)
