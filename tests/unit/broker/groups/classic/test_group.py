"""The classic group protocol: every rule of it with time held still, and any order of events at all."""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from millstream.broker.groups.classic import snapshot
from millstream.broker.groups.classic.group import TRANSITIONS, ClassicGroup, ClassicState
from millstream.broker.groups.classic.member import JoinRequest, JoinResponse, Protocols, SyncResponse
from millstream.core.clock import ManualClock
from millstream.wire.consumer_protocol import subscribed_topics

SESSION, REBALANCE = 10.0, 60.0
RANGE: Protocols = (("range", b"r"),)


def subscription(*topics: str, version: int = 1, owned: bytes = b"") -> bytes:
    names = b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)
    return struct.pack(">hi", version, len(topics)) + names + struct.pack(">i", -1) + owned


class Table:
    """A group, a clock, and the requests made of it, each under the number it was made as."""

    def __init__(self, *, initial_delay: float = 0.0, max_size: int = 1000) -> None:
        self.clock = ManualClock()
        self.group = ClassicGroup("g", initial_delay=initial_delay, max_size=max_size)
        self.answered: dict[int, JoinResponse | SyncResponse] = {}
        self._numbers = itertools.count()

    def _collect(self) -> None:
        for waiter, answer in self.group.take_answers():
            assert waiter not in self.answered, "answered twice"
            self.answered[waiter] = answer

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: Protocols = RANGE,
        protocol_type: str = "consumer",
        id_required: bool = False,
        can_skip: bool = False,
        rebalance: float = REBALANCE,
        session: float = SESSION,
    ) -> int:
        number = next(self._numbers)
        join = JoinRequest(
            member_id,
            instance,
            "client",
            "host",
            session,
            rebalance,
            protocol_type,
            protocols,
            id_required=id_required,
            can_skip_assignment=can_skip,
        )
        self.group.join(join, number, self.clock.monotonic())
        self._collect()
        return number

    def sync(
        self,
        member_id: str,
        assignments: dict[str, bytes] | None = None,
        *,
        generation: int | None = None,
        instance: str | None = None,
        protocol: str | None = None,
    ) -> int:
        number = next(self._numbers)
        self.group.sync(
            member_id,
            instance,
            self.group.generation if generation is None else generation,
            None,
            protocol,
            assignments or {},
            number,
            self.clock.monotonic(),
        )
        self._collect()
        return number

    def leave(self, *members: tuple[str, str | None]) -> list[int]:
        errors = self.group.leave(members, self.clock.monotonic())
        self._collect()
        return errors

    def heartbeat(self, member_id: str, *, generation: int | None = None, instance: str | None = None) -> int:
        generation = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, instance, generation, self.clock.monotonic())

    def commit(self, member_id: str, *, generation: int | None = None, instance: str | None = None) -> int:
        generation = self.group.generation if generation is None else generation
        return self.group.check_commit(member_id, instance, generation, self.clock.monotonic())

    def abandon(self, number: int) -> None:
        self.group.abandon(number, self.clock.monotonic())
        self._collect()

    def wait(self, seconds: float) -> None:
        """Time passes, as the broker lets it: a tick whenever the group asked for one."""
        end = self.clock.monotonic() + seconds
        while self.group.wake_at <= end:
            self.clock.advance(max(self.group.wake_at - self.clock.monotonic(), 0.0))
            self.group.tick(self.clock.monotonic())
            self._collect()
        self.clock.advance(end - self.clock.monotonic())

    def joined(self, number: int) -> JoinResponse:
        answer = self.answered[number]
        assert isinstance(answer, JoinResponse)
        return answer

    def synced(self, number: int) -> SyncResponse:
        answer = self.answered[number]
        assert isinstance(answer, SyncResponse)
        return answer

    def stable(self, count: int, **options: object) -> list[str]:
        """A stable group of ``count`` members, the leader first; each is assigned its own number."""
        first = self.join(**options)  # type: ignore[arg-type]
        ids = [self.joined(first).member_id]
        for _ in range(count - 1):
            newcomer = self.join(**options)  # type: ignore[arg-type]
            others = [self.join(member_id, **options) for member_id in ids]  # type: ignore[arg-type]
            assert all(self.joined(other).error == 0 for other in others)
            ids.append(self.joined(newcomer).member_id)
        leader = self.group.leader
        assert leader is not None
        assignments = {member_id: str(n).encode() for n, member_id in enumerate(ids)}
        syncs = [self.sync(member_id, assignments) for member_id in sorted(ids, key=leader.__eq__)]
        assert all(self.synced(number).error == 0 for number in syncs)
        assert self.group.state is ClassicState.STABLE
        return sorted(ids, key=lambda member_id: member_id != leader)


