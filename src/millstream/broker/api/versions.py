"""ApiVersions: what this broker serves, taken from what is registered, so that none is forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.broker.codes import UNSUPPORTED_VERSION
from millstream.broker.dispatch import HANDLERS, Client, Reply, serves
from millstream.wire.frame import API_VERSIONS, INT, SHORT, frame, unsigned_varint

if TYPE_CHECKING:
    from millstream.broker.node import Node

_KEPT: dict[int, bytes] = {}


@serves(API_VERSIONS, versions=(0, 4))
def api_versions(node: Node, request: Any, client: Client) -> Reply:
    """The list. No features are announced: those of Kafka's (``transaction.version``, ``group.version``,
    ``share.version``) each change what clients send, and none of them is served yet."""
    answer = _KEPT.get(client.version)
    if answer is None:
        answer = _KEPT[client.version] = api_versions_body(client.version, 0)
    return answer


def unsupported_version(correlation_id: int) -> bytes:
    """The answer to a client that asks in a version we don't know: in version 0, which all can read."""
    return frame(correlation_id, api_versions_body(0, UNSUPPORTED_VERSION), tags=False)


def api_versions_body(version: int, error: int) -> bytes:
    """By hand, because every connection opens with this and the next request may not need kio at all."""
    flexible = version >= 3
    out = bytearray(SHORT.pack(error))
    out += unsigned_varint(len(HANDLERS) + 1) if flexible else INT.pack(len(HANDLERS))
    for _, served in sorted(HANDLERS.items()):
        out += SHORT.pack(served.api_key) + SHORT.pack(served.advertised_from) + SHORT.pack(served.last)
        if flexible:
            out.append(0)
    if version >= 1:
        out += b"\0\0\0\0"  # never throttled
    if flexible:
        out.append(0)
    return bytes(out)
