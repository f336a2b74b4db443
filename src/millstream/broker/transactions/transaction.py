"""The life of a transactional id: which producer may write, and what ends a transaction. No I/O.

Rules
-----
1. A ``TransactionalIdState`` is immutable: the producer of one transactional id, the state of its
   transaction, and its times. Every method returns the id's next state, or raises ``RequestRefused`` with
   Kafka's error code. The caller stores the next state and applies it once it is durable, so a failed write
   leaves everything as it was.
2. ``state`` changes only along ``TRANSITIONS``.
3. An identity (producer id and epoch) that was replaced never becomes valid again.
4. Time comes in as ``now_ms`` of the wall clock, because it is stored and outlives the process.

Theory
------
A transactional id has one *producer* at a time, known by its identity. Each InitProducerId gives it a new
one, and a producer that still uses an older one is fenced. The producer's transactions follow each other::

    EMPTY            a producer was given its identity, and nothing happened since
    ONGOING          records were written or offsets are pending, and nothing is decided
    PREPARE_COMMIT   committed, durably; the marker is still missing in some partition's log
    PREPARE_ABORT    aborted, likewise
    COMPLETE_COMMIT  committed, and every partition's log has its marker
    COMPLETE_ABORT   aborted, likewise
    DEAD             unused for so long that the id was forgotten

On one node the markers follow the decision within the same turn of the loop. So a PREPARE state is seen only
where a log takes no writes because its disk is full. Kafka's PrepareEpochFence does not occur. It marks an
abort whose new epoch is on its way to other machines, and here the abort and the new epoch are one write.

Two protocols end a transaction. In the first (EndTxn below version 5), the producer keeps its epoch from one
transaction to the next, so a request that arrives late may look like a request of the next transaction. In
the second (KIP-890), every end gives the producer the next epoch, so a late request names an identity that
is no longer valid. ``previous`` is the identity that ended the last transaction. It tells a retry, which gets
the same response again, from a request of another producer, which is fenced.

An epoch is a 16-bit number. A producer that has used ``LAST_EPOCH`` gets a new producer id at epoch 0. The
one epoch above it is for the markers of its last transaction.

A transaction for two-phase commit (KIP-939) has no time-out. A producer that comes back after a crash asks
to *keep* it. It gets a new identity, while the records stay under the identity that wrote them (``kept``),
and it can do nothing but end that transaction.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import (
    CONCURRENT_TRANSACTIONS,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    PRODUCER_FENCED,
)

LAST_EPOCH = 32766  # the highest epoch that a producer may use
_MARKER_EPOCH = 32767
NO_TIMEOUT = 2**31 - 1  # a transaction for two-phase commit


class TxnState(enum.Enum):
    """The states, under Kafka's names in ListTransactions and DescribeTransactions."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"


# In the second protocol, an abort may come when no transaction has begun. It still gives the next epoch.
TRANSITIONS: Mapping[TxnState, frozenset[TxnState]] = {
    TxnState.EMPTY: frozenset({TxnState.EMPTY, TxnState.ONGOING, TxnState.PREPARE_ABORT, TxnState.DEAD}),
    TxnState.ONGOING: frozenset({TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT}),
    TxnState.PREPARE_COMMIT: frozenset({TxnState.COMPLETE_COMMIT}),
    TxnState.PREPARE_ABORT: frozenset({TxnState.COMPLETE_ABORT}),
    TxnState.COMPLETE_COMMIT: frozenset(
        {TxnState.EMPTY, TxnState.ONGOING, TxnState.PREPARE_ABORT, TxnState.DEAD}
    ),
    TxnState.COMPLETE_ABORT: frozenset(
        {TxnState.EMPTY, TxnState.ONGOING, TxnState.PREPARE_ABORT, TxnState.DEAD}
    ),
    TxnState.DEAD: frozenset(),
}


class EndOutcome(enum.Enum):
    """The result of an EndTxn."""

    END = "the transaction ends now"
    SAME = "it ended before; the same answer again"
    WAIT = "it is decided and still being ended"
    WRONG = "there is nothing that could be ended so"


_END, _SAME, _WAIT, _WRONG = EndOutcome.END, EndOutcome.SAME, EndOutcome.WAIT, EndOutcome.WRONG

# The first protocol: (state, commit). Any identity but the current one is fenced.
FIRST_PROTOCOL: Mapping[tuple[TxnState, bool], EndOutcome] = {
    (TxnState.EMPTY, True): _WRONG,
    (TxnState.EMPTY, False): _WRONG,
    (TxnState.ONGOING, True): _END,
    (TxnState.ONGOING, False): _END,
    (TxnState.PREPARE_COMMIT, True): _WAIT,
    (TxnState.PREPARE_COMMIT, False): _WRONG,
    (TxnState.PREPARE_ABORT, True): _WRONG,
    (TxnState.PREPARE_ABORT, False): _WAIT,
    (TxnState.COMPLETE_COMMIT, True): _SAME,
    (TxnState.COMPLETE_COMMIT, False): _WRONG,
    (TxnState.COMPLETE_ABORT, True): _WRONG,
    (TxnState.COMPLETE_ABORT, False): _SAME,
}

