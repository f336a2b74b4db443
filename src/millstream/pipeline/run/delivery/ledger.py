"""The ledger of a query: the last batch that its outputs hold, kept on the broker that holds the outputs.

Rule 1: the ledger is the committed offsets of the query's consumer group. The offsets say where the batch
ended in its sources, so tools that watch lag see the pipeline. The metadata of each offset holds the batch's
number and the id of Spark's query, which is the id of its checkpoint.

Rule 2: what the ledger does not plainly say is never guessed. A batch is due if the ledger holds the batch
before it, and done if the ledger holds this batch with the same offsets. Anything else stops the job, with a
message that says what happened and what to do.

Theory of operation. Spark runs a batch again, always with the same offsets, if the job ended before Spark had
noted the batch as done. Only the log can tell whether the results are in it already:

- exactly once: the ledger is written in the same transaction as the results. Either both exist or neither.
- at most once: the ledger is written before the results. A batch that it holds is not sent again.
- at least once: the ledger is written after the results. A batch that it does not hold is sent, perhaps for a
  second time.

Offsets of a group without members expire (in Apache Kafka and here, seven days after they were committed). An
expired ledger could not be told from one that never existed, so an idle query rewrites its entry every
``REFRESH_S`` seconds, under the same fencing as a batch. A copy in a compacted topic was the alternative. It
would be a second place to keep in step and to secure, and it would not keep the transactional id alive, which
expires in the same way. A job that was down for longer than that is stopped by rule 2.

    entry in the group               batch 0     batch N > 0
    none                             due         stop: expired or deleted; due if no batch before it had a
                                                 partition (a pattern that matched no topic yet)
    from another checkpoint          stop        stop
    batch N - 1                      -           due
    batch N, the same offsets        done        done
    batch N, other offsets           stop        stop
    anything else                    stop        stop
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from millstream.client.protocol.cluster import Cluster, Committed
from millstream.client.text.position import TopicPartition
from millstream.core.errors import MillstreamError
from millstream.core.subscription import any_includes
from millstream.pipeline.connector.offsets import Offsets

# Frequent enough for any sensible retention, and too rare to cost anything noticeable.
REFRESH_S = 3600.0

_METADATA = re.compile(r"millstream batch (\d+) of (\S+)")


class LedgerProblem(MillstreamError):
    """The ledger does not say what is done and what is not. The job must not continue until a person has
    decided."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A batch whose results are delivered: its number, its query, and the offsets where it ended."""

    query: str
    batch: int
    offsets: Offsets

    def commits(self) -> dict[TopicPartition, Committed]:
        """The entry in the form that the group commits."""
        metadata = f"millstream batch {self.batch} of {self.query}"
        return {place: Committed(offset, metadata=metadata) for place, offset in self.offsets.items()}


class Ledger:
    """The ledger in a consumer group. ``write`` uses no transaction: a caller that has one commits
    ``LedgerEntry.commits()`` in it."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self.group = group

    def read(self, topics: Collection[str], *, stable: bool = True) -> LedgerEntry | None:
        """The last entry. ``topics`` are the topics and patterns that the query reads. With ``stable``, waits
        for an open transaction that is about to write another entry."""
        commits = self._cluster.commits(self.group, require_stable=stable)
        return entry_of(self.group, {p: c for p, c in commits.items() if any_includes(topics, p.topic)})

    def write(self, entry: LedgerEntry) -> None:
        """Write an entry outside of any transaction."""
        commits = entry.commits()
        if commits:
            metadata = next(iter(commits.values())).metadata
            self._cluster.commit(self.group, entry.offsets, metadata)


def entry_of(group: str, commits: Mapping[TopicPartition, Committed]) -> LedgerEntry | None:
    """The entry that a group's offsets hold, None if there are no offsets. Raises LedgerProblem if another
    program wrote one of them, or if they belong to different batches."""
    found: dict[tuple[str, int], Offsets] = {}
    for place, committed in commits.items():
        match = _METADATA.fullmatch(committed.metadata)
        if match is None:
            raise LedgerProblem(
                f"the offset of group {group!r} for {place} was not written by this job: it carries no"
                " batch number. Either it was reset, or another program uses the group. After a reset,"
                f" {_AFRESH}; otherwise rename the job or the other program's group"
            )
        found.setdefault((match[2], int(match[1])), {})[place] = committed.offset
    if len(found) > 1:
        said = " and ".join(f"batch {batch} of {query}" for query, batch in sorted(found))
        raise LedgerProblem(
            f"the offsets of group {group!r} belong to different batches ({said}): something has changed or"
            f" removed some of them. Check the results, and if they are right, {_AFRESH}"
        )
    for (query, batch), offsets in found.items():
        return LedgerEntry(query, batch, offsets)
    return None


def is_done(
    entry: LedgerEntry | None, this: LedgerEntry, group: str, *, nothing_before: bool = False
) -> bool:
    """True if a batch's results are delivered, according to the last entry of the ledger. Raises
    LedgerProblem if the entry does not tell. With ``nothing_before``, no earlier batch had a partition to
    read, so none could be in the ledger."""
    if entry is None:
        if this.batch == 0 or nothing_before:
            return False
        raise LedgerProblem(
            f"the checkpoint is at batch {this.batch}, but group {group!r} has no offsets: they have"
            " expired (the job was stopped for longer than the broker keeps them) or were deleted. The job"
            " can't know whether the results of that batch are in the log. If the job was stopped in an"
            f" orderly way, or you have checked the results, {_AFRESH}"
        )
    check_owner(entry, this.query, group)
    if entry.batch == this.batch - 1:
        return False
    if entry.batch == this.batch:
        if entry.offsets == this.offsets:
            return True
        raise LedgerProblem(
            f"batch {this.batch} is already in the log, but with other records than this checkpoint has for"
            f" it: {_differences(entry.offsets, this.offsets)}. Another run of the job has used a copy of"
            " the same checkpoint, and its results are in the log. Stop all other runs, then start with a"
            f" new --checkpoint and new output topics, or {_AFRESH}"
        )
    if entry.batch > this.batch:
        raise LedgerProblem(
            f"group {group!r} is at batch {entry.batch}, ahead of the checkpoint, which is at {this.batch}:"
            " the checkpoint is an old copy, and continuing from it would write the same results again."
            f" Give the group's own checkpoint; or, if a second copy is intended, {_AFRESH}"
        )
    raise LedgerProblem(
        f"group {group!r} is at batch {entry.batch}, but the checkpoint is at {this.batch}: the broker has"
        " lost the batches in between, or this is another broker. Check what the results lack. To continue"
        f" from the checkpoint anyway, {_AFRESH}"
    )


def check_owner(entry: LedgerEntry, query: str | None, group: str) -> None:
    """Raise LedgerProblem if the ledger belongs to another checkpoint. ``query`` is None for a new
    checkpoint."""
    if entry.query != query:
        raise LedgerProblem(
            f"group {group!r} belongs to another checkpoint, at batch {entry.batch}: this job, or one of"
            " the same name, has run with it. To continue would write its results a second time. Give that"
            f" checkpoint, or rename this job; or, to compute everything again, {_AFRESH}"
        )


_AFRESH = "run once with --new-ledger"


def _differences(logged: Offsets, planned: Offsets) -> str:
    places = sorted(logged.keys() | planned.keys())
    return ", ".join(
        f"{place} up to {logged.get(place, 'nothing')}, not {planned.get(place, 'nothing')}"
        for place in places
        if logged.get(place) != planned.get(place)
    )
