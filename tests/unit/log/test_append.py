"""Appending: what is checked and stamped, when a segment is full, and what a failed write leaves behind."""

from __future__ import annotations

import struct

import pytest

from millstream.core.clock import ManualClock
from millstream.core.errors import AppendRefused, LogFailed
from millstream.log import partition
from millstream.log.appended import Appended
from millstream.log.partition import PartitionLog
from millstream.log.storage.memory import MemoryFiles
from millstream.records.batch import LOG_APPEND_TIME, read_header, seal, verify
from tests.support.disk import SimulatedDisk, bad_disk
from tests.support.logs import (
    NOW,
    TOPIC,
    a_batch,
    an_idempotent_batch,
    append,
    contents,
    open_log,
    reopen,
    settings,
)


@pytest.fixture
def log() -> PartitionLog:
    return open_log()[1]


def refusal_of(log: PartitionLog, batch: bytearray) -> AppendRefused:
    before = (log.end_offset, log.size_bytes, dict(log.producers.states))
    with pytest.raises(AppendRefused) as raised:
        log.append(batch, NOW)
    assert (log.end_offset, log.size_bytes, log.producers.states) == before
    return raised.value


def changed(batch: bytearray, at: int, layout: str, *values: int) -> bytearray:
    """The batch with other header fields, and a right checksum."""
    struct.pack_into(layout, batch, at, *values)
    seal(batch, 0, len(batch))
    return batch


# Offsets and stamps


def test_offsets_are_given_in_order_and_stamped_in_place(log: PartitionLog) -> None:
    first, second = a_batch(b"a", b"b", b"c"), a_batch(b"d")
    assert log.append(first, NOW) == Appended(0, -1, 0, False)
    assert log.append(memoryview(second), NOW) == Appended(3, -1, 0, False)
    assert read_header(second).base_offset == 3
    assert read_header(second).leader_epoch == log.leader_epoch
    verify(second, 0, read_header(second))
    log.write_staged()
    assert contents(log) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]


def test_staged_records_are_not_read_until_they_are_written(log: PartitionLog) -> None:
    log.append(a_batch(), NOW)
    assert (log.end_offset, log.written_offset) == (1, 0)
    assert log.read(0, 100).size == 0
    log.write_staged()
    assert (log.written_offset, log.synced_offset) == (1, 0)
    assert contents(log) == [(0, b"x")]


def test_a_large_batch_is_written_at_once_after_what_is_staged(log: PartitionLog) -> None:
    log.append(a_batch(b"small"), NOW)
    log.append(a_batch(b"l" * partition.STAGED_BELOW), NOW)
    assert log.written_offset == 2
    assert contents(log) == [(0, b"small"), (1, b"l" * partition.STAGED_BELOW)]


def test_log_append_time_is_stamped_under_a_new_checksum() -> None:
    _, log = open_log(message_timestamp_type="LogAppendTime")
    batch = a_batch(b"a", at=5)
    assert log.append(batch, NOW).log_append_time == NOW
    header = read_header(batch)
    assert header.attributes & LOG_APPEND_TIME
    assert header.max_timestamp == NOW
    verify(batch, 0, header)


# What is refused, with Kafka's code


