"""Apache Kafka's own tool reads what we write, with no complaint."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from millstream.core.topic_config import TopicConfig
from millstream.log.directory import LogDirectory
from tests.support.apache_kafka import jars, run_tool
from tests.support.logs import NOW, a_batch, a_transactional_batch, an_idempotent_batch
from tests.support.maven import JarsUnavailable


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several segments with batches of every codec and an idempotent producer."""
    try:
        jars()
    except JarsUnavailable as reason:
        pytest.skip(str(reason))
    root = tmp_path_factory.mktemp("data")
    directory = LogDirectory.open(root)
    config = TopicConfig(segment_bytes=8_000, index_interval_bytes=500)
    log = directory.open_log("t", 0, config)
    for number in range(300):
        values = [b"%d-%d " % (number, n) * 5 for n in range(number % 4 + 1)]
        if number % 3:
            log.append(a_batch(*values, at=NOW + number * 7 % 100, codec=number % 5), NOW)
        else:
            log.append(an_idempotent_batch(number // 3, b"one"), NOW)
        if number % 10 == 0:
            log.write_staged()
    directory.close()
    return root / "t-0"


def files(data: Path, suffix: str) -> list[Path]:
    return sorted(data.glob(f"*.{suffix}"))


def dump(paths: list[Path], *options: str) -> str:
    done = run_tool("DumpLogSegments", "--files", ",".join(map(str, paths)), *options)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    for complaint in (
        "Exception",
        "mismatch",
        "Mismatch",
        "corrupt",
        "isvalid: false",
        "out of order",
        "not found",
    ):
        assert complaint not in output, output
    return output


def test_the_segments_are_valid_down_to_each_record(data: Path) -> None:
    logs = files(data, "log")
    assert len(logs) > 2
    output = dump(logs, "--deep-iteration", "--print-data-log", "--max-message-size", "1000000")
    batches = re.findall(r"baseOffset: (\d+) lastOffset: (\d+)", output)
    assert len(batches) == 300
    assert all(int(last) + 1 == int(base) for (_, last), (base, _) in pairwise(batches))
    assert output.count("isvalid: true") == 300
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        assert f"compresscodec: {codec}" in output
    assert "payload: 299-0" in output


@pytest.mark.parametrize("check", ["--index-sanity-check", "--verify-index-only"])
def test_the_indexes_agree_with_the_segments(data: Path, check: str) -> None:
    output = dump([*files(data, "index"), *files(data, "timeindex")], check)
    assert output.count("passed sanity check") == (
        len(files(data, "index")) + len(files(data, "timeindex")) if "sanity" in check else 0
    )


def test_the_index_entries_are_read_as_they_were_written(data: Path) -> None:
    index, times = files(data, "index")[0], files(data, "timeindex")[0]
    output = dump([index, times])
    assert len(re.findall(r"offset: \d+ position: \d+", output)) == index.stat().st_size // 8
    assert len(re.findall(r"timestamp: \d+ offset: \d+", output)) == times.stat().st_size // 12


def test_the_producers_snapshots_are_read(data: Path) -> None:
    output = dump(files(data, "snapshot")[-1:])
    sequences = re.findall(r"producerId: 7 producerEpoch: 0 .*lastSequence: (\d+)", output)
    assert sequences == ["95", "96", "97", "98", "99"]


def test_transactions_are_read_with_their_markers_and_what_was_aborted(tmp_path: Path) -> None:
    try:
        jars()
    except JarsUnavailable as reason:
        pytest.skip(str(reason))
    directory = LogDirectory.open(tmp_path)
    log = directory.open_log("t", 0, TopicConfig(segment_bytes=2000))
    log.append(a_transactional_batch(0, b"open", producer=9), NOW)
    for number in range(20):
        log.append(a_transactional_batch(0, b"v" * 100, epoch=number), NOW)
        log.append_marker(7, number + 1, commit=number % 4 > 0, coordinator_epoch=3, now_ms=NOW)
    log.write_staged()
    aborted = log.aborted(0, 1000)
    directory.close()
    here = tmp_path / "t-0"
    logs, indexes = files(here, "log"), files(here, "txnindex")
    assert len(logs) > 2
    assert len(indexes) > 1

    output = dump([*logs, *indexes, *files(here, "snapshot")[-1:]], "--deep-iteration")
    assert output.count("isvalid: true") == 41
    assert output.count("isTransactional: true isControl: true") == 20
    assert output.count("endTxnMarker: COMMIT coordinatorEpoch: 3") == 15
    assert output.count("endTxnMarker: ABORT coordinatorEpoch: 3") == 5
    entries = re.findall(
        r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", output
    )
    assert [(int(producer), int(first)) for producer, first, _, _ in entries] == aborted
    assert [int(last) for _, _, last, _ in entries] == [first + 1 for _, first in aborted]
    assert {stable for _, _, _, stable in entries} == {"0"}, "producer 9 holds it back"
    assert (
        "producerId: 9 producerEpoch: 0 coordinatorEpoch: -1 currentTxnFirstOffset: OptionalLong[0]" in output
    )
    assert (
        "producerId: 7 producerEpoch: 20 coordinatorEpoch: 3 currentTxnFirstOffset: OptionalLong.empty"
        in output
    )
    # The tool takes any segment but the first for one that follows offset -1.
    assert set(re.findall(r"(-?\d+) is followed by", output)) == {"-1"}
