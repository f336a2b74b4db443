"""A write that a crash cut off: whatever is left of it, the whole batches before it are kept, no more."""

from __future__ import annotations

import pytest

from tests.support.disk import SimulatedDisk
from tests.support.logs import NOW, a_batch, an_idempotent_batch, append, contents, open_log, reopen

LOG = "/data/t-0/00000000000000000000.log"


def a_killed_log(*, interval: int = 4096) -> tuple[SimulatedDisk, list[int], list[tuple[int, bytes]]]:
    """The disk after a kill, where each batch begins in the file, and all records."""
    disk = SimulatedDisk()
    _, log = open_log(disk, index_interval_bytes=interval)
    starts, records = [], []
    for number in range(6):
        starts.append(log.size_bytes)
        values = [b"%d.%d" % (number, n) * 5 for n in range(3)]
        base = log.append(an_idempotent_batch(3 * number, *values), NOW).base_offset
        records += list(enumerate(values, base))
    log.write_staged()
    return disk.process_killed(), [*starts, log.size_bytes], records


def lengths() -> range:
    """Every length of the file from the end of the last but two batches on."""
    _, starts, _ = a_killed_log()
    return range(starts[-3], starts[-1])


@pytest.mark.parametrize("interval", [4096, 0])
def test_the_tail_is_cut_at_the_last_whole_batch_at_every_byte(interval: int) -> None:
    for length in lengths():
        disk, starts, records = a_killed_log(interval=interval)
        del disk.files[LOG].data[length:]
        log = reopen(disk, index_interval_bytes=interval)
        whole = sum(end <= length for end in starts[1:])
        assert contents(log) == records[: 3 * whole], length
        assert len(disk.files[LOG].data) == starts[whole]
        assert log.damage == []
        # The producer's lost batches are new to the log, those kept are known.
        assert log.append(an_idempotent_batch(3 * whole - 3, b"a", b"b", b"c"), NOW).duplicate
        assert log.append(an_idempotent_batch(3 * whole, b"again"), NOW).base_offset == 3 * whole
        log.write_staged()
        assert contents(log)[-1] == (3 * whole, b"again")


@pytest.mark.parametrize("filler", [b"\0", b"\xff", b"\x02"])
def test_a_tail_of_rubbish_is_cut(filler: bytes) -> None:
    for length in list(lengths())[::7]:
        disk, starts, records = a_killed_log()
        data = disk.files[LOG].data
        data[length:] = filler * (len(data) - length + 100)
        log = reopen(disk)
        whole = sum(end <= length for end in starts[1:])
        # A batch that ends in the filler by chance is whole after all.
        assert contents(log)[: 3 * whole] == records[: 3 * whole]
        assert len(contents(log)) <= 3 * whole + 3
        assert append(log, b"after") == len(contents(log)) - 1
        assert contents(reopen(disk.process_killed())) == contents(log)


def test_a_cut_tail_puts_the_log_into_a_new_epoch() -> None:
    disk, starts, _ = a_killed_log()
    del disk.files[LOG].data[starts[-1] - 5 :]
    log = reopen(disk)
    assert log.leader_epoch == 1
    assert log.epochs.end_of(0, log.end_offset) == (0, 15)
    append(log)
    assert log.epochs.end_of(1, log.end_offset) == (1, 16)
    assert reopen(disk.process_killed()).epochs.end_of(1, 16) == (1, 16)


def test_the_epoch_only_grows_when_everything_was_trimmed_before_a_crash() -> None:
    disk = SimulatedDisk()
    _, log = open_log(disk)
    epochs = [log.leader_epoch]
    for _ in range(4):
        append(log)
        log.delete_records(-1)  # the log is empty now, and starts where it ends
        log.apply_retention(NOW)
        disk = disk.process_killed()
        log = reopen(disk)
        epochs.append(log.leader_epoch)
    assert epochs == [0, 1, 2, 3, 4]


def test_a_tail_that_was_synced_is_damage_and_its_offsets_are_not_given_again() -> None:
    disk = SimulatedDisk()
    directory, log = open_log(disk)
    for number in range(4):
        append(log, b"%d" % number)
    log.sync()
    directory.checkpoint()
    disk.files[LOG].data[-1] ^= 1
    log = reopen(disk.process_killed())
    assert contents(log) == [(0, b"0"), (1, b"1"), (2, b"2")]
    (damage,) = log.damage
    assert (damage.path, damage.first_offset, damage.next_offset) == (LOG, 3, 4)
    assert append(log, b"next") == 4
    assert contents(reopen(disk.process_killed()))[-1] == (4, b"next")


def test_a_snapshot_from_beyond_the_cut_is_not_believed_later() -> None:
    disk = SimulatedDisk()
    directory, log = open_log(disk)
    for number in range(4):
        log.append(an_idempotent_batch(number, b"old"), NOW)
    log.write_staged()
    directory.close()  # writes a snapshot at 4
    disk.remove("/data/.kafka_cleanshutdown")
    disk.remove("/data/recovery-point-offset-checkpoint")
    del disk.files[LOG].data[-1:]
    log = reopen(disk.process_killed())
    assert log.end_offset == 3
    log.append(a_batch(b"by another"), NOW)
    log.write_staged()
    log = reopen(disk.process_killed())
    assert log.append(an_idempotent_batch(3, b"old"), NOW) == (4, -1, 0, False)
