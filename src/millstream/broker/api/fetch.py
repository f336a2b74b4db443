"""Fetch: read records from the log, at once or when there are enough of them.

A request gets its response at once if it asks for no waiting, if the records that are there reach
``min_bytes``, or if any of its partitions has an error. Otherwise it waits on its partitions. It is
checked again when records are appended to one of them, or when its time is up. A reader of committed
records gets those below the last stable offset, with the aborted transactions among them. Its request is
also checked again when that offset moves.

Records that are only in the archive are read by threads. A request that wants any of them waits for that,
up to ``remote.fetch.max.wait.ms``, and then returns what has arrived (``ArchivedSlot``).

A batch is never cut: the first partition that has records returns a whole batch even if it is larger than
every limit, because the reader could never get past it otherwise.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from millstream.broker.api.handlers import serves_directly
from millstream.broker.api.node_connection import NodeConnection
from millstream.broker.api.repeated_requests import FetchShape
from millstream.broker.net.connection import Slot
from millstream.broker.node import Node
from millstream.broker.topics.fetch_sessions import FetchSession, SessionError, SessionPartition
from millstream.broker.topics.partition import LocalTopic, Partition, Shared
from millstream.core.errors import LogError, OffsetArchived, ProtocolError
from millstream.core.kafka_errors import (
    FENCED_LEADER_EPOCH,
    KAFKA_STORAGE_ERROR,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from millstream.core.loop_slices import MANY, sliced
from millstream.log.archive.reader import ArchiveRead
from millstream.log.partition import PartitionLog
from millstream.wire.api_keys import FETCH
from millstream.wire.frame import ANSWER_HEAD, HEAD_SIZE, TopicKey, skip_client_id
from millstream.wire.hot.fetch import (
    BY_ID,
    FINAL_EPOCH,
    FIRST,
    FLEXIBLE,
    LARGE,
    LAST,
    NO_SESSION,
    FetchPartition,
    FetchRequest,
    FetchResult,
    Part,
    fetch_answer,
    partition_size,
    read_fetch,
    read_wanted,
    topic_head,
)

READ_COMMITTED = 1
_NONE_ABORTED: Sequence[tuple[int, int]] = ()
MANY_PARTITIONS = 1000  # partitions of a session from which a Fetch is processed in slices
ARCHIVED = 1 << 15  # an internal error code: the records are in the archive

# A log, an offset and a number of bytes to read from the archive.
Archived = tuple[PartitionLog, int, int]

serves_directly(FETCH, versions=(FIRST, LAST))

# The content of a response: a topic, or the name or id of a missing one, and its partitions' results.
TopicResults = list[tuple[LocalTopic | TopicKey, list[FetchResult]]]


def _read_request(
    connection: NodeConnection, buffer: bytearray, view: memoryview, position: int, stop: int, version: int
) -> FetchRequest:
    shape = connection.fetch_shape
    start = position = position + HEAD_SIZE
    if shape is not None and shape.version == version:
        known = shape.read(buffer, view, position, stop)
        if known is not None:
            return known
    if not FIRST <= version <= LAST:
        raise ProtocolError(f"asks for Fetch version {version}, which is not served here")
    position = skip_client_id(buffer, position, stop, version >= FLEXIBLE)
    request = read_fetch(buffer, position, stop, version)
    if len(request.topics) == 1 and request.session_epoch == FINAL_EPOCH:
        at = request.partitions_at
        end = at + len(request.topics[0][1]) * partition_size(version)
        if end <= stop and read_wanted(view[at:end], version) == request.topics[0][1]:  # none has tags
            before, after = bytes(view[start:at]), bytes(view[end:stop])
            connection.fetch_shape = FetchShape(version, before, after, request)
    return request


def fetch(
    connection: NodeConnection,
    buffer: bytearray,
    view: memoryview,
    position: int,
    stop: int,
    version: int,
    correlation_id: int,
) -> None:
    """Handle the request in ``buffer[position:stop]``."""
    request = _read_request(connection, buffer, view, position, stop, version)
    node = connection.node
    meter = connection.fetch_meter
    throttled = 0.0
    most = min(request.max_bytes, node.config.fetch_max_bytes)
    if meter is not None:
        throttled = meter.wait(node.clock.monotonic())
        most = min(most, meter.burst)
    if most < request.max_bytes or most < request.min_bytes:
        # A reader that waits for more than it may get would wait for its time-out every time.
        request = request._replace(max_bytes=most, min_bytes=min(request.min_bytes, most))
    session: FetchSession | None = None
    if request.session_id != NO_SESSION or request.session_epoch != FINAL_EPOCH:
        try:
            session = node.sessions.begin(request, version >= BY_ID)
        except SessionError as error:
            parts, size = _frame(version, correlation_id, fetch_answer(version, NO_SESSION, error.code, ()))
            connection.answer_parts(parts, size)
            return
    if throttled:
        # A session that this request begins would have sent nothing yet, so the next request begins it.
        known = NO_SESSION if session is None or request.session_epoch == 0 else session.id
        nothing = fetch_answer(version, known, 0, (), math.ceil(throttled * 1000))
        connection.answer_parts(*_frame(version, correlation_id, nothing))
        connection.mute(throttled)
        return
    if session is not None and len(session.partitions) > MANY_PARTITIONS:
        connection.in_slices(lambda: _respond(connection, version, correlation_id, request, session, None))
    else:
        words = None if session is not None else view[position + HEAD_SIZE : stop]
        _respond(connection, version, correlation_id, request, session, words)


def _respond(
    connection: NodeConnection,
    version: int,
    correlation_id: int,
    request: FetchRequest,
    session: FetchSession | None,
    words: memoryview | None,
) -> None:
    """Respond with what there is, or wait for more. ``words`` are the request's own bytes."""
    node = connection.node
    reading = _read_topics(node, request, {}) if session is None else _read_session(node, request, session)
    if reading.archived:
        slot = ArchivedSlot(connection, version, correlation_id, request, session)
        connection.place(slot)
        slot.ask(reading.archived)
    elif request.max_wait_ms <= 0 or reading.is_enough(request):
        body = reading.answer(version, session, request)
        parts, size = _frame(version, correlation_id, body)
        if connection.fetch_meter is not None:
            connection.fetch_meter.count(size, node.clock.monotonic())
        connection.answer_parts(parts, size)
    else:
        same = None if words is None else bytes(words)
        waiter = FetchSlot(connection, version, correlation_id, request, session, same)
        waiter.missing = max(1, request.min_bytes - reading.size)
        connection.place(waiter)
        waiter.wait()


