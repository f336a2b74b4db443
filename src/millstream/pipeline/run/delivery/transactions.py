"""The transactions of one query, one after the other, under its transactional id.

Rule: only the coordinator decides which run may write. A run takes over the id once, when it starts. From
then on, every request of an older run is refused. After that, each batch gets a new epoch only *if this run
still has the last one*. So an older run that wakes up finds out before its tasks do anything, and never takes
the id back.

After a failure it is not known what the coordinator has done, and it need not be known. The next transaction
takes over the id again, which aborts what is open and fences every task that may still be sending.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from millstream.client.protocol.cluster import Cluster, Committed
from millstream.client.protocol.transaction_requests import ProducerSession, TransactionClient
from millstream.client.text.position import TopicPartition
from millstream.core.errors import MillstreamError, ProducerFenced


class JobTakenOver(MillstreamError):
    """Another run of the job has the transactional id now; this run has to end."""


class QueryTransactions:
    """Begins and ends transactions. In between, the tasks that were given the producer write."""

    def __init__(self, cluster: Cluster, transactional_id: str, *, timeout_s: float) -> None:
        self._cluster = cluster
        self._coordinator = TransactionClient(cluster)
        self._id = transactional_id
        self._timeout_s = timeout_s
        self._last: ProducerSession | None = None  # None: accept whatever epoch the coordinator has
        self._open: ProducerSession | None = None
        self._began = 0.0

    def take_over(self) -> None:
        """Fence every other run, and abort its open transaction."""
        self._last = self._coordinator.init(self._id, round(1000 * self._timeout_s))

    def begin(self) -> ProducerSession:
        """Begin the next transaction; returns its producer. Raises JobTakenOver."""
        expected, self._last = self._last, None
        losses = self._cluster.losses
        self._began = time.monotonic()
        try:
            producer = self._coordinator.init(self._id, round(1000 * self._timeout_s), expected=expected)
        except ProducerFenced:
            if self._cluster.losses == losses:
                raise self._taken_over() from None
            # The response to a first try was lost, and with it the new epoch, which this run does not know.
            producer = self._coordinator.init(self._id, round(1000 * self._timeout_s))
        self._open = producer
        return producer

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit a group's offsets with the transaction."""
        assert self._open is not None, "begin() comes first"
        try:
            self._coordinator.commit_offsets(self._open, group, offsets)
        except ProducerFenced:
            raise self._taken_over() from None

    def commit(self) -> None:
        """Make the written records visible to everyone. If this fails, only the ledger can tell whether the
        commit happened."""
        assert self._open is not None, "begin() comes first"
        producer, self._open = self._open, None
        try:
            self._last = self._coordinator.end(producer, commit=True)
        except ProducerFenced:
            raise self._taken_over() from None

    def abort(self) -> None:
        """Release readers that wait for the end of a transaction that will never be committed. Best effort:
        the next ``begin``, or the coordinator's time-out, does the same."""
        producer, self._open = self._open, None
        self._last = None
        if producer is not None:
            try:
                self._coordinator.end(producer, commit=False)
            except MillstreamError:
                return

    def fenced(self) -> JobTakenOver:
        """The error to raise when a task was refused because of an old epoch."""
        return self._taken_over()

    def _taken_over(self) -> JobTakenOver:
        taken = time.monotonic() - self._began
        if taken > self._timeout_s:
            return JobTakenOver(
                f"the transaction of {self._id!r} was open for {taken:.0f} s, and a coordinator aborts after"
                f" {self._timeout_s:g} s; or another run of this job has taken over. If there is none, make"
                " batches smaller (max_rows=) or the time longer (--transaction-timeout)"
            )
        return JobTakenOver(
            f"another run of this job has taken over (transactional id {self._id!r}); this one ends. Nothing"
            " was lost, and nothing will be written twice: the other continues where this one was"
        )
