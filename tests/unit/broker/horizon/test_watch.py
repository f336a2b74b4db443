"""The look ahead: rates, how far back topics reach, when the disk is full, who is being overtaken."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

import pytest
from prometheus_client.core import CollectorRegistry

from millstream.broker.groups.committed_offset import OffsetToCommit
from millstream.broker.horizon.watch import ReaderHorizon
from millstream.broker.node import Node
from millstream.broker.server import Server
from millstream.core.clock import ManualClock
from tests.support.asking import Run
from tests.support.fake_peer import FakePeer, with_server
from tests.support.logs import append

HOUR = 3600


class Writer:
    """Appends to the one partition of "t" by the minute, and lets the node look each time."""

    def __init__(self, node: Node, run: Run, clock: ManualClock) -> None:
        self.node, self.run, self.clock = node, run, clock
        partition = node.topics.partition("t", 0)
        assert partition is not None
        self.partition = partition
        self.free = 10_000_000

    def minutes(self, count: int, records: int = 60, size: int = 100, read: int | None = None) -> None:
        for _ in range(count):
            before = self.partition.log.size_bytes
            if records:
                append(self.partition.log, *[b"x" * size] * records, at=self.clock.now_ms())
            self.partition.topic.bytes_in += self.partition.log.size_bytes - before
            if read is not None:
                self.commit("g", self.node.catalogue.offsets_of("g")["t"][0].offset + read)
            self.clock.advance(60)
            self.look()

    def look(self) -> None:
        for _ in self.node.watch.look(self.node.config, self.node.topics, lambda: self.free):
            pass

    def commit(self, group: str, offset: int) -> None:
        async def steps() -> None:
            await self.node.catalogue.commit_offsets(group, [OffsetToCommit("t", 0, offset, -1, "", 0)])

        self.run(steps())


@pytest.fixture
def writer(node: Node, run: Run, clock: ManualClock) -> Writer:
    run(node.topic_admin.create("t", 1, {"retention.ms": str(24 * HOUR * 1000)}))
    return Writer(node, run, clock)


def test_a_topic_s_rates_and_how_far_back_it_reaches(writer: Writer, run: Run) -> None:
    writer.minutes(10)
    horizon = writer.node.watch.topics["t"]
    assert horizon.records_per_second == pytest.approx(1, rel=0.01)
    assert 100 < horizon.bytes_per_second < 120
    assert horizon.kept_seconds == 24 * HOUR
    run(writer.node.topic_admin.alter("t", {"retention.bytes": "1000000", "retention.ms": "-1"}))
    writer.minutes(1)
    assert writer.node.watch.topics["t"].kept_seconds == pytest.approx(1_000_000 / 110, rel=0.1)


def test_a_reader_s_lag_in_time_is_that_from_its_next_record_to_the_newest(writer: Writer) -> None:
    writer.minutes(1)
    writer.commit("g", 0)
    writer.minutes(10)
    assert writer.node.watch.readers["g", "t", 0].lag_seconds == 10 * 60
    writer.commit("g", 11 * 60)
    writer.look()
    assert writer.node.watch.readers["g", "t", 0] == ReaderHorizon(0.0, None)


def test_a_reader_that_stands_still_is_told_when_it_loses_and_one_that_keeps_up_is_not(
    writer: Writer,
) -> None:
    writer.minutes(1)
    writer.commit("g", 0)
    writer.minutes(10)
    stands = writer.node.watch.readers["g", "t", 0].loss_seconds
    assert stands == pytest.approx(24 * HOUR - 11 * 60)
    writer.minutes(30, read=90)
    assert writer.node.watch.readers["g", "t", 0].loss_seconds is None


def test_a_reader_of_a_ring_is_told_when_the_ring_overtakes_it(writer: Writer) -> None:
    ring = {"millstream.overload": "drop", "millstream.overload.bytes": "131072"}

    async def become_a_ring() -> None:
        await writer.node.topic_admin.alter("t", ring)

    writer.run(become_a_ring())
    writer.commit("g", 0)
    writer.minutes(10)  # of about 7 kB each; the ring keeps 112 kB of them at least
    told = writer.node.watch.readers["g", "t", 0].loss_seconds
    assert told == pytest.approx(7 * 60, rel=0.3)
    kept = writer.node.watch.topics["t"].kept_seconds
    assert kept == pytest.approx(17 * 60, rel=0.3)

    async def go_on() -> None:  # what was lost is written down, on the loop
        writer.minutes(20)

    writer.run(go_on())
    assert writer.partition.log.log_start_offset > 0
    assert writer.node.watch.readers["g", "t", 0].loss_seconds == 0  # overtaken: not the week of retention.ms


def test_the_disk_is_full_when_what_grows_has_taken_it(writer: Writer) -> None:
    writer.free = 1_000_000
    writer.minutes(10)
    watch = writer.node.watch
    assert watch.disk_full_seconds is None  # all is in memory
    writer.partition.in_memory = False
    writer.look()
    assert watch.disk_full_seconds == pytest.approx(1_000_000 / 110, rel=0.1)


def test_a_warning_is_said_once_and_again_after_the_danger_had_passed(
    writer: Writer, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    def near(hours: float) -> None:
        run(writer.node.topic_admin.alter("t", {"retention.ms": str(round(hours * HOUR * 1000))}))
        for _ in range(3):
            writer.look()

    writer.minutes(1)
    writer.commit("g", 0)
    with caplog.at_level(logging.WARNING):
        near(24)
        assert not caplog.records
        near(1)
        assert [r.getMessage() for r in caplog.records] == [
            "group g will lose records of t-0 in 59 min at present rates: retention overtakes it"
        ]
        near(3)  # not yet out of danger
        near(1)
        assert len(caplog.records) == 1
        near(24)
        near(1)
        assert len(caplog.records) == 2


def test_a_warning_of_the_disk_says_what_to_do(writer: Writer, caplog: pytest.LogCaptureFixture) -> None:
    writer.partition.in_memory = False
    writer.free = 1_000_000
    with caplog.at_level(logging.WARNING):
        writer.minutes(10)
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("the disk is full in 3 h at present rates, with 1 MB free: lower retention")


def test_no_warnings_where_none_are_wanted(writer: Writer, caplog: pytest.LogCaptureFixture) -> None:
    node = writer.node
    node.config = dataclasses.replace(
        node.config, millstream_disk_full_warning_ms=0, millstream_group_loss_warning_ms=0
    )
    writer.partition.in_memory = False
    writer.free = 1000
    writer.minutes(1)
    writer.commit("g", 0)
    with caplog.at_level(logging.WARNING):
        writer.minutes(5)
    assert not caplog.records


def test_what_was_found_is_in_the_metrics(clock: ManualClock) -> None:
    async def steps(server: Server, connect: Callable[[], FakePeer]) -> None:
        node = server.node
        partition = node.topics.partition("t", 0)
        assert partition is not None
        partition.in_memory = False

        def look() -> None:
            for _ in node.watch.look(node.config, node.topics, lambda: 1_000_000):
                pass

        await node.catalogue.commit_offsets("g", [OffsetToCommit("t", 0, 0, -1, "", 0)])
        for _ in range(6):
            append(partition.log, *[b"x" * 100] * 60, at=clock.now_ms())
            partition.topic.bytes_in += 60 * 110
            clock.advance(60)
            look()
        partition.log.delete_records(30)
        look()
        registry = CollectorRegistry()
        registry.register(server.collector)
        place = {"group": "g", "topic": "t", "partition": "0"}
        value = registry.get_sample_value
        assert value("millstream_topic_records_per_second", {"topic": "t"}) == pytest.approx(1, rel=0.01)
        assert value("millstream_topic_kept_seconds", {"topic": "t"}) == 7 * 24 * HOUR
        assert value("millstream_disk_free_bytes") == 1_000_000
        assert value("millstream_disk_full_seconds") == pytest.approx(1_000_000 / 110, rel=0.1)
        assert value("millstream_group_lag_seconds", place) == 300
        assert value("millstream_group_loss_seconds", place) == pytest.approx(7 * 24 * HOUR - 360)
        assert value("millstream_group_lost_records_total", place) == 30
        assert value("millstream_partition_missed_reads_total", {"topic": "t", "partition": "0"}) == 0

    with_server(steps, topics={"t": 1}, clock=clock)
