"""Request handlers, a short file per family; importing this package registers them all."""

from __future__ import annotations

from millstream.broker.api import (
    cluster,
    configs,
    describe_producers,
    fetch,
    groups,
    list_offsets,
    metadata,
    offsets,
    produce,
    producers,
    standby,
    topics,
    transactions,
    versions,
)

__all__ = [
    "cluster",
    "configs",
    "describe_producers",
    "fetch",
    "groups",
    "list_offsets",
    "metadata",
    "offsets",
    "produce",
    "producers",
    "standby",
    "topics",
    "transactions",
    "versions",
]
