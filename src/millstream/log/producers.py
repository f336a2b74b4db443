"""The last batches of each idempotent producer in a partition, so that a batch sent twice is stored once.

Rules (Kafka's own, for batches that a client sends):

1. A batch whose epoch and sequence numbers equal one of the producer's last five is a duplicate. It is
   not appended; the response carries the offset of the first one.
2. An epoch older than the producer's newest is refused (INVALID_PRODUCER_EPOCH).
3. A newer epoch must start at sequence 0; otherwise it is refused (OUT_OF_ORDER_SEQUENCE_NUMBER).
4. In the same epoch, a batch must continue where the last one ended; otherwise it is refused. Sequence
   numbers run from 0 to 2^31-1 and then start at 0 again.
5. An unknown producer may start anywhere: retention may have deleted its records.
6. A marker of an older epoch is refused, as a batch is. A marker of a newer epoch (KIP-890 ends
   transactions in the next epoch) makes that the producer's epoch, which starts at sequence 0.

The state of a producer's transactions is not kept here, but in ``transactions``.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from millstream.core.errors import AppendRefused
from millstream.core.kafka_errors import INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER

KEPT_BATCHES = 5
_ALL_BUT_ONE = slice(1 - KEPT_BATCHES, None)
SEQUENCE_MASK = 0x7FFFFFFF


# One of a producer's last batches: base sequence, last sequence, last offset, offset delta, and when it
# arrived by the broker's clock. Plain tuples, because creating anything else costs a third of an append.
KeptBatch = tuple[int, int, int, int, int]

# A producer: its newest epoch, its next sequence number, its last batches (oldest first), and when it
# last wrote. Replaced as a whole and never changed, so an append that fails to reach the file is undone
# by putting the old state back.
ProducerState = tuple[int, int, tuple[KeptBatch, ...], int]


class Duplicate(NamedTuple):
    """The first appearance in the log of a batch that was sent again."""

    base_offset: int
    time_ms: int


class Producers:
    """The producers of one partition. Pure state: no I/O."""

    __slots__ = ("_before", "states")

    def __init__(self) -> None:
        self.states: dict[int, ProducerState] = {}
        self._before: dict[int, ProducerState | None] = {}  # the states at the last commit()

    def check(self, producer_id: int, epoch: int, base_sequence: int, offset_delta: int) -> Duplicate | None:
        """The first appearance of this batch if it is a duplicate; None if it may be appended. Raises
        AppendRefused otherwise."""
        state = self.states.get(producer_id)
        if state is None:
            return None
        known_epoch, next_sequence, batches, _ = state
        if epoch == known_epoch:
            if base_sequence == next_sequence:
                return None
            wanted = (base_sequence, (base_sequence + offset_delta) & SEQUENCE_MASK)
            for first, last, last_offset, delta, time_ms in batches:
                if (first, last) == wanted:
                    return Duplicate(last_offset - delta, time_ms)
            raise AppendRefused(
                OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} (epoch {epoch}) sent sequence {base_sequence}, "
                f"{next_sequence} is expected",
            )
        if epoch < known_epoch:
            raise _fenced(producer_id, epoch, known_epoch)
        if base_sequence != 0:
            raise AppendRefused(
                OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id} starts epoch {epoch} with sequence {base_sequence}, but"
                " must start with 0",
            )
        return None

    def record(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        offset_delta: int,
        base_offset: int,
        time_ms: int,
    ) -> None:
        """Note a batch that was appended."""
        state = self.states.get(producer_id)
        if producer_id not in self._before:
            self._before[producer_id] = state
        last_sequence = (base_sequence + offset_delta) & SEQUENCE_MASK
        kept = (base_sequence, last_sequence, base_offset + offset_delta, offset_delta, time_ms)
        if state is None or state[0] != epoch:
            batches: tuple[KeptBatch, ...] = (kept,)
        else:
            batches = (*state[2][_ALL_BUT_ONE], kept)
        self.states[producer_id] = (epoch, (last_sequence + 1) & SEQUENCE_MASK, batches, time_ms)

    def check_marker(self, producer_id: int, epoch: int) -> None:
        """Raise AppendRefused if a marker of this epoch comes too late."""
        state = self.states.get(producer_id)
        if state is not None and epoch < state[0]:
            raise _fenced(producer_id, epoch, state[0])

    def record_marker(self, producer_id: int, epoch: int, time_ms: int) -> None:
        """Note a marker that was appended. A marker of the current epoch keeps the earlier batches known."""
        state = self.states.get(producer_id)
        if producer_id not in self._before:
            self._before[producer_id] = state
        if state is None or state[0] != epoch:
            self.states[producer_id] = (epoch, 0, (), time_ms)
        else:
            self.states[producer_id] = (epoch, state[1], state[2], time_ms)

    def commit(self) -> None:
        """Note that everything recorded so far is in the file."""
        self._before.clear()

    def undo(self) -> None:
        """Go back to the last commit()."""
        for producer_id, state in self._before.items():
            if state is None:
                self.states.pop(producer_id, None)
            else:
                self.states[producer_id] = state
        self._before.clear()

    def expire(self, older_than_ms: int, *, keep: Container[int] = ()) -> list[int]:
        """Forget producers that last wrote before then, except those to ``keep``. Returns the forgotten
        ones."""
        gone = [
            producer_id
            for producer_id, (_, _, _, time_ms) in self.states.items()
            if time_ms < older_than_ms and producer_id not in self._before and producer_id not in keep
        ]
        for producer_id in gone:
            del self.states[producer_id]
        return gone


def _fenced(producer_id: int, epoch: int, known_epoch: int) -> AppendRefused:
    return AppendRefused(
        INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} has epoch {known_epoch} by now; epoch {epoch} may no longer write",
    )
