"""A partition as the broker serves it: its log, and the requests that wait for appends, syncs and records."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from millstream.core.errors import LogError, LogFailed
from millstream.core.kafka_errors import UNKNOWN_TOPIC_OR_PARTITION
from millstream.core.log_output import RateLimited
from millstream.log.partition import PartitionLog
from millstream.records.markers import MARKER_SIZE
from millstream.records.recompress import Target
from millstream.wire.frame import frame
from millstream.wire.hot.fetch import FetchResult, Part, topic_head
from millstream.wire.hot.produce import FLEXIBLE, AckTemplate, PartitionResult, ack_template, produce_answer

_complaints = RateLimited(logging.getLogger(__name__))

MANY = 1 << 62  # bytes; more than any long poll waits for
_TOGETHER = 50  # long polls that are answered before their responses are sent


class PendingAppend(Protocol):
    """A Produce request, or anything else that waits until its records are safe or lost."""

    needs_sync: bool
    timeout_ms: int  # how long to wait for standbys where the topic requires copies; -1: don't wait for them

    def settled(self, place: int, failure: LogError | None) -> None:
        """The records at ``place`` in the request are as safe as requested; or lost, with a failure."""


class Shared:
    """Results shared by long polls that are woken together. ``reads``: partitions' results, by what was
    asked. ``answers``: whole responses by the request's version and bytes, with a function to call for each
    one that is sent."""

    __slots__ = ("answers", "reads")

    def __init__(self) -> None:
        self.reads: dict[object, FetchResult] = {}
        self.answers: dict[tuple[int, bytes], tuple[list[Part], Callable[[], None]]] = {}


class Waiter(Protocol):
    """A Fetch that waits for records."""

    committed: bool  # it reads committed records only: no open and no aborted transactions

    def appended(self, count: int, shared: Shared) -> None:
        """``count`` more bytes can be read. ``shared`` is for results that other waiters of this
        partition can use as well."""

    def cancel(self) -> None:
        """Respond now, with the records that there are."""


class Acknowledged(Protocol):
    """A connection that acknowledges records in the turn that writes them."""

    def replace_ack(self, place: int, failed: Callable[[], bytes]) -> None:
        """The records could not be written: send the response that ``failed`` makes instead of the one at
        ``place`` in the queue. A negative place: the producer expects no response."""


class AppendTurn(Protocol):
    """The turn of the loop at whose end staged records are written."""

    scheduled: bool
    now_ms: int
    partitions: list[Partition]

    def schedule(self) -> None: ...
    def write(self) -> None: ...


class Copies(Protocol):
    """The copies on other brokers that ``acks=all`` waits for."""

    def too_few(self, partition: Partition) -> LogError | None:
        """Why records for ``acks=all`` can't be taken; None if they can."""

    def wait(self, partition: Partition, offset: int, request: PendingAppend, place: int) -> None:
        """Settle the request once enough copies have the log up to ``offset``."""

    def forget(self, partition: Partition) -> None:
        """Settle the waiting requests of a partition that was deleted."""


class Backlog(Protocol):
    """What the consumers of a partition have not read yet."""

    def took(self, size: int) -> None:
        """The partition has taken this many bytes more."""


class Gate(Protocol):
    """Holds the producers of a topic back while its consumers are behind."""

    @property
    def lags(self) -> Sequence[Backlog]:
        """The backlog of each partition."""


