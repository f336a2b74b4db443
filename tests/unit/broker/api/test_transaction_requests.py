"""The transactions' requests in every version served, as a producer and an administrator send them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from millstream.broker.node import Node
from millstream.broker.transactions.transaction import LAST_EPOCH, ProducerIdentity
from millstream.core.clock import ManualClock
from millstream.core.errors import AppendRefused, CatalogueFailed, LogFailed
from tests.support.asking import Run, ask, join, sync, versions
from tests.support.logs import a_transactional_batch
from tests.support.transacting import (
    NAME,
    TIMEOUT_MS,
    add,
    add_group,
    batched,
    commit_offset,
    end,
    held_back,
    init,
    offset_of,
    produce,
    producer,
    stable_offset,
    time_has_its_effect,
)


@pytest.fixture
def topic(node: Node, run: Run) -> None:
    run(node.topic_admin.create("t", 3, {}))


# Producers


@pytest.mark.parametrize("version", versions(22))
def test_an_id_keeps_its_producer_id_and_counts_epochs(node: Node, run: Run, version: int) -> None:
    first = run(producer(node, version))
    second = run(producer(node, version))
    assert second == ProducerIdentity(first.producer_id, first.epoch + 1)
    assert run(producer(node, version, "another")).producer_id != first.producer_id


@pytest.mark.parametrize("version", versions(22))
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, 42),
        ({"transaction_timeout": 0}, 50),
        ({"transaction_timeout": 900_001}, 50),
    ],
)
def test_what_init_refuses(node: Node, run: Run, version: int, fields: dict[str, Any], code: int) -> None:
    answer = run(init(node, version, **fields))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


@pytest.mark.parametrize("version", versions(22, 3))
def test_a_producer_recovers_by_saying_who_it_is(node: Node, run: Run, version: int) -> None:
    me = run(producer(node, version))
    names_me = {"producer_id": me.producer_id, "producer_epoch": me.epoch}
    bumped = run(producer(node, version, **names_me))
    assert bumped.epoch == me.epoch + 1
    assert run(producer(node, version, **names_me)) == bumped  # the answer got lost
    other = run(producer(node, version))
    fenced = run(init(node, version, **names_me))
    assert fenced.error_code == (90 if version >= 4 else 47)
    assert other.epoch == bumped.epoch + 1


def test_a_producer_of_an_id_that_expired_is_welcome(node: Node, run: Run) -> None:
    assert run(init(node, 5, producer_id=77, producer_epoch=3)).error_code == 0


def test_an_idle_id_is_forgotten(node: Node, run: Run, clock: ManualClock) -> None:
    me = run(producer(node))
    clock.advance(node.config.transactional_id_expiration_ms / 1000 + 61)
    run(time_has_its_effect(node))
    assert run(end(node, me, commit=False)).error_code == 49
    assert run(producer(node)).producer_id != me.producer_id


def test_the_last_epoch_is_followed_by_another_producer_id(node: Node, run: Run, topic: None) -> None:
    me = run(producer(node))
    found = node.transactions._ids.known(NAME)
    last = ProducerIdentity(me.producer_id, LAST_EPOCH)
    node.transactions._ids.set_state(found, dataclasses.replace(found.current, producer=last))
    assert run(produce(node, last)) == 0
    answer = run(end(node, last))
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    assert answer.producer_id != me.producer_id
    again = run(end(node, last))
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, answer.producer_id, 0)
    assert held_back(node) == []


# The second protocol


def test_a_transaction_begins_with_its_first_record_and_ends_in_the_next_epoch(
    node: Node, run: Run, topic: None
) -> None:
    me = run(producer(node))
    for index in (0, 2):
        assert run(produce(node, me, index)) == 0
    assert held_back(node) == [0, 2]
    answer = run(end(node, me))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (
        0,
        *me._replace(epoch=me.epoch + 1),
    )
    assert held_back(node) == []
    again = run(end(node, me))
    assert (again.error_code, again.producer_epoch) == (0, me.epoch + 1)
    assert run(end(node, me, commit=False)).error_code == 48
    assert run(produce(node, me, 0, 1)) == 47  # too late for either
    assert run(produce(node, me._replace(epoch=me.epoch + 1))) == 0


def test_records_without_a_transactional_id_are_refused(node: Node, run: Run, topic: None) -> None:
    me = run(producer(node))
    partition = node.topics.partition("t", 0)
    assert partition is not None
    batch = a_transactional_batch(0, b"value", producer=me.producer_id, epoch=me.epoch)
    with pytest.raises(AppendRefused) as caught:
        partition.log.append(batch, node.clock.now_ms())
    assert caught.value.code == 53


@pytest.mark.parametrize("version", [3, 10, 11, 12, 13])
def test_a_produce_tells_its_producer_what_is_wrong(node: Node, run: Run, topic: None, version: int) -> None:
    assert run(produce(node, ProducerIdentity(1, 0), version=version)) == 49
    me = run(producer(node))
    assert run(produce(node, me._replace(producer_id=me.producer_id + 1), version=version)) == 49
    assert run(produce(node, me._replace(epoch=me.epoch + 1), version=version)) == 47
    assert run(produce(node, me, version=version)) == (48 if version < 11 else 120 if version == 11 else 0)


# The first protocol


@pytest.mark.parametrize("version", versions(24))
def test_partitions_are_announced_before_they_are_written_to(
    node: Node, run: Run, topic: None, version: int
) -> None:
    me = run(producer(node))
    assert run(add(node, me, [0, 1], version)) == [0, 0]
    assert run(add(node, me, [0, 1], version)) == [0, 0]
    assert run(produce(node, me, 1, version=9)) == 0
    assert run(produce(node, me, 2, version=9)) == 48
    assert run(end(node, me, version=3)).error_code == 0
    assert run(produce(node, me, 1, 1, version=9)) == 48  # the next transaction must add them again
    fenced = run(add(node, me._replace(epoch=9), [0], version))
    assert fenced == [90 if version >= 2 else 47]
    assert run(add(node, ProducerIdentity(999, 0), [0], version)) == [49]


@pytest.mark.parametrize("version", versions(24))
def test_all_partitions_are_added_or_none(node: Node, run: Run, topic: None, version: int) -> None:
    me = run(producer(node))
    assert run(add(node, me, [0, 7], version)) == [55, 3]
    assert run(add(node, me, [0], version, topic="nowhere")) == [3]
    assert run(produce(node, me, version=9)) == 48


@pytest.mark.parametrize("version", versions(24, 4))
def test_brokers_verify_partitions(node: Node, run: Run, topic: None, version: int) -> None:
    me = run(producer(node))
    run(add(node, me, [1]))
    topics = [{"name": "t", "partitions": [0, 1]}]
    answer = run(ask(node, 24, version, transactions=[batched(me, topics, verify_only=True)]))
    (result,) = answer.results_by_transaction[0].topic_results
    assert [int(each.partition_error_code) for each in result.results_by_partition] == [120, 0]


@pytest.mark.parametrize("version", versions(26))
def test_who_may_not_end_what(node: Node, run: Run, topic: None, version: int) -> None:
    assert run(end(node, ProducerIdentity(1, 0), version=version)).error_code == 49
    me = run(producer(node))
    assert run(end(node, me, version=version)).error_code == 48
    assert run(end(node, me._replace(epoch=me.epoch + 5), version=version)).error_code == (
        90 if version >= 2 else 47
    )
    assert run(end(node, me, commit=False, version=version)).error_code == (0 if version >= 5 else 48)


# Offsets


@pytest.mark.parametrize("version", versions(28))
def test_offsets_are_committed_with_the_transaction(node: Node, run: Run, topic: None, version: int) -> None:
    me = run(producer(node))
    if version < 5:
        assert run(commit_offset(node, me, 5, version)) == (120 if version == 4 else 48)
        assert run(add_group(node, me)) == 0
    assert run(commit_offset(node, me, 5, version)) == 0
    assert run(stable_offset(node)) == (88, -1)
    assert run(stable_offset(node, stable=False)) == (0, -1)
    answer = run(end(node, me, version=5 if version >= 5 else 3))
    assert answer.error_code == 0
    assert run(stable_offset(node)) == (0, 5)

    me = run(producer(node))
    run(add_group(node, me))
    assert run(commit_offset(node, me, 9, version)) == 0
    run(end(node, me, commit=False))
    assert run(stable_offset(node)) == (0, 5)


@pytest.mark.parametrize("version", versions(28))
def test_offsets_of_strangers_are_refused(node: Node, run: Run, topic: None, version: int) -> None:
    assert run(commit_offset(node, ProducerIdentity(1, 0), 5, version)) == 49
    me = run(producer(node))
    assert run(commit_offset(node, me._replace(epoch=7), 5, version)) == 47
    assert run(commit_offset(node, me, 5, version, group_id="")) == 24
    assert run(commit_offset(node, me, 5, version, index=7)) == 3


@pytest.mark.parametrize("version", versions(25))
def test_a_group_is_announced_by_its_producer(node: Node, run: Run, version: int) -> None:
    assert run(add_group(node, ProducerIdentity(1, 0), version)) == 49
    me = run(producer(node))
    assert run(add_group(node, me, version)) == 0
    assert run(add_group(node, me._replace(epoch=7), version)) == (90 if version >= 2 else 47)


@pytest.mark.parametrize("version", versions(28, 3))
def test_a_member_that_is_out_commits_nothing(node: Node, run: Run, topic: None, version: int) -> None:
    me = run(producer(node))
    run(add_group(node, me))
    member_id = run(join(node, 5)).member_id
    joined = run(join(node, 5, member_id))
    in_group = {"member_id": member_id, "generation_id": joined.generation_id}
    assert run(commit_offset(node, me, 5, version, **in_group)) == 0  # the assignment is still to come
    run(sync(node, 5, member_id, joined.generation_id, {member_id: b""}))
    assert run(commit_offset(node, me, 5, version, **in_group)) == 0
    assert run(commit_offset(node, me, 5, version, **{**in_group, "generation_id": 9})) == 22
    assert run(commit_offset(node, me, 5, version, **{**in_group, "member_id": "who"})) == 25
    assert run(commit_offset(node, me, 5, version)) == 0  # an old client, fenced by its producer's epoch
    assert run(commit_offset(node, me, 5, version, group_id="new", generation_id=3, member_id="m")) == 22


@pytest.mark.parametrize("version", versions(9, 7))
def test_who_asks_for_stable_offsets_waits_for_the_transaction(
    node: Node, run: Run, topic: None, version: int
) -> None:
    me = run(producer(node))
    run(commit_offset(node, me, 5))
    assert run(stable_offset(node, version)) == (88, -1)
    run(end(node, me))
    assert run(stable_offset(node, version)) == (0, 5)


def test_all_of_a_groups_offsets_include_those_that_are_pending(node: Node, run: Run, topic: None) -> None:
    me = run(producer(node))
    run(commit_offset(node, me, 5, index=2))
    answer = run(ask(node, 9, 8, groups=[{"group_id": "g", "topics": None}], require_stable=True))
    (found,) = answer.groups[0].topics[0].partitions
    assert (found.partition_index, int(found.error_code)) == (2, 88)
    answer = run(ask(node, 9, 8, groups=[{"group_id": "g", "topics": None}], require_stable=False))
    assert answer.groups[0].topics == ()


def test_a_plain_commit_after_a_pending_one_stays(node: Node, run: Run, topic: None) -> None:
    me = run(producer(node))
    run(commit_offset(node, me, 5))
    run(
        ask(
            node, 8, 7, group_id="g", generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
            topics=[{"name": "t", "partitions": [offset_of(0, 8)]}],
        )
    )  # fmt: skip
    assert run(stable_offset(node)) == (0, 8)
    run(end(node, me))
    assert run(stable_offset(node)) == (0, 8)


def test_deleted_offsets_and_groups_do_not_come_back_with_a_commit(node: Node, run: Run, topic: None) -> None:
    me = run(producer(node))
    run(commit_offset(node, me, 5))
    answer = run(
        ask(node, 47, 0, group_id="g", topics=[{"name": "t", "partitions": [{"partition_index": 0}]}])
    )
    assert answer.topics[0].partitions[0].error_code == 0
    run(commit_offset(node, me, 6, index=1))
    answer = run(ask(node, 42, 2, groups_names=["g"]))
    assert answer.results[0].error_code == 0
    run(end(node, me))
    assert node.catalogue.offsets_of("g") == {}


def test_a_group_with_pending_offsets_outlives_its_retention(
    node: Node, run: Run, topic: None, clock: ManualClock
) -> None:
    me = run(producer(node, 6, enable2_pc=True))
    run(commit_offset(node, me, 5))
    clock.advance(8 * 24 * 3600)
    for _ in range(2):
        run(_tick_groups(node))
        clock.advance(61)
    assert node.coordinator.directory.find("g") is not None
    assert run(end(node, me)).error_code == 0
    assert run(stable_offset(node)) == (0, 5)


async def _tick_groups(node: Node) -> None:
    node.coordinator.tick()


# Fencing and time


def test_another_producer_aborts_what_is_open(node: Node, run: Run, topic: None) -> None:
    me = run(producer(node))
    run(produce(node, me))
    run(commit_offset(node, me, 5))
    other = run(producer(node))
    assert other.producer_id == me.producer_id
    assert other.epoch > me.epoch + 1
    assert held_back(node) == []
    assert run(stable_offset(node)) == (0, -1)
    assert run(end(node, me)).error_code == 90
    assert run(end(node, me, version=1)).error_code == 47
    assert run(produce(node, me, 1)) == 47
    assert node.transactions.counters.taken_over == 1


def test_a_transaction_that_takes_too_long_is_aborted(
    node: Node, run: Run, topic: None, clock: ManualClock
) -> None:
    me = run(producer(node))
    run(produce(node, me))
    clock.advance(TIMEOUT_MS / 1000 - 1)
    run(time_has_its_effect(node))
    assert held_back(node) == [0]
    clock.advance(2)
    run(time_has_its_effect(node))
    assert held_back(node) == []
    assert node.transactions.counters.timed_out == 1
    for commit in (True, False):
        assert run(end(node, me, commit=commit)).error_code == 90


# Two-phase commit


def test_a_prepared_transaction_waits_for_whoever_comes_back(
    node: Node, run: Run, topic: None, clock: ManualClock
) -> None:
    me = run(producer(node, 6, enable2_pc=True))
    run(produce(node, me))
    clock.advance(30 * 24 * 3600)
    run(time_has_its_effect(node))
    assert held_back(node) == [0]
    back = run(init(node, 6, enable2_pc=True, keep_prepared_txn=True))
    assert (back.ongoing_txn_producer_id, back.ongoing_txn_producer_epoch) == me
    mine = ProducerIdentity(back.producer_id, back.producer_epoch)
    assert run(produce(node, me, 1)) == 47
    assert run(produce(node, mine, 1)) == 48
    assert run(end(node, me)).error_code == 90
    assert run(end(node, mine)).error_code == 0
    assert held_back(node) == []
    nothing = run(init(node, 6, enable2_pc=True, keep_prepared_txn=True))
    assert (nothing.ongoing_txn_producer_id, nothing.ongoing_txn_producer_epoch) == (-1, -1)


def test_two_phase_commit_can_be_forbidden(node: Node, run: Run) -> None:
    run(node.alter_broker({"transaction.two.phase.commit.enable": "false"}))
    assert run(init(node, 6, enable2_pc=True)).error_code == 53
    assert run(init(node, 6)).error_code == 0
    assert run(init(node, 6, keep_prepared_txn=True)).error_code == 42


# Faults


def test_a_commit_that_can_not_be_written_down_changes_nothing(
    node: Node, run: Run, topic: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = run(producer(node))
    run(produce(node, me))

    def full(*_: Any, **__: Any) -> None:
        raise CatalogueFailed("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(type(node.catalogue.decisions), "end", full)
        assert run(end(node, me)).error_code == 15
    assert held_back(node) == [0]
    assert run(produce(node, me, 0, 1)) == 0  # it goes on
    assert run(end(node, me)).error_code == 0
    assert held_back(node) == []


def test_a_marker_is_tried_until_the_log_takes_it(
    node: Node, run: Run, topic: None, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = run(producer(node))
    for index in (0, 1):
        run(produce(node, me, index))
    partition = node.topics.partition("t", 1)
    assert partition is not None

    def full(*_: Any, **__: Any) -> int:
        raise LogFailed("t-1: can't write: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(partition.log, "append_marker", full)
        answer = run(end(node, me))
        assert answer.error_code == 0  # it is decided
        mine = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        assert held_back(node) == [1]
        (state,) = run(ask(node, 65, 0, transactional_ids=[NAME])).transaction_states
        assert state.transaction_state == "PrepareCommit"
        assert [(t.topic, list(t.partitions)) for t in state.topics] == [("t", [1])]
        assert run(produce(node, mine, 1)) == 51
        assert run(init(node)).error_code == 51
        assert run(end(node, me)).error_code == 51
    clock.advance(1)
    run(time_has_its_effect(node))
    assert held_back(node) == []
    (state,) = run(ask(node, 65, 0, transactional_ids=[NAME])).transaction_states
    assert state.transaction_state == "CompleteCommit"
    assert run(produce(node, mine, 1)) == 0


def test_a_deleted_topic_does_not_keep_its_transaction(node: Node, run: Run, topic: None) -> None:
    run(node.topic_admin.create("u", 1, {}))
    me = run(producer(node))
    run(produce(node, me))
    run(commit_offset(node, me, 5))
    assert run(add(node, me, [0], topic="u")) == [0]
    run(node.topic_admin.delete("t"))
    run(node.topic_admin.create("t", 1, {}))
    answer = run(end(node, me))
    assert answer.error_code == 0
    partition = node.topics.partition("t", 0)
    assert partition is not None
    assert partition.log.end_offset == 0  # the new topic has nothing to do with it
    assert run(stable_offset(node)) == (0, -1)


# For administrators


def test_transactions_are_listed_by_what_is_asked_for(
    node: Node, run: Run, topic: None, clock: ManualClock
) -> None:
    me = run(producer(node))
    other = run(producer(node, name="other"))
    run(produce(node, me))
    clock.advance(5)

    def listed(version: int = 2, **filters: Any) -> dict[str, str]:
        fields = {
            "state_filters": [],
            "producer_id_filters": [],
            "duration_filter": -1,
            "transactional_id_pattern": None,
        }
        answer = run(ask(node, 66, version, **{**fields, **filters}))
        assert answer.error_code == 0
        return {t.transactional_id: t.transaction_state for t in answer.transaction_states}

    both = {NAME: "Ongoing", "other": "Empty"}
    for version in versions(66):
        assert listed(version) == both
        assert listed(version, state_filters=["Ongoing"]) == {NAME: "Ongoing"}
        assert listed(version, producer_id_filters=[other.producer_id]) == {"other": "Empty"}
    assert listed(duration_filter=4000) == {NAME: "Ongoing"}
    assert listed(duration_filter=6000) == {}
    assert listed(transactional_id_pattern="pay.*") == {NAME: "Ongoing"}
    assert listed(transactional_id_pattern="pay") == {}
    unknown = run(
        ask(node, 66, 0, state_filters=["Ongoing", "Hanging"], producer_id_filters=[])
    ).unknown_state_filters
    assert list(unknown) == ["Hanging"]


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "(){2000000000}"])
def test_a_pattern_that_is_not_served_is_refused(node: Node, run: Run, pattern: str) -> None:
    fields = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
    assert run(ask(node, 66, 2, **fields, transactional_id_pattern=pattern)).error_code == 128


def test_a_transaction_is_described(node: Node, run: Run, topic: None) -> None:
    me = run(producer(node))
    run(produce(node, me, 2))
    answer = run(ask(node, 65, 0, transactional_ids=[NAME, "nobody", ""]))
    mine, nobody, empty = answer.transaction_states
    assert (mine.error_code, mine.transaction_state, mine.producer_id, mine.producer_epoch) == (
        0,
        "Ongoing",
        *me,
    )
    assert [(t.topic, list(t.partitions)) for t in mine.topics] == [("t", [2])]
    assert mine.transaction_timeout.total_seconds() * 1000 == TIMEOUT_MS
    assert (nobody.error_code, empty.error_code) == (105, 42)


@pytest.mark.parametrize("version", versions(27))
def test_a_marker_from_outside_ends_what_hangs(node: Node, run: Run, topic: None, version: int) -> None:
    me = run(producer(node))
    run(produce(node, me))
    marker = {
        "producer_id": me.producer_id,
        "producer_epoch": me.epoch,
        "transaction_result": False,
        "topics": [{"name": "t", "partition_indexes": [0]}, {"name": "no", "partition_indexes": [0]}],
        "coordinator_epoch": 0,
        "transaction_version": 2,
    }
    answer = run(ask(node, 27, version, markers=[marker]))
    assert [int(t.partitions[0].error_code) for t in answer.markers[0].topics] == [0, 3]
    assert held_back(node) == []
    assert run(end(node, me)).error_code == 0  # what is left of it


@pytest.mark.parametrize("version", versions(10, 1))  # version 0 knows groups only
def test_this_node_coordinates_transactions(node: Node, run: Run, version: int) -> None:
    if version < 4:
        found = run(ask(node, 10, version, key=NAME, key_type=1))
    else:
        (found, _) = run(ask(node, 10, version, coordinator_keys=[NAME, "b"], key_type=1)).coordinators
    assert (found.error_code, found.node_id, found.port) == (0, 7, 9092)


def test_the_second_protocol_is_announced(node: Node, run: Run) -> None:
    for version in versions(18):
        answer = run(ask(node, 18, version, client_software_name="x", client_software_version="1"))
        assert answer.error_code == 0
        if version >= 3:
            supported = {each.name: each for each in answer.supported_features}["transaction.version"]
            finalized = {each.name: each for each in answer.finalized_features}["transaction.version"]
            assert supported.max_version == 2
            assert supported.min_version == (0 if version >= 4 else 1)
            assert finalized.max_version_level == 2
            assert answer.finalized_features_epoch == 0
