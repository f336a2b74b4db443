"""The ledger of a query: which batch its outputs hold, kept where the outputs are.

Rule 1: the ledger is the committed offsets of the query's consumer group. The offsets are where the batch
ended in its sources, so tools that watch lag see the pipeline; the metadata beside each is the batch's number
and the id of Spark's query, which is the id of its checkpoint.

Rule 2: what the ledger does not plainly say is never guessed. A batch is due if the ledger holds the one
before it, done if it holds this one with the same offsets; anything else stops the job, with what happened
and what to do.

Theory of operation. Spark runs a batch again if it ended before Spark had noted it as done, always with the
same offsets. Whether its results are in the log already, only the log can tell:

- exactly once: the ledger is written in the transaction that writes the results. Both are there or neither.
- at most once: it is written before the results; a batch that it holds is not sent again.
- at least once: it is written after them; a batch that it does not hold is sent, perhaps once more.

Offsets of a group without members expire (in Apache Kafka and here after seven days, counted from when they
were committed). A ledger that expired could not be told from one that never was, so an idle query writes its
entry anew now and then (``REFRESH_S``), under the same fencing as a batch. That was preferred to a copy in a
compacted topic: no second place to keep in step and to secure, and the transactional id, which expires in the
same way, is kept alive with it. A job that stood still for longer is stopped by rule 2.

    entry in the group               batch 0     batch N > 0
    none                             due         stop: expired or deleted
    of another checkpoint            stop        stop
    batch N - 1                      -           due
    batch N, the same offsets        done        done
    batch N, other offsets           stop        stop
    any other                        stop        stop
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from millstream.client.cluster import Cluster, Committed
from millstream.client.position import TopicPartition
from millstream.errors import MillstreamError
from millstream.pipeline.offsets import Offsets

# Often enough for any sensible retention, and too seldom to be noticed.
REFRESH_S = 3600.0

_METADATA = re.compile(r"millstream batch (\d+) of (\S+)")


class LedgerProblem(MillstreamError):
    """The ledger does not say what is done and what is not; the job must not go on by itself."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A batch whose results are delivered: its number, the query it is of, and where it ended."""

    query: str
    batch: int
    offsets: Offsets

    def commits(self) -> dict[TopicPartition, Committed]:
        """As the group keeps it."""
        metadata = f"millstream batch {self.batch} of {self.query}"
        return {place: Committed(offset, metadata=metadata) for place, offset in self.offsets.items()}


class Ledger:
    """The ledger in a group of a cluster. Writing it in a transaction is the business of whoever has one."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self.group = group

    def read(self, topics: Collection[str], *, stable: bool = True) -> Entry | None:
        """The last entry; ``topics`` are the query's sources. ``stable``: a transaction that is about to
        write another is waited for."""
        commits = self._cluster.commits(self.group, require_stable=stable)
        return entry_of(self.group, {p: c for p, c in commits.items() if p.topic in topics})

    def write(self, entry: Entry) -> None:
        """Outside of any transaction."""
        commits = entry.commits()
        if commits:
            metadata = next(iter(commits.values())).metadata
            self._cluster.commit(self.group, entry.offsets, metadata)


def entry_of(group: str, commits: Mapping[TopicPartition, Committed]) -> Entry | None:
    """What a group's offsets say. Raises LedgerProblem where somebody else has written them."""
    found: dict[tuple[str, int], Offsets] = {}
    for place, committed in commits.items():
        match = _METADATA.fullmatch(committed.metadata)
        if match is None:
            raise LedgerProblem(
                f"the offset of group {group!r} for {place} was not written by this job: it carries no batch"
                " number. Was it reset, or is another program using the group? If it was a reset,"
                f" {_AFRESH}; otherwise give the job or the other program another name"
            )
        found.setdefault((match[2], int(match[1])), {})[place] = committed.offset
    if len(found) > 1:
        said = " and ".join(f"batch {batch} of {query}" for query, batch in sorted(found))
        raise LedgerProblem(
            f"the offsets of group {group!r} are of different batches ({said}): something has changed or"
            f" removed a part of them. Look at the results, and if they are right {_AFRESH}"
        )
    for (query, batch), offsets in found.items():
        return Entry(query, batch, offsets)
    return None


def is_done(entry: Entry | None, this: Entry, group: str) -> bool:
    """Whether a batch's results are delivered, by the last entry of the ledger. Raises LedgerProblem where
    that can't be told."""
    if entry is None:
        if this.batch == 0:
            return False
        raise LedgerProblem(
            f"the checkpoint is at batch {this.batch}, but group {group!r} has no offsets: they have expired"
            " (the job stood still for longer than the broker keeps them) or were deleted. Whether the"
            " results of that batch are in the log can't be known. If the job was stopped in an orderly way,"
            f" or you have looked, {_AFRESH}"
        )
    check_owner(entry, this.query, group)
    if entry.batch == this.batch - 1:
        return False
    if entry.batch == this.batch:
        if entry.offsets == this.offsets:
            return True
        raise LedgerProblem(
            f"batch {this.batch} is in the log already, but with other records than this checkpoint has for"
            f" it: {_differences(entry.offsets, this.offsets)}. Another run of the job has used the same"
            " checkpoint; its results stand. Stop all others, and start with a new --checkpoint and new"
            f" output topics, or {_AFRESH}"
        )
    if entry.batch > this.batch:
        raise LedgerProblem(
            f"group {group!r} is at batch {entry.batch}, ahead of the checkpoint, which is at {this.batch}:"
            " the checkpoint is an old copy, and running on from it would write again what the log holds."
            f" Give the checkpoint that belongs to it; or, if that is meant, {_AFRESH}"
        )
    raise LedgerProblem(
        f"group {group!r} is at batch {entry.batch}, but the checkpoint has got to {this.batch}: the broker"
        " has lost what came between, or is another one. Look at what is missing in the results; to go on"
        f" from the checkpoint all the same, {_AFRESH}"
    )


def check_owner(entry: Entry, query: str | None, group: str) -> None:
    """Raise LedgerProblem if the ledger is that of another checkpoint; ``query`` is None for a new one."""
    if entry.query != query:
        raise LedgerProblem(
            f"group {group!r} belongs to another checkpoint, which got to batch {entry.batch}: this job, or"
            " one of the same name, has run with it. Going on would write its results a second time. Give"
            " that checkpoint; or another name to this job; or, if all is to be computed anew,"
            f" {_AFRESH}"
        )


_AFRESH = "run once with --new-ledger"


def _differences(logged: Offsets, planned: Offsets) -> str:
    places = sorted(logged.keys() | planned.keys())
    return ", ".join(
        f"{place} up to {logged.get(place, 'nothing')}, not {planned.get(place, 'nothing')}"
        for place in places
        if logged.get(place) != planned.get(place)
    )
