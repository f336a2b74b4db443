"""Records that exist but can't be read: which offsets, and why.

A broker that checks batches accepts none of these. They are older than the check, come from a broker that
checks less closely, or were left by a failing disk. A client library does not report them: librdkafka
requests the same batch again and again, without an error. So its users ask here when nothing comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from millstream.client.protocol.cluster import Cluster
from millstream.client.protocol.link import FetchedPartition
from millstream.client.text.position import TopicPartition
from millstream.core.errors import CorruptBatch
from millstream.core.kafka_errors import CORRUPT_MESSAGE
from millstream.records.batch import MAGIC, batches, read_header, verify
from millstream.records.build import read_records

_ONE_BATCH = 1  # bytes: a broker returns a whole batch anyway
_WAIT_MS = 500


class Unreadable(NamedTuple):
    """The offsets from ``first`` up to, not including, ``until``."""

    place: TopicPartition
    first: int
    until: int
    reason: str

    def __str__(self) -> str:
        last = f" to {self.until - 1}" if self.until - 1 > self.first else ""
        return f"{self.place}: offset{'s' if last else ''} {self.first}{last} can't be read: {self.reason}"


def unreadable_in(
    answer: FetchedPartition, place: TopicPartition, first: int, problem: CorruptBatch
) -> Unreadable:
    """The offsets that a batch in a Fetch response, in which ``problem`` was found, hides from a reader that
    asked for ``first``. Raises ``problem`` again if the bytes do not even say which offsets they are."""
    header = read_header(answer.records, problem.position)
    if header.magic != MAGIC or header.next_offset <= first or header.last_offset_delta < 0:
        raise problem
    return Unreadable(place, max(first, header.base_offset), header.next_offset, problem.reason)


def find_unreadable(cluster: Cluster, place: TopicPartition, offset: int, end: int) -> Unreadable | None:
    """The unreadable batch with ``offset``, in a log that ends at ``end``; None if it can be read."""
    answer = _fetch(cluster, place, offset)
    if answer.code == CORRUPT_MESSAGE:
        return damaged(cluster, place, offset, end)
    try:
        for at, header in batches(answer.records):
            if header.last_offset >= offset:
                verify(answer.records, at, header)
                for _ in read_records(answer.records, at, header):
                    pass
                break
    except CorruptBatch as problem:
        return unreadable_in(answer, place, offset, problem)
    return None


def damaged(cluster: Cluster, place: TopicPartition, offset: int, end: int) -> Unreadable:
    """What the broker says is damaged, from ``offset`` up to the first offset that it returns again."""

    def is_damaged(at: int) -> bool:
        return _fetch(cluster, place, at).code == CORRUPT_MESSAGE

    until = _first_not(is_damaged, offset, end)
    return Unreadable(place, offset, until, "the broker says that they are damaged on its disk")


def _first_not(is_so: Callable[[int], bool], first: int, end: int) -> int:
    """The first number from ``first`` to ``end`` for which ``is_so`` is False. For ``first`` it is True."""
    step = 1
    while first + step < end and is_so(first + step):
        first, step = first + step, step * 2
    low, high = first, min(first + step, end)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_so(middle) else (low, middle)
    return high


def _fetch(cluster: Cluster, place: TopicPartition, offset: int) -> FetchedPartition:
    def ask() -> FetchedPartition:
        link = cluster.leader(place)
        link.send_fetch({place: (offset, _ONE_BATCH)}, wait_ms=_WAIT_MS, read_committed=False)
        (answer,) = link.receive_fetch()
        return answer

    return cluster.patiently(f"reading {place}", ask)
