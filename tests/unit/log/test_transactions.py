"""Transactions in a log: what holds readers of committed records back, and what they leave out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from millstream.core.errors import AppendRefused, LogFailed
from millstream.log.partition import PartitionLog
from millstream.log.transactions import OpenTransaction, ProducerDescription, RequestTransaction
from millstream.records.batch import read_header
from millstream.records.columns.arrow import decode
from millstream.records.fetched import next_offset
from millstream.records.markers import Marker, read_marker
from tests.support.disk import SimulatedDisk
from tests.support.logs import (
    NOW,
    a_batch,
    a_transactional_batch,
    an_idempotent_batch,
    append,
    contents,
    open_log,
    reopen,
)


@pytest.fixture
def log() -> PartitionLog:
    return open_log()[1]


def write(log: PartitionLog, sequence: int, *values: bytes, producer: int = 7, epoch: int = 0) -> int:
    batch = a_transactional_batch(sequence, *values, producer=producer, epoch=epoch)
    offset = log.append(batch, NOW).base_offset
    log.write_staged()
    return offset


def end(log: PartitionLog, *, commit: bool, producer: int = 7, epoch: int = 0, coordinator: int = 0) -> int:
    offset = log.append_marker(producer, epoch, commit=commit, coordinator_epoch=coordinator, now_ms=NOW)
    log.write_staged()
    return offset


def refused(do: Callable[[], object]) -> int:
    with pytest.raises(AppendRefused) as raised:
        do()
    return raised.value.code


# The last stable offset


def test_an_open_transaction_holds_the_last_stable_offset_back(log: PartitionLog) -> None:
    append(log, b"before")
    assert log.last_stable_offset == 1
    assert write(log, 0, b"a", b"b") == 1
    append(log, b"after")
    assert (log.last_stable_offset, log.written_offset) == (1, 4)
    assert end(log, commit=True) == 4
    assert log.last_stable_offset == log.written_offset == 5


def test_the_oldest_open_transaction_counts(log: PartitionLog) -> None:
    write(log, 0, producer=7)
    write(log, 0, producer=8)
    write(log, 0, producer=9)
    end(log, commit=True, producer=8)
    assert log.last_stable_offset == 0
    end(log, commit=False, producer=7)
    assert log.last_stable_offset == 2
    write(log, 1, producer=7)
    end(log, commit=True, producer=9)
    assert log.last_stable_offset == 5


def test_a_marker_counts_once_it_is_written(log: PartitionLog) -> None:
    write(log, 0)
    log.append_marker(7, 0, commit=False, coordinator_epoch=0, now_ms=NOW)
    assert log.last_stable_offset == 0
    assert log.aborted(0, 10) == []
    log.write_staged()
    assert log.last_stable_offset == 2
    assert log.aborted(0, 10) == [(7, 0)]


def test_a_transaction_that_is_staged_holds_nobody_back_who_reads_what_is_written(log: PartitionLog) -> None:
    append(log)
    log.append(a_transactional_batch(0), NOW)
    assert log.last_stable_offset == log.written_offset == 1
    log.append_marker(7, 0, commit=True, coordinator_epoch=0, now_ms=NOW)
    log.write_staged()
    assert log.last_stable_offset == 3


def test_a_marker_without_a_transaction_decides_nothing(log: PartitionLog) -> None:
    assert end(log, commit=False) == 0
    assert log.last_stable_offset == 1
    assert log.aborted(0, 10) == []


def test_a_marker_is_a_control_batch_with_its_producer_and_coordinator(log: PartitionLog) -> None:
    write(log, 0, epoch=3)
    offset = end(log, commit=False, epoch=3, coordinator=5)
    data = log.read(offset, 1000).bytes()
    header = read_header(data)
    assert (header.base_offset, header.producer_id, header.producer_epoch) == (offset, 7, 3)
    assert read_marker(data, 0, header) == (Marker.ABORT, 5)


def test_markers_are_stamped_with_the_time_of_arrival_where_that_counts() -> None:
    _, log = open_log(message_timestamp_type="LogAppendTime")
    end(log, commit=True)
    assert read_header(log.read(0, 100).bytes()).attributes & 8


# What was aborted


def test_the_aborted_transactions_of_a_range_are_those_that_overlap_it(log: PartitionLog) -> None:
    write(log, 0, b"a", b"b")  # 0, 1
    end(log, commit=False)  # 2
    write(log, 2)  # 3
    end(log, commit=True)  # 4
    write(log, 0, producer=8)  # 5
    write(log, 3)  # 6
    end(log, commit=False, producer=8)  # 7
    end(log, commit=False)  # 8
    assert log.aborted(0, 9) == [(7, 0), (8, 5), (7, 6)]
    assert log.aborted(1, 3) == [(7, 0)]
    assert log.aborted(2, 3) == [(7, 0)], "its marker"
    assert log.aborted(3, 5) == []
    assert log.aborted(3, 6) == [(8, 5)]
    assert log.aborted(8, 9) == [(7, 6)]
    assert log.aborted(9, 99) == []


def test_an_aborted_transaction_is_found_from_segments_before_its_marker() -> None:
    _, log = open_log(segment_bytes=1024)
    first = write(log, 0)
    for _ in range(30):
        append(log, b"v" * 100)
    end(log, commit=False)
    assert len(log.segments) > 3
    for offset in range(log.end_offset):
        assert log.aborted(offset, offset + 1) == [(7, first)]


# Producers and epochs


def test_the_next_batch_after_a_marker_with_a_newer_epoch_starts_at_sequence_zero(log: PartitionLog) -> None:
    write(log, 0, b"a", b"b")
    end(log, commit=True, epoch=1)
    assert refused(lambda: write(log, 2)) == 47
    assert refused(lambda: write(log, 2, epoch=1)) == 45
    assert write(log, 0, epoch=1) == 3


def test_sequences_go_on_after_a_marker_of_the_same_epoch(log: PartitionLog) -> None:
    write(log, 0, b"a", b"b")
    end(log, commit=True)
    assert log.append(a_transactional_batch(0, b"a", b"b"), NOW).duplicate
    assert log.last_stable_offset == 3, "sent again, it opens no transaction"
    assert write(log, 2) == 3


def test_a_marker_of_an_older_epoch_is_refused(log: PartitionLog) -> None:
    write(log, 0, epoch=2)
    assert refused(lambda: end(log, commit=True, epoch=1)) == 47
    assert log.last_stable_offset == 0


def test_a_marker_of_a_replaced_coordinator_is_refused(log: PartitionLog) -> None:
    end(log, commit=True, coordinator=4)
    assert refused(lambda: end(log, commit=True, coordinator=3)) == 52
    end(log, commit=True, coordinator=4)


def test_a_producer_writes_nothing_else_while_its_transaction_is_open(log: PartitionLog) -> None:
    write(log, 0)
    assert refused(lambda: log.append(an_idempotent_batch(1), NOW)) == 48
    log.append(an_idempotent_batch(0, producer=8), NOW)
    end(log, commit=True)
    log.append(an_idempotent_batch(1), NOW)


def test_a_newer_epoch_waits_for_the_end_of_the_older_ones_transaction(log: PartitionLog) -> None:
    write(log, 0)
    assert refused(lambda: write(log, 0, epoch=1)) == 51
    end(log, commit=False, epoch=1)
    write(log, 0, epoch=1)
    assert log.open_transactions()[7].first_offset == 2


def test_the_gate_is_asked_before_every_transactional_batch_and_no_other(log: PartitionLog) -> None:
    asked: list[tuple[PartitionLog, RequestTransaction | None, int, int]] = []

    def gate(of: PartitionLog, transaction: RequestTransaction | None, producer_id: int, epoch: int) -> None:
        asked.append((of, transaction, producer_id, epoch))
        if producer_id == 8:
            raise AppendRefused(48, "not this one")

    log.transactions_gate = gate
    log.append(a_transactional_batch(0), NOW, ("bank", 12))
    write(log, 1)
    log.append(a_transactional_batch(1), NOW)  # a duplicate
    log.append(an_idempotent_batch(0, producer=9), NOW)
    log.append(a_batch(), NOW)
    end(log, commit=True)
    assert refused(lambda: write(log, 0, producer=8)) == 48
    assert asked == [(log, ("bank", 12), 7, 0), (log, None, 7, 0), (log, None, 8, 0)]
    assert 8 not in log.producers.states


def test_what_is_open_and_who_writes_is_told(log: PartitionLog) -> None:
    append(log)
    write(log, 0, epoch=1)
    end(log, commit=True, epoch=1, coordinator=3)
    log.append(a_transactional_batch(1, epoch=1), NOW + 5)
    log.append(a_transactional_batch(2, epoch=1), NOW + 9)
    log.append(an_idempotent_batch(4, producer=8), NOW + 2)
    log.append_marker(9, 2, commit=True, coordinator_epoch=3, now_ms=NOW + 3)
    assert log.open_transactions() == {7: OpenTransaction(1, 3, NOW + 5, NOW + 9, 3)}
    assert log.describe_producers() == [
        ProducerDescription(7, 1, 2, NOW + 9, 3, 3),
        ProducerDescription(8, 0, 4, NOW + 2, -1, -1),
        ProducerDescription(9, 2, -1, NOW + 3, 3, -1),
    ]


# When the disk refuses


def test_a_failed_write_undoes_what_transactions_did() -> None:
    disk = SimulatedDisk()
    _, log = open_log(disk)
    write(log, 0, producer=7)
    write(log, 0, producer=8)
    before = log.open_transactions(), log.describe_producers(), log.last_stable_offset
    disk.room = 30
    log.append_marker(7, 0, commit=False, coordinator_epoch=2, now_ms=NOW)
    log.append(a_transactional_batch(1), NOW)
    log.append(a_transactional_batch(0, producer=9), NOW)
    with pytest.raises(LogFailed):
        log.write_staged()
    disk.room = None
    assert (log.open_transactions(), log.describe_producers(), log.last_stable_offset) == before
    assert list(log.open_transactions()) == [7, 8], "oldest first"
    assert log.aborted(0, 10) == []
    end(log, commit=False)
    assert log.aborted(0, 10) == [(7, 0)]


# Restarts


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment_bytes", [1024, 1 << 20])
def test_transactions_are_known_after_a_restart(clean: bool, segment_bytes: int) -> None:
    files = SimulatedDisk()
    directory, log = open_log(files, segment_bytes=segment_bytes)
    write(log, 0, b"open all along", producer=9)
    for number in range(20):
        write(log, number, b"v" * 50)
        end(log, commit=number % 3 > 0, coordinator=6)
        append(log, b"of others")
    write(log, 20)
    before = log.describe_producers(), log.last_stable_offset, log.aborted(0, 1000)
    assert len(before[2]) == 7
    if clean:
        directory.close()
    log = reopen(files.process_killed(), segment_bytes=segment_bytes)
    assert (log.describe_producers(), log.last_stable_offset, log.aborted(0, 1000)) == before
    assert list(log.open_transactions()) == [9, 7]
    end(log, commit=False, coordinator=6)
    assert len(log.aborted(0, 1000)) == 8


def test_a_damaged_index_of_aborted_transactions_is_built_anew() -> None:
    files = SimulatedDisk()
    directory, log = open_log(files, segment_bytes=1024)
    for number in range(20):
        write(log, number, b"v" * 50)
        end(log, commit=False)
    aborted = log.aborted(0, 1000)
    directory.close()
    for damaged in sorted(name for name in files.files if name.endswith(".txnindex")):
        files.files[damaged].data[:] = files.files[damaged].data[:-1]
    assert reopen(files, segment_bytes=1024).aborted(0, 1000) == aborted


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    _, log = open_log()
    write(log, 0)
    assert log.expire_producers(NOW + 10_000, idle_ms=1000) == 0
    end(log, commit=True)
    assert log.expire_producers(NOW + 10_000, idle_ms=1000) == 1
    assert log.describe_producers() == []


def test_records_are_read_past_markers(log: PartitionLog) -> None:
    write(log, 0, b"a")
    end(log, commit=True)
    append(log, b"b")
    assert contents(log) == [(0, b"a"), (2, b"b")]


# Deleting, which does not ask what is open


def committed(log: PartitionLog) -> list[bytes]:
    """What a reader of committed records gets, from the log's start."""
    found: list[bytes] = []
    offset, stable = log.log_start_offset, log.last_stable_offset
    while offset < stable:
        part = log.read(offset, 200, upto=stable)
        data = part.bytes()
        for batch in decode(data, first=offset, aborted=log.aborted_in(offset, part)):
            found += batch["value"].to_pylist()
        offset = next_offset(data, offset)
    return found


