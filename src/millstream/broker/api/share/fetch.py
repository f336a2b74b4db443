"""ShareFetch: give records of a share group to one of its members, at once or when there are some.

A request first says what became of records that the member got before. When that is saved, it is given new
ones. If there are none, it waits for up to ``max_wait``. It is looked at again when records are appended to
one of its logs, and when records of its share partitions come back.

The records are sent as they are in the log, by whole batches, and large ones from the file to the socket. The
response says which of them the member got.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

from millstream.broker.api.fetch import ReadRecords, frame_answer
from millstream.broker.api.handlers import serves_on_connection
from millstream.broker.api.node_connection import NodeConnection
from millstream.broker.api.share.acknowledgements import (
    Outcome,
    acknowledge,
    check_member,
    not_saved,
    places_of,
    saving,
)
from millstream.broker.api.share.reading import Records, around, enough_batches
from millstream.broker.groups.share.delivery import ShareLog
from millstream.broker.groups.share.sessions import FIRST_EPOCH, LAST_EPOCH, Place, ShareSession
from millstream.broker.net.connection import Slot
from millstream.broker.topics.partition import Partition, Shared
from millstream.core.errors import LogError, OffsetArchived, RequestRefused
from millstream.core.kafka_errors import (
    INVALID_REQUEST,
    KAFKA_STORAGE_ERROR,
    NONE,
    SHARE_SESSION_LIMIT_REACHED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from millstream.log.archive.reader import ArchiveRead
from millstream.log.partition import PartitionLog
from millstream.wire.api_keys import SHARE_FETCH
from millstream.wire.hot.share_fetch import ShareFetched, share_fetch_answer

_RENEW_FROM = 2  # from this version on, a request may renew locks, and limit single records
_BY_RECORD = 1


@serves_on_connection(SHARE_FETCH, versions=(1, 2))
def share_fetch(connection: NodeConnection, request: Any, version: int, correlation_id: int) -> None:
    slot = ShareFetchSlot(connection, request, version, correlation_id)
    connection.place(slot)
    try:
        slot.begin()
    except RequestRefused as refused:
        slot.refuse(refused)


class ShareFetchSlot(Slot):
    """One request: from its acknowledgements to its response."""

    __slots__ = (
        "_arrived",
        "_asking",
        "_deadline",
        "_is_done",
        "_is_waiting",
        "_logs",
        "_outcomes",
        "_partitions",
        "_refusal",
        "committed",
        "correlation_id",
        "group",
        "member",
        "request",
        "session",
        "version",
    )

    connection: NodeConnection

    def __init__(self, connection: NodeConnection, request: Any, version: int, correlation_id: int) -> None:
        super().__init__(connection)
        self.request = request
        self.version = version
        self.correlation_id = correlation_id
        self.group: str = request.group_id or ""
        self.member: str = request.member_id or ""
        self.session: ShareSession | None = None
        self.committed = False
        self._outcomes: dict[Place, Outcome] = {}  # of the acknowledgements
        self._partitions: list[Partition] = []  # where it waits for appends
        self._logs: list[ShareLog] = []  # where it waits for records that come back
        self._arrived: dict[tuple[PartitionLog, int], ArchiveRead | LogError] = {}
        self._asking = 0  # reads of the archive that it waits for
        self._deadline = 0
        self._is_waiting = False
        self._is_done = False
        self._refusal: RequestRefused | None = None

    # Its steps

    def begin(self) -> None:
        """Raises RequestRefused if nothing was done."""
        request, node = self.request, self.connection.node
        epoch = request.share_session_epoch
        check_member(node, request.group_id, request.member_id)
        renews = self.version >= _RENEW_FROM and request.is_renew_ack
        if renews and (
            request.max_bytes or request.min_bytes or request.max_records or request.max_wait.total_seconds()
        ):
            raise RequestRefused(
                INVALID_REQUEST, "with isRenewAck, maxBytes, minBytes, maxRecords and maxWaitMs must be 0"
            )
        named = places_of(request.topics)
        given = [(place, partition) for place, partition in named if partition.acknowledgement_batches]
        sessions = node.share_delivery.sessions
        if epoch == FIRST_EPOCH:
            if given:
                raise RequestRefused(INVALID_REQUEST, "the request that opens a session can't acknowledge")
            self.session = sessions.open(
                self.group, self.member, (place for place, _ in named), self.connection
            )
        elif epoch == LAST_EPOCH:
            sessions.find(self.group, self.member)
        else:
            self.session = sessions.advance(self.group, self.member, epoch)
            self.session.change(
                (place for place, _ in named),
                (
                    (topic.topic_id.bytes, index)
                    for topic in request.forgotten_topics_data
                    if topic.topic_id is not None
                    for index in topic.partitions
                ),
            )
        self.committed = node.share_delivery.settings_of(self.group).share_isolation_level == "read_committed"
        self._outcomes = acknowledge(node, self.group, self.member, given, renews=renews)
        if epoch == LAST_EPOCH:
            node.share_delivery.release(sessions.find(self.group, self.member))
        safe = saving(node, self._outcomes) if given or epoch == LAST_EPOCH else None
        after = partial(self._finish, {}) if renews or epoch == LAST_EPOCH else self._look_first
        if safe is None:
            after()
        else:
            safe.add_done_callback(lambda done: self._saved(done, after))

    def _saved(self, safe: asyncio.Future[None], after: Any) -> None:
        failure = safe.exception() if not safe.cancelled() else RequestRefused(KAFKA_STORAGE_ERROR, "")
        if failure is not None:
            self._outcomes = not_saved(self._outcomes, failure)
        if not self._is_done and not self.connection.is_closed:
            after()

    def refuse(self, refused: RequestRefused) -> None:
        """Respond with an error. A client that opens one session too many is told after its waiting time, so
        that it does not come back at once."""
        wait = self.request.max_wait.total_seconds()
        self._refusal = refused
        if refused.code == SHARE_SESSION_LIMIT_REACHED and wait > 0:
            self._deadline = self.connection.node.deadlines.add(self, wait)
        else:
            self._answer(refused.code, str(refused), {})

    def _look_first(self) -> None:
        results = self._results()
        wait = self.request.max_wait.total_seconds()
        if self._asking:
            self._wait(self.connection.node.config.remote_fetch_max_wait_ms / 1000)
        elif wait <= 0 or _has_news(results):
            self._finish(results)
        else:
            self._wait(wait)

    def _wait(self, seconds: float) -> None:
        node, session = self.connection.node, self.session
        assert session is not None
        self._is_waiting = True
        for place in session.partitions:
            topic = node.hosted.get(place[0])
            opened = node.share_delivery.open(self.group, place)
            if topic is not None and opened is not None:
                partition = topic.partitions[place[1]]
                partition.add_waiter(self)
                self._partitions.append(partition)
                opened.waiters[self] = None
                self._logs.append(opened)
        self._deadline = node.deadlines.add(self, seconds)

    # What it waits for

    def appended(self, count: int, shared: Shared) -> None:
        self.look()

    def look(self) -> None:
        if not self._is_waiting:
            return
        if not any(self._may_have_records(opened) for opened in self._logs):
            return
        self._is_waiting = False  # giving out records may wake this again
        results = self._results()
        if _has_news(results):
            self._finish(results)
        else:
            self._is_waiting = True

    def _may_have_records(self, opened: ShareLog) -> bool:
        share = opened.share
        if share is None:
            return False
        offset = share.next_offset()
        if offset is None:
            return False
        log = self.connection.node.log_of(*opened.key[1:])
        return log is None or offset < (log.last_stable_offset if self.committed else log.written_offset)

    def timed_out(self) -> None:
        if self._refusal is not None:
            self._answer(self._refusal.code, str(self._refusal), {})
        elif not self._is_done:
            self._is_waiting = False
            self._finish(self._results())

    def cancel(self) -> None:
        """A partition is gone, or the broker is shutting down."""
        self.timed_out()

    # Records

    def _results(self) -> dict[Place, ShareFetched]:
        """What can be given out now, of each partition, and their errors."""
        assert self.session is not None
        request = self.request
        node = self.connection.node
        results: dict[Place, ShareFetched] = {}
        left_bytes = min(request.max_bytes, node.config.fetch_max_bytes)
        left_records = request.max_records
        for place in self.session.rotated():
            if left_records <= 0 or left_bytes <= 0:
                break
            try:
                fetched = self._read(place, left_bytes, left_records, is_first=not _has_news(results))
            except LogError as error:
                fetched = ShareFetched(place[1], error.code, str(error))
            if fetched is None:
                continue
            results[place] = fetched
            if fetched.records is not None:
                left_bytes -= fetched.records.size
                left_records -= sum(last - first + 1 for first, last, _ in fetched.acquired)
        return results

    def _read(
        self, place: Place, most_bytes: int, most_records: int, *, is_first: bool
    ) -> ShareFetched | None:
        """Give out records of one partition. None if there are none now. Raises LogError."""
        node, request = self.connection.node, self.request
        topic = node.hosted.get(place[0])
        if topic is None:
            return ShareFetched(place[1], UNKNOWN_TOPIC_ID, "there is no topic with this id")
        if not 0 <= place[1] < len(topic.partitions):
            return ShareFetched(
                place[1], UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} has no partition {place[1]}"
            )
        log = topic.partitions[place[1]].log
        if log.offline is not None:
            return ShareFetched(place[1], log.offline.code, str(log.offline))
        opened = node.share_delivery.open(self.group, place)
        if opened is None or (share := opened.share) is None:
            return None
        offset = share.next_offset()
        limit = log.last_stable_offset if self.committed else log.written_offset
        if offset is None or offset >= limit:
            return None
        records: Records
        try:
            part = log.read(offset, most_bytes, upto=limit, at_least_one=is_first)
            records = part
            aborted = log.aborted_in(offset, part) if self.committed and part.size else []
        except OffsetArchived:
            arrived = self._arrived.pop((log, offset), None)
            if arrived is None:
                self._ask_archive(log, offset, most_bytes)
                return None
            if isinstance(arrived, LogError):
                raise arrived from None
            records, aborted = ReadRecords(arrived.data), arrived.aborted
        if not records.size:
            return None
        found = enough_batches(records, offset, share, most_records, aborted)
        if not found.batches:
            return None
        taken = share.acquire(
            self.member,
            offset,
            found.batches,
            node.clock.monotonic(),
            max_records=most_records,
            batch_size=request.batch_size,
            by_record=self.version >= _RENEW_FROM and request.share_acquire_mode == _BY_RECORD,
        )
        node.share_delivery.given_out(opened)
        if not taken:
            return None
        sent = around(records, found, taken)
        topic.bytes_out += sent.size
        return ShareFetched(place[1], records=sent, acquired=taken)

    def _ask_archive(self, log: PartitionLog, offset: int, most_bytes: int) -> None:
        archiving = self.connection.node.archiving
        if archiving is None:
            raise LogError(KAFKA_STORAGE_ERROR, "the broker was started without its archive")
        self._asking += 1
        archiving.read(
            log,
            offset,
            most_bytes,
            committed=self.committed,
            arrived=partial(self._take_archived, (log, offset)),
        )

    def _take_archived(self, key: tuple[PartitionLog, int], outcome: ArchiveRead | LogError) -> None:
        self._asking -= 1
        if not self._is_done:
            self._arrived[key] = outcome
            self.look()

    # The response

    def _finish(self, results: dict[Place, ShareFetched]) -> None:
        topics: dict[bytes, dict[int, ShareFetched]] = {}
        session = self.session
        for place in session.partitions if session is not None else ():
            fetched = results.get(place)
            if fetched is None and session is not None and session.partitions[place]:
                fetched = ShareFetched(place[1])
            if fetched is not None and session is not None:
                session.partitions[place] = fetched.error != NONE
                topics.setdefault(place[0], {})[place[1]] = fetched
        for (topic_id, index), (code, why) in self._outcomes.items():
            of_topic = topics.setdefault(topic_id, {})
            of_topic[index] = of_topic.get(index, ShareFetched(index))._replace(
                acknowledge_error=code, acknowledge_message=why
            )
        self._answer(NONE, None, {topic_id: found.values() for topic_id, found in topics.items()})

    def _answer(self, error: int, message: str | None, topics: dict[bytes, Iterable[ShareFetched]]) -> None:
        self.abandon()
        lock_ms = 0
        if not error:
            lock_ms = self.connection.node.share_delivery.settings_of(
                self.group
            ).share_record_lock_duration_ms
        parts, size = frame_answer(
            self.correlation_id, share_fetch_answer(error, message, lock_ms, topics), tags=True
        )
        self.resolve(parts, size)
        meter = self.connection.fetch_meter
        if meter is not None:
            now = self.connection.node.clock.monotonic()
            meter.count(size, now)
            if (wait := meter.wait(now)) > 0:
                self.connection.mute(wait)

    def abandon(self) -> None:
        self._is_done = True
        self._is_waiting = False
        for partition in self._partitions:
            partition.waiters.pop(self, None)
        for opened in self._logs:
            opened.waiters.pop(self, None)
        self._partitions.clear()
        self._logs.clear()
        self.connection.node.deadlines.remove(self, self._deadline)


def _has_news(results: dict[Place, ShareFetched]) -> bool:
    return bool(results)
