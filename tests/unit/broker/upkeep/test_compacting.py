"""Compaction beside the server: who is cleaned, what is said of it, and what a failure does to the others."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import logging
import os
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path

import pytest

from millstream.broker.server import Server
from millstream.broker.topics.partition import Partition
from millstream.broker.upkeep.compacting import Cleaner
from millstream.broker.upkeep.compaction_status import compaction_state
from millstream.broker.upkeep.stopped_logs import uncompacted_state
from millstream.core.config import BrokerConfig
from millstream.log.compaction.compaction import Compaction
from millstream.log.compaction.single_pass import PassInput, PassResult, SegmentGroup
from millstream.records.build import Record, build_batch
from tests.support.fake_peer import FakePeer, with_server

Connect = Callable[[], FakePeer]
Events = Generator[SegmentGroup | PassResult, None, None]
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "1024", "min.cleanable.dirty.ratio": "0"}


async def filled(server: Server, name: str, settings: dict[str, str] = SETTINGS) -> Partition:
    """A topic of which most records are out of date."""
    await server.node.topic_admin.create(name, 1, settings)
    partition = server.node.topics.partition(name, 0)
    assert partition is not None
    put(server, partition)
    return partition


def put(server: Server, partition: Partition) -> None:
    for number in range(50):
        batch = build_batch(
            [Record(b"k%d" % (number % 5), b"%d" % number * 20, timestamp=server.clock.now_ms())]
        )
        partition.log.append(batch, server.clock.now_ms())
    partition.log.write_staged()
    partition.log.roll()
    partition.log.sync()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def cleaning(tmp_path: Path, steps: Callable[[Server], Awaitable[None]], **settings: object) -> None:
    """A server whose cleaner runs."""

    async def run(server: Server, connect: Connect) -> None:
        server.cleaner.start()
        try:
            await steps(server)
        finally:
            await server.cleaner.stop()

    config = BrokerConfig(data=str(tmp_path), log_cleaner_backoff_ms=10)
    with_server(run, config=dataclasses.replace(config, **settings))


def sample(server: Server, name: str, topic: str = "") -> float:
    for family in server.collector.collect():
        for found in family.samples:
            if found.name == f"millstream_compaction_{name}" and found.labels.get("topic", "") == topic:
                return float(found.value)
    raise AssertionError(f"no {name} of {topic}")


def test_a_log_is_compacted_and_said_to_be(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def steps(server: Server) -> None:
        partition = await filled(server, "table")
        before = partition.log.size_bytes
        await until(lambda: server.cleaner.passes > 0)
        assert partition.log.size_bytes < before / 5
        await until(lambda: sample(server, "dirty_ratio", "table") == 0)  # looked at again
        assert sample(server, "uncleanable", "table") == 0
        assert sample(server, "passes_total") >= 1
        assert sample(server, "read_bytes_total") > sample(server, "left_bytes_total") > 0
        state = compaction_state(server.node.hosted["table"])
        assert state.startswith("0% of what may be compacted is dirty; last compacted 20")
        assert "5 of 50 records" in state

    with caplog.at_level(logging.INFO):
        cleaning(tmp_path, steps)
    assert "table-0: compacted up to offset 50" in caplog.text


def test_a_damaged_log_is_left_alone_and_the_others_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(server: Server) -> None:
        server.node.config = dataclasses.replace(server.node.config, log_cleaner_enable=False)
        broken = await filled(server, "broken")
        file = tmp_path / "broken-0" / "00000000000000000000.log"
        data = bytearray(file.read_bytes())
        data[200] ^= 1
        file.write_bytes(data)
        sound = await filled(server, "sound")
        size = broken.log.size_bytes
        server.node.config = dataclasses.replace(server.node.config, log_cleaner_enable=True)
        await until(lambda: sound.log.compaction.last is not None and bool(broken.log.compaction.uncleanable))
        assert broken.log.size_bytes == size
        assert file.read_bytes() == data
        assert sample(server, "uncleanable", "broken") == 1
        assert sample(server, "uncleanable", "sound") == 0
        assert "no longer compacted: its records are damaged" in compaction_state(
            server.node.hosted["broken"]
        )
        assert uncompacted_state(server.node.hosted["broken"]).startswith("0: its records are damaged")
        assert uncompacted_state(server.node.hosted["sound"]) == ""
        # It is tried again when somebody changed something about it.
        failures = server.cleaner.failures
        await server.node.topic_admin.alter("broken", {**SETTINGS, "delete.retention.ms": "5"})
        assert broken.log.compaction.uncleanable == ""
        await until(lambda: server.cleaner.failures > failures)

    cleaning(tmp_path, steps)
    assert not list(tmp_path.glob("broken-0/*.cleaned"))
    assert "broken-0 is no longer compacted: its records are damaged" in caplog.text


def test_retention_may_take_segments_away_while_they_are_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    both = {**SETTINGS, "cleanup.policy": "compact,delete", "retention.bytes": "2048"}
    compacted = Cleaner._events

    def overtaken(cleaner: Cleaner, partition: Partition, job: PassInput) -> Events:
        monkeypatch.undo()
        assert partition.log.apply_retention(cleaner._server.clock.now_ms())
        return compacted(cleaner, partition, job)

    monkeypatch.setattr(Cleaner, "_events", overtaken)

    async def steps(server: Server) -> None:
        partition = await filled(server, "table", both)
        await until(lambda: server.cleaner.passes > 0)  # the next one gets to its end
        assert partition.log.compaction.uncleanable == ""
        assert server.cleaner.failures == 0

    cleaning(tmp_path, steps)
    assert "not compacted" not in caplog.text


def test_a_full_disk_while_a_segment_is_put_in_place_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = Compaction._write

    def full(compaction: Compaction, gaps_below: int) -> None:
        monkeypatch.setattr(Compaction, "_write", written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Compaction, "_write", full)

    async def steps(server: Server) -> None:
        partition = await filled(server, "table")
        await until(lambda: server.cleaner.passes > 0)
        assert server.cleaner.failures == 1
        assert partition.log.failed is None
        assert partition.log.compaction.gaps_below == partition.log.segments[1].base_offset

    cleaning(tmp_path, steps)


def test_a_topic_that_is_deleted_while_it_is_compacted_is_gone(tmp_path: Path) -> None:
    async def steps(server: Server) -> None:
        for _ in range(5):
            partition = await filled(server, "short-lived")
            await until(lambda: server.cleaner.is_busy or partition.log.compaction.last is not None)  # noqa: B023
            await server.node.topic_admin.delete("short-lived")
        other = await filled(server, "other")
        await until(lambda: other.log.compaction.last is not None)

    cleaning(tmp_path, steps)
    assert not list(tmp_path.glob("short-lived-0"))


def test_records_that_come_while_it_works_are_compacted_next(tmp_path: Path) -> None:
    async def steps(server: Server) -> None:
        partition = await filled(server, "table")
        for _ in range(5):
            end = partition.log.end_offset
            await until(lambda: partition.log.compaction.clean_to >= end)  # noqa: B023
            put(server, partition)
        await until(lambda: partition.log.compaction.clean_to == 300)
        await until(lambda: len(partition.log.segments) <= 3)

    cleaning(tmp_path, steps)


def test_a_cleaner_that_was_never_started_stops(tmp_path: Path) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        node = server.node
        await Cleaner(node.topics.partitions, lambda: node.config, server.clock, server.syncer).stop()

    with_server(steps, config=BrokerConfig(data=str(tmp_path)))