# Joining


def test_a_single_member_leads_and_assigns_to_itself() -> None:
    table = Table()
    answer = table.joined(table.join())
    assert (answer.error, answer.generation, answer.protocol) == (0, 1, "range")
    assert answer.leader == answer.member_id
    assert answer.member_id.startswith("client-")
    assert list(answer.members) == [(answer.member_id, None, b"r")]
    sync = table.synced(table.sync(answer.member_id, {answer.member_id: b"all"}))
    assert sync == SyncResponse(0, "consumer", "range", b"all")
    assert table.group.state is ClassicState.STABLE


def test_a_new_member_is_given_its_id_first_where_the_client_can_come_back_with_it() -> None:
    table = Table()
    answer = table.joined(table.join(id_required=True))
    assert answer.error == 79
    assert table.group.state is ClassicState.EMPTY
    assert not table.group.members
    assert table.joined(table.join(answer.member_id, id_required=True)).error == 0
    assert list(table.group.members) == [answer.member_id]


def test_a_given_id_that_is_not_used_expires_with_the_session() -> None:
    table = Table()
    member_id = table.joined(table.join(id_required=True)).member_id
    table.wait(SESSION)
    assert not table.group.pending
    assert table.joined(table.join(member_id)).error == 25


def test_a_rebalance_waits_for_the_members_it_gave_ids_to() -> None:
    table = Table()
    (leader,) = table.stable(1)
    pending = table.joined(table.join(id_required=True)).member_id
    assert table.group.state is ClassicState.STABLE
    rejoin = table.join(leader)
    assert rejoin not in table.answered
    newcomer = table.join(pending)
    assert table.joined(rejoin).generation == table.joined(newcomer).generation == 2
    assert len(table.joined(rejoin).members) == 2
    assert len(table.joined(newcomer).members) == 0


def test_a_rebalance_goes_on_without_a_pending_member_that_never_comes() -> None:
    table = Table()
    (leader,) = table.stable(1)
    table.join(id_required=True)
    rejoin = table.join(leader)
    table.wait(SESSION)
    assert table.joined(rejoin).generation == 2


def test_an_id_the_group_never_gave_is_unknown() -> None:
    table = Table()
    assert table.joined(table.join("made-up")).error == 25
    table.stable(1)
    assert table.joined(table.join("made-up")).error == 25


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("", RANGE), ("consumer", ()), ("connect", RANGE), ("consumer", (("sticky", b""),))],
)
def test_a_member_that_speaks_no_common_protocol_is_refused(protocol_type: str, protocols: Protocols) -> None:
    table = Table()
    if protocol_type == "connect" or (protocols and protocols != RANGE):
        table.stable(1)
    answer = table.joined(table.join(protocol_type=protocol_type, protocols=protocols))
    assert answer.error == 23


def test_the_protocol_most_members_prefer_among_those_all_speak_is_chosen() -> None:
    table = Table(initial_delay=1)
    for names in (["a", "b", "c"], ["b", "a"], ["c", "b", "a"], ["d", "b", "a"]):
        table.join(protocols=tuple((name, b"") for name in names), session=1000)
    table.wait(SESSION)
    # c and d are not spoken by all; of a and b: a has one vote, b three.
    assert table.group.protocol == "b"


def test_a_first_generation_waits_for_more_members_but_not_beyond_the_rebalance_timeout() -> None:
    table = Table(initial_delay=3)
    first = table.join(rebalance=8)
    table.wait(2)
    second = table.join(rebalance=8)
    table.wait(2)
    third = table.join(rebalance=8)
    assert not table.answered
    table.wait(4)
    assert {table.joined(n).generation for n in (first, second, third)} == {1}
    assert len(table.joined(first).members) == 3


def test_a_group_takes_no_more_members_than_its_size() -> None:
    table = Table(max_size=2)
    ids = table.stable(2)
    answer = table.joined(table.join())
    assert (answer.error, answer.member_id) == (81, "")
    assert table.joined(table.join(ids[1])).error == 0
    # While it rebalances the ones who come first stay.
    table = Table(max_size=2)
    leader, follower = table.stable(2)
    table.join(leader)
    table.join(follower, protocols=(("range", b"other"),))
    assert table.group.state is ClassicState.COMPLETING
    assert table.joined(table.join()).error == 81