class FetchReading:
    """What a request's partitions can return at this moment."""

    __slots__ = ("archived", "failed", "followed", "size", "topics")

    def __init__(self) -> None:
        self.archived: list[Archived] = []  # what has to be read from the archive
        self.topics: TopicResults = []
        self.followed: list[tuple[SessionPartition, LocalTopic | TopicKey, FetchResult]] = []  # of a session
        self.size = 0
        self.failed = False

    def is_enough(self, request: FetchRequest) -> bool:
        return self.failed or self.size >= request.min_bytes or not (self.topics or self.followed)

    def answer(self, version: int, session: FetchSession | None, request: FetchRequest) -> list[Part]:
        if session is None:
            return self.body(version)
        everything = request.session_epoch == 0
        by_topic: dict[int, tuple[LocalTopic | TopicKey, list[FetchResult]]] = {}
        for followed, topic, fetched in sliced(self.followed):
            if followed.is_news(fetched) or everything:
                by_topic.setdefault(id(topic), (topic, []))[1].append(fetched)
                if fetched.records is not None:
                    session.move_to_end(followed)
        self.topics = list(by_topic.values())
        return self.body(version, session.id)

    def body(self, version: int, session_id: int = NO_SESSION) -> list[Part]:
        topics = []
        for topic, fetched in sliced(self.topics):
            if isinstance(topic, LocalTopic):
                head = topic.head(version)
            else:
                head = topic_head(version, str(topic), topic if isinstance(topic, bytes) else b"")
            topics.append((head, fetched))
        self.count_sent()
        return fetch_answer(version, session_id, 0, topics)

    def count_sent(self) -> None:
        for topic, fetched in sliced(self.topics):
            if isinstance(topic, LocalTopic):
                for result in fetched if len(fetched) < MANY else sliced(fetched):
                    if result.records is not None:
                        topic.bytes_out += result.records.size


