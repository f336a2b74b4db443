"""What is deleted when, and what a clock that jumps may and may not do to it."""

from __future__ import annotations

import pytest

from millstream.core.clock import ManualClock
from millstream.core.errors import OffsetOutOfRange
from millstream.log.partition import PartitionLog
from millstream.log.retention import BELIEVED_AFTER_S, RetentionClock
from tests.support.disk import SimulatedDisk
from tests.support.logs import NOW, a_batch, append, contents, open_log, reopen

HOUR = 3_600_000


def fill(log: PartitionLog, count: int = 30, *, at: int = NOW) -> None:
    for number in range(count):
        append(log, b"v" * 50, at=at + number, now=NOW)


def retained(log: PartitionLog, clock: ManualClock) -> int:
    """Apply retention as the broker does; the new start."""
    log.apply_retention(clock.now_ms())
    return log.log_start_offset


def test_segments_whose_newest_record_is_too_old_are_deleted() -> None:
    clock = ManualClock(NOW)
    _, log = open_log(clock=clock, segment_bytes=1024, retention_ms=10_000)
    fill(log)
    second = log.segments[1].base_offset
    clock.advance(10)
    assert retained(log, clock) == 0
    newest_of_first = second - 1  # ms after NOW
    clock.advance(newest_of_first / 1000)
    assert retained(log, clock) == 0
    clock.advance(0.001)
    assert retained(log, clock) == second
    assert contents(log)[0][0] == second


def test_when_all_is_too_old_an_empty_segment_keeps_the_end_offset() -> None:
    disk = SimulatedDisk()
    clock = ManualClock(NOW)
    _, log = open_log(disk, clock, segment_bytes=1024, retention_ms=1000, segment_ms=10**12)
    fill(log)
    clock.advance(100)
    assert retained(log, clock) == 30
    assert (log.end_offset, log.size_bytes, len(log.segments)) == (30, 0, 1)
    assert retained(log, clock) == 30
    assert append(log) == 30
    assert contents(reopen(disk.process_killed())) == [(30, b"x")]


def test_the_oldest_segments_are_deleted_while_the_log_is_too_large() -> None:
    clock = ManualClock(NOW)
    _, log = open_log(clock=clock, segment_bytes=1024, retention_bytes=1500)
    fill(log)
    before = log.size_bytes
    retained(log, clock)
    assert log.size_bytes < before
    first = log.segments[0].size
    assert log.size_bytes >= 1500 > log.size_bytes - first


def test_minus_one_keeps_everything() -> None:
    clock = ManualClock(NOW)
    _, log = open_log(clock=clock, segment_bytes=1024, retention_ms=-1, retention_bytes=-1)
    fill(log, at=NOW - 10**10)
    assert retained(log, clock) == 0


def test_a_compacted_topic_is_not_cut_by_time_or_size() -> None:
    clock = ManualClock(NOW)
    _, log = open_log(
        clock=clock, segment_bytes=1024, retention_ms=1, retention_bytes=0, cleanup_policy=("compact",)
    )
    fill(log, at=NOW - 10**6)
    assert retained(log, clock) == 0


def test_records_without_a_time_go_by_when_the_file_was_written() -> None:
    disk = SimulatedDisk()  # whose files are from 1970
    clock = ManualClock(NOW)
    _, log = open_log(disk, clock, segment_bytes=1024, retention_ms=1000)
    for _ in range(30):
        append(log, b"v" * 50, at=-1, now=NOW)
    assert retained(log, clock) == 30


def test_an_idle_segment_is_rolled_when_segment_ms_has_passed() -> None:
    clock = ManualClock(NOW)
    _, log = open_log(clock=clock, segment_ms=1000)
    append(log)
    clock.advance(1)
    retained(log, clock)
    assert len(log.segments) == 1
    clock.advance(0.001)
    retained(log, clock)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


def test_files_are_renamed_at_once_and_removed_after_the_delay() -> None:
    disk = SimulatedDisk()
    clock = ManualClock(NOW)
    _, log = open_log(disk, clock, segment_bytes=1024, retention_bytes=0, file_delete_delay_ms=5000)
    fill(log)

    def deleted() -> list[str]:
        return [name for name in disk.files if name.endswith(".deleted")]

    retained(log, clock)
    files = deleted()
    assert {name.removesuffix(".deleted").rpartition(".")[2] for name in files} >= {
        "log",
        "index",
        "timeindex",
        "snapshot",
    }
    clock.advance(4.9)
    retained(log, clock)
    assert deleted() == files
    clock.advance(0.1)
    retained(log, clock)
    assert deleted() == []


