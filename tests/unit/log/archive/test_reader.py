"""Reading from the archive gives what reading from the disk gave, and a block is fetched once for all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core.clock import SystemClock
from millstream.core.errors import ArchiveError, LogError
from millstream.log.archive import blocks as archive_blocks
from millstream.log.archive.blocks import Blocks
from millstream.log.archive.copy import Pace, copy_segment, next_copy
from millstream.log.archive.reader import BELIEVED, ArchiveReader
from millstream.log.archive.store import ArchiveStore
from millstream.log.partition import PartitionLog
from millstream.records.batch import batches
from millstream.records.build import read_batches
from tests.support.archives import Unreliable, memory_url, objects
from tests.support.disk import SimulatedDisk
from tests.support.logs import NOW, a_batch, a_transactional_batch, open_log

BLOCK = 512


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_blocks, "BLOCK", BLOCK)


@pytest.fixture
def ahead() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


def archived(log: PartitionLog, store: ArchiveStore) -> None:
    log.archive.create()
    log.archive.open()
    log.roll()
    log.sync()
    while (copy := next_copy(log, "c/t", {})) is not None:
        log.archive.add(copy_segment(copy, store, Pace(SystemClock())))
    assert log.archive.end_offset == log.end_offset


def read_on(read: Callable[[int], bytes], end: int) -> bytes:
    """All batches, one read after the other; a read may end with a part of one, which is left."""
    offset, found = 0, bytearray()
    while offset < end:
        data = read(offset)
        *_, (position, last) = batches(data)
        found += data[: position + last.size]
        assert last.next_offset > offset
        offset = last.next_offset
    return bytes(found)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from(["plain", "commit", "abort"]), st.integers(0, 200), st.integers(1, 300)),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 2000),
)
def test_what_comes_from_the_archive_is_what_was_in_the_log(
    steps: list[tuple[str, int, int]], max_bytes: int
) -> None:
    _, log = open_log(SimulatedDisk(), segment_bytes=1024, index_interval_bytes=100)
    sequences: dict[int, int] = {}
    for number, (kind, time, size) in enumerate(steps):
        value = b"%d " % number + b"v" * size
        if kind == "plain":
            log.append(a_batch(value, value, at=NOW + time), NOW)
        else:
            producer = 100 + number % 3
            sequence = sequences.get(producer, 0)
            log.append(a_transactional_batch(sequence, value, producer=producer, at=NOW + time), NOW)
            sequences[producer] = sequence + 1
            if number % 2:
                log.append_marker(
                    producer, 0, commit=kind == "commit", coordinator_epoch=0, now_ms=NOW + time
                )
        log.write_staged()
    for producer in list(log.open_transactions()):
        log.append_marker(producer, 0, commit=False, coordinator_epoch=0, now_ms=NOW)
    log.write_staged()
    with ThreadPoolExecutor(1) as ahead:
        store = ArchiveStore(memory_url())
        archived(log, store)
        reader = ArchiveReader(Blocks(store, 4 * BLOCK, ahead))
        segments = log.archive.segments

        def from_archive(offset: int) -> bytes:
            number = log.archive.number_of(offset)
            return reader.read(segments, number, offset, max_bytes, committed=False).data

        end = log.end_offset
        assert read_on(from_archive, end) == read_on(lambda offset: log.read(offset, 700).bytes(), end)
        for time in range(0, 220, 20):
            assert reader.first_at(segments, NOW + time, 0) == log.offset_for_timestamp(NOW + time), time
        assert reader.newest(segments, 0) == log.max_timestamp_offset()
        for offset in range(0, log.end_offset, 3):
            read = reader.read(segments, log.archive.number_of(offset), offset, max_bytes, committed=True)
            expected = set(log.aborted(offset, read.upto))
            assert set(read.aborted) == expected, offset


def a_long_log(count: int = 60) -> PartitionLog:
    _, log = open_log(SimulatedDisk(), index_interval_bytes=100)
    for number in range(count):
        log.append(a_batch(b"%0100d" % number, at=NOW + number), NOW)
        log.write_staged()
    return log


def test_a_block_that_many_want_at_once_is_fetched_once(ahead: ThreadPoolExecutor) -> None:
    log = a_long_log()
    store = Unreliable(memory_url())
    archived(log, store)
    blocks = Blocks(store, 1 << 20, ahead)
    entered, go_on = threading.Event(), threading.Event()

    def hold(what: str) -> None:
        entered.set()
        assert go_on.wait(60)

    store.asked.clear()
    store.before_step = hold
    with ThreadPoolExecutor(8) as readers:
        name, size = log.archive.segments[0].object, log.archive.segments[0].object_size
        asked = [readers.submit(blocks.read, name, size, 0, 10) for _ in range(8)]
        assert entered.wait(60)
        go_on.set()
        assert len({future.result(60) for future in asked}) == 1
    assert store.asked == [f"read {name} 0 {BLOCK}"]
    assert (blocks.misses, blocks.hits) == (1, 7)


def test_memory_is_bounded_and_what_was_not_used_for_longest_goes(ahead: ThreadPoolExecutor) -> None:
    log = a_long_log()
    store = Unreliable(memory_url())
    archived(log, store)
    name, size = log.archive.segments[0].object, log.archive.segments[0].object_size
    blocks = Blocks(store, 3 * BLOCK, ahead)
    for number in (0, 1, 2, 0, 3):
        blocks.read(name, size, number * BLOCK, 1)
        assert blocks.held <= 3 * BLOCK
    store.asked.clear()
    for number in (0, 2, 3):
        blocks.read(name, size, number * BLOCK, 1)
    assert store.asked == []
    blocks.read(name, size, BLOCK, 1)
    assert len(store.asked) == 1
    blocks.forget(name)
    assert blocks.held == 0


def test_who_reads_on_finds_the_next_blocks_there(
    ahead: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = 16 * 1024  # more than a look for a batch reads at a time
    monkeypatch.setattr(archive_blocks, "BLOCK", large)
    log = a_long_log(count=400)
    store = Unreliable(memory_url())
    archived(log, store)
    blocks = Blocks(store, 1 << 20, ahead)
    reader = ArchiveReader(blocks)
    first = reader.read(log.archive.segments, 0, 0, large, committed=False)
    ahead.submit(lambda: None).result(60)  # after what was asked for ahead
    misses = blocks.misses
    following = [r.offset for r in read_batches(first.data[: large - 200])][-1] + 1
    assert reader.read(log.archive.segments, 0, following, large, committed=False).data
    assert blocks.misses == misses


def test_an_error_is_told_to_all_who_wait_and_the_next_one_tries_again(ahead: ThreadPoolExecutor) -> None:
    log = a_long_log()
    store = Unreliable(memory_url())
    archived(log, store)
    reader = ArchiveReader(Blocks(store, 1 << 20, ahead))
    store.is_away = True
    with pytest.raises(ArchiveError, match="away"):
        reader.read(log.archive.segments, 0, 0, 100, committed=False)
    store.is_away = False
    assert reader.read(log.archive.segments, 0, 0, 100, committed=False).data


def test_a_flipped_bit_in_the_archive_is_found_and_what_is_around_it_is_served(
    ahead: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    log = a_long_log()
    url = memory_url()
    store = ArchiveStore(url)
    archived(log, store)
    segment = log.archive.segments[0]
    data = bytearray(objects(url)[segment.object])
    position = log.segments[0].locate(30, log.segments[0].written, 60)
    assert position is not None
    data[position.position + 90] ^= 1
    store.put(segment.object, [bytes(data)])
    reader = ArchiveReader(Blocks(store, 1 << 20, ahead))
    before = reader.read(log.archive.segments, 0, 20, 1 << 20, committed=False)
    assert [r.offset for r in read_batches(before.data)][-1] == 29
    for _ in range(3):
        with pytest.raises(LogError) as told:
            reader.read(log.archive.segments, 0, 30, 100, committed=False)
        assert told.value.code == 2
    assert caplog.text.count("damaged records") == 1
    after = reader.read(log.archive.segments, 0, 31, 1 << 20, committed=False)
    assert [r.offset for r in read_batches(after.data)] == list(range(31, 60))


def test_an_object_that_is_gone_is_an_error_and_not_an_end(ahead: ThreadPoolExecutor) -> None:
    log = a_long_log()
    store = ArchiveStore(memory_url())
    archived(log, store)
    store.remove(log.archive.segments[0].object)
    reader = ArchiveReader(Blocks(store, 1 << 20, ahead))
    with pytest.raises(ArchiveError, match="there is no"):
        reader.read(log.archive.segments, 0, 0, 100, committed=False)


def test_an_object_that_was_repaired_is_read_again(ahead: ThreadPoolExecutor) -> None:
    log = a_long_log()
    url = memory_url()
    store = Unreliable(url)
    archived(log, store)
    segment = log.archive.segments[0]
    whole = objects(url)[segment.object]
    position = log.segments[0].locate(30, log.segments[0].written, 60)
    assert position is not None
    damaged = bytearray(whole)
    damaged[position.position + 90] ^= 1
    store.put(segment.object, [bytes(damaged)])
    now = 0.0
    reader = ArchiveReader(Blocks(store, 1 << 20, ahead), lambda: now)

    def read() -> list[int]:
        part = reader.read(log.archive.segments, 0, 30, 100, committed=False)
        return [record.offset for record in read_batches(part.data)]

    with pytest.raises(LogError):
        read()
    asked = len(store.asked)
    now = BELIEVED - 1
    with pytest.raises(LogError):
        read()
    assert len(store.asked) == asked, "readers that try again don't download it each time"
    now = BELIEVED
    with pytest.raises(LogError):
        read()
    assert len(store.asked) > asked, "it was looked at again, and found damaged again"
    store.put(segment.object, [whole])
    now = 2 * BELIEVED
    assert read() == [30]


def test_an_object_with_a_wrong_index_is_read_again_once_it_is_repaired(ahead: ThreadPoolExecutor) -> None:
    log = a_long_log()
    url = memory_url()
    store = ArchiveStore(url)
    archived(log, store)
    segment = log.archive.segments[0]
    whole = objects(url)[segment.object]
    start, size, _ = segment.sections["index"]
    assert size
    wrong = bytearray(whole)
    for entry in range(start, start + size, 8):
        wrong[entry + 7] ^= 1  # the position of a batch
    store.put(segment.object, [bytes(wrong)])
    reader = ArchiveReader(Blocks(store, 1 << 20, ahead))
    with pytest.raises(ArchiveError):
        reader.read(log.archive.segments, 0, 50, 100, committed=False)
    store.put(segment.object, [whole])
    read = reader.read(log.archive.segments, 0, 50, 100, committed=False)
    assert next(record.offset for record in read_batches(read.data)) == 50
