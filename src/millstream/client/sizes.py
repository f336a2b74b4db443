"""How large partitions are on disk, which only their brokers know and librdkafka does not ask."""

from __future__ import annotations

from collections.abc import Collection

from millstream.client.cluster import Cluster
from millstream.client.connect import Connection
from millstream.client.position import TopicPartition
from millstream.client.raw import DESCRIBE_LOG_DIRS
from millstream.errors import MillstreamError


def partition_sizes(
    connection: Connection, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Bytes of each partition at its leader; those that no broker tells are left out."""
    sizes: dict[TopicPartition, int] = {}
    cluster = Cluster(connection)
    try:
        for link, led in cluster.by_leader(partitions).items():
            topics: dict[str, list[int]] = {}
            for partition in led:
                topics.setdefault(partition.topic, []).append(partition.partition)
            asked = [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()]
            for directory in link.request(DESCRIBE_LOG_DIRS, {"topics": asked}).results:
                for topic in directory.topics:
                    for entry in topic.partitions:
                        if not entry.is_future_key:  # a copy on its way to another disk
                            sizes[TopicPartition(topic.name, entry.partition_index)] = entry.partition_size
    except MillstreamError:
        return sizes  # not permitted, or not served: a size is good to know, and never worth a failure
    finally:
        cluster.close()
    return sizes