@pytest.mark.parametrize(
    ("batch", "code", "message"),
    [
        (bytearray(), 87, "0 bytes"),
        (bytearray(60), 87, "60 bytes"),
        (a_batch()[:-1], 87, "were sent"),
        (a_batch() + a_batch(), 87, "one batch"),
        (changed(a_batch(), 16, ">b", 1), 87, "format 1"),
        (changed(a_batch(), 0, ">q", 9), 87, "base offset is 9"),
        (changed(a_batch(), 57, ">i", 2), 87, "counts 2 records"),
        (changed(a_batch(), 57, ">i", 0), 87, "counts 0 records"),
        (changed(a_batch(), 23, ">i", -1), 87, "records"),
        (changed(a_batch(), 21, ">h", 5), 76, "codec 5"),
        (changed(a_batch(), 21, ">h", 0x20), 87, "control"),
        (changed(a_batch(), 21, ">h", 0x10), 87, "name its producer"),
        (changed(a_batch(), 21, ">h", 0x40), 87, "attributes"),
        (changed(a_batch(), 21, ">h", 0x08), 32, "LogAppendTime"),
        (changed(a_batch(), 35, ">q", -5), 32, "1970"),
        (a_batch(at=NOW + 3_600_001), 32, "ahead of the broker's clock"),
        (a_batch(producer_id=7, producer_epoch=0, base_sequence=-1), 87, "negative"),
        (a_batch(producer_id=7, producer_epoch=-1, base_sequence=0), 47, "negative"),
        (a_batch(producer_id=-2, producer_epoch=0, base_sequence=0), 87, "negative"),
        (a_batch(b"l" * 1_048_588), 10, "max.message.bytes"),
    ],
)
def test_a_bad_batch_is_refused_with_kafkas_code(
    log: PartitionLog, batch: bytearray, code: int, message: str
) -> None:
    refused = refusal_of(log, batch)
    assert refused.code == code
    assert message in str(refused)


def test_a_batch_whose_bytes_changed_on_the_way_is_refused(log: PartitionLog) -> None:
    batch = a_batch(b"value")
    batch[-3] ^= 1
    assert refusal_of(log, batch).code == 2


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    _, log = open_log(segment_bytes=2000)
    refused = refusal_of(log, a_batch(b"l" * 2000))
    assert (refused.code, "segment.bytes" in str(refused)) == (18, True)


def test_records_too_far_behind_the_clock_are_refused_if_so_configured() -> None:
    _, log = open_log(message_timestamp_before_max_ms=1000)
    assert refusal_of(log, a_batch(at=NOW - 1001)).code == 32
    log.append(a_batch(at=NOW - 1000), NOW)
    log.append(a_batch(at=-1), NOW)
    assert log.end_offset == 2


def test_changed_settings_count_from_the_next_append_on(log: PartitionLog) -> None:
    log.set_config(settings(max_message_bytes=50))
    assert refusal_of(log, a_batch()).code == 10


# Idempotent producers


def test_a_batch_sent_twice_is_kept_once_and_answered_with_its_first_offset(log: PartitionLog) -> None:
    append(log, b"before")
    log.append(an_idempotent_batch(0, b"a", b"b"), NOW)
    log.append(an_idempotent_batch(2, b"c"), NOW)
    assert log.append(an_idempotent_batch(0, b"a", b"b"), NOW) == Appended(1, -1, 0, True)
    assert log.end_offset == 4


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment_bytes", [1024, 1 << 20])
def test_producers_are_known_after_a_restart(clean: bool, segment_bytes: int) -> None:
    files = SimulatedDisk()
    directory, log = open_log(files, segment_bytes=segment_bytes)
    for number in range(40):
        log.append(an_idempotent_batch(number, b"value"), NOW)
        log.append(a_batch(b"of others"), NOW)
    log.write_staged()
    if clean:
        directory.close()
    log = reopen(files.process_killed(), segment_bytes=segment_bytes)
    for number in range(35, 40):
        assert log.append(an_idempotent_batch(number, b"value"), NOW) == Appended(2 * number, -1, 0, True)
    with pytest.raises(AppendRefused):
        log.append(an_idempotent_batch(34, b"value"), NOW)
    assert not log.append(an_idempotent_batch(40, b"value"), NOW).duplicate


def test_idle_producers_are_forgotten_after_a_while() -> None:
    _, log = open_log()
    log.append(an_idempotent_batch(0), NOW)
    log.write_staged()
    assert log.expire_producers(NOW + 1000, idle_ms=1000) == 0
    assert log.expire_producers(NOW + 1001, idle_ms=1000) == 1


# Segments


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_segment_is_rolled_before_it_grows_past_its_size() -> None:
    size = len(a_batch(b"v" * 100))
    _, log = open_log(segment_bytes=10 * size)
    for _ in range(25):
        log.append(a_batch(b"v" * 100), NOW)
    assert bases(log) == [0, 10, 20]
    assert all(segment.size <= 10 * size for segment in log.segments)


