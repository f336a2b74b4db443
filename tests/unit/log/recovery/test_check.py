"""The check of a stopped broker's directory: finds what is wrong, where, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.core.errors import DataDirectoryError
from millstream.core.topic_config import TopicConfig
from millstream.log.directory import LogDirectory
from millstream.log.recovery.check import (
    DAMAGE,
    GAP,
    INDEX,
    SHORT,
    TORN,
    TRANSACTIONS,
    CheckProgress,
    Finding,
    Summary,
    check_directory,
)
from millstream.records.batch import batches
from tests.support.logs import NOW, a_transactional_batch, append

FIRST = "00000000000000000000"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions of five segments or so each, closed in order."""
    directory = LogDirectory.open(tmp_path)
    for partition in range(2):
        log = directory.open_log("t", partition, TopicConfig(segment_bytes=2000, index_interval_bytes=300))
        for number in range(60):
            append(log, b"%d" % number * 20, b"second", at=1_700_000_000_000 + number % 7)
        log.sync()
    directory.close()
    return tmp_path


def found(data: Path) -> tuple[list[Finding], Summary]:
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    items = list(check_directory(data))
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before
    assert isinstance(items[-1], Summary)
    return [item for item in items if isinstance(item, Finding)], items[-1]


def damage_byte(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def test_a_sound_directory_has_no_findings(data: Path) -> None:
    findings, summary = found(data)
    assert findings == []
    assert summary.sound
    assert summary.clean_shutdown
    assert (summary.partitions, summary.batches, summary.records) == (2, 120, 240)
    assert summary.bytes == sum(path.stat().st_size for path in data.rglob("*.log"))
    assert summary.segments == len(list(data.rglob("*.log")))


def test_progress_ends_with_everything_read(data: Path) -> None:
    steps = [item for item in check_directory(data) if isinstance(item, CheckProgress)]
    assert steps[-1].bytes_read == steps[-1].bytes_total > 0
    assert [step.bytes_read for step in steps] == sorted(step.bytes_read for step in steps)


def test_a_damaged_batch_is_found_with_its_file_and_position(data: Path) -> None:
    path = data / "t-1" / f"{FIRST}.log"
    position, header = list(batches(path.read_bytes()))[3]
    damage_byte(path, position + 70)
    findings, summary = found(data)
    (finding,) = [finding for finding in findings if finding.kind == DAMAGE]
    assert (finding.partition, finding.file, finding.position) == ("t-1", str(path), position)
    assert f"offsets {header.base_offset} to {header.last_offset}" in finding.message
    assert "checksum" in finding.message
    assert finding.loses_records
    assert str(finding).startswith(f"{path} at byte {position}: ")
    assert (summary.damage, summary.sound) == (1, False)
    assert summary.batches == 119


def test_the_end_of_a_write_that_was_cut_off_is_no_loss(data: Path) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").unlink()
    path = max((data / "t-0").glob("*.log"))
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    findings, summary = found(data)
    (finding,) = [finding for finding in findings if finding.kind == TORN]
    assert finding.position == list(batches(content))[-1][0]
    assert not finding.loses_records
    assert (summary.torn, summary.damage, summary.clean_shutdown) == (1, 0, False)


def test_synced_records_that_are_missing_are_found(data: Path) -> None:
    path = max((data / "t-0").glob("*.log"))
    position, header = list(batches(path.read_bytes()))[-1]
    path.write_bytes(path.read_bytes()[:position])
    findings, _ = found(data)
    (finding,) = [finding for finding in findings if finding.kind == SHORT]
    assert finding.loses_records
    assert f"ends at offset {header.base_offset}, " in finding.message
    assert "it was synced up to offset 120" in finding.message


def test_a_segment_that_ends_too_early_is_found(data: Path) -> None:
    path = data / "t-0" / f"{FIRST}.log"
    position, header = list(batches(path.read_bytes()))[-1]
    path.write_bytes(path.read_bytes()[:position])
    findings, _ = found(data)
    (finding,) = [finding for finding in findings if finding.kind == GAP]
    assert f"ends after offset {header.base_offset - 1}" in finding.message


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_indexes_that_disagree_with_the_log_are_found(data: Path, suffix: str) -> None:
    path = data / "t-0" / f"{FIRST}.{suffix}"
    for position in range(path.stat().st_size):
        content = path.read_bytes()
        damage_byte(path, position)
        findings, _ = found(data)
        assert findings, position
        assert {(finding.kind, finding.loses_records) for finding in findings} == {(INDEX, False)}
        assert {finding.file for finding in findings} == {str(path)}
        path.write_bytes(content)
    path.unlink()
    assert [finding.file for finding in found(data)[0]] == [str(path)]


def test_a_damaged_snapshot_is_found(data: Path) -> None:
    path = max((data / "t-0").glob("*.snapshot"))
    damage_byte(path, 3)
    findings, _ = found(data)
    assert [(finding.kind, finding.file) for finding in findings] == [(INDEX, str(path))]


@pytest.fixture
def transactional(tmp_path: Path) -> Path:
    """A partition of several segments: ten transactions of one producer, every other aborted, one of another
    that spans them all and is aborted at the end, one that is open. The oldest segments are deleted."""
    directory = LogDirectory.open(tmp_path)
    log = directory.open_log("t", 0, TopicConfig(segment_bytes=1024, retention_bytes=3000))
    log.append(a_transactional_batch(0, producer=8), NOW)
    for number in range(10):
        log.append(a_transactional_batch(number, b"v" * 300), NOW)
        log.append_marker(7, 0, commit=number % 2 > 0, coordinator_epoch=0, now_ms=NOW)
    log.append_marker(8, 0, commit=False, coordinator_epoch=0, now_ms=NOW)
    log.append(a_transactional_batch(0, producer=9), NOW)
    log.write_staged()
    log.apply_retention(NOW)
    assert log.log_start_offset > 0
    directory.close()
    return tmp_path


def test_transactions_are_counted(transactional: Path) -> None:
    findings, summary = found(transactional)
    assert findings == []
    assert (summary.open_transactions, summary.aborted_transactions) == (1, 5)


def test_a_wrong_index_of_aborted_transactions_is_found(transactional: Path) -> None:
    for path in (transactional / "t-0").glob("*.txnindex"):
        whole = path.read_bytes()
        for position in range(len(whole)):
            damage_byte(path, position)
            (finding, *_), summary = found(transactional)
            assert (finding.kind, finding.file) == (TRANSACTIONS, str(path))
            assert finding.position == position // 34 * 34
            assert finding.misleads_readers
            assert not finding.loses_records
            assert not summary.sound
            path.write_bytes(whole)
        path.write_bytes(whole[:-1])
        assert any("cut off" in finding.message for finding in found(transactional)[0])
        path.unlink()
        findings, _ = found(transactional)
        assert len(findings) == len(whole) // 34
        assert all("no entry for the aborted transaction of producer" in f.message for f in findings)
        path.write_bytes(whole)


def test_what_the_check_says_of_a_wrong_index_of_aborted_transactions_mends_it(transactional: Path) -> None:
    for path in (transactional / "t-0").glob("*.txnindex"):
        path.unlink()
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        assert name in found(transactional)[0][0].message
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (transactional / name).unlink()
    directory = LogDirectory.open(transactional)
    log = directory.open_log("t", 0, TopicConfig(segment_bytes=1024, retention_bytes=3000))
    assert len(log.aborted(0, 1000)) == 5
    directory.close()
    assert found(transactional)[1].sound


def test_a_directory_in_use_is_not_checked(data: Path) -> None:
    directory = LogDirectory.open(data)
    with pytest.raises(DataDirectoryError, match=r"uses .*; stop it first"):
        list(check_directory(data))
    directory.close()


def test_a_directory_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryError, match="can't read the data directory"):
        list(check_directory(tmp_path / "nowhere"))


