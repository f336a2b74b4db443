"""A log that is a copy has the same files as the one it copies, and takes back what its leader lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from millstream.core.clock import ManualClock
from millstream.core.errors import AppendRefused, LogError, NotLeader
from millstream.log.copying import append_copied, jump, start_segment
from millstream.log.directory import LogDirectory, partition_of
from millstream.log.partition import PartitionLog
from millstream.log.storage.files import Files
from millstream.log.storage.memory import MemoryFiles
from millstream.records.batch import batches
from millstream.records.build import Record, build_batch
from tests.support.compacting import compact_now
from tests.support.disk import SimulatedDisk
from tests.support.logs import (
    NOW,
    TOPIC,
    a_batch,
    a_transactional_batch,
    an_idempotent_batch,
    append,
    contents,
    open_log,
    settings,
)

SMALL = 1024  # the smallest segment there may be


def bytes_of(log: PartitionLog) -> dict[int, bytes]:
    """The segments' files, by base offset."""
    return {s.base_offset: s.log.get().pread(s.written, 0) for s in log.segments}


def bases_of(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def copy_all(leader: PartitionLog, copy: PartitionLog, *, most: int = 1 << 20) -> None:
    """Bring a copy to where its leader is, as a standby does."""
    end = leader.written_offset
    while copy.end_offset < end:
        try:
            data = memoryview(leader.read(copy.end_offset, most).bytes())
        except LogError:
            jump(copy, next(d.next_offset for d in leader.damage if d.first_offset <= copy.end_offset))
            continue
        append_copied(copy, data, bases=bases_of(leader), upto=end, now_ms=NOW)
    start_segment(copy, bases_of(leader), end)
    copy.epochs.replace(leader.epochs.entries)


def a_copy(files: Files | None = None) -> tuple[LogDirectory, PartitionLog]:
    directory = LogDirectory.open("/data", files=files or MemoryFiles(), clock=ManualClock(NOW))
    return directory, directory.open_log(TOPIC, 0, settings(), is_copy=True)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=40), st.integers(1, 4000))
@hypothesis_settings(max_examples=40)
def test_the_copy_has_the_same_files_whatever_is_asked_for_at_once(sizes: list[int], most: int) -> None:
    _, leader = open_log(segment_bytes=SMALL)
    for size in sizes:
        append(leader, bytes(size))
    _, copy = a_copy()
    copy_all(leader, copy, most=most)
    assert bytes_of(copy) == bytes_of(leader)
    assert copy.end_offset == copy.written_offset == leader.end_offset


def test_segments_begin_where_the_leaders_do_also_if_they_are_empty() -> None:
    _, leader = open_log()
    append(leader, b"one")
    leader.roll()
    append(leader, b"two")
    leader.roll()
    _, copy = a_copy()
    copy_all(leader, copy)
    assert bases_of(copy) == [0, 1, 2]
    assert bytes_of(copy) == bytes_of(leader)


def test_segments_that_the_leader_has_compacted_away_since_are_not_made_and_the_rest_is_read() -> None:
    """The leader named eight segments, and has merged the first ones since. The copy has to do without."""
    _, leader = open_log(segment_bytes=SMALL)
    for number in range(12):
        append(leader, b"%d" % number + bytes(500))
    bases = bases_of(leader)
    assert len(bases) > 4
    disk = SimulatedDisk()
    directory, copy = a_copy(disk)
    for offset in (0, 8, 11):  # all that compaction left
        data = memoryview(leader.read(offset, 1).bytes())
        append_copied(copy, data, bases=bases, upto=leader.end_offset, now_ms=NOW)
    start_segment(copy, bases, leader.end_offset)
    kept = [0, 8, 11]
    assert [offset for offset, _ in contents(copy, 0)] == kept
    assert all(segment.size for segment in list(copy.segments)[:-1])
    directory.close()
    for _ in range(2):  # after an orderly end, and after a kill
        again = a_copy(disk)[1]
        assert [offset for offset, _ in contents(again, 0)] == kept
        assert not again.damage
        disk = disk.process_killed()


