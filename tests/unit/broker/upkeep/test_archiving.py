"""The archive at work: read through by Fetch and ListOffsets, away and back, retention, deletion, crashes."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.catalogue.stopped_broker import read_catalogue
from millstream.broker.node import Node
from millstream.broker.server import Server
from millstream.broker.upkeep import archiving as archiving_module
from millstream.broker.upkeep.archiving import Archiving
from millstream.core.clock import ManualClock
from millstream.core.config import BrokerConfig
from millstream.core.errors import ArchiveError, ConfigError, DataDirectoryError, RequestRefused
from millstream.core.kafka_errors import (
    CORRUPT_MESSAGE,
    INVALID_CONFIG,
    KAFKA_STORAGE_ERROR,
    OFFSET_OUT_OF_RANGE,
    UNSUPPORTED_VERSION,
)
from millstream.log.partition import PartitionLog
from millstream.log.recovery.check import accept_losses
from millstream.records.build import read_batches
from tests.support.archives import Unreliable, memory_url, objects
from tests.support.asking import ask, versions
from tests.support.fake_peer import FakePeer, with_server
from tests.support.logs import NOW, a_batch, a_transactional_batch
from tests.support.wire_client import FETCH, answer, fetch, produce

Connect = Callable[[], FakePeer]
ARCHIVED = {
    "segment.bytes": "1024",
    "index.interval.bytes": "200",
    "remote.storage.enable": "true",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "segment.ms": str(10**15),
}
COUNT = 60
MINUTE = 60_000


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(archiving_module, "ArchiveStore", Unreliable)
    return memory_url()


@pytest.fixture
def config(tmp_path: Path, url: str) -> BrokerConfig:
    return BrokerConfig(data=str(tmp_path / "data"), millstream_archive_url=url)


def at_work(server: Server | Node) -> Archiving:
    node = server.node if isinstance(server, Server) else server
    assert node.archiving is not None
    return node.archiving


def store_of(server: Server | Node) -> Unreliable:
    store = at_work(server).store
    assert isinstance(store, Unreliable)
    return store


def log_of(server: Server | Node, topic: str = "a") -> PartitionLog:
    node = server.node if isinstance(server, Server) else server
    partition = node.topics.partition(topic, 0)
    assert partition is not None
    return partition.log


def fill(node: Node, topic: str = "a", count: int = COUNT) -> None:
    """Append records whose times are a minute apart, and have them synced."""
    log = log_of(node, topic)
    now = node.clock.now_ms()
    for _ in range(count):
        number = log.end_offset
        log.append(a_batch(b"%060d" % number, at=NOW + number * MINUTE), now)
    log.write_staged()
    log.sync()


async def archive(node: Node) -> None:
    """One round of archiving, then local retention."""
    await at_work(node).round(node.topics.partitions())
    await node.maintenance.apply_retention()


async def archived_topic(server: Server, name: str = "a", **settings: str) -> PartitionLog:
    await server.node.topic_admin.create(
        name, 1, {**ARCHIVED, **{k.replace("_", "."): v for k, v in settings.items()}}
    )
    fill(server.node, name)
    await archive(server.node)
    log = log_of(server, name)
    assert 0 == log.log_start_offset < log.local_start_offset == log.archive.end_offset < COUNT
    return log


async def read(connect: Connect, offset: int, topic: str = "a", version: int = 12, **fields: Any) -> Any:
    peer = connect()
    peer.give(fetch(1, topic, offset, version=version, **fields))
    (frame,) = await peer.answers(1)
    peer.close()
    return answer(FETCH, version, frame)[1].responses[0].partitions[0]


def offsets(partition: Any) -> list[int]:
    return [record.offset for record in read_batches(partition.records)] if partition.records else []


async def read_everything(connect: Connect, topic: str = "a", **fields: Any) -> list[int]:
    found: list[int] = []
    while not found or found[-1] < COUNT - 1:
        got = offsets(await read(connect, found[-1] + 1 if found else 0, topic, **fields))
        assert got
        found += got
    return found


def run(config: BrokerConfig, steps: Callable[[Server, Connect], Awaitable[None]], **options: Any) -> None:
    with_server(steps, config=config, **options)


# Reading


@pytest.mark.parametrize("version", range(4, 13))
def test_a_reader_does_not_notice_where_the_archive_ends(config: BrokerConfig, version: int) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await archived_topic(server)
        fields = {} if version >= 7 else {"session_epoch": 0}
        assert await read_everything(connect, version=version, **fields) == list(range(COUNT))

    run(config, steps)


def test_one_answer_has_what_is_here_and_what_is_in_the_archive(config: BrokerConfig) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await archived_topic(server)
        wanted = [
            {"topic": name, "partitions": [{"partition": 0, "fetch_offset": 0, "current_leader_epoch": -1,
                                            "partition_max_bytes": 1 << 20}]}
            for name in ("t", "a")
        ]  # fmt: skip
        peer = connect()
        peer.give(produce(1, "t"))
        await peer.answers(1)
        peer.received.clear()
        # In a session, which the second request goes on with.
        peer.give(fetch(2, "", topics=wanted, session_epoch=0))
        (frame,) = await peer.answers(1)
        body = answer(FETCH, 12, frame)[1]
        assert {r.topic: offsets(r.partitions[0])[0] for r in body.responses} == {"t": 0, "a": 0}
        peer.received.clear()
        peer.give(fetch(3, "", topics=[], session_id=body.session_id, session_epoch=1))
        (frame,) = await peer.answers(1)
        assert {r.topic for r in answer(FETCH, 12, frame)[1].responses} == {"t", "a"}

    run(config, steps)


def test_answers_keep_their_order_though_one_waits_for_the_archive(config: BrokerConfig) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await archived_topic(server)
        peer = connect()
        peer.give(fetch(1, "a", 0) + produce(2, "t") + fetch(3, "a", COUNT - 1))
        frames = await peer.answers(3)
        assert [int.from_bytes(frame[:4], "big") for frame in frames] == [1, 2, 3]

    run(config, steps)


def test_who_reads_committed_records_is_told_what_was_aborted(config: BrokerConfig) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await server.node.topic_admin.create("a", 1, ARCHIVED)
        log = log_of(server)
        log.transactions_gate = None
        # Begins in the archive, is aborted in a segment that stays here.
        log.append(a_transactional_batch(0, b"aborted", producer=9, at=NOW), NOW)
        log.append(a_transactional_batch(0, b"aborted too", producer=8, at=NOW), NOW)
        log.append_marker(8, 0, commit=False, coordinator_epoch=0, now_ms=NOW)
        fill(server.node)
        log.append_marker(9, 0, commit=False, coordinator_epoch=0, now_ms=NOW)
        fill(server.node)
        await archive(server.node)
        assert log.archive.end_offset > COUNT
        found = await read(connect, 0, isolation_level=1)
        assert {(a.producer_id, a.first_offset) for a in found.aborted_transactions} == {(9, 0), (8, 1)}
        found = await read(connect, 5, isolation_level=1)
        assert {(a.producer_id, a.first_offset) for a in found.aborted_transactions} == {(9, 0)}
        assert not (await read(connect, 0)).aborted_transactions

    run(config, steps)


def test_many_readers_of_one_place_share_one_read(config: BrokerConfig) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        log = await archived_topic(server)
        store = store_of(server)
        go_on = threading.Event()
        store.before_step = lambda what: _held(go_on)
        store.asked.clear()
        peers = [connect() for _ in range(20)]
        for peer in peers:
            peer.give(fetch(1, "a", 0))
        await asyncio.sleep(0.05)
        assert len(store.asked) == 1
        go_on.set()
        for peer in peers:
            (frame,) = await peer.answers(1)
            assert offsets(answer(FETCH, 12, frame)[1].responses[0].partitions[0])[0] == 0
        first = log.archive.segments[0].object
        assert len([what for what in store.asked if first in what]) == 1

    run(config, steps)


def _held(go_on: threading.Event) -> None:
    assert go_on.wait(60)


def test_a_slow_archive_is_not_waited_for_and_nobody_else_waits(config: BrokerConfig) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        server.node.config = at_work(server).config = server.node._with_overrides(
            {"remote.fetch.max.wait.ms": "20"}, {}
        )
        log = await archived_topic(server)
        go_on = threading.Event()
        store_of(server).before_step = lambda what: _held(go_on)
        found = await read(connect, 0)
        assert (found.error_code, offsets(found), found.high_watermark) == (0, [], COUNT)
        assert offsets(await read(connect, log.local_start_offset))
        go_on.set()
        async with asyncio.timeout(10):
            while not offsets(await read(connect, 0)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    run(config, steps)


def test_a_reader_that_hangs_up_while_it_waits_costs_nothing(config: BrokerConfig) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await archived_topic(server)
        go_on = threading.Event()
        store_of(server).before_step = lambda what: _held(go_on)
        peer = connect()
        peer.give(fetch(1, "a", 0))
        peer.close()
        go_on.set()
        assert (await read_everything(connect))[0] == 0
        assert server.node.counters.bugs == 0

    run(config, steps)


# Away, and back


def test_an_archive_that_is_away_is_an_error_for_those_offsets_only(
    config: BrokerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        log = await archived_topic(server)
        store_of(server).is_away = True
        at_work(server).blocks.forget(log.archive.segments[0].object)
        found = await read(connect, 0)
        assert (found.error_code, found.records or b"") == (KAFKA_STORAGE_ERROR, b"")
        assert "try again" in caplog.text
        assert at_work(server).read_errors == 1
        assert offsets(await read(connect, log.local_start_offset))
        local, archived = log.local_start_offset, log.archive.end_offset
        fill(server.node)
        await archive(server.node)
        assert at_work(server).is_away
        assert (log.local_start_offset, log.archive.end_offset) == (local, archived), "nothing moved"
        store_of(server).is_away = False
        await archive(server.node)
        assert not at_work(server).is_away
        assert log.local_start_offset == log.archive.end_offset > archived
        assert offsets(await read(connect, 0))[0] == 0
        assert "there again" in caplog.text

    caplog.set_level("INFO", "millstream")
    run(config, steps)


def test_an_archive_that_hangs_does_not_keep_the_broker_from_ending_in_order(
    config: BrokerConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(archiving_module, "_GRACE", 0.05)
    go_on = threading.Event()

    async def steps(server: Server, connect: Connect) -> None:
        await archived_topic(server)
        fill(server.node)
        store_of(server).before_step = lambda what: _held(go_on)
        connect().give(fetch(1, "a", 0))
        round_ = asyncio.create_task(at_work(server).round(server.node.topics.partitions()))
        await asyncio.sleep(0.05)
        round_.cancel()

    run(config, steps)
    go_on.set()
    assert "shuts down without it" in caplog.text

    async def again(server: Server, connect: Connect) -> None:
        assert (log_of(server).log_start_offset, log_of(server).end_offset) == (0, 2 * COUNT)

    run(config, again, topics={})


def test_a_directory_that_is_not_mounted_is_not_taken_for_an_empty_archive(tmp_path: Path) -> None:
    place = tmp_path / "archive"

    async def steps(server: Server, connect: Connect) -> None:
        log = await archived_topic(server)
        before = log.archive.end_offset
        place.rename(tmp_path / "unmounted")
        place.mkdir()
        fill(server.node)
        await archive(server.node)
        assert at_work(server).is_away
        assert (log.archive.end_offset, list(place.iterdir())) == (before, [])
        place.rmdir()
        (tmp_path / "unmounted").rename(place)
        await archive(server.node)
        assert log.archive.end_offset > before

    run(BrokerConfig(data=str(tmp_path / "data"), millstream_archive_url=str(place)), steps)


class Mount:
    """An archive in a directory that can be unmounted: then there is another, empty one in its place."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._mounted, self._empty = place.with_name("mounted"), place.with_name("empty")
        self._mounted.mkdir()
        self._empty.mkdir()
        place.symlink_to(self._mounted)

    def unmount(self) -> None:
        self._point_to(self._empty)

    def mount(self) -> None:
        self._point_to(self._mounted)

    def _point_to(self, directory: Path) -> None:
        self.place.unlink()
        self.place.symlink_to(directory)

    @property
    def objects(self) -> set[str]:
        """In the archive itself, mounted or not."""
        return {path.name for path in self._mounted.rglob("*.segment")}


