"""The assignor of share groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.groups.share.assignor import Candidate, simple
from millstream.broker.groups.topics import Partition

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16

Targets = Mapping[str, frozenset[Partition]]


def member(*topics: bytes, has: frozenset[Partition] = frozenset()) -> Candidate:
    return Candidate(frozenset(topics), has)


def again(members: Mapping[str, Candidate], targets: Targets) -> dict[str, Candidate]:
    return {name: candidate._replace(has=targets[name]) for name, candidate in members.items()}


def readers(targets: Targets) -> Counter[Partition]:
    return Counter(partition for target in targets.values() for partition in target)


def test_every_partition_has_one_reader_while_there_are_enough_for_all_members() -> None:
    targets = simple({name: member(A, B) for name in "xyz"}, {A: 5, B: 3})
    assert sorted(map(len, targets.values())) == [2, 3, 3]
    assert set(readers(targets).values()) == {1}


def test_more_members_than_partitions_share_them_evenly() -> None:
    targets = simple({name: member(A) for name in "vwxyz"}, {A: 2})
    assert readers(targets) == {(A, 0): 3, (A, 1): 3}
    assert sorted(map(len, targets.values())) == [1, 1, 1, 1, 2]


def test_two_hundred_members_read_one_partition() -> None:
    targets = simple({f"m{number}": member(A) for number in range(200)}, {A: 1})
    assert set(targets.values()) == {frozenset({(A, 0)})}


def test_a_new_member_takes_only_what_it_has_to_get() -> None:
    members = {name: member(A) for name in "xy"}
    before = again(members, simple(members, {A: 9}))
    after = simple({**before, "z": member(A)}, {A: 9})
    assert sorted(map(len, after.values())) == [3, 3, 3]
    assert all(after[name] <= before[name].has for name in "xy")


def test_what_a_member_left_behind_goes_to_the_others_and_nothing_else_moves() -> None:
    members = {name: member(A) for name in "xyz"}
    before = again(members, simple(members, {A: 9}))
    del before["y"]
    after = simple(before, {A: 9})
    assert all(before[name].has <= after[name] for name in "xz")
    assert set(readers(after).values()) == {1}


def test_members_with_less_elsewhere_get_the_larger_parts() -> None:
    targets = simple({"x": member(A, B), "y": member(B)}, {A: 1, B: 3})
    assert {p for p in targets["x"] if p[0] == B} == {p for p in targets["x"] if p != (A, 0)}
    assert len(targets["x"]) == len(targets["y"]) == 2


def test_what_is_not_subscribed_to_or_not_there_any_more_is_taken_away() -> None:
    members = {"x": member(A, has=frozenset({(A, 0), (A, 7), (B, 0)})), "y": member(C)}
    assert simple(members, {A: 1, C: 0}) == {"x": {(A, 0)}, "y": set()}


TOPICS = st.frozensets(st.sampled_from([A, B, C]))
SIZES = st.fixed_dictionaries({topic: st.integers(0, 6) for topic in (A, B, C)})


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.lists(TOPICS, max_size=9), SIZES), min_size=1, max_size=6), st.booleans())
def test_however_members_come_and_go(
    rounds: list[tuple[list[frozenset[bytes]], dict[bytes, int]]], alike: bool
) -> None:
    has: Targets = {}
    for subscriptions, sizes in rounds:
        members = {
            f"m{number}": member(
                *(subscriptions[0] if alike else topics), has=has.get(f"m{number}", frozenset())
            )
            for number, topics in enumerate(subscriptions)
        }
        targets = simple(members, sizes)
        shared = readers(targets)
        for topic, count in sizes.items():
            subscribed = [name for name, each in members.items() if topic in each.topics]
            of_topic = {shared[(topic, index)] for index in range(count)}
            assert len(of_topic) <= 1  # all partitions of a topic are shared by the same number of members
            assert all(bool(number) == bool(subscribed) for number in of_topic)
        for name, target in targets.items():
            assert all(t in members[name].topics and i < sizes[t] for t, i in target)
            assert target or not any(sizes[topic] for topic in members[name].topics)  # nobody is idle
        if alike and targets:
            assert max(map(len, targets.values())) - min(map(len, targets.values())) <= 1
        assert simple(again(members, targets), sizes) == targets  # and then nothing moves
        has = targets
