"""Finds what needs attention in a cluster, with a link to the page where it can be fixed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from millstream.console.links import group_link, partition_anchor, pipeline_link, topic_link
from millstream.console.observing.snapshot import GroupState, Snapshot
from millstream.console.pipelines.listing import shown_state
from millstream.core.units import bytes_text, count, duration_text

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

Severity = Literal["critical", "warning"]


@dataclass(frozen=True, slots=True)
class Attention:
    """Something that needs attention. ``link`` is a path in the console. A warning means that nothing is
    lost yet.
    """

    severity: Severity
    what: str
    why: str
    link: str


def needs_attention(snapshot: Snapshot) -> list[Attention]:
    """Everything that needs attention, the worst first."""
    found = [each for check in CHECKS for each in check(snapshot)]
    return sorted(found, key=lambda each: (each.severity != "critical", each.what))


def _partitions(snapshot: Snapshot) -> Iterator[Attention]:
    for topic in snapshot.topics.values():
        if topic.leaderless:
            yield Attention(
                "critical",
                f"part of {topic.name} can't be read or written",
                f"{count(len(topic.leaderless), 'partition')} without a leader: {_numbers(topic.leaderless)}",
                topic_link(topic.name),
            )
        elif topic.under_replicated:
            yield Attention(
                "warning",
                f"{topic.name} has fewer copies than it should",
                f"replicas out of sync in {count(len(topic.under_replicated), 'partition')}: "
                f"{_numbers(topic.under_replicated)}",
                topic_link(topic.name),
            )


def _stopped(snapshot: Snapshot) -> Iterator[Attention]:
    for topic in snapshot.topics.values():
        if topic.stopped.partitions:
            yield Attention(
                "critical",
                f"{topic.name} accepts no writes in {_these(topic.stopped.partitions)}",
                topic.stopped.why,
                topic_link(topic.name, "partitions"),
            )
        if topic.uncompacted.partitions:
            yield Attention(
                "warning",
                f"{topic.name} is no longer compacted in {_these(topic.uncompacted.partitions)}",
                topic.uncompacted.why,
                topic_link(topic.name, "partitions"),
            )


def _these(partitions: tuple[int, ...]) -> str:
    return f"partition{'s' if len(partitions) > 1 else ''} {_numbers(partitions)}"


def _groups(snapshot: Snapshot) -> Iterator[Attention]:
    for group in snapshot.groups.values():
        yield from of_group(group)


def of_group(group: GroupState) -> Iterator[Attention]:
    """What needs attention in a group. The links lead to the partition."""
    if group.lost:
        at = next((part for part in group.partitions if part.lost), None)
        yield Attention(
            "critical",
            f"{group.name} has lost records",
            f"{count(group.lost, 'record')} deleted before the group read them",
            group_link(group.name) + ("" if at is None else f"#{partition_anchor(at.topic, at.partition)}"),
        )
    if group.loss_ms is not None and group.loss_ms <= DAY_MS:
        soon = f"in {duration_text(group.loss_ms)}" if group.loss_ms else "at the next clean-up"
        yield Attention(
            "critical" if group.loss_ms <= HOUR_MS else "warning",
            f"{group.name} loses records {soon}",
            f"retention overtakes it in {group.loss_at}; it is {count(group.lag, 'record')} behind",
            group_link(group.name)
            + ("" if group.loss_at is None else f"#{partition_anchor(*group.loss_at)}"),
        )


def _disks(snapshot: Snapshot) -> Iterator[Attention]:
    for disk in snapshot.disks:
        full_ms = None if disk.full_seconds is None else round(disk.full_seconds * 1000)
        if full_ms is not None and full_ms <= DAY_MS:
            yield Attention(
                "critical" if full_ms <= HOUR_MS else "warning",
                f"The disk of {disk.broker} is full in {duration_text(full_ms)}",
                f"{bytes_text(disk.free_bytes)} left at {disk.path}, at the rates of the last ten minutes",
                "/topics?sort=bytes&order=desc",
            )


def _jobs(snapshot: Snapshot) -> Iterator[Attention]:
    for job in snapshot.jobs.values():
        status = job.status
        state = shown_state(job, snapshot.at_ms)
        if state == "failed":
            yield Attention(
                "critical",
                f"{status.job} has failed",
                status.reason or "it gave no reason",
                pipeline_link(status.job) + "#errors",
            )
        elif state == "silent":
            passed = duration_text(snapshot.at_ms - job.heard_ms)
            yield Attention(
                "critical",
                f"{status.job} has stopped reporting",
                f"for {passed}; it ran on {status.host} as process {status.pid}, and did not end cleanly",
                pipeline_link(status.job),
            )
        elif state == "waiting":
            yield Attention(
                "warning",
                f"{status.job} can't deliver at the moment",
                f"{status.reason or 'it waits for the broker'}; the batch is repeated",
                pipeline_link(status.job),
            )


def _numbers(partitions: tuple[int, ...], most: int = 8) -> str:
    shown = ", ".join(str(index) for index in partitions[:most])
    return shown if len(partitions) <= most else f"{shown}, …"


CHECKS: list[Callable[[Snapshot], Iterator[Attention]]] = [_partitions, _stopped, _groups, _disks, _jobs]