def test_a_segment_is_rolled_by_the_time_of_its_records() -> None:
    _, log = open_log(segment_ms=1000)
    for at in (0, 1000, 1001, 1500, 2002):
        append(log, at=NOW + at)
    assert bases(log) == [0, 2, 4]


def test_the_time_to_roll_is_known_after_a_restart() -> None:
    files = SimulatedDisk()
    directory, log = open_log(files, segment_ms=1000)
    append(log, at=NOW)
    directory.close()
    log = reopen(files, segment_ms=1000)
    append(log, at=NOW + 1001)
    assert bases(log) == [0, 1]


def test_jitter_rolls_earlier_but_not_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition.random, "randrange", lambda most: most - 1)
    _, log = open_log(segment_ms=1000, segment_jitter_ms=100)
    append(log, at=NOW)
    append(log, at=NOW + 901)
    append(log, at=NOW + 902)
    assert bases(log) == [0, 2]


def test_a_segment_is_rolled_when_its_index_is_full() -> None:
    _, log = open_log(index_interval_bytes=0, segment_index_bytes=48)
    for _ in range(20):
        append(log)
    assert len(log.segments) > 1
    assert all(segment.index.count <= 4 for segment in log.segments)


def test_a_segment_is_rolled_when_offsets_get_too_far_from_its_first(log: PartitionLog) -> None:
    append(log)
    log.end_offset = log.written_offset = 2**31 - 1  # as if two billion records had been appended
    append(log)
    assert bases(log) == [0]
    append(log)
    assert bases(log) == [0, 2**31]


def test_an_empty_segment_is_not_rolled(log: PartitionLog) -> None:
    log.roll()
    assert bases(log) == [0]


# When the disk refuses


def test_a_full_disk_undoes_what_was_staged_and_nothing_else() -> None:
    disk = SimulatedDisk()
    _, log = open_log(disk, index_interval_bytes=0)
    log.append(an_idempotent_batch(0, b"kept"), NOW)
    log.write_staged()
    disk.room = 100
    log.append(an_idempotent_batch(1, b"lost"), NOW + 5)
    log.append(a_batch(b"lost too", at=NOW + 9), NOW)
    with pytest.raises(LogFailed, match="No space left"):
        log.write_staged()
    assert log.failed is None
    assert (log.end_offset, log.written_offset) == (1, 1)
    assert contents(log) == [(0, b"kept")]
    assert log.max_timestamp_offset() == (0, NOW)
    disk.room = None
    assert log.append(an_idempotent_batch(1, b"again"), NOW) == Appended(1, -1, 0, False)
    log.write_staged()
    assert contents(reopen(disk.process_killed())) == [(0, b"kept"), (1, b"again")]


def test_a_full_disk_refuses_a_large_batch() -> None:
    disk = SimulatedDisk()
    _, log = open_log(disk)
    append(log, b"kept")
    disk.room = 5000
    with pytest.raises(LogFailed, match="No space left"):
        log.append(a_batch(b"l" * 20_000), NOW)
    log.write_staged()
    disk.room = None
    assert append(log, b"after") == 1
    assert contents(log) == [(0, b"kept"), (1, b"after")]


def test_who_appended_what_a_later_append_undid_hears_of_it_from_write_staged() -> None:
    disk = SimulatedDisk()
    _, log = open_log(disk)
    log.append(a_batch(b"staged"), NOW)
    disk.room = 0
    with pytest.raises(LogFailed):
        log.append(a_batch(b"l" * 20_000), NOW)
    disk.room = None
    with pytest.raises(LogFailed):
        log.append(a_batch(b"in the same turn"), NOW)
    with pytest.raises(LogFailed):
        log.write_staged()
    assert append(log, b"next turn") == 0
    assert contents(log) == [(0, b"next turn")]


