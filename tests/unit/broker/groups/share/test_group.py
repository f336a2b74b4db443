"""The members of a share group as a machine: epochs, subscriptions, what each reads, and when it is gone."""

from __future__ import annotations

import json

import pytest

from millstream.broker.groups.share import snapshot
from millstream.broker.groups.share.group import ShareGroup, ShareHeartbeat, ShareState
from millstream.broker.groups.topics import Partition
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_MEMBER_EPOCH,
    GROUP_ID_NOT_FOUND,
    GROUP_MAX_SIZE_REACHED,
    NONE,
    UNKNOWN_MEMBER_ID,
)
from tests.support.group_world import World


class ShareWorld(World):
    """Topics, a clock and a share group."""

    def __init__(self, topics: dict[str, int]) -> None:
        super().__init__(topics)
        self.shared = ShareGroup("g", self)

    def say(self, member_id: str, epoch: int, *names: str) -> tuple[int, set[Partition] | None]:
        """Send a heartbeat, and return the epoch and the assignment of the response."""
        beat = ShareHeartbeat(member_id, epoch, frozenset(names) if names else None)
        answer = self.shared.heartbeat(beat, self.now)
        return answer.epoch, None if answer.assignment is None else set(answer.assignment)

    def restart(self) -> None:
        fields = json.loads(snapshot.to_text(self.shared))
        self.shared = snapshot.restored("g", fields, self)
        self.shared.start_sessions(self.now)


@pytest.fixture
def world() -> ShareWorld:
    return ShareWorld({"a": 4, "b": 2})


def refused(code: int) -> pytest.RaisesExc[RequestRefused]:
    return pytest.RaisesExc(RequestRefused, check=lambda error: error.code == code)


def test_the_first_member_reads_everything_at_once(world: ShareWorld) -> None:
    assert world.shared.state is ShareState.EMPTY
    assert world.say("x", 0, "a") == (1, world.partitions("a"))
    assert world.shared.state is ShareState.STABLE
    assert world.say("x", 1) == (1, None)


def test_a_second_member_reads_its_part_without_waiting_for_the_first(world: ShareWorld) -> None:
    world.say("x", 0, "a")
    epoch, second = world.say("y", 0, "a")
    assert (epoch, len(second or ())) == (2, 2)
    assert world.say("x", 1) == (2, world.partitions("a") - (second or set()))
    assert world.say("x", 2) == (2, None)


def test_members_beyond_the_partitions_share_them(world: ShareWorld) -> None:
    for number in range(5):
        world.say(f"m{number}", 0, "b")
    for number in range(5):
        world.say(f"m{number}", number + 1)
    assigned = [member.assigned for member in world.shared.members.values()]
    assert sorted(map(len, assigned)) == [1, 1, 1, 1, 2]
    assert set().union(*assigned) == world.partitions("b")


def test_the_response_with_the_new_epoch_may_get_lost(world: ShareWorld) -> None:
    world.say("x", 0, "a")
    world.say("y", 0, "a")
    assert world.say("x", 1)[0] == 2
    assert world.say("x", 1) == (2, None)
    # A member that does not know whether it was heard states its subscription, and is told everything.
    epoch, told = world.say("x", 1, "a")
    assert epoch == 2
    assert told


@pytest.mark.parametrize("epoch", [7, 1])
def test_a_member_with_a_wrong_epoch_is_fenced_and_joins_again(world: ShareWorld, epoch: int) -> None:
    world.say("x", 0, "a")
    for other in "yz":
        world.say(other, 0, "a")
        world.say("x", world.shared.members["x"].epoch)
    assert world.shared.members["x"].epoch == 3
    with refused(FENCED_MEMBER_EPOCH):
        world.say("x", epoch)
    before = world.shared.epoch
    assert world.say("x", 0, "a")[0] == before == world.shared.epoch  # nothing has changed for the others