def test_segments_of_one_large_batch_have_nothing_in_their_index_and_that_is_right(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = TopicConfig(segment_bytes=140_200)
    directory = LogDirectory.open(tmp_path)
    log = directory.open_log("t", 0, config)
    for _ in range(3):
        append(log, b"small")
        append(log, bytes(140_000))
    directory.close()
    indexes = sorted(tmp_path.glob("t-0/*.index"))
    assert [path.stat().st_size for path in indexes] == [0, 0, 0]
    assert found(tmp_path)[0] == []
    directory = LogDirectory.open(tmp_path)
    directory.open_log("t", 0, config)
    directory.close()
    assert caplog.text == ""


def test_an_index_that_was_emptied_is_found_and_built_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = TopicConfig(segment_bytes=1_000_000)
    directory = LogDirectory.open(tmp_path)
    log = directory.open_log("t", 0, config)
    for _ in range(10):
        append(log, bytes(20_000))
    log.roll()
    directory.close()
    index = tmp_path / "t-0" / f"{FIRST}.index"
    before = index.read_bytes()
    assert before
    index.write_bytes(b"")
    assert [finding.kind for finding in found(tmp_path)[0]] == [INDEX]
    directory = LogDirectory.open(tmp_path)
    directory.open_log("t", 0, config)
    directory.close()
    assert "missing or damaged" in caplog.text
    assert index.read_bytes() == before


def test_the_index_of_a_segment_goes_on_after_a_restart_as_if_there_had_been_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = TopicConfig(segment_bytes=1_000_000)
    for _ in range(3):
        directory = LogDirectory.open(tmp_path)
        append(directory.open_log("t", 0, config), bytes(100_000))
        directory.close()
    index = tmp_path / "t-0" / f"{FIRST}.index"
    assert index.stat().st_size == 2 * 8, "an entry for every batch but the first"
    assert caplog.text == "", "and no start had to build it again"
    assert found(tmp_path)[0] == []
