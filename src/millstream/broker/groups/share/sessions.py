"""Share sessions: what each consumer of a share group reads, and whose turn a request is.

Rules:

1. A session belongs to one member of one group, and ends with the connection that opened it.
2. Epoch 0 opens a session with the request's partitions, in place of the member's old one. What the member
   holds stays its own.
3. Epoch -1 ends it. What the member holds is given back.
4. Any other epoch must be the one that the session expects next. ShareFetch and ShareAcknowledge share it.
5. A partition that a request names joins the session, also if it is named only to acknowledge.
6. A session that would be one too many is refused. None is ended to make room: its records are in use.

No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import (
    INVALID_REQUEST,
    INVALID_SHARE_SESSION_EPOCH,
    SHARE_SESSION_LIMIT_REACHED,
    SHARE_SESSION_NOT_FOUND,
)

FIRST_EPOCH = 0
LAST_EPOCH = -1
MOST_PARTITIONS = 100_000
_MAX_EPOCH = 2**31 - 1

Place = tuple[bytes, int]  # topic id, partition


class ShareSession:
    """One member's partitions, in the order in which they were added. The value is True for those that the
    next response must contain."""

    __slots__ = ("connection", "epoch", "group", "member", "partitions")

    def __init__(self, group: str, member: str, partitions: Iterable[Place], connection: object) -> None:
        self.group = group
        self.member = member
        self.connection = connection
        self.epoch = 1  # expected in the next request
        self.partitions = dict.fromkeys(partitions, True)

    def change(self, added: Iterable[Place], forgotten: Iterable[Place]) -> None:
        """Raises RequestRefused if the session grows too large. Its client can only open a new one."""
        for place in added:
            self.partitions.setdefault(place, True)
        for place in forgotten:
            self.partitions.pop(place, None)
        if len(self.partitions) > MOST_PARTITIONS:
            raise RequestRefused(INVALID_REQUEST, f"a session has at most {MOST_PARTITIONS} partitions")

    def rotated(self) -> list[Place]:
        """The partitions, beginning with another one at each request, so that none starves."""
        places = list(self.partitions)
        start = self.epoch % len(places) if places else 0
        return places[start:] + places[:start]


class ShareSessions:
    """All sessions of a broker."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self._sessions: dict[tuple[str, str], ShareSession] = {}  # by group and member
        self._of_connection: dict[object, set[tuple[str, str]]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group: str, member: str, partitions: Iterable[Place], connection: object) -> ShareSession:
        """Open a session in place of the member's old one. Raises RequestRefused if there are too many."""
        self.end(group, member)
        if len(self._sessions) >= self._limit():
            raise RequestRefused(
                SHARE_SESSION_LIMIT_REACHED,
                "as many consumers of share groups as group.share.max.share.sessions allows are reading",
            )
        session = self._sessions[group, member] = ShareSession(group, member, partitions, connection)
        self._of_connection.setdefault(connection, set()).add((group, member))
        return session

    def find(self, group: str, member: str) -> ShareSession:
        """Raises RequestRefused if there is none."""
        session = self._sessions.get((group, member))
        if session is None:
            raise RequestRefused(
                SHARE_SESSION_NOT_FOUND, "no session: it ended with its connection, or was never opened"
            )
        return session

    def advance(self, group: str, member: str, epoch: int) -> ShareSession:
        """The session that a request continues. Raises RequestRefused."""
        session = self.find(group, member)
        if session.epoch != epoch:
            raise RequestRefused(
                INVALID_SHARE_SESSION_EPOCH, f"epoch {epoch}, where the session expects {session.epoch}"
            )
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        return session

    def end(self, group: str, member: str) -> ShareSession | None:
        """End a member's session, and return it."""
        session = self._sessions.pop((group, member), None)
        if session is not None:
            keys = self._of_connection[session.connection]
            keys.discard((group, member))
            if not keys:
                del self._of_connection[session.connection]
        return session

    def of_connection(self, connection: object) -> list[ShareSession]:
        """The sessions that end with a connection."""
        return [self._sessions[key] for key in self._of_connection.get(connection, ())]
