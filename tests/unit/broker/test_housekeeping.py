"""What is done by the clock: flush.ms, idle connections, retention."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from millstream.broker.housekeeping import Housekeeping
from millstream.broker.server import Server
from millstream.config import BrokerConfig
from tests.support.fake_peer import FakePeer, with_server
from tests.support.wire_client import fetch, produce

Connect = Callable[[], FakePeer]


def test_records_are_synced_by_flush_ms_and_by_flush_messages(tmp_path: Path) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await server.node.create_topic("by-time", 1, {"flush.ms": "20"})
        await server.node.create_topic("by-count", 1, {"flush.messages": "2"})
        housekeeping = Housekeeping(server)
        housekeeping.start()
        peer = connect()
        peer.give(produce(1, "by-time") + produce(2, "by-count") + produce(3, "t"))
        await peer.answers(3)
        by_time, by_count, never = (server.node.partition(t, 0) for t in ("by-time", "by-count", "t"))
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
        assert not server.node.flushed_by_time
        await server.node.alter_topic("t", {"flush.ms": "10"})
        assert len(server.node.flushed_by_time) == 2
        await server.node.alter_topic("t", {})
        assert not server.node.flushed_by_time

    with_server(steps, config=BrokerConfig(data=str(tmp_path)))


def test_an_idle_connection_is_closed_and_one_that_waits_is_not() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        housekeeping = Housekeeping(server)
        idle, waiting, busy = connect(), connect(), connect()
        waiting.give(fetch(1, "t", wait=60_000))
        server.ticks += 11
        busy.give(produce(1, "t", 1))
        await busy.answers(1)
        housekeeping._close_idle()
        assert (idle.transport.closed, waiting.transport.closed, busy.transport.closed) == (
            True,
            False,
            False,
        )

    with_server(steps, config=BrokerConfig(connections_max_idle_ms=10_000))


def test_retention_deletes_old_segments_and_readers_learn_the_new_start() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await server.node.create_topic("small", 1, {"segment.bytes": "1024", "retention.bytes": "2048"})
        peer = connect()
        for number in range(60):
            peer.give(produce(number, "small"))
        await peer.answers(60)
        await server.node.apply_retention()
        partition = server.node.partition("small", 0)
        assert partition is not None
        assert 0 < partition.log.log_start_offset < 60
        assert partition.log.end_offset == 60

    with_server(steps)
