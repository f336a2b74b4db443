"""A member of a share group that speaks the protocol request by request, over a server's own connection."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.fake_peer import FakePeer
from tests.support.wire_client import answer, request

SHARE_FETCH, SHARE_ACKNOWLEDGE = 78, 79
Range = tuple[int, int, Sequence[int]]  # first and last offset, acknowledgement types


class ShareMember:
    """One member and its session. It counts its epochs itself, unless a request says otherwise."""

    def __init__(self, peer: FakePeer, topic: uuid.UUID, *, group: str = "g", member: str = "m") -> None:
        self.peer = peer
        self.topic = topic
        self.group = group
        self.member = member
        self.epoch = 0
        self._sent = 0

    async def fetch(self, *partitions: int, **fields: Any) -> Any:
        """The response to a ShareFetch, or with ``given`` to one that also acknowledges."""
        self.send_fetch(*partitions, **fields)
        return await self.fetched(fields.get("version", 2))

    def send_fetch(
        self,
        *partitions: int,
        given: Mapping[int, Sequence[Range]] | None = None,
        version: int = 2,
        epoch: int | None = None,
        wait: int = 0,
        forget: Sequence[int] = (),
        **fields: Any,
    ) -> None:
        given = given or {}
        forgotten = [{"topic_id": self.topic, "partitions": list(forget)}] if forget else []
        self._send(
            SHARE_FETCH,
            version,
            epoch,
            [*partitions, *(p for p in given if p not in partitions)],
            given,
            **{
                "max_wait": wait,
                "min_bytes": 0 if fields.get("is_renew_ack") else 1,
                "max_bytes": 0 if fields.get("is_renew_ack") else 1 << 20,
                "max_records": 0 if fields.get("is_renew_ack") else 500,
                "batch_size": 500,
                "forgotten_topics_data": forgotten,
                **fields,
            },
        )

    async def fetched(self, version: int = 2) -> Any:
        return answer(SHARE_FETCH, version, (await self.peer.answers(self._sent))[-1])[1]

    async def acknowledge(
        self,
        given: Mapping[int, Sequence[Range]],
        *,
        version: int = 2,
        epoch: int | None = None,
        **fields: Any,
    ) -> Any:
        self._send(SHARE_ACKNOWLEDGE, version, epoch, list(given), given, **fields)
        return answer(SHARE_ACKNOWLEDGE, version, (await self.peer.answers(self._sent))[-1])[1]

    def _send(
        self,
        api_key: int,
        version: int,
        epoch: int | None,
        partitions: Sequence[int],
        given: Mapping[int, Sequence[Range]],
        **fields: Any,
    ) -> None:
        self._sent += 1
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
        self.peer.give(
            request(
                api_key,
                version,
                self._sent,
                **{
                    "group_id": self.group,
                    "member_id": self.member,
                    "share_session_epoch": self.epoch if epoch is None else epoch,
                    "topics": [{"topic_id": self.topic, "partitions": named}] if named else [],
                    **fields,
                },
            )
        )
        if epoch is None:
            self.epoch += 1


def acquired(response: Any, partition: int = 0) -> list[tuple[int, int, int]]:
    """First and last offset and delivery count of what a response gives out of a partition."""
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in response.responses
        for found in topic.partitions
        if found.partition_index == partition
        for each in found.acquired_records
    ]
