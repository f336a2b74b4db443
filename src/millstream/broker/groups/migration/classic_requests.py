"""The requests of the classic protocol: for classic groups, and for classic members of consumer groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from millstream.broker.groups.classic.coordinator import ClassicCoordinator
from millstream.broker.groups.classic.member import JoinRequest, JoinResponse, SyncResponse
from millstream.broker.groups.consumer.coordinator import ConsumerCoordinator


class ClassicRequests:
    def __init__(self, classic: ClassicCoordinator, consumer: ConsumerCoordinator) -> None:
        self._classic = classic
        self._consumer = consumer

    def join(
        self, name: str, join: JoinRequest, is_gone: Callable[[], bool] = bool
    ) -> asyncio.Future[JoinResponse]:
        """A future of the response to a join. While it waits, ``is_gone`` is called now and then."""
        if error := self._classic.check_join(name, join):
            refused: asyncio.Future[JoinResponse] = asyncio.get_running_loop().create_future()
            refused.set_result(JoinResponse(error, join.member_id))
            return refused
        group = self._consumer.groups.get(name)
        if group is not None and not group.is_empty:
            return self._consumer.classic_join(name, join)
        if group is not None and not join.member_id:
            self._classic.create(name, group.epoch)  # an empty group takes on its next member's protocol
        return self._classic.join(name, join, is_gone)

    def sync(
        self,
        name: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
    ) -> asyncio.Future[SyncResponse]:
        member = (name, member_id, instance_id, generation, protocol_type, protocol)
        if name in self._consumer.groups:
            return self._consumer.classic_sync(*member)
        return self._classic.sync(*member, assignments)

    def heartbeat(self, name: str, member_id: str, instance_id: str | None, generation: int) -> int:
        """Hot: every member sends one every few seconds."""
        if name in self._consumer.groups:
            return self._consumer.classic_heartbeat(name, member_id, instance_id, generation)
        return self._classic.heartbeat(name, member_id, instance_id, generation)

    def leave(self, name: str, leaving: Sequence[tuple[str, str | None]]) -> list[int]:
        """Remove members (id, instance id). Returns an error code for each."""
        if name in self._consumer.groups:
            return self._consumer.classic_leave(name, leaving)
        return self._classic.leave(name, leaving)