def test_joins_beyond_the_size_during_a_rebalance_are_refused_and_do_not_hold_it_up() -> None:
    table = Table(max_size=3)
    leader, follower = table.stable(2)
    newcomer, rejoin = table.join(), table.join(leader)
    table.group.max_size = 2
    late = table.join(follower)
    assert table.joined(late).error == 81
    assert table.joined(newcomer).error == 0
    assert table.joined(rejoin).error == 0


def test_a_follower_that_joins_again_unchanged_does_not_disturb_a_stable_group() -> None:
    table = Table()
    _, follower = table.stable(2)
    answer = table.joined(table.join(follower))
    assert (answer.error, answer.generation, answer.members) == (0, 2, [])
    assert table.group.state is ClassicState.STABLE
    assert table.synced(table.sync(follower)).assignment == b"1"


def test_the_leader_joining_again_and_changed_metadata_are_rebalances() -> None:
    for who, protocols in ((0, RANGE), (1, (("range", b"changed"),))):
        table = Table()
        ids = table.stable(2)
        waiting = table.join(ids[who], protocols=protocols)
        assert waiting not in table.answered
        assert table.group.state is ClassicState.PREPARING
        assert table.heartbeat(ids[1 - who]) == 27


def test_a_member_that_lost_the_answer_to_its_join_gets_it_again() -> None:
    table = Table()
    first = table.joined(table.join())
    assert table.joined(table.join(first.member_id)) == first
    assert table.group.state is ClassicState.COMPLETING


def test_only_the_last_join_of_a_member_waits_the_earlier_is_answered() -> None:
    table = Table()
    ids = table.stable(2)
    first, second = table.join(ids[0]), table.join(ids[0])
    assert table.joined(first).error == 27
    assert second not in table.answered
    table.join(ids[1])
    assert table.joined(second).error == 0


def test_who_has_not_rejoined_within_the_rebalance_timeout_is_out() -> None:
    table = Table()
    ids = table.stable(3, session=1000)
    newcomer = table.join(session=1000)
    rejoined = table.join(ids[1], session=1000)
    table.wait(REBALANCE)
    answer = table.joined(rejoined)
    assert (answer.error, answer.leader) == (0, ids[1])  # the leader did not come: another leads
    assert {member_id for member_id, _, _ in answer.members} == {
        ids[1],
        table.joined(newcomer).member_id,
    }
    assert table.heartbeat(ids[0]) == 25


def test_a_new_member_whose_client_is_gone_does_not_hold_up_the_others() -> None:
    table = Table()
    (leader,) = table.stable(1)
    gone = table.join()
    table.abandon(gone)
    assert table.joined(gone).error == 25
    rejoin = table.join(leader)
    assert len(table.joined(rejoin).members) == 1


def test_a_known_member_whose_client_is_gone_keeps_its_place_for_its_session() -> None:
    table = Table()
    ids = table.stable(2)
    lost = table.join(ids[0])
    table.abandon(lost)
    assert ids[0] in table.group.members
    again = table.join(ids[0])
    table.join(ids[1])
    assert table.joined(again).error == 0


def test_a_new_member_s_join_does_not_wait_for_ever() -> None:
    table = Table()
    table.stable(1, session=10_000, rebalance=10_000)
    newcomer = table.join(rebalance=10_000)
    table.wait(299)
    assert newcomer not in table.answered
    table.wait(2)
    assert table.joined(newcomer).error == 25


# Syncing


def test_followers_wait_for_the_leader_s_assignment_and_each_gets_its_own() -> None:
    table = Table()
    first = table.joined(table.join()).member_id
    newcomer = table.join()
    rejoin = table.joined(table.join(first))
    second = table.joined(newcomer).member_id
    waiting = table.sync(second)
    assert waiting not in table.answered
    leading = table.sync(first, {first: b"1", second: b"2", "stranger": b"3"})
    assert rejoin.leader == first
    assert table.synced(leading).assignment == b"1"
    assert table.synced(waiting).assignment == b"2"


def test_a_member_the_leader_forgot_gets_an_empty_assignment() -> None:
    table = Table()
    member_id = table.joined(table.join()).member_id
    assert table.synced(table.sync(member_id, {"other": b"x"})) == SyncResponse(0, "consumer", "range", b"")


