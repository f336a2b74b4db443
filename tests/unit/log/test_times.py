"""Finding records by time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.records.build import Record, build_batch
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
