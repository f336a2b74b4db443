"""A group coordinator on a catalogue, and the requests that members of both protocols make of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.groups.classic.member import JoinRequest, JoinResponse
from millstream.broker.groups.consumer.group import Heartbeat, HeartbeatResponse
from millstream.broker.groups.coordinator import GroupCoordinator
from millstream.core.clock import ManualClock
from millstream.core.config import BrokerConfig
from millstream.wire.consumer_protocol import read_assignment
from tests.support.asking import Run
from tests.support.subscriptions import assignment, subscription


class Desk:
    """A coordinator on a catalogue with a topic of four partitions."""

    def __init__(self, clock: ManualClock, run: Run, path: Path | None = None, **settings: Any) -> None:
        self.catalogue = Catalogue(path)
        self.clock, self.run = clock, run
        self.coordinator = GroupCoordinator(self.catalogue, BrokerConfig(**settings), clock)
        if "t" not in self.catalogue.topics:
            self.do(self.catalogue.create_topic, "t", 4)

    def close(self) -> None:
        self.coordinator.close()
        self.catalogue.close()

    def do(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Call something on the loop, and wait for what it gives."""

        async def step() -> Any:
            result = call(*arguments)
            return await result if isinstance(result, Awaitable) else result

        return self.run(step())

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.do(self.coordinator.tick)

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        if epoch == 0:
            fields = {"rebalance_timeout": 60.0, "names": frozenset("t"), "owned": (), **fields}
        return self.do(self.coordinator.consumer.heartbeat, "g", Heartbeat(member_id, epoch, **fields))

    def join(self, member_id: str = "", *, owned: list[int] | None = None, **fields: Any) -> Any:
        metadata = subscription("t", owned={"t": owned} if owned else {})
        join = JoinRequest(member_id, None, "client", "/host", 10.0, 60.0, "consumer", (("range", metadata),))
        return self.do(self.coordinator.classic_requests.join, "g", join._replace(**fields))

    def sync(
        self, joined: JoinResponse, assignments: dict[str, bytes] | None = None
    ) -> tuple[int, list[int]]:
        who = ("g", joined.member_id, None, joined.generation)
        synced = self.do(self.coordinator.classic_requests.sync, *who, "consumer", "range", assignments or {})
        return synced.error, (read_assignment(synced.assignment) or {}).get("t", [])

    def classic_group(self) -> JoinResponse:
        """A stable classic group of one member, which reads everything."""
        joined = self.join()
        assert self.sync(joined, {joined.member_id: assignment({"t": [0, 1, 2, 3]})}) == (0, [0, 1, 2, 3])
        return joined

    def heartbeat(self, joined: JoinResponse) -> int:
        return int(
            self.do(
                self.coordinator.classic_requests.heartbeat, "g", joined.member_id, None, joined.generation
            )
        )

    def leave(self, member_id: str) -> Any:
        return self.do(self.coordinator.classic_requests.leave, "g", [(member_id, None)])

    @property
    def kind(self) -> str | None:
        group = self.coordinator.directory.find("g")
        return None if group is None else group.kind

    @property
    def members(self) -> set[str]:
        if self.kind == "classic":
            return set(self.coordinator.classic.groups["g"].members)
        return set(self.coordinator.consumer.groups["g"].members)

    def indexes(self, beat: HeartbeatResponse) -> list[int]:
        return sorted(index for _, index in beat.assignment or ())