def test_records_may_be_deleted_up_to_the_middle_of_an_open_transaction(log: PartitionLog) -> None:
    write(log, 0, b"a", b"b")
    write(log, 2, b"c")
    append(log, b"d")
    assert log.delete_records(2) == 2
    assert log.last_stable_offset == 2, "never before the log's start"
    assert log.read(2, 100, upto=log.last_stable_offset).size == 0
    assert log.open_transactions()[7].first_offset == 0
    end(log, commit=True)
    assert committed(log) == [b"c", b"d"]


def test_the_rest_of_an_aborted_transaction_is_left_out_where_its_start_is_deleted(log: PartitionLog) -> None:
    write(log, 0, b"a", b"b")
    write(log, 2, b"c")
    append(log, b"d")
    end(log, commit=False)
    write(log, 3, b"e")
    end(log, commit=True)
    for start in range(5):
        log.delete_records(start)
        assert log.aborted(start, 100) == [(7, 0)]
        assert committed(log) == ([b"d", b"e"] if start < 4 else [b"e"])
    log.delete_records(5)
    assert log.aborted(5, 100) == []
    assert committed(log) == [b"e"]


@pytest.mark.parametrize("clean", [True, False])
def test_retention_deletes_segments_of_an_open_transaction_and_it_stays_open(clean: bool) -> None:
    options = {"segment_bytes": 1024, "retention_bytes": 1500}
    files = SimulatedDisk()
    directory, log = open_log(files, **options)
    for number in range(40):
        write(log, number, b"aborted")
        append(log, b"v" * 50)
    log.apply_retention(NOW)
    start = log.log_start_offset
    assert start > 0
    assert log.last_stable_offset == start
    log.sync()
    if clean:
        directory.close()
    log = reopen(files.process_killed(), **options)
    assert log.open_transactions()[7].first_offset == 0
    assert log.last_stable_offset == start
    marker = end(log, commit=False)
    assert log.aborted(start, 1000) == [(7, 0)]
    assert set(committed(log)) == {b"v" * 50}
    assert log.last_stable_offset == marker + 1


