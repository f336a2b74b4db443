"""The life of a transactional id: who may write under it, and what ends a transaction. No I/O.

Rules
-----
1. A ``Transaction`` is how one transactional id stands. It is never changed: every method returns how the id
   stands next, or raises ``RequestRefused`` with Kafka's error code. The caller writes the next standing down
   and lets it take effect once that is durable, so a write that fails leaves everything as it was.
2. ``state`` changes only along ``TRANSITIONS``.
3. An identity (producer id and epoch) that was replaced never becomes valid again.
4. Time comes in as ``now_ms``, the wall clock's: it is written down and outlives the process.

Theory
------
A transactional id has one *producer* at a time, known by its identity. Each InitProducerId gives it another
one, and whoever still uses an older one is fenced. The producer's transactions follow each other::

    EMPTY            a producer was given its identity, and nothing happened since
    ONGOING          records were written or offsets are pending, and nothing is decided
    PREPARE_COMMIT   decided, and durably so; some marker that says so is not in its partition's log yet
    PREPARE_ABORT
    COMPLETE_COMMIT  every partition's log tells readers what was decided
    COMPLETE_ABORT
    DEAD             not used for so long that it was forgotten

On one node the markers follow the decision within the same turn of the loop, so PREPARE is seen only where a
log takes no writes, its disk being full. Kafka's PrepareEpochFence is not here: it marks an abort whose new
epoch is on its way to other machines; here the abort and the new epoch are one write.

Two protocols end a transaction. In the first (EndTxn below version 5) the producer keeps its epoch from one
transaction to the next, so a request that arrives late may look like one of the next transaction's. In the
second (KIP-890) every end gives the producer the next epoch, so a late request names an identity that is
over; ``previous`` is the one that ended the last transaction, and tells a retry, which gets the same answer
again, from a stranger, who is fenced.

An epoch is a 16-bit number. A producer that has used ``LAST_EPOCH`` gets a new producer id at epoch 0; the
one epoch above it is for the markers of its last transaction.

A transaction for two-phase commit (KIP-939) has no time-out. The producer that comes back after a crash asks
for it to be *kept*: it gets an identity of its own while the records stay under the one they were written
with (``kept``), and it can do nothing but end that transaction.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from millstream.broker.codes import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    PRODUCER_FENCED,
)
from millstream.errors import RequestRefused

LAST_EPOCH = 32766  # that a producer may use
_MARKER_EPOCH = 32767
NO_TIMEOUT = 2**31 - 1  # a transaction for two-phase commit


class State(enum.Enum):
    """As Kafka names them in ListTransactions and DescribeTransactions."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"


# An abort of the second protocol may come when nothing was begun: it still gives the next epoch.
TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.DEAD: frozenset(),
}


class Answer(enum.Enum):
    """What an EndTxn comes to."""

    END = "the transaction ends now"
    SAME = "it ended before; the same answer again"
    WAIT = "it is decided and still being ended"
    WRONG = "there is nothing that could be ended so"


_END, _SAME, _WAIT, _WRONG = Answer.END, Answer.SAME, Answer.WAIT, Answer.WRONG

# The first protocol: (state, commit). The identity is the current one, or it is fenced.
FIRST_PROTOCOL: Mapping[tuple[State, bool], Answer] = {
    (State.EMPTY, True): _WRONG,
    (State.EMPTY, False): _WRONG,
    (State.ONGOING, True): _END,
    (State.ONGOING, False): _END,
    (State.PREPARE_COMMIT, True): _WAIT,
    (State.PREPARE_COMMIT, False): _WRONG,
    (State.PREPARE_ABORT, True): _WRONG,
    (State.PREPARE_ABORT, False): _WAIT,
    (State.COMPLETE_COMMIT, True): _SAME,
    (State.COMPLETE_COMMIT, False): _WRONG,
    (State.COMPLETE_ABORT, True): _WRONG,
    (State.COMPLETE_ABORT, False): _SAME,
}

