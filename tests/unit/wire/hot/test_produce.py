"""Produce as it is read and written by hand, held to kio's schemas in every version."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core.errors import ProtocolError
from millstream.wire.codec.schema_codec import answer_writer, request_writer
from millstream.wire.hot.produce import (
    BY_ID,
    FIRST,
    LAST,
    PartitionResult,
    ack_template,
    produce_answer,
    read_produce,
)

VERSIONS = range(FIRST, LAST + 1)
TOPIC_ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")


def request(version: int, topics: Any, *, acks: int = 1, transactional_id: str | None = None) -> bytearray:
    out = bytearray()
    request_writer(0, version)(
        out,
        {
            "transactional_id": transactional_id,
            "acks": acks,
            "timeout": 1500,
            "topic_data": [
                {
                    "name": key,
                    "topic_id": key,
                    "partition_data": [{"index": i, "records": data} for i, data in partitions],
                }
                for key, partitions in topics
            ],
        },
    )
    return out


def key_of(version: int, number: int) -> Any:
    return uuid.UUID(int=number + 1) if version >= BY_ID else f"topic-{number}"


@pytest.mark.parametrize("version", VERSIONS)
@given(
    shape=st.lists(
        st.lists(st.tuples(st.integers(0, 2**31 - 1), st.binary(max_size=300) | st.none()), max_size=4),
        max_size=3,
    ),
    acks=st.sampled_from([0, 1, -1, 7]),
    transactional_id=st.none() | st.text(max_size=5),
)
@settings(max_examples=25, deadline=None)
def test_a_request_is_read_as_it_was_written(
    version: int, shape: Any, acks: int, transactional_id: str | None
) -> None:
    topics = [(key_of(version, n), partitions) for n, partitions in enumerate(shape)]
    body = request(version, topics, acks=acks, transactional_id=transactional_id)
    buffer = bytearray(b"before") + body + b"after"

    read = read_produce(buffer, 6, 6 + len(body), version)

    assert (read.acks, read.timeout_ms, read.transactional_id) == (acks, 1500, transactional_id)
    assert [
        (key, [(p.partition, None if p.end < 0 else bytes(buffer[p.start : p.end])) for p in partitions])
        for key, partitions in read.topics
    ] == [(k.bytes if isinstance(k, uuid.UUID) else k, partitions) for k, partitions in topics]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_is_refused(version: int) -> None:
    body = request(version, [(key_of(version, 0), [(3, b"records" * 5)])])
    for end in range(len(body)):
        with pytest.raises(ProtocolError):
            read_produce(body[:end], 0, end, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_count_larger_than_the_request_is_refused_before_it_is_believed(version: int) -> None:
    body = request(version, [(key_of(version, 0), [(3, b"records")])])
    at = 7 if version >= 9 else 8  # where the number of topics stands
    huge = b"\xff\xff\xff\xff\x07" if version >= 9 else b"\x7f\xff\xff\xff"
    body[at : at + (1 if version >= 9 else 4)] = huge
    with pytest.raises(ProtocolError, match="does not fit"):
        read_produce(body, 0, len(body), version)


def by_schema(version: int, name: str, results: list[PartitionResult]) -> bytes:
    out = bytearray()
    answer_writer(0, version)(
        out,
        {
            "responses": [
                {
                    "name": name,
                    "topic_id": TOPIC_ID,
                    "partition_responses": [
                        {
                            "index": r.partition,
                            "error_code": r.error,
                            "base_offset": r.base_offset,
                            "log_append_time": r.append_time,
                            "log_start_offset": r.start_offset,
                            "record_errors": (),
                            "error_message": r.message,
                        }
                        for r in results
                    ],
                }
            ]
        },
    )
    return bytes(out)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["t", "n" * 200])
def test_an_answer_is_byte_for_byte_what_the_schema_says(version: int, name: str) -> None:
    results = [
        PartitionResult(0, 0, 1234567890123, -1, 17),
        PartitionResult(7, 3, message="there is no such partition: größer"),
        PartitionResult(8, 0, 5, 1_700_000_000_000, 0),
    ]
    written = produce_answer(version, [(name, TOPIC_ID.bytes, results)])
    assert bytes(written) == by_schema(version, name, results)


@pytest.mark.parametrize("version", range(5, LAST + 1))
@pytest.mark.parametrize("name", ["t", "n" * 200])
def test_the_template_of_an_acknowledgement_gives_the_same_answer(version: int, name: str) -> None:
    pack, size, before, after = ack_template(version, name, TOPIC_ID.bytes, 5)
    frame = pack(size, 99, before, 0, 41, 1_700_000_000_000, 3, after)
    body = by_schema(version, name, [PartitionResult(5, 0, 41, 1_700_000_000_000, 3)])
    tags = b"\0" if version >= 9 else b""
    assert frame == (len(body) + 4 + len(tags)).to_bytes(4, "big") + (99).to_bytes(4, "big") + tags + body


def test_times_in_answers_are_milliseconds() -> None:
    from millstream.wire.codec.schema_codec import answer_reader

    body = bytes(produce_answer(9, [("t", bytes(16), [PartitionResult(0, 0, 0, 1_700_000_000_123, 0)])]))
    read, _ = answer_reader(0, 9)(body, 0)
    time = read.responses[0].partition_responses[0].log_append_time
    assert time == datetime.datetime.fromtimestamp(1_700_000_000.123, datetime.UTC)