@pytest.mark.parametrize(
    ("change", "error"),
    [({"generation": 7}, 22), ({"protocol": "sticky"}, 23), ({"instance": "i"}, 25)],
)
def test_a_sync_that_does_not_fit_is_refused(change: dict[str, object], error: int) -> None:
    table = Table()
    member_id = table.joined(table.join()).member_id
    assert table.synced(table.sync(member_id, **change)).error == error  # type: ignore[arg-type]
    assert table.synced(table.sync("stranger")).error == 25


def test_syncs_that_wait_are_sent_back_when_somebody_joins_or_leaves() -> None:
    table = Table()
    leader, follower = table.stable(2)
    table.join(follower, protocols=(("range", b"x"),))
    table.join(leader)
    waiting = table.sync(follower)
    table.join()
    assert table.synced(waiting).error == 27
    assert table.synced(table.sync(leader)).error == 27


def test_who_never_syncs_is_out_after_the_rebalance_timeout() -> None:
    table = Table()
    table.join(session=1000)
    first = table.group.leader or ""
    table.join(session=1000)
    table.join(first, session=1000)
    table.sync(first, {first: b"1"})
    assert table.group.state is ClassicState.STABLE
    table.wait(REBALANCE)
    assert list(table.group.members) == [first]
    assert table.group.state is ClassicState.PREPARING
    assert table.heartbeat(first) == 27


def test_a_leader_that_never_assigns_is_replaced_and_its_followers_sent_back() -> None:
    table = Table()
    table.join(session=1000)
    first = table.group.leader or ""
    newcomer = table.join(session=1000)
    table.join(first, session=1000)
    second = table.joined(newcomer).member_id
    waiting = table.sync(second)
    table.wait(REBALANCE)
    assert table.synced(waiting).error == 27
    rejoin = table.joined(table.join(second))
    assert (rejoin.error, rejoin.leader) == (0, second)


# Sessions


def test_heartbeats_keep_a_member_and_silence_loses_it() -> None:
    table = Table()
    ids = table.stable(2)
    for _ in range(5):
        table.wait(SESSION - 1)
        assert table.heartbeat(ids[0]) in (0, 27)
    assert list(table.group.members) == [ids[0]]
    assert table.heartbeat(ids[1]) == 25


def test_a_stable_group_whose_members_heartbeat_is_left_alone() -> None:
    table = Table()
    ids = table.stable(3)
    for _ in range(40):
        table.wait(SESSION / 3)
        assert [table.heartbeat(member_id) for member_id in ids] == [0, 0, 0]
    assert table.group.generation == 3


def test_the_last_member_s_silence_empties_the_group() -> None:
    table = Table()
    table.stable(1)
    table.wait(SESSION)
    assert table.group.state is ClassicState.EMPTY
    assert table.group.generation == 2
    assert table.group.protocol is None


def test_a_member_that_waits_for_the_group_does_not_lose_its_session() -> None:
    table = Table()
    ids = table.stable(2, session=SESSION)
    waiting = table.join(ids[0])
    for _ in range(3):
        table.wait(SESSION - 1)
        table.heartbeat(ids[1])
    assert waiting not in table.answered
    table.join(ids[1])
    assert table.joined(waiting).error == 0


@pytest.mark.parametrize(("generation", "error"), [(1, 0), (0, 22), (2, 22), (-1, 22)])
def test_a_heartbeat_of_another_generation_is_refused(generation: int, error: int) -> None:
    table = Table()
    (member_id,) = table.stable(1)
    assert table.heartbeat(member_id, generation=generation) == error


def test_members_may_heartbeat_while_the_assignment_is_awaited() -> None:
    table = Table()
    member_id = table.joined(table.join()).member_id
    assert table.heartbeat(member_id) == 0


# Leaving


def test_leaving_rebalances_the_rest_and_answers_for_each_member() -> None:
    table = Table()
    ids = table.stable(3)
    assert table.leave((ids[0], None), ("stranger", None), ("", "no-such-instance"), ("", None)) == [
        0,
        25,
        25,
        25,
    ]
    assert table.group.state is ClassicState.PREPARING
    assert table.group.leader == ids[1]
    rejoined = table.join(ids[1])
    table.join(ids[2])
    assert len(table.joined(rejoined).members) == 2


def test_a_group_all_have_left_is_empty_and_can_be_joined_again() -> None:
    table = Table()
    ids = table.stable(2)
    table.leave(*[(member_id, None) for member_id in ids])
    assert table.group.state is ClassicState.EMPTY
    answer = table.joined(table.join(protocol_type="connect", protocols=(("other", b""),)))
    assert (answer.error, answer.protocol_type, answer.generation) == (0, "connect", 4)


