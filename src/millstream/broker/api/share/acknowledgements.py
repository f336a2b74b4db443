"""What members of share groups say of records, and ShareAcknowledge, the request that says nothing else."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from millstream.broker.api.handlers import serves
from millstream.broker.groups.share.sessions import FIRST_EPOCH, LAST_EPOCH, Place
from millstream.broker.groups.share.share_partition import RENEW, Acknowledgement
from millstream.broker.handler_types import Client
from millstream.broker.node import Node
from millstream.broker.topics.partition import LocalTopic
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import (
    GROUP_ID_NOT_FOUND,
    INVALID_REQUEST,
    INVALID_SHARE_SESSION_EPOCH,
    KAFKA_STORAGE_ERROR,
    NONE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from millstream.wire.api_keys import SHARE_ACKNOWLEDGE
from millstream.wire.codec.schema_codec import Answer

_LONGEST_MEMBER_ID = 36
_RENEW_FROM = 2  # from this version on, acknowledgements may renew

Outcome = tuple[int, str | None]  # an error code, and why
Given = tuple[Place, Any]  # a partition, and its acknowledgement batches


def check_member(node: Node, group: str | None, member: str | None) -> None:
    """Raises RequestRefused if the request does not come from a member of a share group. Whether it still is
    one is not checked: what it holds is its own until the locks run out."""
    if group is None:
        raise RequestRefused(INVALID_REQUEST, "the group id is missing")
    if not member or len(member) > _LONGEST_MEMBER_ID:
        raise RequestRefused(INVALID_REQUEST, f"a member id has 1 to {_LONGEST_MEMBER_ID} characters")
    if group not in node.coordinator.share.groups:
        raise RequestRefused(GROUP_ID_NOT_FOUND, f"there is no share group {group}")


def places_of(topics: Iterable[Any]) -> list[Given]:
    """A request's partitions, with the acknowledgements for each."""
    return [
        (
            (topic.topic_id.bytes if topic.topic_id is not None else bytes(16), partition.partition_index),
            partition,
        )
        for topic in topics
        for partition in topic.partitions
    ]


def acknowledge(
    node: Node, group: str, member: str, given: Iterable[Given], *, renews: bool
) -> dict[Place, Outcome]:
    """Apply a request's acknowledgements, each partition by itself. They count once ``saving`` is done."""
    outcomes: dict[Place, Outcome] = {}
    for place, partition in given:
        if place in outcomes:
            outcomes[place] = INVALID_REQUEST, "the partition is named twice"
            continue
        outcomes[place] = NONE, None
        try:
            batches = _read(partition.acknowledgement_batches, renews=renews)
            topic = _topic_of(node, place)
            if batches:
                opened = node.share_delivery.find(group, place)
                if opened is None:
                    raise RequestRefused(
                        UNKNOWN_TOPIC_OR_PARTITION, "the group has not begun to read this partition"
                    )
                node.in_sync.check_catalogue(topic.copies)
                node.share_delivery.acknowledge(opened, member, batches)
        except RequestRefused as refused:
            outcomes[place] = refused.code, str(refused)
    return outcomes


def saving(node: Node, outcomes: Iterable[Place]) -> asyncio.Future[None] | None:
    """Done once what was acknowledged in these partitions is safe, on as many brokers as their topics ask
    for. None if it is already. Raises RequestRefused."""
    copies = max((topic.copies for place in outcomes if (topic := node.hosted.get(place[0]))), default=1)
    saved = node.share_delivery.saved()
    return saved if copies == 1 or saved is None else asyncio.ensure_future(_on_copies(node, saved, copies))


async def _on_copies(node: Node, saved: asyncio.Future[None], copies: int) -> None:
    await asyncio.shield(saved)
    await node.in_sync.have_catalogue(copies)


def _topic_of(node: Node, place: Place) -> LocalTopic:
    """The topic of a partition that exists. Raises RequestRefused."""
    topic = node.hosted.get(place[0])
    if topic is None:
        raise RequestRefused(UNKNOWN_TOPIC_ID, "there is no topic with this id")
    if not 0 <= place[1] < len(topic.partitions):
        raise RequestRefused(UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} has no partition {place[1]}")
    return topic


def _read(batches: Sequence[Any] | None, *, renews: bool) -> list[Acknowledgement]:
    """A partition's acknowledgements. Raises RequestRefused."""
    found: list[Acknowledgement] = []
    before = -1
    for batch in batches or ():
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if not before < first <= last:
            raise RequestRefused(INVALID_REQUEST, f"offsets {first} to {last} are not in order")
        if not types or (len(types) > 1 and len(types) != last - first + 1):
            raise RequestRefused(
                INVALID_REQUEST,
                f"{len(types or ())} types for {last - first + 1} records; send one, or one for each",
            )
        if min(types) < 0 or max(types) > (RENEW if renews else RENEW - 1):
            raise RequestRefused(
                INVALID_REQUEST, "an unknown type of acknowledgement, or one to renew without isRenewAck"
            )
        before = last
        found.append(Acknowledgement(first, last, bytes(types)))
    return found


def not_saved(outcomes: dict[Place, Outcome], failure: BaseException) -> dict[Place, Outcome]:
    """The outcomes if what succeeded could not be saved."""
    failed = KAFKA_STORAGE_ERROR, f"{failure}; the records may be delivered again"
    return {place: failed if code == NONE else (code, why) for place, (code, why) in outcomes.items()}


@serves(SHARE_ACKNOWLEDGE, versions=(1, 2))
async def share_acknowledge(node: Node, request: Any, client: Client) -> Answer:
    group, member, epoch = request.group_id, request.member_id, request.share_session_epoch
    share = node.share_delivery
    try:
        check_member(node, group, member)
        if epoch == FIRST_EPOCH:
            raise RequestRefused(
                INVALID_SHARE_SESSION_EPOCH, "ShareFetch opens sessions, not ShareAcknowledge"
            )
        if epoch == LAST_EPOCH:
            session = share.sessions.find(group, member)
        else:
            session = share.sessions.advance(group, member, epoch)
    except RequestRefused as refused:
        return {"error_code": refused.code, "error_message": str(refused), "responses": []}
    renews = client.version >= _RENEW_FROM and request.is_renew_ack
    outcomes = acknowledge(node, group, member, places_of(request.topics), renews=renews)
    if epoch == LAST_EPOCH:
        share.release(session)
    if (safe := saving(node, outcomes)) is not None:
        try:
            await asyncio.shield(safe)
        except RequestRefused as failure:
            outcomes = not_saved(outcomes, failure)
    by_topic: dict[bytes, list[dict[str, Any]]] = {}
    for (topic_id, index), (code, why) in outcomes.items():
        by_topic.setdefault(topic_id, []).append(
            {
                "partition_index": index,
                "error_code": code,
                "error_message": why,
                "current_leader": {"leader_id": -1, "leader_epoch": -1},
            }
        )
    return {
        "error_code": NONE,
        "error_message": None,
        "acquisition_lock_timeout": share.settings_of(group).share_record_lock_duration_ms,
        "responses": [
            {"topic_id": uuid.UUID(bytes=topic_id), "partitions": partitions}
            for topic_id, partitions in by_topic.items()
        ],
        "node_endpoints": [],
    }
