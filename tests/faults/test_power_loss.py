"""The machine loses power: what a sync covered is there, in order and once; the rest is sound or gone."""

from __future__ import annotations

import random

import pytest

from millstream.core.errors import AppendRefused, LogFailed
from tests.support.disk import SimulatedDisk
from tests.support.logs import NOW, an_idempotent_batch, append, contents, open_log, reopen


@pytest.mark.parametrize("seed", range(150))
def test_nothing_that_a_sync_covered_is_lost(seed: int) -> None:
    chance = random.Random(seed)
    options = {"segment_bytes": chance.choice([1024, 2048, 1 << 20]), "index_interval_bytes": 200}
    disk = SimulatedDisk()
    directory, log = open_log(disk, **options)
    appended: dict[int, bytes] = {}
    synced = 0
    sequence = 0
    for life in range(4):
        for _ in range(chance.randrange(1, 60)):
            value = b"%d %d" % (life, chance.randrange(10**9)) * chance.randrange(1, 5)
            base = log.append(an_idempotent_batch(sequence, value), NOW).base_offset
            assert base >= synced, "an offset of synced records is never given again"
            appended[base] = value
            sequence += 1
            if chance.random() < 0.5:
                log.write_staged()
            if chance.random() < 0.1:
                synced = log.sync()
            if chance.random() < 0.03:
                directory.checkpoint()
        log.write_staged()
        if chance.random() < 0.3:
            directory.close()
            synced = log.written_offset
        disk = disk.power_loss(chance.randrange(10**9))
        directory, log = open_log(disk, **options)
        assert log.log_start_offset == 0
        assert log.end_offset >= synced
        left = dict(contents(log))
        assert {offset for offset in appended if offset < synced} <= set(left)
        assert all(appended[offset] == value for offset, value in left.items())
        appended = left
        # The producer goes on after the last of its batches that the log knows.
        sequence = log.producers.states[7][1] if 7 in log.producers.states else 0


def test_a_synced_batch_of_a_producer_is_known_after_the_loss() -> None:
    for seed in range(40):
        disk = SimulatedDisk()
        _, log = open_log(disk, segment_bytes=1024)
        for number in range(30):
            log.append(an_idempotent_batch(number, b"v" * 50), NOW)
        log.write_staged()
        log.sync()
        log = reopen(disk.power_loss(seed), segment_bytes=1024)
        assert [log.append(an_idempotent_batch(n, b"v" * 50), NOW) for n in range(25, 30)] == [
            (n, -1, 0, True) for n in range(25, 30)
        ]
        with pytest.raises(AppendRefused):
            log.append(an_idempotent_batch(31, b"gap"), NOW)


def test_a_producer_whose_records_are_all_deleted_is_known_after_a_kill_and_the_loss() -> None:
    """Its snapshot was synced before its records went; recovery in between must not put another there."""
    for seed in range(40):
        disk = SimulatedDisk()
        _, log = open_log(disk, retention_bytes=0)
        log.append(an_idempotent_batch(0), NOW)
        log.write_staged()
        log.apply_retention(NOW)
        assert log.log_start_offset == 1
        reopen(disk.process_killed())
        log = reopen(disk.power_loss(seed))
        assert log.append(an_idempotent_batch(0), NOW).duplicate


def test_deleted_records_stay_deleted() -> None:
    for seed in range(40):
        disk = SimulatedDisk()
        _, log = open_log(disk, segment_bytes=1024)
        for number in range(30):
            append(log, b"%d" % number)
        log.sync()
        assert log.delete_records(17) == 17
        log = reopen(disk.power_loss(seed), segment_bytes=1024)
        assert log.log_start_offset == 17
        assert contents(log) == [(n, b"%d" % n) for n in range(17, 30)]


def test_deleted_records_that_were_never_synced_do_not_give_their_offsets_away() -> None:
    for seed in range(40):
        disk = SimulatedDisk()
        _, log = open_log(disk)
        for _ in range(10):
            append(log)
        log.delete_records(10)
        log = reopen(disk.power_loss(seed))
        assert (log.log_start_offset, log.end_offset) == (10, 10)
        assert append(log) == 10


def test_retention_does_not_take_the_end_offset_along() -> None:
    for seed in range(60):
        disk = SimulatedDisk()
        _, log = open_log(disk, segment_bytes=1024, retention_bytes=0, file_delete_delay_ms=0)
        for _ in range(30):
            append(log, b"v" * 50)
        log.sync()
        log.apply_retention(NOW)
        log.apply_retention(NOW + 1)
        assert log.log_start_offset == 30
        log = reopen(disk.power_loss(seed))
        assert log.end_offset == 30
        assert all(value == b"v" * 50 for _, value in contents(log))
        assert append(log) == 30


@pytest.mark.parametrize("seed", range(5))
def test_what_a_failed_sync_missed_is_written_again_before_it_is_believed(seed: int) -> None:
    """Operating systems count such pages as written, and the next sync as a success."""
    disk = SimulatedDisk()
    directory, log = open_log(disk)
    append(log, b"safe")
    log.sync()
    directory.checkpoint()
    append(log, b"missed")
    disk.fail_sync = lambda path: True
    with pytest.raises(LogFailed, match="restart the broker"):
        log.sync()
    disk.fail_sync = lambda path: False
    served = contents(reopen(disk.process_killed()))
    assert served == [(0, b"safe"), (1, b"missed")]
    assert contents(reopen(disk.power_loss(seed))) == served


@pytest.mark.parametrize("end", ["killed", "closed"])
@pytest.mark.parametrize("seed", range(25))
def test_after_a_failed_sync_no_hole_is_left_and_what_is_sent_again_is_there(seed: int, end: str) -> None:
    """The machine needs its memory: some pages that the disk never got are gone, and pages after them are
    not. Producers send again what was not acknowledged; nobody's reader stops at a hole."""
    chance = random.Random(seed)
    options = {"segment_bytes": chance.choice([1024, 1 << 20]), "index_interval_bytes": 200}
    disk = SimulatedDisk()
    directory, log = open_log(disk, **options)
    values = [b"%03d" % number * chance.randrange(5, 60) for number in range(40)]

    def send(numbers: range) -> None:
        for number in numbers:
            log.append(an_idempotent_batch(number, values[number]), NOW)
            log.write_staged()

    send(range(15))
    if chance.random() < 0.5:
        directory.checkpoint()
    log.sync()
    send(range(15, 30))
    disk.fail_sync = lambda path: path.endswith(".log")
    with pytest.raises(LogFailed):
        log.sync()
    disk.fail_sync = lambda path: False
    if end == "closed":
        directory.close()
    disk.evict(seed)
    log = reopen(disk.process_killed(), **options)
    assert log.damage == []
    kept = log.end_offset
    assert kept >= 15, "what a sync covered stays"
    assert contents(log) == list(enumerate(values[:kept]))
    # The client's last word on the others was none: it sends them again, the last five that are kept too.
    send(range(max(15, kept - 5), 40))
    assert contents(log) == list(enumerate(values))
    log.sync()
    assert contents(reopen(disk.power_loss(seed), **options))[:40] == list(enumerate(values))


def test_a_log_that_failed_to_sync_is_not_called_clean() -> None:
    disk = SimulatedDisk()
    directory, log = open_log(disk)
    append(log)
    disk.fail_sync = lambda path: path.endswith(".log")
    with pytest.raises(LogFailed):
        log.sync()
    disk.fail_sync = lambda path: False
    directory.close()
    directory, log = open_log(disk)
    assert not directory.clean
    assert contents(log) == [(0, b"x")]
