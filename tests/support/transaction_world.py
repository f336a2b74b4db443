"""Simulates a broker's transactions under faults, from a seed that can be replayed.

Requests are late, lost and duplicated, disks fill up, and at any step the process is killed or the machine
loses power. The coordinator, the logs, the turn and the catalogue's statements are the real ones. Simulated
are the disk (``tests.support.disk``), the clock, the network, and the moments at which a sync or a commit of
the catalogue ends. A scheduler decides what happens next, one small step at a time.
"""

from __future__ import annotations

import asyncio
import enum
import random
import sqlite3
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.catalogue.database import _SCHEMA, CatalogueDatabase, _Change
from millstream.broker.groups.committed_offset import OffsetToCommit
from millstream.broker.net.counters import BrokerCounters
from millstream.broker.net.loop_turn import LoopTurn
from millstream.broker.topics.partition import LocalTopic, Partition
from millstream.broker.transactions.coordinator import TransactionCoordinator
from millstream.broker.transactions.transaction import ProducerIdentity
from millstream.core.clock import ManualClock
from millstream.core.config import BrokerConfig
from millstream.core.errors import CatalogueFailed, LogError, RequestRefused
from millstream.core.topic_config import TopicConfig
from millstream.log.directory import LogDirectory
from millstream.log.partition import PartitionLog
from millstream.records.batch import batches
from millstream.records.build import read_records
from millstream.records.markers import Marker, read_marker
from tests.support.disk import SimulatedDisk
from tests.support.logs import NOW, a_transactional_batch

PARTITIONS = 2
TIMEOUT_MS = 10_000
FENCED = {47, 49, 90}
TRY_AGAIN = {14, 15, 19, 51, 56}


class Killed(BaseException):
    """The process is killed here, between two writes."""


class Damaged(Exception):
    """The disk lost a write and kept a later one of the same file, and neither was synced. The log rightly
    reports that as damage: nobody can say how a transaction ended that spans the gap.
    """


class Lost(Exception):
    """No response came."""


class Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class SteppedDatabase(CatalogueDatabase):
    """The catalogue's database, whose commits happen when the scheduler decides."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.where = ":memory:"
        self._db = db
        self._make_room = bool
        self.feed = None
        self._number = 0
        self._written = deque()
        self.waiting: list[_Change] = []

    def write(self, write: Callable[[Any], Any], remember: Callable[[Any], Any]) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.waiting.append(_Change(write, remember, future, is_told=True))
        return future

    def commit(self, count: int, *, fails: bool = False) -> None:
        """Make the first ``count`` changes durable. Nobody is told until ``settle``."""
        chosen, self.waiting = self.waiting[:count], self.waiting[count:]
        if fails:
            failed = CatalogueFailed("the disk is full")
            self._written.append(([(change, failed) for change in chosen], self._number, []))
        else:
            self._written.append(self._commit(chosen))

    @property
    def unsettled(self) -> bool:
        return bool(self._written)

    def settle(self) -> None:
        self._settle()

    def close(self) -> None:
        """Do nothing: the next process goes on with the same content."""


class SteppedSyncer:
    """The disk's syncs, which end when the scheduler decides."""

    def __init__(self) -> None:
        self.wanted: list[Partition] = []

    def sync(self, partition: Partition) -> None:
        if partition.is_syncing:
            partition.sync_again = True
            return
        partition.is_syncing = True
        self.wanted.append(partition)

    def step(self, number: int) -> None:
        partition = self.wanted.pop(number)
        offset, failure = -1, None
        try:
            offset = partition.log.sync()
        except LogError as error:
            failure = error
        partition.is_syncing = False
        again, partition.sync_again = partition.sync_again, False
        partition.synced(offset, failure)
        if failure is None and (again or partition.awaiting_sync):
            self.sync(partition)


class _Acknowledged:
    """A Produce request that waits for its acknowledgement."""

    timeout_ms = -1

    def __init__(self, *, needs_sync: bool) -> None:
        self.needs_sync = needs_sync
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settled(self, place: int, failure: LogError | None) -> None:
        if not self.future.done():
            if failure is None:
                self.future.set_result(None)
            else:
                self.future.set_exception(failure)


@dataclass
class Tried:
    """A transaction as its producer knows it."""

    number: int
    transactional_id: str
    records: list[tuple[int, bytes]] = field(default_factory=list)  # acknowledged: partition, value
    has_offset: bool = False
    asked: bool | None = None  # True for commit, False for abort, once it was requested
    answered: bool = False


Request = Callable[["World"], Awaitable[Any]]


class Copies(enum.Enum):
    """What the network may do with a request besides losing its response. In the first transaction protocol,
    a late request looks like one of the next transaction, so late copies do harm. The second protocol exists
    to prevent that.
    """

    NONE = "it arrives once"
    PROMPT = "a copy may arrive, before the call was answered"
    LATE = "a copy may arrive at any time"


@dataclass(eq=False)
class Call:
    request: Request
    reply: asyncio.Future[Any]
    copies: Copies = Copies.NONE
    is_copy: bool = False


