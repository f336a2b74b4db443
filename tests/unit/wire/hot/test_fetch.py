"""Fetch as it is read and written by hand, held to kio's schemas in every version."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.core.errors import ProtocolError
from millstream.wire.codec.schema_codec import answer_writer, request_writer
from millstream.wire.hot.fetch import (
    BY_ID,
    FIRST,
    LARGE,
    LAST,
    FetchResult,
    fetch_answer,
    read_fetch,
    topic_head,
)

VERSIONS = range(FIRST, LAST + 1)
TOPIC_ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")


def request(version: int, topics: Any, forgotten: Any = (), **fields: Any) -> bytearray:
    out = bytearray()
    request_writer(1, version)(
        out,
        {
            "replica_id": -1,
            "max_wait": 500,
            "min_bytes": 1,
            "max_bytes": 52428800,
            "isolation_level": 1,
            "session_id": 0,
            "session_epoch": -1,
            **fields,
            "topics": [
                {
                    "topic": key,
                    "topic_id": key,
                    "partitions": [
                        {
                            "partition": w[0],
                            "current_leader_epoch": w[1],
                            "fetch_offset": w[2],
                            "last_fetched_epoch": w[3],
                            "log_start_offset": -1,
                            "partition_max_bytes": w[4],
                        }
                        for w in wanted
                    ],
                }
                for key, wanted in topics
            ],
            "forgotten_topics_data": [
                {"topic": key, "topic_id": key, "partitions": partitions} for key, partitions in forgotten
            ],
            "rack_id": "rack",
        },
    )
    return out


def key_of(version: int, number: int) -> Any:
    return uuid.UUID(int=number + 1) if version >= BY_ID else f"topic-{number}"


def as_read(key: Any) -> Any:
    return key.bytes if isinstance(key, uuid.UUID) else key


wanted_partitions = st.tuples(
    st.integers(0, 2**31 - 1),
    st.integers(-1, 9),
    st.integers(0, 2**62),
    st.integers(-1, 9),
    st.integers(0, 2**31 - 1),
)


@pytest.mark.parametrize("version", VERSIONS)
@given(
    shape=st.lists(st.lists(wanted_partitions, max_size=4), max_size=3),
    forgotten=st.lists(st.lists(st.integers(0, 99), max_size=3), max_size=2),
    session=st.tuples(st.integers(0, 2**31 - 1), st.integers(-1, 2**31 - 1)),
)
@settings(max_examples=25, deadline=None)
def test_a_request_is_read_as_it_was_written(version: int, shape: Any, forgotten: Any, session: Any) -> None:
    topics = [(key_of(version, n), wanted) for n, wanted in enumerate(shape)]
    left = [(key_of(version, n), partitions) for n, partitions in enumerate(forgotten)]
    body = request(version, topics, left, session_id=session[0], session_epoch=session[1])
    buffer = bytearray(b"before") + body + b"after"

    read = read_fetch(buffer, 6, 6 + len(body), version)

    assert (read.max_wait_ms, read.min_bytes, read.max_bytes, read.isolation_level) == (500, 1, 52428800, 1)
    assert (read.session_id, read.session_epoch) == (session if version >= 7 else (0, -1))
    assert read.topics == [
        (
            as_read(key),
            [(w[0], w[1] if version >= 9 else -1, w[2], w[3] if version >= 12 else -1, w[4]) for w in wanted],
        )
        for key, wanted in topics
    ]
    expected = [(as_read(key), tuple(partitions)) for key, partitions in left] if version >= 7 else []
    assert read.forgotten == expected


def test_tagged_fields_of_followers_are_skipped() -> None:
    body = request(17, [(TOPIC_ID, [(0, 0, 5, 0, 1000)])])
    out = bytearray()
    request_writer(1, 17)(
        out,
        {
            "replica_state": {"replica_id": 3, "replica_epoch": 4},
            "max_wait": 500,
            "min_bytes": 1,
            "topics": [
                {
                    "topic_id": TOPIC_ID,
                    "partitions": [
                        {
                            "partition": 0,
                            "fetch_offset": 5,
                            "partition_max_bytes": 1000,
                            "replica_directory_id": TOPIC_ID,
                        }
                    ],
                }
            ],
        },
    )
    assert len(out) > len(body) - 20
    assert read_fetch(out, 0, len(out), 17).topics == [(TOPIC_ID.bytes, [(0, -1, 5, -1, 1000)])]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_anywhere_is_refused(version: int) -> None:
    body = request(version, [(key_of(version, 0), [(3, 0, 7, 0, 9)])], [(key_of(version, 1), [1, 2])])
    for end in range(len(body)):
        with pytest.raises(ProtocolError):
            read_fetch(body[:end], 0, end, version)


class Records:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)

    def bytes(self) -> bytes:
        return self.data


def joined(parts: list[Any]) -> bytes:
    return b"".join(part if isinstance(part, (bytes, bytearray)) else part.bytes() for part in parts)


def by_schema(version: int, session_id: int, error: int, topics: Any) -> bytes:
    out = bytearray()
    answer_writer(1, version)(
        out,
        {
            "error_code": error,
            "session_id": session_id,
            "responses": [
                {
                    "topic": name,
                    "topic_id": TOPIC_ID,
                    "partitions": [
                        {
                            "partition_index": f.partition,
                            "error_code": f.error,
                            "high_watermark": f.high_watermark,
                            "last_stable_offset": f.last_stable_offset,
                            "log_start_offset": f.start_offset,
                            "aborted_transactions": None
                            if f.aborted is None
                            else [{"producer_id": p, "first_offset": o} for p, o in f.aborted],
                            "preferred_read_replica": -1,
                            "records": f.records.bytes() if f.records is not None else b"",
                        }
                        for f in partitions
                    ],
                }
                for name, partitions in topics
            ],
        },
    )
    return bytes(out)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [1, 126, 127, 16382, 16383, LARGE, LARGE + 1, 2_200_000])
def test_an_answer_is_byte_for_byte_what_the_schema_says(version: int, size: int) -> None:
    topics = [
        (
            "t",
            [
                FetchResult(0, 0, 100, 90, 5, Records(b"r" * size), None),
                FetchResult(1, 1, -1, -1, -1, None, None),
                FetchResult(2, 0, 2**40, 2**40, 0, None, ()),
                FetchResult(3, 0, 7, 7, 0, Records(b"x"), [(4, 1), (5, 2)]),
            ],
        ),
        ("u" * 200, [FetchResult(9, 0, 0, 0, 0, None, ())]),
    ]
    parts = fetch_answer(
        version, 77, 0, [(topic_head(version, name, TOPIC_ID.bytes), found) for name, found in topics]
    )
    assert joined(parts) == by_schema(version, 77, 0, topics)


@pytest.mark.parametrize("version", range(7, LAST + 1))
def test_an_error_of_the_session_is_an_answer_without_topics(version: int) -> None:
    assert joined(fetch_answer(version, 0, 71, ())) == by_schema(version, 0, 71, ())


def test_large_records_stay_where_they_are() -> None:
    large = Records(b"r" * (LARGE + 1))
    small = Records(b"s" * LARGE)
    parts = fetch_answer(
        12, 0, 0, [(topic_head(12, "t", b""), [FetchResult(0, 0, 1, 1, 0, r, None) for r in (small, large)])]
    )
    assert large in parts
    assert small not in parts