def unmount_at(mount: Mount, server: Server, step: str) -> None:
    """Unmount it when an object is next asked for this."""

    def unmount(what: str) -> None:
        if what.startswith(step) and what.endswith(".segment"):
            mount.unmount()

    store_of(server).before_step = unmount


def mount_again(mount: Mount, server: Server) -> None:
    store_of(server).before_step = lambda what: None
    mount.mount()


@pytest.fixture
def mount(tmp_path: Path, url: str) -> Mount:
    return Mount(tmp_path / "archive")


@pytest.fixture
def mounted(tmp_path: Path, mount: Mount) -> BrokerConfig:
    return BrokerConfig(data=str(tmp_path / "data"), millstream_archive_url=str(mount.place))


def test_a_segment_copied_to_a_directory_that_was_just_unmounted_is_not_archived(
    mount: Mount, mounted: BrokerConfig
) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        node = server.node
        await node.topic_admin.create("a", 1, ARCHIVED)
        fill(node, count=10)
        await archive(node)
        before = log_of(server).archive.end_offset
        unmount_at(mount, server, "put")
        fill(node, count=COUNT - 10)
        await archive(node)
        assert at_work(server).is_away
        assert log_of(server).archive.end_offset == before > 0
        mount_again(mount, server)
        await archive(node)
        assert log_of(server).archive.end_offset > before
        assert mount.objects == {s.object.rpartition("/")[2] for s in log_of(server).archive.segments}
        assert await read_everything(connect) == list(range(COUNT))

    run(mounted, steps)


