"""The seam to the operating system: what it does with files that others remove meanwhile."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from millstream.core.errors import LogFailed
from millstream.log.storage.files import DIRECTORY, OsFiles, rename_all, sync_if_there
from millstream.log.storage.memory import MemoryFiles
from tests.support.disk import SimulatedDisk
from tests.support.logs import append, contents, open_log, reopen


def test_a_file_that_vanishes_while_its_directory_is_listed_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "stays").write_bytes(b"123")
    (tmp_path / "inner").mkdir()
    # What a name looks like whose file was removed after the directory was read.
    (tmp_path / "gone.deleted").symlink_to(tmp_path / "nowhere")
    assert OsFiles().listing(str(tmp_path)) == {"stays": 3, "inner": DIRECTORY}


@pytest.mark.parametrize("files", [OsFiles(), MemoryFiles(), SimulatedDisk()], ids=type)
def test_a_file_that_is_gone_is_no_error_where_it_is_to_go(
    files: OsFiles | MemoryFiles | SimulatedDisk, tmp_path: Path
) -> None:
    path = str(tmp_path)
    files.make_directory(path)
    files.open(f"{path}/a", create=True)
    wanted = [f"{path}/a", f"{path}/never-there"]
    assert rename_all(files, wanted, ".deleted") == [f"{path}/a.deleted"]
    assert rename_all(files, wanted, ".deleted") == []
    sync_if_there(files, f"{path}/never-there")
    files.remove(f"{path}/never-there")
    files.discard([f"{path}/never-there"])
    with pytest.raises(FileNotFoundError):
        files.rename(f"{path}/never-there", f"{path}/b")
    with pytest.raises(FileNotFoundError):
        files.open(f"{path}/never-there")


def test_what_a_killed_process_was_writing_is_removed_before_the_log_writes_again(tmp_path: Path) -> None:
    """Not later, by another thread: the log writes files of the same names."""

    discarded: list[str] = []

    class Watched(SimulatedDisk):
        def discard(self, paths: list[str]) -> None:
            discarded.extend(paths)
            super().discard(paths)

    disk = Watched()
    _, log = open_log(disk)
    append(log, b"1")
    for name in ("leader-epoch-checkpoint.tmp", "00000000000000000000.log.deleted"):
        disk.open(f"{log.path}/{name}", create=True)
    assert contents(reopen(disk.process_killed())) == [(0, b"1")]
    assert discarded == [f"{log.path}/00000000000000000000.log.deleted"]
    assert not disk.exists(f"{log.path}/leader-epoch-checkpoint.tmp")


def test_a_sync_without_a_descriptor_to_spare_passes() -> None:
    """Nothing was lost: the file was not even opened."""

    class Crowded(SimulatedDisk):
        is_crowded = False

        def sync_directory(self, path: str) -> None:
            if self.is_crowded:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            super().sync_directory(path)

    disk = Crowded()
    _, log = open_log(disk)
    append(log, b"1")
    disk.is_crowded = True
    with pytest.raises(LogFailed, match="can't sync: Too many open files"):
        log.sync()
    assert log.synced_offset == 0
    append(log, b"2")
    disk.is_crowded = False
    assert log.sync() == 2
    # The names were synced this time: the log is there after a power loss.
    assert contents(reopen(disk.power_loss(seed=1))) == [(0, b"1"), (1, b"2")]
