"""Startup of a data directory: open the topics' logs, and remove or set aside unknown directories."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.core.config import settings_of
from millstream.core.topic_config import TopicConfig
from millstream.log.directory import LogDirectory, LogToOpen, partition_of
from millstream.log.partition import PartitionLog
from millstream.log.recovery.shortfall import HighestCommits

_log = logging.getLogger(__name__)
_NO_COMMITS = HighestCommits()
NEVER = settings_of(TopicConfig)["flush.ms"].default


def sort_out(directory: LogDirectory, catalogue: Catalogue, *, follows: bool) -> None:
    """Remove the directories of deleted topics. Set aside any others that the catalogue does not know."""
    known = {(topic.name, index) for topic in catalogue.topics.values() for index in range(topic.partitions)}
    directory.forget_all_but(known)
    left = directory.strays(known)
    deleted = [path for path in left if _topic_of(path) in catalogue.deleted_topics]
    if deleted:
        _log.info("%d directories of deleted topics were left by the last run; removed", len(deleted))
        directory.remove([str(path) for path in deleted])
    if not follows:
        catalogue.forget_deleted()
    for stray in left:
        if stray not in deleted:
            aside = directory.set_aside(stray)
            _log.warning("%s does not belong to any known topic; it was set aside as %s", stray, aside.name)


def logs_on_disk(
    directory: LogDirectory, catalogue: Catalogue, *, is_copy: bool, follows: bool
) -> dict[tuple[str, int], PartitionLog]:
    """Open the logs of all topics that are kept on disk. Returns them by topic and partition."""
    commits = {} if is_copy else _highest_commits(catalogue)
    wanted = [
        LogToOpen(
            topic.name,
            index,
            as_copy(topic.config) if follows else topic.config,
            topic.id,
            commits.get((topic.name, index), _NO_COMMITS),
        )
        for topic in catalogue.topics.values()
        if topic.config.millstream_storage != "memory"
        for index in range(topic.partitions)
    ]
    opened = directory.open_logs(wanted, is_copy=is_copy, can_fetch=follows)
    return {(log.topic, log.partition): log for log in opened}


def _highest_commits(catalogue: Catalogue) -> dict[tuple[str, int], HighestCommits]:
    """How far groups have read each partition, from their committed offsets."""
    found: dict[tuple[str, int], HighestCommits] = {}
    for group, topics in catalogue.offsets.items():
        for topic, partitions in topics.items():
            for index, committed in partitions.items():
                known = found.get((topic, index), _NO_COMMITS)
                found[topic, index] = known.and_one(committed.offset, committed.leader_epoch, group)
    return found


def _topic_of(path: Path) -> str:
    found = partition_of(path.name)
    return found[0] if found is not None else ""


def as_copy(config: TopicConfig) -> TopicConfig:
    """A topic's settings on a standby. The leader decides when a segment is full and which records are too
    old. The standby compacts on its own, because the leader does not send again what it has compacted."""
    return dataclasses.replace(
        config,
        cleanup_policy=("compact",) if "compact" in config.cleanup_policy else ("delete",),
        retention_ms=-1,
        retention_bytes=-1,
        segment_ms=NEVER,
        segment_jitter_ms=0,
        flush_ms=NEVER,
        flush_messages=NEVER,
        remote_storage_enable=False,
        millstream_overload="buffer",
    )
