"""The counters and histograms that connections, turns and syncs add to.

On the hot path, counting is a plain addition. Names, labels and text are made only when metrics are requested
(``broker.metrics``).
"""

from __future__ import annotations

from bisect import bisect_left

from millstream.wire.api_keys import APIS, PRIVATE


class Histogram:
    """Counts by upper bound, in seconds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, *bounds: float) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, int]]:
        """The cumulative counts that Prometheus expects, by upper bound."""
        found = []
        below = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            found.append((bound, below))
        return found


class BrokerCounters:
    """What one broker has counted since it started."""

    def __init__(self) -> None:
        self.requests = [0] * (max((*APIS, *PRIVATE)) + 1)  # by api key
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections_opened = 0
        self.connections_refused = 0
        self.protocol_errors = 0
        self.bugs = 0
        self.throttled = 0  # requests over a client's quota
        self.throttled_seconds = 0.0
        self.storage_errors = 0  # appends, writes and syncs that failed on the disk
        self.turn_seconds = Histogram(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5)
        self.sync_seconds = Histogram(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
        self.handler_seconds = Histogram(0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)

    def synced(self, seconds: float, failed: bool) -> None:
        """Count one sync of a log."""
        self.sync_seconds.observe(seconds)
        self.storage_errors += failed