def test_a_gap_at_the_end_of_a_cut_is_no_damage() -> None:
    files = MemoryFiles()
    directory, copy = a_copy(files)
    append_copied(copy, memoryview(bytes(a_batch(b"a"))), bases=[0], upto=1, now_ms=NOW)
    jump(copy, 20)  # deleted at the leader before they could be copied
    start_segment(copy, [0, 20], 20)
    _, leader = open_log()
    leader.start_at(20)
    append(leader, b"b")
    append_copied(copy, memoryview(leader.read(20, 1000).bytes()), bases=[0, 20], upto=21, now_ms=NOW)
    assert [offset for offset, _ in contents(copy, 0)] == [0, 20]
    directory.close()
    directory = LogDirectory.open("/data", files=files, clock=ManualClock(NOW))
    again = directory.open_log(TOPIC, 0, settings(), is_copy=True)
    assert [offset for offset, _ in contents(again, 0)] == [0, 20]
    assert not again.damage


def test_producers_go_on_at_the_copy_where_they_were() -> None:
    _, leader = open_log()
    for sequence in range(7):
        leader.append(an_idempotent_batch(sequence, b"v"), NOW)
    leader.write_staged()
    _, copy = a_copy()
    copy_all(leader, copy)
    again = copy.append(an_idempotent_batch(6, b"v"), NOW)
    assert again.duplicate
    assert again.base_offset == 6
    with pytest.raises(AppendRefused, match="7 is expected"):
        copy.append(an_idempotent_batch(9, b"v"), NOW)


def test_open_and_aborted_transactions_are_known_to_the_copy() -> None:
    _, leader = open_log()
    leader.append(a_transactional_batch(0, b"aborted", producer=1), NOW)
    leader.append_marker(1, 0, commit=False, coordinator_epoch=0, now_ms=NOW)
    leader.append(a_transactional_batch(0, b"open", producer=2), NOW)
    append(leader, b"after it")
    _, copy = a_copy()
    copy_all(leader, copy)
    assert copy.last_stable_offset == leader.last_stable_offset == 2
    assert copy.aborted(0, 2) == leader.aborted(0, 2) == [(1, 0)]
    assert copy.open_transactions().keys() == {2}


def test_gaps_in_the_leaders_offsets_are_gaps_in_the_copy() -> None:
    _, leader = open_log()
    append(leader, b"a")
    leader.start_at(10)
    append(leader, b"b")
    _, copy = a_copy()
    copy_all(leader, copy)
    assert bases_of(copy) == [0, 10]
    assert copy.end_offset == 11
    assert contents(copy, 0) == [(0, b"a"), (10, b"b")]
    assert not copy.damage, "nothing is missing that the leader has"


def test_the_copy_of_a_compacted_log_finds_times_as_its_leader_does(caplog: pytest.LogCaptureFixture) -> None:
    """Also where compaction left a batch without a record: its time is nobody's."""
    _, leader = open_log(cleanup_policy=("compact",), segment_bytes=SMALL, index_interval_bytes=0)
    for number in range(30):
        # The last record of a segment has the largest time, and a key that comes again.
        key, at = (b"again", NOW + 1000 + number) if number % 5 == 4 else (b"k%d" % number, NOW + number)
        leader.append(build_batch([Record(key, b"v" * 120, timestamp=at)]), NOW + 2000)
        leader.write_staged()
    leader.roll()
    leader.sync()
    compact_now(leader, NOW)
    assert any(header.record_count == 0 for _, header in batches(b"".join(bytes_of(leader).values())))
    _, copy = a_copy()
    copy_all(leader, copy)
    for time in (*range(0, 40, 3), 1004, 1009, 1014, 1029):
        assert copy.offset_for_timestamp(NOW + time) == leader.offset_for_timestamp(NOW + time)
    assert copy.max_timestamp_offset() == leader.max_timestamp_offset()
    assert [segment.times.last() for segment in copy.segments] == [
        segment.times.last() for segment in leader.segments
    ]
    assert "disagrees" not in caplog.text


