"""Finding records by time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core.errors import IndexRebuilding
from millstream.log.validation import verdict_of
from millstream.records.build import Record, build_batch
from millstream.records.compression import ZSTD
from tests.support.disk import SimulatedDisk
from tests.support.logs import NOW, a_batch, append, open_log, reopen

Times = list[list[int]]
TIMES = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), min_size=1, max_size=40)


def first_at(times: Times, timestamp: int, start: int) -> tuple[int, int] | None:
    flat = [NOW + time for batch in times for time in batch]
    return next(((n, t) for n, t in enumerate(flat) if n >= start and t >= timestamp), None)


def newest(times: Times, start: int) -> tuple[int, int]:
    flat = [NOW + time for batch in times for time in batch]
    largest = max(flat[start:], default=-1)
    return (flat.index(largest, start), largest) if largest >= 0 else (-1, -1)


@given(
    times=TIMES,
    segment_bytes=st.sampled_from([1024, 3000, 1 << 20]),
    interval=st.sampled_from([0, 200, 4096]),
    restart=st.sampled_from(["no", "clean", "killed"]),
    codec=st.integers(0, 4),
    seed=st.integers(0, 100),
)
@settings(max_examples=80, deadline=None)
def test_records_are_found_by_time_in_any_order_of_times(
    times: Times, segment_bytes: int, interval: int, restart: str, codec: int, seed: int
) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk()
    options = {"segment_bytes": segment_bytes, "index_interval_bytes": interval}
    directory, log = open_log(disk, **options)
    for batch in times:
        records = [Record(None, bytes(chance.randrange(200)), timestamp=NOW + time) for time in batch]
        log.append(build_batch(records, codec=codec), NOW)
    log.write_staged()
    if restart == "clean":
        directory.close()
    if restart != "no":
        log = reopen(disk.process_killed(), **options)
    if chance.random() < 0.3:
        log.delete_records(chance.randrange(log.end_offset + 1))
    start = log.log_start_offset
    for timestamp in (0, NOW - 1, *(NOW + chance.randrange(62) for _ in range(8))):
        assert log.offset_for_timestamp(timestamp) == first_at(times, timestamp, start)
    assert log.max_timestamp_offset() == newest(times, start)


def test_an_empty_log_has_no_times() -> None:
    _, log = open_log()
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp_offset() == (-1, -1)


def test_a_batch_with_log_append_time_has_that_time_for_all_its_records() -> None:
    _, log = open_log(message_timestamp_type="LogAppendTime")
    append(log, b"a", b"b", at=1, now=NOW)
    append(log, b"c", at=1, now=NOW + 5)
    assert log.offset_for_timestamp(2) == (0, NOW)
    assert log.max_timestamp_offset() == (2, NOW + 5)


def test_records_without_a_time_are_not_found_by_time() -> None:
    _, log = open_log()
    append(log, at=-1, now=NOW)
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp_offset() == (-1, -1)


def test_staged_records_are_not_found_yet() -> None:
    _, log = open_log()
    append(log, at=NOW)
    log.append(a_batch(at=NOW + 9), NOW)
    assert log.offset_for_timestamp(NOW + 1) is None
    assert log.max_timestamp_offset() == (0, NOW)


def test_indexes_are_right_while_batches_are_staged(caplog: pytest.LogCaptureFixture) -> None:
    """Producers fill a partition while somebody asks where it is now: nothing disagrees, nothing is read
    again."""
    _, log = open_log(index_interval_bytes=100)
    written = 0
    for number in range(300):
        log.append(a_batch(b"v" * 80, at=NOW + number), NOW)
        if number % 7 == 0:
            log.write_staged()
            written = number + 1
        assert log.offset_for_timestamp(NOW + number) == (
            (number, NOW + number) if number < written else None
        )
        assert log.offset_for_timestamp(NOW + written // 2) == (written // 2, NOW + written // 2)
        assert log.max_timestamp_offset() == (written - 1, NOW + written - 1)
    assert caplog.text == ""


def test_retention_by_time_counts_what_is_staged() -> None:
    """Otherwise a segment with a new record would be deleted."""
    _, log = open_log(retention_ms=1000)
    append(log, at=NOW - 5000, now=NOW - 5000)
    log.append(a_batch(at=NOW), NOW)
    assert log.apply_retention(NOW) == []


@pytest.mark.parametrize("suffix", [".timeindex", ".index"])
def test_a_wrong_index_is_rebuilt_elsewhere_and_readers_are_told_to_try_again(
    suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = SimulatedDisk()
    directory, log = open_log(disk, index_interval_bytes=100)
    for number in range(50):
        append(log, b"v" * 50, at=NOW + number)
    directory.close()
    index = disk.files[f"/data/t-0/00000000000000000000{suffix}"].data
    index[60:84] = bytes(24)
    directory, log = open_log(disk, index_interval_bytes=100)
    waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
    directory.work_aside(lambda work, done: waiting.append((work, done)))

    def look() -> None:
        for number in range(50):
            assert log.offset_for_timestamp(NOW + number) == (number, NOW + number)
            assert log.read(number, 1).size > 0

    for _ in range(2):
        with pytest.raises(IndexRebuilding, match="being rebuilt; try again"):
            look()
    ((work, done),) = waiting  # once, however many ask
    # Producers go on meanwhile, and what is staged when it comes back is neither lost nor found.
    for number in range(50, 80):
        append(log, b"v" * 50, at=NOW + number)
    log.append(a_batch(b"v" * 500, at=NOW + 80), NOW)
    done(work())
    for number in range(80):
        assert log.offset_for_timestamp(NOW + number) == (number, NOW + number)
        assert log.read(number, 1).size > 0
    assert log.offset_for_timestamp(NOW + 80) is None
    log.write_staged()
    assert log.offset_for_timestamp(NOW + 80) == (80, NOW + 80)
    assert len(waiting) == 1
    assert caplog.text.count("disagrees with the log; it is rebuilt") == 1
    directory.close()
    assert [log.offset_for_timestamp(NOW + n) for log in [reopen(disk)] for n in (3, 80)] == [
        (3, NOW + 3),
        (80, NOW + 80),
    ]


def test_a_rebuild_that_fails_is_tried_again() -> None:
    disk = SimulatedDisk()
    directory, log = open_log(disk, index_interval_bytes=100)
    for number in range(50):
        append(log, b"v" * 50, at=NOW + number)
    directory.close()
    disk.files["/data/t-0/00000000000000000000.index"].data[60:84] = bytes(24)
    directory, log = open_log(disk)
    waiting: list[Callable[[Any], None]] = []
    directory.work_aside(lambda work, done: waiting.append(done))
    with pytest.raises(IndexRebuilding):
        [log.read(offset, 1) for offset in range(50)]
    waiting.pop()(None)
    directory.work_aside(lambda work, done: done(work()))
    assert all(log.read(offset, 1).size > 0 for offset in range(50))


@pytest.mark.parametrize("suffix", [".timeindex", ".index"])
@pytest.mark.parametrize("harm", ["flipped", "lost", "cut", "zeros"])
def test_a_wrong_index_does_not_give_wrong_answers(suffix: str, harm: str) -> None:
    chance = random.Random(5)
    for _ in range(20):
        disk = SimulatedDisk()
        options = {"segment_bytes": 3000, "index_interval_bytes": 100}
        directory, log = open_log(disk, **options)
        times = [[chance.randrange(100)] for _ in range(60)]
        for (time,) in times:
            append(log, b"v" * 50, at=NOW + time)
        directory.close()
        for name, content in list(disk.files.items()):
            if not name.endswith(suffix) or not content.data:
                continue
            if harm == "flipped":
                content.data[chance.randrange(len(content.data))] ^= 1 << chance.randrange(8)
            elif harm == "lost":
                del disk.files[name]
            elif harm == "cut":
                del content.data[-5:]
            else:
                content.data[:] = bytes(len(content.data))
        log = reopen(disk, **options)
        for time in range(0, 101, 7):
            assert log.offset_for_timestamp(NOW + time) == first_at(times, NOW + time, 0)
        assert log.max_timestamp_offset() == newest(times, 0)
        for offset in range(60):
            assert log.read(offset, 1).size > 0


def test_a_batch_too_large_to_look_through_is_found_by_its_first_record() -> None:
    _, log = open_log()
    append(log, b"before", at=NOW)
    large = [Record(None, bytes(1_000_000), timestamp=NOW + n) for n in range(1, 5)]
    batch = build_batch(large, codec=ZSTD)
    log.append(batch, NOW, verdict=verdict_of(batch, log.rules, NOW))
    append(log, b"after", at=NOW + 9)
    assert log.offset_for_timestamp(NOW + 3) == (1, NOW + 4)
    assert log.offset_for_timestamp(NOW + 5) == (5, NOW + 9)
