"""Requests of standbys and operators: Follow, CopyCatalogue, LatestReport, Promote, Fence and others."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from millstream.broker.api.handlers import serves
from millstream.broker.handler_types import Client, Reply
from millstream.broker.node import Node
from millstream.broker.standby.promotion import described
from millstream.core.errors import BrokerUnavailable, CatalogueFailed, RequestRefused
from millstream.wire.api_keys import (
    AFTER_MISSING,
    COPY_CATALOGUE,
    FENCE,
    FOLLOW,
    LATEST_REPORT,
    PROMOTE,
    STANDBY_STATUS,
    name_of,
)
from millstream.wire.standby import read_message, write_message

Fields = Mapping[str, Any]
_log = logging.getLogger(__name__)


class _Asked(dict[str, Any]):
    """The fields of a message. A missing field is the sender's error; any other LookupError is a bug here."""

    def __init__(self, message: str, fields: Fields) -> None:
        super().__init__(fields)
        self._message = message

    def __missing__(self, name: str) -> Any:
        raise RequestRefused(0, f"{self._message} lacks the field {name!r}")


def _answers(api_key: int) -> Callable[[Callable[[Node, Fields], Awaitable[tuple[Fields, bytes]]]], None]:
    """Register a handler of messages. A refusal is returned as a reason, and whether to retry."""

    def register(handler: Callable[[Node, Fields], Awaitable[tuple[Fields, bytes]]]) -> None:
        async def answer(node: Node, request: Any, client: Client) -> Reply:
            fields, _ = read_message(request)
            asked = _Asked(name_of(api_key), fields)
            try:
                return write_message(*await handler(node, asked))
            except (BrokerUnavailable, CatalogueFailed) as away:
                return write_message({"error": str(away), "retry": True})
            except RequestRefused as refused:
                return write_message({"error": str(refused)})
            except (LookupError, TypeError, ValueError) as problem:
                _log.warning("%s failed", name_of(api_key), exc_info=True)
                return write_message({"error": f"{name_of(api_key)} failed: {problem!r}", "retry": True})

        serves(api_key, versions=(0, 0))(answer)

    return register


@_answers(FOLLOW)
async def follow(node: Node, asked: Fields) -> tuple[Fields, bytes]:
    """The next replication point, once there is one."""
    return await node.followers.follow(asked), b""


@_answers(COPY_CATALOGUE)
async def copy_catalogue(node: Node, asked: Fields) -> tuple[Fields, bytes]:
    return {}, node.followers.read_catalogue(asked["session"], asked["position"])


@_answers(AFTER_MISSING)
async def after_missing(node: Node, asked: Fields) -> tuple[Fields, bytes]:
    """Where a log continues after records that can't be copied because they are damaged or ``deleted``."""
    topic = node.hosted.get(bytes.fromhex(asked["topic_id"]))
    if topic is None or asked["partition"] >= len(topic.partitions):
        raise RequestRefused(0, "there is no such partition")
    offset, log = asked["offset"], topic.partitions[asked["partition"]].log
    if offset < log.log_start_offset:
        return {"offset": log.log_start_offset, "deleted": True}, b""
    after = max((d.next_offset for d in log.damage if d.first_offset <= offset), default=offset)
    return {"offset": after, "deleted": False}, b""


@_answers(STANDBY_STATUS)
async def standby_status(node: Node, asked: Fields) -> tuple[Fields, bytes]:
    """This broker's role and state, and its followers' state."""
    now = node.clock.monotonic()
    status: dict[str, Any] = {
        "role": "standby" if node.standby is not None else "fenced" if node.role.fenced_by else "leader",
        "cluster_id": node.catalogue.cluster_id,
        "lineage": node.catalogue.lineage,
        "fenced_by": node.role.fenced_by,
        "followers": [follower.status(now) for follower in node.followers],
    }
    if node.standby is not None:
        status["standby"] = node.standby.status()
    return status, b""


@_answers(LATEST_REPORT)
async def latest_report(node: Node, asked: Fields) -> tuple[Fields, bytes]:
    """What this broker has beyond the last replication point."""
    return await node.followers.latest_report(asked["session"], asked["wait_ms"] / 1000), b""


@_answers(PROMOTE)
async def promote(node: Node, asked: Fields) -> tuple[Fields, bytes]:
    """Promote a standby to leader. It then closes its connections and is back at once, as the leader."""
    if node.standby is None:
        raise RequestRefused(0, "this broker is not a standby; it already leads")
    verdict = await node.standby.promote(
        f"{node.role.own_host}:{node.role.own_port}", force=bool(asked.get("force"))
    )
    return described(verdict), b""


@_answers(FENCE)
async def fence(node: Node, asked: Fields) -> tuple[Fields, bytes]:
    """Stop taking writes, because another broker replaces this one, and tell clients where it is.

    An empty address reverses it.
    """
    by = str(asked["by"])
    if node.standby is not None:
        raise RequestRefused(0, "this broker is a standby; it has no role to hand over")
    await node.fence(by, asked.get("node_id", -1))
    return {"fenced": by}, b""
