"""Readers of committed records: how far they see, what they have to leave out, and when they are woken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from millstream.broker.api import fetch as fetch_api
from millstream.broker.server import Server
from millstream.broker.topics.partition import Partition
from millstream.core.errors import LogFailed
from millstream.records.columns.arrow import decode
from tests.support.asking import Run, ask, versions
from tests.support.disk import SimulatedDisk
from tests.support.fake_peer import FakePeer, with_server
from tests.support.logs import NOW, a_batch, a_transactional_batch
from tests.support.wire_client import FETCH, LIST_OFFSETS, answer, fetch, request

Connect = Callable[[], FakePeer]
READ_COMMITTED = 1


class Writer:
    """Writes to partition 0 of "t" as requests and the coordinator do, in the turn of the loop."""

    def __init__(self, server: Server) -> None:
        partition = server.node.topics.partition("t", 0)
        assert partition is not None
        self.partition: Partition = partition
        self.log = partition.log
        self.log.transactions_gate = None  # nobody coordinates here
        self._turn = server.turn
        self.now = server.clock.now_ms()

    def append(self, batch: bytearray) -> None:
        turn, partition = self._turn, self.partition
        if not turn.scheduled:
            turn.schedule()
        self.log.append(batch, self.now)
        partition.turn_bytes += len(batch)
        if not partition.is_staged:
            partition.is_staged = True
            turn.partitions.append(partition)

    def plain(self, *values: bytes) -> None:
        self.append(a_batch(*values, at=self.now))

    def transactional(self, *values: bytes, producer: int = 7) -> None:
        known = self.log.producers.states.get(producer)
        sequence = known[1] if known else 0
        self.append(a_transactional_batch(sequence, *values, producer=producer, at=self.now))

    def end(self, *, commit: bool, producer: int = 7) -> None:
        self.partition.append_marker(self._turn, producer, 0, commit=commit, coordinator_epoch=0)


def partition_of(frame: bytes, version: int = 12) -> Any:
    return answer(FETCH, version, frame)[1].responses[0].partitions[0]


def committed(partition: Any, first: int = 0) -> list[bytes]:
    """The values that a reader makes of an answer."""
    aborted = [(a.producer_id, a.first_offset) for a in partition.aborted_transactions]
    batches = decode(partition.records, first=first, aborted=aborted)
    return [value for batch in batches for value in batch.column("value").to_pylist()]


async def read(connect: Connect, offset: int = 0, version: int = 12, **fields: Any) -> Any:
    await asyncio.sleep(0)  # what is staged is written
    peer = connect()
    peer.give(fetch(1, "t", offset, version=version, isolation_level=READ_COMMITTED, **fields))
    (frame,) = await peer.answers(1)
    peer.close()
    return partition_of(frame, version)


@pytest.mark.parametrize("version", range(4, 13))
def test_a_reader_sees_up_to_the_last_stable_offset_without_what_was_aborted(version: int) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        writer = Writer(server)
        writer.plain(b"a")
        writer.transactional(b"b", b"c")
        writer.transactional(b"d", producer=8)
        writer.end(commit=False)
        writer.plain(b"e")
        found = await read(connect, version=version)
        assert (found.high_watermark, found.last_stable_offset) == (6, 3)
        assert committed(found) == [b"a"]
        assert [(a.producer_id, a.first_offset) for a in found.aborted_transactions] == [(7, 1)]
        writer.end(commit=True, producer=8)
        found = await read(connect, version=version)
        assert (found.high_watermark, found.last_stable_offset) == (7, 7)
        assert committed(found) == [b"a", b"d", b"e"]

    with_server(steps)


def test_the_aborted_transactions_told_are_those_of_what_is_returned() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        writer = Writer(server)
        for number in range(10):
            writer.transactional(b"%d" % number)
            writer.end(commit=False)
        await asyncio.sleep(0)
        for offset in range(20):
            found = await read(connect, offset, max_bytes=1)  # one batch
            first = offset - offset % 2
            assert [a.first_offset for a in found.aborted_transactions] == [first]

    with_server(steps)


def test_a_reader_at_the_last_stable_offset_gets_nothing_and_no_error() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        writer = Writer(server)
        writer.transactional(b"a", b"b")
        await asyncio.sleep(0)
        for offset in range(3):
            found = await read(connect, offset)
            assert (found.error_code.value, found.records, found.last_stable_offset) == (0, b"", 0)
        assert (await read(connect, 3)).error_code.value == 1

    with_server(steps)


async def nothing_yet(peer: FakePeer) -> None:
    await asyncio.sleep(0.01)
    peer.take()
    assert not peer.received


@pytest.mark.parametrize("session", [False, True])
def test_a_long_poll_wakes_when_the_last_stable_offset_moves(session: bool) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        writer = Writer(server)
        reader = connect()
        fields = {"session_epoch": 0} if session else {}
        reader.give(fetch(1, "t", wait=20_000, isolation_level=READ_COMMITTED, **fields))
        writer.transactional(b"a")
        await nothing_yet(reader)
        writer.plain(b"b")
        await nothing_yet(reader)
        writer.end(commit=True)
        (frame,) = await reader.answers(1)
        assert committed(partition_of(frame)) == [b"a", b"b"]
        assert not writer.partition.waiters

    with_server(steps)


def test_a_long_poll_for_many_bytes_counts_those_that_were_held_back() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        writer = Writer(server)
        early, late = connect(), connect()
        early.give(fetch(1, "t", wait=20_000, isolation_level=READ_COMMITTED, min_bytes=3000))
        writer.transactional(b"v" * 2000)
        await nothing_yet(early)
        late.give(fetch(1, "t", wait=20_000, isolation_level=READ_COMMITTED, min_bytes=3000))
        writer.transactional(b"v" * 2000)
        await nothing_yet(late)
        writer.end(commit=True)
        for reader in (early, late):
            (frame,) = await reader.answers(1)
            assert len(committed(partition_of(frame))) == 2

    with_server(steps)


def test_a_long_poll_waits_on_where_the_offset_moved_by_too_little() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        writer = Writer(server)
        writer.transactional(b"a")
        writer.transactional(b"v" * 2000, producer=8)
        reader = connect()
        await asyncio.sleep(0)
        reader.give(fetch(1, "t", wait=20_000, isolation_level=READ_COMMITTED, min_bytes=1000))
        writer.end(commit=True)
        await nothing_yet(reader)
        writer.end(commit=True, producer=8)
        (frame,) = await reader.answers(1)
        assert committed(partition_of(frame)) == [b"a", b"v" * 2000]

    with_server(steps)


def test_who_reads_everything_does_not_wait_for_markers() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        writer = Writer(server)
        reader = connect()
        reader.give(fetch(1, "t", wait=20_000))
        writer.transactional(b"a")
        (frame,) = await reader.answers(1)
        found = partition_of(frame)
        assert (found.high_watermark, found.last_stable_offset, found.aborted_transactions) == (1, 0, None)

    with_server(steps)


def test_many_who_wait_for_the_same_share_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0
    read_once = fetch_api.ReadRecords.__init__

    def counted(self: Any, data: bytes) -> None:
        nonlocal reads
        reads += 1
        read_once(self, data)

    monkeypatch.setattr(fetch_api.ReadRecords, "__init__", counted)

    async def steps(server: Server, connect: Connect) -> None:
        writer = Writer(server)
        writer.transactional(b"a")
        writer.transactional(b"b", producer=8)
        await asyncio.sleep(0)
        readers = [connect() for _ in range(20)]
        for number, reader in enumerate(readers):
            reader.give(fetch(number, "t", wait=20_000, isolation_level=READ_COMMITTED))
        writer.end(commit=False)
        writer.end(commit=True, producer=8)
        for reader in readers:
            (frame,) = await reader.answers(1)
            found = partition_of(frame)
            assert committed(found) == [b"b"]
            assert [(a.producer_id, a.first_offset) for a in found.aborted_transactions] == [(7, 0)]
        assert reads == 1

    with_server(steps)


def test_a_marker_that_could_not_be_written_moves_nothing() -> None:
    failures = []

    class Coordinator:
        needs_sync = True
        timeout_ms = -1

        def settled(self, place: int, failure: Any) -> None:
            failures.append((place, failure))

    async def steps(server: Server, connect: Connect) -> None:
        writer = Writer(server)
        writer.transactional(b"a")
        await asyncio.sleep(0)
        disk = SimulatedDisk()
        disk.room = 0
        file = writer.log.segments.last.log
        disk.make_directory("/d")
        kept, file.file = file.file, disk.open("/d/full", create=True)
        writer.end(commit=True)
        writer.partition.unsettled.append((Coordinator(), 5))
        await asyncio.sleep(0)
        file.file = kept
        assert (writer.log.last_stable_offset, writer.log.end_offset) == (0, 1)
        ((place, failure),) = failures
        assert place == 5
        assert isinstance(failure, LogFailed)
        writer.end(commit=True)
        assert committed(await read(connect)) == [b"a"]

    with_server(steps)


# ListOffsets and DescribeProducers


def listed(partition: Any) -> tuple[int, int]:
    return partition.error_code.value, partition.offset


@pytest.mark.parametrize("version", [version for version in versions(2) if version >= 2])
def test_the_latest_offset_of_committed_records_is_the_last_stable_one(version: int) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        writer = Writer(server)
        writer.plain(b"a")
        writer.transactional(b"b")
        await asyncio.sleep(0)

        async def offset(isolation: int, timestamp: int) -> int:
            peer = connect()
            wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
            topics = [{"name": "t", "partitions": [wanted]}]
            fields = {"replica_id": -1, "isolation_level": isolation, "topics": topics, "timeout": 1000}
            peer.give(request(LIST_OFFSETS, version, 1, **fields))
            (frame,) = await peer.answers(1)
            code, found = listed(answer(LIST_OFFSETS, version, frame)[1].topics[0].partitions[0])
            assert code == 0
            return found

        assert (await offset(0, -1), await offset(READ_COMMITTED, -1)) == (2, 1)
        assert (await offset(0, writer.now), await offset(READ_COMMITTED, writer.now)) == (0, 0)
        writer.log.delete_records(1)
        assert (await offset(0, writer.now), await offset(READ_COMMITTED, writer.now)) == (1, -1)
        if version >= 7:
            assert (await offset(0, -3), await offset(READ_COMMITTED, -3)) == (1, -1)

    with_server(steps)


def test_producers_are_described(node: Any, run: Run) -> None:
    run(node.topic_admin.create("t", 1, {}))
    log = node.topics.partition("t", 0).log
    log.transactions_gate = None
    log.append(a_batch(), NOW)
    log.append(a_transactional_batch(0, b"a", b"b", epoch=3), NOW + 1)
    log.append_marker(8, 2, commit=True, coordinator_epoch=4, now_ms=NOW + 2)
    found = run(
        ask(
            node,
            61,
            0,
            topics=[
                {"name": "t", "partition_indexes": [0, 1]},
                {"name": "missing", "partition_indexes": [0]},
            ],
        )
    )
    here, beyond = found.topics[0].partitions
    assert (here.partition_index, here.error_code.value) == (0, 0)
    assert [
        (
            p.producer_id,
            p.producer_epoch,
            p.last_sequence,
            p.last_timestamp,
            p.coordinator_epoch,
            p.current_txn_start_offset,
        )
        for p in here.active_producers
    ] == [(7, 3, 1, NOW + 1, -1, 1), (8, 2, -1, NOW + 2, 4, -1)]
    for unknown in (beyond, found.topics[1].partitions[0]):
        assert (unknown.error_code.value, unknown.active_producers) == (3, ())
        assert "there is no partition" in unknown.error_message
