"""Fetch and Produce written and read by hand, held to the schemas."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from millstream.client.protocol.link import (
    PRODUCE_ADDS,
    VERSIONS,
    FetchedPartition,
    Link,
    ProducedPartition,
    _read_fetch,
    _read_newer_produce,
    _read_produce,
)
from millstream.client.text.position import TopicPartition
from millstream.core.errors import RequestFailed
from millstream.wire.api_keys import FETCH, PRODUCE
from millstream.wire.codec import schema_codec as codec


class Tape(Link):
    """A link whose socket is a list."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, api_key: int, body: Any, version: int | None = None) -> None:
        self.sent.append(b"".join(body))


def written(api_key: int, fields: dict[str, Any], version: int | None = None) -> bytes:
    out = bytearray()
    codec.request_writer(api_key, version or VERSIONS[api_key])(out, fields)
    return bytes(out)


def test_a_fetch_request_is_what_the_schema_says() -> None:
    link = Tape()
    wanted = {
        TopicPartition("a", 0): (5, 1000),
        TopicPartition("b", 3): (2**40, 2000),
        TopicPartition("a", 1): (7, 500),
    }
    link.send_fetch(wanted, wait_ms=50, read_committed=True)

    def partition(number: int, offset: int, size: int) -> dict[str, int]:
        return {
            "partition": number,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "log_start_offset": -1,
            "partition_max_bytes": size,
        }

    fields = {
        "replica_id": -1,
        "max_wait": 50,
        "min_bytes": 1,
        "max_bytes": 3500,
        "isolation_level": 1,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [
            {"topic": "a", "partitions": [partition(0, 5, 1000), partition(1, 7, 500)]},
            {"topic": "b", "partitions": [partition(3, 2**40, 2000)]},
        ],
        "rack_id": "",
    }
    assert link.sent == [written(FETCH, fields)]


def fetch_answer() -> bytes:
    out = bytearray()
    partitions = [
        {
            "partition_index": 0,
            "error_code": 0,
            "high_watermark": 90,
            "last_stable_offset": 80,
            "log_start_offset": 3,
            "aborted_transactions": [{"producer_id": 7, "first_offset": 40}],
            "preferred_read_replica": -1,
            "records": b"some records",
        },
        {"partition_index": 1, "error_code": 1, "aborted_transactions": None, "records": None},
    ]
    fields = {"responses": [{"topic": "täg", "partitions": partitions}]}
    codec.answer_writer(FETCH, VERSIONS[FETCH])(out, fields)
    return bytes(out)


def test_a_fetch_answer_is_read_as_the_schema_writes_it() -> None:
    first, second = _read_fetch(memoryview(fetch_answer()))
    assert first == FetchedPartition("täg", 0, 0, 90, 80, 3, ((7, 40),), memoryview(b"some records"))
    assert (second.partition, second.code, second.aborted, bytes(second.records)) == (1, 1, (), b"")


def test_a_fetch_answer_that_is_cut_off_is_an_error() -> None:
    whole = fetch_answer()
    for size in range(len(whole)):
        with pytest.raises((ValueError, Exception)):
            _read_fetch(memoryview(whole[:size]))


def test_an_error_of_the_whole_fetch_is_raised() -> None:
    with pytest.raises(RequestFailed, match="FETCH_SESSION_ID_NOT_FOUND"):
        _read_fetch(memoryview(pack(">ihii", 0, 70, 0, 0)))


def test_a_produce_request_is_what_the_schema_says() -> None:
    link = Tape()
    batches = {TopicPartition("a", 2): bytearray(b"one"), TopicPartition("a", 0): bytearray(b"two")}
    link.send_produce(batches, acks=-1, timeout_ms=900)
    partitions = [{"index": 2, "records": b"one"}, {"index": 0, "records": b"two"}]
    fields = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 900,
        "topic_data": [{"name": "a", "partition_data": partitions}],
    }
    assert link.sent == [written(PRODUCE, fields)]

    for transactional_id in ("tid", None):
        link = Tape()
        link.send_produce(batches, acks=-1, timeout_ms=900, transactional_id=transactional_id, adds=True)
        fields["transactional_id"] = transactional_id
        assert link.sent == [written(PRODUCE, fields, PRODUCE_ADDS)]


@pytest.mark.parametrize("version", [VERSIONS[PRODUCE], PRODUCE_ADDS])
def test_a_produce_answer_is_read_as_the_schema_writes_it(version: int) -> None:
    out = bytearray()
    partitions = [
        {"index": 0, "error_code": 0, "base_offset": 12, "log_append_time": -1, "log_start_offset": 0},
        {
            "index": 1,
            "error_code": 87,
            "base_offset": -1,
            "log_append_time": -1,
            "record_errors": [{"batch_index": 3, "batch_index_error_message": "no key"}],
            "error_message": None,
        },
    ]
    fields = {"responses": [{"name": "a", "partition_responses": partitions}]}
    codec.answer_writer(PRODUCE, version)(out, fields)
    expected = [ProducedPartition("a", 0, 0, 12, ""), ProducedPartition("a", 1, 87, -1, "no key")]
    if version == VERSIONS[PRODUCE]:
        assert _read_produce(memoryview(out)) == expected
    else:
        assert _read_newer_produce(memoryview(out), version) == expected
