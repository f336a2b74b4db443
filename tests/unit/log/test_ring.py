"""A log under ``millstream.overload=drop``: within its bytes at every moment, and the oldest goes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core.clock import ManualClock
from millstream.core.config import with_changes
from millstream.core.errors import AppendRefused, ConfigError, LogFailed, OffsetOutOfRange
from millstream.core.topic_config import TopicConfig
from millstream.log.directory import LogDirectory
from millstream.log.partition import PartitionLog
from millstream.log.storage.files import DIRECTORY
from millstream.log.storage.memory import MemoryFiles
from tests.support.disk import SimulatedDisk
from tests.support.logs import NOW, TOPIC, a_batch, a_transactional_batch, append, contents, open_log, reopen
from tests.support.logs import settings as topic_settings

LIMIT = 65_536
RING = {"millstream_overload": "drop", "millstream_overload_bytes": LIMIT}


def bytes_on_disk(files: MemoryFiles | SimulatedDisk) -> int:
    listing = files.listing(f"/data/{TOPIC}-0")
    return sum(size for name, size in listing.items() if size != DIRECTORY and ".log" in name)


def fill(log: PartitionLog, records: int, size: int = 1000) -> None:
    for number in range(records):
        append(log, b"%06d" % number + bytes(size))


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(1, LIMIT - 200), st.sampled_from(["keep", "write", "sync", "retain"])),
        max_size=60,
    )
)
def test_no_more_than_its_bytes_are_ever_there_and_the_rest_is_the_newest(
    steps: list[tuple[int, str]],
) -> None:
    files = MemoryFiles()
    _, log = open_log(files, **RING)
    sent = []
    for number, (size, then) in enumerate(steps):
        value = b"%06d" % number + bytes(size)
        log.append(a_batch(value), NOW)
        sent.append(value)
        assert log.size_bytes <= LIMIT
        if then != "keep":
            log.write_staged()
        if then == "sync":
            log.sync()
        if then == "retain":
            log.write_staged()
            log.apply_retention(NOW)
        assert bytes_on_disk(files) <= LIMIT
    log.write_staged()
    kept = [value for _, value in contents(log)]
    assert kept == sent[len(sent) - len(kept) :]
    assert log.log_start_offset == len(sent) - len(kept)
    ring = log.ring
    assert ring is not None
    assert ring.dropped_records == log.log_start_offset
    assert ring.dropped_bytes + log.size_bytes == sum(len(a_batch(value)) for value in sent)


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1, 9000), st.sampled_from(["keep", "sync", "trim", "old"])), max_size=80)
)
def test_what_retention_and_trims_take_away_is_not_kept_beside_the_ring(steps: list[tuple[int, str]]) -> None:
    """Whatever file.delete.delay.ms says; a ring fills up again before that is over."""
    files = MemoryFiles()
    _, log = open_log(files, retention_ms=1000, **RING)
    now = NOW
    for number, (size, then) in enumerate(steps):
        append(log, b"%06d" % number + bytes(size), at=now, now=now)
        assert bytes_on_disk(files) <= LIMIT
        if then == "trim":
            log.delete_records(-1)
            log.apply_retention(now)
            assert log.log_start_offset == log.end_offset
        if then == "old":
            now += 2000
            log.apply_retention(now)
            assert contents(log) == []
        if then == "sync":
            log.sync()
            assert bytes_on_disk(files) == log.size_bytes
        assert bytes_on_disk(files) <= LIMIT
    assert [offset for offset, _ in contents(log)] == list(range(log.log_start_offset, len(steps)))


def test_what_waited_to_be_removed_goes_when_a_log_becomes_a_ring() -> None:
    files = MemoryFiles()
    _, log = open_log(files, segment_bytes=LIMIT, retention_bytes=LIMIT)
    fill(log, 300)
    log.apply_retention(NOW)
    assert bytes_on_disk(files) > 2 * LIMIT
    log.set_config(topic_settings(**RING))
    append(log)
    assert bytes_on_disk(files) <= LIMIT


def test_what_retention_takes_from_a_ring_was_not_dropped() -> None:
    _, log = open_log(**RING)
    fill(log, 10)
    log.delete_records(10)
    assert len(log.apply_retention(NOW)) == 3
    ring = log.ring
    assert ring is not None
    assert (ring.dropped_records, ring.dropped_bytes) == (0, 0)


def test_a_full_ring_keeps_most_of_its_bytes() -> None:
    _, log = open_log(**RING)
    fill(log, 500)
    assert log.size_bytes > LIMIT * 0.8


def test_a_reader_whose_records_were_dropped_is_out_of_range() -> None:
    _, log = open_log(**RING)
    fill(log, 200)
    assert log.log_start_offset > 0
    with pytest.raises(OffsetOutOfRange, match=f"has offsets {log.log_start_offset} to 200, not 0"):
        log.read(0, 1000)


def test_who_holds_a_slice_of_what_is_dropped_reads_on() -> None:
    _, log = open_log(**RING)
    fill(log, 1)
    part = log.read(0, 10_000)
    before = part.bytes()
    fill(log, 200)
    assert part.bytes() == before


def test_a_batch_larger_than_the_ring_is_refused() -> None:
    _, log = open_log(**RING)
    with pytest.raises(AppendRefused, match=r"millstream\.overload\.bytes is 65536"):
        append(log, bytes(LIMIT))


def test_a_larger_log_becomes_a_ring_and_a_ring_a_log_again() -> None:
    files = MemoryFiles()
    _, log = open_log(files)
    fill(log, 300)
    log.set_config(topic_settings(**RING))
    append(log)
    assert log.size_bytes <= LIMIT
    log.sync()
    assert bytes_on_disk(files) <= LIMIT
    log.set_config(TopicConfig())
    start = log.log_start_offset
    fill(log, 300)
    assert log.log_start_offset == start


def test_a_ring_that_is_made_smaller_shrinks_with_the_next_retention() -> None:
    _, log = open_log(millstream_overload="drop", millstream_overload_bytes=4 * LIMIT)
    fill(log, 500)
    assert log.size_bytes > LIMIT
    log.set_config(topic_settings(**RING))
    log.apply_retention(NOW)
    assert log.size_bytes <= LIMIT


@pytest.mark.parametrize("end", ["kill", "close"])
def test_after_a_restart_it_goes_on_within_its_bytes_and_gives_no_offset_twice(end: str) -> None:
    disk = SimulatedDisk()
    directory, log = open_log(disk, **RING)
    fill(log, 150)
    if end == "close":
        directory.close()
    again = reopen(disk.process_killed(), **RING)
    assert again.end_offset == 150
    assert again.log_start_offset <= log.log_start_offset
    fill(again, 50)
    assert again.size_bytes <= LIMIT
    assert [offset for offset, _ in contents(again)] == list(range(again.log_start_offset, 200))


@pytest.mark.parametrize("seed", range(15))
def test_a_power_loss_does_not_give_the_offsets_of_dropped_records_again(seed: int) -> None:
    disk = SimulatedDisk()
    _, log = open_log(disk, **RING)
    fill(log, 150)
    log.sync()
    fill(log, 150)
    assert log.log_start_offset > 150
    again = reopen(disk.power_loss(seed), **RING)
    assert again.end_offset >= 150


def test_a_transaction_whose_start_was_dropped_is_ended_by_its_marker() -> None:
    _, log = open_log(**RING)
    log.append(a_transactional_batch(0), NOW)
    fill(log, 200)
    assert log.last_stable_offset == log.log_start_offset
    log.append_marker(7, 0, commit=False, coordinator_epoch=0, now_ms=NOW)
    log.write_staged()
    assert log.last_stable_offset == log.end_offset


def test_a_disk_that_can_not_sync_what_is_left_does_not_lose_what_was_dropped_before_it() -> None:
    disk = SimulatedDisk()
    _, log = open_log(disk, **RING)
    fill(log, 40)
    disk.fail_sync = lambda path: True
    with pytest.raises(LogFailed):
        fill(log, 200)
    assert log.failed is not None
    kept = [offset for offset, _ in contents(log)]
    assert kept == list(range(log.log_start_offset, log.written_offset))


@pytest.mark.parametrize("other", [{"cleanup.policy": "compact"}, {"remote.storage.enable": "true"}])
def test_a_ring_excludes_what_must_not_lose_its_oldest_records(other: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        with_changes(TopicConfig(), {"millstream.overload": "drop", **other})


def test_two_rings_in_one_directory_keep_apart() -> None:
    directory = LogDirectory.open("/data", files=MemoryFiles(), clock=ManualClock(NOW))
    first, second = (directory.open_log(TOPIC, index, topic_settings(**RING)) for index in (0, 1))
    fill(first, 200)
    fill(second, 10)
    assert first.log_start_offset > 0
    assert second.log_start_offset == 0
