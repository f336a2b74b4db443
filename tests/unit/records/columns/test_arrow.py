from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core.errors import CorruptBatch
from millstream.records import batch
from millstream.records.build import Record, build_batch, read_batches, read_records
from millstream.records.columns import arrow
from millstream.records.columns import compiled as compiled_columns
from millstream.records.columns import with_numpy as numpy_columns
from millstream.records.columns.arrow import Encoder, ProducerSequence, decode, partitions_of
from millstream.records.columns.codec_interface import HEADERS_TYPE, MAX_MS
from millstream.records.fetched import next_offset
from millstream.records.markers import Marker, build_marker
from millstream.records.murmur2 import partition_of
from tests.support.records import CODECS, as_log, record_lists

NOW = 1_700_000_000_000

implementations = pytest.mark.parametrize(
    "implementation", [compiled_columns, numpy_columns], ids=["compiled", "numpy"]
)


def rows(decoded: list[pa.RecordBatch]) -> list[Record]:
    """Decoded columns as the plain reader would have given them."""
    found = []
    for part in decoded:
        part.validate(full=True)
        times = part["timestamp"].view(pa.int64()).to_pylist()
        for row, micros in zip(part.drop_columns(["timestamp"]).to_pylist(), times, strict=True):
            headers = tuple((pair["key"], pair["value"]) for pair in row["headers"] or ())
            found.append(Record(row["key"], row["value"], headers, micros // 1000, row["offset"]))
    return found


def columns_of(records: list[Record]) -> dict[str, pa.Array]:
    pairs = [[{"key": k, "value": v} for k, v in record.headers] or None for record in records]
    times = pa.array([record.timestamp * 1000 for record in records], pa.int64())
    return {
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
        "headers": pa.array(pairs, HEADERS_TYPE),
        "timestamp": times.view(pa.timestamp("us", "UTC")),
    }


# Reading ------------------------------------------------------------------------------------------------


@implementations
@given(lists=st.lists(st.tuples(record_lists(), CODECS), min_size=1, max_size=4), base=st.integers(0, 2**40))
@settings(max_examples=60)
def test_columns_hold_what_the_plain_reader_reads(
    implementation: ModuleType, lists: list[tuple[list[Record], int]], base: int
) -> None:
    log = as_log((build_batch(records, codec=codec) for records, codec in lists), base)
    decoded = decode(log, first=base, implementation=implementation)
    assert rows(decoded) == list(read_batches(log))
    assert next_offset(log, base) == base + sum(len(records) for records, _ in lists)


@implementations
@given(records=record_lists(min_size=3), data=st.data())
@settings(max_examples=40)
def test_only_offsets_in_the_range_are_given(
    implementation: ModuleType, records: list[Record], data: st.DataObject
) -> None:
    log = as_log([build_batch(records), build_batch(records)], 100)
    first = data.draw(st.integers(100, 100 + 2 * len(records)))
    end = data.draw(st.integers(first, 100 + 2 * len(records)))
    decoded = decode(log, first=first, end=end, implementation=implementation)
    assert rows(decoded) == [r for r in read_batches(log) if first <= r.offset < end]


@implementations
def test_a_part_of_a_batch_at_the_end_is_left_for_the_next_fetch(implementation: ModuleType) -> None:
    first, second = (build_batch([Record(b"k", b"v" * 50, (), NOW)]) for _ in range(2))
    log = as_log([first, second])
    for cut in range(len(first), len(log)):
        decoded = decode(bytes(log[:cut]), first=0, implementation=implementation)
        assert next_offset(bytes(log[:cut]), 0) == 1
        assert [record.offset for record in rows(decoded)] == [0]


@implementations
def test_columns_not_asked_for_are_not_made(implementation: ModuleType) -> None:
    log = as_log([build_batch([Record(b"k", b"v", (("h", b"1"),), NOW)])])
    decoded = decode(log, first=0, names=("value", "offset"), implementation=implementation)
    assert decoded[0].schema.names == ["value", "offset"]
    assert decoded[0].to_pylist() == [{"value": b"v", "offset": 0}]


@implementations
def test_the_time_of_arrival_and_its_type_are_given(implementation: ModuleType) -> None:
    log = as_log(
        [
            build_batch([Record(None, b"1", (), 5), Record(None, b"2", (), 6)], log_append_time=NOW),
            build_batch([Record(None, b"3", (), 7)]),
        ]
    )
    (part,) = decode(log, first=0, implementation=implementation)
    assert part["timestamp"].view(pa.int64()).to_pylist() == [NOW * 1000, NOW * 1000, 7000]
    assert part["timestampType"].to_pylist() == [1, 1, 0]


@implementations
def test_a_time_beyond_arrows_is_held_at_the_end(implementation: ModuleType) -> None:
    log = as_log([build_batch([Record(None, b"1", (), 2**62), Record(None, b"2", (), -(2**62))])])
    (part,) = decode(log, first=0, implementation=implementation)
    assert part["timestamp"].view(pa.int64()).to_pylist() == [MAX_MS * 1000, -MAX_MS * 1000]


@implementations
def test_a_header_key_that_is_not_text_is_replaced_and_not_fatal(implementation: ModuleType) -> None:
    built = build_batch([Record(None, b"v", (("ab", b"x"),), NOW)])
    built[built.index(b"ab")] = 0xFF
    batch.seal(built, 0, len(built))
    (part,) = decode(built, first=0, implementation=implementation)
    assert part["headers"].to_pylist() == [[{"key": "\ufffdb", "value": b"x"}]]


@implementations
def test_large_answers_come_in_chunks(implementation: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "CHUNK_BYTES", 1000)
    log = as_log([build_batch([Record(None, bytes(300), (), NOW)], codec=i // 8 % 2) for i in range(32)])
    decoded = decode(log, first=0, implementation=implementation)
    assert len(decoded) == 8
    assert rows(decoded) == list(read_batches(log))


@implementations
def test_an_answer_without_a_record_gives_no_columns(implementation: ModuleType) -> None:
    compacted = build_batch([], last_offset_delta=4)
    log = as_log([compacted], 10)
    assert decode(log, first=10, implementation=implementation) == []
    assert next_offset(log, 10) == 15
    assert decode(b"", first=10, implementation=implementation) == []
    assert next_offset(b"", 10) == 10


def test_a_batch_beyond_the_end_says_that_the_last_offsets_are_gone() -> None:
    log = as_log([build_batch([Record(None, b"v")])], 10) + as_log([build_batch([Record(None, b"v")])], 25)
    assert next_offset(log, 10, 11) == 11
    assert next_offset(log, 10, 20) == 20
    assert next_offset(log, 11, 20) == 20
    assert next_offset(log, 10, 26) == 26


# Transactions -------------------------------------------------------------------------------------------


def transactional(value: bytes, producer: int) -> bytearray:
    record = Record(None, value, (), NOW)
    return build_batch([record], producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)


def marker(kind: Marker, producer: int) -> bytearray:
    return build_marker(kind, producer_id=producer, producer_epoch=0, timestamp=NOW)


@implementations
def test_aborted_records_never_appear_and_committed_ones_do(implementation: ModuleType) -> None:
    log = as_log(
        [
            transactional(b"1 aborted", 1),  # 0
            transactional(b"2 committed", 2),  # 1
            build_batch([Record(None, b"plain", (), NOW)]),  # 2
            transactional(b"1 aborted", 1),  # 3
            marker(Marker.ABORT, 1),  # 4
            transactional(b"1 committed", 1),  # 5
            marker(Marker.COMMIT, 2),  # 6
            marker(Marker.COMMIT, 1),  # 7
            transactional(b"2 aborted", 2),  # 8
            marker(Marker.ABORT, 2),  # 9
        ]
    )
    decoded = decode(log, first=0, aborted=[(2, 8), (1, 0)], implementation=implementation)
    assert [r.value for r in rows(decoded)] == [b"2 committed", b"plain", b"1 committed"]
    assert next_offset(log, 0) == 10
    everything = decode(log, first=0, implementation=implementation)
    assert [r.offset for r in rows(everything)] == [0, 1, 2, 3, 5, 8]


@implementations
def test_a_fetch_from_the_middle_of_an_aborted_transaction_leaves_out_its_rest(
    implementation: ModuleType,
) -> None:
    log = as_log([transactional(b"x", 1), transactional(b"y", 1), marker(Marker.ABORT, 1)])
    assert decode(log, first=1, aborted=[(1, 0)], implementation=implementation) == []


# Damage -------------------------------------------------------------------------------------------------


def outcome(read: Any) -> list[Record] | str:
    try:
        return list(read())
    except CorruptBatch:
        return "corrupt"


@implementations
@given(records=record_lists(), codec=CODECS, data=st.data())
@settings(max_examples=250)
def test_any_bytes_are_records_or_corrupt_as_the_plain_reader_finds(
    implementation: ModuleType, records: list[Record], codec: int, data: st.DataObject
) -> None:
    built = build_batch(records, base_offset=3, codec=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(21, len(built) - 1))
        built[at] = data.draw(st.integers(0, 255) | st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]))
    batch.seal(built, 0, len(built))  # so that the records themselves are looked at
    if batch.read_header(built).is_control:
        return
    expected = outcome(lambda: read_records(built, max_size=1 << 22))
    if isinstance(expected, list):
        expected = [
            r._replace(timestamp=min(max(r.timestamp, -MAX_MS), MAX_MS)) for r in expected if r.offset >= 0
        ]
    found = outcome(
        lambda: rows(decode(built, first=0, max_decompressed=1 << 22, implementation=implementation))
    )
    assert found == expected


@implementations
@given(body=st.binary(max_size=80), count=st.integers(0, 6))
@settings(max_examples=250)
def test_noise_is_refused_or_read_as_the_plain_reader_does(
    implementation: ModuleType, body: bytes, count: int
) -> None:
    built = build_batch([Record(None, b"", (), NOW)])[: batch.HEADER_SIZE] + body
    built[57:61] = count.to_bytes(4, "big")
    batch.PREFIX.pack_into(built, 0, 0, len(built) - batch.PREFIX_SIZE)
    batch.seal(built, 0, len(built))
    expected = outcome(lambda: read_records(built))
    assert outcome(lambda: rows(decode(built, first=0, implementation=implementation))) == expected


@implementations
@given(data=st.data())
@settings(max_examples=60)
def test_a_changed_byte_is_found_by_the_checksum(implementation: ModuleType, data: st.DataObject) -> None:
    log = as_log([build_batch([Record(b"k", b"v" * 30, (), NOW)]) for _ in range(3)])
    size = len(log) // 3
    at = data.draw(st.integers(batch.CRC_AT, size - 1))
    log[size + at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptBatch) as refused:
        decode(log, first=0, implementation=implementation)
    assert refused.value.position == size


@implementations
def test_the_position_of_the_damaged_batch_is_told(implementation: ModuleType) -> None:
    good = build_batch([Record(b"k", b"v", (), NOW)])
    bad = build_batch([Record(b"k", b"v", (), NOW)])
    bad[61] ^= 4
    batch.seal(bad, 0, len(bad))
    with pytest.raises(CorruptBatch, match=f"at byte {len(good)}"):
        decode(as_log([good, bad, good]), first=0, implementation=implementation)


# Writing ------------------------------------------------------------------------------------------------


@implementations
@given(records=record_lists(max_size=30), codec=CODECS, max_bytes=st.sampled_from([200, 600, 100_000]))
@settings(max_examples=60)
def test_encoded_rows_are_read_back_in_batches_of_the_size_asked_for(
    implementation: ModuleType, records: list[Record], codec: int, max_bytes: int
) -> None:
    encoder = Encoder(**columns_of(records), implementation=implementation)
    order = np.arange(len(records), dtype=np.int32)[::-1].copy()
    parts = list(encoder.batches(order, max_bytes=max_bytes, codec=codec))
    if codec == 0:
        assert all(len(part) <= max_bytes or count == 1 for part, count in parts)
    log = as_log(part for part, _ in parts)
    assert list(read_batches(log)) == [r._replace(offset=i) for i, r in enumerate(reversed(records))]
    header = batch.read_header(parts[0][0])
    assert header.max_timestamp == max(r.timestamp for r in read_records(parts[0][0]))


@given(records=record_lists(max_size=30), max_bytes=st.sampled_from([200, 600, 100_000]))
@settings(max_examples=40)
def test_both_implementations_write_the_same_bytes(records: list[Record], max_bytes: int) -> None:
    order = np.arange(len(records), dtype=np.int32)
    written = [
        list(Encoder(**columns_of(records), implementation=one).batches(order, max_bytes=max_bytes))
        for one in (compiled_columns, numpy_columns)
    ]
    assert written[0] == written[1]


@implementations
def test_slices_of_larger_columns_are_encoded_from_their_own_start(implementation: ModuleType) -> None:
    records = [
        Record(b"k%d" % i, b"v%d" % i if i % 3 else None, (("h", b"%d" % i),), NOW + i) for i in range(40)
    ]
    records[20] = records[20]._replace(headers=(), key=None)
    sliced = {name: column[17:29] for name, column in columns_of(records).items()}
    encoder = Encoder(**sliced, implementation=implementation)
    ((built, count),) = encoder.batches(np.arange(12, dtype=np.int32), max_bytes=1 << 20)
    assert count == 12
    assert list(read_batches(built)) == [r._replace(offset=i) for i, r in enumerate(records[17:29])]


@implementations
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_text_and_bytes_of_any_width_are_values(implementation: ModuleType, kind: pa.DataType) -> None:
    encoder = Encoder(pa.array(["a", None], kind), implementation=implementation, now_ms=NOW)
    ((built, _),) = encoder.batches(np.arange(2, dtype=np.int32), max_bytes=1000)
    assert list(read_batches(built)) == [Record(None, b"a", (), NOW, 0), Record(None, None, (), NOW, 1)]


def test_a_value_that_is_neither_text_nor_bytes_is_refused() -> None:
    with pytest.raises(TypeError, match="binary or string, not int64"):
        Encoder(pa.array([1]))


@implementations
def test_a_producers_sequence_moves_on_with_each_batch(implementation: ModuleType) -> None:
    encoder = Encoder(pa.array([b"x" * 50] * 5), implementation=implementation)
    producer = ProducerSequence(id=9, epoch=2, sequence=2**31 - 2)
    parts = list(encoder.batches(np.arange(5, dtype=np.int32), max_bytes=200, producer=producer))
    headers = [batch.read_header(part) for part, _ in parts]
    assert [header.record_count for header in headers] == [2, 2, 1]
    assert [header.base_sequence for header in headers] == [2**31 - 2, 0, 2]
    assert {(header.producer_id, header.producer_epoch) for header in headers} == {(9, 2)}
    assert producer.sequence == 3


@implementations
def test_rows_that_are_not_there_are_refused(implementation: ModuleType) -> None:
    encoder = Encoder(pa.array([b"x"]), implementation=implementation)
    with pytest.raises(IndexError):
        list(encoder.batches(np.array([1], np.int32), max_bytes=100))


@implementations
@given(
    keys=st.lists(st.none() | st.binary(max_size=30), max_size=40),
    partitions=st.integers(1, 50),
    skip=st.integers(0, 5),
)
def test_keys_go_to_kafkas_partitions(
    implementation: ModuleType, keys: list[bytes | None], partitions: int, skip: int
) -> None:
    found = partitions_of(pa.array(keys, pa.binary())[skip:], partitions, implementation)
    expected = [-1 if key is None else partition_of(key, partitions) for key in keys[skip:]]
    assert found.tolist() == expected


def test_the_compiled_implementation_is_the_one_used_where_there_is_a_compiler() -> None:
    assert arrow.columns is compiled_columns


def test_without_a_compiler_numpy_does_it() -> None:
    code = (
        "import sys; sys.modules['millstream.records.columns._columns'] = None;"
        "from millstream.records.columns import arrow; print(arrow.columns.__name__)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said.stdout == "millstream.records.columns.with_numpy\n", said.stderr
