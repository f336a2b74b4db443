"""A full disk: who may still write, and when records are taken again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from millstream.core.clock import ManualClock
from millstream.core.errors import DataDirectoryError, LogFailed
from millstream.log.directory import LogDirectory
from millstream.log.storage.room import RESERVE, Fullness
from tests.support.disk import Content, SimulatedDisk
from tests.support.logs import NOW, TOPIC, a_transactional_batch, append, contents, settings

KB = 1024
MB = KB * KB
RESERVED = 4 * MB


def a_directory(disk: SimulatedDisk, reserve: int = RESERVED) -> LogDirectory:
    return LogDirectory.open("/data", files=disk, clock=ManualClock(NOW), reserve=reserve)


@hypothesis_settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 4 * RESERVED), st.booleans()), max_size=40), st.integers(0, RESERVED)
)
def test_a_disk_is_full_from_a_refusal_until_there_is_room_to_spare(
    looks: list[tuple[int, bool]], reserve: int
) -> None:
    fullness = Fullness(reserve)
    for free, refused in looks:
        before = fullness.is_full
        changed = fullness.seen(free, refused=refused)
        assert changed == (fullness.is_full != before)
        if refused:
            assert fullness.is_full
        if before and not fullness.is_full:
            assert free - reserve >= reserve  # as much as the reserve is left when it was taken again
        if not before and fullness.is_full:
            assert refused or free < reserve // 4


def test_the_reserve_is_there_while_there_is_room_and_gone_with_the_broker() -> None:
    disk = SimulatedDisk()
    directory = a_directory(disk)
    assert disk.listing("/data")[RESERVE] == RESERVED
    directory.close()
    assert RESERVE not in disk.listing("/data")


def test_it_is_never_more_than_a_twentieth_of_the_disk() -> None:
    disk = SimulatedDisk()
    disk.size = 20 * MB
    a_directory(disk)
    assert disk.listing("/data")[RESERVE] == MB


def test_the_first_refusal_stops_the_records_of_all_logs_and_gives_the_reserve_back() -> None:
    disk = SimulatedDisk()
    directory = a_directory(disk)
    first, second = (directory.open_log(TOPIC, index, settings()) for index in (0, 1))
    append(first, b"kept")
    disk.room = 10
    with pytest.raises(LogFailed, match="No space left"):
        append(first, b"refused")
    assert RESERVE not in disk.listing("/data")
    disk.room = RESERVED  # what the reserve left
    for log in (first, second):
        with pytest.raises(LogFailed, match=r"the disk is full: 0 bytes are free for /data\. Records are"):
            append(log, b"refused")
    assert contents(first) == [(0, b"kept")]
    directory.checkpoint()  # what the broker itself has to write goes on

    directory.look_for_room()
    assert directory.full
    disk.room = 3 * RESERVED
    directory.look_for_room()
    assert not directory.full
    assert disk.listing("/data")[RESERVE] == RESERVED
    append(first, b"taken")
    append(second, b"taken")
    assert contents(first) == [(0, b"kept"), (1, b"taken")]


def test_a_quota_that_is_used_up_is_room_that_nobody_has() -> None:
    disk = SimulatedDisk()
    directory = a_directory(disk)
    log = directory.open_log(TOPIC, 0, settings())
    disk.room = 0
    with pytest.raises(LogFailed):
        append(log, b"refused")
    disk.space = lambda path: (disk.size, disk.size)  # type: ignore[method-assign]
    for _ in range(3):
        directory.look_for_room()
        assert directory.full
        with pytest.raises(LogFailed, match="within any quota"):
            append(log, b"refused")
    disk.room = None
    directory.look_for_room()
    append(log, b"taken")
    assert contents(log) == [(0, b"taken")]


def test_little_room_is_enough_to_stop_without_a_refusal() -> None:
    disk = SimulatedDisk()
    directory = a_directory(disk)
    log = directory.open_log(TOPIC, 0, settings())
    disk.room = RESERVED // 4 - 1
    directory.look_for_room()
    with pytest.raises(LogFailed, match="the disk is full"):
        append(log, b"x")


def test_a_transaction_can_be_ended_on_a_full_disk() -> None:
    disk = SimulatedDisk()
    directory = a_directory(disk)
    log = directory.open_log(TOPIC, 0, settings())
    log.append(a_transactional_batch(0), NOW)
    log.write_staged()
    disk.room = 0
    directory.look_for_room()
    disk.room = MB
    with pytest.raises(LogFailed):
        log.append(a_transactional_batch(1), NOW)
    log.append_marker(7, 0, commit=True, coordinator_epoch=0, now_ms=NOW)
    log.write_staged()
    assert log.last_stable_offset == log.end_offset == 2


def test_a_log_that_failed_for_good_is_not_brought_back_by_room() -> None:
    disk = SimulatedDisk()
    directory = a_directory(disk)
    log = directory.open_log(TOPIC, 0, settings())
    append(log, b"x")
    disk.fail_sync = lambda path: True
    with pytest.raises(LogFailed):
        log.sync()
    disk.room = 0
    directory.look_for_room()
    disk.room = 3 * RESERVED
    directory.look_for_room()
    with pytest.raises(LogFailed, match="failed to sync"):
        append(log, b"y")


def test_a_log_that_is_opened_on_a_full_disk_is_read_and_not_written() -> None:
    disk = SimulatedDisk()
    directory = a_directory(disk)
    append(directory.open_log(TOPIC, 0, settings()), b"kept")
    disk.room = RESERVED - 1  # and the reserve besides: not enough for both
    again = a_directory(disk.process_killed())
    assert again.full
    assert RESERVE not in disk.listing("/data")
    log = again.open_log(TOPIC, 0, settings())
    assert contents(log) == [(0, b"kept")]
    with pytest.raises(LogFailed, match="the disk is full"):
        append(log, b"refused")


def test_a_disk_without_a_byte_left_is_said_as_such() -> None:
    disk = SimulatedDisk()
    disk.fail_open = lambda path: True
    disk.files[f"/data/{RESERVE}"] = Content(bytearray(RESERVED))
    with pytest.raises(DataDirectoryError, match="its disk is full"):
        a_directory(disk)


def test_without_a_reserve_every_write_is_tried() -> None:
    disk = SimulatedDisk()
    directory = a_directory(disk, reserve=0)
    log = directory.open_log(TOPIC, 0, settings())
    disk.room = 0
    with pytest.raises(LogFailed, match="No space left"):
        append(log, b"refused")
    disk.room = None
    append(log, b"taken")
    assert RESERVE not in disk.listing("/data")