def test_files_left_over_from_a_deletion_are_removed_at_the_next_start() -> None:
    disk = SimulatedDisk()
    clock = ManualClock(NOW)
    _, log = open_log(disk, clock, segment_bytes=1024, retention_bytes=0)
    fill(log)
    retained(log, clock)
    log = reopen(disk.process_killed())
    assert not any(name.endswith(".deleted") for name in disk.files)
    assert log.log_start_offset == log.end_offset == 30


# Clocks that jump


def test_a_clock_that_jumps_back_deletes_nothing_and_stops_nothing() -> None:
    clock = ManualClock(NOW)
    _, log = open_log(clock=clock, segment_bytes=1024, retention_ms=HOUR)
    fill(log)
    clock.jump(-7 * 24 * 3600)
    assert retained(log, clock) == 0
    log.append(a_batch(at=clock.now_ms()), clock.now_ms())
    clock.jump(7 * 24 * 3600)
    clock.advance(3601)
    assert retained(log, clock) == 0, "set right again: a jump ahead, for all anybody knows"
    clock.advance(BELIEVED_AFTER_S)
    assert retained(log, clock) > 0


def test_a_clock_that_jumps_ahead_is_not_believed_at_once() -> None:
    clock = ManualClock(NOW)
    _, log = open_log(clock=clock, segment_bytes=1024, retention_ms=24 * HOUR)
    fill(log)
    assert retained(log, clock) == 0
    clock.jump(365 * 24 * 3600)
    assert retained(log, clock) == 0
    clock.advance(BELIEVED_AFTER_S / 2)
    assert retained(log, clock) == 0
    clock.jump(-365 * 24 * 3600)
    clock.advance(BELIEVED_AFTER_S)
    assert retained(log, clock) == 0, "it was set right in time"


def test_a_jump_ahead_that_lasts_is_believed() -> None:
    clock = ManualClock(NOW)
    _, log = open_log(clock=clock, segment_bytes=1024, retention_ms=24 * HOUR)
    fill(log)
    retained(log, clock)
    clock.jump(365 * 24 * 3600)
    retained(log, clock)
    clock.advance(BELIEVED_AFTER_S)
    assert retained(log, clock) > 0


def test_while_a_jump_is_doubted_time_goes_on_from_before_it() -> None:
    held = RetentionClock()
    assert held.now_ms(NOW, 0.0) == NOW
    assert held.now_ms(NOW + 60_000, 60.0) == NOW + 60_000
    assert held.now_ms(NOW + 10**9, 61.0) == NOW + 61_000
    assert held.now_ms(NOW + 10**9 + 600_000, 661.0) == NOW + 661_000


# Trimming


def test_trimmed_records_are_out_of_range_and_their_segments_go_with_the_next_retention() -> None:
    disk = SimulatedDisk()
    clock = ManualClock(NOW)
    directory, log = open_log(disk, clock, segment_bytes=1024)
    fill(log)
    assert log.delete_records(20) == 20
    assert log.delete_records(5) == 20, "the start never goes back"
    with pytest.raises(OffsetOutOfRange, match="20 to 30"):
        log.read(19, 100)
    assert contents(log)[0][0] == 20
    assert log.segments[0].base_offset == 0
    retained(log, clock)
    assert 0 < log.segments[0].base_offset <= 20
    assert log.log_start_offset == 20
    directory.close()
    assert reopen(disk).log_start_offset == 20


def test_minus_one_trims_everything_written() -> None:
    _, log = open_log()
    fill(log, 5)
    assert log.delete_records(-1) == 5
    assert append(log) == 5


@pytest.mark.parametrize("offset", [-2, 6])
def test_a_trim_beyond_the_end_is_refused(offset: int) -> None:
    _, log = open_log()
    fill(log, 5)
    with pytest.raises(OffsetOutOfRange):
        log.delete_records(offset)
    assert log.log_start_offset == 0