# The second protocol: (state, commit, whether the identity is the previous one). A missing key means fenced.
SECOND_PROTOCOL: Mapping[tuple[TxnState, bool, bool], EndOutcome] = {
    (TxnState.EMPTY, True, False): _WRONG,
    (TxnState.EMPTY, False, False): _END,
    (TxnState.ONGOING, True, False): _END,
    (TxnState.ONGOING, False, False): _END,
    (TxnState.PREPARE_COMMIT, True, True): _WAIT,
    (TxnState.PREPARE_COMMIT, False, True): _WRONG,
    (TxnState.PREPARE_ABORT, True, True): _WRONG,
    (TxnState.PREPARE_ABORT, False, True): _WAIT,
    (TxnState.COMPLETE_COMMIT, True, False): _WRONG,
    (TxnState.COMPLETE_COMMIT, False, False): _END,
    (TxnState.COMPLETE_COMMIT, True, True): _SAME,
    (TxnState.COMPLETE_COMMIT, False, True): _WRONG,
    (TxnState.COMPLETE_ABORT, True, False): _WRONG,
    (TxnState.COMPLETE_ABORT, False, False): _END,
    (TxnState.COMPLETE_ABORT, True, True): _WRONG,
    (TxnState.COMPLETE_ABORT, False, True): _SAME,
}

_DECIDED = (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)


