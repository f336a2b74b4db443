"""Sizes of partitions and free disk space, which only brokers know and librdkafka does not ask for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from millstream.client.connect import Connection
from millstream.client.protocol.cluster import Cluster
from millstream.client.protocol.link import VERSIONS
from millstream.client.text.position import TopicPartition
from millstream.core.errors import MillstreamError
from millstream.wire.api_keys import DESCRIBE_LOG_DIRS

_TELLS_SPACE = 4  # the version with the free space; Kafka has it since 3.3


@dataclass(slots=True)
class LogDir:
    """One log directory of one broker. ``free`` is None if the broker does not report it."""

    broker: str
    path: str
    free: int | None
    sizes: dict[TopicPartition, int] = field(default_factory=dict)


def log_dirs(connection: Connection) -> list[LogDir]:
    """Every log directory with the replicas in it. Ends at the first broker that does not report its own
    (not authorised, or not supported): a size is useful to know, but never worth a failure."""
    found: list[LogDir] = []
    cluster = Cluster(connection)
    try:
        for link in cluster.every_link():
            version = max(VERSIONS[DESCRIBE_LOG_DIRS], min(_TELLS_SPACE, link.newest(DESCRIBE_LOG_DIRS)))
            for directory in link.request(DESCRIBE_LOG_DIRS, {"topics": None}, version).results:
                free = getattr(directory, "usable_bytes", -1)
                known = LogDir(link.address, directory.log_dir, free if free >= 0 else None)
                for topic in directory.topics:
                    for entry in topic.partitions:
                        if not entry.is_future_key:  # a copy on its way to another disk
                            place = TopicPartition(topic.name, entry.partition_index)
                            known.sizes[place] = entry.partition_size
                found.append(known)
    except (MillstreamError, OSError):
        return found
    finally:
        cluster.close()
    return found


def partition_sizes(dirs: Iterable[LogDir]) -> dict[TopicPartition, int]:
    """Bytes of each partition: the size of its largest replica, because the others are catching up."""
    sizes: dict[TopicPartition, int] = {}
    for directory in dirs:
        for place, size in directory.sizes.items():
            sizes[place] = max(size, sizes.get(place, 0))
    return sizes