class LocalTopic:
    """A topic with its partitions, looked up by name or by the bytes of its id."""

    __slots__ = (
        "_heads",
        "bytes_in",
        "bytes_out",
        "copies",
        "described",
        "direct",
        "gate",
        "id",
        "id_bytes",
        "kept_as",
        "name",
        "partitions",
    )

    def __init__(self, name: str, topic_id: uuid.UUID) -> None:
        self.name = name
        self.id = topic_id
        self.id_bytes = topic_id.bytes
        self.partitions: list[Partition] = []  # empty once the topic is deleted
        self.gate: Gate | None = None  # where producers may have to wait
        self.copies = 1  # brokers that must have a record before acks=all is answered
        self.kept_as: Target | None = None  # the codec its batches are stored in; None: the producer's
        self.direct = self.partitions  # the partitions that Produce's fast path may append to
        self.bytes_in = 0
        self.bytes_out = 0
        self.described: dict[tuple[int, int], bytes] = {}  # cached parts of responses to Metadata
        self._heads: dict[int, bytes] = {}

    @property
    def in_memory(self) -> bool:
        return bool(self.partitions) and self.partitions[0].in_memory

    def guard(self, gate: Gate | None) -> None:
        """Set the producers' gate, or None. To be called again when ``partitions`` is replaced."""
        self.gate = gate
        self._lead()

    def keep_as(self, target: Target | None) -> None:
        """Set the codec in which batches are stored, or None."""
        self.kept_as = target
        self._lead()

    def _lead(self) -> None:
        is_plain = self.gate is None and self.kept_as is None and self.copies == 1
        self.direct = self.partitions if is_plain else []

    def head(self, version: int) -> bytes:
        """The bytes that begin the topic in a Fetch response."""
        head = self._heads.get(version)
        if head is None:
            head = self._heads[version] = topic_head(version, self.name, self.id_bytes)
        return head


