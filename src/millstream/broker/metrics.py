"""What the broker counts. On the hot path these are plain additions; names, labels and text are made only
when somebody asks (``broker.http``)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from millstream.wire.apis import APIS, PRIVATE, name_of

if TYPE_CHECKING:
    from millstream.broker.server import Server


NAMED_TRANSACTIONS = 20


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
        """Cumulative, as Prometheus wants them."""
        found = []
        below = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            found.append((bound, below))
        return found


class Metrics:
    """One broker's counters since it started."""

    def __init__(self) -> None:
        self.requests = [0] * (max((*APIS, *PRIVATE)) + 1)  # by api key
        self.bytes_in = 0
        self.bytes_out = 0
        self.connections_opened = 0
        self.connections_refused = 0
        self.protocol_errors = 0
        self.bugs = 0
        self.turn_seconds = Histogram(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5)
        self.sync_seconds = Histogram(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
        self.handler_seconds = Histogram(0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)


class Collector:
    """Turns one server's state into Prometheus's metric families, when asked."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        server = self._server
        node = server.node
        metrics = node.metrics

        def counter(name: str, doc: str, value: float) -> Any:
            return CounterMetricFamily(f"millstream_{name}", doc, value=value)

        def gauge(name: str, doc: str, value: float) -> Any:
            return GaugeMetricFamily(f"millstream_{name}", doc, value=value)

        requests = CounterMetricFamily("millstream_requests", "Requests received.", labels=["api"])
        for api_key, count in enumerate(metrics.requests):
            if count:
                requests.add_metric([name_of(api_key)], count)
        yield requests
        yield counter("received_bytes", "Bytes read from clients.", metrics.bytes_in)
        yield counter("sent_bytes", "Bytes sent to clients.", metrics.bytes_out)
        yield gauge("connections", "Clients connected.", len(server.connections))
        yield counter("connections_opened", "Connections accepted.", metrics.connections_opened)
        yield counter("connections_refused", "Connections over max.connections.", metrics.connections_refused)
        yield counter("protocol_errors", "Connections closed over bad requests.", metrics.protocol_errors)
        yield gauge("request_buffer_bytes", "Memory of requests on their way in.", server.buffers.used)
        yield gauge("long_polls", "Fetch requests waiting for records.", len(node.deadlines))
        yield gauge("fetch_sessions", "Incremental fetch sessions.", len(node.sessions))
        yield counter("fetch_sessions_evicted", "Sessions ended to make room.", node.sessions.evicted)
        yield gauge("topics", "Topics served.", len(node.hosted) // 2)

        for name, doc, histogram in (
            ("turn_seconds", "From a turn's first request to its last answer.", metrics.turn_seconds),
            ("sync_seconds", "Disk syncs.", metrics.sync_seconds),
            ("handler_seconds", "Requests that had to wait for something.", metrics.handler_seconds),
        ):
            yield HistogramMetricFamily(
                f"millstream_{name}", doc, buckets=histogram.buckets(), sum_value=histogram.total
            )
        yield from self._standby(CounterMetricFamily, GaugeMetricFamily)
        yield from self._topics(CounterMetricFamily, GaugeMetricFamily)

    def _standby(self, counter: Any, gauge: Any) -> Iterator[Any]:
        """How far a copy is behind: as the standby knows it, and as its leader does."""
        node = self._server.node
        if node.standby is not None:
            status = node.standby.status()
            for name, doc in (
                ("connected", "1: the leader is there."),
                ("behind_records", "Records that the leader has and this copy has not."),
                ("behind_bytes", "Bytes of them."),
                ("behind_seconds", "Since this copy last had everything."),
                ("silent_seconds", "Since the leader was last heard of."),
            ):
                yield gauge(f"millstream_standby_{name}", doc, value=float(status[name]))
            yield counter("millstream_standby_copied_bytes", "Bytes copied.", value=status["copied_bytes"])
            yield counter("millstream_standby_breaks", "Times the leader was lost.", value=status["breaks"])
        yield gauge("millstream_fenced", "1: replaced by another broker.", value=float(bool(node.fenced_by)))
        labels = ["standby"]
        records = gauge("millstream_follower_behind_records", "Records a standby has not yet.", labels=labels)
        seconds = gauge("millstream_follower_behind_seconds", "Since it last had everything.", labels=labels)
        now = node.clock.monotonic()
        for follower in node.followers:
            status = follower.status(now)
            records.add_metric([follower.name], status["behind_records"])
            seconds.add_metric([follower.name], status["behind_seconds"])
        yield from (records, seconds)

    def _topics(self, counter: Any, gauge: Any) -> Iterator[Any]:
        bytes_in = counter("millstream_topic_received_bytes", "Record bytes appended.", labels=["topic"])
        bytes_out = counter("millstream_topic_sent_bytes", "Record bytes fetched.", labels=["topic"])
        records = counter("millstream_topic_records", "Records appended.", labels=["topic"])
        labels = ["topic", "partition"]
        end = gauge("millstream_partition_end_offset", "The next offset to be given.", labels=labels)
        start = gauge("millstream_partition_start_offset", "The oldest offset kept.", labels=labels)
        size = gauge("millstream_partition_size_bytes", "Bytes of log kept.", labels=labels)
        unsynced = gauge("millstream_partition_unsynced_records", "Written, not synced.", labels=labels)
        failed = gauge("millstream_partition_failed", "1: takes no more writes.", labels=labels)
        for topic in self._server.node.topics():
            bytes_in.add_metric([topic.name], topic.bytes_in)
            bytes_out.add_metric([topic.name], topic.bytes_out)
            records.add_metric([topic.name], sum(p.log.end_offset - p.first_offset for p in topic.partitions))
            for partition in topic.partitions:
                at = [topic.name, str(partition.index)]
                log = partition.log
                end.add_metric(at, log.end_offset)
                start.add_metric(at, log.log_start_offset)
                size.add_metric(at, log.size_bytes)
                unsynced.add_metric(at, log.written_offset - log.synced_offset)
                failed.add_metric(at, float(log.failed is not None))
        yield from (bytes_in, bytes_out, records, end, start, size, unsynced, failed)
        yield from self._groups(gauge)
        yield from self._transactions(counter, gauge)

    def _groups(self, gauge: Any) -> Iterator[Any]:
        lag = gauge(
            "millstream_group_lag_records",
            "Records after a group's committed offset.",
            labels=["group", "topic", "partition"],
        )
        node = self._server.node
        for group in node.catalogue.groups_with_offsets():
            for topic, partitions in node.catalogue.offsets_of(group).items():
                for index, committed in partitions.items():
                    partition = node.partition(topic, index)
                    if partition is not None:
                        behind = max(0, partition.log.written_offset - committed.offset)
                        lag.add_metric([group, topic, str(index)], behind)
        yield lag

    def _transactions(self, counter: Any, gauge: Any) -> Iterator[Any]:
        """Who holds readers of committed records back, where, and since when. Of ids there may be any number:
        only the oldest are told by name."""
        node = self._server.node
        now_ms = node.clock.now_ms()
        counted = node.transactions.counters
        for name, doc, value in (
            ("committed", "Transactions committed.", counted.committed),
            ("aborted", "Transactions aborted, by whomever.", counted.aborted),
            ("timed_out", "Transactions aborted because they took too long.", counted.timed_out),
            ("taken_over", "Transactions aborted because another producer came.", counted.taken_over),
            ("fenced_requests", "Requests of producers that were replaced.", counted.fenced),
        ):
            yield counter(f"millstream_transactions_{name}", doc, value=value)
        unfinished = node.transactions.open_transactions()
        yield gauge("millstream_transactions_open", "Transactions not ended.", value=len(unfinished))
        oldest = max(0, now_ms - unfinished[0].start_ms) / 1000 if unfinished else 0.0
        yield gauge("millstream_transactions_oldest_seconds", "Age of the oldest of them.", value=oldest)
        age = gauge(
            "millstream_transaction_open_seconds",
            f"Age of the {NAMED_TRANSACTIONS} oldest transactions that are not ended.",
            labels=["transactional_id"],
        )
        for transaction in unfinished[:NAMED_TRANSACTIONS]:
            age.add_metric([transaction.name], max(0, now_ms - transaction.start_ms) / 1000)
        yield age
        yield gauge(
            "millstream_transaction_markers_unwritten",
            "Decisions that a partition could not be told yet.",
            value=len(node.transactions.markers.unwritten()),
        )
        labels = ["topic", "partition"]
        behind = gauge(
            "millstream_partition_unstable_records",
            "Records that readers of committed records may not see yet.",
            labels=labels,
        )
        since = gauge(
            "millstream_partition_unstable_seconds",
            "Age of the oldest transaction that holds them back.",
            labels=labels,
        )
        for partition in node.partitions():
            log = partition.log
            if log.last_stable_offset < log.written_offset:
                at = [partition.topic.name, str(partition.index)]
                behind.add_metric(at, log.written_offset - log.last_stable_offset)
                begun = [started_ms for _, started_ms in log.transactions.open.values()]
                since.add_metric(at, max(0, now_ms - min(begun, default=now_ms)) / 1000)
        yield from (behind, since)
