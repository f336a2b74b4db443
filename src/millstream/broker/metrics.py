"""The broker's counters and histograms, and their export as Prometheus metrics.

On the hot path, counting is a plain addition. Names, labels and text are made only when the metrics are
requested (``broker.http``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from millstream.broker.overload.description import dropped
from millstream.broker.upkeep.stopped_logs import stopped_partitions
from millstream.log.archive.copy import unarchived_bytes
from millstream.wire.api_keys import APIS, PRIVATE, name_of

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
        """The cumulative counts that Prometheus expects, by upper bound."""
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
        self.throttled = 0  # requests over a client's quota
        self.throttled_seconds = 0.0
        self.storage_errors = 0  # appends, writes and syncs that failed on the disk
        self.turn_seconds = Histogram(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5)
        self.sync_seconds = Histogram(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
        self.handler_seconds = Histogram(0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)


class Collector:
    """Builds Prometheus's metric families from one server's state, on each request for metrics."""

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
        yield counter(
            "connections_refused",
            "Connections over max.connections or the file limit.",
            metrics.connections_refused,
        )
        yield counter("protocol_errors", "Connections closed over bad requests.", metrics.protocol_errors)
        yield gauge("request_buffer_bytes", "Memory of requests on their way in.", server.buffers.used)
        yield gauge("long_polls", "Fetch requests waiting for records.", len(node.deadlines))
        yield gauge("fetch_sessions", "Incremental fetch sessions.", len(node.sessions))
        yield counter("fetch_sessions_evicted", "Sessions ended to make room.", node.sessions.evicted)
        yield gauge("topics", "Topics served.", len(node.hosted) // 2)
        yield counter(
            "storage_errors", "Appends, writes and syncs that the disk refused.", metrics.storage_errors
        )
        yield gauge("disk_full", "1: records are refused until there is room.", float(bool(node.full)))
        yield gauge("memory_bytes", "What topics in memory have there.", node.memory.used)
        yield gauge("memory_limit_bytes", "What they may have, together.", node.memory.limit)
        yield counter("memory_spilled_bytes", "Bytes that went to the disk.", node.memory.spilled_bytes)
        yield gauge("memory_full", "1: their records are refused.", float(node.memory.full is not None))
        yield counter("throttled_requests", "Requests over their client's quota.", metrics.throttled)
        yield counter("throttled_seconds", "For how long they were put off.", metrics.throttled_seconds)
        yield gauge("held_requests", "Produce requests held for consumers.", len(node.backpressure))

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
        """How far standbys are behind: as a standby knows it, and as its leader does."""
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
        in_sync = "This broker and its standbys that keep up."
        yield gauge("millstream_in_sync_replicas", in_sync, value=float(node.in_sync.count))
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
        offline = gauge(
            "millstream_partition_offline", "1: records are missing; not served before a person decides.",
            labels=labels,
        )  # fmt: skip
        yield gauge(
            "millstream_partitions_stopped",
            "Partitions that take no writes until the broker is restarted.",
            value=len(stopped_partitions(self._server.node)),
        )
        missed = counter(
            "millstream_partition_missed_reads", "Fetches of records deleted before.", labels=labels
        )
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
                offline.add_metric(at, float(log.offline is not None))
                missed.add_metric(at, partition.missed_reads)
        yield from (bytes_in, bytes_out, records, end, start, size, unsynced, failed, offline, missed)
        yield from self._archive(counter, gauge)
        yield from self._compaction(counter, gauge)
        yield from self._overload(counter, gauge)
        yield from self._horizons(gauge)
        yield from self._groups(counter, gauge)
        yield from self._transactions(counter, gauge)

    def _archive(self, counter: Any, gauge: Any) -> Iterator[Any]:
        """Copies to the archive, segments still to be copied, and reads. Nothing without an archive."""
        archiving = self._server.node.archiving
        if archiving is None:
            return
        blocks = archiving.blocks
        for name, doc, value in (
            ("copied_bytes", "Bytes of log copied to the archive.", archiving.copied_bytes),
            ("copied_segments", "Segments copied to the archive.", archiving.copied_segments),
            ("deleted_segments", "Segments deleted in the archive.", archiving.deleted_segments),
            ("copy_errors", "Rounds of archiving that failed.", archiving.copy_errors),
            ("read_bytes", "Bytes of log served from the archive.", archiving.read_bytes),
            ("read_errors", "Reads from the archive that failed.", archiving.read_errors),
            ("downloaded_bytes", "Bytes fetched from the archive.", blocks.downloaded),
            ("cache_hits", "Blocks that were in memory, or on their way.", blocks.hits),
            ("cache_misses", "Blocks that were not.", blocks.misses),
        ):
            yield counter(f"millstream_archive_{name}", doc, value=value)
        yield gauge("millstream_archive_cache_bytes", "Memory that blocks take.", value=blocks.held)
        yield gauge("millstream_archive_away", "1: the archive does not answer.", value=archiving.is_away)
        labels = ["topic", "partition"]
        archived = gauge("millstream_partition_archived_bytes", "Bytes of log in the archive.", labels=labels)
        behind = gauge(
            "millstream_partition_unarchived_bytes", "Bytes of sealed segments not there yet.", labels=labels
        )
        local = gauge("millstream_partition_local_start_offset", "The oldest offset here.", labels=labels)
        for partition in self._server.node.partitions():
            log = partition.log
            if log.config.remote_storage_enable or log.archive.segments:
                at = [partition.topic.name, str(partition.index)]
                archived.add_metric(at, log.archive.size)
                behind.add_metric(at, unarchived_bytes(log))
                local.add_metric(at, log.local_start_offset)
        yield from (archived, behind, local)

    def _compaction(self, counter: Any, gauge: Any) -> Iterator[Any]:
        """Compacted topics: how dirty their logs are, and what compaction has done."""
        cleaner, node = self._server.cleaner, self._server.node
        for name, doc, value in (
            ("passes", "Passes over a log that were finished.", cleaner.passes),
            ("failures", "Passes that failed.", cleaner.failures),
            ("read_bytes", "Bytes of log before they were compacted.", cleaner.bytes_read),
            ("left_bytes", "Bytes of them that were left.", cleaner.bytes_written),
        ):
            yield counter(f"millstream_compaction_{name}", doc, value=value)
        at = ["topic", "partition"]
        dirty = gauge("millstream_compaction_dirty_ratio", "Share that waits to be compacted.", labels=at)
        since = gauge("millstream_compaction_age_seconds", "Since the last pass.", labels=at)
        refused = gauge("millstream_compaction_uncleanable", "1: it failed, and is not tried.", labels=at)
        for partition in node.partitions():
            compaction = partition.log.compaction
            if "compact" not in partition.log.config.cleanup_policy:
                continue
            names = [partition.topic.name, str(partition.index)]
            if compaction.dirt is not None:
                dirty.add_metric(names, compaction.dirt.ratio)
            if compaction.last is not None:
                since.add_metric(names, max(0, node.clock.now_ms() - compaction.last_ms) / 1000)
            refused.add_metric(names, float(bool(compaction.uncleanable)))
        yield from (dirty, since, refused)

    def _overload(self, counter: Any, gauge: Any) -> Iterator[Any]:
        """What the overload policies have done: requests held, records dropped."""
        by_topic = ["topic"]
        held = counter("millstream_overload_held_requests", "Requests that were held.", labels=by_topic)
        seconds = counter("millstream_overload_held_seconds", "For how long, in all.", labels=by_topic)
        waiting = gauge("millstream_overload_waiting_requests", "Requests held now.", labels=by_topic)
        records = counter("millstream_overload_dropped_records", "The oldest records, gone.", labels=by_topic)
        size = counter("millstream_overload_dropped_bytes", "The same in bytes.", labels=by_topic)
        node = self._server.node
        for topic in node.topics():
            gate = topic.gate
            if gate is not None:
                held.add_metric([topic.name], gate.held)
                seconds.add_metric([topic.name], gate.held_seconds)
                waiting.add_metric([topic.name], node.backpressure.held_at(topic))
            if topic.partitions and topic.partitions[0].log.ring is not None:
                dropped_records, dropped_bytes = dropped(topic)
                records.add_metric([topic.name], dropped_records)
                size.add_metric([topic.name], dropped_bytes)
        yield from (held, seconds, waiting, records, size)

    def _horizons(self, gauge: Any) -> Iterator[Any]:
        """Rates and forecasts. A forecast that never comes true (a full disk, say) has no metric."""
        watch = self._server.node.watch
        labels = ["topic"]
        rate = gauge("millstream_topic_records_per_second", "Records appended, lately.", labels=labels)
        volume = gauge("millstream_topic_bytes_per_second", "Record bytes appended, lately.", labels=labels)
        kept = gauge(
            "millstream_topic_kept_seconds", "How far back retention reaches at these rates.", labels=labels
        )
        for name, topic in watch.topics.items():
            rate.add_metric([name], topic.records_per_second)
            volume.add_metric([name], topic.bytes_per_second)
            if topic.kept_seconds is not None:
                kept.add_metric([name], topic.kept_seconds)
        yield from (rate, volume, kept)
        if watch.disk_free is not None:
            yield gauge(
                "millstream_disk_free_bytes", "Left on the data directory's disk.", value=watch.disk_free
            )
        if watch.disk_full_seconds is not None:
            yield gauge(
                "millstream_disk_full_seconds",
                "Until the disk is full at these rates, retention considered.",
                value=watch.disk_full_seconds,
            )

    def _groups(self, counter: Any, gauge: Any) -> Iterator[Any]:
        labels = ["group", "topic", "partition"]
        lag = gauge(
            "millstream_group_lag_records",
            "Records after a group's committed offset.",
            labels=labels,
        )
        behind_seconds = gauge(
            "millstream_group_lag_seconds", "From its oldest unread record to the newest one.", labels=labels
        )
        loss = gauge(
            "millstream_group_loss_seconds",
            "Until retention overtakes a group at these rates.",
            labels=labels,
        )
        lost = counter(
            "millstream_group_lost_records", "Records deleted before a group read them.", labels=labels
        )
        node = self._server.node
        for group in node.catalogue.groups_with_offsets():
            for topic, partitions in node.catalogue.offsets_of(group).items():
                for index, committed in partitions.items():
                    partition = node.partition(topic, index)
                    if partition is not None:
                        behind = max(0, partition.log.written_offset - committed.offset)
                        lag.add_metric([group, topic, str(index)], behind)
        for (group, topic, index), reader in node.watch.readers.items():
            if reader.lag_seconds is not None:
                behind_seconds.add_metric([group, topic, str(index)], reader.lag_seconds)
            if reader.loss_seconds is not None:
                loss.add_metric([group, topic, str(index)], reader.loss_seconds)
        for group in node.catalogue.losses.groups():
            for (topic, index), missed in node.catalogue.losses.of(group).items():
                lost.add_metric([group, topic, str(index)], missed.total)
        yield from (lag, behind_seconds, loss, lost)

    def _transactions(self, counter: Any, gauge: Any) -> Iterator[Any]:
        """Open transactions, and the records that they keep from readers of committed records. There may be
        any number of transactional ids, so only the oldest open transactions are listed by id."""
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
