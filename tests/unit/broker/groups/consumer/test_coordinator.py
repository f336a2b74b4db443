"""Groups of the consumer protocol in the coordinator: saved before they are answered, and ended by time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.groups.consumer.group import Heartbeat, HeartbeatResponse
from millstream.core.clock import ManualClock
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import (
    NON_EMPTY_GROUP,
    UNKNOWN_MEMBER_ID,
)
from tests.support.asking import Run
from tests.support.group_desk import Desk


@pytest.fixture
def desk(clock: ManualClock, run: Run) -> Any:
    desk = Desk(clock, run)
    yield desk
    desk.close()


def test_an_epoch_is_written_down_before_it_is_answered(desk: Desk) -> None:
    async def steps() -> None:
        beat = Heartbeat("x", 0, rebalance_timeout=60.0, names=frozenset("t"), owned=())
        joining = desk.coordinator.consumer.heartbeat("g", beat)
        assert isinstance(joining, asyncio.Future)
        assert not joining.done()
        assert desk.catalogue.group_states == {}
        # What comes meanwhile shares the next write; the member's own repetition must not overtake its first.
        again = desk.coordinator.consumer.heartbeat("g", beat)
        others = [
            desk.coordinator.consumer.heartbeat("g", beat._replace(member_id=f"y{number}"))
            for number in range(20)
        ]
        assert isinstance(again, asyncio.Future)
        answers = await asyncio.gather(joining, again, *others)  # type: ignore[arg-type]
        assert [answer.epoch for answer in answers[:2]] == [1, 1]
        assert set(desk.catalogue.group_states) == {"g"}
        assert '"y19"' in desk.catalogue.group_states["g"]

    desk.run(steps())


def test_a_heartbeat_that_changes_nothing_is_answered_at_once(desk: Desk) -> None:
    desk.beat("x", 0)

    async def steps() -> None:
        assert isinstance(desk.coordinator.consumer.heartbeat("g", Heartbeat("x", 1)), HeartbeatResponse)

    desk.run(steps())


def test_a_restarted_broker_goes_on_with_the_same_members(
    clock: ManualClock, run: Run, tmp_path: Path
) -> None:
    desk = Desk(clock, run, tmp_path / "catalogue.db")
    desk.beat("x", 0)
    desk.beat("y", 0)
    desk.close()
    again = Desk(clock, run, tmp_path / "catalogue.db")
    told = again.beat("x", 1)
    assert (told.epoch, again.indexes(told)) == (1, [0, 1])
    assert again.beat("x", 1, owned=told.assignment).epoch == 2
    assert again.indexes(again.beat("y", 2)) == [2, 3]
    again.close()


def test_a_full_disk_does_not_stop_the_group(clock: ManualClock, run: Run, tmp_path: Path) -> None:
    desk = Desk(clock, run, tmp_path / "catalogue.db")
    db = desk.catalogue._database._db
    db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
    assert desk.beat("x" * 100_000, 0).epoch == 1
    assert desk.catalogue.group_states == {}
    db.execute("PRAGMA max_page_count = 1000000")
    desk.beat("y", 0)
    assert set(desk.catalogue.group_states) == {"g"}
    desk.close()


def test_sessions_end_with_time(desk: Desk) -> None:
    desk.beat("x", 0)
    desk.pass_time(46)
    with pytest.raises(RequestRefused) as refused:
        desk.beat("x", 1)
    assert refused.value.code == UNKNOWN_MEMBER_ID
    assert desk.run(desk.coordinator.directory.delete("g")) == 0
    assert desk.kind is None


def test_a_group_with_members_is_not_deleted(desk: Desk) -> None:
    desk.beat("x", 0)
    assert desk.run(desk.coordinator.directory.delete("g")) == NON_EMPTY_GROUP
    desk.beat("x", -1)
    assert desk.run(desk.coordinator.directory.delete("g")) == 0


def test_a_groups_own_settings_take_effect_at_once(desk: Desk) -> None:
    desk.beat("x", 0)
    own = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"}
    desk.do(desk.catalogue.set_group_overrides, "g", own)
    desk.coordinator.alter_group("g")
    assert desk.coordinator.consumer.heartbeat_interval_ms("g") == 6000
    desk.beat("x", 1)
    desk.pass_time(46)
    assert desk.beat("x", 1).epoch == 1
