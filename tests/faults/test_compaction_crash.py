"""A crash at any moment of a compaction: what is found then is the log before it, or after it."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.log.partition import PartitionLog
from millstream.records.batch import batches
from millstream.records.build import Record, build_batch, read_batches
from tests.support.compacting import compact_now
from tests.support.disk import NameChange, SimulatedDisk
from tests.support.logs import NOW, open_log

SETTINGS: dict[str, Any] = {
    "cleanup_policy": ("compact",),
    "segment_bytes": 1024,
    "index_interval_bytes": 200,
    "file_delete_delay_ms": 0,
}


class Killed(BaseException):
    """The process is no more."""


class DoomedDisk(SimulatedDisk):
    """One that is written to so many times, and no more."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.used: list[str] = []

    def _use(self, how: str) -> None:
        if self.left is not None:
            if self.left == 0:
                raise Killed
            self.left -= 1
            self.used.append(how)

    def room_for(self, path: str, size: int) -> int:
        self._use("write")
        return super().room_for(path, size)

    def maybe_fail_sync(self, path: str) -> None:
        self._use("sync")
        super().maybe_fail_sync(path)

    def _change(self, path: str, change: NameChange) -> None:
        self._use("name")
        super()._change(path, change)


def filled(disk: SimulatedDisk) -> tuple[PartitionLog, dict[int, tuple[bytes, bytes]]]:
    """A log of several segments: plain records, committed and aborted ones; and those that count."""
    _, log = open_log(disk, **SETTINGS)
    written: dict[int, tuple[bytes, bytes]] = {}
    sequence = 0
    for number in range(18):
        key, value = b"k%d" % (number % 5), b"%d" % number * 20
        names = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        how = names | {"transactional": True} if number % 3 == 0 else {}
        batch = build_batch([Record(key, value, timestamp=NOW + number)], **how)
        offset = log.append(batch, NOW).base_offset
        if how:
            sequence += 1
            log.append_marker(7, 0, commit=number % 2 == 0, coordinator_epoch=0, now_ms=NOW)
        if not how or number % 2 == 0:
            written[offset] = (key, value)
        log.write_staged()
        if number % 2 == 1:
            log.roll()
    log.sync()
    return log, written


def table(log: PartitionLog) -> dict[bytes, tuple[int, bytes | None]]:
    """What a reader of committed records has in the end; nothing may be missing on the way."""
    found: dict[bytes, tuple[int, bytes | None]] = {}
    assert not log.damage
    offset = log.log_start_offset
    aborted = {first for _, first in log.aborted(0, log.end_offset)}
    while offset < log.written_offset:
        data = log.read(offset, 1 << 16).bytes()
        # One record a transaction: its first offset is its only one.
        records = [record for record in read_batches(data) if record.offset not in aborted]
        found |= {record.key or b"": (record.offset, record.value) for record in records}
        offset = max(header.next_offset for _, header in batches(data))
    return found


def operations() -> list[str]:
    """What a compaction does to the disk, one after the other."""
    disk = DoomedDisk()
    log, _ = filled(disk)
    disk.left = 1_000_000
    compact_and_remove(log)
    return disk.used


def compact_and_remove(log: PartitionLog) -> None:
    compact_now(log, NOW)
    log.apply_retention(NOW + 1)


def crashes() -> list[tuple[int, int | None]]:
    """After how many operations, and the power loss's seed. Names that the disk does not know for sure are
    where the order of things counts: there, many."""
    used = operations()
    assert len(used) > 100
    ends: list[tuple[int, int | None]] = []
    for left, how in enumerate(used):
        seeds = 5 if how in ("name", "sync") and "name" in used[max(0, left - 4) : left] else 1
        ends += [(left, None), *((left, left * 100 + seed) for seed in range(seeds))]
    return ends


@pytest.mark.parametrize("part", range(4))
def test_at_every_write_rename_and_sync(part: int) -> None:
    for left, seed in crashes()[part::4]:
        disk = DoomedDisk()
        log, written = filled(disk)
        expected = {key: (offset, value) for offset, (key, value) in sorted(written.items())}
        assert table(log) == expected
        disk.left = left
        with pytest.raises(Killed):
            compact_and_remove(log)
        disk.left = None
        after = disk.process_killed() if seed is None else disk.power_loss(seed)
        _, log = open_log(after, **SETTINGS)
        assert table(log) == expected, f"after {left} operations, seed {seed}"
        assert log.producers.states[7][1] == 6
        assert not [name for name in after.listing(log.path) if name.endswith((".cleaned", ".swap"))]
        compact_now(log, NOW)
        assert table(log) == expected
        assert len({segment.base_offset for segment in log.segments}) == len(log.segments)
