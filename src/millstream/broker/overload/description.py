"""What a topic's overload policy is doing, as a sentence for topic descriptions and for the broker's log."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from millstream.broker.overload.backpressure import Backpressure
from millstream.broker.topics.partition import LocalTopic
from millstream.log.memory_directory import MemoryDirectory

_log = logging.getLogger(__name__)

_TELL_EVERY = 10.0  # seconds between warnings about dropped records


def memory_state(topic: LocalTopic, memory: MemoryDirectory) -> str:
    """How much of a topic is in memory; empty if it is on disk, or has no records."""
    if not any(partition.in_memory for partition in topic.partitions):
        return ""
    there, spilled = memory_of(topic, memory)
    if not there and not spilled:
        return ""
    on_disk = f", {spilled} spilled to disk" if spilled else ""
    return f"{there} bytes in memory{on_disk}; all topics have {memory.used} of {memory.limit}"


def memory_of(topic: LocalTopic, memory: MemoryDirectory) -> tuple[int, int]:
    """The bytes that a topic has in memory, and the bytes spilled from there to the disk."""
    logs = [partition.log for partition in topic.partitions if partition.in_memory]
    spilled = sum(memory.spilled(log) for log in logs)
    return sum(log.size_bytes for log in logs) - spilled, spilled


def overload_state(
    topic: LocalTopic, backpressure: Backpressure, memory: MemoryDirectory, disk_full: str
) -> str:
    """The state of a topic's overload policy; empty if there is nothing to say. ``disk_full`` is the message
    for clients while the disk is full."""
    if memory.full is not None and any(
        partition.in_memory and partition.log.suspended is not None for partition in topic.partitions
    ):
        return str(memory.full)
    if disk_full and any(not partition.in_memory for partition in topic.partitions):
        return disk_full
    gate = backpressure.gate_of(topic.name)
    if gate is not None:
        if not gate.slowest_group:
            return (
                f"no producer is held: no group of {', '.join(gate.groups)} has a member that reads the topic"
            )
        held = backpressure.held_at(topic)
        who = f"{held} producers are held" if held else "no producer is held"
        return (
            f"{who}: group {gate.slowest_group} is {gate.slowest_records} records behind. Since the start "
            f"{gate.held} requests were held, for {gate.held_seconds:.1f} s in all"
        )
    records, size = dropped(topic)
    return f"{records} records ({size} bytes) were dropped since the start" if records else ""


def dropped(topic: LocalTopic) -> tuple[int, int]:
    """The records and bytes that a topic has dropped since the broker started."""
    rings = [partition.log.ring for partition in topic.partitions if partition.log.ring is not None]
    return sum(ring.dropped_records for ring in rings), sum(ring.dropped_bytes for ring in rings)


class DropWatch:
    """Logs a warning when a topic has dropped records, at most every ``_TELL_EVERY`` seconds."""

    def __init__(self) -> None:
        self._told: dict[str, int] = {}
        self._tell_at = 0.0

    def tick(self, topics: Iterable[LocalTopic], now: float) -> None:
        if now < self._tell_at:
            return
        self._tell_at = now + _TELL_EVERY
        told = {}
        for topic in topics:
            if topic.partitions and topic.partitions[0].log.ring is not None:
                records, size = dropped(topic)
                told[topic.name] = records
                more = records - self._told.get(topic.name, 0)
                if more > 0:
                    _log.warning(
                        "topic %s: more records came than its ring holds: %d records were dropped, %d (%d "
                        "bytes) since the start",
                        topic.name, more, records, size,
                    )  # fmt: skip
        self._told = told