def test_an_archive_that_was_marked_once_is_known_by_its_mark_even_if_it_is_empty(
    mount: Mount, mounted: BrokerConfig
) -> None:
    async def mark_it(server: Server, connect: Connect) -> None:
        await server.node.topic_admin.create("a", 1, ARCHIVED)
        await archive(server.node)

    async def start_again(server: Server, connect: Connect) -> None:
        mount.unmount()
        fill(server.node)
        await archive(server.node)
        assert at_work(server).is_away
        assert list(mount.place.iterdir()) == []
        assert not log_of(server).archive.segments
        mount.mount()
        await archive(server.node)
        assert log_of(server).archive.end_offset > 0

    run(mounted, mark_it)
    run(mounted, start_again, topics={})


def test_what_was_to_be_removed_while_the_archive_was_unmounted_is_removed_later(
    mount: Mount, mounted: BrokerConfig
) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        node = server.node
        await archived_topic(server)
        unmount_at(mount, server, "remove")
        log_of(server).delete_records(COUNT)
        await archive(node)
        mount_again(mount, server)
        assert mount.objects
        await archive(node)
        assert mount.objects == {s.object.rpartition("/")[2] for s in log_of(server).archive.segments}
        assert len(mount.objects) <= 1

    run(mounted, steps)


def test_a_deleted_topic_leaves_an_archive_that_was_unmounted_meanwhile(
    mount: Mount, mounted: BrokerConfig
) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await archived_topic(server, file_delete_delay_ms="0")
        await server.node.topic_admin.delete("a")
        store_of(server).before_step = lambda what: mount.unmount() if what.startswith("remove_all") else None
        await at_work(server).round([])
        mount_again(mount, server)
        assert mount.objects
        await at_work(server).round([])
        assert mount.objects == set()

    run(mounted, steps)


