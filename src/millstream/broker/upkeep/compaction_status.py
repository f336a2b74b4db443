"""Describe a compacted topic's progress in one sentence, for the description of its settings."""

from __future__ import annotations

from datetime import UTC, datetime

from millstream.broker.topics.partition import LocalTopic


def compaction_state(topic: LocalTopic) -> str:
    """The sentence about a topic; empty if it is not compacted."""
    logs = [partition.log for partition in topic.partitions]
    logs = [log for log in logs if "compact" in log.config.cleanup_policy]
    if not logs:
        return ""
    refused = [log.compaction.uncleanable for log in logs if log.compaction.uncleanable]
    if refused:
        return f"{len(refused)} of {len(logs)} partitions are no longer compacted: {refused[0]}"
    dirt = max((log.compaction.dirt.ratio for log in logs if log.compaction.dirt is not None), default=None)
    state = "not looked at yet" if dirt is None else f"{dirt:.0%} of what may be compacted is dirty"
    done = [(log.compaction.last_ms, log.compaction.last) for log in logs]
    passes = [finished for _, finished in done if finished is not None]
    if not passes:
        return f"{state}; not compacted since the broker started"
    when = datetime.fromtimestamp(max(done_ms for done_ms, _ in done) / 1000, UTC)
    return (
        f"{state}; last compacted {when:%Y-%m-%dT%H:%M:%SZ}: "
        f"{sum(each.records_after for each in passes)} of {sum(each.records_before for each in passes)} "
        f"records and {sum(each.bytes_after for each in passes)} of "
        f"{sum(each.bytes_before for each in passes)} bytes were left"
    )
