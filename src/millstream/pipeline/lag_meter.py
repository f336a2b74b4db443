"""How far a job is behind, measured when somebody asks: Spark's own figure is as old as its batch."""

from __future__ import annotations

import threading
from collections.abc import Callable

from millstream.client.cluster import Cluster
from millstream.client.connect import Connection
from millstream.client.lag import lag_by_topic
from millstream.errors import MillstreamError
from millstream.pipeline.offsets import Offsets

_PATIENCE_S = 1.0  # with a broker that was restarted; who is away for longer is not waited for


class LagMeter:
    """Over a connection of its own, for threads that report: batches must not wait for it, nor it for
    them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._closed = False

    def of_group(self, group: str) -> dict[str, int]:
        """By topic, behind what the group has committed; empty if that is not known."""

        def ask(cluster: Cluster) -> dict[str, int]:
            commits = cluster.commits(group, require_stable=False)
            return lag_by_topic(cluster, {place: commit.offset for place, commit in commits.items()})

        return self._asked(ask)

    def of_offsets(self, offsets: Offsets) -> dict[str, int]:
        """The same, behind these offsets."""
        return self._asked(lambda cluster: lag_by_topic(cluster, offsets))

    def _asked(self, ask: Callable[[Cluster], dict[str, int]]) -> dict[str, int]:
        with self._lock:
            if self._closed:
                return {}
            if self._cluster is None:
                self._cluster = Cluster(self._connection, patience=_PATIENCE_S)
            try:
                return ask(self._cluster)
            except MillstreamError:
                return {}

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._cluster is not None:
                self._cluster.close()