# ListOffsets


@pytest.mark.parametrize("version", versions(2, first=6))
def test_offsets_by_time_and_by_name_are_found_wherever_they_are(config: BrokerConfig, version: int) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        log = await archived_topic(server)

        async def at(timestamp: int) -> tuple[int, int, int]:
            wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
            topics = [{"name": "a", "partitions": [wanted]}]
            found = await ask(
                server.node, 2, version, replica_id=-1, isolation_level=0, topics=topics, timeout_ms=1000
            )
            partition = found.topics[0].partitions[0]
            return partition.error_code, partition.offset, partition.timestamp

        for offset in (0, 7, log.local_start_offset - 1, log.local_start_offset, COUNT - 1):
            time = NOW + offset * MINUTE
            assert await at(time) == (0, offset, time)
            assert await at(time - 1) == (0, offset, time)
        assert await at(NOW + COUNT * MINUTE) == (0, -1, -1)
        specials = {
            -1: (1, COUNT),
            -2: (1, 0),
            -3: (7, COUNT - 1),
            -4: (8, log.local_start_offset),
            -5: (9, log.archive.end_offset - 1),
            -6: (11, log.archive.end_offset),
            -7: (99, None),
        }
        for special, (known_from, offset) in specials.items():
            error, found, _ = await at(special)
            if version < known_from:
                assert error == UNSUPPORTED_VERSION, special
            else:
                assert (error, found) == (0, offset), special
        store_of(server).is_away = True
        for segment in log.archive.segments:
            at_work(server).blocks.forget(segment.object)
        assert (await at(NOW))[0] == KAFKA_STORAGE_ERROR
        assert await at(NOW + (COUNT - 1) * MINUTE) == (0, COUNT - 1, NOW + (COUNT - 1) * MINUTE)

    run(config, steps)


