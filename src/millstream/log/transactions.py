"""The transactions of a partition: which are open, and how far they hold back readers of committed records.

Rules (Kafka's own):

1. A transaction is open in a partition from its producer's first transactional batch there until the
   marker that commits or aborts it. A producer has one at a time.
2. While it is open, its producer may write nothing else there (INVALID_TXN_STATE), and a newer epoch of
   the producer nothing at all (CONCURRENT_TRANSACTIONS). The marker for the old epoch's transaction must
   come first, or the records of both would share one outcome.
3. The **last stable offset** is the first offset of the oldest open transaction, or the log's end if none
   is open. Everything before it is decided. A marker counts once it is in the file, not when it is staged.
4. A marker of a producer without an open transaction is kept in the log and decides nothing.
5. A marker of a coordinator older than the one of the producer's last marker is refused
   (TRANSACTION_COORDINATOR_FENCED).
6. An aborted transaction is stored with its first and last offset (the last is its marker's) and the last
   stable offset at that time. A transaction that is aborted later can't have begun before that offset, so
   a search for aborted transactions up to it can stop there.

``undo`` reverts what is not yet in the file, as if it had never happened. Pure state: no I/O.
"""

from __future__ import annotations

from typing import NamedTuple

from millstream.core.errors import AppendRefused
from millstream.core.kafka_errors import (
    CONCURRENT_TRANSACTIONS,
    INVALID_TXN_STATE,
    TRANSACTION_COORDINATOR_FENCED,
)
from millstream.log.producers import Producers

# How a Produce request describes its transaction: the transactional id and the request's version.
RequestTransaction = tuple[str, int]

NO_COORDINATOR = -1
NO_OFFSET = -1


class OpenTransaction(NamedTuple):
    """A transaction that no marker has ended yet."""

    epoch: int  # of its producer
    first_offset: int
    started_ms: int  # by the broker's clock, as far as it is known
    last_ms: int  # when its producer last wrote
    coordinator_epoch: int  # of its producer's last marker here, -1 if there was none


class ProducerDescription(NamedTuple):
    """What is known of a producer, in the terms of DescribeProducers."""

    producer_id: int
    epoch: int
    last_sequence: int  # -1 if its epoch has no batch yet
    last_ms: int
    coordinator_epoch: int
    first_offset: int  # of its open transaction, -1 if it has none


class Aborted(NamedTuple):
    """An aborted transaction (rule 6)."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class PartitionTransactions:
    """The transactions of one partition."""

    __slots__ = ("_aborted", "coordinators", "first_unstable", "open", "unwritten")

    def __init__(self) -> None:
        # By producer id: first offset and start time, oldest first. Always the same dictionary, so an
        # append can keep a reference to it.
        self.open: dict[int, tuple[int, int]] = {}
        self.coordinators: dict[int, int] = {}  # by producer id: the epoch of its last marker's coordinator
        self.first_unstable: int | None = None  # as of the last commit()
        self._aborted: list[Aborted] = []  # since the last commit()
        # Producers that changed since the last commit(), with their state at that time.
        self.unwritten: dict[int, tuple[tuple[int, int] | None, int | None]] = {}

    def check_plain(self, producer_id: int) -> None:
        """Raise AppendRefused if the producer may not write outside a transaction now (rule 2)."""
        if producer_id in self.open:
            raise AppendRefused(
                INVALID_TXN_STATE,
                f"producer {producer_id} has an open transaction here since offset "
                f"{self.open[producer_id][0]}; it may write nothing else until that is committed or aborted",
            )

    def check_epoch(self, producer_id: int, epoch: int, known_epoch: int) -> None:
        """Raise AppendRefused if a transaction of an older epoch is still open (rule 2)."""
        if epoch != known_epoch and producer_id in self.open:
            raise AppendRefused(
                CONCURRENT_TRANSACTIONS,
                f"the transaction of producer {producer_id} in epoch {known_epoch} is still open here; "
                f"epoch {epoch} can begin when it has ended",
            )

    def check_coordinator(self, producer_id: int, coordinator_epoch: int) -> None:
        """Raise AppendRefused for the marker of a coordinator that was replaced (rule 5)."""
        known = self.coordinators.get(producer_id, NO_COORDINATOR)
        if coordinator_epoch < known:
            raise AppendRefused(
                TRANSACTION_COORDINATOR_FENCED,
                f"a marker of coordinator epoch {coordinator_epoch} for producer {producer_id}, "
                f"whose last one was of epoch {known}",
            )

    def wrote(self, producer_id: int, offset: int, now_ms: int) -> None:
        """Note that a transactional batch was appended at ``offset``."""
        if producer_id not in self.open:
            self._remember(producer_id)
            self.open[producer_id] = (offset, now_ms)

    def ended(self, producer_id: int, offset: int, *, commit: bool, coordinator_epoch: int) -> Aborted | None:
        """Note that the producer's marker was appended at ``offset``. Returns the transaction that it
        aborted, if any."""
        self._remember(producer_id)
        self.coordinators[producer_id] = coordinator_epoch
        ended = self.open.pop(producer_id, None)
        if ended is None or commit:
            return None
        stable = next(iter(self.open.values()))[0] if self.open else offset + 1
        aborted = Aborted(producer_id, ended[0], offset, stable)
        self._aborted.append(aborted)
        return aborted

    def _remember(self, producer_id: int) -> None:
        if producer_id not in self.unwritten:
            self.unwritten[producer_id] = self.open.get(producer_id), self.coordinators.get(producer_id)

    def commit(self) -> list[Aborted]:
        """Note that everything so far is in the file, which moves the last stable offset. Returns what
        was aborted."""
        self.unwritten.clear()
        self.first_unstable = next(iter(self.open.values()))[0] if self.open else None
        aborted, self._aborted = self._aborted, []
        return aborted

    def undo(self) -> None:
        """Go back to the last ``commit``."""
        for producer_id, (was_open, coordinator) in self.unwritten.items():
            if was_open is None:
                self.open.pop(producer_id, None)
            else:
                self.open[producer_id] = was_open
            if coordinator is None:
                self.coordinators.pop(producer_id, None)
            else:
                self.coordinators[producer_id] = coordinator
        self.sort()
        self.unwritten.clear()
        self._aborted.clear()

    def sort(self) -> None:
        """Sort the open transactions again, after some were added out of order."""
        in_order = sorted(self.open.items(), key=lambda item: item[1][0])
        self.open.clear()
        self.open.update(in_order)

    def clear(self) -> None:
        self.open.clear()
        self.coordinators.clear()
        self.unwritten.clear()
        self._aborted.clear()
        self.first_unstable = None


def open_transactions(
    producers: Producers, transactions: PartitionTransactions
) -> dict[int, OpenTransaction]:
    """Open transactions by producer id, oldest first."""
    return {
        producer_id: OpenTransaction(
            producers.states[producer_id][0],
            first_offset,
            started_ms,
            producers.states[producer_id][3],
            transactions.coordinators.get(producer_id, NO_COORDINATOR),
        )
        for producer_id, (first_offset, started_ms) in transactions.open.items()
    }


def describe_producers(
    producers: Producers, transactions: PartitionTransactions
) -> list[ProducerDescription]:
    return [
        ProducerDescription(
            producer_id,
            epoch,
            batches[-1][1] if batches else -1,
            last_ms,
            transactions.coordinators.get(producer_id, NO_COORDINATOR),
            transactions.open[producer_id][0] if producer_id in transactions.open else NO_OFFSET,
        )
        for producer_id, (epoch, _, batches, last_ms) in producers.states.items()
    ]
