"""A log that is shorter than it is known to have been is not served before a person accepts that."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.core.clock import ManualClock
from millstream.core.errors import DataDirectoryError, LogOffline
from millstream.log.directory import LogDirectory, LogToOpen
from millstream.log.partition import PartitionLog
from millstream.log.recovery.check import SHORT, Finding, accept_losses, check_directory
from millstream.log.recovery.shortfall import HighestCommits
from tests.support.disk import SimulatedDisk
from tests.support.logs import NOW, a_batch, append, contents, settings

LOG = "/data/t-0/00000000000000000000.log"
NONE = HighestCommits()
READ_EIGHT = HighestCommits().and_one(8, 0, "g")
KEY = ("t", 0)


def started(
    disk: SimulatedDisk, commits: HighestCommits = NONE, topic_id: uuid.UUID | None = None
) -> tuple[LogDirectory, PartitionLog]:
    """A broker that starts on the disk, and the log of its one partition."""
    directory = LogDirectory.open("/data", files=disk, clock=ManualClock(NOW))
    (log,) = directory.open_logs([LogToOpen("t", 0, settings(), topic_id, commits)])
    return directory, log


def a_disk(*, clean: bool, synced: int = 10, written: int = 10) -> SimulatedDisk:
    """The disk of a broker that wrote ten batches of one record; of the checkpoint up to ``synced``."""
    disk = SimulatedDisk()
    directory, log = started(disk)
    for number in range(written):
        append(log, b"%d" % number)
        if number + 1 == synced:
            log.sync()
            directory.checkpoint()
    if clean:
        directory.close()
    return disk.process_killed()


def a_disk_of_six_segments() -> SimulatedDisk:
    """Of a broker that was shut down cleanly; each segment has one record."""
    disk = SimulatedDisk()
    directory, log = started(disk)
    for number in range(6):
        append(log, b"%d" % number)
        log.roll()
    directory.close()
    return disk


def findings(disk: SimulatedDisk) -> list[Finding]:
    return [item for item in check_directory("/data", files=disk) if isinstance(item, Finding)]


def remove_directory(disk: SimulatedDisk) -> None:
    disk.discard(["/data/t-0"])


def remove_segments(disk: SimulatedDisk) -> None:
    disk.remove(LOG)


def cut_at_a_batch(disk: SimulatedDisk) -> None:
    data = disk.files[LOG].data
    del data[len(data) // 10 * 6 :]


def cut_in_a_batch(disk: SimulatedDisk) -> None:
    data = disk.files[LOG].data
    del data[len(data) // 10 * 6 + 30 :]


LOSSES = [remove_directory, remove_segments, cut_at_a_batch, cut_in_a_batch]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lose", LOSSES)
def test_a_log_without_what_was_synced_is_offline_and_its_files_stay_as_they_are(
    lose: Callable[[SimulatedDisk], None], clean: bool
) -> None:
    disk = a_disk(clean=clean)
    lose(disk)
    before = {name: bytes(content.data) for name, content in disk.files.items() if name.endswith(".log")}
    for _ in range(2):
        directory, log = started(disk)
        with pytest.raises(LogOffline, match=r"t-0 is offline: .* it was synced up to offset 10\. "):
            log.append(a_batch(), NOW)
        with pytest.raises(LogOffline, match="millstream log accept-loss /data t-0"):
            log.read(3, 1000)
        assert log.apply_retention(NOW) == []
        directory.checkpoint()
        directory.close()
        logs = {name: bytes(content.data) for name, content in disk.files.items() if name.endswith(".log")}
        assert logs == before


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lose", LOSSES)
def test_an_accepted_loss_lets_the_log_go_on_without_giving_an_offset_twice(
    lose: Callable[[SimulatedDisk], None], clean: bool
) -> None:
    disk = a_disk(clean=clean)
    lose(disk)
    kept = 6 if "cut" in lose.__name__ else 0
    (finding,) = accept_losses("/data", ["t-0"], {KEY: HighestCommits()}, files=disk)
    assert "it was synced up to offset 10" in finding.message
    directory, log = started(disk)
    assert append(log, b"next") == 10
    assert contents(log) == [*((number, b"%d" % number) for number in range(kept)), (10, b"next")]
    directory.checkpoint()
    assert "/data/accepted-losses" not in disk.files
    _, again = started(disk.process_killed())
    assert again.offline is None
    assert contents(again) == contents(log)


def test_a_loss_is_accepted_once() -> None:
    disk = a_disk(clean=True)
    cut_at_a_batch(disk)
    accept_losses("/data", ["t-0"], {}, files=disk)
    directory, log = started(disk)
    append(log, b"next")
    directory.close()
    remove_directory(disk)
    assert started(disk)[1].offline is not None


def test_files_that_are_put_back_bring_the_partition_back() -> None:
    disk = a_disk(clean=False)
    whole = bytes(disk.files[LOG].data)
    cut_in_a_batch(disk)
    assert started(disk)[1].offline is not None
    disk.process_killed()
    disk.files[LOG].data[:] = whole
    log = started(disk)[1]
    assert len(contents(log)) == 10
    assert append(log) == 10


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_offset_beyond_the_end_is_a_loss(clean: bool) -> None:
    disk = a_disk(clean=False, synced=3)
    directory, log = started(disk)
    log.delete_records(8)
    directory.close() if clean else disk.process_killed()
    disk.remove("/data/recovery-point-offset-checkpoint")
    cut_at_a_batch(disk)
    assert "it was trimmed up to offset 8" in str(started(disk)[1].offline)


@pytest.mark.parametrize("clean", [True, False])
def test_a_commit_beyond_the_end_by_a_reader_is_a_loss(clean: bool) -> None:
    disk = a_disk(clean=clean, synced=3)
    disk.remove("/data/recovery-point-offset-checkpoint")
    cut_at_a_batch(disk)
    log = started(disk, READ_EIGHT)[1]
    assert "ends at offset 6, and offsets 6 to 7 are missing, but group g committed offset 8" in str(
        log.offline
    )


def test_a_commit_of_any_number_does_not_stop_a_partition() -> None:
    disk = a_disk(clean=True)
    log = started(disk, HighestCommits().and_one(1 << 40, -1, "typed"))[1]
    assert log.offline is None
    assert append(log) == 10


def test_a_missing_directory_is_a_loss_if_anybody_committed() -> None:
    disk = a_disk(clean=True)
    remove_directory(disk)
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        disk.remove(f"/data/{name}")
    commits = HighestCommits().and_one(5, -1, "old")
    assert "group old committed offset 5" in str(started(disk, commits)[1].offline)
    accept_losses("/data", ["t-0"], {KEY: commits}, files=disk.process_killed())
    assert append(started(disk, commits)[1]) == 5


def test_a_directory_that_was_never_made_is_no_loss() -> None:
    disk = SimulatedDisk()
    directory = LogDirectory.open("/data", files=disk, clock=ManualClock(NOW))
    directory.checkpoint()
    log = started(disk.process_killed())[1]
    assert log.offline is None
    assert append(log) == 0


def test_an_empty_log_whose_directory_is_gone_is_a_loss_too() -> None:
    """Records may have come after the checkpoint."""
    disk = a_disk(clean=False, written=0)
    directory, _ = started(disk)
    directory.checkpoint()
    remove_directory(disk.process_killed())
    assert "recovery-point-offset-checkpoint names it" in str(started(disk)[1].offline)


def test_unsynced_records_that_a_power_cut_took_are_no_reason_to_stop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A group had read them and committed: the log goes on after them, so that it never reads others."""
    disk = SimulatedDisk()
    directory, log = started(disk)
    for number in range(3):
        append(log, b"%d" % number)
    log.sync()
    directory.checkpoint()
    kept = len(disk.files[LOG].data)
    for _ in range(5):
        append(log, b"unsynced")
    disk = disk.power_loss(1)
    del disk.files[LOG].data[kept:]
    log = started(disk, READ_EIGHT)[1]
    assert "offsets 3 to 7 are missing (group g committed offset 8); they were not synced" in caplog.text
    assert append(log, b"next") == 8
    assert contents(log) == [(0, b"0"), (1, b"1"), (2, b"2"), (8, b"next")]


