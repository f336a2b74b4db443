"""A data directory: who may use it, what it remembers, and what it never deletes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.core.clock import ManualClock
from millstream.core.errors import DataDirectoryError, LogFailed
from millstream.core.topic_config import TopicConfig
from millstream.log.directory import LogDirectory
from millstream.log.memory_directory import MemoryDirectory
from millstream.log.storage.files import OsFiles
from tests.support.disk import SimulatedDisk
from tests.support.logs import NOW, a_batch, append, contents, open_log
from tests.support.waiting import wait_for


def test_two_brokers_can_not_use_one_directory(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path)
    with pytest.raises(DataDirectoryError, match=f"in use by another broker \\(process {os.getpid()}\\)"):
        LogDirectory.open(tmp_path)
    directory.close()
    LogDirectory.open(tmp_path).close()


def test_the_lock_of_a_killed_process_is_gone(tmp_path: Path) -> None:
    program = (
        "import sys, time; from millstream.log.directory import LogDirectory; "
        f"d = LogDirectory.open({str(tmp_path)!r}); print('open', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(DataDirectoryError, match=f"process {other.pid}"):
            LogDirectory.open(tmp_path)
        other.kill()
    LogDirectory.open(tmp_path).close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_directory_is_a_clear_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DataDirectoryError, match="may read and write"):
        LogDirectory.open(tmp_path / "data")


def test_a_file_in_place_of_the_directory_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a directory")
    with pytest.raises(DataDirectoryError, match=f"can't use the data directory {tmp_path}/data"):
        LogDirectory.open(tmp_path / "data")


def test_a_clean_shutdown_is_recognised_once() -> None:
    disk = SimulatedDisk()
    directory, log = open_log(disk)
    assert not directory.clean
    append(log)
    directory.close()
    directory, log = open_log(disk)
    assert directory.clean
    disk.process_killed()
    directory, log = open_log(disk)
    assert not directory.clean


def test_after_a_clean_shutdown_old_segments_are_not_read() -> None:
    disk = SimulatedDisk()
    directory, log = open_log(disk, segment_bytes=1024)
    for _ in range(100):
        append(log, b"v" * 50)
    directory.close()
    opened: list[str] = []
    disk.fail_open = lambda path: opened.append(path) or False  # type: ignore[func-returns-value]
    _, log = open_log(disk, segment_bytes=1024)
    logs = [path for path in opened if path.endswith(".log")]
    assert logs == [log.segments.last.log.path]
    assert log.end_offset == 100


def test_offsets_and_epochs_survive_a_clean_restart_unchanged() -> None:
    disk = SimulatedDisk()
    for life in range(3):
        directory, log = open_log(disk)
        assert (log.end_offset, log.leader_epoch) == (life, 0)
        append(log, b"%d" % life)
        directory.close()


def test_staged_records_are_written_by_closing() -> None:
    disk = SimulatedDisk()
    directory, _ = open_log(disk)
    directory.close()
    directory, log = open_log(disk)
    log.append(a_batch(b"staged"), NOW)
    directory.close()
    assert contents(open_log(disk)[1]) == [(0, b"staged")]


def test_the_owner_of_a_directory_is_written_down_and_checked(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path)
    directory.claim("cluster-a", 3)
    directory.claim("cluster-a", 3)
    written = dict(
        line.split("=") for line in (tmp_path / "meta.properties").read_text().splitlines() if "=" in line
    )
    assert written.pop("directory.id")
    assert written == {"version": "1", "cluster.id": "cluster-a", "node.id": "3"}
    with pytest.raises(DataDirectoryError, match="belongs to another broker"):
        directory.claim("cluster-b", 3)
    with pytest.raises(DataDirectoryError, match=r"node\.id=3, this broker has 4"):
        directory.claim("cluster-a", 4)
    directory.close()


def test_a_deleted_log_is_gone_and_its_offsets_start_anew(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path)
    log = directory.open_log("t", 0, TopicConfig())
    for _ in range(3):
        append(log)
    log.delete_records(2)
    held = log.read(2, 100)
    directory.delete_log("t", 0)
    assert not (tmp_path / "t-0").exists()
    assert held.bytes() != b""
    wait_for(lambda: not any(p.name.endswith("-delete") for p in tmp_path.iterdir()), what="files removed")
    log = directory.open_log("t", 0, TopicConfig())
    assert (log.log_start_offset, log.end_offset) == (0, 0)
    directory.close()


def test_what_is_remembered_of_a_deleted_log_does_not_hold_for_a_new_one_of_its_name() -> None:
    disk = SimulatedDisk()
    directory, log = open_log(disk)
    for _ in range(9):
        append(log)
    log.sync()
    log.delete_records(4)
    directory.checkpoint()
    directory.delete_log("t", 0)
    directory.open_log("t", 0, TopicConfig(), is_new=True)
    disk.process_killed()
    _, log = open_log(disk)
    assert (log.log_start_offset, log.end_offset) == (0, 0)


def test_a_deleted_log_takes_no_appends_and_gives_its_descriptors_back(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    log = directory.open_log("t", 0, TopicConfig(segment_bytes=1024))
    for _ in range(50):
        append(log, b"v" * 100)
    directory.delete_log("t", 0)
    with pytest.raises(LogFailed, match="is deleted"):
        log.append(a_batch(), NOW)
    wait_for(lambda: len(os.listdir("/proc/self/fd")) <= before, what="descriptors are closed")
    directory.close()


def test_a_deletion_that_was_interrupted_is_finished_at_the_next_start(tmp_path: Path) -> None:
    left = tmp_path / "t-0.0123456789abcdef-delete"
    left.mkdir(parents=True)
    (left / "00000000000000000000.log").write_bytes(b"old")
    directory = LogDirectory.open(tmp_path)
    wait_for(lambda: not left.exists(), what="the deleted log's files are removed")
    directory.close()


def test_logs_that_nobody_knows_are_set_aside_and_kept(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path)
    long = "x" * 249
    for topic in ("known", "unknown", long):
        append(directory.open_log(topic, 0, TopicConfig()), topic.encode())
    (tmp_path / "not a log").mkdir()
    (tmp_path / "catalogue.db").write_bytes(b"")
    strays = directory.strays({("known", 0)})
    assert [path.name for path in strays] == ["unknown-0", f"{long}-0"]
    for path in strays:
        aside = directory.set_aside(path)
        assert aside.name.endswith("-stray")
        assert (aside / "00000000000000000000.log").read_bytes()
    assert directory.strays({("known", 0)}) == []
    directory.close()


def test_a_log_can_not_be_opened_twice(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path)
    directory.open_log("t", 0, TopicConfig())
    with pytest.raises(ValueError, match="t-0 is open already"):
        directory.open_log("t", 0, TopicConfig())
    directory.close()


def test_the_files_are_named_as_kafka_names_them(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path)
    log = directory.open_log("t", 0, TopicConfig(segment_bytes=1024))
    while len(log.segments) == 1:
        append(log, b"v" * 100)
    second = f"{log.segments.last.base_offset:020d}"
    append(log)
    end = f"{log.end_offset:020d}"
    directory.close()
    assert {path.name for path in (tmp_path / "t-0").iterdir()} == {
        *(f"{name}.{kind}" for name in ("0" * 20, second) for kind in ("log", "index", "timeindex")),
        f"{second}.snapshot",
        f"{end}.snapshot",
        "leader-epoch-checkpoint",
    }
    assert {path.name for path in tmp_path.iterdir()} == {
        "t-0",
        ".boot",
        ".lock",
        ".kafka_cleanshutdown",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
    }


def test_a_memory_directory_has_the_same_face() -> None:
    directory = MemoryDirectory(ManualClock(NOW))
    log = directory.open_log("t", 0, TopicConfig(segment_bytes=1024))
    for number in range(50):
        append(log, b"%d" % number)
    assert log.sync() == 50
    assert contents(log) == [(number, b"%d" % number) for number in range(50)]
    directory.delete_log("t", 0)
    assert directory.open_log("t", 0, TopicConfig()).end_offset == 0
    directory.close()


def test_the_operating_systems_files_keep_the_seams_promises(tmp_path: Path) -> None:
    files = OsFiles()
    path = str(tmp_path / "f")
    file = files.open(path, create=True)
    file.pwrite(bytearray(b"0123456789"), 0)
    file.pwrite(memoryview(b"ab"), 4)
    assert (file.pread(100, 2), file.size()) == (b"23ab6789", 10)
    file.truncate(3)
    assert file.pread(100, 0) == b"012"
    files.rename(path, path + "2")
    files.remove(path + "2")
    files.remove(path + "2")
    assert file.pread(100, 0) == b"012"
    assert files.listing(str(tmp_path)) == {}
    with pytest.raises(FileNotFoundError):
        files.open(path)
