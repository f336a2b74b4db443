"""What of a log is in the archive: the journal beside it, and what is made of one that is lost."""

from __future__ import annotations

import pytest

from millstream.core.clock import ManualClock, SystemClock
from millstream.core.errors import ArchiveError, OffsetArchived
from millstream.log.archive.adoption import adopt, find_archived
from millstream.log.archive.copy import Pace, copy_segment, next_copy, unarchived_bytes
from millstream.log.archive.journal import JOURNAL, Archive
from millstream.log.archive.object import INDEX, LOG, TIME_INDEX, ArchivedSegment, Section
from millstream.log.archive.store import ArchiveStore
from millstream.log.directory import LogDirectory
from millstream.log.partition import PartitionLog
from millstream.log.storage.files import read_file
from millstream.log.storage.memory import MemoryFiles
from millstream.log.times import times_at
from tests.support.archives import Unreliable, memory_url, objects
from tests.support.disk import SimulatedDisk
from tests.support.logs import (
    NOW,
    a_transactional_batch,
    an_idempotent_batch,
    append,
    contents,
    open_log,
    reopen,
)

PATH = f"/log/{JOURNAL}"
ARCHIVED = {"segment_bytes": 1024, "remote_storage_enable": True, "local_retention_bytes": 1}
PREFIX = "cluster/t-1"


def a_segment(base: int, end: int) -> ArchivedSegment:
    sections = {LOG: Section(0, 100, 1), INDEX: Section(100, 8, 2), TIME_INDEX: Section(108, 12, 3)}
    return ArchivedSegment(f"{PREFIX}/0/{base}", base, end, 5, 3, 4, 0, 500, sections)


def an_archive() -> tuple[MemoryFiles, Archive]:
    files = MemoryFiles()
    files.make_directory("/log")
    archive = Archive(files, "/log")
    archive.create()
    archive.open()
    return files, archive


def loaded(files: MemoryFiles) -> Archive:
    archive = Archive(files, "/log")
    archive.load()
    archive.open()
    return archive


# The journal


def test_every_step_is_found_again() -> None:
    files, archive = an_archive()
    first, second, third = a_segment(0, 10), a_segment(10, 20), a_segment(20, 30)
    for segment in (first, second):
        archive.write_copying(segment.name)
        assert list(loaded(files).leftovers) == [segment.name]
        archive.write_kept(segment)
        archive.add(segment)
    archive.write_copying(third.name)
    archive.write_dropped([first.name])
    archive.remove_first(1)
    again = loaded(files)
    assert list(again.segments) == [second]
    assert set(again.leftovers) == {first.name, third.name}
    archive.write_gone([first.name, third.name])
    again = loaded(files)
    assert (list(again.segments), again.leftovers) == ([second], {})
    assert (again.end_offset, again.size, again.oldest_offset(15)) == (20, 100, 10)


def test_a_step_that_a_crash_cut_off_was_not_taken_and_the_next_one_follows_what_is_whole() -> None:
    files, archive = an_archive()
    archive.write_kept(a_segment(0, 10))
    whole = len(read_file(files, PATH))
    archive.write_kept(a_segment(10, 20))
    data = read_file(files, PATH)
    for size in range(whole, len(data)):
        files.open(PATH).truncate(0)
        files.open(PATH).pwrite(data[:size], 0)
        again = loaded(files)
        assert (again.is_known, again.end_offset) == (True, 10), size
        again.write_kept(a_segment(10, 30))
        assert loaded(files).end_offset == 30, size


def test_a_journal_that_is_damaged_in_the_middle_is_not_believed() -> None:
    files, archive = an_archive()
    archive.write_kept(a_segment(0, 10))
    archive.write_kept(a_segment(10, 20))
    files.open(PATH).pwrite(b"!", 30)
    again = loaded(files)
    assert not again.is_known
    assert not again.segments


def test_a_step_that_did_not_fit_on_the_disk_leaves_no_trace() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/log")
    archive = Archive(disk, "/log")
    archive.create()
    archive.open()
    archive.write_kept(a_segment(0, 10))
    disk.room = 150
    with pytest.raises(OSError, match="space"):
        archive.write_dropped([f"{PREFIX}/0/{number}" for number in range(10)])
    disk.room = None
    again = Archive(disk, "/log")
    again.load()
    assert (again.is_known, again.end_offset, again.leftovers) == (True, 10, {})


def test_a_journal_full_of_what_is_gone_is_written_anew() -> None:
    files, archive = an_archive()
    archive.write_kept(a_segment(0, 10))
    for number in range(600):
        archive.write_copying(f"{PREFIX}/0/x{number}")
        archive.write_gone([f"{PREFIX}/0/x{number}"])
    before = len(read_file(files, PATH))
    again = loaded(files)
    assert again.end_offset == 10
    assert len(read_file(files, PATH)) < before / 10
    again.write_kept(a_segment(10, 20))
    assert loaded(files).end_offset == 20


