"""Topics that hold their producers, as connections see it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from millstream.broker.groups.classic.member import JoinRequest
from millstream.broker.groups.committed_offset import OffsetToCommit
from millstream.broker.server import Server
from millstream.core.clock import ManualClock
from millstream.core.config import BrokerConfig
from tests.support.fake_peer import FakePeer, with_server
from tests.support.wire_client import PRODUCE, answer, frames, produce, records

Connect = Callable[[], FakePeer]
HOLD = 2.0
POLICY = {
    "millstream.overload": "backpressure",
    "millstream.overload.groups": "g",
    "millstream.overload.lag.records": "3",
    "millstream.overload.hold.ms": str(int(HOLD * 1000)),
}


def run(
    steps: Callable[[Server, Connect, ManualClock], Awaitable[None]], policy: dict[str, str] | None = None
) -> None:
    clock = ManualClock()

    async def with_topic(server: Server, connect: Connect) -> None:
        await server.node.topic_admin.create("p", 2, POLICY if policy is None else policy)
        await steps(server, connect, clock)

    with_server(with_topic, config=BrokerConfig(), clock=clock)


async def join(server: Server, group: str = "g", topic: bytes = b"p") -> None:
    """One member that reads the topic."""
    metadata = b"\0\0\0\0\0\1" + len(topic).to_bytes(2, "big") + topic + b"\0\0\0\0"
    member = JoinRequest("", None, "c", "h", 10.0, 10.0, "consumer", (("range", metadata),))
    await server.node.coordinator.classic_requests.join(group, member)
    server.node.backpressure.tick()


async def commit(server: Server, offset: int, group: str = "g", partition: int = 0) -> None:
    rows = [OffsetToCommit("p", partition, offset, -1, "", 0, -1)]
    await server.node.catalogue.commit_offsets(group, rows)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def answered(peer: FakePeer) -> list[int]:
    """Correlation ids of the answers that are there."""
    peer.take()
    return [int.from_bytes(frame[:4], "big") for frame in frames(bytes(peer.received))]


def throttle(frame: bytes) -> int:
    return int(answer(PRODUCE, 9, frame)[1].throttle_time.total_seconds() * 1000)


def test_a_producer_is_held_from_when_the_group_is_too_far_behind_until_it_commits() -> None:
    async def steps(server: Server, connect: Connect, clock: ManualClock) -> None:
        await join(server)
        peer = connect()
        for number in range(3):
            peer.give(produce(number, "p"))
        assert len(await peer.answers(3)) == 3
        peer.give(produce(3, "p") + produce(4, "p"))
        await settle()
        assert answered(peer) == [0, 1, 2]
        assert not peer.transport.is_reading_now
        partition = server.node.topics.partition("p", 0)
        assert partition is not None
        assert partition.log.end_offset == 4  # the held batch is in the log, the next one is not
        await commit(server, 1)  # three are left: the held one goes, and the next one is one too many
        received = await peer.answers(4)
        assert throttle(received[3]) > 0
        assert throttle(received[2]) == 0
        assert partition.log.end_offset == 5
        assert not peer.transport.is_reading_now
        await commit(server, 5)
        assert len(await peer.answers(5)) == 5
        assert peer.transport.is_reading_now
        gate = server.node.backpressure.gate_of("p")
        assert gate is not None
        assert gate.held == 2

    run(steps)


def test_its_time_is_up_before_the_client_gives_up() -> None:
    async def steps(server: Server, connect: Connect, clock: ManualClock) -> None:
        await join(server)
        peer = connect()
        peer.give(produce(0, "p", batch=records(*[b"x"] * 4)))
        clock.advance(HOLD - 0.1)
        server.node.backpressure.tick()
        await settle()
        assert answered(peer) == []
        clock.advance(0.1)
        server.node.backpressure.tick()
        assert throttle((await peer.answers(1))[0]) == 1000
        assert peer.transport.is_reading_now
        gate = server.node.backpressure.gate_of("p")
        assert gate is not None
        assert gate.held_seconds == pytest.approx(HOLD)

    run(steps)


def test_what_a_client_had_sent_behind_it_is_not_held_once_more() -> None:
    """Its time has run all the while."""

    async def steps(server: Server, connect: Connect, clock: ManualClock) -> None:
        await join(server)
        peer = connect()
        peer.socket.send(b"?")  # what the kernel has still to give; it is never read in this test
        peer.give(b"".join(produce(number, "p", batch=records(*[b"x"] * 4)) for number in range(3)))
        await settle()
        assert answered(peer) == []
        clock.advance(HOLD)
        server.node.backpressure.tick()
        assert len(await peer.answers(3)) == 3
        # Now all of it was read: the next one is held again.
        peer.transport.socket.recv(1)
        peer.give(produce(3, "p"))
        await settle()
        assert len(answered(peer)) == 3

    run(steps)


def test_the_time_that_a_request_gives_the_broker_counts_too() -> None:
    async def steps(server: Server, connect: Connect, clock: ManualClock) -> None:
        await join(server)
        peer = connect()
        peer.give(produce(0, "p", batch=records(*[b"x"] * 4), timeout=500))
        clock.advance(0.25)
        server.node.backpressure.tick()
        assert len(await peer.answers(1)) == 1

    run(steps)


def test_with_acks_0_there_is_no_answer_and_the_connection_waits() -> None:
    async def steps(server: Server, connect: Connect, clock: ManualClock) -> None:
        await join(server)
        peer = connect()
        peer.give(produce(0, "p", batch=records(*[b"x"] * 4), acks=0))
        await settle()
        assert not peer.transport.is_reading_now
        await commit(server, 4)
        assert peer.transport.is_reading_now
        assert answered(peer) == []

    run(steps)


def test_producers_are_let_go_in_the_order_they_came() -> None:
    async def steps(server: Server, connect: Connect, clock: ManualClock) -> None:
        await join(server)
        peers = [connect() for _ in range(3)]
        for peer in peers:
            peer.give(produce(0, "p", batch=records(*[b"x"] * 4)) + produce(1, "p"))
        await settle()
        assert [answered(peer) for peer in peers] == [[], [], []]
        # Room for two: the first two go on, and their next requests fill it again.
        await commit(server, 10)
        await settle()
        assert [answered(peer) for peer in peers] == [[0, 1], [0], []]

    run(steps)


def test_nobody_waits_for_a_group_without_members_or_with_members_that_read_something_else() -> None:
    async def steps(server: Server, connect: Connect, clock: ManualClock) -> None:
        await commit(server, 0)
        peer = connect()
        peer.give(produce(0, "p", batch=records(*[b"x"] * 100)))
        assert len(await peer.answers(1)) == 1
        await join(server, topic=b"other")
        peer.give(produce(1, "p"))
        assert len(await peer.answers(2)) == 2

    run(steps)


def test_a_member_that_dies_holds_nobody_once_its_session_has_ended() -> None:
    async def steps(server: Server, connect: Connect, clock: ManualClock) -> None:
        await join(server)
        peer = connect()
        peer.give(produce(0, "p", batch=records(*[b"x"] * 4)))
        clock.advance(20.0)  # the session has ten seconds, and then the first generation its time to sync
        server.node.coordinator.tick()
        server.node.backpressure.tick()
        received = await peer.answers(1)
        assert throttle(received[0]) == 100  # not because its time was up
        assert server.node.backpressure.gate_of("p").slowest_group == ""  # type: ignore[union-attr]

    run(steps, {**POLICY, "millstream.overload.hold.ms": "60000"})


def test_a_broker_whose_fence_is_undone_holds_producers_for_the_groups_that_come_back() -> None:
    async def steps(server: Server, connect: Connect, clock: ManualClock) -> None:
        await server.node.fence("other.example:9092", 1)
        await server.node.fence("", -1)
        await join(server)
        peer = connect()
        peer.give(produce(0, "p", batch=records(*[b"x"] * 4)))
        await settle()
        assert answered(peer) == []

    run(steps)


def test_a_group_that_never_committed_counts_from_where_it_came() -> None:
    async def steps(server: Server, connect: Connect, clock: ManualClock) -> None:
        peer = connect()
        peer.give(produce(0, "p", batch=records(*[b"x"] * 100)))
        await peer.answers(1)
        await join(server)
        peer.give(produce(1, "p", batch=records(*[b"x"] * 3)))
        assert len(await peer.answers(2)) == 2
        peer.give(produce(2, "p"))
        await settle()
        assert answered(peer) == [0, 1]

    run(steps)


def test_the_slowest_group_counts_and_the_fullest_partition() -> None:
    async def steps(server: Server, connect: Connect, clock: ManualClock) -> None:
        await join(server, "g")
        await join(server, "h")
        peer, other = connect(), connect()
        peer.give(produce(0, "p", 0, 1, batch=records(*[b"x"] * 4)))
        other.give(produce(0, "t"))
        assert len(await other.answers(1)) == 1  # of another topic
        await commit(server, 4)
        await commit(server, 4, "h")
        await settle()
        assert answered(peer) == []
        await commit(server, 4, "h", 1)
        await settle()
        assert answered(peer) == []
        await commit(server, 4, "g", 1)
        assert len(await peer.answers(1)) == 1

    run(steps, {**POLICY, "millstream.overload.groups": "g,h"})


def test_bytes_can_be_the_limit() -> None:
    async def steps(server: Server, connect: Connect, clock: ManualClock) -> None:
        await join(server)
        peer = connect()
        peer.give(b"".join(produce(number, "p", batch=records(b"v" * 2000)) for number in range(10)))
        await settle()
        assert len(answered(peer)) == 4
        await commit(server, 5)
        await settle()
        # From the index, which is sparse: a batch or two that were read count as well.
        assert 7 <= len(answered(peer)) <= 9

    limits = {"millstream.overload.lag.records": "-1", "millstream.overload.lag.bytes": "10000"}
    run(steps, {**POLICY, **limits})


def test_a_client_that_hangs_up_is_not_waited_for() -> None:
    async def steps(server: Server, connect: Connect, clock: ManualClock) -> None:
        await join(server)
        for acks in (0, 1, -1):
            peer = connect()
            peer.give(produce(0, "p", batch=records(*[b"x"] * 4), acks=acks))
            assert len(server.node.backpressure) == 1
            await settle()
            peer.close()
            assert len(server.node.backpressure) == 0

    run(steps)


def test_another_policy_or_the_topic_s_end_lets_everybody_go() -> None:
    async def steps(server: Server, connect: Connect, clock: ManualClock) -> None:
        await join(server)
        for change in (server.node.topic_admin.alter("p", {}), server.node.topic_admin.delete("p")):
            peer = connect()
            peer.give(produce(0, "p", batch=records(*[b"x"] * 4)))
            await settle()
            assert answered(peer) == []
            await change
            server.node.backpressure.tick()
            assert len(await peer.answers(1)) == 1
            if "p" in server.node.hosted:
                await server.node.topic_admin.alter("p", POLICY)

    run(steps)


def test_a_topic_that_is_given_a_gate_while_its_producer_is_busy_holds_it() -> None:
    async def steps(server: Server, connect: Connect, clock: ManualClock) -> None:
        await join(server)
        peer = connect()
        for number in range(10):
            peer.give(produce(number, "p"))
        assert len(await peer.answers(10)) == 10
        await server.node.topic_admin.alter("p", POLICY)
        await server.node.topic_admin.add_partitions("p", 3)
        peer.give(produce(10, "p", batch=records(*[b"x"] * 4)))
        await settle()
        assert len(answered(peer)) == 10

    run(steps, {})


def test_stopping_the_broker_answers_those_who_are_held() -> None:
    async def steps(server: Server, connect: Connect, clock: ManualClock) -> None:
        await join(server)
        peer = connect()
        peer.give(produce(0, "p", batch=records(*[b"x"] * 4)))
        await settle()
        assert answered(peer) == []
        server.node.backpressure.close()
        assert len(await peer.answers(1)) == 1

    run(steps)
