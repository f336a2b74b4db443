"""A broker's transactional ids by name: the stored state of each one, and what is only in memory.

A change is made while the id is *held*, so that requests of one id wait for each other. Records do not wait
for that. So while the end of an id's transaction, or its next producer, is being written to the catalogue,
the id is *busy* and takes no records.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from math import inf

from millstream.broker.transactions.decisions import NOTHING_ADDED, AddedToTransaction
from millstream.broker.transactions.transaction import NOBODY, ProducerIdentity, TransactionalIdState
from millstream.core.clock import Clock
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import INVALID_PRODUCER_ID_MAPPING
from millstream.log.partition import PartitionLog


class TransactionalId:
    """One transactional id. ``state`` is None while it is being created."""

    __slots__ = ("added", "copies", "deadline", "is_busy", "lock", "logs", "name", "open_to", "state")

    def __init__(self, name: str) -> None:
        self.name = name
        self.state: TransactionalIdState | None = None
        self.added = NOTHING_ADDED
        self.logs: dict[PartitionLog, None] = {}  # the logs that the open transaction may write to
        self.open_to: ProducerIdentity | None = None  # the producer that may write to them now
        self.copies = 0  # brokers that must have its commit; 0: not determined yet
        self.is_busy = False
        self.deadline = inf  # of the open transaction, monotonic
        self.lock = asyncio.Lock()

    @property
    def current(self) -> TransactionalIdState:
        """The state of an id that has one."""
        assert self.state is not None
        return self.state

    def set_busy(self) -> None:
        self.is_busy = True
        self.open_to = None


class TransactionalIds:
    """All transactional ids of one broker. Lives on the server's loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_name: dict[str, TransactionalId] = {}
        self._open: dict[TransactionalId, None] = {}  # those with an open transaction

    def __iter__(self) -> Iterator[TransactionalId]:
        return (found for found in self._by_name.values() if found.state is not None)

    def get(self, name: str) -> TransactionalId | None:
        """The id, even if it is still being created; None if it is unknown."""
        return self._by_name.get(name)

    def known(self, name: str) -> TransactionalId:
        """The id. Raises RequestRefused if it is unknown."""
        found = self._by_name.get(name)
        if found is None or found.state is None:
            raise RequestRefused(
                INVALID_PRODUCER_ID_MAPPING,
                f"no transactional id {name} is known; call InitProducerId first",
            )
        return found

    def add(self, state: TransactionalIdState, added: AddedToTransaction) -> TransactionalId:
        """Add an id that the last process left."""
        found = self._by_name[state.name] = TransactionalId(state.name)
        found.state, found.added = state, added
        return found

    @asynccontextmanager
    async def held(self, name: str, *, create: bool = False) -> AsyncIterator[TransactionalId]:
        """Hold the id for one request. An id that was created and got no state by the end is removed."""
        while True:
            if create and name not in self._by_name:
                self._by_name[name] = TransactionalId(name)
            found = self._by_name.get(name) if create else self.known(name)
            assert found is not None
            async with found.lock:
                if self._by_name.get(name) is not found:
                    continue  # it expired, or could not be created, during the wait
                try:
                    yield found
                finally:
                    if found.state is None:
                        del self._by_name[name]
                return

    def set_state(self, found: TransactionalId, state: TransactionalIdState) -> None:
        """Set the state of an id, and what follows from it."""
        found.state = state
        found.is_busy = False
        found.open_to = state.producer if state.is_open and state.kept == NOBODY else None
        if not state.is_open:
            self._open.pop(found, None)
        elif found not in self._open:
            self._open[found] = None
            found.deadline = self._deadline(state)

    def _deadline(self, state: TransactionalIdState) -> float:
        if state.is_two_phase:
            return inf
        # The wall clock may have been changed. A transaction never gets more than its time-out.
        left_ms = state.start_ms + state.timeout_ms - self._clock.now_ms()
        return self._clock.monotonic() + min(max(left_ms, 0), state.timeout_ms) / 1000

    def begin(self, found: TransactionalId, state: TransactionalIdState, added: AddedToTransaction) -> None:
        """Note that the transaction is open and what was added to it. Records may have begun it already."""
        found.added = added
        if not found.current.is_open:
            self.set_state(found, state)

    def open(self) -> Iterable[TransactionalId]:
        return self._open

    def overdue(self, now: float) -> list[TransactionalId]:
        """The ids whose transaction is past its deadline and that no request holds."""
        return [found for found in self._open if found.deadline <= now and not found.lock.locked()]

    def expire(self, oldest_ms: int, at_most: int) -> list[str]:
        """Remove up to ``at_most`` ids that were not used since ``oldest_ms``. Returns their names."""
        gone = [
            found.name
            for found in self
            if not found.current.is_unfinished
            and not found.lock.locked()
            and found.current.updated_ms <= oldest_ms
        ][:at_most]
        for name in gone:
            found = self._by_name.pop(name)
            found.state = found.current.died()
        return gone
