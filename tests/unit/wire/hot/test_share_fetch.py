"""The response to ShareFetch that is written by hand is what kio would write."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.wire.codec.schema_codec import answer_writer
from millstream.wire.hot.fetch import whole
from millstream.wire.hot.share_fetch import ShareFetched, share_fetch_answer

SHARE_FETCH = 78
texts = st.none() | st.text(max_size=10)
codes = st.integers(0, 200)
ranges = st.tuples(st.integers(0, 1 << 50), st.integers(0, 1 << 50), st.integers(1, 100))


class Stored:
    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = data

    def bytes(self) -> bytes:
        return self._data


partitions = st.builds(
    ShareFetched,
    st.integers(0, 1000),
    codes,
    texts,
    codes,
    texts,
    st.none() | st.binary(min_size=1, max_size=50).map(Stored) | st.just(Stored(bytes(100_000))),
    st.lists(ranges, max_size=3),
)


@pytest.mark.parametrize("version", [1, 2])
@given(
    error=codes,
    message=texts,
    lock=st.integers(0, 1 << 30),
    topics=st.dictionaries(st.uuids(), st.lists(partitions, max_size=3), max_size=3),
)
def test_the_same_bytes(
    version: int, error: int, message: str | None, lock: int, topics: dict[uuid.UUID, list[ShareFetched]]
) -> None:
    expected = bytearray()
    fields: dict[str, Any] = {
        "throttle_time": 0,
        "error_code": error,
        "error_message": message,
        "acquisition_lock_timeout": lock,
        "responses": [
            {
                "topic_id": topic_id,
                "partitions": [
                    {
                        "partition_index": each.partition,
                        "error_code": each.error,
                        "error_message": each.message,
                        "acknowledge_error_code": each.acknowledge_error,
                        "acknowledge_error_message": each.acknowledge_message,
                        "current_leader": {"leader_id": -1, "leader_epoch": -1},
                        "records": b"" if each.records is None else each.records.bytes(),
                        "acquired_records": [
                            {"first_offset": first, "last_offset": last, "delivery_count": count}
                            for first, last, count in each.acquired
                        ],
                    }
                    for each in of_topic
                ],
            }
            for topic_id, of_topic in topics.items()
        ],
        "node_endpoints": [],
    }
    answer_writer(SHARE_FETCH, version)(expected, fields)
    parts = share_fetch_answer(error, message, lock, {t.bytes: found for t, found in topics.items()})
    assert b"".join(p if isinstance(p, (bytes, bytearray)) else whole(p) for p in parts) == expected
