"""Share groups in the coordinator: saved before they are answered, ended by time, of one kind for good."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.groups.share.group import ShareBeat, ShareHeartbeat
from millstream.core.clock import ManualClock
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import (
    COORDINATOR_NOT_AVAILABLE,
    GROUP_ID_NOT_FOUND,
    INCONSISTENT_GROUP_PROTOCOL,
    NON_EMPTY_GROUP,
    NONE,
)
from tests.support.asking import Run
from tests.support.group_desk import Desk


@pytest.fixture
def desk(clock: ManualClock, run: Run) -> Iterator[Desk]:
    desk = Desk(clock, run)
    yield desk
    desk.close()


def share(desk: Desk, member_id: str, epoch: int) -> Any:
    names = frozenset("t") if epoch == 0 else None
    return desk.do(desk.coordinator.share.heartbeat, "g", ShareHeartbeat(member_id, epoch, names))


def refused(code: int) -> pytest.RaisesExc[RequestRefused]:
    return pytest.RaisesExc(RequestRefused, check=lambda error: error.code == code)


def test_an_epoch_is_written_down_before_it_is_answered(desk: Desk) -> None:
    async def steps() -> None:
        beats = [
            desk.coordinator.share.heartbeat("g", ShareHeartbeat(f"m{number}", 0, frozenset("t")))
            for number in range(20)
        ]
        assert desk.catalogue.group_states == {}
        answers = await asyncio.gather(*beats)  # type: ignore[arg-type]
        assert [answer.epoch for answer in answers] == list(range(2, 22))
        assert '"m19"' in desk.catalogue.group_states["g"]
        again = ShareHeartbeat("m19", 21)
        assert isinstance(desk.coordinator.share.heartbeat("g", again), ShareBeat)  # nothing to write

    desk.run(steps())


def test_a_restarted_broker_goes_on_with_the_same_members(
    tmp_path: Path, clock: ManualClock, run: Run
) -> None:
    path = tmp_path / "catalogue.db"
    desk = Desk(clock, run, path)
    assert share(desk, "x", 0).epoch == 2
    desk.close()
    desk = Desk(clock, run, path)
    assert desk.kind == "share"
    assert share(desk, "x", 2) == ShareBeat("x", 2, None, 1)
    desk.pass_time(45)
    assert desk.coordinator.share.groups["g"].is_empty
    desk.close()


def test_a_share_group_is_of_this_kind_until_it_is_deleted(desk: Desk) -> None:
    share(desk, "x", 0)
    with refused(GROUP_ID_NOT_FOUND):
        desk.beat("y", 0)
    assert desk.join().error == INCONSISTENT_GROUP_PROTOCOL
    assert desk.do(desk.coordinator.directory.delete, "g") == NON_EMPTY_GROUP
    share(desk, "x", -1)
    with refused(GROUP_ID_NOT_FOUND):
        desk.beat("y", 0)
    assert desk.join().error == INCONSISTENT_GROUP_PROTOCOL
    assert desk.do(desk.coordinator.directory.delete, "g") == NONE
    assert desk.beat("y", 0).epoch == 1
    assert desk.kind == "consumer"


@pytest.mark.parametrize("empty", [True, False])
@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_group_of_another_kind_does_not_become_a_share_group(desk: Desk, kind: str, empty: bool) -> None:
    if kind == "classic":
        member_id = desk.classic_group().member_id
        if empty:
            desk.leave(member_id)
    else:
        desk.beat("y", 0)
        if empty:
            desk.beat("y", -1)
    for epoch in (0, 1, -1):
        with refused(GROUP_ID_NOT_FOUND):
            share(desk, "x", epoch)
    assert desk.kind == kind


def test_a_share_group_that_is_not_there(desk: Desk) -> None:
    for epoch in (1, -1):
        with refused(GROUP_ID_NOT_FOUND):
            share(desk, "x", epoch)
    assert desk.kind is None


def test_a_groups_own_settings_hold_from_now_on(desk: Desk) -> None:
    share(desk, "x", 0)
    desk.do(desk.catalogue.set_group_overrides, "g", {"share.session.timeout.ms": "60000"})
    desk.coordinator.alter_group("g")
    share(desk, "x", 2)
    desk.pass_time(59)
    assert not desk.coordinator.share.groups["g"].is_empty
    desk.pass_time(1)
    assert desk.coordinator.share.groups["g"].is_empty


def test_a_broker_that_shuts_down_sends_members_elsewhere(desk: Desk) -> None:
    share(desk, "x", 0)
    desk.coordinator.close()
    with refused(COORDINATOR_NOT_AVAILABLE):
        share(desk, "x", 2)


def test_an_empty_share_group_stays_after_the_retention_of_offsets(desk: Desk) -> None:
    share(desk, "x", 0)
    share(desk, "x", -1)
    desk.pass_time(30 * 24 * 3600)
    desk.pass_time(61)
    assert desk.kind == "share"