class WaitingFetch(Slot):
    """A Fetch whose response comes later: the request and its deadline."""

    __slots__ = ("correlation_id", "deadline", "request", "session", "version")

    connection: NodeConnection

    def __init__(
        self,
        connection: NodeConnection,
        version: int,
        correlation_id: int,
        request: FetchRequest,
        session: FetchSession | None,
    ) -> None:
        super().__init__(connection)
        self.version = version
        self.correlation_id = correlation_id
        self.request = request
        self.session = session
        self.deadline = 0

    def _read(self, shared: dict[object, Any]) -> FetchReading:
        node = self.connection.node
        if self.session is not None:
            return _read_session(node, self.request, self.session, shared)
        return _read_topics(node, self.request, shared)


class ArchivedSlot(WaitingFetch):
    """A Fetch that waits for the archive. What arrives is combined with the other partitions' records."""

    __slots__ = ("_arrived", "_awaited")

    def __init__(
        self,
        connection: NodeConnection,
        version: int,
        correlation_id: int,
        request: FetchRequest,
        session: FetchSession | None,
    ) -> None:
        super().__init__(connection, version, correlation_id, request, session)
        self._arrived: dict[object, Any] = {}
        self._awaited = 0  # reads still awaited; 0 again once the response is sent

    def ask(self, wanted: list[Archived]) -> None:
        node = self.connection.node
        committed = self.request.isolation_level == READ_COMMITTED
        self._awaited = len(wanted)
        self.deadline = node.deadlines.add(self, node.config.remote_fetch_max_wait_ms / 1000)
        for log, offset, limit in wanted:
            arrived = partial(self._take, (log, offset))
            if node.archiving is not None:
                node.archiving.read(log, offset, limit, committed=committed, arrived=arrived)
            else:
                arrived(LogError(KAFKA_STORAGE_ERROR, "the broker was started without its archive"))

    def _take(self, key: object, outcome: ArchiveRead | LogError) -> None:
        if self._awaited:
            self._arrived[key] = outcome
            self._awaited -= 1
            if not self._awaited:
                self._finish()

    def timed_out(self) -> None:
        if self._awaited:
            self._finish()

    def _finish(self) -> None:
        self.abandon()
        _resolve(self, self._read(self._arrived).answer(self.version, self.session, self.request))

    def abandon(self) -> None:
        self._awaited = 0
        self.connection.node.deadlines.remove(self, self.deadline)


class FetchSlot(WaitingFetch):
    """A Fetch that waits for records.

    ``words`` are the request's own bytes. Of the requests that wait with the same bytes, as readers at
    the end of one topic do, one is processed and all get its response.
    """

    __slots__ = ("committed", "missing", "partitions", "words")

    def __init__(
        self,
        connection: NodeConnection,
        version: int,
        correlation_id: int,
        request: FetchRequest,
        session: FetchSession | None,
        words: bytes | None,
    ) -> None:
        super().__init__(connection, version, correlation_id, request, session)
        self.words = words
        self.committed = request.isolation_level == READ_COMMITTED
        self.missing = 0  # bytes still missing before another check is worthwhile
        self.partitions: list[Partition] = []

    def wait(self) -> None:
        # The end of the turn in which records are written (``net.loop_turn``) wakes this request through
        # ``Partition.wake``, which calls ``appended``; its deadline calls ``timed_out``.
        node = self.connection.node
        for key, wanted in self._wanted():
            topic = node.hosted.get(key)
            if topic is not None and wanted[0] < len(topic.partitions):  # it may have been deleted meanwhile
                partition = topic.partitions[wanted[0]]
                partition.add_waiter(self)
                self.partitions.append(partition)
        self.deadline = node.deadlines.add(self, self.request.max_wait_ms / 1000)

    def _wanted(self) -> Iterable[tuple[TopicKey, FetchPartition]]:
        if self.session is not None:
            return [(followed.key, followed.wanted) for followed in self.session.partitions.values()]
        return [(key, wanted) for key, of_topic in self.request.topics for wanted in of_topic]

    def appended(self, count: int, shared: Shared) -> None:
        self.missing -= count
        if self.missing > 0:
            return
        if self.words is not None:
            same = shared.answers.get((self.version, self.words))
            if same is not None:
                body, count_sent = same
                count_sent()
                self._finish(body)
                return
        reading = self._read(shared.reads)
        if not reading.is_enough(self.request):
            self.missing = self.request.min_bytes - reading.size
            return
        body = reading.answer(self.version, self.session, self.request)
        if self.words is not None:
            body = _whole(body)
            shared.answers[(self.version, self.words)] = body, reading.count_sent
        self._finish(body)

    def timed_out(self) -> None:
        self._finish(self._read({}).answer(self.version, self.session, self.request))

    def cancel(self) -> None:
        self.timed_out()

    def _finish(self, body: list[Part]) -> None:
        self.abandon()
        _resolve(self, body)

    def abandon(self) -> None:
        for partition in self.partitions:
            partition.waiters.pop(self, None)
        self.partitions.clear()
        self.connection.node.deadlines.remove(self, self.deadline)


