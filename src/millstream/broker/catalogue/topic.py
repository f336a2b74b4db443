"""A topic as the catalogue knows it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from millstream.core.topic_config import TopicConfig

MAX_PARTITIONS = 10_000  # per topic


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. Immutable: a change of the topic puts another ``Topic`` into the catalogue."""

    name: str
    id: uuid.UUID
    partitions: int
    overrides: Mapping[str, str]  # the topic's own settings, as text by public name
    config: TopicConfig  # the same on top of the broker's defaults
