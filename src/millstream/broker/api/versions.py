"""ApiVersions: the requests served, taken from what is registered, so that none is forgotten."""

from __future__ import annotations

from typing import Any

from millstream.broker.api.handlers import HANDLERS, serves
from millstream.broker.handler_types import Client, Reply
from millstream.broker.node import Node
from millstream.core.kafka_errors import UNSUPPORTED_VERSION
from millstream.wire.api_keys import API_VERSIONS, PRIVATE
from millstream.wire.frame import INT, SHORT, compact_bytes, frame, unsigned_varint
from millstream.wire.standby import STANDBY_CLIENT

_KEPT: dict[int, bytes] = {}

# Kafka's features: the lowest and highest level served, and the level in force.
FEATURES = {"group.version": (0, 1, 1), "share.version": (0, 1, 1), "transaction.version": (0, 2, 2)}
_LEVEL_0_FROM = 4  # clients that ask in an earlier version can't read that a feature has level 0
_SUPPORTED, _EPOCH, _FINALIZED = 0, 1, 2  # tags


@serves(API_VERSIONS, versions=(0, 4))
def api_versions(node: Node, request: Any, client: Client) -> Reply:
    """The served requests, and from version 3 on the features that change what clients send."""
    if client.client_id == STANDBY_CLIENT:
        return api_versions_body(client.version, 0, private=True)
    answer = _KEPT.get(client.version)
    if answer is None:
        answer = _KEPT[client.version] = api_versions_body(client.version, 0)
    return answer


def unsupported_version(correlation_id: int) -> bytes:
    """The response to a request in an unknown version. It is in version 0, which all clients can read."""
    return frame(correlation_id, api_versions_body(0, UNSUPPORTED_VERSION), tags=False)


def api_versions_body(version: int, error: int, *, private: bool = False) -> bytes:
    """Encoded by hand: every connection begins with this, and the next request may not need kio at all."""
    flexible = version >= 3
    told = [served for key, served in sorted(HANDLERS.items()) if private or key not in PRIVATE]
    out = bytearray(SHORT.pack(error))
    out += unsigned_varint(len(told) + 1) if flexible else INT.pack(len(told))
    for served in told:
        out += SHORT.pack(served.api_key) + SHORT.pack(served.advertised_from) + SHORT.pack(served.last)
        if flexible:
            out.append(0)
    if version >= 1:
        out += b"\0\0\0\0"  # never throttled
    if flexible:
        out += _features(version)
    return bytes(out)


def _features(version: int) -> bytes:
    """The tagged fields at the end of the response."""
    supported = bytearray(unsigned_varint(len(FEATURES) + 1))
    finalized = bytearray(unsigned_varint(len(FEATURES) + 1))
    for name, (lowest, highest, level) in FEATURES.items():
        lowest = lowest if version >= _LEVEL_0_FROM else max(lowest, 1)
        supported += compact_bytes(name.encode()) + SHORT.pack(lowest) + SHORT.pack(highest) + b"\0"
        finalized += compact_bytes(name.encode()) + SHORT.pack(level) + SHORT.pack(level) + b"\0"
    fields = {_SUPPORTED: bytes(supported), _EPOCH: bytes(8), _FINALIZED: bytes(finalized)}
    out = bytearray(unsigned_varint(len(fields)))
    for tag, field in fields.items():
        out += unsigned_varint(tag) + unsigned_varint(len(field)) + field
    return bytes(out)