def test_the_directory_of_a_deleted_topic_is_not_the_log_of_a_new_one_of_its_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The broker was killed after the catalogue knew of both, and before the old directory was gone."""
    old, new = uuid.uuid4(), uuid.uuid4()
    disk = SimulatedDisk()
    directory, log = started(disk, topic_id=old)
    append(log, b"old")
    log.sync()
    directory.checkpoint()
    for _ in range(2):
        log = started(disk.process_killed(), topic_id=new)[1]
        assert log.offline is None
        assert contents(log) == []
    (aside,) = [name for name in disk.directories if name.endswith("-stray")]
    assert len(disk.files[f"{aside}/00000000000000000000.log"].data) > 0
    assert str(old) in caplog.text


@pytest.mark.parametrize("lose", LOSSES)
def test_the_check_names_what_is_missing(lose: Callable[[SimulatedDisk], None]) -> None:
    disk = a_disk(clean=True)
    lose(disk)
    found = list(check_directory("/data", files=disk, expected={KEY: HighestCommits()}))
    (short,) = [item for item in found if isinstance(item, Finding) and item.kind == SHORT]
    assert short.partition == "t-0"
    assert "it was synced up to offset 10" in short.message
    assert short.loses_records


def test_a_plain_file_in_the_place_of_a_partition_puts_only_that_partition_offline(tmp_path: Path) -> None:
    wanted = [LogToOpen("t", number, settings(), None, NONE) for number in range(2)]
    directory = LogDirectory.open(str(tmp_path), clock=ManualClock(NOW))
    for log in directory.open_logs(wanted):
        append(log, b"kept")
    directory.close()
    shutil.rmtree(tmp_path / "t-0")
    (tmp_path / "t-0").touch()
    directory = LogDirectory.open(str(tmp_path), clock=ManualClock(NOW))
    broken, whole = directory.open_logs(wanted)
    with pytest.raises(LogOffline, match=r"t-0 is offline: .*/t-0 can't be read: Not a directory"):
        broken.read(0, 1000)
    assert contents(whole) == [(0, b"kept")]
    directory.close()
    assert (tmp_path / "t-0").is_file()


def test_a_log_without_its_directory_goes_on_in_an_epoch_that_no_reader_has_committed_under() -> None:
    disk = a_disk(clean=True)
    remove_directory(disk)
    committed = HighestCommits().and_one(8, 3, "g").and_one(5, 2, "h")
    accept_losses("/data", ["t-0"], {KEY: committed}, files=disk)
    assert started(disk, committed)[1].leader_epoch == 4


def test_a_first_segment_that_is_gone_is_told_and_the_rest_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = a_disk_of_six_segments()
    disk.remove("/data/t-0/00000000000000000000.log")
    disk.remove("/data/t-0/00000000000000000001.log")
    (finding,) = findings(disk)
    assert "offsets 0 to 1 are missing" in finding.message
    assert finding.loses_records
    _, log = started(disk)
    assert [offset for offset, _ in contents(log)] == [2, 3, 4, 5]
    assert "offsets 0 to 1 are missing" in caplog.text


def test_segments_that_retention_deleted_are_not_missed(caplog: pytest.LogCaptureFixture) -> None:
    disk = a_disk_of_six_segments()
    directory, log = started(disk)  # which appends nothing
    log.delete_records(3)
    assert log.apply_retention(NOW)
    directory.close()
    assert not findings(disk)
    _, log = started(disk)
    assert log.log_start_offset == 3
    assert "missing" not in caplog.text


def test_segments_that_a_ring_dropped_below_a_trim_are_not_missed(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    config = settings(millstream_overload="drop", millstream_overload_bytes=16 * 1024, segment_bytes=1024)
    directory = LogDirectory.open("/data", files=disk, clock=ManualClock(NOW))
    log = directory.open_log("t", 0, config)
    for _ in range(20):
        append(log, bytes(900))
    log.delete_records(15)
    for _ in range(4):
        append(log, bytes(900))
    assert log.segments[0].base_offset > 0
    directory.close()
    assert not findings(disk)
    LogDirectory.open("/data", files=disk, clock=ManualClock(NOW)).open_log("t", 0, config)
    assert "missing" not in caplog.text


def test_a_directory_of_another_topic_is_not_served_as_an_empty_one() -> None:
    """Found after an orderly end: somebody has put wrong files there."""
    ours, other = uuid.UUID(int=1), uuid.UUID(int=2)
    disk = SimulatedDisk()
    directory, log = started(disk, topic_id=other)
    for number in range(5):
        append(log, b"%d" % number)
    directory.close()
    (finding,) = [
        item
        for item in check_directory("/data", files=disk, topic_ids={"t": ours})
        if isinstance(item, Finding)
    ]
    assert finding.kind == SHORT
    assert str(other) in finding.message
    directory, log = started(disk, topic_id=ours)
    assert "is that of another topic" in str(log.offline)
    directory.close()
    accept_losses("/data", ["t-0"], {KEY: NONE}, topic_ids={"t": ours}, files=disk)
    directory, log = started(disk, topic_id=ours)
    assert log.offline is None
    assert append(log) == 5, "no offset is given twice"


def test_a_directory_that_is_no_brokers_is_not_said_to_be_in_order(tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryError, match="is not the data directory of a broker"):
        list(check_directory(tmp_path))
