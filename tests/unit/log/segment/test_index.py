"""Sparse indexes: Kafka's bytes, and look-ups that agree with a plain search."""

from __future__ import annotations

from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from millstream.log.segment.index import OffsetIndex, TimeIndex
from millstream.log.storage.files import FilePool, read_file
from millstream.log.storage.memory import MemoryFiles

BASE = 1000


def a_pool() -> FilePool:
    files = MemoryFiles()
    files.make_directory("/data")
    return FilePool(files)


def test_an_offset_index_entry_is_relative_offset_and_position() -> None:
    pool = a_pool()
    index = OffsetIndex(pool, "/data/x.index", BASE)
    index.append(BASE + 7, 4321)
    index.write()
    assert read_file(pool.files, "/data/x.index") == bytes.fromhex("00000007 000010e1")


def test_a_time_index_entry_is_timestamp_and_relative_offset() -> None:
    pool = a_pool()
    index = TimeIndex(pool, "/data/x.timeindex", BASE)
    index.append(0x0102030405060708, BASE + 9)
    index.write()
    assert read_file(pool.files, "/data/x.timeindex") == bytes.fromhex("0102030405060708 00000009")


def test_a_time_index_only_grows() -> None:
    index = TimeIndex(a_pool(), "/data/x.timeindex", BASE)
    for timestamp, offset in ((100, 1), (100, 2), (90, 3), (101, 4)):
        index.append(timestamp, BASE + offset)
    assert index.count == index.written + 2 == 2
    index.written = index.count
    assert index.last() == (101, BASE + 4)
    assert index.lookup(100) == (100, BASE + 1)


@given(
    steps=st.lists(st.integers(1, 5), min_size=1, max_size=1500),
    written=st.integers(0, 1500),
    wanted=st.lists(st.integers(-3, 8000), min_size=1, max_size=20),
)
def test_look_ups_find_the_last_entry_at_or_before(steps: list[int], written: int, wanted: list[int]) -> None:
    index = OffsetIndex(a_pool(), "/data/x.index", BASE)
    offsets: list[int] = []
    for number, step in enumerate(steps):
        offsets.append((offsets[-1] if offsets else 0) + step)
        index.append(BASE + offsets[-1], number * 10)
        if number == written:
            index.write()
    index.written = known = len(offsets) * 3 // 4  # the others are of batches that are in no file yet
    for offset in wanted:
        place = bisect_right(offsets[:known], offset) - 1
        expected = (BASE + offsets[place], place * 10) if place >= 0 else None
        assert index.lookup(BASE + offset) == expected


@given(total=st.integers(1, 1200), written=st.integers(0, 1200), kept=st.integers(0, 1200))
def test_forgotten_entries_are_gone_and_new_ones_follow(total: int, written: int, kept: int) -> None:
    index = OffsetIndex(a_pool(), "/data/x.index", 0)
    for number in range(total):
        index.append(number * 2, number)
        if number == written:
            index.write()
    index.written = index.count
    index.forget(kept)
    left = min(kept, total)
    assert index.count == left
    assert index.lookup(10**6) == ((2 * (left - 1), left - 1) if left else None)
    index.append(10**5, 77)
    index.write()
    index.written = index.count
    assert index.lookup(10**6) == (10**5, 77)
    assert index.entry(left) == (10**5, 77)


@given(
    total=st.integers(0, 40), in_file=st.integers(0, 40), replaced=st.integers(0, 40), new=st.integers(0, 60)
)
def test_a_rebuilt_index_keeps_what_came_since(total: int, in_file: int, replaced: int, new: int) -> None:
    """The first entries are replaced, by as many as it takes; those that were added meanwhile follow."""
    replaced = min(replaced, total)
    index = OffsetIndex(a_pool(), "/data/x.index", 0)
    for number in range(total):
        index.append(1000 + number, number)
        if number == in_file:
            index.write()
    index.written = max(replaced, total - 3)
    unwritten = total - index.written
    entries = b"".join(OffsetIndex.ENTRY.pack(number, 7) for number in range(new))
    index.replace(entries, replaced)
    assert index.count == new + total - replaced
    assert index.written == index.count - unwritten
    found = [index.entry(number) for number in range(index.count)]
    assert found == [(n, 7) for n in range(new)] + [(1000 + n, n) for n in range(replaced, total)]
