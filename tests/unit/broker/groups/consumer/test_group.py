"""The group of the consumer protocol as a machine: epochs, targets, how partitions change hands."""

from __future__ import annotations

import pytest

from millstream.broker.groups.consumer.group import ConsumerState
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import (
    COORDINATOR_NOT_AVAILABLE,
    FENCED_INSTANCE_ID,
    FENCED_MEMBER_EPOCH,
    GROUP_MAX_SIZE_REACHED,
    ILLEGAL_GENERATION,
    INVALID_REGULAR_EXPRESSION,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    UNRELEASED_INSTANCE_ID,
    UNSUPPORTED_VERSION,
)
from tests.support.group_world import REBALANCE, SESSION, World


@pytest.fixture
def world() -> World:
    return World({"a": 4, "b": 2})


def refused(code: int) -> pytest.RaisesExc[RequestRefused]:
    return pytest.RaisesExc(RequestRefused, check=lambda error: error.code == code)


def test_the_first_member_gets_everything_at_once(world: World) -> None:
    assert world.group.state is ConsumerState.EMPTY
    assert world.join("x", "a") == (1, world.partitions("a"))
    assert world.group.state is ConsumerState.STABLE


def test_a_heartbeat_that_changes_nothing_says_nothing_new(world: World) -> None:
    world.join("x", "a")
    agreed = world.group.agreement
    assert world.beat("x", 1) == (1, None)
    assert world.group.agreement == agreed


def test_a_partition_is_given_up_before_it_is_given_on(world: World) -> None:
    world.join("x", "a")
    assert world.join("y", "a") == (2, set())  # it is in the new epoch, and waits
    epoch, kept = world.beat("x", 1)
    assert (epoch, len(kept or ())) == (1, 2)  # told to give two up, and stays in its epoch
    assert world.beat("y", 2) == (2, None)
    assert world.beat("x", 1) == (1, None)  # says nothing of what it owns: nothing is proven
    assert world.group.state is ConsumerState.RECONCILING
    assert world.beat("x", 1, owned=kept) == (2, None)
    epoch, got = world.beat("y", 2)
    assert got == world.partitions("a") - (kept or set())
    assert world.group.state is ConsumerState.STABLE


def test_who_says_it_still_owns_what_it_should_give_up_has_not_given_it_up(world: World) -> None:
    world.join("x", "a")
    world.join("y", "a")
    world.beat("x", 1)
    assert world.beat("x", 1, owned=world.partitions("a")) == (1, None)
    assert world.beat("y", 2) == (2, None)


def test_who_does_not_give_up_in_time_is_out(world: World) -> None:
    world.join("x", "a")
    world.join("y", "a")
    world.beat("x", 1)
    for _ in range(int(REBALANCE / 10)):
        world.beat("x", 1)
        world.beat("y", 2)
        world.clock.advance(10)
        world.group.tick(world.now)
    assert set(world.group.members) == {"y"}
    assert world.beat("y", 2) == (3, world.partitions("a"))
    with refused(UNKNOWN_MEMBER_ID):
        world.beat("x", 1)


def test_who_is_not_heard_of_is_out_and_its_partitions_go_to_the_others(world: World) -> None:
    world.join("x", "a")
    world.join("y", "a")
    world.clock.advance(SESSION / 2)
    world.beat("y", 2)
    world.clock.advance(SESSION / 2)
    world.group.tick(world.now)
    assert world.group.state is ConsumerState.ASSIGNING
    assert world.beat("y", 2) == (3, world.partitions("a"))


def test_leaving_frees_partitions_at_once(world: World) -> None:
    world.join("x", "a")
    world.join("y", "a")
    assert world.beat("x", -1) == (-1, None)
    assert world.beat("y", 2) == (3, world.partitions("a"))


def test_a_lost_answer_is_asked_for_again_with_the_previous_epoch(world: World) -> None:
    _, all_of_it = world.join("x", "a")
    world.join("y", "a")
    _, kept = world.beat("x", 1)
    world.beat("x", 1, owned=kept)  # the answer, epoch 2, is lost
    again = world.beat("x", 1, owned=kept, names=frozenset("a"), rebalance_timeout=REBALANCE)
    assert again == (2, kept)
    with refused(FENCED_MEMBER_EPOCH):
        world.beat("x", 1, owned=all_of_it)


@pytest.mark.parametrize("epoch", [1, 7])
def test_another_epoch_is_fenced(world: World, epoch: int) -> None:
    world.join("x", "a")
    world.beat("x", 1, names=frozenset("ab"))
    world.beat("x", 2, names=frozenset("b"), owned=())
    with refused(FENCED_MEMBER_EPOCH):
        world.beat("x", epoch)


def test_who_was_fenced_joins_again_and_goes_on(world: World) -> None:
    world.join("x", "a")
    assert world.join("x", "a") == (1, world.partitions("a"))