# Copying


def fill(log: PartitionLog, count: int = 40) -> None:
    for number in range(count):
        append(log, b"%050d" % number, at=NOW + number, now=NOW)


def copy_all(log: PartitionLog, store: ArchiveStore) -> None:
    log.archive.open()
    while (copy := next_copy(log, PREFIX, {})) is not None:
        log.archive.add(copy_segment(copy, store, Pace(SystemClock())))
    log.archive.let_go()


def archived_log(
    files: SimulatedDisk, store: ArchiveStore, **changes: object
) -> tuple[LogDirectory, PartitionLog]:
    directory, log = open_log(files, **{**ARCHIVED, **changes})  # type: ignore[arg-type]
    log.archive.create()
    fill(log)
    log.sync()
    copy_all(log, store)
    return directory, log


def test_what_is_not_synced_or_not_decided_is_not_copied() -> None:
    store = ArchiveStore(memory_url())
    _, log = open_log(SimulatedDisk(), **ARCHIVED)
    log.archive.create()
    fill(log)
    assert next_copy(log, PREFIX, {}) is None, "not synced"
    log.append(a_transactional_batch(0, b"open"), NOW)
    log.write_staged()
    first_open = log.last_stable_offset
    fill(log)
    log.sync()
    copy_all(log, store)
    assert 0 < log.archive.end_offset <= first_open
    held_back = unarchived_bytes(log)
    assert held_back > 0
    log.append_marker(7, 0, commit=True, coordinator_epoch=0, now_ms=NOW)
    log.write_staged()
    log.sync()
    copy_all(log, store)
    assert log.archive.end_offset == log.segments.last.base_offset
    assert unarchived_bytes(log) == 0


def test_nothing_is_deleted_here_before_it_is_in_the_archive() -> None:
    store = Unreliable(memory_url())
    store.is_away = True
    _, log = open_log(SimulatedDisk(), retention_ms=1, **ARCHIVED)
    log.archive.create()
    fill(log)
    log.sync()
    copy = next_copy(log, PREFIX, {})
    assert copy is not None
    log.archive.open()
    with pytest.raises(ArchiveError):
        copy_segment(copy, store, Pace(SystemClock()))
    log.apply_retention(NOW + 10_000)
    assert log.local_start_offset == log.log_start_offset == 0
    store.is_away = False
    log.archive.add(copy_segment(copy, store, Pace(SystemClock())))
    log.apply_retention(NOW + 10_000)
    assert log.local_start_offset == log.archive.end_offset == copy.segment.end_offset


def test_the_log_starts_where_the_archive_does_also_after_a_restart_or_a_crash() -> None:
    disk = SimulatedDisk()
    directory, log = archived_log(disk, ArchiveStore(memory_url()))
    log.apply_retention(NOW)
    local = log.local_start_offset
    assert (log.log_start_offset, log.end_offset) == (0, 40)
    assert 0 < local == log.archive.end_offset
    with pytest.raises(OffsetArchived):
        log.read(local - 1, 100)
    assert contents(log, local)[0][0] == local
    log = reopen(disk.process_killed(), **ARCHIVED)
    assert (log.log_start_offset, log.local_start_offset, log.end_offset) == (0, local, 40)
    disk = disk.power_loss(7)
    log = reopen(disk, **ARCHIVED)
    assert (log.log_start_offset, log.local_start_offset) == (0, local)
    directory.close()


def test_records_deleted_by_request_stay_deleted_though_the_archive_has_them() -> None:
    disk = SimulatedDisk()
    directory, log = archived_log(disk, ArchiveStore(memory_url()))
    log.apply_retention(NOW)
    assert log.delete_records(3) == 3
    log = reopen(disk.process_killed(), **ARCHIVED)
    assert log.log_start_offset == 3
    directory.close()


def test_the_time_of_an_archived_record_is_known_from_its_segment() -> None:
    _, log = archived_log(SimulatedDisk(), ArchiveStore(memory_url()))
    log.apply_retention(NOW)
    first = log.archive.segments[0]
    assert times_at(log, 0) == (NOW, NOW + first.end_offset - 1)
    assert times_at(log, first.end_offset).first_ms == NOW + first.end_offset


def test_an_epoch_that_ended_in_the_archive_is_known() -> None:
    disk = SimulatedDisk()
    _, log = archived_log(disk, ArchiveStore(memory_url()))
    log.apply_retention(NOW)
    disk = disk.power_loss(1)  # the next one begins another epoch
    log = reopen(disk, **ARCHIVED)
    assert log.leader_epoch == 1
    assert log.epochs.end_of(0, log.end_offset) == (0, 40)
    assert log.epochs.at(0) == 0


