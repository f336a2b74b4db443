"""The assignors of the consumer protocol."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.groups.consumer.assignors import ASSIGNORS, Candidate, Targets, by_range, uniform
from millstream.broker.groups.topics import Partition

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def member(
    *topics: bytes, has: set[Partition] | frozenset[Partition] = frozenset(), instance: str | None = None
) -> Candidate:
    return Candidate(instance, frozenset(topics), frozenset(has))


def moved(before: Mapping[str, Candidate], after: Targets) -> int:
    return sum(len(candidate.has - after.get(name, frozenset())) for name, candidate in before.items())


def again(members: Mapping[str, Candidate], targets: Targets) -> dict[str, Candidate]:
    return {name: candidate._replace(has=targets[name]) for name, candidate in members.items()}


def test_uniform_gives_everybody_the_same_number() -> None:
    targets = uniform({name: member(A, B) for name in "xyz"}, {A: 5, B: 3})
    assert sorted(map(len, targets.values())) == [2, 3, 3]


def test_uniform_moves_only_what_a_new_member_has_to_get() -> None:
    members = {name: member(A) for name in "xy"}
    before = again(members, uniform(members, {A: 9}))
    after = uniform({**before, "z": member(A)}, {A: 9})
    assert sorted(map(len, after.values())) == [3, 3, 3]
    assert moved(before, after) == 3


def test_uniform_gives_what_a_member_left_behind_to_the_others_and_moves_nothing_else() -> None:
    members = {name: member(A) for name in "xyz"}
    before = again(members, uniform(members, {A: 9}))
    del before["y"]
    after = uniform(before, {A: 9})
    assert moved(before, after) == 0
    assert sorted(map(len, after.values())) == [4, 5]


def test_uniform_changes_nothing_where_nothing_changed() -> None:
    members = {name: member(A, B) for name in "xyz"}
    before = again(members, uniform(members, {A: 5, B: 5}))
    assert uniform(before, {A: 5, B: 5}) == {name: candidate.has for name, candidate in before.items()}


def test_uniform_takes_back_what_is_not_subscribed_to_or_not_there_any_more() -> None:
    members = {"x": member(A, has={(A, 0), (A, 7), (B, 0)}), "y": member(A)}
    assert set().union(*uniform(members, {A: 2, B: 1}).values()) == {(A, 0), (A, 1)}


def test_uniform_levels_members_with_different_subscriptions_as_far_as_these_allow() -> None:
    members = {"x": member(A, B), "y": member(A), "z": member(C)}
    targets = uniform(members, {A: 6, B: 2, C: 1})
    assert {p for p in targets["x"] if p[0] == B} == {(B, 0), (B, 1)}
    assert len(targets["x"]) == len(targets["y"]) == 4
    assert targets["z"] == {(C, 0)}


def test_range_gives_neighbours_and_the_same_indexes_of_each_topic() -> None:
    targets = by_range({"m1": member(A, B), "m0": member(A, B)}, {A: 3, B: 3})
    assert targets["m0"] == {(A, 0), (A, 1), (B, 0), (B, 1)}
    assert targets["m1"] == {(A, 2), (B, 2)}


def test_range_orders_static_members_by_the_name_they_keep() -> None:
    before = by_range(
        {"m1": member(A, instance="i1"), "m2": member(A, instance="i2"), "a": member(A)}, {A: 3}
    )
    after = by_range({"m9": member(A, instance="i1"), "m3": member(A, instance="i2"), "a": member(A)}, {A: 3})
    assert before["m1"] == after["m9"] == {(A, 0)}
    assert before["m2"] == after["m3"] == {(A, 1)}
    assert before["a"] == {(A, 2)}


def test_range_gives_each_topic_to_its_own_readers() -> None:
    targets = by_range({"x": member(A), "y": member(A, B)}, {A: 2, B: 2})
    assert targets == {"x": {(A, 0)}, "y": {(A, 1), (B, 0), (B, 1)}}


@pytest.mark.parametrize("name", ASSIGNORS)
def test_without_members_nothing_is_assigned(name: str) -> None:
    assert ASSIGNORS[name]({}, {}) == {}


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(max_examples=60, deadline=None)
@given(
    counts=st.fixed_dictionaries({A: st.integers(0, 12), B: st.integers(0, 5), C: st.integers(1, 3)}),
    subscriptions=st.lists(st.frozensets(st.sampled_from([A, B, C])), min_size=1, max_size=9),
    had=st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(0, 12)), max_size=20),
)
def test_every_partition_goes_to_one_reader_of_its_topic(
    name: str, counts: dict[bytes, int], subscriptions: list[frozenset[bytes]], had: list[Partition]
) -> None:
    members = {
        f"m{number}": Candidate(None, topics, frozenset(had[number :: len(subscriptions)]))
        for number, topics in enumerate(subscriptions)
    }
    targets = ASSIGNORS[name](members, counts)
    given_out = [partition for target in targets.values() for partition in target]
    read = frozenset[bytes]().union(*subscriptions)
    assert sorted(given_out) == sorted((t, i) for t in read for i in range(counts[t]))
    for member_id, target in targets.items():
        assert {topic for topic, _ in target} <= members[member_id].topics
    if name == "uniform":
        for giver, target in targets.items():
            for topic in {topic for topic, _ in target}:
                for taker, candidate in members.items():
                    if topic in candidate.topics:
                        assert len(targets[giver]) - len(targets[taker]) < 2, "one could be moved"