def _resolve(slot: FetchSlot | ArchivedSlot, body: list[Part]) -> None:
    parts, size = _frame(slot.version, slot.correlation_id, body)
    meter = slot.connection.fetch_meter
    if meter is not None:
        meter.count(size, slot.connection.node.clock.monotonic())
    slot.resolve(parts, size)


def _read_topics(node: Node, request: FetchRequest, shared: dict[object, Any]) -> FetchReading:
    reading = FetchReading()
    left = request.max_bytes
    committed = request.isolation_level == READ_COMMITTED
    hosted = node.hosted
    for key, of_topic in request.topics if len(request.topics) < MANY else sliced(request.topics):
        topic = hosted.get(key)
        results = []
        for wanted in of_topic if len(of_topic) < MANY else sliced(_once(of_topic)):
            fetched = _read_one(topic, key, wanted, left, not reading.size, committed, shared)
            if fetched.error:
                if fetched.error == ARCHIVED:
                    fetched = _ask_archive(reading, fetched, topic, wanted, left)
                else:
                    reading.failed = True
            elif fetched.records is not None:
                reading.size += fetched.records.size
                left -= fetched.records.size
            results.append(fetched)
        reading.topics.append((topic if topic is not None else key, results))
    return reading


def _once(wanted: list[FetchPartition]) -> Iterable[FetchPartition]:
    """Each partition once, with the last of what was asked for it, as Kafka does."""
    return {each[0]: each for each in wanted}.values()


def _read_session(
    node: Node, request: FetchRequest, session: FetchSession, shared: dict[object, Any] | None = None
) -> FetchReading:
    reading = FetchReading()
    left = request.max_bytes
    committed = request.isolation_level == READ_COMMITTED
    hosted = node.hosted
    for followed in sliced(list(session.partitions.values())):
        key = followed.key
        topic = hosted.get(key)
        fetched = _read_one(topic, key, followed.wanted, left, not reading.size, committed, shared)
        if fetched.error:
            if fetched.error == ARCHIVED:
                fetched = _ask_archive(reading, fetched, topic, followed.wanted, left)
            else:
                reading.failed = True
        elif fetched.records is not None:
            reading.size += fetched.records.size
            left -= fetched.records.size
        reading.followed.append((followed, topic if topic is not None else key, fetched))
    return reading


