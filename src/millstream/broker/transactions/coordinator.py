"""The transaction coordinator: serves transactional producers, and makes their transactions durable.

``broker.transactions.transaction`` has the rules for one id. The coordinator connects them to the
catalogue, the logs and the request handlers:

- A change of an id's state is written first (``broker.transactions.decisions``) and takes effect once it
  is durable. While the end of an id's transaction, or its next producer, is on the way to the disk, the
  id's records are refused: they would belong to neither side of the decision.
- The logs know which transactions are open in them, so a Produce that begins or extends a transaction writes
  nothing but its records. The log calls ``gate`` before it takes a transactional batch.
- The end of a transaction is one write to the catalogue, the commit point. Then the markers are written
  (``broker.transactions.markers``). A commit first makes sure that its records are synced.
- After a restart, all transactions continue from there (``broker.transactions.restart``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.groups.committed_offset import OffsetToCommit
from millstream.broker.topics.partition import AppendTurn, LocalTopic, Partition
from millstream.broker.topics.syncing import Syncer
from millstream.broker.transactions.decisions import NOTHING_ADDED, AddedToTransaction, OwedMarker
from millstream.broker.transactions.markers import Markers
from millstream.broker.transactions.restart import resume_transactions
from millstream.broker.transactions.transaction import (
    NO_TIMEOUT,
    NOBODY,
    ProducerIdentity,
    TransactionalIdState,
    first_state,
    marker_epoch,
)
from millstream.broker.transactions.transactional_ids import TransactionalId, TransactionalIds
from millstream.core.clock import Clock
from millstream.core.config import BrokerConfig
from millstream.core.errors import AppendRefused, CatalogueFailed, LogError, RequestRefused
from millstream.core.kafka_errors import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    INVALID_REQUEST,
    INVALID_TRANSACTION_TIMEOUT,
    INVALID_TXN_STATE,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
from millstream.core.log_output import RateLimited
from millstream.log.partition import PartitionLog
from millstream.log.transactions import RequestTransaction
from millstream.wire.frame import TopicKey

_log = logging.getLogger(__name__)

IMPLICIT_FROM = 12  # a Produce of this version adds its partitions to the transaction by itself
_ABORTABLE_FROM = 11  # a client that sends this version knows TRANSACTION_ABORTABLE
_LOOK_EVERY = 1.0  # seconds between checks for transactions that have timed out
_EXPIRE_EVERY = 60.0  # seconds between checks for unused ids
_EXPIRE_AT_ONCE = 2000


class TransactionCounters:
    """Counts since the broker started."""

    def __init__(self) -> None:
        self.committed = 0
        self.aborted = 0  # for any reason
        self.timed_out = 0  # of the aborted: those that timed out
        self.taken_over = 0  # of the aborted: those that another producer's InitProducerId ended
        self.fenced = 0  # requests of producers that were replaced


class Description(NamedTuple):
    """A transactional id, as DescribeTransactions reports it."""

    transaction: TransactionalIdState
    partitions: Sequence[tuple[str, int]]  # those with records or added; once decided: those without a marker


class TransactionCoordinator:
    """All transactions of one broker. Lives on the server's loop."""

    def __init__(
        self,
        catalogue: Catalogue,
        config: BrokerConfig,
        clock: Clock,
        hosted: Mapping[TopicKey, LocalTopic],
    ) -> None:
        self._catalogue = catalogue
        self._decisions = catalogue.decisions
        self._config = config
        self._clock = clock
        self._hosted = hosted
        self._ids = TransactionalIds(clock)
        self.markers = Markers(catalogue.decisions, hosted, clock)
        self.counters = TransactionCounters()
        self._turn: AppendTurn | None = None
        self._syncer: Syncer | None = None
        self._look_at = 0.0
        self._expire_at = clock.monotonic() + _EXPIRE_EVERY
        self._tasks: set[asyncio.Task[None]] = set()
        self._complaints = RateLimited(_log)  # a fenced producer may not notice for long

    def start(self, turn: AppendTurn, syncer: Syncer) -> None:
        """Continue where the last process stopped. To be called before any request is served."""
        self._turn, self._syncer = turn, syncer
        self.markers.start(turn, syncer)
        resume_transactions(self._ids, self._decisions, self.markers, self._hosted, turn)

    def set_config(self, config: BrokerConfig) -> None:
        """Apply settings that were changed at run time."""
        self._config = config

    # Producers

    async def init(
        self,
        name: str,
        timeout_ms: int,
        expected: ProducerIdentity | None = None,
        *,
        two_phase: bool = False,
        keep: bool = False,
    ) -> tuple[ProducerIdentity, ProducerIdentity]:
        """The identity of the id's next producer, and the identity of the transaction that it keeps.

        Fences the id's previous producer, and aborts its open transaction unless that is to be kept.
        """
        if not name or (keep and not two_phase):
            raise RequestRefused(
                INVALID_REQUEST,
                "a prepared transaction is kept only with two-phase commit"
                if name
                else "no transactional id",
            )
        if two_phase:
            if not self._config.transaction_two_phase_commit_enable:
                raise RequestRefused(
                    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transaction.two.phase.commit.enable is false here"
                )
            timeout_ms = NO_TIMEOUT
        elif not 0 < timeout_ms <= self._config.transaction_max_timeout_ms:
            raise RequestRefused(
                INVALID_TRANSACTION_TIMEOUT,
                f"{name}: a transaction may take up to {self._config.transaction_max_timeout_ms} ms "
                f"(transaction.max.timeout.ms), not {timeout_ms}",
            )
        async with self._ids.held(name, create=True) as found:
            return await self._init(found, expected, timeout_ms, keep)

    async def _init(
        self, found: TransactionalId, expected: ProducerIdentity | None, timeout_ms: int, keep: bool
    ) -> tuple[ProducerIdentity, ProducerIdentity]:
        before = found.state
        if before is None:
            producer_id = await self._catalogue.new_producer_id()
            new = first_state(found.name, producer_id, timeout_ms, self._clock.now_ms())
            await self._save(found, new, NOTHING_ADDED)
            return new.producer, NOBODY
        if before.is_decided:
            raise _being_ended(found)
        if before.check_init(expected):
            return before.producer, before.kept
        spare = await self._spare(before)
        if before.is_open and keep:
            kept = before.keep(expected, spare=spare, now_ms=self._clock.now_ms())
            await self._save(found, kept, found.added)
            return kept.producer, kept.kept
        if before.is_open:
            _log.info(
                "transactional id %s: another producer takes over; the transaction of %s is aborted",
                found.name,
                before.producer,
            )
            await self._end(found, before.fence(spare=spare, now_ms=self._clock.now_ms()), commit=False)
            self.counters.taken_over += 1
            spare = await self._spare(found.current)
        after = found.current.init(expected, timeout_ms=timeout_ms, spare=spare, now_ms=self._clock.now_ms())
        await self._save(found, after, NOTHING_ADDED)
        return after.producer, NOBODY

    async def _spare(self, state: TransactionalIdState) -> int:
        return await self._catalogue.new_producer_id() if state.needs_spare else -1

    async def _save(
        self, found: TransactionalId, state: TransactionalIdState, added: AddedToTransaction
    ) -> None:
        """Write the id's next state, then apply it. If the producer changes, the id is busy meanwhile."""
        before = found.state
        if before is not None and state.producer == before.producer:
            await self._decisions.save(state, added)
            self._ids.begin(found, state, added)
            return
        found.set_busy()
        try:
            await self._decisions.save(state, added)
        except BaseException:
            if before is not None:
                self._ids.set_state(found, before)
            raise
        found.added = added
        self._ids.set_state(found, state)

    # What belongs to a transaction

    async def add_partitions(
        self, name: str, producer: ProducerIdentity, partitions: Sequence[Partition]
    ) -> None:
        """The first protocol's AddPartitionsToTxn: the transaction is going to write to these partitions."""
        async with self._ids.held(name) as found:
            state = self._may_add(found, producer)
            keys = {(partition.topic.id_bytes, partition.index) for partition in partitions}
            added = found.added._replace(partitions=found.added.partitions | keys)
            if not state.is_open or added != found.added:
                await self._save(found, state.begin(self._clock.now_ms()), added)
            for partition in partitions:
                found.logs[partition.log] = None

    def verify(self, name: str, producer: ProducerIdentity, partitions: Iterable[Partition]) -> list[int]:
        """An error code for each partition: 0 if it is part of the producer's transaction."""
        found = self._ids.known(name)
        self._may_add(found, producer)
        return [0 if partition.log in found.logs else TRANSACTION_ABORTABLE for partition in partitions]

    async def add_group(self, name: str, producer: ProducerIdentity, group: str) -> None:
        """The first protocol's AddOffsetsToTxn: offsets of this group are going to be committed."""
        async with self._ids.held(name) as found:
            state = self._may_add(found, producer)
            added = found.added._replace(groups=found.added.groups | {group})
            if not state.is_open or added != found.added:
                await self._save(found, state.begin(self._clock.now_ms()), added)

    async def add_offsets(
        self,
        name: str,
        producer: ProducerIdentity,
        group: str,
        commits: Sequence[OffsetToCommit],
        *,
        implicit: bool,
    ) -> None:
        """Add a group's offsets, to be committed with the transaction. ``implicit``: the second protocol, in
        which the offsets may begin the transaction."""
        async with self._ids.held(name) as found:
            state = self._may_add(found, producer)
            if not implicit and group not in found.added.groups:
                raise RequestRefused(
                    TRANSACTION_ABORTABLE, f"{name}: group {group} was not added to the transaction"
                )
            if commits:
                begun = state.begin(self._clock.now_ms())
                added = found.added._replace(groups=found.added.groups | {group})
                await self._decisions.add_offsets(begun, added, group, commits)
                self._ids.begin(found, begun, added)

    def gate(
        self, log: PartitionLog, transaction: RequestTransaction | None, producer_id: int, epoch: int
    ) -> None:
        """Called by a log before it takes a transactional batch. Raises AppendRefused. On the hot path."""
        if transaction is None:
            raise AppendRefused(
                TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transactional records came in a request without a transactional id",
            )
        name, version = transaction
        found = self._ids.get(name)
        if found is not None and (producer_id, epoch) == found.open_to and log in found.logs:
            return
        try:
            found = self._ids.known(name)
            state = self._may_add(found, ProducerIdentity(producer_id, epoch))
        except RequestRefused as refused:
            # In a Produce response, this is the code that tells a producer that it is fenced.
            code = INVALID_PRODUCER_EPOCH if refused.code == PRODUCER_FENCED else refused.code
            raise AppendRefused(code, str(refused)) from None
        if version < IMPLICIT_FROM and log not in found.logs:
            raise AppendRefused(
                TRANSACTION_ABORTABLE if version >= _ABORTABLE_FROM else INVALID_TXN_STATE,
                f"{log.name} was not added to the transaction of {name}",
            )
        found.logs[log] = None
        self._ids.begin(found, state.begin(self._clock.now_ms()), found.added)

    def _may_add(self, found: TransactionalId, producer: ProducerIdentity) -> TransactionalIdState:
        state = found.current
        try:
            state.check(producer)
        except RequestRefused as refused:
            self._count_fenced(refused)
            raise
        if found.is_busy:
            raise _being_ended(found)
        return state

    def _count_fenced(self, refused: RequestRefused) -> None:
        if refused.code == PRODUCER_FENCED:
            self.counters.fenced += 1
            self._complaints.warning("fenced", "a producer that was replaced was refused: %s", refused)

    # Ends

    def copies(self, name: str) -> int:
        """How many brokers must have the decision before a commit is acknowledged: the most that any topic in
        the transaction requires. After the end the answer is still the same."""
        found = self._ids.get(name)
        if found is None:
            return 1
        topics = {log.topic for log in found.logs} | self._decisions.topics_pending(name)
        hosted = [topic for topic in map(self._hosted.get, topics) if topic is not None]
        if found.copies == 0 and not topics:  # it ended before the broker started: any topic is possible
            hosted = list(self._hosted.values())
        if hosted:
            found.copies = max(topic.copies for topic in hosted)
        return max(1, found.copies)

    async def end(
        self, name: str, producer: ProducerIdentity, *, commit: bool, second_protocol: bool
    ) -> ProducerIdentity:
        """Commit or abort. Returns the identity that the producer has from now on."""
        async with self._ids.held(name) as found:
            before = found.current
            spare = await self._spare(before)
            try:
                after = before.end(
                    producer,
                    commit=commit,
                    second_protocol=second_protocol,
                    spare=spare,
                    now_ms=self._clock.now_ms(),
                )
            except RequestRefused as refused:
                self._count_fenced(refused)
                raise
            if after is not before:
                await self._end(found, after, commit=commit)
            return after.producer

    async def _end(self, found: TransactionalId, after: TransactionalIdState, *, commit: bool) -> None:
        """Write the decision, then the markers. The caller holds the id."""
        before = found.current
        tried: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        found.set_busy()
        try:
            if commit:
                await self._sync_records(found, before.writer.producer_id)
            owed = self._owed(found, before, after, commit)

            def decided() -> None:
                found.logs, found.added = {}, NOTHING_ADDED
                self._ids.set_state(found, after)
                if commit:
                    self.counters.committed += 1
                else:
                    self.counters.aborted += 1
                self.markers.write(
                    owed,
                    attempted=lambda: None if tried.done() else tried.set_result(None),
                    complete=lambda: self._ids.set_state(found, after.completed()),
                )

            await self._decisions.end(after, commit=commit, owed=owed, decided=decided)
        except LogError as error:
            raise RequestRefused(
                COORDINATOR_NOT_AVAILABLE, f"{found.name}: can't commit yet, records are not safe: {error}"
            ) from error
        finally:
            if found.state is before:
                self._ids.set_state(found, before)
        # Each marker was tried once. The decision is final, whether or not every log took its marker.
        await tried

    def _owed(
        self, found: TransactionalId, before: TransactionalIdState, after: TransactionalIdState, commit: bool
    ) -> list[OwedMarker]:
        epoch = marker_epoch(before, after)
        producer_id = before.writer.producer_id
        return [
            OwedMarker(
                partition.topic.id_bytes,
                partition.index,
                producer_id,
                partition.log.transactions.open[producer_id][0],
                epoch,
                commit,
                found.name,
            )
            for partition in self._partitions(found)
            if producer_id in partition.log.transactions.open
        ]

    async def _sync_records(self, found: TransactionalId, producer_id: int) -> None:
        """Wait until the producer's records are synced. Records of acks=all already are."""
        waits = []
        for partition in self._partitions(found):
            log = partition.log
            if producer_id not in log.transactions.open:
                continue
            batches = log.producers.states[producer_id][2]
            # If no batches are known, the transaction was found after a restart, and its records are synced.
            if batches and log.synced_offset <= batches[-1][2]:
                wait = _Synced()
                waits.append(wait.future)
                if partition.is_staged:
                    partition.unsettled.append((wait, 0))
                else:
                    assert self._syncer is not None
                    partition.awaiting_sync.append((batches[-1][2] + 1, wait, 0))
                    self._syncer.sync(partition)
        if waits:
            await asyncio.gather(*waits)

    def _partitions(self, found: TransactionalId) -> Iterator[Partition]:
        """The partitions of the open transaction, except those of topics that were deleted since."""
        for log in found.logs:
            topic = self._hosted.get(log.topic)
            if topic is not None and log.partition < len(topic.partitions):
                partition = topic.partitions[log.partition]
                if partition.log is log:
                    yield partition

    async def write_marker(
        self, partition: Partition, producer: ProducerIdentity, *, commit: bool, coordinator_epoch: int
    ) -> None:
        """Write a marker that a client sent. Returns once it is synced. Raises LogError."""
        assert self._turn is not None
        partition.append_marker(self._turn, *producer, commit=commit, coordinator_epoch=coordinator_epoch)
        wait = _Synced()
        partition.unsettled.append((wait, 0))
        await wait.future

    # Time

    def tick(self, now: float | None = None) -> None:
        """Do what is due: markers to retry, transactions to time out, ids to expire. Cheap if none is."""
        now = self._clock.monotonic() if now is None else now
        self.markers.tick(now)
        if now >= self._look_at:
            self._look_at = now + _LOOK_EVERY
            for found in self._ids.overdue(now):
                task = asyncio.get_running_loop().create_task(self._time_out(found.name))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        if now >= self._expire_at:
            self._expire_at = now + _EXPIRE_EVERY
            self._expire()

    async def _time_out(self, name: str) -> None:
        try:
            async with self._ids.held(name) as found:
                state = found.current
                if not state.is_open or found.deadline > self._clock.monotonic():
                    return
                _log.warning(
                    "transactional id %s: the transaction is open for longer than its %d ms and is aborted; "
                    "%s is fenced",
                    name,
                    state.timeout_ms,
                    state.producer,
                )
                spare = await self._spare(state)
                await self._end(found, state.fence(spare=spare, now_ms=self._clock.now_ms()), commit=False)
                self.counters.timed_out += 1
        except RequestRefused as refused:
            # Most likely the disk is full. The next check tries again.
            _log.warning("transactional id %s can't be aborted now: %s", name, refused)

    def _expire(self) -> None:
        oldest_ms = self._clock.now_ms() - self._config.transactional_id_expiration_ms
        gone = self._ids.expire(oldest_ms, _EXPIRE_AT_ONCE)
        if not gone:
            return
        _log.info("%d transactional ids were not used for a long time and are forgotten", len(gone))
        try:
            # An id that is used again is a new one, and is written after this.
            self._decisions.forget(gone).add_done_callback(lambda done: done.cancelled() or done.exception())
        except CatalogueFailed:
            return  # the broker stops; the next one forgets them

    async def close(self) -> None:
        """Cancel the time-outs in progress."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Descriptions

    def describe(self, name: str) -> Description | None:
        found = self._ids.get(name)
        if found is None or found.state is None:
            return None
        if found.state.is_decided:
            partitions = [
                (topic.name, marker.partition)
                for marker in self.markers.unwritten()
                if marker.transaction == name and (topic := self._hosted.get(marker.topic_id)) is not None
            ]
        else:
            partitions = [(partition.topic.name, partition.index) for partition in self._partitions(found)]
        return Description(found.state, sorted(partitions))

    def transactions(self) -> list[TransactionalIdState]:
        return [found.current for found in self._ids]

    def open_transactions(self) -> list[TransactionalIdState]:
        """The transactions that hold readers back, oldest first."""
        unfinished = [found.current for found in self._ids if found.current.is_unfinished]
        return sorted(unfinished, key=lambda transaction: transaction.start_ms)


class _Synced:
    """Waits for a sync. It is a ``PendingAppend``: its partition reports when the sync is done."""

    needs_sync = True
    timeout_ms = -1

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settled(self, place: int, failure: LogError | None) -> None:
        if self.future.done():
            return
        if failure is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(failure)


def _being_ended(found: TransactionalId) -> RequestRefused:
    return RequestRefused(CONCURRENT_TRANSACTIONS, f"{found.name}: its last transaction is being ended")
