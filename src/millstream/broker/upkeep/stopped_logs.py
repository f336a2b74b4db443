"""Partitions that stopped after a failure: those that take no more writes, and those no longer compacted.

Partitions without writes appear in ``/readyz`` and in the metrics. For consoles and ``topic describe``, both
kinds appear beside the topic's settings: the partitions' numbers, a colon, and why the first one stopped.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.broker.topics.partition import LocalTopic, Partition
from millstream.core.units import count

_NAMED = 20  # partitions that are listed one by one


def stopped_partitions(partitions: Iterable[Partition]) -> list[Partition]:
    """The partitions whose log takes no writes until the broker is restarted."""
    return [partition for partition in partitions if partition.log.failed is not None]


def not_ready_because(stopped: list[Partition]) -> str:
    """The text of ``/readyz`` for stopped partitions, one line each."""
    lines = [
        f"not ready: {count(len(stopped), 'partition')} stopped: no writes until the broker is restarted"
    ]
    lines += [str(partition.log.failed) for partition in stopped[:_NAMED]]
    if len(stopped) > _NAMED:
        lines.append(f"and {len(stopped) - _NAMED} more")
    return "\n".join(lines) + "\n"


def stopped_state(topic: LocalTopic) -> str:
    """The partitions of a topic that take no writes, and why; empty if there are none."""
    return _told((partition.index, str(partition.log.failed or "")) for partition in topic.partitions)


def uncompacted_state(topic: LocalTopic) -> str:
    """The partitions of a topic that are no longer compacted, and why; empty if there are none."""
    return _told((partition.index, partition.log.compaction.uncleanable) for partition in topic.partitions)


def _told(reasons: Iterable[tuple[int, str]]) -> str:
    stopped = [(index, reason) for index, reason in reasons if reason]
    if not stopped:
        return ""
    return f"{','.join(str(index) for index, _ in stopped)}: {stopped[0][1]}"
