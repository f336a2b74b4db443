"""What is done by the clock: flush.ms, idle connections, retention."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from millstream.broker.server import Server
from millstream.core.clock import ManualClock
from millstream.core.config import BrokerConfig
from millstream.core.kafka_errors import OFFSET_OUT_OF_RANGE
from millstream.log.retention import BELIEVED_AFTER_S
from tests.support.fake_peer import FakePeer, with_server
from tests.support.logs import a_batch
from tests.support.wire_client import FETCH, answer, fetch, produce

Connect = Callable[[], FakePeer]


def test_records_are_synced_by_flush_ms_and_by_flush_messages(tmp_path: Path) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await server.node.topic_admin.create("by-time", 1, {"flush.ms": "20"})
        await server.node.topic_admin.create("by-count", 1, {"flush.messages": "2"})
        housekeeping = server.housekeeping
        housekeeping.start()
        peer = connect()
        peer.give(produce(1, "by-time") + produce(2, "by-count") + produce(3, "t"))
        await peer.answers(3)
        by_time, by_count, never = (server.node.topics.partition(t, 0) for t in ("by-time", "by-count", "t"))
        assert by_time is not None
        assert by_count is not None
        assert never is not None
        async with asyncio.timeout(20):
            while by_time.log.synced_offset < 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert by_count.log.synced_offset == 0
        peer.give(produce(4, "by-count"))
        async with asyncio.timeout(20):
            while by_count.log.synced_offset < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert never.log.synced_offset == 0
        await housekeeping.stop()

    with_server(steps, config=BrokerConfig(data=str(tmp_path)))


def test_flush_ms_can_be_set_while_records_come(tmp_path: Path) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        assert not server.node.logs.flushed_by_time
        await server.node.topic_admin.alter("t", {"flush.ms": "10"})
        assert len(server.node.logs.flushed_by_time) == 2
        await server.node.topic_admin.alter("t", {})
        assert not server.node.logs.flushed_by_time

    with_server(steps, config=BrokerConfig(data=str(tmp_path)))


def test_an_idle_connection_is_closed_and_one_that_waits_is_not() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        idle, waiting, busy = connect(), connect(), connect()
        waiting.give(fetch(1, "t", wait=60_000))
        server.shared.ticks += 11
        busy.give(produce(1, "t", 1))
        await busy.answers(1)
        server.housekeeping._close_idle()
        assert (idle.transport.closed, waiting.transport.closed, busy.transport.closed) == (
            True,
            False,
            False,
        )

    with_server(steps, config=BrokerConfig(connections_max_idle_ms=10_000))


def test_retention_deletes_old_segments_and_readers_learn_the_new_start() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await server.node.topic_admin.create("small", 1, {"segment.bytes": "1024", "retention.bytes": "2048"})
        peer = connect()
        for number in range(60):
            peer.give(produce(number, "small"))
        await peer.answers(60)
        await server.node.maintenance.apply_retention()
        partition = server.node.topics.partition("small", 0)
        assert partition is not None
        assert 0 < partition.log.log_start_offset < 60
        assert partition.log.end_offset == 60

    with_server(steps)


DAY = 24 * 3600


def test_retention_by_time_is_not_fooled_by_a_clock_that_jumps_either_way(tmp_path: Path) -> None:
    """The whole broker by one clock that the test holds: records, retention, and what readers are told."""
    clock = ManualClock()

    async def steps(server: Server, connect: Connect) -> None:
        node = server.node
        await node.topic_admin.create("small", 1, {"segment.bytes": "1024", "retention.ms": str(DAY * 1000)})

        async def write() -> None:
            peer = connect()
            for number in range(30):
                peer.give(produce(number, "small", batch=bytes(a_batch(b"v" * 60, at=clock.now_ms()))))
            await peer.answers(30)
            peer.close()

        async def start() -> int:
            await node.maintenance.apply_retention()
            partition = node.topics.partition("small", 0)
            assert partition is not None
            return partition.log.log_start_offset

        await write()
        assert await start() == 0
        clock.jump(-10 * DAY)
        assert await start() == 0
        await write()  # records from ten days ago, by a clock that is wrong
        assert await start() == 0
        clock.jump(10 * DAY)
        assert await start() == 0, "set right: nothing is deleted at a stroke"
        clock.jump(100 * DAY)
        assert await start() == 0, "a jump ahead is doubted"
        clock.jump(-100 * DAY)
        clock.advance(BELIEVED_AFTER_S + 1)
        assert await start() == 0, "the newest of the first records are an hour old: they keep what follows"
        clock.advance(DAY)
        assert await start() == 60
        peer = connect()
        peer.give(fetch(1, "small", 0))
        (frame,) = await peer.answers(1)
        assert answer(FETCH, 12, frame)[1].responses[0].partitions[0].error_code == OFFSET_OUT_OF_RANGE

    with_server(steps, config=BrokerConfig(data=str(tmp_path)), clock=clock)