def test_the_largest_time_may_be_in_the_archive(config: BrokerConfig) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await server.node.topic_admin.create("a", 1, ARCHIVED)
        log = log_of(server)
        log.append(a_batch(b"from the future", at=NOW + 1000 * MINUTE), NOW + 1000 * MINUTE)
        fill(server.node)
        await archive(server.node)
        assert await at_work(server).newest(log) == (0, NOW + 1000 * MINUTE)
        assert await at_work(server).first_at(log, NOW + 999 * MINUTE) == (0, NOW + 1000 * MINUTE)

    run(config, steps)


# Retention and deletion


def test_total_retention_deletes_in_the_archive_and_the_log_starts_later(config: BrokerConfig) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        log = await archived_topic(server)
        await server.node.topic_admin.alter("a", {**ARCHIVED, "retention.bytes": str(log.size_bytes + 1500)})
        before = objects(config.millstream_archive_url)
        await archive(server.node)
        start = log.log_start_offset
        assert 0 < start < log.local_start_offset
        assert log.archive.segments[0].base_offset == start
        assert set(objects(config.millstream_archive_url)) < set(before)
        assert len(objects(config.millstream_archive_url)) == len(log.archive.segments)
        assert (await read(connect, start - 1)).error_code == OFFSET_OUT_OF_RANGE
        assert offsets(await read(connect, start))[0] == start

    run(config, steps)


def test_records_deleted_by_request_are_deleted_in_the_archive(config: BrokerConfig) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        log = await archived_topic(server)
        middle = log.archive.segments[2].base_offset + 1
        wanted = [{"name": "a", "partitions": [{"partition_index": 0, "offset": middle}]}]
        found = await ask(server.node, 21, 2, topics=wanted, timeout_ms=1000)
        assert found.topics[0].partitions[0].low_watermark == middle
        assert (await read(connect, middle - 1)).error_code == OFFSET_OUT_OF_RANGE
        await archive(server.node)
        assert log.log_start_offset == middle
        assert len(objects(config.millstream_archive_url)) == len(log.archive.segments)
        assert log.archive.segments[0].base_offset <= middle < log.archive.segments[0].end_offset

    run(config, steps)


def test_all_records_deleted_leave_nothing_in_the_archive(config: BrokerConfig) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        log = await archived_topic(server)
        log.delete_records(-1)
        await archive(server.node)
        assert objects(config.millstream_archive_url) == {}
        assert (log.log_start_offset, log.local_start_offset) == (COUNT, COUNT)
        fill(server.node)
        await archive(server.node)
        assert log.log_start_offset == COUNT
        assert log.archive.segments[0].base_offset <= COUNT

    run(config, steps)


def test_turning_archiving_off_deletes_what_is_there_and_keeps_what_is_here(config: BrokerConfig) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        log = await archived_topic(server)
        local = log.local_start_offset
        await server.node.topic_admin.alter(
            "a", {"remote.log.delete.on.disable": "true", "retention.ms": "-1"}
        )
        await archive(server.node)
        assert objects(config.millstream_archive_url) == {}
        assert log.log_start_offset == log.local_start_offset == local
        await server.node.topic_admin.alter("a", ARCHIVED)
        fill(server.node)
        await archive(server.node)
        assert log.archive.segments[0].base_offset == local

    run(config, steps)


def test_copying_can_be_stopped_and_what_is_there_is_served_on(config: BrokerConfig) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        log = await archived_topic(server)
        end = log.archive.end_offset
        overrides = {"remote.storage.enable": "true", "remote.log.copy.disable": "true", "retention.ms": "-1"}
        await server.node.topic_admin.alter("a", {**overrides, "segment.bytes": "1024"})
        fill(server.node)
        await archive(server.node)
        assert (log.archive.end_offset, log.local_start_offset) == (end, end)
        assert offsets(await read(connect, 0))[0] == 0

    run(config, steps)


