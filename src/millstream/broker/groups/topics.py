"""The topics that exist now, as groups see them. No I/O."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Protocol

Partition = tuple[bytes, int]  # the topic's id, the partition's index


class TopicShape(Protocol):
    """The parts of a topic that matter here."""

    @property
    def id(self) -> uuid.UUID: ...

    @property
    def partitions(self) -> int: ...


class Topics(Protocol):
    """The topics that exist now. ``topics_version`` changes with them."""

    topics_version: int

    @property
    def topics(self) -> Mapping[str, TopicShape]: ...


def existing(names: Iterable[str], topics: Topics) -> dict[str, tuple[bytes, int]]:
    """Those of the names that are topics: id and number of partitions of each."""
    there = topics.topics
    return {
        name: (topic.id.bytes, topic.partitions) for name in names if (topic := there.get(name)) is not None
    }
