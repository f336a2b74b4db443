"""Which part of a partition is on its broker's disk, and which is in the archive (Kafka's tiered storage)."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from millstream.client.connect import Connection
from millstream.client.protocol.cluster import Cluster, by_topic
from millstream.client.text.position import TopicPartition
from millstream.core.errors import MillstreamError
from millstream.wire.api_keys import LIST_OFFSETS

EARLIEST_LOCAL = -4
LATEST_TIERED = -5
_VERSION = 9  # the first version of ListOffsets that knows both


class Extent(NamedTuple):
    local_start: int  # everything from here on is on the broker's disk
    archived_end: int  # everything before it is in the archive, as far as that keeps it


def archived_extents(
    connection: Connection, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Extent]:
    """The extents of partitions with records in an archive. Brokers that don't report them are left out."""
    found: dict[int, dict[TopicPartition, int]] = {EARLIEST_LOCAL: {}, LATEST_TIERED: {}}
    cluster = Cluster(connection)
    try:
        for link, led in cluster.by_leader(partitions).items():
            if link.newest(LIST_OFFSETS) < _VERSION:
                continue
            for which, offsets in found.items():
                asked = ((p, {"partition_index": p.partition, "timestamp": which}) for p in led)
                fields = {"replica_id": -1, "isolation_level": 0, "topics": by_topic(asked)}
                for topic in link.request(LIST_OFFSETS, fields, _VERSION).topics:
                    for entry in topic.partitions:
                        if not entry.error_code and entry.offset >= 0:
                            offsets[TopicPartition(topic.name, entry.partition_index)] = entry.offset
    except (MillstreamError, OSError):
        pass  # useful to know, but never worth a failure
    finally:
        cluster.close()
    local, tiered = found.values()
    return {p: Extent(local[p], last + 1) for p, last in tiered.items() if p in local}
