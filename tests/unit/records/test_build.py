from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from millstream.core.errors import CorruptBatch
from millstream.records import batch
from millstream.records.build import Record, build_batch, read_batches, read_records
from millstream.records.compression import GZIP, NONE
from tests.support.records import CODECS, record_lists

NOW = 1_700_000_000_000


@given(records=record_lists(), codec=CODECS, base=st.integers(0, 2**40))
@settings(max_examples=50)
def test_records_come_back_as_they_were_built(records: list[Record], codec: int, base: int) -> None:
    built = build_batch(records, base_offset=base, codec=codec)
    read = list(read_batches(built))
    assert read == [record._replace(offset=base + i) for i, record in enumerate(records)]


@given(records=record_lists(), codec=st.sampled_from([NONE, GZIP]))  # what it reads without more packages
@settings(max_examples=30)
def test_kafka_python_reads_what_was_built(records: list[Record], codec: int) -> None:
    parsed = DefaultRecordBatch(bytes(build_batch(records, base_offset=5, codec=codec)))
    assert parsed.validate_crc()
    read = [
        Record(r.key, r.value, tuple((k, v) for k, v in r.headers), r.timestamp, r.offset) for r in parsed
    ]
    assert read == [record._replace(offset=5 + i) for i, record in enumerate(records)]


def test_gaps_that_compaction_left_are_kept() -> None:
    kept = [Record(b"a", b"1", (), NOW, 10), Record(b"b", b"2", (), NOW, 17)]
    built = build_batch(kept, base_offset=10, last_offset_delta=9)
    assert list(read_batches(built)) == kept
    assert batch.read_header(built).next_offset == 20


def test_offsets_must_grow() -> None:
    with pytest.raises(ValueError, match="offset 3 does not follow 3"):
        build_batch([Record(b"", b"", (), NOW, 3), Record(b"", b"", (), NOW, 3)])


def test_the_time_of_arrival_is_every_records_time() -> None:
    built = build_batch([Record(None, b"1", (), 5), Record(None, b"2", (), 6)], log_append_time=NOW)
    assert [record.timestamp for record in read_batches(built)] == [NOW, NOW]


@given(data=st.data(), records=record_lists(), codec=CODECS)
@settings(max_examples=150)
def test_any_changed_byte_under_the_checksum_is_found(
    data: st.DataObject, records: list[Record], codec: int
) -> None:
    built = build_batch(records, codec=codec)
    at = data.draw(st.integers(batch.CRC_AT, len(built) - 1))
    built[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptBatch, match="checksum"):
        list(read_batches(built))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("0c00000001010000", "1 bytes after the last record"),
        ("ff00000001010000", "a record of -"),
        ("7e0000000101000000", "a record of 63 bytes where 8 are left"),
        ("0e000000ffffffffffff", "does not end"),
        ("0c000000010103", "-2 headers"),
        ("0c000000037f00", "a field of -2 bytes"),
        ("0e0000000a616200", "a field of 5 bytes where 3 are left"),
        ("0e000000010100ff", "1 bytes left over"),
        ("0c000002010100", "offset delta 1 after -1"),
    ],
)
def test_a_record_that_is_not_one_is_refused_with_the_reason(body: str, reason: str) -> None:
    built = build_batch([Record(None, None, (), NOW)])
    built[batch.HEADER_SIZE :] = bytes.fromhex(body)
    batch.PREFIX.pack_into(built, 0, 0, len(built) - batch.PREFIX_SIZE)
    with pytest.raises(CorruptBatch, match=reason):
        list(read_records(built))


@pytest.mark.parametrize("count", [-1, 2, 2**31 - 1])
def test_a_count_that_the_bytes_cannot_hold_is_refused(count: int) -> None:
    built = build_batch([Record(None, None, (), NOW)])
    built[57:61] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch, match=f"can't be {count} records"):
        list(read_records(built))


def test_the_broker_does_not_load_numpy_or_arrow() -> None:
    code = (
        "import millstream.records.batch, millstream.records.build, millstream.records.murmur2, sys;"
        "print([name for name in ('numpy', 'pyarrow') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
