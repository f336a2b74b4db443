"""What brokers say to each other, and a standby's Fetch against kio's schemas."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.core.errors import ProtocolError
from millstream.wire.api_keys import APIS, PRIVATE
from millstream.wire.codec.schema_codec import answer_writer, request_reader
from millstream.wire.hot.replica import VERSION, fetch_request, read_copied
from millstream.wire.standby import read_message, write_message

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("cde"), inner, max_size=2),
    max_leaves=8,
)


@given(st.dictionaries(st.text("xyz"), VALUES, max_size=4), st.binary())
def test_a_message_comes_out_as_it_went_in(fields: dict[str, object], attached: bytes) -> None:
    found, rest = read_message(write_message(fields, attached))
    assert found == fields
    assert rest == attached


@pytest.mark.parametrize("body", [b"", b"\0\0\0\5{}", b"\0\0\0\2[]", b"\0\0\0\1{", b"\xff\xff\xff\xff{}"])
def test_what_is_no_message_is_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_message(body)


def test_the_keys_are_none_of_kafkas() -> None:
    assert not APIS.keys() & PRIVATE.keys()


def test_a_standbys_fetch_reads_as_kafkas() -> None:
    topic = uuid.uuid4()
    body = fetch_request({topic.bytes: [(3, 700), (4, 0)]}, most=1000)
    request, size = request_reader(1, VERSION)(body, 0)
    assert size == len(body)
    assert (request.replica_id, request.max_bytes, request.session_epoch) == (1, 1000, -1)
    assert request.topics[0].topic_id == topic
    assert [(p.partition, p.fetch_offset) for p in request.topics[0].partitions] == [(3, 700), (4, 0)]


def test_the_answer_to_it_is_read_whatever_stands_in_it() -> None:
    topic = uuid.uuid4()
    out = bytearray()
    partitions = [
        {"partition_index": 3, "high_watermark": 9, "records": b"batches"},
        {"partition_index": 4, "aborted_transactions": [{"producer_id": 1, "first_offset": 2}]},
        {"partition_index": 5, "error_code": 100, "diverging_epoch": {"epoch": 1, "end_offset": 2}},
    ]
    answer_writer(1, VERSION)(out, {"responses": [{"topic_id": topic, "partitions": partitions}]})
    found = list(read_copied(memoryview(out)))
    assert [(f.topic_id, f.partition, f.error, bytes(f.records)) for f in found] == [
        (topic.bytes, 3, 0, b"batches"),
        (topic.bytes, 4, 0, b""),
        (topic.bytes, 5, 100, b""),
    ]
    with pytest.raises(ProtocolError):
        list(read_copied(memoryview(out)[:20]))
