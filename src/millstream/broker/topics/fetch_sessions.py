"""Incremental fetch sessions (KIP-227): a reader names its partitions once, and later only the changes.

Rules:

1. Epoch -1 means no session: the request is complete in itself, and ends the session it names, if any.
2. Epoch 0 asks for a new session with the request's partitions, and ends the session it names, if any.
3. Any other epoch continues the session it names, and must be the epoch that the session expects next. The
   request's partitions are added or changed, and its forgotten ones are removed. A session left empty ends.
4. A response in a session leaves out a partition unless it has records, an error, or another high watermark
   or log start offset than the reader was last told. The first response leaves out none.
5. A session names topics either by name or by id, never both.
6. If there is no room, a reader simply gets no session. Room is made by ending a session that was not used
   for two minutes, or one with fewer partitions than the new one.

No I/O; the clock is passed in.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from millstream.core.clock import Clock
from millstream.core.kafka_errors import (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
)
from millstream.core.loop_slices import sliced
from millstream.wire.frame import TopicKey
from millstream.wire.hot.fetch import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchPartition,
    FetchRequest,
    FetchResult,
)

EVICTABLE_AFTER = 120.0  # seconds without use
_MAX_EPOCH = 2**31 - 1


class SessionError(Exception):
    """The request can't be served in the session it names. ``code`` is Kafka's."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class SessionPartition:
    """A partition of a session: what the reader asked for, and what it was last told."""

    __slots__ = ("high_watermark", "key", "start_offset", "wanted")

    def __init__(self, key: TopicKey, wanted: FetchPartition) -> None:
        self.key = key
        self.wanted = wanted
        self.high_watermark = -1
        self.start_offset = -1

    def is_news(self, fetched: FetchResult) -> bool:
        """True if the response must contain the partition. Remembers what the reader is told."""
        news = bool(fetched.error) or (fetched.records is not None and fetched.records.size > 0)
        if fetched.high_watermark != self.high_watermark:
            news = True
            self.high_watermark = fetched.high_watermark
        if fetched.start_offset != self.start_offset:
            news = True
            self.start_offset = fetched.start_offset
        if fetched.error:
            self.high_watermark = -1  # so that the partition is reported again once the error is over
        return news


class FetchSession:
    """One reader's partitions, in the order in which the next response reads them."""

    def __init__(self, session_id: int, by_id: bool, now: float) -> None:
        self.id = session_id
        self.epoch = 1  # expected in the next request
        self.by_id = by_id
        self.last_used = now
        self.partitions: dict[tuple[TopicKey, int], SessionPartition] = {}

    def follow(self, topics: Iterable[tuple[TopicKey, Sequence[FetchPartition]]]) -> None:
        partitions = self.partitions
        for key, of_topic in topics:
            for wanted in sliced(of_topic):
                followed = partitions.get((key, wanted[0]))
                if followed is None:
                    partitions[key, wanted[0]] = SessionPartition(key, wanted)
                else:
                    followed.wanted = wanted

    def forget(self, topics: Iterable[tuple[TopicKey, Sequence[int]]]) -> None:
        for key, of_topic in topics:
            for partition in sliced(of_topic):
                self.partitions.pop((key, partition), None)

    def move_to_end(self, followed: SessionPartition) -> None:
        """Make a partition that was just served the last one in the next response, so that none starves."""
        at = (followed.key, followed.wanted[0])
        if at in self.partitions:
            self.partitions[at] = self.partitions.pop(at)


class FetchSessions:
    """All sessions of a broker, at most ``slots`` of them."""

    def __init__(self, slots: int, clock: Clock) -> None:
        self._slots = slots
        self._clock = clock
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, by_id: bool) -> FetchSession | None:
        """The session that a request opens or continues, with the request applied; None for no session.
        Raises SessionError."""
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session_id != NO_SESSION:
                self._sessions.pop(session_id, None)
            return self._open(request, by_id) if epoch == INITIAL_EPOCH else None
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionError(FETCH_SESSION_ID_NOT_FOUND)
        if session.by_id != by_id:
            raise SessionError(FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != epoch:
            raise SessionError(INVALID_FETCH_SESSION_EPOCH)
        session.follow(request.topics)
        session.forget(request.forgotten)
        if not session.partitions:
            del self._sessions[session_id]
            return None
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        session.last_used = self._clock.monotonic()
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def _open(self, request: FetchRequest, by_id: bool) -> FetchSession | None:
        size = sum(len(of_topic) for _, of_topic in request.topics)
        if size == 0 or not self._make_room(size):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = random.randint(1, 2**31 - 1)
        session = FetchSession(session_id, by_id, self._clock.monotonic())
        session.follow(request.topics)
        self._sessions[session_id] = session
        return session

    def _make_room(self, size: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if self._clock.monotonic() - oldest.last_used > EVICTABLE_AFTER:
            victim = oldest
        else:
            victim = min(self._sessions.values(), key=lambda session: len(session.partitions))
            if len(victim.partitions) >= size:
                return False
        del self._sessions[victim.id]
        self.evicted += 1
        return True
