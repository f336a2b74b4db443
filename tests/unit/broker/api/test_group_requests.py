"""FindCoordinator and the classic groups' requests, in every version served."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from millstream.broker.groups.classic.member import JoinRequest
from millstream.broker.node import Node
from millstream.core.clock import ManualClock
from tests.support.asking import Run, ask, join, sync, versions


async def joined(node: Node, version: int = 9) -> Any:
    """A member of a stable group of one."""
    answer = await join(node, version)
    if answer.error_code == 79:
        answer = await join(node, version, answer.member_id)
    assert answer.error_code == 0
    await sync(node, 5, answer.member_id, answer.generation_id, {answer.member_id: b"assigned"})
    return answer


@pytest.mark.parametrize("version", versions(10))
def test_this_node_coordinates_everything(node: Node, run: Run, version: int) -> None:
    for key_type in (0, 1, 2) if version >= 6 else (0, 1):
        answer = run(ask(node, 10, version, key="a", coordinator_keys=["a", "b"], key_type=key_type))
        found = answer.coordinators if version >= 4 else [answer]
        assert len(found) == (2 if version >= 4 else 1)
        assert {(f.error_code, f.node_id, f.host, f.port) for f in found} == {(0, 7, "broker.example", 9092)}
    if version >= 1:
        answer = run(
            ask(node, 10, version, key="a", coordinator_keys=["a"], key_type=2 if version < 6 else 3)
        )
        found = answer.coordinators[0] if version >= 4 else answer
        assert found.error_code == 42
        assert "not served" in found.error_message


@pytest.mark.parametrize("version", versions(11))
def test_a_member_joins_and_syncs(node: Node, run: Run, version: int) -> None:
    answer = run(join(node, version))
    if version >= 4:
        assert answer.error_code == 79
        answer = run(join(node, version, answer.member_id))
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.member_id == answer.leader
    assert [(m.member_id, m.metadata) for m in answer.members] == [(answer.member_id, b"meta")]
    if version >= 7:
        assert answer.protocol_type == "consumer"
    member = node.coordinator.classic.groups["g"].members[answer.member_id]
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert member.session_timeout == 10.0
    assert member.rebalance_timeout == (60.0 if version >= 1 else 10.0)


@pytest.mark.parametrize("version", versions(11))
def test_a_join_is_refused_in_words_every_version_understands(node: Node, run: Run, version: int) -> None:
    for change, code in (
        ({"group_id": ""}, 24),
        ({"session_timeout": 1}, 26),
        ({"session_timeout": 2_000_000}, 26),
        ({"member_id": "unheard-of"}, 25),
        ({"protocols": []}, 23),
        ({"protocol_type": ""}, 23),
    ):
        answer = run(join(node, version, **change))
        assert (answer.error_code, answer.generation_id) == (code, -1)
        assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", versions(14))
def test_the_assignment_is_the_answer_to_a_sync(node: Node, run: Run, version: int) -> None:
    member = run(joined(node))
    answer = run(sync(node, version, member.member_id, 1, {}))
    assert (answer.error_code, answer.assignment) == (0, b"assigned")
    if version >= 5:
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert run(sync(node, version, member.member_id, 5, {})).error_code == 22
    assert run(sync(node, version, "unheard-of", 1, {})).error_code == 25


@pytest.mark.parametrize("version", versions(12))
def test_heartbeats(node: Node, run: Run, version: int) -> None:
    def beat(group: str, member_id: str, generation: int) -> int:
        answer = run(
            ask(
                node,
                12,
                version,
                group_id=group,
                member_id=member_id,
                generation_id=generation,
                group_instance_id=None,
            )
        )
        return int(answer.error_code)

    assert beat("g", "m", 1) == 25
    assert beat("", "m", 1) == 24
    member = run(joined(node))
    assert beat("g", member.member_id, 1) == 0
    assert beat("g", member.member_id, 2) == 22
    run(join(node, 9))  # somebody is given an id
    assert beat("g", member.member_id, 1) == 0


@pytest.mark.parametrize("version", versions(13))
def test_members_leave_one_or_many_at_a_time(node: Node, run: Run, version: int) -> None:
    def leave(group: str, *member_ids: str) -> tuple[int, list[int]]:
        members = [{"member_id": m, "group_instance_id": None, "reason": "done"} for m in member_ids]
        answer = run(ask(node, 13, version, group_id=group, member_id=member_ids[0], members=members))
        return int(answer.error_code), [int(m.error_code) for m in getattr(answer, "members", ())]

    unknown = (0, [25, 25]) if version >= 3 else (25, [])
    assert leave("g", "a", "b") == unknown
    assert leave("", "a")[0] == 24
    member = run(joined(node))
    assert leave("g", member.member_id, "b") == ((0, [0, 25]) if version >= 3 else (0, []))
    assert node.coordinator.classic.groups["g"].state.value == "Empty"


def test_static_members_are_sent_away_by_name(node: Node, run: Run) -> None:
    run(join(node, 9, group_instance_id="one"))
    members = [
        {"member_id": "", "group_instance_id": "one", "reason": None},
        {"member_id": "", "group_instance_id": "two", "reason": None},
    ]
    answer = run(ask(node, 13, 5, group_id="g", members=members))
    assert [(m.group_instance_id, int(m.error_code)) for m in answer.members] == [("one", 0), ("two", 25)]


@pytest.mark.parametrize("version", versions(15))
def test_groups_are_described(node: Node, run: Run, version: int) -> None:
    member = run(joined(node))
    answer = run(ask(node, 15, version, groups=["g", "nowhere"], include_authorized_operations=True))
    group, missing = answer.groups
    assert (group.error_code, group.group_state, group.protocol_type) == (0, "Stable", "consumer")
    assert group.protocol_data == "range"
    (described,) = group.members
    assert described.member_id == member.member_id
    assert (described.client_id, described.client_host) == ("client", "/127.0.0.1")
    assert (described.member_metadata, described.member_assignment) == (b"meta", b"assigned")
    assert (missing.error_code, missing.group_state) == (69 if version >= 6 else 0, "Dead")
    if version >= 3:
        assert group.authorized_operations > 0


@pytest.mark.parametrize("version", versions(16))
def test_groups_are_listed_and_filtered(node: Node, run: Run, version: int) -> None:
    run(joined(node))
    run(node.topic_admin.create("t", 1, {}))
    run(_commit(node, "simple"))

    def listed(states: list[str], types: list[str]) -> dict[str, Any]:
        answer = run(ask(node, 16, version, states_filter=states, types_filter=types))
        assert answer.error_code == 0
        return {group.group_id: group for group in answer.groups}

    everything = listed([], [])
    assert {name: group.protocol_type for name, group in everything.items()} == {
        "g": "consumer",
        "simple": "",
    }
    if version >= 4:
        assert everything["g"].group_state == "Stable"
        assert set(listed(["empty"], [])) == {"simple"}
        assert set(listed(["Stable", "Empty"], [])) == {"g", "simple"}
        assert set(listed(["Nonsense"], [])) == set()
    if version >= 5:
        assert everything["g"].group_type == "classic"
        assert set(listed([], ["Classic"])) == {"g", "simple"}
        assert set(listed([], ["consumer"])) == set()


async def _commit(node: Node, group: str) -> Any:
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    return await ask(
        node, 8, 8, group_id=group, member_id="", topics=[{"name": "t", "partitions": [partition]}]
    )


@pytest.mark.parametrize("version", versions(42))
def test_groups_are_deleted_once_they_are_empty(node: Node, run: Run, version: int) -> None:
    run(node.topic_admin.create("t", 1, {}))
    run(_commit(node, "simple"))
    member = run(joined(node))
    answer = run(ask(node, 42, version, groups_names=["simple", "g", "nowhere"]))
    assert {r.group_id: int(r.error_code) for r in answer.results} == {"simple": 0, "g": 68, "nowhere": 69}
    assert node.coordinator.directory.find("simple") is None
    run(ask(node, 13, 0, group_id="g", member_id=member.member_id))
    answer = run(ask(node, 42, version, groups_names=["g"]))
    assert answer.results[0].error_code == 0
    assert not node.coordinator.directory.all()
    assert not node.catalogue.group_states


def test_a_client_that_hangs_up_while_it_joins_does_not_hold_up_the_group(
    node: Node, run: Run, clock: ManualClock
) -> None:
    async def steps() -> None:
        first = await joined(node)
        wanted = JoinRequest("", None, "c", "h", 10.0, 60.0, "consumer", (("range", b""),))
        gone = False
        waiting = node.coordinator.classic_requests.join("g", wanted, lambda: gone)
        for gone in (False, True):
            clock.advance(1)
            node.coordinator.tick()
            assert waiting.done() == gone
        assert waiting.cancelled()
        again = await join(node, 9, first.member_id)
        assert [member.member_id for member in again.members] == [first.member_id]

    run(steps())


def test_time_passes_by_ticks(node: Node, run: Run, clock: ManualClock) -> None:
    async def tick(seconds: float) -> None:
        clock.advance(seconds)
        node.coordinator.tick(clock.monotonic())

    run(joined(node))
    run(tick(9))
    group = node.coordinator.classic.groups["g"]
    assert len(group.members) == 1
    run(tick(2))
    assert group.state.value == "Empty"


def test_a_closing_coordinator_answers_whoever_waits(node: Node, run: Run) -> None:
    async def steps() -> None:
        first = await joined(node)
        newcomer = asyncio.ensure_future(join(node, 3))
        await asyncio.sleep(0)
        node.coordinator.close()
        assert (await newcomer).error_code == 15
        assert (await join(node, 9, first.member_id)).error_code == 15

    run(steps())