def test_unknown_members_are_told_so(world: World) -> None:
    world.join("x", "a")
    for epoch in (1, -1):
        with refused(UNKNOWN_MEMBER_ID):
            world.beat("z", epoch)


def test_a_group_can_be_full(world: World) -> None:
    world.group.max_size = 1
    world.join("x", "a", instance_id="i")
    with refused(GROUP_MAX_SIZE_REACHED):
        world.join("y", "a")
    world.beat("x", -2, instance_id="i")
    assert world.join("y", "a", instance_id="i")[1] == world.partitions("a")


def test_a_refused_request_changes_nothing(world: World) -> None:
    world.join("x", "a")
    agreed = world.group.agreement
    with refused(INVALID_REGULAR_EXPRESSION):
        world.beat("y", 0, rebalance_timeout=REBALANCE, regex="a(", owned=())
    with refused(FENCED_MEMBER_EPOCH):
        world.beat("x", 9, names=frozenset("b"))
    assert world.group.agreement == agreed
    assert set(world.group.members) == {"x"}


# Subscriptions and topics


def test_another_subscription_is_another_epoch(world: World) -> None:
    world.join("x", "a")
    assert world.beat("x", 1, names=frozenset("ab")) == (2, world.partitions("a", "b"))
    epoch, kept = world.beat("x", 2, names=frozenset("b"))
    assert (epoch, kept) == (2, world.partitions("b"))
    assert world.beat("x", 2, owned=kept) == (3, None)


def test_topics_that_come_grow_and_go_are_noticed_at_the_next_heartbeat(world: World) -> None:
    world.join("x", "a", "new")
    world.create("new", 2)
    assert world.beat("x", 1) == (2, world.partitions("a", "new"))
    world.grow("a", 3)
    assert world.beat("x", 2) == (3, world.partitions("a", "new"))
    world.delete("a")
    epoch, kept = world.beat("x", 3)
    assert (epoch, kept) == (3, world.partitions("new"))
    assert world.beat("x", 3, owned=kept) == (4, None)


def test_a_topic_nobody_subscribes_to_changes_nothing(world: World) -> None:
    world.join("x", "a")
    world.create("other", 2)
    assert world.beat("x", 1) == (1, None)


def test_a_topic_created_anew_under_its_name_is_another_topic(world: World) -> None:
    _, old = world.join("x", "a")
    world.delete("a")
    world.create("a", 2)
    _, kept = world.beat("x", 1)
    assert kept == set()
    assert world.beat("x", 1, owned=kept) == (2, world.partitions("a"))
    assert not old & world.partitions("a")


def test_a_pattern_is_matched_by_the_broker_now_and_later(world: World) -> None:
    joined = world.beat("x", 0, rebalance_timeout=REBALANCE, regex="[ab]|logs-.*", owned=())
    assert joined == (1, world.partitions("a", "b"))
    world.create("logs-1", 1)
    world.create("blogs-1", 1)
    assert world.beat("x", 1) == (2, world.partitions("a", "b", "logs-1"))
    epoch, kept = world.beat("x", 2, regex="")
    assert (epoch, kept) == (2, set())


def test_a_pattern_and_names_add_up(world: World) -> None:
    joined = world.beat("x", 0, rebalance_timeout=REBALANCE, names=frozenset("a"), regex="b.?", owned=())
    assert joined == (1, world.partitions("a", "b"))


def test_what_is_no_longer_subscribed_to_goes_even_while_the_assignment_waits(world: World) -> None:
    world.group.assignment_interval = 10.0
    world.join("x", "a", "b")
    epoch, kept = world.beat("x", 1, names=frozenset("b"))
    assert (epoch, kept) == (1, world.partitions("b"))
    assert world.group.state is ConsumerState.ASSIGNING


def test_assignments_keep_their_distance(world: World) -> None:
    world.group.assignment_interval = 10.0
    world.join("x", "a")
    assert world.join("y", "a") == (1, set())
    assert world.join("z", "a") == (1, set())
    assert (world.group.epoch, world.group.target_epoch) == (3, 1)
    world.clock.advance(10.0)
    world.beat("x", 1)
    assert (world.group.epoch, world.group.target_epoch) == (3, 3)


def test_the_assignor_is_the_one_most_members_ask_for(world: World) -> None:
    world.join("x", "a", assignor="range")
    world.join("y", "a", assignor="range")
    world.join("z", "a", assignor="uniform")
    assert world.group.assignor == "range"
    for name in ("x", "y"):
        world.beat(name, -1)
    assert world.group.assignor == "uniform"


# Static members


def test_a_static_member_that_comes_back_has_what_it_had(world: World) -> None:
    world.join("x1", "a", instance_id="x")
    world.join("y", "a")
    _, kept = world.beat("x1", 1, instance_id="x")
    world.beat("x1", 1, instance_id="x", owned=kept)
    world.beat("y", 2)
    epoch = world.group.epoch
    assert world.beat("x1", -2, instance_id="x") == (-2, None)
    assert world.beat("y", 2) == (2, None)  # nobody gets its partitions meanwhile
    assert world.join("x2", "a", instance_id="x") == (2, kept)
    assert world.group.epoch == epoch


