"""Measures a job's lag at the moment of the call: Spark's own figure is as old as its last batch."""

from __future__ import annotations

import threading
from collections.abc import Callable

from millstream.client.connect import Connection
from millstream.client.insight.lag import lag_by_topic, lag_of_group
from millstream.client.protocol.cluster import Cluster
from millstream.core.errors import MillstreamError
from millstream.pipeline.connector.offsets import Offsets

_PATIENCE_S = 1.0  # how long to wait for a restarting broker; after that the lag is unknown


class LagMeter:
    """Measures over a separate connection, for the threads that report, so that batches and measurements
    never wait for each other."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._closed = False

    def of_group(self, group: str) -> dict[str, int]:
        """By topic, how far the group's committed offsets are behind; empty if that is not known."""
        return self._asked(lambda cluster: lag_of_group(cluster, group))

    def of_offsets(self, offsets: Offsets) -> dict[str, int]:
        """By topic, how far these offsets are behind; empty if that is not known."""
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
