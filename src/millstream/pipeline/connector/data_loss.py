"""Notices that records were deleted before they were read: with their topic, or because their log was cut.

A query stops with DataLoss then, or, with ``failOnDataLoss=false``, continues with what is there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from millstream.client.protocol.cluster import EARLIEST, Cluster
from millstream.client.text.position import TopicPartition
from millstream.core.errors import DataLoss, RequestFailed
from millstream.core.kafka_errors import UNKNOWN_TOPIC_OR_PARTITION
from millstream.pipeline.connector.fetching import TO_GO_ON
from millstream.pipeline.connector.offsets import Offsets, created_again

log = logging.getLogger(__name__)


class LostRecords:
    """The checks of one reader. Each returns the offsets that can still be read, or, with ``fail``, raises
    DataLoss."""

    def __init__(self, *, fail: bool) -> None:
        self._fail = fail

    def report(self, problem: DataLoss) -> None:
        if self._fail:
            raise problem
        log.warning("%s", problem)

    def check_gone(self, begun: Offsets, partitions: Sequence[TopicPartition]) -> None:
        gone = sorted(set(begun) - set(partitions))
        if gone:
            names = ", ".join(f"{partition} from offset {begun[partition]}" for partition in gone)
            self.report(
                DataLoss(
                    f"{names}: deleted while they were being read. Records after these offsets that were"
                    f" not read yet are lost. To continue with what is there: {TO_GO_ON}"
                )
            )

    def check_ids(
        self, cluster: Cluster, begun: Offsets, ids: Mapping[str, str], partitions: Sequence[TopicPartition]
    ) -> Offsets:
        """Where to continue, without topics that were created again: those are read from their start."""
        now = cluster.known_topic_ids({partition.topic for partition in partitions})
        again = created_again(ids, now)
        if not again:
            return begun
        read = ", ".join(f"{p} up to offset {at - 1}" for p, at in sorted(begun.items()) if p.topic in again)
        self.report(
            DataLoss(
                f"{', '.join(again)}: deleted and created again since the last batch. Read before: {read};"
                " later records of the old topic are lost. To read the new topic from its start, use a new"
                f" checkpoint. To continue with this one: {TO_GO_ON}"
            )
        )
        return {partition: at for partition, at in begun.items() if partition.topic not in again}

    def check_planned(self, cluster: Cluster, until: Offsets, ids: Mapping[str, str]) -> Offsets:
        """What can be read of a planned batch. Perhaps a run that was killed planned it, and a topic may have
        been created again since: its offsets then mean other records."""
        cluster.topics(ids)
        again = created_again(ids, cluster.known_topic_ids(ids))
        if not again:
            return until
        self.report(
            DataLoss(
                f"{', '.join(again)}: deleted and created again after a batch of it was planned. The batch"
                f" can't be read any more. To continue without it: {TO_GO_ON}"
            )
        )
        return {partition: at for partition, at in until.items() if partition.topic not in again}

    def planned_starts(self, cluster: Cluster, planned: Sequence[TopicPartition]) -> Offsets:
        """The earliest offsets of a batch's partitions, without those whose topic was deleted since."""
        try:
            return cluster.ends(planned, EARLIEST)
        except RequestFailed as problem:
            if problem.code != UNKNOWN_TOPIC_OR_PARTITION:
                raise
        topics = {partition.topic for partition in planned}
        there = cluster.topics(topics)
        gone = ", ".join(sorted(topics - set(there)))
        self.report(
            DataLoss(
                f"{gone}: deleted after a batch of it was planned. The batch can't be read any more. To"
                f" continue without it: {TO_GO_ON}"
            )
        )
        return cluster.ends([p for p in planned if p.topic in there], EARLIEST)

    def check_end(self, partition: TopicPartition, begun: int, end: int) -> int:
        if end < begun:
            self.report(
                DataLoss(
                    f"{partition}: read up to offset {begun}, but the log ends at {end}: the topic was"
                    " created again or truncated. To read its present records, use a new checkpoint. To"
                    f" continue at offset {begun} once the log reaches it: {TO_GO_ON}"
                )
            )
            return begun
        return end
