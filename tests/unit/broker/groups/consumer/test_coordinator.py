"""Groups of the consumer protocol in the coordinator: written down, changed over, spoken to either way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.groups.classic.group import Group, State
from millstream.broker.groups.consumer.group import Beat, ConsumerGroup, Heartbeat
from millstream.broker.groups.coordinator import GroupCoordinator
from millstream.broker.groups.member import Join, Joined
from millstream.core.clock import ManualClock
from millstream.core.config import BrokerConfig
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import (
    GROUP_ID_NOT_FOUND,
    INCONSISTENT_GROUP_PROTOCOL,
    MEMBER_ID_REQUIRED,
    NON_EMPTY_GROUP,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
)
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
        return self.do(self.coordinator.consumer_heartbeat, "g", Heartbeat(member_id, epoch, **fields))

    def join(self, member_id: str = "", *, owned: list[int] | None = None, **fields: Any) -> Any:
        metadata = subscription("t", owned={"t": owned} if owned else {})
        join = Join(member_id, None, "client", "/host", 10.0, 60.0, "consumer", (("range", metadata),))
        return self.do(self.coordinator.join, "g", join._replace(**fields))

    def sync(self, joined: Joined, assignments: dict[str, bytes] | None = None) -> tuple[int, list[int]]:
        who = ("g", joined.member_id, None, joined.generation)
        synced = self.do(self.coordinator.sync, *who, "consumer", "range", assignments or {})
        return synced.error, (read_assignment(synced.assignment) or {}).get("t", [])

    def classic_group(self) -> Joined:
        """A stable classic group of one member, which reads everything."""
        joined = self.join()
        assert self.sync(joined, {joined.member_id: assignment({"t": [0, 1, 2, 3]})}) == (0, [0, 1, 2, 3])
        return joined

    def heartbeat(self, joined: Joined) -> int:
        return int(self.do(self.coordinator.heartbeat, "g", joined.member_id, None, joined.generation))

    def leave(self, member_id: str) -> Any:
        return self.do(self.coordinator.leave, "g", [(member_id, None)])

    @property
    def group(self) -> Group | ConsumerGroup | None:
        return self.coordinator.group("g")

    def indexes(self, beat: Beat) -> list[int]:
        return sorted(index for _, index in beat.assignment or ())


@pytest.fixture
def desk(clock: ManualClock, run: Run) -> Any:
    desk = Desk(clock, run)
    yield desk
    desk.close()


def test_an_epoch_is_written_down_before_it_is_answered(desk: Desk) -> None:
    async def steps() -> None:
        beat = Heartbeat("x", 0, rebalance_timeout=60.0, names=frozenset("t"), owned=())
        joining = desk.coordinator.consumer_heartbeat("g", beat)
        assert isinstance(joining, asyncio.Future)
        assert not joining.done()
        assert desk.catalogue.group_states == {}
        # What comes meanwhile shares the next write; the member's own repetition must not overtake its first.
        again = desk.coordinator.consumer_heartbeat("g", beat)
        others = [
            desk.coordinator.consumer_heartbeat("g", beat._replace(member_id=f"y{number}"))
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
        assert isinstance(desk.coordinator.consumer_heartbeat("g", Heartbeat("x", 1)), Beat)

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
    assert desk.run(desk.coordinator.delete("g")) == 0
    assert desk.group is None


def test_a_group_with_members_is_not_deleted(desk: Desk) -> None:
    desk.beat("x", 0)
    assert desk.run(desk.coordinator.delete("g")) == NON_EMPTY_GROUP
    desk.beat("x", -1)
    assert desk.run(desk.coordinator.delete("g")) == 0


def test_a_groups_own_settings_take_effect_at_once(desk: Desk) -> None:
    desk.beat("x", 0)
    own = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"}
    desk.do(desk.catalogue.set_group_overrides, "g", own)
    desk.coordinator.alter_group("g")
    assert desk.coordinator.heartbeat_interval_ms("g") == 6000
    desk.beat("x", 1)
    desk.pass_time(46)
    assert desk.beat("x", 1).epoch == 1


# Changing over


def test_a_classic_group_is_upgraded_while_its_members_read_on(desk: Desk) -> None:
    old = desk.classic_group()
    new = desk.beat("x", 0)
    assert isinstance(desk.group, ConsumerGroup)
    assert (new.epoch, desk.indexes(new)) == (old.generation + 1, [])
    assert desk.coordinator.check_commit("g", old.member_id, None, old.generation) == 0  # it works on

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

    async def steps() -> tuple[Joined, Joined]:
        metadata = subscription("t")
        join = Join("", None, "c", "/h", 10.0, 60.0, "consumer", (("range", metadata),))
        waiting = desk.coordinator.join("g", join)
        assert not waiting.done()
        beat = Heartbeat("x", 0, rebalance_timeout=60.0, names=frozenset("t"), owned=())
        answer = desk.coordinator.consumer_heartbeat("g", beat)
        assert isinstance(answer, asyncio.Future)
        await answer
        sent_back = await waiting
        again = await desk.coordinator.join("g", join._replace(member_id=sent_back.member_id))
        return sent_back, again

    sent_back, again = desk.run(steps())
    assert sent_back.error == REBALANCE_IN_PROGRESS
    assert again.error == 0
    assert set(desk.group.members if desk.group else ()) == {"x", old.member_id, sent_back.member_id}


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
    assert isinstance(desk.group, Group)
    assert desk.group.state is State.PREPARING
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
    assert isinstance(desk.group, Group)
    assert set(desk.group.members) == {old.member_id}


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
    assert isinstance(desk.group, ConsumerGroup)
    assert desk.heartbeat(joined) == REBALANCE_IN_PROGRESS
    assert desk.sync(desk.join(joined.member_id)) == (0, [0, 1, 2, 3])
    desk.close()


def test_a_group_whose_members_are_no_consumers_is_not_upgraded(desk: Desk) -> None:
    joined = desk.join(protocol_type="connect", protocols=(("sessioned", b"x"),))
    with pytest.raises(RequestRefused) as refused:
        desk.beat("x", 0)
    assert refused.value.code == GROUP_ID_NOT_FOUND
    assert isinstance(desk.group, Group)
    assert set(desk.group.members) == {joined.member_id}


def test_an_empty_group_becomes_what_its_next_member_speaks(desk: Desk) -> None:
    old = desk.classic_group()
    desk.leave(old.member_id)
    new = desk.beat("x", 0)
    assert new.epoch > old.generation
    assert isinstance(desk.group, ConsumerGroup)
    desk.beat("x", -1)
    again = desk.join()
    assert isinstance(desk.group, Group)
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
    assert isinstance(desk.group, Group)  # the last new member was replaced
    assert set(desk.group.members) == {back.member_id}


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