def test_records_beyond_the_cut_are_not_taken() -> None:
    _, leader = open_log()
    for value in (b"a", b"b", b"c"):
        append(leader, value)
    _, copy = a_copy()
    data = memoryview(leader.read(0, 1 << 20).bytes())
    append_copied(copy, data, bases=[0], upto=2, now_ms=NOW)
    assert copy.end_offset == 2


def test_damaged_records_are_refused_and_those_before_them_kept() -> None:
    _, leader = open_log()
    append(leader, b"good")
    append(leader, b"bad")
    data = bytearray(leader.read(0, 1 << 20).bytes())
    data[-1] ^= 1
    _, copy = a_copy()
    with pytest.raises(LogError, match="damaged"):
        append_copied(copy, memoryview(data), bases=[0], upto=2, now_ms=NOW)
    assert copy.end_offset == copy.written_offset == 1


def test_a_batch_that_does_not_follow_is_refused() -> None:
    _, leader = open_log()
    append(leader, b"a", b"b", b"c")
    _, copy = a_copy()
    jump(copy, 1)
    with pytest.raises(LogError, match="in the middle of it"):
        append_copied(copy, memoryview(leader.read(0, 1 << 20).bytes()), bases=[0], upto=3, now_ms=NOW)


def test_a_copy_takes_nothing_from_clients() -> None:
    _, copy = a_copy()
    copy.refuse(NotLeader("another leads"))
    with pytest.raises(NotLeader) as refused:
        copy.append(a_batch(b"v"), NOW)
    assert refused.value.code == 6


@pytest.mark.parametrize("offset", range(9))
def test_what_is_cut_off_is_kept_in_files_of_its_own(offset: int) -> None:
    files = MemoryFiles()
    directory = LogDirectory.open("/data", files=files, clock=ManualClock(NOW))
    log = directory.open_log(TOPIC, 0, settings(segment_bytes=SMALL), is_copy=True)
    for number in range(8):
        append(log, b"%d" % number * 300)
    before = b"".join(bytes_of(log).values())
    log.sync()
    cut, aside = directory.cut_log(log, offset)
    kept = b"".join(
        files.open(f"{aside}/{name}").pread(1 << 20, 0) for name in sorted(files.listing(str(aside)))
    )
    assert cut.end_offset == offset
    assert b"".join(bytes_of(cut).values()) + kept == before
    assert partition_of(Path(aside).name) is None, "the next start must not take it for a log"
    assert append(cut, b"goes on") == offset


def test_producers_are_forgotten_with_what_is_cut_off() -> None:
    directory, log = a_copy()
    log.append(an_idempotent_batch(0, b"a"), NOW)
    log.append(an_idempotent_batch(1, b"b"), NOW)
    log.write_staged()
    cut, _ = directory.cut_log(log, 1)
    assert not cut.append(an_idempotent_batch(1, b"b"), NOW).duplicate


def test_a_copy_begins_anew_where_the_leaders_log_begins() -> None:
    directory, log = a_copy()
    append(log, b"old")
    anew = directory.restart_log(log, 500)
    assert (anew.log_start_offset, anew.end_offset, bases_of(anew)) == (500, 500, [500])


def test_a_copy_that_crashed_stays_in_its_leaders_epoch() -> None:
    files = MemoryFiles()
    _, log = a_copy(files)
    append(log, b"a")
    log.epochs.replace([(3, 0)])
    log.epochs.write()
    files._locks.clear()
    _, again = a_copy(files)
    assert again.epochs.entries == [(3, 0)]
    files._locks.clear()
    _, as_leader = open_log(files)
    assert as_leader.epochs.entries == [(3, 0), (4, 1)]
