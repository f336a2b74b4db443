"""The request handlers, one short file per family; importing this package registers all of them.
They may import ``broker``'s modules and what those may import. Only ``broker.net.connection`` and
``broker.server`` import this package. ``broker.dispatch`` explains what a handler is. Start reading at
``versions`` (a short one), then ``produce`` and ``fetch`` (the hot ones).
"""

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
