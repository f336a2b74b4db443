"""Groups by name: what holds for every kind, shown with a kind that the broker does not have."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

import pytest

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.groups.classic.member import JoinRequest
from millstream.broker.groups.committed_offset import OffsetToCommit
from millstream.broker.groups.consumer.group import Heartbeat
from millstream.broker.groups.coordinator import GroupCoordinator
from millstream.broker.groups.directory import GroupDirectory
from millstream.core.clock import ManualClock
from millstream.core.config import BrokerConfig
from millstream.core.errors import CatalogueFailed, RequestRefused
from millstream.core.kafka_errors import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_ID_NOT_FOUND,
    INCONSISTENT_GROUP_PROTOCOL,
    NON_EMPTY_GROUP,
    NONE,
    UNKNOWN_MEMBER_ID,
)
from tests.support.asking import Run


class QueueState(enum.Enum):
    EMPTY = "Empty"
    BUSY = "Busy"


class Queue:
    """A group that has a number of members until its deadline."""

    kind, protocol_type = "queue", "queue"

    def __init__(self, name: str, members: int) -> None:
        self.name, self.members = name, members
        self.empty_since_ms = -1
        self.wake_at = inf

    @property
    def state(self) -> QueueState:
        return QueueState.EMPTY if self.is_empty else QueueState.BUSY

    def tick(self, now: float) -> None:
        self.members, self.wake_at = 0, inf

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def may_be_forgotten(self) -> bool:
        return self.is_empty

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset({"t"} if self.members else ())

    def topics_in_use(self) -> frozenset[str]:
        return self.subscribed_topics()

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        now: float,
        *,
        transactional: bool,
        by_epoch: bool,
    ) -> int:
        return GROUP_ID_NOT_FOUND

    def check_partition(self, member_id: str, epoch: int, partition: tuple[bytes, int]) -> int:
        return NONE

    def check_fetch(self, member_id: str | None, epoch: int) -> int:
        return NONE

    def check_offset_delete(self) -> int:
        return GROUP_ID_NOT_FOUND


class QueueCoordinator:
    kind = Queue.kind

    def __init__(self, directory: GroupDirectory) -> None:
        self.groups: dict[str, Queue] = {}
        self.calls: list[tuple[str, str]] = []
        self._directory = directory
        directory.register(self)

    def start(self, name: str, members: int, until: float = inf) -> Queue:
        group = Queue(name, members)
        group.wake_at = until
        self._directory.add(group)
        self._directory.schedule(group)
        self.groups[name] = group
        return group

    def restore(self, name: str, fields: Mapping[str, Any]) -> None:
        self.start(name, fields["members"])

    def configure(self, name: str) -> None:
        self.calls.append(("configure", name))

    def follow_up(self, name: str) -> None:
        self.calls.append(("follow_up", name))

    def drop(self, name: str) -> None:
        del self.groups[name]

    def close(self) -> None:
        self.calls.append(("close", ""))


class World:
    """A coordinator of groups with a third kind, a topic, and a group of that kind with two members."""

    def __init__(self, clock: ManualClock, run: Run) -> None:
        self.catalogue = Catalogue(None)
        self.groups = GroupCoordinator(self.catalogue, BrokerConfig(), clock)
        self.queues = QueueCoordinator(self.groups.directory)
        self.queue = self.queues.start("q", 2, until=clock.monotonic() + 10)
        self.clock, self.run = clock, run

        async def create() -> None:
            await self.catalogue.create_topic("t", 1)

        run(create())

    def delete(self, name: str) -> Any:
        return self.run(self.groups.directory.delete(name))


@pytest.fixture
def world(clock: ManualClock, run: Run) -> Iterator[World]:
    world = World(clock, run)
    yield world
    world.groups.close()
    world.catalogue.close()


def test_groups_are_listed_by_state_and_kind(world: World, run: Run) -> None:
    run(world.groups.offsets.commit("simple", [OffsetToCommit("t", 0, 5, -1, "", 0)]))

    def listed(*filters: list[str]) -> list[str]:
        return [group.name for group in world.groups.directory.listed(*filters)]

    assert listed() == ["q", "simple"]
    assert listed(["busy"]) == ["q"]
    assert listed(["EMPTY"]) == ["simple"]
    assert listed([], ["Queue"]) == ["q"]
    assert listed([], ["classic"]) == ["simple"]
    assert listed(["Busy"], ["classic"]) == []


def test_a_group_of_another_kind_takes_no_members_of_these_protocols(world: World) -> None:
    join = JoinRequest("", None, "c", "/h", 10.0, 60.0, "consumer", (("range", b""),))
    requests = world.groups.classic_requests

    async def steps() -> None:
        assert (await requests.join("q", join)).error == INCONSISTENT_GROUP_PROTOCOL
        assert (await requests.join("q", join._replace(member_id="x"))).error == UNKNOWN_MEMBER_ID
        assert (await requests.sync("q", "x", None, 1, None, None, {})).error == UNKNOWN_MEMBER_ID

    world.run(steps())
    assert requests.heartbeat("q", "x", None, 1) == UNKNOWN_MEMBER_ID
    assert requests.leave("q", [("x", None)]) == [UNKNOWN_MEMBER_ID]
    for epoch in (0, 1):
        with pytest.raises(RequestRefused, match="Group q is not a consumer group"):
            world.groups.consumer.heartbeat("q", Heartbeat("x", epoch, rebalance_timeout=1.0, owned=()))
    assert world.groups.directory.get("q") is world.queue


def test_the_group_says_whether_offsets_may_be_committed_and_deleted(world: World) -> None:
    assert world.groups.offsets.check_commit("q", "", None, -1) == GROUP_ID_NOT_FOUND
    assert world.run(world.groups.offsets.delete("q", [("t", 0)])) == (GROUP_ID_NOT_FOUND, {})


def test_time_passes_for_every_kind(world: World) -> None:
    assert world.groups.is_reading("q", "t")
    world.clock.advance(9)
    world.groups.tick()
    assert world.queues.calls == []
    world.clock.advance(2)
    world.groups.tick()
    assert world.queues.calls == [("follow_up", "q")]
    assert world.queue.is_empty
    assert not world.groups.is_reading("q", "t")


def test_settings_reach_every_kind(world: World) -> None:
    world.groups.set_config(BrokerConfig(group_max_size=3))
    world.groups.alter_group("q")
    world.groups.alter_group("unknown")
    assert world.queues.calls == [("configure", "q")] * 2


def test_only_an_empty_group_is_deleted(world: World) -> None:
    assert world.delete("q") == NON_EMPTY_GROUP
    world.queue.members = 0
    assert world.delete("q") == NONE
    assert world.queues.groups == {}
    assert world.delete("q") == GROUP_ID_NOT_FOUND


def test_an_empty_group_without_offsets_is_forgotten(world: World) -> None:
    world.clock.advance(70)
    world.run(_tick(world))
    assert world.groups.directory.find("q") is None
    assert world.queues.groups == {}


async def _tick(world: World) -> None:
    world.groups.tick()


def test_a_closing_coordinator_closes_every_kind(world: World) -> None:
    world.groups.close()
    assert world.queues.calls == [("close", "")]
    with pytest.raises(RequestRefused) as refused:
        world.groups.consumer.heartbeat("g", Heartbeat("x", 0))
    assert refused.value.code == COORDINATOR_NOT_AVAILABLE


def test_a_saved_group_is_restored_by_the_coordinator_of_its_kind(clock: ManualClock, run: Run) -> None:
    catalogue = Catalogue(None)
    queue = Queue("q", 3)

    async def save() -> None:
        directory = GroupDirectory(catalogue, clock)
        await directory.save(queue, lambda group: json.dumps({"kind": group.kind, "members": group.members}))

    run(save())
    directory = GroupDirectory(catalogue, clock)
    queues = QueueCoordinator(directory)
    directory.open(lambda name: queues.start(name, 0))
    assert directory.get("q") is queues.groups["q"]
    assert queues.groups["q"].members == 3
    catalogue.close()


def test_a_group_that_can_not_be_deleted_is_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps() -> None:
        world.queue.members = 0
        await world.groups.directory.save(world.queue, lambda _: '{"kind": "queue", "members": 0}')

        async def fails(name: str) -> None:
            raise CatalogueFailed("disk full")

        monkeypatch.setattr(world.catalogue, "delete_group", fails)
        assert await world.groups.directory.delete("q") == COORDINATOR_NOT_AVAILABLE

    world.run(steps())
    assert set(world.queues.groups) == {"q"}