def test_a_member_leaves_and_the_others_read_its_part(world: ShareWorld) -> None:
    world.say("x", 0, "a")
    world.say("y", 0, "a")
    assert len(world.say("x", 1)[1] or ()) == 2
    assert world.say("y", -1) == (-1, None)
    assert world.say("x", 2) == (3, world.partitions("a"))
    with refused(UNKNOWN_MEMBER_ID):
        world.say("y", -1)
    with refused(UNKNOWN_MEMBER_ID):
        world.say("y", 2)
    world.say("x", -1)
    assert world.shared.state is ShareState.EMPTY
    assert not world.shared.may_be_forgotten


def test_a_silent_member_is_gone_after_its_session(world: ShareWorld) -> None:
    world.say("x", 0, "a")
    world.clock.advance(30)
    world.say("y", 0, "a")
    world.clock.advance(15)
    assert world.shared.wake_at <= world.now
    world.shared.tick(world.now)
    assert set(world.shared.members) == {"y"}
    assert world.say("y", 2) == (3, world.partitions("a"))


def test_a_changed_subscription_takes_effect_at_once(world: ShareWorld) -> None:
    world.say("x", 0, "a")
    assert world.say("x", 1, "b") == (2, world.partitions("b"))
    world.shared.assignment_interval = 60.0
    world.say("x", 2, "a")  # takes a target from now on, and the next one comes in a minute
    assert world.say("x", 3, "b") == (3, set())  # what it no longer subscribes to is taken away all the same
    world.clock.advance(60)
    world.shared.members["x"].deadline += 60
    assert world.say("x", 3) == (4, world.partitions("b"))


def test_topics_that_come_grow_and_go_are_noticed_by_the_next_heartbeat(world: ShareWorld) -> None:
    assert world.say("x", 0, "a", "later") == (1, world.partitions("a"))
    world.create("later", 1)
    assert world.say("x", 1) == (2, world.partitions("a", "later"))
    world.grow("later", 1)
    assert world.say("x", 2) == (3, world.partitions("a", "later"))
    world.delete("a")
    assert world.say("x", 3) == (4, world.partitions("later"))
    world.create("unrelated", 1)
    assert world.say("x", 4) == (4, None)


def test_a_full_group_takes_nobody_new(world: ShareWorld) -> None:
    world.shared.max_size = 2
    world.say("x", 0, "a")
    world.say("y", 0, "a")
    with refused(GROUP_MAX_SIZE_REACHED):
        world.say("z", 0, "a")
    assert world.say("y", 0, "a")[0] == 2  # it is a member
    world.say("x", -1)
    assert world.say("z", 0, "a")[0] == 4


def test_a_restarted_broker_has_the_same_members_with_the_same_epochs(world: ShareWorld) -> None:
    world.say("x", 0, "a")
    _, second = world.say("y", 0, "a")
    world.restart()
    assert world.say("x", 1) == (2, world.partitions("a") - (second or set()))
    assert world.say("y", 2) == (2, None)
    world.clock.advance(45)
    world.shared.tick(world.now)
    assert world.shared.state is ShareState.EMPTY


def test_a_topic_that_was_made_while_the_broker_was_down_is_noticed(world: ShareWorld) -> None:
    world.say("x", 0, "a", "later")
    world.create("later", 1)
    world.restart()
    assert world.say("x", 1) == (2, world.partitions("a", "later"))


def test_a_share_group_has_no_committed_offsets(world: ShareWorld) -> None:
    world.say("x", 0, "a")
    group = world.shared
    assert group.check_commit("", None, -1, world.now) == GROUP_ID_NOT_FOUND
    assert group.check_offset_delete() == GROUP_ID_NOT_FOUND
    assert group.check_fetch(None, -1) == NONE  # nothing is committed, which is no error
    assert group.subscribed_topics() == {"a"}


def test_a_deleted_group_refuses_whoever_still_has_it(world: ShareWorld) -> None:
    world.shared.kill()
    assert world.shared.state is ShareState.DEAD
    with refused(COORDINATOR_NOT_AVAILABLE):
        world.say("x", 0, "a")
