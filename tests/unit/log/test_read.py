"""Reading: from the batch that holds the offset, whole or not, near the end or deep in history."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core.errors import OffsetOutOfRange
from millstream.core.topic_config import TopicConfig
from millstream.log.directory import LogDirectory
from millstream.log.partition import PartitionLog
from millstream.log.storage.files import File, FilePool, LazyFile, OsFile, OsFiles
from millstream.records.batch import batches, read_header
from millstream.records.build import read_batches
from tests.support.disk import SimulatedDisk
from tests.support.logs import NOW, a_batch, append, contents, open_log, reopen


def offsets(log: PartitionLog, offset: int, max_bytes: int, **options: object) -> list[int]:
    return [r.offset for r in read_batches(log.read(offset, max_bytes, **options).bytes())]  # type: ignore[arg-type]


def test_a_read_starts_with_the_batch_that_holds_the_offset() -> None:
    _, log = open_log()
    append(log, b"a", b"b")
    append(log, b"c", b"d", b"e")
    append(log, b"f")
    assert offsets(log, 3, 1) == [2, 3, 4]
    assert offsets(log, 3, 10_000) == [2, 3, 4, 5]


def test_the_first_batch_is_whole_and_the_end_may_be_cut() -> None:
    _, log = open_log()
    sizes = [len(a_batch(b"v" * 100)) for _ in range(5)]
    for _ in sizes:
        append(log, b"v" * 100)
    assert log.read(0, 1).size == sizes[0]
    assert log.read(0, sizes[0] + 10).size == sizes[0] + 10
    assert log.read(4, 10_000).size == sizes[4]


def test_without_at_least_one_a_batch_that_does_not_fit_is_left_out() -> None:
    _, log = open_log()
    append(log, b"v" * 100)
    assert log.read(0, 100, at_least_one=False).size == 0
    assert log.read(0, 1000, at_least_one=False).size > 100


def test_the_end_of_the_log_is_empty_and_beyond_it_is_out_of_range() -> None:
    _, log = open_log()
    append(log)
    empty = log.read(1, 100)
    assert (empty.size, empty.bytes(), empty.fileno()) == (0, b"", -1)
    for offset in (-1, 2):
        with pytest.raises(OffsetOutOfRange, match="t-0 has offsets 0 to 1"):
            log.read(offset, 100)


def test_a_read_stops_at_upto() -> None:
    _, log = open_log(segment_bytes=1024)
    for _ in range(40):
        append(log, b"v" * 100)
    for upto in range(41):
        for offset in range(0, upto, 3):
            assert max(offsets(log, offset, 100_000, upto=upto)) < upto
        assert log.read(upto, 1000, upto=upto).size == 0


@given(
    sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 300)), min_size=1, max_size=60),
    segment_bytes=st.sampled_from([1400, 4000, 1 << 20]),
    interval=st.sampled_from([0, 300, 4096]),
    restart=st.sampled_from(["no", "clean", "killed"]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_any_offset_is_found_whatever_the_batches_segments_and_restarts(
    sizes: list[tuple[int, int]], segment_bytes: int, interval: int, restart: str, seed: int
) -> None:
    chance = random.Random(seed)
    disk = SimulatedDisk()
    options = {"segment_bytes": segment_bytes, "index_interval_bytes": interval}
    directory, log = open_log(disk, **options)
    expected = []
    for count, size in sizes:
        values = [chance.randbytes(size) for _ in range(count)]
        base = log.append(a_batch(*values), NOW).base_offset
        expected += list(enumerate(values, base))
        if chance.random() < 0.5:
            log.write_staged()
    log.write_staged()
    if restart == "clean":
        directory.close()
    if restart != "no":
        log = reopen(disk.process_killed(), **options)
    assert log.end_offset == len(expected)
    assert contents(log) == expected
    for offset in chance.sample(range(len(expected)), min(10, len(expected))):
        found = log.read(offset, chance.randrange(2000)).bytes()
        header = read_header(found)
        assert header.base_offset <= offset <= header.last_offset
        assert header.size <= len(found)


def test_readers_near_the_end_look_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    _, log = open_log(disk)
    for _ in range(600):
        append(log, b"a", b"b")
    monkeypatch.setattr("millstream.log.segment.segments.Segments.read", None)
    for offset in range(700, 1200):
        assert read_header(log.read(offset, 1).bytes()).base_offset == offset // 2 * 2


def test_a_slice_outlives_its_segment_and_its_place_in_the_pool(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path)
    directory.pool.limit = 2
    config = TopicConfig(segment_bytes=1024, retention_bytes=0, file_delete_delay_ms=0)
    log = directory.open_log("t", 0, config)
    for number in range(100):
        append(log, b"%04d" % number * 50)
    held = [log.read(number, 1) for number in range(100)]
    before = [one.bytes() for one in held]
    log.apply_retention(NOW)
    log.apply_retention(NOW + 1)
    assert log.log_start_offset == 100
    assert [one.bytes() for one in held] == before
    assert [next(batches(data))[1].base_offset for data in before] == list(range(100))
    directory.close()


class CountingFiles(OsFiles):
    """Knows how many descriptors are open, and has no more than ``most``."""

    def __init__(self, most: int = 1000) -> None:
        super().__init__()
        self.most = most
        self.open_now = 0
        self.open_at_most = 0

    def open(self, path: str, *, create: bool = False) -> File:
        if self.open_now == self.most:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        file = CountedFile(self, os.open(path, os.O_RDWR | (os.O_CREAT if create else 0)))
        self.open_now += 1
        self.open_at_most = max(self.open_at_most, self.open_now)
        return file


class CountedFile(OsFile):
    def __init__(self, files: CountingFiles, fd: int) -> None:
        super().__init__(fd)
        self.files = files

    def __del__(self) -> None:
        super().__del__()
        self.files.open_now -= 1


def test_the_number_of_open_files_is_bounded(tmp_path: Path) -> None:
    files = CountingFiles()
    directory = LogDirectory.open(tmp_path, files=files)
    directory.pool.limit = 10
    logs = [directory.open_log("t", n, TopicConfig(segment_bytes=1024)) for n in range(20)]
    for log in logs:
        for _ in range(30):
            append(log, b"v" * 100)
    for log in logs:
        assert len(contents(log)) == 30
        log.sync()
    assert files.open_at_most <= 12, "the pool, and one that is being opened or read whole"
    directory.close()


def test_a_pool_makes_room_when_the_process_has_no_descriptors_left(tmp_path: Path) -> None:
    files = CountingFiles(most=5)
    pool = FilePool(files, limit=100)
    lazy = [LazyFile(pool, str(tmp_path / str(number))) for number in range(20)]
    for number, one in enumerate(lazy):
        one.get(create=True).pwrite(b"%d" % number, 0)
    assert [one.get().pread(9, 0) for one in lazy] == [b"%d" % number for number in range(20)]
