"""The partitions of a group's member in the form of a response."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.broker.groups.topics import Partition
from millstream.broker.node import Node


def assignment(node: Node, partitions: Iterable[Partition], *, named: bool = False) -> dict[str, Any]:
    """Partitions by topic. Those of deleted topics are left out, as they have no name."""
    indexes: dict[bytes, list[int]] = {}
    for topic, index in sorted(partitions):
        indexes.setdefault(topic, []).append(index)
    found = []
    for topic, of_topic in indexes.items():
        hosted = node.hosted.get(topic)
        if hosted is not None:
            name = {"topic_name": hosted.name} if named else {}
            found.append({"topic_id": hosted.id, **name, "partitions": of_topic})
    return {"topic_partitions": found}