class World:
    """The simulated world of one schedule."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.acks_all = self.chance.random() < 0.85
        self.loses_power = self.acks_all and self.chance.random() < 0.6
        self.clock = ManualClock(NOW)
        self.disk = SimulatedDisk()
        self.db = sqlite3.connect(":memory:", isolation_level=None)
        self.db.execute("PRAGMA foreign_keys = ON")
        for statement in _SCHEMA.split(";"):
            self.db.execute(statement)
        self.db.execute(
            "INSERT INTO topics VALUES ('out', 'out', ?, ?, '{}')", (uuid.UUID(int=1).bytes, PARTITIONS)
        )
        self.db.execute("INSERT INTO topics VALUES ('in', 'in', ?, 1000, '{}')", (uuid.UUID(int=2).bytes,))
        self.network: list[Call] = []
        self.replies: list[tuple[asyncio.Future[Any], Any]] = []
        self.tasks: dict[asyncio.Task[Any], Call] = {}
        self.stalled: list[asyncio.Future[None]] = []
        self.tried: list[Tried] = []
        self.seen: dict[tuple[int, int], bytes] = {}  # values seen by readers of committed records
        # Each identity that was given out, its transactional id, and where each partition ended then.
        self.given: list[tuple[ProducerIdentity, str, list[int]]] = []
        self.is_working = True
        self.crashes = 0
        asyncio.get_running_loop().set_exception_handler(_ignore_killed)
        self.start()

    # The broker

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.writes_left: int | None = None  # writes until the process is killed; None: it is not
        self.is_killed = False
        self.disk.room_for = self._room_for  # type: ignore[method-assign]
        self.directory = LogDirectory.open("/data", files=self.disk, clock=self.clock)
        self.database = SteppedDatabase(self.db)
        self.catalogue = Catalogue(database=self.database)
        hosted: dict[str | bytes, LocalTopic] = {}
        topic = LocalTopic("out", uuid.UUID(int=1))
        hosted["out"] = hosted[topic.id_bytes] = topic
        self.coordinator = TransactionCoordinator(self.catalogue, BrokerConfig(), self.clock, hosted)
        for index in range(PARTITIONS):
            log = self.directory.open_log("out", index, TopicConfig(segment_bytes=2048))
            log.transactions_gate = self.coordinator.gate
            topic.partitions.append(Partition(topic, index, log, in_memory=False))
        self.partitions = topic.partitions
        if any(partition.log.damage for partition in topic.partitions):
            raise Damaged
        self.syncer = SteppedSyncer()
        self.turn = LoopTurn(loop, self.clock, self.syncer, BrokerCounters())  # type: ignore[arg-type]
        self.coordinator.start(self.turn, self.syncer)  # type: ignore[arg-type]

    def _room_for(self, path: str, size: int) -> int:
        if self.writes_left is not None:
            if self.writes_left == 0:
                self.is_killed = True
                raise Killed
            self.writes_left -= 1
        return SimulatedDisk.room_for(self.disk, path, size)

    async def crash(self, *, power: bool) -> None:
        """Kill the process at this point, whatever it is doing, and start another one."""
        self.crashes += 1
        for task in [*self.tasks, *self.coordinator._tasks]:
            task.cancel()
        self.turn.flush = lambda: None  # type: ignore[method-assign]
        lost = [call for call in self.tasks.values() if not call.is_copy]
        self.tasks.clear()
        self.replies = [(reply, Lost()) for reply, _ in self.replies]
        self.replies += [(call.reply, Lost()) for call in lost]
        await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.sleep(0)
        self.disk = (
            self.disk.power_loss(self.chance.randrange(10**9)) if power else self.disk.process_killed()
        )
        self.disk.room = None
        self.start()

    # The network

    async def call(self, request: Request, copies: Copies) -> Any:
        """Send a request until there is a response other than a retriable error."""
        while True:
            reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self.network.append(Call(request, reply, copies))
            answer = await reply
            if isinstance(answer, Lost):
                continue
            if isinstance(answer, Refused):
                if answer.code in TRY_AGAIN:
                    continue
                raise answer
            return answer

    def deliver(self) -> None:
        call = self.network.pop(self.chance.randrange(len(self.network)))
        if call.is_copy and call.reply.done() and call.copies is not Copies.LATE:
            return
        if not call.is_copy and call.copies is not Copies.NONE and self.chance.random() < 0.15:
            self.network.append(Call(call.request, call.reply, call.copies, is_copy=True))
        task = asyncio.get_running_loop().create_task(self._serve(call))
        self.tasks[task] = call

    async def _serve(self, call: Call) -> None:
        answer: Any
        try:
            answer = await call.request(self)
        except (RequestRefused, LogError) as refused:
            answer = Refused(refused.code, str(refused))
        finally:
            task = asyncio.current_task()
            assert task is not None
            self.tasks.pop(task, None)
        if not call.is_copy:
            self.replies.append((call.reply, answer))

    def reply(self) -> None:
        reply, answer = self.replies.pop(self.chance.randrange(len(self.replies)))
        if not isinstance(answer, Lost) and self.is_working and self.chance.random() < 0.05:
            answer = Lost()
        if not reply.done():
            reply.set_result(answer)

    # Requests

    async def produce(
        self, name: str, version: int, producer: ProducerIdentity, index: int, sequence: int, value: bytes
    ) -> None:
        partition = self.partitions[index]
        batch = a_transactional_batch(sequence, value, producer=producer.producer_id, epoch=producer.epoch)
        partition.log.append(batch, self.clock.now_ms(), (name, version))
        if not self.turn.scheduled:
            self.turn.schedule()
        if not partition.is_staged:
            partition.is_staged = True
            self.turn.partitions.append(partition)
        waits = _Acknowledged(needs_sync=self.acks_all)
        partition.unsettled.append((waits, 0))
        await waits.future

    def offset(self, number: int) -> OffsetToCommit:
        return OffsetToCommit("in", number, number, -1, "", self.clock.now_ms())

    # Readers

    def look(self) -> None:
        """Let a reader of committed records read what it can. A value must never change."""
        for partition in self.partitions:
            for offset, value in visible(partition.log).items():
                before = self.seen.setdefault((partition.index, offset), value)
                assert before == value, f"offset {offset} of {partition} was {before!r} and is {value!r}"

    # Time

    async def step(self) -> None:
        """Let one of the possible events happen."""
        chance = self.chance
        if self.is_killed:
            await self.crash(power=self._power_too())
        choices: list[tuple[float, Callable[[], Any]]] = [(5, self._let_time_pass), (2, self.look)]
        if self.network:
            choices.append((30, self.deliver))
        if self.replies:
            choices.append((20, self.reply))
        if self.database.waiting:
            choices.append((12, self._commit_catalogue))
        if self.database.unsettled:
            choices.append((12, self.database.settle))
        if self.syncer.wanted:
            choices.append((12, self._sync))
        if self.stalled:
            choices.append((2, self._go_on))
        if self.is_working:
            choices += [(1, self._let_much_time_pass), (1, self._fill_disk), (0.6, self._kill)]
        weights, actions = zip(*choices, strict=True)
        (action,) = chance.choices(actions, weights)
        ended = action()
        if ended is not None:
            await ended
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)

    def _let_time_pass(self) -> None:
        self.clock.advance(self.chance.choice((0.01, 0.3, 1.1)))
        self.coordinator.tick()

    def _let_much_time_pass(self) -> None:
        self.clock.advance(TIMEOUT_MS / 1000 * self.chance.random())
        self.coordinator.tick()

    def _commit_catalogue(self) -> None:
        fails = self.is_working and self.chance.random() < 0.05
        self.database.commit(self.chance.randint(1, len(self.database.waiting)), fails=fails)

    def _sync(self) -> None:
        self.syncer.step(self.chance.randrange(len(self.syncer.wanted)))

    def _go_on(self) -> None:
        self.stalled.pop(self.chance.randrange(len(self.stalled))).set_result(None)

    def _fill_disk(self) -> None:
        self.disk.room = None if self.disk.room is not None else self.chance.randrange(200)

    def _kill(self) -> Awaitable[None] | None:
        """Kill the process now, or between two of its next writes."""
        if self.chance.random() < 0.5:
            return self.crash(power=self._power_too())
        if self.writes_left is None:
            self.writes_left = self.chance.randrange(4)
        return None

    def _power_too(self) -> bool:
        return self.loses_power and self.chance.random() < 0.6


def _ignore_killed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), Killed):
        loop.default_exception_handler(context)


def visible(log: PartitionLog) -> dict[int, bytes]:
    """The records that a reader of committed records sees, derived from fetches as a client does it."""
    upto = log.last_stable_offset
    coming = sorted((first, producer_id) for producer_id, first in log.aborted(0, upto))
    aborting: set[int] = set()
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < upto:
        data = log.read(offset, 1 << 20, upto=upto).bytes()
        for position, header in batches(data):
            while coming and coming[0][0] <= header.last_offset:
                aborting.add(coming.pop(0)[1])
            if header.is_control:
                marker = read_marker(data, position, header)
                if marker is not None and marker.kind is Marker.ABORT:
                    aborting.discard(header.producer_id)
            elif header.producer_id not in aborting:
                found |= {
                    record.offset: record.value or b"" for record in read_records(data, position, header)
                }
            offset = header.next_offset
    return found


def epochs_written(log: PartitionLog) -> list[tuple[int, int, int]]:
    """The offset, producer id and epoch of every batch of records."""
    found = []
    offset = log.log_start_offset
    while offset < log.written_offset:
        data = log.read(offset, 1 << 20).bytes()
        for _, header in batches(data):
            if not header.is_control:
                found.append((header.base_offset, header.producer_id, header.producer_epoch))
            offset = header.next_offset
    return found
