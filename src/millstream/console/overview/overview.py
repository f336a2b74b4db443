"""The overview of a cluster: health, disks, rates, and what needs attention."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.client.insight.horizon import DiskHorizon
from millstream.client.librdkafka.admin import BrokerNode
from millstream.console.observing.snapshot import Snapshot, TopicState
from millstream.console.overview.attention import Attention, needs_attention
from millstream.console.pipelines.listing import shown_state
from millstream.jobs.report import RUNNING

BUSIEST = 5


@dataclass(frozen=True, slots=True)
class Overview:
    """What the overview shows. ``bytes`` is the size of the topics on disk, without replicas; None if the
    brokers don't report it. ``out_per_second`` counts what consumer groups have committed. ``pipelines``
    counts the jobs that have reported, and ``pipelines_running`` those that are running.
    """

    at_ms: int
    address: str
    cluster_id: str
    controller: int | None
    brokers: list[BrokerNode]
    topics: int
    partitions: int
    groups: int
    pipelines: int
    pipelines_running: int
    records: int | None
    bytes: int | None
    in_per_second: float
    in_bytes_per_second: float
    out_per_second: float
    disks: list[DiskHorizon]
    attention: list[Attention]
    busiest: list[TopicState]
    detailed: bool


def overview(snapshot: Snapshot) -> Overview:
    topics = [topic for topic in snapshot.topics.values() if not topic.internal]
    records = [topic.records for topic in topics if topic.records is not None]
    sizes = [topic.bytes for topic in topics if topic.bytes is not None]
    busy = sorted(topics, key=lambda topic: -topic.records_per_second)[:BUSIEST]
    return Overview(
        snapshot.at_ms,
        snapshot.address,
        snapshot.cluster_id,
        snapshot.controller,
        list(snapshot.brokers),
        len(topics),
        sum(topic.partitions for topic in topics),
        len(snapshot.groups),
        len(snapshot.jobs),
        sum(shown_state(job, snapshot.at_ms) in RUNNING for job in snapshot.jobs.values()),
        sum(records) if snapshot.detailed else None,
        sum(sizes) if sizes else None,
        sum(topic.records_per_second for topic in topics),
        sum(topic.bytes_per_second or 0.0 for topic in topics),
        sum(group.read_per_second for group in snapshot.groups.values()),
        list(snapshot.disks),
        needs_attention(snapshot),
        [topic for topic in busy if topic.records_per_second > 0],
        snapshot.detailed,
    )