# The second: (state, commit, whether the identity is the previous one). What is missing is fenced.
SECOND_PROTOCOL: Mapping[tuple[State, bool, bool], Answer] = {
    (State.EMPTY, True, False): _WRONG,
    (State.EMPTY, False, False): _END,
    (State.ONGOING, True, False): _END,
    (State.ONGOING, False, False): _END,
    (State.PREPARE_COMMIT, True, True): _WAIT,
    (State.PREPARE_COMMIT, False, True): _WRONG,
    (State.PREPARE_ABORT, True, True): _WRONG,
    (State.PREPARE_ABORT, False, True): _WAIT,
    (State.COMPLETE_COMMIT, True, False): _WRONG,
    (State.COMPLETE_COMMIT, False, False): _END,
    (State.COMPLETE_COMMIT, True, True): _SAME,
    (State.COMPLETE_COMMIT, False, True): _WRONG,
    (State.COMPLETE_ABORT, True, False): _WRONG,
    (State.COMPLETE_ABORT, False, False): _END,
    (State.COMPLETE_ABORT, True, True): _WRONG,
    (State.COMPLETE_ABORT, False, True): _SAME,
}

_DECIDED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)


class Identity(NamedTuple):
    """What a producer shows with every request."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"producer {self.producer_id}, epoch {self.epoch}"


NOBODY = Identity(-1, -1)


@dataclass(frozen=True, slots=True)
class Transaction:
    """How a transactional id stands; see the module's description."""

    name: str
    producer: Identity
    timeout_ms: int
    updated_ms: int
    state: State = State.EMPTY
    start_ms: int = -1  # of the last transaction begun
    previous: Identity = NOBODY  # whom this producer replaced by a request of its own
    kept: Identity = NOBODY  # under whom a kept transaction's records were written

    @property
    def is_open(self) -> bool:
        return self.state is State.ONGOING

    @property
    def is_two_phase(self) -> bool:
        return self.timeout_ms == NO_TIMEOUT

    @property
    def is_decided(self) -> bool:
        """The decision is made and not in all logs."""
        return self.state in _DECIDED

    @property
    def is_unfinished(self) -> bool:
        """It holds readers back."""
        return self.is_open or self.is_decided

    @property
    def writer(self) -> Identity:
        """Under whom the records of the open transaction stand in the logs."""
        return self.kept if self.kept != NOBODY else self.producer

    @property
    def needs_spare(self) -> bool:
        """The next change of identity may take a new producer id; the caller brings one."""
        return self.producer.epoch + 2 > LAST_EPOCH

    # Requests of the producer

    def check(self, producer: Identity) -> None:
        """Whether this producer may add to the transaction now."""
        if producer != self.producer:
            raise self._stranger(producer)
        if self.is_decided:
            raise RequestRefused(CONCURRENT_TRANSACTIONS, f"{self.name}: its last transaction is being ended")
        if self.kept != NOBODY:
            raise RequestRefused(
                INVALID_TXN_STATE,
                f"{self.name}: a prepared transaction was kept; commit or abort it before writing",
            )

    def begin(self, now_ms: int) -> Transaction:
        """Something is added to the transaction; the first of it begins one."""
        if self.state is State.ONGOING:
            return self
        return self._go(State.ONGOING, start_ms=now_ms, updated_ms=now_ms)

    def end(
        self, producer: Identity, *, commit: bool, second_protocol: bool, spare: int, now_ms: int
    ) -> Transaction:
        """The producer ends its transaction; itself, if that was done before."""
        is_retry = second_protocol and producer == self.previous
        if producer != self.producer and not is_retry:
            raise self._stranger(producer)
        if second_protocol:
            answer = SECOND_PROTOCOL.get((self.state, commit, is_retry))
            if answer is None:
                raise self._stranger(producer)
        else:
            answer = FIRST_PROTOCOL[self.state, commit]
        if answer is Answer.SAME:
            return self
        if answer is Answer.WAIT:
            raise RequestRefused(CONCURRENT_TRANSACTIONS, f"{self.name}: the transaction is being ended")
        if answer is Answer.WRONG:
            raise RequestRefused(
                INVALID_TXN_STATE,
                f"{self.name}: there is no transaction to {'commit' if commit else 'abort'}, "
                f"it is {self.state.value}",
            )
        state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
        if not second_protocol:
            return self._go(state, updated_ms=now_ms)
        return self._go(
            state, producer=self._after(self.producer, 1, spare), previous=self.producer, updated_ms=now_ms
        )

    # What fences the producer

    def check_init(self, expected: Identity | None) -> bool:
        """Whether an InitProducerId of a producer that says who it is (KIP-360) is a retry of one that was
        answered. Raises where it is fenced."""
        if expected is None or expected == self.producer:
            return False
        if expected == self.previous and not self.is_open:
            return True
        raise RequestRefused(PRODUCER_FENCED, f"{self.name} has another producer by now, not {expected}")

    def init(self, expected: Identity | None, *, timeout_ms: int, spare: int, now_ms: int) -> Transaction:
        """Another producer, or the same after an error of its own, which it proves by ``expected``. What was
        open is aborted before (``fence``)."""
        if self.is_decided:
            raise RequestRefused(CONCURRENT_TRANSACTIONS, f"{self.name}: its last transaction is being ended")
        return self._go(
            State.EMPTY,
            producer=self._after(self.producer, 1, spare),
            previous=expected or NOBODY,
            timeout_ms=timeout_ms,
            start_ms=-1,
            updated_ms=now_ms,
        )

    def keep(self, expected: Identity | None, *, spare: int, now_ms: int) -> Transaction:
        """Another producer that keeps the open transaction, to end it."""
        if not self.is_two_phase:
            raise RequestRefused(
                INVALID_TXN_STATE,
                f"{self.name}: the open transaction is not for two-phase commit and can't be kept",
            )
        return self._go(
            State.ONGOING,
            producer=self._after(self.producer, 1, spare),
            previous=expected or NOBODY,
            kept=self.writer,
            updated_ms=now_ms,
        )

    def fence(self, *, spare: int, now_ms: int) -> Transaction:
        """Abort the open transaction from outside. Two epochs on: one would make its producer's own late
        request look like a retry."""
        return self._go(
            State.PREPARE_ABORT,
            producer=self._after(self.producer, 2, spare),
            previous=NOBODY,
            updated_ms=now_ms,
        )

    # After the decision

    def completed(self) -> Transaction:
        """Every marker is written."""
        state = State.COMPLETE_COMMIT if self.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
        return self._go(state, kept=NOBODY)

    def died(self) -> Transaction:
        return self._go(State.DEAD)

    def _go(self, state: State, **changes: object) -> Transaction:
        assert state in TRANSITIONS[self.state], f"{self.name}: {self.state.value} to {state.value}"
        return replace(self, state=state, **changes)  # type: ignore[arg-type]

    @staticmethod
    def _after(producer: Identity, steps: int, spare: int) -> Identity:
        if producer.epoch + steps <= LAST_EPOCH:
            return Identity(producer.producer_id, producer.epoch + steps)
        assert spare >= 0
        return Identity(spare, 0)

    def _stranger(self, producer: Identity) -> RequestRefused:
        if producer.producer_id != self.producer.producer_id:
            return RequestRefused(
                INVALID_PRODUCER_ID_MAPPING,
                f"{self.name} is of producer id {self.producer.producer_id}, not {producer.producer_id}",
            )
        return RequestRefused(
            PRODUCER_FENCED, f"{self.name} has epoch {self.producer.epoch} by now, not {producer.epoch}"
        )


def marker_epoch(before: Transaction, after: Transaction) -> int:
    """The epoch of the markers that say how the open transaction of ``before`` was ended by ``after``: the
    highest there is of the producer id the records were written under."""
    writer = before.writer
    if writer.producer_id == after.producer.producer_id:
        return after.producer.epoch
    if writer.producer_id == before.producer.producer_id:
        return min(before.producer.epoch + 1, _MARKER_EPOCH)
    return min(writer.epoch + 1, _MARKER_EPOCH)


def first_standing(name: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """A transactional id nobody has used before."""
    return Transaction(name, Identity(producer_id, 0), timeout_ms, now_ms)
