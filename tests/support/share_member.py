"""A member of a share group that speaks the protocol request by request."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.fake_peer import FakePeer
from tests.support.wire_client import answer, request

SHARE_GROUP_HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE = 76, 78, 79
Range = tuple[int, int, Sequence[int]]  # first and last offset, acknowledgement types


class ShareRequests:
    """The requests of one member and its session. It counts its epochs, unless a request says otherwise."""

    def __init__(self, topic: uuid.UUID, *, group: str = "g", member: str = "m") -> None:
        self.topic = topic
        self.group = group
        self.member = member
        self.epoch = 0
        self.sent = 0

    def join(self, topic: str) -> bytes:
        """A heartbeat that joins the group, with a subscription to a topic of this name."""
        self.sent += 1
        return request(
            SHARE_GROUP_HEARTBEAT,
            1,
            self.sent,
            group_id=self.group,
            member_id=self.member,
            member_epoch=0,
            rack_id=None,
            subscribed_topic_names=[topic],
        )

    def fetch(
        self,
        *partitions: int,
        given: Mapping[int, Sequence[Range]] | None = None,
        version: int = 2,
        epoch: int | None = None,
        wait: int = 0,
        forget: Sequence[int] = (),
        **fields: Any,
    ) -> bytes:
        given = given or {}
        forgotten = [{"topic_id": self.topic, "partitions": list(forget)}] if forget else []
        renews = bool(fields.get("is_renew_ack"))
        return self._request(
            SHARE_FETCH,
            version,
            epoch,
            [*partitions, *(p for p in given if p not in partitions)],
            given,
            **{
                "max_wait": wait,
                "min_bytes": 0 if renews else 1,
                "max_bytes": 0 if renews else 1 << 20,
                "max_records": 0 if renews else 500,
                "batch_size": 500,
                "forgotten_topics_data": forgotten,
                **fields,
            },
        )

    def acknowledge(
        self,
        given: Mapping[int, Sequence[Range]],
        *,
        version: int = 2,
        epoch: int | None = None,
        **fields: Any,
    ) -> bytes:
        return self._request(SHARE_ACKNOWLEDGE, version, epoch, list(given), given, **fields)

    def _request(
        self,
        api_key: int,
        version: int,
        epoch: int | None,
        partitions: Sequence[int],
        given: Mapping[int, Sequence[Range]],
        **fields: Any,
    ) -> bytes:
        self.sent += 1
        named = [
            {
                "partition_index": index,
                "acknowledgement_batches": [
                    {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
                    for first, last, types in given.get(index, ())
                ],
            }
            for index in partitions
        ]
        data = request(
            api_key,
            version,
            self.sent,
            **{
                "group_id": self.group,
                "member_id": self.member,
                "share_session_epoch": self.epoch if epoch is None else epoch,
                "topics": [{"topic_id": self.topic, "partitions": named}] if named else [],
                **fields,
            },
        )
        if epoch is None:
            self.epoch += 1
        return data


class ShareMember(ShareRequests):
    """The same, over a connection within this process."""

    def __init__(self, peer: FakePeer, topic: uuid.UUID, *, group: str = "g", member: str = "m") -> None:
        super().__init__(topic, group=group, member=member)
        self.peer = peer

    async def fetches(self, *partitions: int, version: int = 2, **fields: Any) -> Any:
        self.peer.give(self.fetch(*partitions, version=version, **fields))
        return await self.fetched(version)

    async def fetched(self, version: int = 2) -> Any:
        return answer(SHARE_FETCH, version, (await self.peer.answers(self.sent))[-1])[1]

    async def acknowledges(
        self, given: Mapping[int, Sequence[Range]], *, version: int = 2, **fields: Any
    ) -> Any:
        self.peer.give(self.acknowledge(given, version=version, **fields))
        return answer(SHARE_ACKNOWLEDGE, version, (await self.peer.answers(self.sent))[-1])[1]


def acquired(response: Any, partition: int = 0) -> list[tuple[int, int, int]]:
    """First and last offset and delivery count of what a response gives out of a partition."""
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in response.responses
        for found in topic.partitions
        if found.partition_index == partition
        for each in found.acquired_records
    ]