def test_a_static_member_that_stays_away_is_out_when_its_session_ends(world: World) -> None:
    world.join("x1", "a", instance_id="x")
    world.beat("x1", -2, instance_id="x")
    world.clock.advance(SESSION)
    world.group.tick(world.now)
    assert world.group.is_empty
    with refused(UNKNOWN_MEMBER_ID):
        world.beat("x1", 1, instance_id="x")


def test_an_instance_id_in_use_can_not_be_taken(world: World) -> None:
    world.join("x1", "a", instance_id="x")
    with refused(UNRELEASED_INSTANCE_ID):
        world.join("x2", "a", instance_id="x")


def test_who_was_replaced_is_fenced(world: World) -> None:
    world.join("x1", "a", instance_id="x")
    world.beat("x1", -2, instance_id="x")
    world.join("x2", "a", instance_id="x")
    for epoch in (1, -1, -2):
        with refused(FENCED_INSTANCE_ID):
            world.beat("x1", epoch, instance_id="x")


def test_what_a_static_member_was_giving_up_is_free_once_it_has_gone(world: World) -> None:
    world.join("x1", "a", instance_id="x")
    world.join("y", "a")
    world.beat("x1", 1, instance_id="x")
    world.beat("x1", -2, instance_id="x")
    assert len(world.beat("y", 2)[1] or ()) == 2


# Offsets


def test_only_members_commit_and_only_under_their_epoch(world: World) -> None:
    group = world.group
    assert group.check_commit("", None, -1, world.now) == 0
    world.join("x", "a")
    assert group.check_commit("x", None, 1, world.now) == 0
    assert group.check_commit("x", None, 2, world.now) == STALE_MEMBER_EPOCH
    assert group.check_commit("x", None, 2, world.now, transactional=True) == ILLEGAL_GENERATION
    assert group.check_commit("z", None, 1, world.now) == UNKNOWN_MEMBER_ID
    assert group.check_commit("", None, -1, world.now) == UNKNOWN_MEMBER_ID
    assert group.check_commit("", None, -1, world.now, transactional=True) == 0
    assert group.check_commit("x", None, 1, world.now, by_epoch=False) == UNSUPPORTED_VERSION


def test_a_commit_of_an_earlier_epoch_counts_for_partitions_kept_since(world: World) -> None:
    _, mine = world.join("x", "a")
    world.beat("x", 1, names=frozenset("ab"))
    (kept, *_), (new, *_) = mine, world.partitions("b")
    assert world.group.check_commit("x", None, 1, world.now) == 0
    assert world.group.check_partition("x", 1, kept) == 0
    assert world.group.check_partition("x", 1, new) == STALE_MEMBER_EPOCH
    assert world.group.check_partition("x", 2, new) == 0
    world.beat("x", 2, names=frozenset("b"))  # it is told to give "a" up, and commits a last time
    assert world.group.check_partition("x", 1, kept) == 0
    world.beat("x", 2, owned=world.partitions("b"))
    assert world.group.check_partition("x", 1, kept) == STALE_MEMBER_EPOCH


def test_offsets_are_told_to_members_of_the_epoch_and_to_administrators(world: World) -> None:
    world.join("x", "a")
    assert world.group.check_fetch(None, -1) == 0
    assert world.group.check_fetch("x", 1) == 0
    assert world.group.check_fetch("x", 0) == STALE_MEMBER_EPOCH
    assert world.group.check_fetch("z", 1) == UNKNOWN_MEMBER_ID


# Being written down


def test_a_restored_group_goes_on_where_it_was(world: World) -> None:
    world.join("x", "a", instance_id="i", rack_id="r", assignor="range", client_id="c", client_host="/h")
    world.join("y", "a", "b")
    world.beat("x", 1, instance_id="i")
    world.restart()
    assert (world.group.epoch, world.group.target_epoch) == (2, 2)
    assert world.group.assignor == "range"
    kept = set(world.group.members["x"].assigned)
    assert world.beat("x", 1, instance_id="i", owned=kept) == (2, None)
    assert world.group.epoch == 2, "a restart is no reason for a new epoch"
    world.clock.advance(SESSION)
    world.group.tick(world.now)
    assert world.group.is_empty


def test_topics_that_changed_while_the_group_was_away_are_noticed(world: World) -> None:
    world.join("x", "a")
    world.grow("a", 1)
    world.restart()
    assert world.beat("x", 1) == (2, world.partitions("a"))


def test_a_dead_group_sends_everybody_to_look_for_a_coordinator(world: World) -> None:
    world.join("x", "a")
    world.group.kill()
    with refused(COORDINATOR_NOT_AVAILABLE):
        world.beat("x", 1)
    assert world.group.check_commit("x", None, 1, world.now) == COORDINATOR_NOT_AVAILABLE
