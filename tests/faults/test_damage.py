"""Damage in the middle: found, reported with its place, never served; everything around it stays."""

from __future__ import annotations

import random

import pytest

from millstream.core.errors import LogError
from millstream.records.batch import PREFIX_SIZE, batches
from millstream.records.build import read_batches
from tests.support.disk import SimulatedDisk
from tests.support.logs import append, contents, open_log, reopen

FIRST = "/data/t-0/00000000000000000000.log"
LEADER_EPOCH = range(12, 16)  # in a batch: neither under the checksum nor of use to readers of a log


def a_log(*, clean: bool, segment_bytes: int = 1 << 20) -> tuple[SimulatedDisk, list[tuple[int, bytes]]]:
    """A closed or killed log of twenty batches, and its records."""
    disk = SimulatedDisk()
    directory, log = open_log(disk, segment_bytes=segment_bytes, index_interval_bytes=200)
    records = []
    for number in range(20):
        values = [b"%d-%d" % (number, n) for n in range(2)]
        records += list(enumerate(values, append(log, *values)))
    if clean:
        directory.close()
    return disk.process_killed(), records


def places(disk: SimulatedDisk, path: str = FIRST) -> list[tuple[int, int, int]]:
    """(position, size, base offset) of every batch in a file."""
    return [(at, header.size, header.base_offset) for at, header in batches(disk.files[path].data)]


@pytest.mark.parametrize("clean", [True, False])
def test_a_flipped_bit_anywhere_in_a_batch_costs_that_batch_and_no_other(clean: bool) -> None:
    chance = random.Random(1)
    _, size, _ = places(a_log(clean=clean)[0])[9]
    for byte in range(size):
        disk, records = a_log(clean=clean)
        at, _, base = places(disk)[9]
        disk.files[FIRST].data[at + byte] ^= 1 << chance.randrange(8)
        before = bytes(disk.files[FIRST].data)
        log = reopen(disk, index_interval_bytes=200)
        good = [record for record in records if not base <= record[0] < base + 2]
        if byte in LEADER_EPOCH:
            assert contents(log) == records
            continue
        assert contents(log) == good, byte
        (damage,) = log.damage
        assert (damage.path, damage.position, damage.size) == (FIRST, at, size), byte
        assert (damage.first_offset, damage.next_offset) == (base, base + 2)
        for offset in (base, base + 1):
            with pytest.raises(LogError, match=f"{FIRST} at byte {at} ") as raised:
                log.read(offset, 1000)
            assert raised.value.code == 2
            assert f"continue at offset {base + 2}" in str(raised.value)
        assert bytes(disk.files[FIRST].data) == before, "nothing is deleted"
        assert append(log, b"after") == 40
        assert contents(log) == [*good, (40, b"after")]


def test_every_single_offset_is_read_right_beside_damage() -> None:
    chance = random.Random(2)
    for _ in range(60):
        disk, records = a_log(clean=True, segment_bytes=1024)
        path = chance.choice([name for name in disk.files if name.endswith(".log")])
        data = disk.files[path].data
        if not data:
            continue
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        log = reopen(disk, segment_bytes=1024, index_interval_bytes=200)
        values = dict(records)
        for offset in chance.sample(range(40), 40):
            try:
                found = {r.offset: r.value for r in read_batches(log.read(offset, 1).bytes())}
            except LogError as error:
                lost = error.code == 2 and any(d.first_offset <= offset < d.next_offset for d in log.damage)
                found = {offset: values[offset]} if lost else {}
            assert found.get(offset) == values[offset]
        assert append(log, b"after") == 40


def test_damage_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    disk, _ = a_log(clean=True)
    at, _, base = places(disk)[5]
    disk.files[FIRST].data[at + 70] ^= 1
    log = reopen(disk)
    for _ in range(3):
        contents(log)
    assert caplog.text.count("damaged records") == 1
    assert f"{FIRST} at byte {at}" in caplog.text
    assert f"offsets {base} to {base + 1}" in caplog.text


def test_several_batches_overwritten_by_zeros_are_one_stretch_of_damage() -> None:
    for clean in (True, False):
        disk, records = a_log(clean=clean)
        begin, _, _ = places(disk)[4]
        end, _, _ = places(disk)[8]
        disk.files[FIRST].data[begin:end] = bytes(end - begin)
        log = reopen(disk)
        assert contents(log) == records[:8] + records[16:]
        (damage,) = log.damage
        assert (damage.position, damage.size, damage.next_offset) == (begin, end - begin, 16)


def test_a_whole_batch_kept_inside_a_record_is_not_taken_for_one_of_the_log() -> None:
    disk = SimulatedDisk()
    directory, log = open_log(disk)
    append(log, b"first")
    inner = bytearray(log.read(0, 1000).bytes())
    inner[7] = 2  # as if it were the batch at offset 2
    append(log, bytes(inner))
    append(log, b"third")
    directory.close()
    at, size, _ = places(disk)[1]
    disk.files[FIRST].data[at + size - 1] ^= 1
    log = reopen(disk)
    assert contents(log) == [(0, b"first"), (2, b"third")]


def test_damage_at_the_end_of_a_sealed_segment_does_not_touch_the_next_one() -> None:
    for clean in (True, False):
        disk, records = a_log(clean=clean, segment_bytes=1024)
        at, _, base = places(disk)[-1]
        del disk.files[FIRST].data[at + PREFIX_SIZE :]
        log = reopen(disk, segment_bytes=1024)
        assert contents(log) == [record for record in records if not base <= record[0] < base + 2]
        assert log.damage[0].next_offset == base + 2
        assert append(log, b"after") == 40


def test_damage_in_the_last_batch_of_a_cleanly_closed_log_does_not_hide_what_comes_after() -> None:
    disk, records = a_log(clean=True)
    disk.files[FIRST].data[-1] ^= 1
    log = reopen(disk)
    append(log, b"after")
    assert contents(log) == [*records[:-2], (40, b"after")]
    assert [(d.first_offset, d.next_offset) for d in log.damage] == [(38, 40)]


def test_look_ups_by_time_pass_over_damage() -> None:
    disk = SimulatedDisk()
    directory, log = open_log(disk, index_interval_bytes=0)
    for number in range(10):
        append(log, b"%d" % number, at=1000 + number)
    directory.close()
    at, _, _ = places(disk)[6]
    disk.files[FIRST].data[at + 65] ^= 4
    log = reopen(disk, index_interval_bytes=0)
    assert log.offset_for_timestamp(1006) == (7, 1007)
    assert log.offset_for_timestamp(1003) == (3, 1003)
    assert log.max_timestamp_offset() == (9, 1009)
