"""The answer to Metadata, held to kio's schema in every version."""

from __future__ import annotations

import uuid

import pytest

from millstream.wire.codec.schema_codec import answer_writer
from millstream.wire.hot.metadata import NOT_ASKED, metadata_answer, metadata_topic

TOPIC_ID = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")


@pytest.mark.parametrize("version", range(14))
@pytest.mark.parametrize("operations", [NOT_ASKED, 3576])
@pytest.mark.parametrize("partitions", [1, 3, 200])
def test_an_answer_is_byte_for_byte_what_the_schema_says(
    version: int, operations: int, partitions: int
) -> None:
    topics = [
        metadata_topic(version, 0, "t", TOPIC_ID.bytes, 4, [7] * partitions, operations),
        metadata_topic(version, 3, "missing", bytes(16), 4, (), operations),
        metadata_topic(version, 100, None, TOPIC_ID.bytes, 4, (), operations),
    ]
    brokers = [(4, "127.0.0.1", 9092), (5, "standby", 9093)]
    written = metadata_answer(version, brokers, 4, "cluster", topics, operations)

    out = bytearray()
    answer_writer(3, version)(
        out,
        {
            "brokers": [
                {"node_id": 4, "host": "127.0.0.1", "port": 9092, "rack": None},
                {"node_id": 5, "host": "standby", "port": 9093, "rack": None},
            ],
            "cluster_id": "cluster",
            "controller_id": 4,
            "cluster_authorized_operations": operations,
            "topics": [
                {
                    "error_code": 0,
                    "name": "t",
                    "topic_id": TOPIC_ID,
                    "topic_authorized_operations": operations,
                    "partitions": [
                        {
                            "partition_index": index,
                            "leader_id": 4,
                            "leader_epoch": 7,
                            "replica_nodes": [4],
                            "isr_nodes": [4],
                        }
                        for index in range(partitions)
                    ],
                },
                {"error_code": 3, "name": "missing", "topic_authorized_operations": operations},
                {
                    "error_code": 100,
                    "name": None if version >= 12 else "",
                    "topic_id": TOPIC_ID,
                    "topic_authorized_operations": operations,
                },
            ],
        },
    )
    assert written == bytes(out)