def test_who_leaves_while_its_join_or_sync_waits_is_answered() -> None:
    table = Table()
    ids = table.stable(2)
    joining = table.join(ids[0])
    assert table.leave((ids[0], None)) == [0]
    assert table.joined(joining).error == 25
    table.join(ids[1])
    newcomer = table.join()
    table.join(ids[1])
    syncing = table.sync(table.joined(newcomer).member_id)
    assert table.leave((table.joined(newcomer).member_id, None)) == [0]
    assert table.synced(syncing).error == 25


def test_a_pending_member_may_leave() -> None:
    table = Table()
    pending = table.joined(table.join(id_required=True)).member_id
    assert table.leave((pending, None)) == [0]
    assert table.joined(table.join(pending)).error == 25


# Static members


def test_a_static_member_s_restart_does_not_rebalance_a_stable_group() -> None:
    for can_skip in (False, True):
        table = Table()
        ids = table.stable(1, instance="one")
        newcomer = table.join(instance="two")
        table.join(ids[0], instance="one")
        follower = table.joined(newcomer).member_id
        table.sync(ids[0], {ids[0]: b"a", follower: b"b"}, instance="one")
        table.sync(follower, instance="two")
        agreed = table.group.agreement

        again = table.joined(table.join(instance="two", can_skip=can_skip))
        assert (again.error, again.generation) == (0, 2)
        assert again.member_id != follower
        assert again.member_id.startswith("two-")
        assert table.group.state is ClassicState.STABLE
        assert table.synced(table.sync(again.member_id, instance="two")).assignment == b"b"
        assert table.group.agreement == agreed + 1

        # The old one is fenced, wherever it turns up.
        assert table.heartbeat(follower, instance="two") == 82
        assert table.synced(table.sync(follower, instance="two")).error == 82
        assert table.joined(table.join(follower, instance="two")).error == 82
        assert table.commit(follower, instance="two") == 82
        assert table.leave((follower, "two")) == [82]
        # Without its instance id it is simply unknown.
        assert table.heartbeat(follower) == 25

        # The leader's restart: it must not assign again.
        leader = table.joined(table.join(instance="one", can_skip=can_skip))
        assert leader.error == 0
        if can_skip:
            assert leader.leader == leader.member_id
            assert leader.skip_assignment
            assert len(leader.members) == 2
        else:
            assert leader.leader == ids[0] != leader.member_id
            assert not leader.members
        assert table.synced(table.sync(leader.member_id, instance="one")).assignment == b"a"
        assert table.group.state is ClassicState.STABLE


def test_a_static_member_back_with_another_subscription_is_a_rebalance() -> None:
    table = Table()
    before = (("range", subscription("t", owned=b"old")),)
    table.stable(1, instance="one", protocols=before)
    same = (("range", subscription("t", version=3, owned=b"new")),)
    assert table.joined(table.join(instance="one", protocols=same)).generation == 1
    changed = (("range", subscription("t", "u")),)
    assert table.joined(table.join(instance="one", protocols=changed)).generation == 2


def test_a_static_member_s_restart_while_the_assignment_is_awaited_is_a_rebalance() -> None:
    table = Table()
    first = table.joined(table.join(instance="one"))
    assert table.group.state is ClassicState.COMPLETING
    again = table.joined(table.join(instance="one"))
    assert again.generation == first.generation + 1


def test_a_waiting_join_or_sync_of_a_replaced_static_member_is_fenced() -> None:
    table = Table()
    table.stable(1, instance="one", session=1000)
    dynamic = table.join(session=1000)
    old = table.join(table.group.leader or "", instance="one")
    assert table.joined(old).error == 0
    waiting = table.sync(table.joined(dynamic).member_id)
    assert waiting not in table.answered
    table.join(instance="one")  # COMPLETING: a rebalance; the dynamic member is sent back
    assert table.synced(waiting).error == 27
    joining = table.join(instance="one")
    assert joining not in table.answered
    table.join(instance="one")
    assert table.joined(joining).error == 82