def test_the_index_of_aborted_transactions_goes_with_its_segment() -> None:
    files = SimulatedDisk()
    _, log = open_log(files, segment_bytes=1024, retention_bytes=0, file_delete_delay_ms=0)
    for number in range(20):
        write(log, number, b"v" * 50)
        end(log, commit=False)
    assert any(name.endswith(".txnindex") for name in files.files)
    log.apply_retention(NOW)
    log.apply_retention(NOW + 1)
    assert not any(".txnindex" in name for name in files.files)
    assert log.aborted(log.log_start_offset, 1000) == []


def test_many_aborted_transactions_are_read_from_the_file_a_page_at_a_time() -> None:
    _, log = open_log()
    for number in range(2000):
        log.append(a_transactional_batch(number), NOW)
        log.append_marker(7, 0, commit=False, coordinator_epoch=0, now_ms=NOW)
        if number % 7 == 0:
            log.write_staged()
    log.write_staged()
    index = log.segments.last.aborted
    assert index.count == 2000
    for first in range(0, 4000, 97):
        begun = first - first % 2
        assert log.aborted(first, first + 1) == [(7, begun)]
        assert (
            log.aborted(first, begun + 200) == [(7, begun + 2 * n) for n in range(100)][: 2000 - begun // 2]
        )
