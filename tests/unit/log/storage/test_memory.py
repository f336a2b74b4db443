"""Topics in memory: one bound for all of them, and what each has chosen to give way with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from millstream.core.clock import ManualClock
from millstream.core.errors import LogFailed
from millstream.log.memory_directory import MemoryDirectory
from millstream.log.partition import PartitionLog
from millstream.log.storage.memory import MemoryFile, MemoryFiles
from tests.support.logs import NOW, append, contents, settings

LIMIT = 4_000_000
VALUE = bytes(100_000)


def a_directory(spill_to: str = "") -> MemoryDirectory:
    return MemoryDirectory(ManualClock(NOW), limit=LIMIT, spill_to=spill_to)


def a_log(directory: MemoryDirectory, topic: str, **changes: Any) -> PartitionLog:
    return directory.open_log(topic, 0, settings(**changes))


def values(number: int) -> bytes:
    return number.to_bytes(4, "big") + VALUE


def fill(log: PartitionLog, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        append(log, values(number))


# A file


@pytest.mark.parametrize("moved", [0, 1, 300, 999, 1000])
def test_a_file_reads_and_writes_the_same_wherever_its_bytes_are(tmp_path: Path, moved: int) -> None:
    file = MemoryFile(MemoryFiles())
    model = bytearray(os.urandom(1000))
    file.pwrite(model, 0)
    if moved:
        assert file.spill(moved, str(tmp_path)) == moved
    assert (file.size(), file.spilled) == (1000, moved)
    for position, size in ((0, 1000), (0, 10), (250, 100), (299, 2), (900, 500), (1000, 5), (2000, 5)):
        assert file.pread(size, position) == model[position : position + size]
    file.pwrite(b"changed", 297)
    model[297:304] = b"changed"
    file.pwrite(b"more", 1000)
    model += b"more"
    assert file.pread(2000, 0) == model
    for size in (1002, 600, 200, 250):
        file.truncate(size)
        model = model[:size] + bytes(max(0, size - len(model)))
        assert file.pread(2000, 0) == model
    file.pwrite(b"again", 250)
    assert file.pread(2000, 0) == model + b"again"


def test_what_is_spilled_leaves_no_name_behind(tmp_path: Path) -> None:
    file = MemoryFile(MemoryFiles())
    file.pwrite(bytes(100), 0)
    file.spill(100, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_every_byte_that_has_a_name_counts_once() -> None:
    files = MemoryFiles()
    files.make_directory("/d")
    for name in ("a", "b", "c"):
        files.open(f"/d/{name}", create=True).pwrite(bytes(100), 0)
    files.open("/d/a").pwrite(bytes(60), 50)
    assert files.used == 310
    files.open("/d/a").truncate(10)
    files.rename("/d/b", "/d/c")
    assert files.used == 110
    files.remove("/d/a")
    files.remove("/d/a")
    assert files.used == 100
    files.discard(["/d"])
    assert files.used == 0


# The choices


def test_a_buffer_spills_to_the_disk_and_is_read_from_there(tmp_path: Path) -> None:
    directory = a_directory(str(tmp_path))
    logs = [a_log(directory, name, segment_bytes=1_000_000) for name in ("a", "b")]
    for number in range(60):
        append(logs[number % 2], values(number))
        assert directory.used <= LIMIT
    assert directory.spilled_bytes > 2_000_000
    assert sum(directory.spilled(log) for log in logs) == directory.spilled_bytes
    for start, log in enumerate(logs):
        assert [value for _, value in contents(log)] == [values(n) for n in range(start, 60, 2)]
    assert directory.full is None


def test_a_ring_drops_its_oldest_before_its_own_bound(tmp_path: Path) -> None:
    directory = a_directory(str(tmp_path))
    log = a_log(directory, "ring", millstream_overload="drop", millstream_overload_bytes=16_000_000)
    for number in range(100):
        append(log, values(number))
        assert directory.used <= LIMIT
    found = contents(log)
    assert found[-1] == (99, values(99))
    assert len(found) > 20
    assert log.log_start_offset > 0
    assert directory.spilled_bytes == 0


def test_rings_give_way_to_what_can_neither_spill_nor_drop() -> None:
    directory = a_directory()
    ring = a_log(directory, "ring", millstream_overload="drop", millstream_overload_bytes=3_000_000)
    fill(ring, 28)
    fill(a_log(directory, "other"), 30)
    assert directory.used <= LIMIT
    assert ring.size_bytes < 1_000_000


@pytest.mark.parametrize(
    "changes",
    [
        {"millstream_overload": "buffer"},
        {"millstream_overload": "backpressure", "millstream_overload_groups": ("g",)},
    ],
    ids=["buffer without a disk", "backpressure"],
)
def test_others_are_refused_until_there_is_room(changes: dict[str, Any]) -> None:
    clock = ManualClock(NOW)
    directory = MemoryDirectory(clock, limit=LIMIT)
    log = a_log(directory, "t", segment_bytes=500_000, file_delete_delay_ms=0, **changes)
    with pytest.raises(LogFailed, match=r"millstream\.memory\.bytes|memory for topics is full"):
        fill(log, 100)
    assert directory.full is not None
    assert directory.used <= LIMIT
    kept = log.end_offset
    assert len(contents(log)) == kept
    with pytest.raises(LogFailed, match=r"millstream\.memory\.bytes"):
        append(log, VALUE)
    directory.look()
    assert directory.full is not None, "nothing was freed yet"
    log.delete_records(kept // 2)
    log.apply_retention(NOW + 1)
    log.apply_retention(NOW + 2)
    directory.look()
    assert directory.full is None
    assert append(log, VALUE) == kept


def test_a_topic_that_is_deleted_gives_its_memory_back() -> None:
    directory = a_directory()
    fill(a_log(directory, "t"), 20)
    assert directory.used > 2_000_000
    directory.delete_log("t", 0)
    assert directory.used < 10_000
