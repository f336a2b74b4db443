"""Retention and compaction as fast as they go, beside a thread that unlinks what they deleted."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

from millstream.broker.server import Server
from millstream.broker.topics.partition import Partition
from millstream.broker.upkeep.stopped_logs import stopped_state, uncompacted_state
from millstream.core.config import BrokerConfig
from millstream.records.build import Record, build_batch
from tests.support.fake_peer import with_server

SECONDS = 3.0
SETTINGS = {"segment.bytes": "2048", "retention.bytes": "8192", "file.delete.delay.ms": "0"}
COMPACTED = {
    **SETTINGS,
    "cleanup.policy": "compact,delete",
    "min.cleanable.dirty.ratio": "0",
    "segment.bytes": "16384",
    "retention.bytes": "300000",  # so that some passes are faster than retention, and some are not
}
RING = {**SETTINGS, "millstream.overload": "drop", "millstream.overload.bytes": "65536"}


def test_retention_and_compaction_at_full_speed_stop_no_log(tmp_path: Path) -> None:
    async def produce(server: Server, partition: Partition) -> None:
        number = 0
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            now_ms = server.clock.now_ms()
            for _ in range(20):
                number += 1
                record = Record(b"k%d" % (number % 7), b"%d" % number * 20, timestamp=now_ms)
                partition.log.append(build_batch([record]), now_ms)
            partition.log.write_staged()
            server.syncer.sync(partition)
            await asyncio.sleep(0)

    async def retain(server: Server) -> None:
        while True:
            await server.node.maintenance.apply_retention()
            await asyncio.sleep(0)

    async def steps(server: Server, connect: object) -> None:
        topics = {"deleted": SETTINGS, "compacted": COMPACTED, "ring": RING}
        partitions = []
        for name, settings in topics.items():
            await server.node.topic_admin.create(name, 1, settings)
            partition = server.node.topics.partition(name, 0)
            assert partition is not None
            partitions.append(partition)
        server.cleaner.start()
        retention = asyncio.create_task(retain(server))
        try:
            await asyncio.gather(*(produce(server, partition) for partition in partitions))
            async with asyncio.timeout(30):
                while not server.syncer.is_idle:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            retention.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await retention
            await server.cleaner.stop()
        for name, partition in zip(topics, partitions, strict=True):
            assert stopped_state(server.node.hosted[name]) == ""
            assert uncompacted_state(server.node.hosted[name]) == ""
            assert partition.log.log_start_offset > 0 or name == "compacted"
        assert server.cleaner.passes > 0

    config = BrokerConfig(data=str(tmp_path), log_cleaner_backoff_ms=1)
    with_server(steps, topics={}, config=config)
