"""DescribeProducers: which producers write to a partition, and whose transaction is open there.

It serves to find hanging transactions: those that are open in a partition and unknown to every
coordinator.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from millstream.broker.api.handlers import serves
from millstream.broker.handler_types import Client
from millstream.broker.node import Node
from millstream.core.kafka_errors import NONE, UNKNOWN_TOPIC_OR_PARTITION
from millstream.core.loop_slices import sliced
from millstream.wire.api_keys import DESCRIBE_PRODUCERS
from millstream.wire.codec.schema_codec import Answer, Lazily


@serves(DESCRIBE_PRODUCERS, versions=(0, 0))
def describe_producers(node: Node, request: Any, client: Client) -> Answer:
    def describe(topic: str, index: int) -> dict[str, Any]:
        partition = node.topics.partition(topic, index)
        if partition is None:
            message = f"there is no partition {index} of a topic {topic}"
            return {
                "partition_index": index,
                "error_code": UNKNOWN_TOPIC_OR_PARTITION,
                "error_message": message,
            }
        if (offline := partition.log.offline) is not None:
            return {"partition_index": index, "error_code": offline.code, "error_message": str(offline)}
        producers = [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_ms,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": producer.first_offset,
            }
            for producer in partition.log.describe_producers()
        ]
        return {"partition_index": index, "error_code": NONE, "active_producers": producers}

    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return {
        "topics": [
            {
                "name": name,
                "partitions": Lazily(tuple(indexes), partial(describe, name)),
            }
            for name, indexes in sliced(asked.items())
        ]
    }
