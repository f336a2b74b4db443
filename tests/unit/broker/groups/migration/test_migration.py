"""Groups that change over from one protocol to the other, and members of both protocols in one group."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.groups.classic.group import ClassicState
from millstream.broker.groups.classic.member import JoinRequest, JoinResponse
from millstream.broker.groups.consumer.group import Heartbeat
from millstream.core.clock import ManualClock
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import (
    GROUP_ID_NOT_FOUND,
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
from tests.support.asking import Run
from tests.support.group_desk import Desk
from tests.support.subscriptions import assignment, subscription


@pytest.fixture
def desk(clock: ManualClock, run: Run) -> Any:
    desk = Desk(clock, run)
    yield desk
    desk.close()


def test_a_classic_group_is_upgraded_while_its_members_read_on(desk: Desk) -> None:
    old = desk.classic_group()
    new = desk.beat("x", 0)
    assert desk.kind == "consumer"
    assert (new.epoch, desk.indexes(new)) == (old.generation + 1, [])
    assert desk.coordinator.offsets.check_commit("g", old.member_id, None, old.generation) == 0  # it works on

    assert desk.heartbeat(old) == REBALANCE_IN_PROGRESS
    joined = desk.join(old.member_id, owned=[0, 1, 2, 3])
    assert joined.leader != old.member_id  # nothing for it to assign
    assert joined.generation == old.generation  # told to give up first
    assert desk.sync(joined) == (0, [0, 1])
    assert desk.indexes(desk.beat("x", new.epoch)) == []  # it has not said that it did
    joined = desk.join(old.member_id, owned=[0, 1])
    assert joined.generation == new.epoch
    assert desk.sync(joined) == (0, [0, 1])
    assert desk.heartbeat(joined) == 0
    assert desk.indexes(desk.beat("x", new.epoch)) == [2, 3]


def test_an_eager_member_of_an_upgraded_group_gives_everything_up_by_joining(desk: Desk) -> None:
    old = desk.classic_group()
    new = desk.beat("x", 0)
    joined = desk.join(old.member_id)
    assert joined.generation == new.epoch
    assert desk.sync(joined) == (0, [0, 1])
    assert desk.indexes(desk.beat("x", new.epoch)) == [2, 3]


def test_who_waits_in_a_classic_group_that_is_upgraded_is_sent_back_to_join(desk: Desk) -> None:
    old = desk.classic_group()

    async def steps() -> tuple[JoinResponse, JoinResponse]:
        metadata = subscription("t")
        join = JoinRequest("", None, "c", "/h", 10.0, 60.0, "consumer", (("range", metadata),))
        waiting = desk.coordinator.classic_requests.join("g", join)
        assert not waiting.done()
        beat = Heartbeat("x", 0, rebalance_timeout=60.0, names=frozenset("t"), owned=())
        answer = desk.coordinator.consumer.heartbeat("g", beat)
        assert isinstance(answer, asyncio.Future)
        await answer
        sent_back = await waiting
        again = await desk.coordinator.classic_requests.join(
            "g", join._replace(member_id=sent_back.member_id)
        )
        return sent_back, again

    sent_back, again = desk.run(steps())
    assert sent_back.error == REBALANCE_IN_PROGRESS
    assert again.error == 0
    assert desk.members == {"x", old.member_id, sent_back.member_id}


def test_a_classic_consumer_joins_a_group_of_the_consumer_protocol(desk: Desk) -> None:
    new = desk.beat("x", 0)
    asked = desk.join(id_required=True)
    assert asked.error == MEMBER_ID_REQUIRED
    joined = desk.join(asked.member_id, id_required=True)
    assert (joined.error, joined.generation, joined.protocol) == (0, new.epoch + 1, "range")
    told = desk.beat("x", new.epoch)
    desk.beat("x", new.epoch, owned=told.assignment)
    assert desk.sync(joined) == (0, [])
    assert desk.heartbeat(joined) == REBALANCE_IN_PROGRESS  # what it waited for is free
    joined = desk.join(joined.member_id)
    assert desk.sync(joined) == (0, [2, 3])


def test_what_is_no_consumer_can_not_join_a_group_of_the_consumer_protocol(desk: Desk) -> None:
    desk.beat("x", 0)
    assert desk.join(protocol_type="connect").error == INCONSISTENT_GROUP_PROTOCOL
    assert desk.join(protocols=(("range", b"garbage"),)).error == INCONSISTENT_GROUP_PROTOCOL
    assert desk.join(protocols=()).error == INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_member_that_does_not_join_again_is_out(desk: Desk) -> None:
    old = desk.classic_group()
    new = desk.beat("x", 0)

    for _ in range(12):
        desk.heartbeat(old)
        desk.beat("x", new.epoch)
        desk.pass_time(5)
    assert desk.heartbeat(old) == UNKNOWN_MEMBER_ID
    assert desk.indexes(desk.beat("x", new.epoch)) == [0, 1, 2, 3]


def test_when_the_last_new_member_leaves_the_group_is_classic_again(desk: Desk) -> None:
    old = desk.classic_group()
    new = desk.beat("x", 0)
    joined = desk.join(old.member_id)
    desk.sync(joined)
    assert desk.beat("x", -1).epoch == -1
    assert desk.kind == "classic"
    assert desk.coordinator.classic.groups["g"].state is ClassicState.PREPARING
    assert desk.heartbeat(joined._replace(generation=new.epoch + 1)) == REBALANCE_IN_PROGRESS
    back = desk.join(old.member_id)
    assert (back.error, back.leader) == (0, old.member_id)
    assert back.generation > new.epoch
    assert desk.sync(back, {old.member_id: assignment({"t": [0, 1, 2, 3]})}) == (0, [0, 1, 2, 3])


def test_a_new_member_whose_session_ends_leaves_a_classic_group_behind(desk: Desk) -> None:
    old = desk.classic_group()
    desk.beat("x", 0)
    joined = desk.join(old.member_id)

    for _ in range(9):
        desk.heartbeat(joined)
        desk.pass_time(5)
    assert desk.kind == "classic"
    assert desk.members == {old.member_id}


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_a_group_is_not_upgraded_where_that_is_not_allowed(clock: ManualClock, run: Run, policy: str) -> None:
    desk = Desk(clock, run, group_consumer_migration_policy=policy)
    old = desk.classic_group()
    with pytest.raises(RequestRefused, match="not a consumer group") as refused:
        desk.beat("x", 0)
    assert refused.value.code == GROUP_ID_NOT_FOUND
    assert desk.heartbeat(old) == 0
    desk.close()


@pytest.mark.parametrize("policy", ["upgrade", "disabled"])
def test_a_group_is_not_downgraded_where_that_is_not_allowed(
    clock: ManualClock, run: Run, policy: str
) -> None:
    desk = Desk(clock, run, group_consumer_migration_policy=policy)
    desk.beat("x", 0)
    joined = desk.join()
    desk.beat("x", -1)
    assert desk.kind == "consumer"
    assert desk.heartbeat(joined) == REBALANCE_IN_PROGRESS
    assert desk.sync(desk.join(joined.member_id)) == (0, [0, 1, 2, 3])
    desk.close()


def test_a_group_whose_members_are_no_consumers_is_not_upgraded(desk: Desk) -> None:
    joined = desk.join(protocol_type="connect", protocols=(("sessioned", b"x"),))
    with pytest.raises(RequestRefused) as refused:
        desk.beat("x", 0)
    assert refused.value.code == GROUP_ID_NOT_FOUND
    assert desk.kind == "classic"
    assert desk.members == {joined.member_id}


def test_an_empty_group_becomes_what_its_next_member_speaks(desk: Desk) -> None:
    old = desk.classic_group()
    desk.leave(old.member_id)
    new = desk.beat("x", 0)
    assert new.epoch > old.generation
    assert desk.kind == "consumer"
    desk.beat("x", -1)
    again = desk.join()
    assert desk.kind == "classic"
    assert again.generation > new.epoch


def test_classic_members_leave_a_group_of_the_consumer_protocol(desk: Desk) -> None:
    desk.beat("x", 0)
    joined = desk.join()
    assert desk.leave(joined.member_id) == [0]
    assert desk.leave(joined.member_id) == [UNKNOWN_MEMBER_ID]
    assert desk.leave("x") == [UNKNOWN_MEMBER_ID]  # it does not speak the classic protocol


def test_static_members_change_over_one_after_the_other(desk: Desk) -> None:
    old = desk.join(instance_id="i")
    desk.sync(old, {old.member_id: assignment({"t": [0, 1, 2, 3]})})
    new = desk.beat("x", 0, instance_id="i")  # the same place, another protocol
    assert desk.indexes(new) == [0, 1, 2, 3]
    back = desk.join(instance_id="i")
    assert back.error == 0
    assert desk.kind == "classic"  # the last new member was replaced
    assert desk.members == {back.member_id}


def test_a_group_in_two_protocols_outlives_the_broker(clock: ManualClock, run: Run, tmp_path: Path) -> None:
    desk = Desk(clock, run, tmp_path / "catalogue.db")
    old = desk.classic_group()
    new = desk.beat("x", 0)
    desk.close()
    again = Desk(clock, run, tmp_path / "catalogue.db")
    assert again.heartbeat(old) == REBALANCE_IN_PROGRESS
    joined = again.join(old.member_id)
    assert again.sync(joined) == (0, [0, 1])
    assert again.indexes(again.beat("x", new.epoch)) == [2, 3]
    again.close()
