"""Which records stay when only the newest of each key does: compiled, in plain Python, and by definition."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core.errors import CorruptBatch
from millstream.records.batch import HEADER_SIZE, read_header
from millstream.records.build import Record, assemble, build_batch, read_records
from millstream.records.keys import plain as plain_keys

_keys = pytest.importorskip("millstream.records.keys._keys", reason="the record codec is not compiled here")
BOTH = pytest.mark.parametrize("keys", [_keys, plain_keys], ids=["compiled", "plain"])
BASE = 1000
TIME = 1_700_000_000_000

keyed = st.builds(
    Record,
    key=st.none() | st.sampled_from([b"", b"a", b"b", b"c" * 9, b"d" * 200]),
    value=st.none() | st.binary(max_size=20),
    headers=st.just(()) | st.just((("h", b"1"), ("é", None))),
    timestamp=st.integers(TIME - 10**6, TIME + 10**6),
    offset=st.just(-1),
)


class Kept(NamedTuple):
    records: list[Record]
    count: int
    newest: int
    rebased: bool
    keyless: int


def kept_of(keys: ModuleType, batch: bytearray, latest: int, tombstones: bool, horizon: int | None) -> Kept:
    """What stays of a batch whose own keys were noted, read back as the batch that would be written."""
    header = read_header(batch)
    body = memoryview(batch)[HEADER_SIZE:]
    known = keys.LatestOffsets(100)
    assert known.note(body, header.record_count, BASE, header.last_offset_delta, 0)
    shape = (header.record_count, BASE, header.last_offset_delta, header.base_timestamp)
    out, count, newest, rebased, keyless = known.kept(body, *shape, latest, tombstones, horizon, 3)
    left = assemble(
        body if out is None else out[3:],
        attributes=0,
        base_offset=BASE,
        leader_epoch=0,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=horizon if rebased and horizon is not None else header.base_timestamp,
        max_timestamp=newest,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=count,
    )
    return Kept(list(read_records(left)), count, newest, rebased, keyless)


@BOTH
@given(
    records=st.lists(keyed, min_size=1, max_size=12),
    latest=st.integers(BASE - 1, BASE + 13),
    tombstones=st.booleans(),
    horizon=st.none() | st.just(TIME + 86_400_000),
)
@settings(max_examples=150, deadline=None)
def test_the_newest_of_each_key_stay_as_they_were(
    keys: ModuleType, records: list[Record], latest: int, tombstones: bool, horizon: int | None
) -> None:
    batch = build_batch(records, base_offset=BASE)
    placed = list(read_records(batch))
    newest = {record.key: record.offset for record in placed}
    stay = [
        record
        for record in placed
        if record.offset > latest
        or (
            record.key is not None
            and record.offset == newest[record.key]
            and (record.value is not None or tombstones)
        )
    ]
    found = kept_of(keys, batch, latest, tombstones, horizon)
    assert found.records == stay
    assert found.count == len(stay)
    if stay:
        assert found.newest == max(record.timestamp for record in stay)
    assert found.rebased == (horizon is not None and any(record.value is None for record in stay))
    assert found.keyless == sum(record.key is None and record.offset <= latest for record in placed)


@BOTH
def test_it_is_full_before_it_is_over_its_limit(keys: ModuleType) -> None:
    known = keys.LatestOffsets(5)
    batch = build_batch([Record(b"%d" % number, b"v") for number in range(3)])
    body = memoryview(batch)[HEADER_SIZE:]
    assert known.note(body, 3, 0, 2, 0)
    assert not known.note(body, 3, 3, 2, 0)
    assert known.count == 3


@BOTH
def test_records_before_the_start_are_not_noted(keys: ModuleType) -> None:
    known = keys.LatestOffsets(5)
    body = memoryview(build_batch([Record(b"%d" % number, b"v") for number in range(3)]))[HEADER_SIZE:]
    assert known.note(body, 3, 10, 2, 12)
    assert known.count == 1


@BOTH
@pytest.mark.parametrize("cut", [1, 5, 9])
def test_what_is_no_record_is_refused(keys: ModuleType, cut: int) -> None:
    body = bytes(build_batch([Record(b"key", b"value"), Record(b"key", b"value")])[HEADER_SIZE:-cut])
    with pytest.raises(CorruptBatch):
        keys.LatestOffsets(5).note(body, 2, 0, 1, 0)
    with pytest.raises(CorruptBatch):
        keys.LatestOffsets(5).kept(body, 2, 0, 1, 0, 9, True, None, 0)


def test_the_compiled_hash_tells_many_keys_apart() -> None:
    known = _keys.LatestOffsets(30_000)
    for start in range(0, 30_000, 1000):
        records = [Record(b"%d" % number, b"v") for number in range(start, start + 1000)]
        body = memoryview(build_batch(records))[HEADER_SIZE:]
        assert known.note(body, 1000, start, 999, 0)
    assert known.count == 30_000
