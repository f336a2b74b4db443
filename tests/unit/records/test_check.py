"""Whether a batch's records are what its header says: compiled, in plain Python, and by reading them."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core.errors import CorruptBatch
from millstream.records import plain_check
from millstream.records.batch import HEADER_SIZE, read_header
from millstream.records.build import Record, build_batch, read_records
from millstream.records.check import FINE, MAX_TIME, NO_KEY, OUT_OF_TIME, REASONS
from tests.support import poison

_check = pytest.importorskip("millstream.records._check", reason="the record codec is not compiled here")
BOTH = pytest.mark.parametrize("implementation", [_check, plain_check], ids=["compiled", "plain"])
NOW = poison.NOW
ANY = (-(2**62), 2**62)

some_records = st.lists(
    st.builds(
        Record,
        key=st.none() | st.binary(max_size=5),
        value=st.none() | st.binary(max_size=200),
        headers=st.just(()) | st.just((("h", b"1"), ("é", None))),
        timestamp=st.integers(NOW - 10**6, NOW + 10**6),
        offset=st.just(-1),
    ),
    min_size=1,
    max_size=70,
)


def checked(
    implementation: ModuleType,
    batch: bytes | bytearray,
    *,
    keys: bool = False,
    times: tuple[int, int] = ANY,
) -> tuple[int, list[int]]:
    """The fault in a batch, asked without details and then with them; and these."""
    header = read_header(batch)
    asked = (header.record_count, header.base_timestamp, header.max_timestamp, *times, keys)
    details = array("q", bytes(8 * 12))
    first = implementation.check(memoryview(batch), HEADER_SIZE, *asked)
    fault = implementation.check(batch, HEADER_SIZE, *asked, details)
    assert (first == FINE) == (fault == FINE)
    return fault, details.tolist()


@BOTH
@given(records=some_records)
@settings(max_examples=100, deadline=None)
def test_what_clients_write_is_fine(implementation: ModuleType, records: list[Record]) -> None:
    assert checked(implementation, build_batch(records))[0] == FINE


@BOTH
@pytest.mark.parametrize("about", poison.BODIES)
def test_what_readers_would_stumble_over_is_found(implementation: ModuleType, about: str) -> None:
    batch = poison.batch_of(*poison.BODIES[about])
    with pytest.raises(CorruptBatch):
        list(read_records(batch))
    assert checked(implementation, batch)[0] in REASONS


@BOTH
@pytest.mark.parametrize("deltas", [(0, 2, 1), (0, 1, 1), (1, 2, 3), (0, 1, 5)])
def test_offsets_that_are_not_in_order_are_found(
    implementation: ModuleType, deltas: tuple[int, int, int]
) -> None:
    fault, details = checked(implementation, poison.offsets(*deltas))
    assert fault == plain_check.OFFSET
    assert details[0] == next(n for n, delta in enumerate(deltas) if n != delta)


@given(records=some_records, data=st.data())
@settings(max_examples=300, deadline=None)
def test_both_find_the_same_and_what_they_let_pass_can_be_read(
    records: list[Record], data: st.DataObject
) -> None:
    batch = build_batch(records)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(HEADER_SIZE, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    fault, details = checked(_check, batch)
    plain_fault, plain_details = checked(plain_check, batch)
    assert fault == plain_fault
    assert details[0] == plain_details[0]
    if fault in (FINE, MAX_TIME):
        assert max(record.timestamp for record in read_records(batch)) == details[1]


@BOTH
def test_records_that_are_refused_for_what_they_say_are_numbered(implementation: ModuleType) -> None:
    records = [Record(b"k" if n % 3 else None, b"v", timestamp=NOW + n) for n in range(8)]
    fault, details = checked(implementation, build_batch(records), keys=True)
    assert fault == NO_KEY
    assert details[0] == 3
    assert details[2:5] == [0, 3, 6]


@BOTH
def test_of_a_wrong_time_and_a_missing_key_the_time_is_told(implementation: ModuleType) -> None:
    records = [Record(b"k" if n else None, b"v", timestamp=NOW + n) for n in (0, 5, 6, -9)]
    fault, details = checked(implementation, build_batch(records), keys=True, times=(NOW - 5, NOW + 5))
    assert fault == OUT_OF_TIME
    assert details[0] == 2
    assert details[1:4] == [NOW + 6, 2, 3]


@BOTH
def test_a_record_without_a_time_is_never_out_of_time(implementation: ModuleType) -> None:
    records = [Record(None, b"v", timestamp=-1), Record(None, b"v", timestamp=NOW)]
    assert checked(implementation, build_batch(records), times=(NOW - 5, NOW + 5))[0] == FINE


@BOTH
def test_more_refused_records_than_there_is_room_for(implementation: ModuleType) -> None:
    records = [Record(None, b"v", timestamp=NOW) for _ in range(50)]
    fault, details = checked(implementation, build_batch(records), keys=True)
    assert (fault, details[0]) == (NO_KEY, 10)
    assert details[2:] == list(range(10))


@BOTH
def test_a_wrong_largest_timestamp_is_told_with_the_right_one(implementation: ModuleType) -> None:
    fault, details = checked(implementation, poison.batch_of(poison.PLAIN, max_timestamp=NOW + 99))
    assert fault == MAX_TIME
    assert details[1] == NOW + 2