class Partition:
    """See the module's description. Used on the loop's thread only, except ``log.sync``."""

    __slots__ = (
        "acks",
        "awaiting_sync",
        "first_offset",
        "held_back",
        "in_memory",
        "in_sync",
        "index",
        "is_staged",
        "is_syncing",
        "log",
        "missed_reads",
        "stable_offset",
        "sync_again",
        "topic",
        "turn_bytes",
        "unsettled",
        "unwritten",
        "waiters",
    )

    def __init__(self, topic: LocalTopic, index: int, log: PartitionLog, *, in_memory: bool) -> None:
        self.in_memory = in_memory  # a sync takes no time
        self.in_sync: Copies | None = None  # where acks=all waits for standbys; None: it does not wait
        self.topic = topic
        self.index = index
        self.log = log
        self.first_offset = log.end_offset  # at startup; metrics count only records appended since then
        # For this turn: whether the partition is in the turn's list, the bytes appended, the responses
        # already queued (connection, place in its queue, correlation id, version), and the requests to
        # notify when the records are written.
        self.is_staged = False
        self.turn_bytes = 0
        self.unwritten: list[tuple[Acknowledged, int, int, int]] = []
        self.unsettled: list[tuple[PendingAppend, int]] = []
        # Beyond the turn: the requests that wait for a sync up to an offset, and the long polls.
        self.awaiting_sync: list[tuple[int, PendingAppend, int]] = []
        self.is_syncing = False
        self.sync_again = False
        self.waiters: dict[Waiter, None] = {}
        self.stable_offset = 0  # the last stable offset that the waiters know of; see wake()
        self.held_back = False  # at that time, an open transaction kept it below the written offset
        self.acks: dict[int, AckTemplate] = {}
        self.missed_reads = 0  # fetches of offsets that were already deleted

    def __str__(self) -> str:
        return f"{self.topic.name}-{self.index}"

    def ack(self, version: int) -> AckTemplate:
        """Make the response template for a version, and keep it in ``acks``."""
        topic = self.topic
        template = self.acks[version] = ack_template(version, topic.name, topic.id_bytes, self.index)
        return template

    def missed(self, offset: int) -> None:
        """Note that a reader asked for an offset before the log's start. A Fetch does not say which group
        it belongs to. What each group lost is recorded in ``losses`` when the records are deleted."""
        self.missed_reads += 1
        start = self.log.log_start_offset
        _complaints.warning(
            "missed",
            "a reader of %s asked for offset %d, but the log starts at %d: %d records were deleted before it"
            " had read them",
            self,
            offset,
            start,
            start - offset,
        )

    def append_marker(
        self, turn: AppendTurn, producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int
    ) -> int:
        """Stage the marker that ends a producer's transaction here, and return its offset. It is written at
        the end of the turn, and readers are woken. A caller that needs to know when it is written or synced
        adds itself to ``unsettled``. Raises LogError."""
        if not turn.scheduled:
            turn.schedule()
        offset = self.log.append_marker(
            producer_id, epoch, commit=commit, coordinator_epoch=coordinator_epoch, now_ms=turn.now_ms
        )
        if not self.is_staged:
            self.is_staged = True
            turn.partitions.append(self)
        self.turn_bytes += MARKER_SIZE
        return offset

    def settle_written(self) -> None:
        """The turn's records are in the file."""
        unsettled, self.unsettled = self.unsettled, []
        log = self.log
        if self.in_memory:
            log.sync()
        written = log.written_offset
        for request, place in unsettled:
            if (request.needs_sync or log.syncs_every_append) and log.synced_offset < written:
                self.awaiting_sync.append((written, request, place))
            else:
                self._settle(written, request, place)

    def _settle(self, offset: int, request: PendingAppend, place: int) -> None:
        """Records below ``offset`` are as safe on this machine as requested: wait for standbys, or settle."""
        if self.in_sync is not None and request.needs_sync and request.timeout_ms >= 0:
            self.in_sync.wait(self, offset, request, place)
        else:
            request.settled(place, None)

    def write_failed(self, failure: LogFailed) -> None:
        """The turn's records could not be written. The log has taken them back."""
        unwritten, self.unwritten = self.unwritten, []
        for connection, place, correlation_id, version in unwritten:
            connection.replace_ack(place, partial(self._failed_ack, version, correlation_id, failure))
        unsettled, self.unsettled = self.unsettled, []
        for request, place in unsettled:
            request.settled(place, failure)
        self.turn_bytes = 0

    def _failed_ack(self, version: int, correlation_id: int, failure: LogError) -> bytes:
        """The response that replaces an acknowledgement whose records could not be written."""
        topic = self.topic
        result = PartitionResult(self.index, failure.code, message=str(failure))
        body = produce_answer(version, [(topic.name, topic.id_bytes, [result])], 0)
        return frame(correlation_id, body, tags=version >= FLEXIBLE)

    def synced(self, offset: int, failure: LogError | None) -> None:
        """A sync ended: everything below ``offset`` is on disk, or the log has failed."""
        waiting, self.awaiting_sync = self.awaiting_sync, []
        for wanted, request, place in waiting:
            if failure is not None:
                request.settled(place, failure)
            elif wanted <= offset:
                self._settle(wanted, request, place)
            else:
                self.awaiting_sync.append((wanted, request, place))

    def add_waiter(self, waiter: Waiter) -> None:
        """Add a long poll, which is told of new records. It has seen everything written so far."""
        if not self.waiters:
            self._note_stable(self.log.last_stable_offset)  # it is not updated while there are no waiters
        self.waiters[waiter] = None

    def _note_stable(self, stable: int) -> None:
        self.stable_offset = stable
        self.held_back = stable < self.log.written_offset

    def wake(self, count: int, send: Callable[[], None] = lambda: None) -> None:
        """Tell the long polls about ``count`` new bytes.

        A reader of committed records is told when the last stable offset moves. If an open transaction held
        that offset back, more than ``count`` bytes may have become readable, so ``MANY`` is reported and the
        reader looks. ``send`` is called now and then, so that the first responses leave while the others
        are still being made.
        """
        shared = Shared()
        stable = self.log.last_stable_offset
        moved = stable != self.stable_offset
        committed = MANY if self.held_back else count
        self._note_stable(stable)
        for number, waiter in enumerate(list(self.waiters), start=1):
            if not waiter.committed:
                waiter.appended(count, shared)
            elif moved:
                waiter.appended(committed, shared)
            if number % _TOGETHER == 0:
                send()

    def close(self) -> None:
        """Stop serving the partition, and answer all requests that wait."""
        gone = LogError(UNKNOWN_TOPIC_OR_PARTITION, f"{self} was deleted")
        for _, request, place in self.awaiting_sync:
            request.settled(place, gone)
        self.awaiting_sync.clear()
        if self.in_sync is not None:
            self.in_sync.forget(self)
        for waiter in list(self.waiters):
            waiter.cancel()