def test_a_static_member_that_is_away_keeps_its_place_for_its_session() -> None:
    table = Table()
    table.join(instance="one", session=200)
    away = table.group.leader or ""
    newcomer = table.join(instance="two", session=200)
    table.join(away, instance="one", session=200)
    here = table.joined(newcomer).member_id
    table.sync(away, {away: b"a", here: b"b"}, instance="one")
    table.sync(here, instance="two")
    table.join(here, instance="two", protocols=(("range", b"more"),), session=200)
    table.wait(REBALANCE)  # "one" does not rejoin, and is still counted
    assert set(table.group.members) == {away, here}
    assert table.group.leader == here
    table.sync(here, {away: b"a", here: b"b"}, instance="two")
    back = table.joined(table.join(instance="one", session=200))
    assert table.synced(table.sync(back.member_id, instance="one")).assignment == b"a"


def test_a_rebalance_nobody_comes_to_ends_with_the_sessions() -> None:
    table = Table()
    table.join(instance="one", session=100)
    first = table.group.leader or ""
    table.sync(first, {first: b""}, instance="one")
    dynamic = table.join()
    table.leave((table.joined(dynamic).member_id if dynamic in table.answered else "", None))
    table.abandon(dynamic)
    table.wait(500)
    assert table.group.state is ClassicState.EMPTY


def test_a_static_member_is_sent_away_by_its_instance_id_alone() -> None:
    table = Table()
    table.stable(1, instance="one")
    assert table.leave(("", "one")) == [0]
    assert table.group.state is ClassicState.EMPTY


# Commits


def test_who_may_commit() -> None:
    table = Table()
    assert table.commit("", generation=-1) == 0  # nobody is here: a simple consumer
    assert table.commit("x", generation=1) == 25
    member_id = table.joined(table.join()).member_id
    assert table.commit(member_id) == 27  # it has joined, but not got its assignment yet
    table.sync(member_id)
    assert table.commit(member_id) == 0
    assert table.commit(member_id, generation=0) == 22
    assert table.commit("stranger") == 25
    assert table.commit("", generation=-1) == 25  # members are here: nobody commits from outside
    table.join()
    assert table.commit(member_id) == 0  # while rebalancing: the last chance before it gives partitions up


def test_a_commit_keeps_the_session_alive() -> None:
    table = Table()
    (member_id,) = table.stable(1)
    table.wait(SESSION - 1)
    assert table.commit(member_id) == 0
    table.wait(SESSION - 1)
    assert table.heartbeat(member_id) == 0


# The end, and a new beginning


def test_a_dead_group_answers_everyone_who_waits() -> None:
    table = Table()
    ids = table.stable(2)
    joining = table.join(ids[0])
    table.group.kill()
    table._collect()
    assert table.joined(joining).error == 15
    assert table.joined(table.join()).error == 15
    assert table.synced(table.sync(ids[1])).error == 15
    assert table.heartbeat(ids[1]) == 15 or table.group.state is ClassicState.DEAD
    assert table.leave((ids[1], None)) == [15]
    assert table.commit(ids[1]) == 15
    table.wait(1000)


def test_a_restored_group_goes_on_where_it_was() -> None:
    table = Table()
    ids = table.stable(2)
    text = snapshot.to_text(table.group)
    again = Table()
    snapshot.restore(again.group, json.loads(text), again.clock.monotonic())
    assert again.group.state is ClassicState.STABLE
    assert again.group.leader == ids[0]
    assert again.heartbeat(ids[1]) == 0
    assert again.synced(again.sync(ids[1])).assignment == b"1"
    again.wait(SESSION - 1)
    again.heartbeat(ids[0])
    again.wait(2)
    assert list(again.group.members) == [ids[0]]
    rejoin = again.join(ids[0])
    assert again.joined(rejoin).generation == 3


def test_a_group_that_rebalances_is_written_down_without_members() -> None:
    table = Table()
    ids = table.stable(1)
    table.join()
    again = Table()
    snapshot.restore(again.group, json.loads(snapshot.to_text(table.group)), 0.0)
    assert again.group.state is ClassicState.EMPTY
    assert again.group.generation == 1
    assert again.heartbeat(ids[0]) == 25


def test_topics_of_a_subscription_are_read_from_any_version_and_garbage_is_known_as_such() -> None:
    assert subscribed_topics(subscription("a", "b", version=3, owned=b"whatever")) == {"a", "b"}
    for garbage in (b"", b"\0", b"\0\1\0\0\0\5\0\1a", b"\0\1\0\0\0\1\0\1\xff", b"\0\1\0\0\0\1\xff\xffa"):
        assert subscribed_topics(garbage) is None


def test_the_transition_table_reaches_every_state_and_leaves_dead_for_good() -> None:
    assert set(TRANSITIONS) == set(ClassicState)
    assert {state for targets in TRANSITIONS.values() for state in targets} == set(ClassicState)
    assert not TRANSITIONS[ClassicState.DEAD]


