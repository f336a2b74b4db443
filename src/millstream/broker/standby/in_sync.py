"""``min.insync.replicas``: hold acknowledgements until standbys have the records too.

A topic with ``min.insync.replicas=2`` wants its records on a second machine before ``acks=all`` is
acknowledged. The rules are Kafka's:

1. This broker counts as one replica. A standby is *in sync* while its last complete point is no older than
   ``replica.lag.time.max.ms`` and it keeps asking.
2. If too few are in sync, ``acks=all`` is refused before anything is appended (NOT_ENOUGH_REPLICAS).
   Other ``acks`` are not affected.
3. Otherwise the records are appended, and the response waits until enough standbys have them in a whole
   point, which is synced there. All waiting requests share the points: one round trip answers everything that
   came before it.
4. If too few are left in sync while a response waits, the error is NOT_ENOUGH_REPLICAS_AFTER_APPEND. If
   the request's own time is up first, it is REQUEST_TIMED_OUT. In both cases the records stay.

The same holds for what the catalogue keeps: offsets committed in such a topic, acknowledgements of share
groups, and the decision to commit a transaction that wrote to one. There the error is
COORDINATOR_NOT_AVAILABLE, which clients retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.net.deadlines import Deadlines
from millstream.broker.standby.followers import Follower
from millstream.broker.topics.partition import Partition, PendingAppend
from millstream.core.clock import Clock
from millstream.core.config import BrokerConfig
from millstream.core.errors import LogError, RequestRefused
from millstream.core.kafka_errors import (
    COORDINATOR_NOT_AVAILABLE,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
)

COMMIT_PATIENCE = 5.0  # seconds; Kafka's offsets.commit.timeout.ms


class _Wait:
    """The records of one request in one partition. ``Deadlines`` times it out."""

    __slots__ = ("_in_sync", "offset", "partition", "place", "request", "tick")

    def __init__(
        self, in_sync: InSync, partition: Partition, offset: int, request: PendingAppend, place: int
    ) -> None:
        self._in_sync = in_sync
        self.partition = partition
        self.offset = offset
        self.request = request
        self.place = place
        self.tick = 0

    def timed_out(self) -> None:
        self._in_sync.timed_out(self)


class InSync:
    """See the module's description. Lives on the server's loop."""

    def __init__(
        self,
        followers: Iterable[Follower],
        catalogue: Catalogue,
        deadlines: Deadlines,
        clock: Clock,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._followers = followers
        self._deadlines = deadlines
        self._clock = clock
        self._config = config
        self._catalogue = catalogue
        self._waiting: dict[Partition, list[_Wait]] = {}
        self._commits: list[tuple[int, int, asyncio.Future[None]]] = []  # commit, copies needed

    def _standbys(self) -> list[Follower]:
        now, most = self._clock.monotonic(), self._config().replica_lag_time_max_ms / 1000
        return [follower for follower in self._followers if follower.is_in_sync(now, most)]

    @property
    def count(self) -> int:
        """The number of replicas in sync: this broker and the standbys that keep up."""
        return 1 + len(self._standbys())

    def too_few(self, partition: Partition) -> LogError | None:
        """The reason why records for ``acks=all`` can't be taken. None if they can."""
        wanted, count = partition.topic.copies, self.count
        if count >= wanted:
            return None
        return LogError(
            NOT_ENOUGH_REPLICAS,
            f"topic {partition.topic.name} has min.insync.replicas={wanted}, and {count} in sync: start a "
            "standby, or set it to a lower number",
        )

    # Records

    def wait(self, partition: Partition, offset: int, request: PendingAppend, place: int) -> None:
        """Settle the request once enough standbys have the log up to ``offset``. Here it is synced."""
        wait = _Wait(self, partition, offset, request, place)
        wait.tick = self._deadlines.add(wait, request.timeout_ms / 1000)
        self._waiting.setdefault(partition, []).append(wait)
        if self._copied(partition, self._standbys()) >= offset:
            self.look()

    def timed_out(self, wait: _Wait) -> None:
        waits = self._waiting[wait.partition]
        waits.remove(wait)
        if not waits:
            del self._waiting[wait.partition]
        message = f"{wait.partition}: no standby got the records in time; they stay in the log"
        wait.request.settled(wait.place, LogError(REQUEST_TIMED_OUT, message))

    def forget(self, partition: Partition) -> None:
        """Settle the waiting requests of a partition that was deleted."""
        gone = LogError(UNKNOWN_TOPIC_OR_PARTITION, f"{partition} was deleted")
        for wait in self._waiting.pop(partition, ()):
            self._settle(wait, gone)

    @staticmethod
    def _copied(partition: Partition, standbys: list[Follower]) -> int:
        """The offset up to which enough standbys have the partition. -1 if too few are in sync."""
        needed = partition.topic.copies - 1
        ends = sorted((standby.reached_in(partition) for standby in standbys), reverse=True)
        return ends[needed - 1] if len(ends) >= needed else -1

    def look(self) -> None:
        """Settle every request that can be. Called when a standby has more than before, or is lost."""
        if not self._waiting and not self._commits:
            return
        standbys = self._standbys()
        answered: list[tuple[_Wait, LogError | None]] = []
        for partition, waits in list(self._waiting.items()):
            if partition.topic.copies == 1:
                copied = partition.log.written_offset  # the setting was changed
            else:
                copied = self._copied(partition, standbys)
            failure = None
            if copied < 0:
                failure = LogError(
                    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                    f"{partition}: too few are in sync now; the records stay in the log",
                )
            left = []
            for wait in waits:
                if failure is None and wait.offset > copied:
                    left.append(wait)
                else:
                    answered.append((wait, failure))
            if left:
                self._waiting[partition] = left
            else:
                del self._waiting[partition]
        # Settling may bring the client's next request, which may call this method again. What waits is up
        # to date here.
        for wait, failure in answered:
            self._settle(wait, failure)
        self._look_at_commits(standbys)

    def _settle(self, wait: _Wait, failure: LogError | None) -> None:
        self._deadlines.remove(wait, wait.tick)
        wait.request.settled(wait.place, failure)

    # The catalogue

    def check_catalogue(self, copies: int) -> None:
        """Raise RequestRefused if a change that needs this many copies can't be taken."""
        if copies > 1 and self.count < copies:
            raise RequestRefused(
                COORDINATOR_NOT_AVAILABLE,
                f"min.insync.replicas={copies}, and {self.count} in sync: start a standby, or set it to a "
                "lower number",
            )

    async def have_catalogue(self, copies: int) -> None:
        """Wait until this many replicas have every change made so far. Raises RequestRefused."""
        if copies <= 1:
            return
        self.check_catalogue(copies)
        feed = self._catalogue.feed
        assert feed is not None, "somebody follows"
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._commits.append((feed.number, copies, future))
        self.look()
        try:
            async with asyncio.timeout(COMMIT_PATIENCE):
                await future
        except TimeoutError:
            raise RequestRefused(
                COORDINATOR_NOT_AVAILABLE, "it is decided here, but no standby got it in time"
            ) from None

    def _look_at_commits(self, standbys: list[Follower]) -> None:
        waiting, self._commits = self._commits, []
        for number, copies, future in waiting:
            if future.done():
                continue
            if sum(standby.made >= number for standby in standbys) >= copies - 1:
                future.set_result(None)
            else:
                self._commits.append((number, copies, future))
