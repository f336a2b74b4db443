"""The topics that are served, to look up by name or by id."""

from __future__ import annotations

from collections.abc import Iterator

from millstream.broker.topics.partition import LocalTopic, Partition
from millstream.wire.frame import TopicKey


class LocalTopics:
    """All topics of one broker that clients see."""

    def __init__(self) -> None:
        self.by_key: dict[TopicKey, LocalTopic] = {}  # each topic under its name and under its id
        self.version = 0  # incremented whenever a topic is added, removed or altered

    def __len__(self) -> int:
        return len(self.by_key) // 2

    def __iter__(self) -> Iterator[LocalTopic]:
        """Every topic once. The topics may change meanwhile."""
        return iter([topic for key, topic in self.by_key.items() if isinstance(key, str)])

    def partitions(self) -> list[Partition]:
        return [partition for topic in self for partition in topic.partitions]

    def partition(self, topic: str, index: int) -> Partition | None:
        hosted = self.by_key.get(topic)
        if hosted is None or not 0 <= index < len(hosted.partitions):
            return None
        return hosted.partitions[index]

    def add(self, topic: LocalTopic) -> None:
        self.version += 1
        self.by_key[topic.name] = self.by_key[topic.id_bytes] = topic

    def remove(self, name: str) -> LocalTopic | None:
        topic = self.by_key.pop(name, None)
        if topic is not None:
            self.version += 1
            del self.by_key[topic.id_bytes]
        return topic
