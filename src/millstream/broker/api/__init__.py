"""The request handlers, one short file per family. Importing this package, or any module of it, registers all
of them (``handlers``). They work on the node and may import every module below it. ``serving`` serves the
requests of one connection; only ``broker.server`` uses it. ``broker.handler_types`` says what a handler is
given and returns. Start reading at ``versions`` (a short one), then ``produce`` and ``fetch`` (the hot ones).
"""

from __future__ import annotations

from millstream.broker.api import (
    cluster,
    configs,
    describe_producers,
    features,
    fetch,
    groups,
    list_offsets,
    metadata,
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
from millstream.broker.api.share import acknowledgements as share_acknowledgements
from millstream.broker.api.share import fetch as share_fetch

__all__ = [
    "cluster",
    "configs",
    "describe_producers",
    "features",
    "fetch",
    "groups",
    "list_offsets",
    "metadata",
    "produce",
    "producers",
    "quotas",
    "replicas",
    "security",
    "share_acknowledgements",
    "share_fetch",
    "standby",
    "topics",
    "transactions",
    "versions",
]