class ProducerIdentity(NamedTuple):
    """The producer id and epoch that a producer sends with every request."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"producer {self.producer_id}, epoch {self.epoch}"


NOBODY = ProducerIdentity(-1, -1)


@dataclass(frozen=True, slots=True)
class TransactionalIdState:
    """What is stored of a transactional id; see the module's description."""

    name: str
    producer: ProducerIdentity
    timeout_ms: int
    updated_ms: int
    state: TxnState = TxnState.EMPTY
    start_ms: int = -1  # of the last transaction begun
    previous: ProducerIdentity = NOBODY  # the producer's identity before its own last request replaced it
    kept: ProducerIdentity = NOBODY  # the identity that wrote the records of a kept transaction

    @property
    def is_open(self) -> bool:
        return self.state is TxnState.ONGOING

    @property
    def is_two_phase(self) -> bool:
        return self.timeout_ms == NO_TIMEOUT

    @property
    def is_decided(self) -> bool:
        """True if the transaction is decided, but some log lacks its marker."""
        return self.state in _DECIDED

    @property
    def is_unfinished(self) -> bool:
        """True if the transaction holds readers back."""
        return self.is_open or self.is_decided

    @property
    def writer(self) -> ProducerIdentity:
        """The identity that the open transaction's records have in the logs."""
        return self.kept if self.kept != NOBODY else self.producer

    @property
    def needs_spare(self) -> bool:
        """True if the next change of identity may need a new producer id, which the caller has to supply."""
        return self.producer.epoch + 2 > LAST_EPOCH

    # Requests of the producer

    def check(self, producer: ProducerIdentity) -> None:
        """Raise RequestRefused unless this producer may add to the transaction now."""
        if producer != self.producer:
            raise self._wrong_producer(producer)
        if self.is_decided:
            raise RequestRefused(CONCURRENT_TRANSACTIONS, f"{self.name}: its last transaction is being ended")
        if self.kept != NOBODY:
            raise RequestRefused(
                INVALID_TXN_STATE,
                f"{self.name}: a prepared transaction was kept; commit or abort it before writing",
            )

    def begin(self, now_ms: int) -> TransactionalIdState:
        """Add to the open transaction, or begin one."""
        if self.state is TxnState.ONGOING:
            return self
        return self._transition(TxnState.ONGOING, start_ms=now_ms, updated_ms=now_ms)

    def end(
        self, producer: ProducerIdentity, *, commit: bool, second_protocol: bool, spare: int, now_ms: int
    ) -> TransactionalIdState:
        """The state after the producer ended its transaction; ``self`` if it had already ended."""
        is_retry = second_protocol and producer == self.previous
        if producer != self.producer and not is_retry:
            raise self._wrong_producer(producer)
        if second_protocol:
            answer = SECOND_PROTOCOL.get((self.state, commit, is_retry))
            if answer is None:
                raise self._wrong_producer(producer)
        else:
            answer = FIRST_PROTOCOL[self.state, commit]
        if answer is EndOutcome.SAME:
            return self
        if answer is EndOutcome.WAIT:
            raise RequestRefused(CONCURRENT_TRANSACTIONS, f"{self.name}: the transaction is being ended")
        if answer is EndOutcome.WRONG:
            raise RequestRefused(
                INVALID_TXN_STATE,
                f"{self.name}: there is no transaction to {'commit' if commit else 'abort'}, "
                f"it is {self.state.value}",
            )
        state = TxnState.PREPARE_COMMIT if commit else TxnState.PREPARE_ABORT
        if not second_protocol:
            return self._transition(state, updated_ms=now_ms)
        return self._transition(
            state, producer=self._after(self.producer, 1, spare), previous=self.producer, updated_ms=now_ms
        )

    # What fences the producer

    def check_init(self, expected: ProducerIdentity | None) -> bool:
        """True if an InitProducerId that names its producer's identity (KIP-360) is a retry of one that was
        answered. Raises RequestRefused if the producer is fenced."""
        if expected is None or expected == self.producer:
            return False
        if expected == self.previous and not self.is_open:
            return True
        raise RequestRefused(PRODUCER_FENCED, f"{self.name} has another producer now, not {expected}")

    def init(
        self, expected: ProducerIdentity | None, *, timeout_ms: int, spare: int, now_ms: int
    ) -> TransactionalIdState:
        """The state with a new producer, or with the same one after an error, which it proves with
        ``expected``. An open transaction has to be aborted first (``fence``)."""
        if self.is_decided:
            raise RequestRefused(CONCURRENT_TRANSACTIONS, f"{self.name}: its last transaction is being ended")
        return self._transition(
            TxnState.EMPTY,
            producer=self._after(self.producer, 1, spare),
            previous=expected or NOBODY,
            timeout_ms=timeout_ms,
            start_ms=-1,
            updated_ms=now_ms,
        )

    def keep(self, expected: ProducerIdentity | None, *, spare: int, now_ms: int) -> TransactionalIdState:
        """The state with a new producer that keeps the open transaction, in order to end it."""
        if not self.is_two_phase:
            raise RequestRefused(
                INVALID_TXN_STATE,
                f"{self.name}: the open transaction is not for two-phase commit and can't be kept",
            )
        return self._transition(
            TxnState.ONGOING,
            producer=self._after(self.producer, 1, spare),
            previous=expected or NOBODY,
            kept=self.writer,
            updated_ms=now_ms,
        )

    def fence(self, *, spare: int, now_ms: int) -> TransactionalIdState:
        """Abort the open transaction on behalf of the broker, not of its producer. The epoch advances by two:
        with one, a late request of the producer would look like a retry."""
        return self._transition(
            TxnState.PREPARE_ABORT,
            producer=self._after(self.producer, 2, spare),
            previous=NOBODY,
            updated_ms=now_ms,
        )

    # After the decision

    def completed(self) -> TransactionalIdState:
        """The state once every marker is written."""
        state = TxnState.COMPLETE_COMMIT if self.state is TxnState.PREPARE_COMMIT else TxnState.COMPLETE_ABORT
        return self._transition(state, kept=NOBODY)

    def died(self) -> TransactionalIdState:
        return self._transition(TxnState.DEAD)

    def _transition(self, state: TxnState, **changes: object) -> TransactionalIdState:
        assert state in TRANSITIONS[self.state], f"{self.name}: {self.state.value} to {state.value}"
        return replace(self, state=state, **changes)  # type: ignore[arg-type]

    @staticmethod
    def _after(producer: ProducerIdentity, steps: int, spare: int) -> ProducerIdentity:
        if producer.epoch + steps <= LAST_EPOCH:
            return ProducerIdentity(producer.producer_id, producer.epoch + steps)
        assert spare >= 0
        return ProducerIdentity(spare, 0)

    def _wrong_producer(self, producer: ProducerIdentity) -> RequestRefused:
        if producer.producer_id != self.producer.producer_id:
            return RequestRefused(
                INVALID_PRODUCER_ID_MAPPING,
                f"{self.name} is of producer id {self.producer.producer_id}, not {producer.producer_id}",
            )
        return RequestRefused(
            PRODUCER_FENCED, f"{self.name} has epoch {self.producer.epoch} now, not {producer.epoch}"
        )


def marker_epoch(before: TransactionalIdState, after: TransactionalIdState) -> int:
    """The epoch of the markers for the change from ``before``, with an open transaction, to ``after``: the
    highest epoch so far of the producer id that wrote the records."""
    writer = before.writer
    if writer.producer_id == after.producer.producer_id:
        return after.producer.epoch
    if writer.producer_id == before.producer.producer_id:
        return min(before.producer.epoch + 1, _MARKER_EPOCH)
    return min(writer.epoch + 1, _MARKER_EPOCH)


def first_state(name: str, producer_id: int, timeout_ms: int, now_ms: int) -> TransactionalIdState:
    """The state of a transactional id that was never used."""
    return TransactionalIdState(name, ProducerIdentity(producer_id, 0), timeout_ms, now_ms)
