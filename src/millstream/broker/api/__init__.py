"""Request handlers, a short file per family; importing this package registers them all."""

from __future__ import annotations

from millstream.broker.api import (
    cluster,
    configs,
    consumer_groups,
    describe_producers,
    features,
    fetch,
    groups,
    list_offsets,
    metadata,
    offsets,
    produce,
    producers,
    quotas,
    replicas,
    security,
    standby,
    topics,
    transactions,
    versions,
)

__all__ = [
    "cluster",
    "configs",
    "consumer_groups",
    "describe_producers",
    "features",
    "fetch",
    "groups",
    "list_offsets",
    "metadata",
    "offsets",
    "produce",
    "producers",
    "quotas",
    "replicas",
    "security",
    "standby",
    "topics",
    "transactions",
    "versions",
]
