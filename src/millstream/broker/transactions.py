"""The transaction coordinator: transactional ids by name, their requests, their time, and what survives.

The rules of one id are ``broker.transaction``. This is what stands between them, the catalogue, the logs and
the request handlers:

- A change of an id's standing is written down first (``broker.decisions``) and takes effect when it is
  durable. Requests of one id wait for each other; while its end or its next producer is on the way to the
  disk, records are refused, because they would belong to neither side of the decision.
- The logs know which transactions are open in them, so a Produce that begins or extends a transaction costs
  no write besides its records. ``gate`` is asked by the log before it takes a transactional batch.
- The end of a transaction is one write of the catalogue, the commit point; then the markers follow
  (``broker.markers``). A commit first makes sure that its records are synced.
- ``recover`` finds after a restart what the last process left: markers that are owed are written, those
  transactions that are open in the logs go on, and what nobody can end any more is aborted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from millstream.broker.catalogue import Catalogue
from millstream.broker.codes import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_REQUEST,
    INVALID_TRANSACTION_TIMEOUT,
    INVALID_TXN_STATE,
    NOT_ENOUGH_REPLICAS,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
from millstream.broker.committed import OffsetToCommit
from millstream.broker.decisions import NOTHING_ADDED, Added, OwedMarker
from millstream.broker.markers import Markers
from millstream.broker.partition import HostedTopic, Partition
from millstream.broker.transaction import (
    NO_TIMEOUT,
    NOBODY,
    Identity,
    Transaction,
    first_standing,
    marker_epoch,
)
from millstream.clock import Clock
from millstream.config import BrokerConfig
from millstream.errors import AppendRefused, CatalogueFailed, LogError, RequestRefused
from millstream.log.partition import PartitionLog
from millstream.wire.frame import TopicKey

if TYPE_CHECKING:
    from millstream.broker.syncing import Syncer
    from millstream.broker.turn import Turn

_log = logging.getLogger(__name__)

_IMPLICIT_FROM = 12  # a Produce of this version adds its partitions to the transaction by itself
_ABORTABLE_FROM = 11  # and one of this version knows TRANSACTION_ABORTABLE
_LOOK_EVERY = 1.0  # seconds between looks for transactions whose time is up
_EXPIRE_EVERY = 60.0  # seconds between looks for ids that nobody uses
_EXPIRE_AT_ONCE = 2000


class Counters:
    """What was counted since the broker started."""

    def __init__(self) -> None:
        self.committed = 0
        self.aborted = 0
        self.timed_out = 0
        self.fenced = 0  # transactions that another producer's InitProducerId aborted
        self.refused_producers = 0  # requests of producers that were fenced


class _Entry:
    """A transactional id, and what of it is not written down."""

    __slots__ = ("added", "deadline", "is_busy", "lock", "logs", "name", "open_to", "standing")

    def __init__(self, name: str) -> None:
        self.name = name
        self.standing: Transaction | None = None  # None: it is being created
        self.added = NOTHING_ADDED
        self.logs: dict[PartitionLog, None] = {}  # that the open transaction may write to
        self.open_to: Identity | None = None  # who may write to them now
        self.is_busy = False  # its end, or its next producer, is being written down
        self.deadline = 0.0  # of the open transaction, monotonic
        self.lock = asyncio.Lock()


class Description(NamedTuple):
    """A transactional id for those who ask."""

    transaction: Transaction
    partitions: Sequence[tuple[str, int]]  # with records or announced; after the decision, still to be told


class TransactionCoordinator:
    """All transactional ids of one broker. Lives on the server's loop."""

    def __init__(
        self,
        catalogue: Catalogue,
        config: BrokerConfig,
        clock: Clock,
        hosted: Mapping[TopicKey, HostedTopic],
    ) -> None:
        self._catalogue = catalogue
        self._decisions = catalogue.decisions
        self._config = config
        self._clock = clock
        self._hosted = hosted
        self.markers = Markers(catalogue.decisions, hosted, clock)
        self.counters = Counters()
        # The transactional id and the version of the Produce request at hand, for ``gate``.
        self.request: tuple[str, int] | None = None
        self._entries: dict[str, _Entry] = {}
        self._open: dict[_Entry, None] = {}  # with a transaction that is not decided
        self._turn: Turn | None = None
        self._syncer: Syncer | None = None
        self._look_at = 0.0
        self._expire_at = clock.monotonic() + _EXPIRE_EVERY
        self._tasks: set[asyncio.Task[None]] = set()

    def set_config(self, config: BrokerConfig) -> None:
        """Settings were changed while running."""
        self._config = config

    # Producers

    async def init(
        self,
        name: str,
        timeout_ms: int,
        expected: Identity | None = None,
        *,
        two_phase: bool = False,
        keep: bool = False,
    ) -> tuple[Identity, Identity]:
        """The identity of the id's next producer, and under whom the transaction is open that it kept.

        Fences whoever had the id before and aborts what that one left open, unless it is to be kept."""
        if not name or (keep and not two_phase):
            raise RequestRefused(
                INVALID_REQUEST,
                "a prepared transaction is kept for two-phase commit only" if name else "no transactional id",
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
        async with self._held(name, create=True) as entry:
            try:
                return await self._init(entry, expected, timeout_ms, keep)
            finally:
                if entry.standing is None:
                    del self._entries[name]

    async def _init(
        self, entry: _Entry, expected: Identity | None, timeout_ms: int, keep: bool
    ) -> tuple[Identity, Identity]:
        before = entry.standing
        if before is None:
            producer_id = await self._catalogue.new_producer_id()
            await self._save(entry, first_standing(entry.name, producer_id, timeout_ms, self._clock.now_ms()))
            return Identity(producer_id, 0), NOBODY
        if before.is_decided:
            raise RequestRefused(CONCURRENT_TRANSACTIONS, f"{entry.name}: the transaction is being ended")
        if before.check_init(expected):
            return before.producer, before.kept
        spare = await self._spare(before)
        if before.is_open and keep:
            kept = before.keep(expected, spare=spare, now_ms=self._clock.now_ms())
            await self._save(entry, kept)
            return kept.producer, kept.kept
        if before.is_open:
            _log.info(
                "transactional id %s: another producer comes, the open transaction is aborted", entry.name
            )
            await self._end(entry, before.fence(spare=spare, now_ms=self._clock.now_ms()), commit=False)
            self.counters.fenced += 1
        assert entry.standing is not None
        spare = await self._spare(entry.standing)
        after = entry.standing.init(expected, timeout_ms=timeout_ms, spare=spare, now_ms=self._clock.now_ms())
        await self._save(entry, after)
        return after.producer, NOBODY

    # What belongs to a transaction

    async def add_partitions(self, name: str, producer: Identity, partitions: Sequence[Partition]) -> None:
        """The first protocol's announcement of where the transaction is going to write."""
        async with self._held(name) as entry:
            standing = self._may_add(entry, producer)
            added = entry.added._replace(
                partitions=entry.added.partitions
                | {(partition.topic.id_bytes, partition.index) for partition in partitions}
            )
            if not (standing.is_open and added == entry.added):
                await self._save(entry, standing.begin(self._clock.now_ms()), added)
            for partition in partitions:
                entry.logs[partition.log] = None

    def verify(self, name: str, producer: Identity, partitions: Iterable[Partition]) -> list[int]:
        """Whether each partition is part of the producer's transaction: an error code each."""
        entry = self._entry(name)
        standing = entry.standing
        assert standing is not None
        if producer != standing.producer:
            self._may_add(entry, producer)
        if standing.is_decided or entry.is_busy:
            raise RequestRefused(CONCURRENT_TRANSACTIONS, f"{name}: the transaction is being ended")
        return [0 if partition.log in entry.logs else TRANSACTION_ABORTABLE for partition in partitions]

    async def add_group(self, name: str, producer: Identity, group: str) -> None:
        """The first protocol's announcement of offsets."""
        async with self._held(name) as entry:
            standing = self._may_add(entry, producer)
            added = entry.added._replace(groups=entry.added.groups | {group})
            if not (standing.is_open and added == entry.added):
                await self._save(entry, standing.begin(self._clock.now_ms()), added)

    async def add_offsets(
        self, name: str, producer: Identity, group: str, commits: Sequence[OffsetToCommit], *, implicit: bool
    ) -> None:
        """Offsets of a group that are committed with the transaction. ``implicit``: the second protocol, in
        which they may begin it."""
        async with self._held(name) as entry:
            standing = self._may_add(entry, producer)
            if not implicit and group not in entry.added.groups:
                raise RequestRefused(
                    TRANSACTION_ABORTABLE, f"{name}: group {group} was not added to the transaction"
                )
            if not commits:
                return
            begun = standing.begin(self._clock.now_ms())
            added = entry.added._replace(groups=entry.added.groups | {group})
            await self._decisions.add_offsets(begun, added, group, commits)
            self._begun(entry, begun, added)

    def gate(self, log: PartitionLog, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Asked by a log before it takes a transactional batch; raises AppendRefused. Hot."""
        request = self.request
        if request is None:
            raise AppendRefused(
                TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transactional records came in a request without a transactional id",
            )
        name, version = request
        entry = self._entries.get(name)
        if entry is not None and (producer_id, epoch) == entry.open_to and log in entry.logs:
            return
        try:
            entry = self._entry(name)
            standing = self._may_add(entry, Identity(producer_id, epoch))
        except RequestRefused as refused:
            raise _for_produce(refused, version) from None
        if version < _IMPLICIT_FROM and log not in entry.logs:
            raise AppendRefused(
                TRANSACTION_ABORTABLE if version >= _ABORTABLE_FROM else INVALID_TXN_STATE,
                f"{log.name} was not added to the transaction of {name}",
            )
        entry.logs[log] = None
        if not standing.is_open:
            self._begun(entry, standing.begin(self._clock.now_ms()), entry.added)

    def _may_add(self, entry: _Entry, producer: Identity) -> Transaction:
        standing = entry.standing
        assert standing is not None
        try:
            standing.check(producer)
        except RequestRefused as refused:
            if refused.code == PRODUCER_FENCED:
                self._count_refused(refused)
            raise
        if entry.is_busy:
            raise RequestRefused(CONCURRENT_TRANSACTIONS, f"{entry.name}: the transaction is being ended")
        return standing

    def _count_refused(self, refused: RequestRefused) -> None:
        self.counters.refused_producers += 1
        _log.info("a fenced producer was refused: %s", refused)

    # Ends

    async def end(self, name: str, producer: Identity, *, commit: bool, second_protocol: bool) -> Identity:
        """Commit or abort; the identity that the producer has from now on."""
        async with self._held(name) as entry:
            before = entry.standing
            assert before is not None
            try:
                after = before.end(
                    producer,
                    commit=commit,
                    second_protocol=second_protocol,
                    spare=await self._spare(before),
                    now_ms=self._clock.now_ms(),
                )
            except RequestRefused as refused:
                if refused.code == PRODUCER_FENCED:
                    self._count_refused(refused)
                raise
            if after is not before:
                await self._end(entry, after, commit=commit)
            return after.producer

    async def _end(self, entry: _Entry, after: Transaction, *, commit: bool) -> None:
        """Decide, durably, and have the markers written. With the entry held."""
        before = entry.standing
        assert before is not None
        attempted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._set_busy(entry)
        try:
            if commit:
                await self._sync_records(entry, before.writer.producer_id)
            owed = self._owed(entry, before, after, commit)

            def tried() -> None:
                if not attempted.done():
                    attempted.set_result(None)

            def decided() -> None:
                entry.logs = {}
                entry.added = NOTHING_ADDED
                self._stand(entry, after)
                if commit:
                    self.counters.committed += 1
                else:
                    self.counters.aborted += 1
                self.markers.write(
                    owed,
                    attempted=tried,
                    complete=lambda: self._stand(entry, after.completed()),
                )

            await self._decisions.end(after, commit=commit, owed=owed, decided=decided)
        except LogError as error:
            raise RequestRefused(
                COORDINATOR_NOT_AVAILABLE, f"{entry.name}: can't commit yet, records are not safe: {error}"
            ) from error
        finally:
            if entry.standing is before:
                entry.is_busy = False
                self._stand(entry, before)
        await attempted

    async def write_marker(
        self, partition: Partition, producer: Identity, *, commit: bool, coordinator_epoch: int
    ) -> None:
        """A marker from outside; done when it is synced. Raises LogError."""
        assert self._turn is not None
        partition.append_marker(self._turn, *producer, commit=commit, coordinator_epoch=coordinator_epoch)
        wait = _Synced()
        partition.unsettled.append((wait, 0))
        await wait.future

    def _owed(self, entry: _Entry, before: Transaction, after: Transaction, commit: bool) -> list[OwedMarker]:
        epoch = marker_epoch(before, after)
        producer_id = before.writer.producer_id
        owed = []
        for partition in self._partitions(entry):
            found = partition.log.transactions.open.get(producer_id)
            if found is not None:
                owed.append(
                    OwedMarker(
                        partition.topic.id_bytes,
                        partition.index,
                        producer_id,
                        found[0],
                        epoch,
                        commit,
                        entry.name,
                    )
                )
        return owed

    async def _sync_records(self, entry: _Entry, producer_id: int) -> None:
        """Wait until the producer's records are on the disk. Those of acks=all are."""
        waits = []
        for partition in self._partitions(entry):
            log = partition.log
            if producer_id not in log.transactions.open:
                continue
            batches = log.producers.states[producer_id][2]
            # None are known where a restart found the transaction by its snapshot alone: all is synced then.
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

    def _partitions(self, entry: _Entry) -> Iterator[Partition]:
        """Those of the open transaction, without the ones whose topics were deleted since."""
        for log in entry.logs:
            topic = self._hosted.get(log.topic)
            if topic is not None and log.partition < len(topic.partitions):
                partition = topic.partitions[log.partition]
                if partition.log is log:
                    yield partition

    # Time

    def tick(self, now: float | None = None) -> None:
        """Let time take effect. Cheap where nothing is open."""
        now = self._clock.monotonic() if now is None else now
        self.markers.tick(now)
        if now >= self._look_at:
            self._look_at = now + _LOOK_EVERY
            for entry in [entry for entry in self._open if entry.deadline <= now]:
                if not entry.lock.locked():
                    self._spawn(entry)
        if now >= self._expire_at:
            self._expire_at = now + _EXPIRE_EVERY
            self._expire()

    def _spawn(self, entry: _Entry) -> None:
        task = asyncio.get_running_loop().create_task(self._time_out(entry))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _time_out(self, entry: _Entry) -> None:
        try:
            async with self._held(entry.name) as entry:
                standing = entry.standing
                if standing is None or not standing.is_open or entry.deadline > self._clock.monotonic():
                    return
                _log.warning(
                    "transactional id %s: the transaction is open for longer than its %d ms and is aborted; "
                    "%s is fenced",
                    entry.name,
                    standing.timeout_ms,
                    standing.producer,
                )
                spare = await self._spare(standing)
                await self._end(entry, standing.fence(spare=spare, now_ms=self._clock.now_ms()), commit=False)
                self.counters.timed_out += 1
        except RequestRefused as refused:
            # A full disk, most likely: the next look tries again.
            _log.warning("transactional id %s: can't be aborted now: %s", entry.name, refused)

    def _expire(self) -> None:
        """Forget ids that were not used for long; the longest of all ids at a time."""
        oldest_ms = self._clock.now_ms() - self._config.transactional_id_expiration_ms
        idle = [
            name
            for name, entry in self._entries.items()
            if entry.standing is not None
            and not entry.standing.is_open
            and not entry.standing.is_decided
            and not entry.lock.locked()
            and entry.standing.updated_ms <= oldest_ms
        ][:_EXPIRE_AT_ONCE]
        if not idle:
            return
        _log.info("%d transactional ids were not used for long and are forgotten", len(idle))
        for name in idle:
            # Out of sight first: who comes back is new, and written after this one is gone.
            entry = self._entries.pop(name)
            assert entry.standing is not None
            entry.standing = entry.standing.died()
        try:
            self._decisions.forget(idle).add_done_callback(lambda done: done.cancelled() or done.exception())
        except CatalogueFailed:
            return  # the broker stops; the next one forgets them

    # Restart

    def recover(self, turn: Turn, syncer: Syncer) -> None:
        """Go on where the last process ended. Before any request is served."""
        self._turn, self._syncer = turn, syncer
        self.markers.start(turn, syncer)
        for standing, added in self._decisions.standings():
            entry = self._entries[standing.name] = _Entry(standing.name)
            entry.standing, entry.added = standing, added
        owed: dict[str, list[OwedMarker]] = {}
        stale = []
        for marker in self._decisions.owed_markers():
            if self.markers.is_due(marker):
                owed.setdefault(marker.transaction, []).append(marker)
            else:
                stale.append(marker)
        # Not lazily: from now on a transaction could begin at the very offset that such a row names.
        self._decisions.forget_owed_now(stale)
        for entry in self._entries.values():
            if entry.standing is not None and entry.standing.is_decided:
                self._redo(entry, entry.standing, owed.pop(entry.name, []))
        for markers in owed.values():
            self.markers.write(markers)
        turn.write()
        self._match_open()

    def _redo(self, entry: _Entry, standing: Transaction, owed: Sequence[OwedMarker]) -> None:
        self.markers.write(owed, complete=lambda: self._stand(entry, standing.completed()))

    def _match_open(self) -> None:
        """Find whose the transactions are that are open in the logs; nobody's are aborted."""
        writers = {
            entry.standing.writer: entry
            for entry in self._entries.values()
            if entry.standing is not None and not entry.standing.is_decided
        }
        orphans = []
        for topic in {id(topic): topic for topic in self._hosted.values()}.values():
            for partition in topic.partitions:
                log = partition.log
                for producer_id, found in log.open_transactions().items():
                    if self.markers.holds(topic.id_bytes, partition.index, producer_id):
                        continue
                    entry = writers.get(Identity(producer_id, found.epoch))
                    if entry is None or entry.standing is None:
                        orphans.append(
                            OwedMarker(
                                topic.id_bytes,
                                partition.index,
                                producer_id,
                                found.first_offset,
                                found.epoch,
                                False,
                                "",
                            )
                        )
                        continue
                    entry.logs[log] = None
                    if not entry.standing.is_open:
                        entry.standing = entry.standing.begin(found.started_ms)
        for entry in self._entries.values():
            for topic_id, index in entry.added.partitions:
                added = self._hosted.get(topic_id)
                if added is not None and index < len(added.partitions):
                    entry.logs[added.partitions[index].log] = None
            if entry.standing is not None:
                self._stand(entry, entry.standing)
        if orphans:
            _log.warning(
                "%d transactions are open in the logs and known to no transactional id; they are aborted",
                len(orphans),
            )
            self.markers.write(orphans, is_recorded=False)
            assert self._turn is not None
            self._turn.write()
        if self._open:
            _log.info("%d transactions are open and go on", len(self._open))

    # For those who ask

    def describe(self, name: str) -> Description | None:
        entry = self._entries.get(name)
        if entry is None or entry.standing is None:
            return None
        if entry.standing.is_decided:
            partitions = [
                (topic.name, marker.partition)
                for marker in self.markers.unwritten()
                if marker.transaction == name and (topic := self._hosted.get(marker.topic_id)) is not None
            ]
        else:
            partitions = [(partition.topic.name, partition.index) for partition in self._partitions(entry)]
        return Description(entry.standing, sorted(partitions))

    def transactions(self) -> list[Transaction]:
        return [entry.standing for entry in self._entries.values() if entry.standing is not None]

    def open_transactions(self) -> list[Transaction]:
        """Those that are not decided, oldest first."""
        found = [entry.standing for entry in self._open if entry.standing is not None]
        return sorted(found, key=lambda transaction: transaction.start_ms)

    # Between an id, the catalogue and those who write

    def _entry(self, name: str) -> _Entry:
        entry = self._entries.get(name)
        if entry is None or entry.standing is None:
            raise RequestRefused(
                INVALID_PRODUCER_ID_MAPPING,
                f"there is no transactional id {name}; InitProducerId comes first",
            )
        return entry

    @asynccontextmanager
    async def _held(self, name: str, *, create: bool = False) -> AsyncIterator[_Entry]:
        """The entry, for this request alone."""
        while True:
            entry = self._entries.get(name)
            if entry is None and create:
                entry = self._entries[name] = _Entry(name)
            if entry is None:
                entry = self._entry(name)
            async with entry.lock:
                if self._entries.get(name) is not entry:
                    continue  # it expired, or could not be created, while this waited
                if entry.standing is None and not create:
                    self._entry(name)
                yield entry
                return

    async def _spare(self, standing: Transaction) -> int:
        return await self._catalogue.new_producer_id() if standing.needs_spare else -1

    async def _save(self, entry: _Entry, standing: Transaction, added: Added | None = None) -> None:
        """Write down how the id stands, and let it."""
        before = entry.standing
        added = entry.added if added is None else added
        if before is not None and standing.producer != before.producer:
            self._set_busy(entry)
        try:
            await self._decisions.save(standing, added)
        except BaseException:
            if entry.is_busy and before is not None:
                entry.is_busy = False
                self._stand(entry, before)
            raise
        if entry.is_busy or before is None:
            entry.added = added
            self._stand(entry, standing)
        else:
            self._begun(entry, standing, added)

    def _begun(self, entry: _Entry, standing: Transaction, added: Added) -> None:
        """The transaction is open; a record may have begun it in the meantime."""
        entry.added = added
        if entry.standing is not None and not entry.standing.is_open:
            self._stand(entry, standing)

    def _set_busy(self, entry: _Entry) -> None:
        entry.is_busy = True
        entry.open_to = None

    def _stand(self, entry: _Entry, standing: Transaction) -> None:
        """Let this be how the id stands."""
        entry.standing = standing
        entry.is_busy = False
        entry.open_to = standing.producer if standing.is_open and standing.kept == NOBODY else None
        if not standing.is_open:
            self._open.pop(entry, None)
        elif entry not in self._open:
            self._open[entry] = None
            left_ms = standing.start_ms + standing.timeout_ms - self._clock.now_ms()
            left_ms = min(max(left_ms, 0), standing.timeout_ms)
            entry.deadline = (
                float("inf") if standing.is_two_phase else self._clock.monotonic() + left_ms / 1000
            )


class _Synced:
    """Waits for a sync. ``Unsettled``: its partition says when."""

    needs_sync = True

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settled(self, place: int, failure: LogError | None) -> None:
        if self.future.done():
            return
        if failure is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(failure)


def _for_produce(refused: RequestRefused, version: int) -> AppendRefused:
    """The error as a Produce of this version is told it."""
    code = refused.code
    if code == PRODUCER_FENCED:
        code = INVALID_PRODUCER_EPOCH
    elif code == CONCURRENT_TRANSACTIONS and version < _IMPLICIT_FROM:
        code = NOT_ENOUGH_REPLICAS  # what clients of that age send again for
    return AppendRefused(code, str(refused))
