"""Finds the job that a consumer group belongs to, from the reports of jobs in ``millstream.jobs``.

A job reads on Spark and is not a member of its group, so the broker reports the group as empty while the job
runs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.client.text.position import TopicPartition
from millstream.core.errors import MillstreamError
from millstream.jobs.report import RUNNING, TOPIC, DisplayedState, state_now

if TYPE_CHECKING:
    from millstream.client.librdkafka.admin import Admin


class JobRuns(MillstreamError):
    """Refused because the job is running."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A job that records in a group's offsets which of its batches are done."""

    job: str
    state: DisplayedState
    host: str = ""
    pid: int = 0

    @property
    def runs(self) -> bool:
        return self.state in RUNNING

    @property
    def refused(self) -> str:
        """Why the offsets must not be changed now; empty if they may be."""
        if not self.runs:
            return ""
        return (
            f"pipeline {self.job} is running, and stores in these offsets which batches are done;"
            " stop it first"
        )

    def __str__(self) -> str:
        where = f" as process {self.pid} on {self.host}" if self.runs and self.host else ""
        return f"pipeline {self.job}, {self.state}{where}"


def owners(admin: Admin, now_ms: int) -> dict[str, Owner]:
    """The owners by group; none if the cluster does not have the topic."""
    from millstream.client.librdkafka.consume import PartitionReader

    partitions = admin.topics().get(TOPIC, 0)
    if not partitions:
        return {}
    bounds = admin.bounds([TopicPartition(TOPIC, index) for index in range(partitions)])
    newest: dict[bytes, bytes | None] = {}
    starts = {place: bound.start for place, bound in bounds.items()}
    with PartitionReader(
        admin.connection, starts, {place: bound.end for place, bound in bounds.items()}
    ) as reader:
        while not reader.finished:
            for message in reader.read(1000, 0.5):
                newest[message.key() or b""] = message.value()
    found: dict[str, Owner] = {}
    for value in newest.values():
        for group, owner in _read(value, now_ms):
            if group not in found or owner.runs:
                found[group] = owner
    return found


def _read(value: bytes | None, now_ms: int) -> list[tuple[str, Owner]]:
    """A job's groups, each with its owner; none if the value is not a readable status."""
    try:
        told: Any = json.loads(value or b"{}")
        state = state_now(told["state"], now_ms - told["at_ms"], told.get("heartbeat_ms"))
        owner = Owner(told["job"], state, told["host"], told["pid"])
        return [(query["group"], owner) for query in told["queries"]]
    except (ValueError, KeyError, TypeError):
        return []