def _read_one(
    topic: LocalTopic | None,
    key: TopicKey,
    wanted: FetchPartition,
    left: int,
    at_least_one: bool,
    committed: bool,
    shared: dict[object, Any] | None,
) -> FetchResult:
    index, leader_epoch, offset, _, max_bytes = wanted
    if topic is None or not 0 <= index < len(topic.partitions):
        unknown = UNKNOWN_TOPIC_ID if topic is None and isinstance(key, bytes) else UNKNOWN_TOPIC_OR_PARTITION
        return FetchResult(index, unknown, -1, -1, -1, None, _NONE_ABORTED)
    log = topic.partitions[index].log
    if leader_epoch >= 0 and leader_epoch != log.leader_epoch:
        if log.offline is not None:
            return FetchResult(index, log.offline.code, -1, -1, -1, None, None)
        fenced = leader_epoch < log.leader_epoch
        return FetchResult(
            index, FENCED_LEADER_EPOCH if fenced else UNKNOWN_LEADER_EPOCH, -1, -1, -1, None, None
        )
    high = log.written_offset
    stable = log.last_stable_offset
    aborted: Sequence[tuple[int, int]] | None = _NONE_ABORTED if committed else None
    if offset == high or (committed and stable <= offset < high):
        return FetchResult(index, 0, high, stable, log.log_start_offset, None, aborted)
    limit = max_bytes if max_bytes < left else left
    same = (topic, index, offset, limit, at_least_one, committed)
    if shared and same in shared:
        known: FetchResult = shared[same]
        return known
    try:
        records = log.read(
            offset, limit if limit > 0 else 0, upto=stable if committed else high, at_least_one=at_least_one
        )
    except OffsetArchived:
        return _from_archive(
            index, log, offset, limit, at_least_one, committed, (shared or {}).get((log, offset))
        )
    except LogError as error:
        if offset < log.log_start_offset:
            topic.partitions[index].missed(offset)
        return FetchResult(index, error.code, -1, -1, -1, None, None)
    if committed and records.size:
        aborted = log.aborted_in(offset, records)
    fetched = FetchResult(
        index, 0, high, stable, log.log_start_offset, records if records.size else None, aborted
    )
    if shared is not None:
        if fetched.records is not None and records.size <= LARGE:
            fetched = fetched._replace(records=ReadRecords(records.bytes()))
        shared[same] = fetched
    return fetched


def _from_archive(
    index: int,
    log: PartitionLog,
    offset: int,
    limit: int,
    at_least_one: bool,
    committed: bool,
    arrived: ArchiveRead | LogError | None,
) -> FetchResult:
    """What came from the archive for a partition, or ``ARCHIVED`` if it has not been read yet."""
    if isinstance(arrived, LogError):
        return FetchResult(index, arrived.code, -1, -1, -1, None, None)
    found = FetchResult(
        index,
        ARCHIVED if arrived is None else 0,
        log.written_offset,
        log.last_stable_offset,
        log.log_start_offset,
        None,
        _NONE_ABORTED if committed else None,
    )
    if arrived is None or not arrived.data or (len(arrived.data) > limit and not at_least_one):
        return found
    return found._replace(records=ReadRecords(arrived.data), aborted=arrived.aborted if committed else None)


def _ask_archive(
    reading: FetchReading, fetched: FetchResult, topic: LocalTopic | None, wanted: FetchPartition, left: int
) -> FetchResult:
    """Note that a partition's records have to be read from the archive. Until then it returns none."""
    index, _, offset, _, max_bytes = wanted
    assert topic is not None
    reading.archived.append((topic.partitions[index].log, offset, max(0, min(max_bytes, left))))
    return fetched._replace(error=0)


class ReadRecords:
    """Records already in memory: shared by requests that wait for the same, or read from the archive."""

    __slots__ = ("data", "size")
    position = 0

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)

    def fileno(self) -> int:
        return -1

    def bytes(self) -> bytes:
        return self.data

    def peek(self, start: int, size: int) -> builtins.bytes:
        return self.data[start : start + size]

    def part(self, start: int, size: int) -> ReadRecords:
        return ReadRecords(self.data[start : start + size])


def _whole(body: list[Part]) -> list[Part]:
    """The body in one piece, for the requests that share it. A body that comes from files stays as it is."""
    try:
        return [b"".join(body)]  # type: ignore[arg-type]
    except TypeError:
        return body


def _frame(version: int, correlation_id: int, body: list[Part]) -> tuple[list[Part], int]:
    return frame_answer(correlation_id, body, tags=version >= FLEXIBLE)


def frame_answer(correlation_id: int, body: list[Part], *, tags: bool) -> tuple[list[Part], int]:
    """A whole response in parts, and its size."""
    if len(body) == 1 and type(only := body[0]) is bytes:
        size = len(only)
        if tags:
            return [ANSWER_HEAD.pack(size + 5, correlation_id) + b"\0" + only], size + 9
        return [ANSWER_HEAD.pack(size + 4, correlation_id) + only], size + 8
    size = 0
    for part in body:
        size += part.size if not isinstance(part, (bytes, bytearray)) else len(part)
    if tags:
        head = ANSWER_HEAD.pack(size + 5, correlation_id) + b"\0"
    else:
        head = ANSWER_HEAD.pack(size + 4, correlation_id)
    return [head, *body], size + len(head)
