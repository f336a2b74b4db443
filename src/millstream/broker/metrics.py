"""One broker's state as Prometheus metrics: made when they are requested (``broker.http``)."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

from millstream.broker.groups.share.in_flight import ACQUIRED
from millstream.broker.net.shared_io import SharedIO
from millstream.broker.node import Node
from millstream.broker.overload.description import dropped
from millstream.broker.upkeep.compacting import Cleaner
from millstream.broker.upkeep.stopped_logs import stopped_partitions
from millstream.log.archive.copy import unarchived_bytes
from millstream.wire.api_keys import name_of

NAMED_TRANSACTIONS = 20


class Collector:
    """Builds Prometheus's metric families from one broker's state, on each request for metrics."""

    def __init__(self, node: Node, shared: SharedIO, connections: Sized, cleaner: Cleaner) -> None:
        self._node = node
        self._shared = shared
        self._connections = connections
        self._cleaner = cleaner

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        node = self._node
        counters = node.counters

        def counter(name: str, doc: str, value: float) -> Any:
            return CounterMetricFamily(f"millstream_{name}", doc, value=value)

        def gauge(name: str, doc: str, value: float) -> Any:
            return GaugeMetricFamily(f"millstream_{name}", doc, value=value)

        requests = CounterMetricFamily("millstream_requests", "Requests received.", labels=["api"])
        for api_key, count in enumerate(counters.requests):
            if count:
                requests.add_metric([name_of(api_key)], count)
        yield requests
        yield counter("received_bytes", "Bytes read from clients.", counters.bytes_in)
        yield counter("sent_bytes", "Bytes sent to clients.", counters.bytes_out)
        yield gauge("connections", "Clients connected.", len(self._connections))
        yield counter("connections_opened", "Connections accepted.", counters.connections_opened)
        yield counter(
            "connections_refused",
            "Connections refused because of max.connections or the limit of open files.",
            counters.connections_refused,
        )
        yield counter(
            "protocol_errors", "Connections closed because of a malformed request.", counters.protocol_errors
        )
        yield gauge("request_buffer_bytes", "Memory for partly received requests.", self._shared.buffers.used)
        yield gauge("long_polls", "Fetch requests waiting for records.", len(node.deadlines))
        yield gauge("fetch_sessions", "Incremental fetch sessions.", len(node.sessions))
        yield counter(
            "fetch_sessions_evicted",
            "Fetch sessions evicted to make room for others.",
            node.sessions.evicted,
        )
        yield gauge("topics", "Topics.", len(node.topics))
        yield counter(
            "storage_errors", "Appends, writes and syncs that failed on disk.", counters.storage_errors
        )
        yield gauge(
            "disk_full", "1 if the disk is full and the broker refuses records.", float(bool(node.logs.full))
        )
        yield gauge("memory_bytes", "Memory that topics in memory use.", node.memory.used)
        yield gauge(
            "memory_limit_bytes",
            "The most memory that topics in memory may use, together.",
            node.memory.limit,
        )
        yield counter(
            "memory_spilled_bytes",
            "Bytes of topics in memory that moved to the disk.",
            node.memory.spilled_bytes,
        )
        yield gauge(
            "memory_full",
            "1 if memory is full and records for topics in memory are refused.",
            float(node.memory.full is not None),
        )
        yield counter(
            "throttled_requests", "Requests that exceeded their client's quota.", counters.throttled
        )
        yield counter(
            "throttled_seconds",
            "How long those clients were throttled, in total.",
            counters.throttled_seconds,
        )
        yield gauge(
            "held_requests", "Produce requests held until consumers catch up.", len(node.backpressure)
        )

        for name, doc, histogram in (
            (
                "turn_seconds",
                "From the first request of an event-loop turn to its last response.",
                counters.turn_seconds,
            ),
            ("sync_seconds", "Duration of disk syncs.", counters.sync_seconds),
            (
                "handler_seconds",
                "Duration of requests that had to wait for something.",
                counters.handler_seconds,
            ),
        ):
            yield HistogramMetricFamily(
                f"millstream_{name}", doc, buckets=histogram.buckets(), sum_value=histogram.total
            )
        yield from self._standby(CounterMetricFamily, GaugeMetricFamily)
        yield from self._topics(CounterMetricFamily, GaugeMetricFamily)

    def _standby(self, counter: Any, gauge: Any) -> Iterator[Any]:
        """How far standbys are behind: as a standby knows it, and as its leader does."""
        node = self._node
        if node.standby is not None:
            status = node.standby.status()
            for name, doc in (
                ("connected", "1 if this standby is connected to its leader."),
                ("behind_records", "Records that this standby has not copied yet."),
                ("behind_bytes", "Bytes that this standby has not copied yet."),
                ("behind_seconds", "Time since this standby last had everything."),
                ("silent_seconds", "Time since this standby last heard from its leader."),
            ):
                yield gauge(f"millstream_standby_{name}", doc, value=float(status[name]))
            yield counter(
                "millstream_standby_copied_bytes",
                "Bytes that this standby has copied.",
                value=status["copied_bytes"],
            )
            yield counter(
                "millstream_standby_breaks", "How often this standby lost its leader.", value=status["breaks"]
            )
        yield gauge(
            "millstream_fenced",
            "1 if another broker has replaced this one.",
            value=float(bool(node.role.fenced_by)),
        )
        in_sync = "How many brokers are in sync: this one and its standbys."
        yield gauge("millstream_in_sync_replicas", in_sync, value=float(node.in_sync.count))
        labels = ["standby"]
        records = gauge(
            "millstream_follower_behind_records",
            "Records that a standby has not copied yet.",
            labels=labels,
        )
        seconds = gauge(
            "millstream_follower_behind_seconds",
            "Time since a standby last had everything.",
            labels=labels,
        )
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
        end = gauge(
            "millstream_partition_end_offset", "The offset that the next record will get.", labels=labels
        )
        start = gauge("millstream_partition_start_offset", "The oldest offset kept.", labels=labels)
        size = gauge("millstream_partition_size_bytes", "Bytes of log kept.", labels=labels)
        unsynced = gauge(
            "millstream_partition_unsynced_records", "Records written but not synced.", labels=labels
        )
        failed = gauge("millstream_partition_failed", "1 if the partition refuses writes.", labels=labels)
        offline = gauge(
            "millstream_partition_offline",
            "1 if records are missing and the partition is not served until a person decides.",
            labels=labels,
        )
        yield gauge(
            "millstream_partitions_stopped",
            "Partitions that refuse writes until the broker is restarted.",
            value=len(stopped_partitions(self._node.topics.partitions())),
        )
        missed = counter(
            "millstream_partition_missed_reads",
            "Fetches of records that were already deleted.",
            labels=labels,
        )
        for topic in self._node.topics:
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
        yield from self._share_groups(counter, gauge)

    def _share_groups(self, counter: Any, gauge: Any) -> Iterator[Any]:
        """What happens to the records of share groups, and how many wait."""
        delivery = self._node.share_delivery
        counts = delivery.counts
        yield gauge(
            "millstream_share_sessions", "Consumers of share groups that read.", value=len(delivery.sessions)
        )
        yield counter(
            "millstream_share_given_out_records",
            "Records given out to members of share groups, each time counted.",
            value=counts.given_out,
        )
        said = counter(
            "millstream_share_acknowledged_records",
            "Records that members of share groups acknowledged, by what they said.",
            labels=["type"],
        )
        for number, kind in enumerate(("gap", "accept", "release", "reject", "renew")):
            said.add_metric([kind], counts.acknowledged[number])
        yield said
        yield counter(
            "millstream_share_timed_out_records",
            "Records of share groups that were not acknowledged in time.",
            value=counts.timed_out,
        )
        yield counter(
            "millstream_share_given_up_records",
            "Records that share groups gave up, because they came back too often.",
            value=counts.given_up,
        )
        yield counter(
            "millstream_share_save_errors",
            "Changes of share groups that could not be saved at once.",
            value=delivery.save_errors,
        )
        labels = ["group", "topic", "partition"]
        lag = gauge(
            "millstream_share_group_lag_records",
            "Records of a partition that a share group has not finished.",
            labels=labels,
        )
        held = gauge(
            "millstream_share_group_acquired_records",
            "Records of a partition that members of a share group hold.",
            labels=labels,
        )
        for group, place in delivery.begun():
            topic = self._node.hosted.get(place[0])
            opened = delivery.find(group, place)
            if topic is not None and opened is not None and opened.share is not None:
                at = [group, topic.name, str(place[1])]
                lag.add_metric(at, opened.share.lag(topic.partitions[place[1]].log.written_offset))
                held.add_metric(at, opened.share.count_of(ACQUIRED))
        yield from (lag, held)

    def _archive(self, counter: Any, gauge: Any) -> Iterator[Any]:
        """Copies to the archive, segments still to be copied, and reads. Nothing without an archive."""
        archiving = self._node.archiving
        if archiving is None:
            return
        blocks = archiving.blocks
        for name, doc, value in (
            ("copied_bytes", "Bytes of log copied to the archive.", archiving.copied_bytes),
            ("copied_segments", "Segments copied to the archive.", archiving.copied_segments),
            ("deleted_segments", "Segments deleted from the archive.", archiving.deleted_segments),
            ("copy_errors", "Rounds of archiving that failed.", archiving.copy_errors),
            ("read_bytes", "Bytes of log served from the archive.", archiving.read_bytes),
            ("read_errors", "Reads from the archive that failed.", archiving.read_errors),
            ("downloaded_bytes", "Bytes fetched from the archive.", blocks.downloaded),
            ("cache_hits", "Blocks that were in the cache or already being fetched.", blocks.hits),
            ("cache_misses", "Blocks that had to be fetched.", blocks.misses),
        ):
            yield counter(f"millstream_archive_{name}", doc, value=value)
        yield gauge("millstream_archive_cache_bytes", "Memory that cached blocks use.", value=blocks.held)
        yield gauge("millstream_archive_away", "1 if the archive does not respond.", value=archiving.is_away)
        labels = ["topic", "partition"]
        archived = gauge("millstream_partition_archived_bytes", "Bytes of log in the archive.", labels=labels)
        behind = gauge(
            "millstream_partition_unarchived_bytes",
            "Bytes of sealed segments that are not in the archive yet.",
            labels=labels,
        )
        local = gauge(
            "millstream_partition_local_start_offset",
            "The oldest offset on the broker's own disk.",
            labels=labels,
        )
        for partition in self._node.topics.partitions():
            log = partition.log
            if log.config.remote_storage_enable or log.archive.segments:
                at = [partition.topic.name, str(partition.index)]
                archived.add_metric(at, log.archive.size)
                behind.add_metric(at, unarchived_bytes(log))
                local.add_metric(at, log.local_start_offset)
        yield from (archived, behind, local)

    def _compaction(self, counter: Any, gauge: Any) -> Iterator[Any]:
        """Compacted topics: how dirty their logs are, and what compaction has done."""
        cleaner, node = self._cleaner, self._node
        for name, doc, value in (
            ("passes", "Compaction passes completed.", cleaner.passes),
            ("failures", "Compaction passes that failed.", cleaner.failures),
            ("read_bytes", "Bytes of log that compaction has read.", cleaner.bytes_read),
            ("left_bytes", "Bytes of log that compaction has kept.", cleaner.bytes_written),
        ):
            yield counter(f"millstream_compaction_{name}", doc, value=value)
        at = ["topic", "partition"]
        dirty = gauge(
            "millstream_compaction_dirty_ratio", "Share of the log that is not compacted.", labels=at
        )
        since = gauge("millstream_compaction_age_seconds", "Time since the last compaction pass.", labels=at)
        refused = gauge(
            "millstream_compaction_uncleanable",
            "1 if compaction of this log failed and is not retried.",
            labels=at,
        )
        for partition in node.topics.partitions():
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
        held = counter(
            "millstream_overload_held_requests", "Produce requests that were held.", labels=by_topic
        )
        seconds = counter(
            "millstream_overload_held_seconds",
            "How long produce requests were held, in total.",
            labels=by_topic,
        )
        waiting = gauge("millstream_overload_waiting_requests", "Produce requests held now.", labels=by_topic)
        records = counter(
            "millstream_overload_dropped_records",
            "Records dropped to make room for new ones.",
            labels=by_topic,
        )
        size = counter(
            "millstream_overload_dropped_bytes",
            "Bytes dropped to make room for new records.",
            labels=by_topic,
        )
        node = self._node
        for topic in node.topics:
            gate = node.backpressure.gate_of(topic.name)
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
        watch = self._node.watch
        labels = ["topic"]
        rate = gauge(
            "millstream_topic_records_per_second",
            "Records appended per second, averaged over recent time.",
            labels=labels,
        )
        volume = gauge(
            "millstream_topic_bytes_per_second",
            "Record bytes appended per second, averaged over recent time.",
            labels=labels,
        )
        kept = gauge(
            "millstream_topic_kept_seconds", "How far back retention reaches at present rates.", labels=labels
        )
        for name, topic in watch.topics.items():
            rate.add_metric([name], topic.records_per_second)
            volume.add_metric([name], topic.bytes_per_second)
            if topic.kept_seconds is not None:
                kept.add_metric([name], topic.kept_seconds)
        yield from (rate, volume, kept)
        if watch.disk_free is not None:
            yield gauge(
                "millstream_disk_free_bytes",
                "Free space on the data directory's disk.",
                value=watch.disk_free,
            )
        if watch.disk_full_seconds is not None:
            yield gauge(
                "millstream_disk_full_seconds",
                "Time until the disk is full at present rates, taking retention into account.",
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
            "millstream_group_lag_seconds",
            "Time from a group's oldest unread record to the newest record.",
            labels=labels,
        )
        loss = gauge(
            "millstream_group_loss_seconds",
            "Time until retention overtakes a group at present rates.",
            labels=labels,
        )
        lost = counter(
            "millstream_group_lost_records", "Records deleted before a group read them.", labels=labels
        )
        node = self._node
        for group in node.catalogue.groups_with_offsets():
            for topic, partitions in node.catalogue.offsets_of(group).items():
                for index, committed in partitions.items():
                    partition = node.topics.partition(topic, index)
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
        node = self._node
        now_ms = node.clock.now_ms()
        counted = node.transactions.counters
        for name, doc, value in (
            ("committed", "Transactions committed.", counted.committed),
            ("aborted", "Transactions aborted, for any reason.", counted.aborted),
            ("timed_out", "Transactions aborted because they timed out.", counted.timed_out),
            (
                "taken_over",
                "Transactions aborted because a new producer took over the transactional id.",
                counted.taken_over,
            ),
            ("fenced_requests", "Requests refused because the producer had been replaced.", counted.fenced),
        ):
            yield counter(f"millstream_transactions_{name}", doc, value=value)
        unfinished = node.transactions.open_transactions()
        yield gauge("millstream_transactions_open", "Open transactions.", value=len(unfinished))
        oldest = max(0, now_ms - unfinished[0].start_ms) / 1000 if unfinished else 0.0
        yield gauge(
            "millstream_transactions_oldest_seconds", "Age of the oldest open transaction.", value=oldest
        )
        age = gauge(
            "millstream_transaction_open_seconds",
            f"Age of each of the {NAMED_TRANSACTIONS} oldest open transactions.",
            labels=["transactional_id"],
        )
        for transaction in unfinished[:NAMED_TRANSACTIONS]:
            age.add_metric([transaction.name], max(0, now_ms - transaction.start_ms) / 1000)
        yield age
        yield gauge(
            "millstream_transaction_markers_unwritten",
            "Transaction markers that are decided but not yet written to their partitions.",
            value=len(node.transactions.markers.unwritten()),
        )
        labels = ["topic", "partition"]
        behind = gauge(
            "millstream_partition_unstable_records",
            "Records that read_committed consumers can't see yet.",
            labels=labels,
        )
        since = gauge(
            "millstream_partition_unstable_seconds",
            "Age of the oldest open transaction in the partition.",
            labels=labels,
        )
        for partition in node.topics.partitions():
            log = partition.log
            if log.last_stable_offset < log.written_offset:
                at = [partition.topic.name, str(partition.index)]
                behind.add_metric(at, log.written_offset - log.last_stable_offset)
                begun = [started_ms for _, started_ms in log.transactions.open.values()]
                since.add_metric(at, max(0, now_ms - min(begun, default=now_ms)) / 1000)
        yield from (behind, since)
