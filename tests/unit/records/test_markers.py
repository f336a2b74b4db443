"""The control batches that end transactions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from millstream.core.errors import CorruptBatch
from millstream.records import batch
from millstream.records.build import Record, build_batch, read_batches
from millstream.records.markers import MARKER_SIZE, EndOfTransaction, Marker, build_marker, read_marker

NOW = 1_700_000_000_000


@given(
    kind=st.sampled_from(Marker),
    producer=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 2**15 - 1),
    offset=st.integers(0, 2**40),
    coordinator=st.integers(-1, 2**31 - 1),
)
def test_a_marker_says_how_the_transaction_ended_and_is_no_record(
    kind: Marker, producer: int, epoch: int, offset: int, coordinator: int
) -> None:
    built = build_marker(
        kind,
        producer_id=producer,
        producer_epoch=epoch,
        timestamp=NOW,
        base_offset=offset,
        coordinator_epoch=coordinator,
    )
    header = batch.read_header(built)
    batch.verify(built, 0, header)
    assert header.is_control
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.size) == (producer, epoch, MARKER_SIZE)
    assert read_marker(built, 0, header) == EndOfTransaction(kind, coordinator)
    assert list(read_batches(built)) == []
    assert [record.offset for record in read_batches(built, control=True)] == [offset]


def test_the_bytes_are_those_of_a_batch_with_that_one_record() -> None:
    """The layout is written down by hand; this is the same by the general builder."""
    record = Record(b"\0\0\0\1", b"\0\0\0\0\0\x09", (), NOW)
    fields = {"producer_id": 7, "producer_epoch": 2}
    assert build_marker(Marker.COMMIT, timestamp=NOW, coordinator_epoch=9, **fields) == build_batch(
        [record], transactional=True, control=True, **fields
    )


def test_another_client_reads_it_as_a_control_record() -> None:
    built = build_marker(Marker.ABORT, producer_id=7, producer_epoch=2, timestamp=NOW)
    parsed = DefaultRecordBatch(bytes(built))
    assert parsed.validate_crc()
    assert parsed.is_control_batch
    (record,) = parsed
    assert record.abort


def control(key: bytes | None, value: bytes | None) -> bytearray:
    return build_batch([Record(key, value, (), NOW)], producer_id=7, producer_epoch=0, control=True)


def test_control_records_of_other_kinds_end_no_transaction() -> None:
    built = control(b"\0\0\0\2", b"whatever")
    assert read_marker(built, 0, batch.read_header(built)) is None
    built = build_batch([], control=True, last_offset_delta=0)
    assert read_marker(built, 0, batch.read_header(built)) is None, "compaction took its record"


@pytest.mark.parametrize(
    ("key", "value"), [(None, b""), (b"\0\0", b""), (b"\0\0\0\0", None), (b"\0\0\0\1", b"\0")]
)
def test_a_control_record_that_is_cut_off_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    built = control(key, value)
    with pytest.raises(CorruptBatch):
        read_marker(built, 0, batch.read_header(built))