def test_a_new_segment_that_can_not_be_made_refuses_the_append_only() -> None:
    disk = SimulatedDisk()
    _, log = open_log(disk, segment_bytes=1024)
    while log.size_bytes < 960:
        append(log, b"v" * 20)
    end = log.end_offset
    disk.fail_open = lambda path: path.endswith(".log") and str(end) in path
    with pytest.raises(LogFailed, match="can't start a new segment"):
        log.append(a_batch(), NOW)
    log.write_staged()
    disk.fail_open = lambda path: False
    assert append(log) == end
    assert bases(log) == [0, end]


def test_a_write_error_that_does_not_pass_fails_the_log_for_good() -> None:
    disk = SimulatedDisk()
    _, log = open_log(disk)
    append(log, b"kept")
    disk.room, disk.write_error = 10, bad_disk
    log.append(a_batch(b"lost"), NOW)
    with pytest.raises(LogFailed):
        log.write_staged()
    disk.room = None
    assert log.failed is not None
    with pytest.raises(LogFailed, match="no more writes"):
        log.append(a_batch(), NOW)
    assert contents(log) == [(0, b"kept")]


def test_a_failed_write_that_can_not_be_undone_fails_the_log_for_good() -> None:
    disk = SimulatedDisk()
    _, log = open_log(disk)
    append(log, b"kept")
    disk.room, disk.fail_truncate = 10, True
    log.append(a_batch(b"lost"), NOW)
    with pytest.raises(LogFailed):
        log.write_staged()
    assert log.failed is not None
    disk.room, disk.fail_truncate = None, False
    assert contents(reopen(disk.process_killed())) == [(0, b"kept")]


# Syncing


def test_a_sync_covers_what_was_written_when_it_began() -> None:
    disk = SimulatedDisk()
    _, log = open_log(disk, segment_bytes=1024)
    for _ in range(30):
        append(log, b"v" * 50)
    assert log.sync() == 30
    assert log.synced_offset == 30
    assert len(log.segments) > 2
    assert contents(reopen(disk.power_loss(seed=1), segment_bytes=1024)) == [
        (n, b"v" * 50) for n in range(30)
    ]


def test_a_failed_sync_fails_the_log_for_good() -> None:
    disk = SimulatedDisk()
    _, log = open_log(disk)
    append(log, b"kept")
    disk.fail_sync = lambda path: path.endswith(".log")
    with pytest.raises(LogFailed, match="failed to sync"):
        log.sync()
    disk.fail_sync = lambda path: False
    assert log.synced_offset == 0
    for attempt in (log.sync, lambda: log.append(a_batch(), NOW)):
        with pytest.raises(LogFailed):
            attempt()
    assert contents(log) == [(0, b"kept")]


def test_flush_messages_asks_for_a_sync_after_so_many_records() -> None:
    _, log = open_log(flush_messages=3)
    append(log, b"a", b"b")
    assert not log.wants_sync
    append(log)
    assert log.wants_sync
    log.sync()
    assert not log.wants_sync


def test_a_sealed_segment_asks_for_a_sync() -> None:
    _, log = open_log(segment_bytes=1024)
    while len(log.segments) == 1:
        append(log, b"v" * 100)
    assert log.wants_sync
    log.sync()
    assert not log.wants_sync


def test_flush_ms_is_due_so_long_after_the_first_unsynced_write() -> None:
    clock = ManualClock(NOW)
    _, log = open_log(clock=clock, flush_ms=1000)
    assert not log.sync_due(NOW + 5000)
    append(log)
    clock.advance(0.9)
    append(log)
    assert not log.sync_due(NOW + 999)
    assert log.sync_due(NOW + 1000)
    log.sync()
    assert not log.sync_due(NOW + 5000)


def test_memory_logs_are_the_same_code() -> None:
    files = MemoryFiles()
    _, log = open_log(files)
    append(log, b"a")
    assert log.read(0, 100).fileno() == -1
    assert log.sync() == 1
    assert (log.topic, log.partition) == (TOPIC, 0)