def test_copies_go_no_faster_than_they_may_and_stop_when_told() -> None:
    clock = ManualClock(NOW)
    pace = Pace(clock)
    pace.bytes_per_second = 10_000
    assert pace.take(5000) == 0, "nothing went before"
    assert pace.take(1000) == 0.5
    assert pace.take(1) == 0.6
    clock.advance(10)
    assert pace.take(5000) == 0, "what was not used is not saved up"
    assert pace.take(1) == 0.5
    clock.advance(10)
    pace.wait(1)
    pace.stop()
    with pytest.raises(ArchiveError, match="shutting down"):
        pace.wait(1)


# Deleting in the archive


def test_total_retention_by_size_counts_what_is_in_both_places_once() -> None:
    _, log = archived_log(SimulatedDisk(), ArchiveStore(memory_url()))
    total = log.size_bytes
    first = log.archive.segments[0].size
    for limit, due in (
        (total, 0),
        (total - first, 1),
        (total - first + 1, 0),
        (0, len(log.archive.segments)),
    ):
        log.set_config(log.config.__class__(remote_storage_enable=True, retention_bytes=limit))
        assert log.retention.due_in_archive(NOW) == due, limit


def test_total_retention_by_time_goes_by_the_newest_record() -> None:
    _, log = archived_log(SimulatedDisk(), ArchiveStore(memory_url()), retention_ms=10_000)
    end = log.archive.segments[0].end_offset
    assert log.retention.due_in_archive(NOW + 10_000 + end - 1) == 0
    assert log.retention.due_in_archive(NOW + 10_000 + end) == 1


def test_where_archiving_is_turned_off_all_of_it_is_due() -> None:
    _, log = archived_log(SimulatedDisk(), ArchiveStore(memory_url()))
    log.set_config(log.config.__class__())
    assert log.retention.due_in_archive(NOW) == len(log.archive.segments)


# What is made of a journal, or a directory, that is lost


def lose(disk: SimulatedDisk, what: str) -> SimulatedDisk:
    for name in list(disk.files):
        if name.endswith(what):
            del disk.files[name]
    return disk.process_killed()


def test_without_its_journal_a_log_finds_its_segments_in_the_archive() -> None:
    url = memory_url()
    store = ArchiveStore(url)
    disk = SimulatedDisk()
    _, log = archived_log(disk, store)
    log.apply_retention(NOW)
    segments, local = list(log.archive.segments), log.local_start_offset
    twice = objects(url)[segments[1].object]
    store.put(f"{PREFIX}/0/00000000000000000099-cut.segment", [twice[:50]])
    log = reopen(lose(disk, JOURNAL), **ARCHIVED)
    assert log.log_start_offset == local
    assert not log.archive.is_known
    assert adopt(log, find_archived(store, f"{PREFIX}/0"))
    assert (log.log_start_offset, log.local_start_offset) == (0, local)
    assert list(log.archive.segments) == segments
    assert list(log.archive.leftovers) == [f"{PREFIX}/0/00000000000000000099-cut"]
    assert log.epochs.at(0) == 0
    again = reopen(disk.process_killed(), **ARCHIVED)
    assert list(again.archive.segments) == segments


def test_a_partition_that_lost_everything_goes_on_after_what_is_archived_with_its_producers() -> None:
    store = ArchiveStore(memory_url())
    _, log = open_log(SimulatedDisk(), **ARCHIVED)
    log.append(an_idempotent_batch(0, b"first", producer=7), NOW)
    log.write_staged()
    log.archive.create()
    fill(log)
    log.sync()
    copy_all(log, store)
    end = log.archive.end_offset
    disk = SimulatedDisk()
    _, log = open_log(disk, **ARCHIVED)
    assert log.end_offset == 0
    assert adopt(log, find_archived(store, f"{PREFIX}/0"))
    again = reopen(disk.process_killed(), **ARCHIVED)
    for each in (log, again):
        assert (each.log_start_offset, each.local_start_offset, each.end_offset) == (0, end, end)
        assert not each.damage
        assert each.epochs.end_of(0, each.end_offset) == (0, end)
        assert each.leader_epoch > 0, "readers of what was lost find out"
        assert each.append(an_idempotent_batch(0, b"first", producer=7), NOW).duplicate
    assert append(again) == end


def test_a_log_that_gave_the_same_offsets_again_is_left_alone_and_so_is_the_archive() -> None:
    url = memory_url()
    store = ArchiveStore(url)
    archived_log(SimulatedDisk(), store)
    before = objects(url)
    _, log = open_log(SimulatedDisk(), **ARCHIVED)
    append(log, b"another record 0")
    assert not adopt(log, find_archived(store, f"{PREFIX}/0"))
    assert (log.log_start_offset, log.end_offset, log.archive.is_known) == (0, 1, False)
    assert objects(url) == before


def test_local_segments_that_are_lost_do_not_make_the_log_start_over() -> None:
    disk = SimulatedDisk()
    _, log = archived_log(disk, ArchiveStore(memory_url()))
    end = log.archive.end_offset
    log = reopen(lose(disk, ".log"), **ARCHIVED)
    assert log.log_start_offset == 0
    assert log.end_offset >= end
    assert append(log) >= end
