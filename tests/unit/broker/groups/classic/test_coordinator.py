"""Classic groups in the coordinator: saved before they are answered, restored by a restart, ended by time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.groups.classic.group import ClassicGroup, ClassicState
from millstream.broker.groups.classic.member import JoinRequest
from millstream.broker.groups.committed_offset import OffsetToCommit
from millstream.broker.groups.coordinator import GroupCoordinator
from millstream.core.clock import ManualClock
from millstream.core.config import BrokerConfig
from tests.support.asking import Run

JOIN = JoinRequest("", None, "client", "/host", 10.0, 60.0, "consumer", (("range", b"meta"),))


class Opened:
    """A coordinator on a catalogue of its own."""

    def __init__(self, clock: ManualClock, path: Path | None = None, **settings: Any) -> None:
        self.catalogue = Catalogue(path)
        self.coordinator = GroupCoordinator(self.catalogue, BrokerConfig(**settings), clock)

    def close(self) -> None:
        self.coordinator.close()
        self.catalogue.close()

    async def stable(self, name: str = "g") -> str:
        """A stable group of one; the id of its member."""
        joined = await self.coordinator.classic_requests.join(name, JOIN)
        assert joined.error == 0
        mine = {joined.member_id: b"all"}
        synced = await self.coordinator.classic_requests.sync(
            name, joined.member_id, None, joined.generation, None, None, mine
        )
        assert (synced.error, synced.assignment) == (0, b"all")
        return joined.member_id


def test_an_assignment_is_written_down_before_it_is_answered(clock: ManualClock, run: Run) -> None:
    opened = Opened(clock)

    async def steps() -> None:
        joined = await opened.coordinator.classic_requests.join("g", JOIN)
        syncing = opened.coordinator.classic_requests.sync("g", joined.member_id, None, 1, None, None, {})
        group = opened.coordinator.directory.find("g")
        assert group is not None
        assert group.state is ClassicState.STABLE
        assert not syncing.done()
        assert opened.catalogue.group_states == {}
        assert (await syncing).error == 0
        assert set(opened.catalogue.group_states) == {"g"}

    run(steps())
    opened.close()


def test_a_restarted_broker_goes_on_with_the_same_members(
    clock: ManualClock, run: Run, tmp_path: Path
) -> None:
    opened = Opened(clock, tmp_path / "catalogue.db")
    member_id = run(opened.stable())
    run(opened.stable("other"))
    opened.close()

    again = Opened(clock, tmp_path / "catalogue.db")
    assert again.coordinator.classic_requests.heartbeat("g", member_id, None, 1) == 0
    assert again.coordinator.classic_requests.heartbeat("g", member_id, None, 2) == 22
    assert {group.name for group in again.coordinator.directory.all()} == {"g", "other"}

    async def time_passes() -> None:
        clock.advance(9)
        assert again.coordinator.classic_requests.heartbeat("g", member_id, None, 1) == 0
        clock.advance(2)
        again.coordinator.tick()

    run(time_passes())
    other = again.coordinator.directory.find("other")
    assert other is not None
    assert other.state is ClassicState.EMPTY  # nobody came back for its session
    again.close()


def test_a_full_disk_fails_commits_but_not_the_group(clock: ManualClock, run: Run, tmp_path: Path) -> None:
    opened = Opened(clock, tmp_path / "catalogue.db")

    async def steps() -> None:
        await opened.catalogue.create_topic("t", 1)
        db = opened.catalogue._database._db
        db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
        big = OffsetToCommit("t", 0, 5, -1, "x" * 100_000, 0)
        assert await opened.coordinator.offsets.commit("simple", [big]) == 15
        assert opened.coordinator.offsets.of("simple") == {}
        large = JOIN._replace(protocols=(("range", b"m" * 100_000),))
        joined = await opened.coordinator.classic_requests.join("g", large)
        synced = await opened.coordinator.classic_requests.sync(
            "g", joined.member_id, None, 1, None, None, {}
        )
        assert synced.error == 0
        assert opened.catalogue.group_states == {}
        assert opened.coordinator.classic_requests.heartbeat("g", joined.member_id, None, 1) == 0
        db.execute("PRAGMA max_page_count = 1000000")
        assert await opened.coordinator.offsets.commit("simple", [big]) == 0

    run(steps())
    opened.close()


def test_a_group_deleted_while_somebody_joins_is_a_new_group(clock: ManualClock, run: Run) -> None:
    opened = Opened(clock)

    async def steps() -> None:
        await opened.catalogue.create_topic("t", 1)
        await opened.coordinator.offsets.commit("g", [OffsetToCommit("t", 0, 5, -1, "", 0)])
        deleting = asyncio.ensure_future(opened.coordinator.directory.delete("g"))
        await asyncio.sleep(0)
        member_id = await opened.stable()
        assert await deleting == 0
        assert opened.coordinator.offsets.of("g") == {}
        assert opened.coordinator.classic_requests.heartbeat("g", member_id, None, 1) == 0
        assert set(opened.catalogue.group_states) == {"g"}

    run(steps())
    opened.close()


def test_only_groups_whose_time_has_come_are_looked_at(
    clock: ManualClock, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Opened(clock)
    looked_at: list[str] = []
    tick = ClassicGroup.tick

    def watched(self: ClassicGroup, now: float) -> None:
        looked_at.append(self.name)
        tick(self, now)

    monkeypatch.setattr(ClassicGroup, "tick", watched)

    async def steps() -> None:
        members = {f"g{n}": await opened.stable(f"g{n}") for n in range(50)}
        for _ in range(100):  # ten seconds of heartbeats, ten ticks a second
            clock.advance(0.1)
            for name, member_id in members.items():
                assert opened.coordinator.classic_requests.heartbeat(name, member_id, None, 1) == 0
            opened.coordinator.tick()
        assert len(looked_at) <= 2 * len(members)

    run(steps())
    opened.close()


def test_settings_changed_while_running_hold_for_groups_that_are_there(clock: ManualClock, run: Run) -> None:
    opened = Opened(clock)

    async def steps() -> None:
        await opened.stable()
        opened.coordinator.set_config(BrokerConfig(group_max_size=1))
        assert (await opened.coordinator.classic_requests.join("g", JOIN)).error == 81

    run(steps())
    opened.close()