def test_a_deleted_topic_leaves_the_archive_after_the_delay_and_its_successor_stays(
    config: BrokerConfig,
) -> None:
    clock = ManualClock(NOW)

    async def steps(server: Server, connect: Connect) -> None:
        await archived_topic(server, file_delete_delay_ms="5000")
        first = set(objects(config.millstream_archive_url))
        await server.node.topic_admin.delete("a")
        await archived_topic(server)
        assert first < set(objects(config.millstream_archive_url)), "not before its time"
        clock.advance(5)
        await archive(server.node)
        left = set(objects(config.millstream_archive_url))
        assert len(left) == len(log_of(server).archive.segments)
        assert not left & first
        assert server.node.catalogue.deleted_archives == {}
        assert await read_everything(connect) == list(range(COUNT))

    run(config, steps, clock=clock)


def test_a_broker_that_ends_before_a_deleted_topic_has_left_the_archive_remembers(
    config: BrokerConfig,
) -> None:
    clock = ManualClock(NOW)

    async def delete(server: Server, connect: Connect) -> None:
        await archived_topic(server)
        await server.node.topic_admin.delete("a")

    async def start_again(server: Server, connect: Connect) -> None:
        assert objects(config.millstream_archive_url)
        clock.advance(60)
        await at_work(server).round([])
        assert objects(config.millstream_archive_url) == {}

    run(config, delete, clock=clock)
    run(config, start_again, clock=clock, topics={})


def test_a_topic_deleted_and_created_again_while_it_is_copied_leaves_its_successor_alone(
    config: BrokerConfig,
) -> None:
    clock = ManualClock(NOW)

    async def steps(server: Server, connect: Connect) -> None:
        node = server.node
        await node.topic_admin.create("a", 1, {**ARCHIVED, "file.delete.delay.ms": "0"})
        fill(node)
        copying, go_on = threading.Event(), threading.Event()

        def hold(what: str) -> None:
            if what.startswith("put") and what.endswith(".segment"):
                copying.set()
                _held(go_on)

        store_of(server).before_step = hold
        under_way = asyncio.create_task(at_work(server).round(node.topics.partitions()))
        assert await asyncio.to_thread(copying.wait, 10)
        await node.topic_admin.delete("a")
        await node.topic_admin.create("a", 1, ARCHIVED)
        go_on.set()
        await under_way
        assert not at_work(server).is_away
        assert log_of(server).archive.leftovers == {}
        fill(node)
        await archive(node)
        log = log_of(server)
        assert set(objects(config.millstream_archive_url)) == {s.object for s in log.archive.segments}
        assert await read_everything(connect) == list(range(COUNT))

    run(config, steps, clock=clock)