# Any order at all


class Actor:
    """A client as the machine below plays it: it may do the right thing, or anything else."""

    def __init__(self, number: int) -> None:
        self.instance = f"i{number}" if number % 3 == 0 else None
        self.metadata = 0
        self.alive = False
        self.forget()

    def forget(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.joining: int | None = None
        self.syncing: int | None = None
        self.leads: Sequence[tuple[str, str | None, bytes]] = ()
        self.assigned: bytes | None = None


class AnyOrder(RuleBasedStateMachine):
    """Joins, syncs, heartbeats, departures, crashes and time, in any order, by members that do not behave."""

    ACTORS = 6

    @initialize(delay=st.sampled_from([0.0, 2.0]), size=st.sampled_from([1000, 4]))
    def start(self, delay: float, size: int) -> None:
        self.group = ClassicGroup("g", initial_delay=delay, max_size=size)
        self.clock = ManualClock()
        self.actors = [Actor(n) for n in range(self.ACTORS)]
        self.numbers = itertools.count()
        self.waiting: dict[int, tuple[Actor, int]] = {}  # waiter -> who, and the generation of a sync
        self.made: dict[int, dict[str, bytes]] = {}  # generation -> what its leader assigned

    def now(self) -> float:
        return self.clock.monotonic()

    def collect(self) -> None:
        for waiter, answer in self.group.take_answers():
            actor, generation = self.waiting.pop(waiter)  # KeyError: answered twice
            if isinstance(answer, JoinResponse):
                self.on_join(actor, waiter, answer)
            else:
                self.on_sync(actor, waiter, answer, generation)

    def on_join(self, actor: Actor, waiter: int, answer: JoinResponse) -> None:
        if actor.joining != waiter:
            return  # to a client that crashed or joined again since
        actor.joining = None
        if answer.error == 0:
            actor.member_id, actor.generation = answer.member_id, answer.generation
            actor.leads = answer.members if not answer.skip_assignment else ()
            actor.assigned = None
            assert answer.generation == self.group.generation
            assert answer.member_id in self.group.members
        elif answer.error == 79:
            actor.member_id = answer.member_id
        elif answer.error in (25, 82):
            actor.forget()

    def on_sync(self, actor: Actor, waiter: int, answer: SyncResponse, generation: int) -> None:
        if answer.error == 0:
            member_id = self.syncs[waiter]
            assert generation == self.group.generation
            assert member_id in self.group.members
            made = self.made[generation]
            instance = self.group.members[member_id].instance_id
            if instance is None:
                assert answer.assignment == made.get(member_id, b"")
            else:
                assert answer.assignment in [*made.values(), b""]
        if actor.syncing != waiter:
            return
        actor.syncing = None
        if answer.error == 0:
            actor.assigned = answer.assignment
        elif answer.error in (25, 82):
            actor.forget()
        elif answer.error in (22, 27):
            actor.generation = -1

    @property
    def syncs(self) -> dict[int, str]:
        return self.__dict__.setdefault("_syncs", {})

    def join(self, actor: Actor, id_required: bool) -> None:
        actor.alive = True
        number = next(self.numbers)
        actor.joining = number
        self.waiting[number] = (actor, -1)
        protocols = (("range", b"%d" % actor.metadata), ("sticky", b""))
        self.group.join(
            JoinRequest(
                actor.member_id,
                actor.instance,
                "c",
                "h",
                SESSION,
                REBALANCE,
                "consumer",
                protocols,
                id_required=id_required,
                can_skip_assignment=id_required,
            ),
            number,
            self.now(),
        )
        self.collect()

    def sync(self, actor: Actor) -> None:
        number = next(self.numbers)
        actor.syncing = number
        self.waiting[number] = (actor, actor.generation)
        self.syncs[number] = actor.member_id
        assignments = {m: f"{actor.generation}:{m}".encode() for m, _, _ in actor.leads}
        if (
            self.group.state is ClassicState.COMPLETING
            and actor.member_id == self.group.leader
            and actor.generation == self.group.generation
        ):
            self.made[actor.generation] = assignments
        self.group.sync(
            actor.member_id,
            actor.instance,
            actor.generation,
            "consumer",
            None,
            assignments,
            number,
            self.now(),
        )
        self.collect()

    @rule(n=st.integers(0, ACTORS - 1), id_required=st.booleans(), changed=st.booleans())
    def someone_joins(self, n: int, id_required: bool, changed: bool) -> None:
        self.actors[n].metadata += changed
        self.join(self.actors[n], id_required)

    def behave(self, actor: Actor) -> None:
        """The next thing a proper client would do."""
        if actor.joining is not None or actor.syncing is not None:
            return
        if actor.generation < 0 or not actor.member_id:
            self.join(actor, True)
        elif actor.assigned is None:
            self.sync(actor)
        elif error := self.group.heartbeat(actor.member_id, actor.instance, actor.generation, self.now()):
            actor.generation = -1
            if error in (25, 82):
                actor.forget()

    @rule(who=st.lists(st.integers(0, ACTORS - 1), min_size=1, max_size=20))
    def some_behave(self, who: list[int]) -> None:
        for n in who:
            self.behave(self.actors[n])

    @rule(rounds=st.integers(1, 4))
    def all_but_the_leader_behave(self, rounds: int) -> None:
        for actor in self.actors * rounds:
            if actor.member_id != self.group.leader or self.group.state is not ClassicState.COMPLETING:
                self.behave(actor)

    @rule(n=st.integers(0, ACTORS - 1))
    def someone_syncs(self, n: int) -> None:
        self.sync(self.actors[n])

    @rule(n=st.integers(0, ACTORS - 1))
    def someone_heartbeats(self, n: int) -> None:
        actor = self.actors[n]
        error = self.group.heartbeat(actor.member_id, actor.instance, actor.generation, self.now())
        assert error in (0, 22, 25, 27, 82)
        assert (error in (0, 27)) == (
            actor.member_id in self.group.members
            and actor.generation == self.group.generation
            and self.group.members[actor.member_id].instance_id in (None, actor.instance)
        )

    @rule(n=st.integers(0, ACTORS - 1))
    def someone_leaves(self, n: int) -> None:
        actor = self.actors[n]
        self.group.leave([(actor.member_id, actor.instance)], self.now())
        self.collect()
        actor.forget()
        actor.alive = False

    @rule(n=st.integers(0, ACTORS - 1), noticed=st.booleans())
    def someone_crashes(self, n: int, noticed: bool) -> None:
        actor = self.actors[n]
        if noticed and actor.joining is not None:
            self.group.abandon(actor.joining, self.now())
            self.collect()
        actor.forget()
        actor.alive = False

    @rule(seconds=st.sampled_from([0.5, 3.0, SESSION + 0.5, REBALANCE + 1]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        if self.group.wake_at <= self.now():
            self.group.tick(self.now())
            self.collect()
        assert self.group.wake_at > self.now()

    @invariant()
    def no_waiting_request_is_forgotten(self) -> None:
        if not hasattr(self, "group"):
            return
        members = self.group.members.values()
        held = {w for m in members for w in (m.joining, m.syncing) if w is not None}
        assert held == set(self.waiting)
        assert self.group._joining == sum(1 for m in members if m.joining is not None)

    @invariant()
    def the_group_is_of_one_piece(self) -> None:
        if not hasattr(self, "group"):
            return
        group = self.group
        assert (group.state is ClassicState.EMPTY) <= (not group.members)
        assert (group.leader is None) == (not group.members)
        assert group.leader is None or group.leader in group.members
        assert group._unsynced <= set(group.members)
        assert set(group._roster._static.values()) == {
            m.member_id for m in group.members.values() if m.instance_id is not None
        }
        if group.members:
            assert group._roster.select_protocol() in ("range", "sticky")
        if group.state in (ClassicState.STABLE, ClassicState.COMPLETING):
            assert not any(m.joining is not None for m in group.members.values())
        if group.state is not ClassicState.COMPLETING:
            assert not any(m.syncing is not None for m in group.members.values())

    def teardown(self) -> None:
        """Whatever happened before: once everyone behaves, the group settles with exactly those who do."""
        if not hasattr(self, "group"):
            return
        self.group.max_size = 1000
        live = [actor for actor in self.actors if actor.alive] or self.actors[:1]
        for _ in range(400):
            for actor in live:
                self.behave(actor)
            self.clock.advance(1.0)
            self.group.tick(self.now())
            self.collect()
        assert self.group.state is ClassicState.STABLE
        assert set(self.group.members) == {actor.member_id for actor in live}
        assert {actor.generation for actor in live} == {self.group.generation}
        assert not self.waiting


AnyOrder.TestCase.settings = settings(
    max_examples=200,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestAnyOrder = AnyOrder.TestCase