def test_a_partition_that_can_not_be_archived_does_not_keep_the_others_from_it(
    config: BrokerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        for name in ("bad", "good", "too"):
            await server.node.topic_admin.create(name, 1, ARCHIVED)
            fill(server.node, name)
        os.unlink(log_of(server, "bad").segments[0].path + ".log")
        await archive(server.node)
        assert "bad-0 can't be archived" in caplog.text
        assert not at_work(server).is_away
        ends = [log_of(server, name).archive.end_offset for name in ("bad", "good", "too")]
        assert ends[0] == -1
        assert min(ends[1:]) > 0

    run(config, steps)


# Restarts and crashes


def test_after_a_restart_everything_is_served_and_archiving_goes_on(config: BrokerConfig) -> None:
    async def first(server: Server, connect: Connect) -> None:
        await archived_topic(server)

    async def second(server: Server, connect: Connect) -> None:
        log = log_of(server)
        assert 0 == log.log_start_offset < log.local_start_offset
        assert await read_everything(connect) == list(range(COUNT))
        fill(server.node)
        await archive(server.node)
        assert log.archive.end_offset > COUNT

    run(config, first)
    run(config, second, topics={})


@pytest.mark.parametrize("lost", ["archived-segments", ""])
def test_a_broker_that_lost_its_journal_or_a_partition_that_is_archived_in_full_finds_what_is_archived(
    config: BrokerConfig, lost: str
) -> None:
    async def first(server: Server, connect: Connect) -> None:
        log = await archived_topic(server)
        if not lost:
            log.roll()
            log.sync()
            await archive(server.node)
            assert log.archive.end_offset == COUNT

    async def second(server: Server, connect: Connect) -> None:
        log = log_of(server)
        assert (log.log_start_offset, log.end_offset) == (0, COUNT)
        assert await read_everything(connect) == list(range(COUNT))
        fill(server.node)
        await archive(server.node)
        assert not at_work(server).is_away
        assert log.archive.end_offset > COUNT

    run(config, first)
    place = Path(config.data) / "a-0" / lost
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    run(config, second, topics={})


def test_a_lost_partition_of_which_the_archive_has_only_a_part_stays_offline_until_that_is_accepted(
    config: BrokerConfig, caplog: pytest.LogCaptureFixture
) -> None:
    ends: list[int] = []

    async def first(server: Server, connect: Connect) -> None:
        ends.append((await archived_topic(server)).archive.end_offset)

    async def offline(server: Server, connect: Connect) -> None:
        assert f"a-0 stays offline: the archive ends at offset {ends[0]}" in caplog.text
        assert (await read(connect, 0)).error_code == KAFKA_STORAGE_ERROR

    async def accepted(server: Server, connect: Connect) -> None:
        log = log_of(server)
        assert (log.log_start_offset, log.archive.end_offset, log.end_offset) == (0, ends[0], COUNT)
        assert offsets(await read(connect, ends[0] - 1))[-1] == ends[0] - 1
        assert (await read(connect, ends[0])).error_code == CORRUPT_MESSAGE
        fill(server.node, count=1)
        assert offsets(await read(connect, COUNT)) == [COUNT]

    run(config, first)
    shutil.rmtree(Path(config.data) / "a-0")
    run(config, offline, topics={})
    accept_losses(config.data, ["a-0"], read_catalogue(Path(config.data)).expected)
    run(config, accepted, topics={})


@pytest.mark.parametrize("is_away", [False, True])
def test_trimmed_records_do_not_come_back_when_the_journal_is_lost(
    config: BrokerConfig, monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    async def first(server: Server, connect: Connect) -> None:
        assert (await archived_topic(server)).delete_records(20) == 20

    async def without_archive(server: Server, connect: Connect) -> None:
        assert not log_of(server).archive.is_known

    async def second(server: Server, connect: Connect) -> None:
        assert log_of(server).log_start_offset == 20
        assert (await read(connect, 19)).error_code == OFFSET_OUT_OF_RANGE
        assert 20 in offsets(await read(connect, 20))

    run(config, first)
    (Path(config.data) / "a-0" / "archived-segments").unlink()
    if is_away:
        with monkeypatch.context() as patch:
            patch.setattr(Unreliable, "names", _away)
            run(config, without_archive, topics={})
    run(config, second, topics={})


def _away(store: Unreliable, prefix: str) -> list[str]:
    raise ArchiveError("the archive is away, says the test")


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_step_loses_nothing_and_leaves_nothing(
    tmp_path: Path, url: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is stopped at its first step of archiving, at its second, and so on: each step of the store
    and each line of the journal is one. Then it starts again, on the same directory and archive."""
    from millstream.log.archive.journal import Archive

    clock = ManualClock(NOW)
    steps = 0
    crash_at = -1

    def step() -> None:
        nonlocal steps
        steps += 1
        if steps == crash_at:
            raise Crash

    def stepping(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            if when == "before":
                step()
            result = function(*arguments)
            if when == "after":
                step()
            return result

        return wrapped

    for kind, names in ((Unreliable, ("put", "remove", "remove_all")), (Archive, ("_write",))):
        for name in names:
            monkeypatch.setattr(kind, name, stepping(getattr(kind, name)))

    async def life(config: BrokerConfig, *, create: bool) -> bool:
        """Whether it lived to the end."""
        node = Node(config, clock, asyncio.get_running_loop())
        try:
            if create:
                await node.topic_admin.create("a", 1, ARCHIVED)
                fill(node, count=24)
            await archive(node)
            await node.topic_admin.alter("a", {**ARCHIVED, "retention.bytes": "1600"})
            await archive(node)
            await archive(node)
        except Crash:
            return False
        finally:
            at_work(node).close()
            node.catalogue.close()
            assert node.logs.disk is not None
            node.logs.disk._unlock()
        segments, start = log_of(node).archive.segments, log_of(node).log_start_offset
        assert segments[0].base_offset == start
        assert segments[-1].end_offset == log_of(node).segments[0].base_offset
        assert all(a.end_offset == b.base_offset for a, b in itertools.pairwise(segments))
        stored = objects(config.millstream_archive_url)
        assert set(stored) == {segment.object for segment in segments}
        read = [
            record.offset
            for segment in segments
            for record in read_batches(stored[segment.object][: segment.size])
        ]
        assert read == list(range(start, log_of(node).local_start_offset))
        return True

    for number in range(1, 100):
        data, place = tmp_path / str(number), memory_url()
        config = BrokerConfig(data=str(data), millstream_archive_url=place)
        steps, crash_at = 0, number
        ended = asyncio.run(life(config, create=True))
        crash_at = -1
        if ended:
            assert number > 10, "there were steps to crash at"
            return
        assert asyncio.run(life(config, create=False))
    raise AssertionError("it never got to its end")


# Settings


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"cleanup.policy": "compact"}, "compacted"),
        ({"cleanup.policy": "compact,delete"}, "compacted"),
        ({"local.retention.ms": "2000", "retention.ms": "1000"}, "more than retention.ms"),
        ({"local.retention.ms": "-1", "retention.ms": "1000"}, "more than retention.ms"),
        ({"local.retention.bytes": "2000", "retention.bytes": "1000"}, "more than retention.bytes"),
        ({"local.retention.ms": "5", "remote.log.copy.disable": "true"}, "copy.disable"),
        ({"millstream.storage": "memory"}, "memory"),
        ({"millstream.overload": "drop"}, "ring"),
        ({"local.retention.ms": "-3"}, "at least -2"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    config: BrokerConfig, settings: dict[str, str], what: str
) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        with pytest.raises(RequestRefused, match=what) as refused:
            await server.node.topic_admin.create("a", 1, {"remote.storage.enable": "true", **settings})
        assert refused.value.code == INVALID_CONFIG
        await server.node.topic_admin.create("b", 1, {"remote.storage.enable": "true"})
        found = await ask(
            server.node, 44, 1, validate_only=False,
            resources=[{
                "resource_type": 2, "resource_name": "b",
                "configs": [{"name": name, "config_operation": 0, "value": value}
                            for name, value in settings.items()],
            }],
        )  # fmt: skip
        assert found.responses[0].error_code == INVALID_CONFIG

    run(config, steps)


def test_turning_archiving_off_has_to_say_that_it_deletes(config: BrokerConfig) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await archived_topic(server)

        async def alter(**changes: str) -> Any:
            configs = [
                {"name": k.replace("_", "."), "config_operation": 0, "value": v} for k, v in changes.items()
            ]
            resources = [{"resource_type": 2, "resource_name": "a", "configs": configs}]
            return (await ask(server.node, 44, 1, validate_only=False, resources=resources)).responses[0]

        refused = await alter(remote_storage_enable="false")
        assert refused.error_code == INVALID_CONFIG
        assert "remote.log.delete.on.disable" in refused.error_message
        assert (
            await alter(remote_storage_enable="false", remote_log_delete_on_disable="true")
        ).error_code == 0

    run(config, steps)


def test_a_broker_without_an_archive_refuses_to_archive_and_to_forget_that_it_had_one(
    config: BrokerConfig, tmp_path: Path
) -> None:
    without = BrokerConfig(data=config.data)

    async def refused(server: Server, connect: Connect) -> None:
        with pytest.raises(RequestRefused, match="no archive"):
            await server.node.topic_admin.create("a", 1, {"remote.storage.enable": "true"})

    async def created(server: Server, connect: Connect) -> None:
        await archived_topic(server)

    run(without, refused)
    run(config, created, topics={})
    with pytest.raises(DataDirectoryError, match=r"topic a: .*no archive"):
        run(without, created)
    with pytest.raises(ConfigError, match="nothing to archive"):
        run(BrokerConfig(millstream_archive_url=config.millstream_archive_url), created)


def test_what_the_archive_needs_to_know_is_told_to_nobody(tmp_path: Path, url: str) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        resources = [{"resource_type": 4, "resource_name": "0", "configuration_keys": None}]
        found = await ask(
            server.node, 32, 4, resources=resources, include_synonyms=True, include_documentation=False
        )
        (entry,) = [e for e in found.results[0].configs if e.name == "millstream.archive.options"]
        assert (entry.value, entry.is_sensitive) == (None, True)
        assert all(synonym.value is None for synonym in entry.synonyms)

    run(
        BrokerConfig(
            data=str(tmp_path), millstream_archive_url=url, millstream_archive_options='{"password": "x"}'
        ),
        steps,
    )
