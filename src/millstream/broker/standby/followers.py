"""The standbys that follow this broker: what each one is told, and how far it has come.

Theory. What a standby is told is a **replication point**: how far every log was written and which commits the
catalogue had made, all taken at one moment on the loop. A broker that is killed at that moment leaves
exactly this behind. So a standby that has all of a point can continue from it as after a crash: there is no
marker without its decision, and no decision without its records. A standby fetches the records up to a
point, then applies the catalogue's changes, and reports this with its next request.

Points are differences. The first one of a session describes everything, each later one what has changed
since. Appends are noticed through the partitions, as by any long poll, so a broker without standbys pays
nothing for it. Changes without an append (retention, settings) are looked for once a second.

While a standby copies and syncs one point, this broker takes more records. A second connection tells the
standby about these at once, as the **latest report**. So the standby knows what it lacks if this broker dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import tempfile
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.catalogue.lineage import Promotion, descends
from millstream.broker.standby.role import Broker, Role
from millstream.broker.topics.local_topics import LocalTopics
from millstream.broker.topics.partition import Partition, Shared
from millstream.core.clock import Clock
from millstream.core.errors import BrokerUnavailable, RequestRefused
from millstream.wire.standby import SPOKEN

LONGEST_WAIT = 5.0  # seconds that a standby waits for a response
LOOK_EVERY = 1.0
FORGET_AFTER = 10.0  # seconds without a request; a standby asks for the latest report every second
CHUNK = 1 << 20  # bytes of the catalogue in one response
FINISH_PATIENCE = 5.0  # seconds that a stopping broker waits for standbys to take its last records
_NOTHING_TOLD = -1


class _AppendWatch:
    """Notices the appends to one partition. A ``Waiter``."""

    __slots__ = ("appended_bytes", "follower", "partition", "told_base", "told_start")

    committed = False

    def __init__(self, follower: Follower, partition: Partition) -> None:
        self.follower = follower
        self.partition = partition
        self.appended_bytes = 0  # since the standby was last told
        self.told_start = self.told_base = _NOTHING_TOLD
        partition.add_waiter(self)

    def appended(self, count: int, shared: Shared) -> None:
        self.appended_bytes += count
        self.follower.heard_of(self)

    def cancel(self) -> None:
        """Do nothing when the topic is deleted: the next look at the topics finds out."""


class LeaderState(NamedTuple):
    """What standbys are told about."""

    catalogue: Catalogue
    topics: LocalTopics
    clock: Clock
    data_path: str


class Follower:
    """One standby, as long as it keeps asking."""

    def __init__(self, leader: LeaderState, name: str, broker: Broker) -> None:
        self.session = uuid.uuid4().hex
        self.name = name
        self.broker = broker  # id, host and port, as clients see them
        self.point = 0  # the last one it was told
        self.complete = 0  # the last one that it has completely
        self.complete_at = self.asked_at = leader.clock.monotonic()
        self.catalogue: tuple[int, int] | None = None  # a copy for the standby to read: descriptor, size
        self._leader = leader
        self.number = _NOTHING_TOLD  # the catalogue's commit that it was told of
        self._watches: dict[Partition, _AppendWatch] = {}
        self._heard: dict[_AppendWatch, None] = {}
        self._topics_told = -1
        self._looked_at = 0.0
        self._news = asyncio.Event()  # there is something for the next point
        self._untold = asyncio.Event()  # there is something for the latest report
        self._reached: dict[Partition, int] = {}  # the offset that it has reached in each partition
        self.made = _NOTHING_TOLD  # the catalogue's commit that it has applied
        self.last_point = 0  # the final point: it was told that nothing follows
        self._told: deque[tuple[int, float, int, dict[Partition, int]]] = deque()

    def heard_of(self, watch: _AppendWatch) -> None:
        self._heard[watch] = None
        self.wake()

    def wake(self) -> None:
        self._news.set()
        self._untold.set()

    @property
    def has_news(self) -> bool:
        """True if something happened that is not in any point yet."""
        feed = self._leader.catalogue.feed
        return (
            bool(self._heard)
            or self._topics_told != self._leader.topics.version
            or (feed is not None and feed.number != self.number)
        )

    async def latest_report(self, seconds: float) -> dict[str, Any]:
        """What is not in any point yet. Returns as soon as there is something, or when the time is up."""
        if not self.has_news:
            self._untold.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(seconds, LONGEST_WAIT)):
                    await self._untold.wait()
        ends = [_end(watch.partition, watch.appended_bytes) for watch in self._heard]
        if self._topics_told != self._leader.topics.version:
            ends += [
                _end(partition, partition.log.size_bytes)
                for topic in self._leader.topics
                if not topic.in_memory
                for partition in topic.partitions
                if partition not in self._watches
                and partition.log.written_offset
                and partition.log.offline is None
            ]
        feed = self._leader.catalogue.feed
        return {"cut": self.point, "ends": ends, "number": self.number if feed is None else feed.number}

    async def wait(self, seconds: float) -> None:
        """Wait until there is something to tell, or the time is up."""
        if self.point == 0 or self.has_news:
            return
        self._news.clear()
        try:
            async with asyncio.timeout(min(seconds, LONGEST_WAIT)):
                await self._news.wait()
        except TimeoutError:
            self._looked_at = 0.0

    def reached(self, point: int, now: float) -> None:
        """Record that it has all of a point, synced."""
        self.asked_at = now
        while self._told and self._told[0][0] <= point:
            self.complete, self.complete_at, self.made, ends = self._told.popleft()
            self._reached.update(ends)

    def reached_in(self, partition: Partition) -> int:
        """The offset up to which it has a partition, synced."""
        return self._reached.get(partition, 0)

    def is_in_sync(self, now: float, most: float) -> bool:
        """True if its last complete point was taken no more than ``most`` seconds ago."""
        return self.complete > 0 and now - self.complete_at <= most

    def status(self, now: float) -> dict[str, Any]:
        """Its state, for people and metrics."""
        behind = sum(p.log.written_offset for p in self._watches) - sum(self._reached.values())
        return {
            "name": self.name,
            "behind_records": behind,
            "behind_seconds": round(now - self.complete_at, 3) if behind else 0.0,
            "silent_seconds": round(now - self.asked_at, 3),
        }

    async def copy_catalogue(self) -> None:
        """Make a copy of the catalogue for it. The next point announces it."""
        self.close_catalogue()
        catalogue = self._leader.catalogue
        number, reader = await catalogue.pinned()
        self.catalogue = await asyncio.to_thread(_copy, reader, self._leader.data_path)
        self.number = number

    def close_catalogue(self) -> None:
        if self.catalogue is not None:
            os.close(self.catalogue[0])
            self.catalogue = None

    def next_point(self, now: float) -> dict[str, Any]:
        """What has changed since the last point, or everything in the first."""
        leader = self._leader
        first = self.point == 0
        feed = leader.catalogue.feed
        assert feed is not None
        statements = feed.since(self.number)
        if statements is None:
            raise RequestRefused(0, "the catalogue's changes since then are no longer kept")
        self.number = feed.number
        fields: dict[str, Any] = {"number": self.number, "statements": statements}
        if self._topics_told != leader.topics.version:
            self._topics_told = leader.topics.version
            fields["topics"] = self._topics()
        if now - self._looked_at >= LOOK_EVERY:
            self._looked_at = now
            for watch in self._watches.values():
                log = watch.partition.log
                if (
                    watch.told_start != log.log_start_offset
                    or log.segments.last.base_offset != watch.told_base
                ):
                    self._heard[watch] = None
        heard, self._heard = self._heard, {}
        self.point += 1
        rows = [self._row(watch) for watch in heard]
        ends = {watch.partition: watch.partition.log.written_offset for watch in heard}
        self._told.append((self.point, now, self.number, ends))
        fields |= {"cut": self.point, "first": first, "partitions": rows, "now_ms": leader.clock.now_ms()}
        return fields

    def _topics(self) -> list[list[Any]]:
        """Every topic that is copied. From now on all of their partitions are watched."""
        found = []
        watches: dict[Partition, _AppendWatch] = {}
        for topic in self._leader.topics:
            known = self._leader.catalogue.topics.get(topic.name)
            if known is None or known.id != topic.id or topic.in_memory:
                continue
            found.append([topic.name, topic.id.hex, len(topic.partitions), dict(known.overrides)])
            for partition in topic.partitions:
                if partition.log.offline is not None:
                    continue  # what a standby has of it is all there is
                watch = self._watches.pop(partition, None)
                if watch is None:
                    watch = _AppendWatch(self, partition)
                    self._heard[watch] = None
                watches[partition] = watch
        for watch in self._watches.values():
            self._heard.pop(watch, None)
            self._reached.pop(watch.partition, None)
        self._watches = watches
        return found

    def _row(self, watch: _AppendWatch) -> list[Any]:
        partition = watch.partition
        log = partition.log
        bases = [s.base_offset for s in log.segments if s.base_offset > watch.told_base]
        new = watch.told_start == _NOTHING_TOLD
        if new and log.log_start_offset < bases[0]:
            bases.insert(0, log.log_start_offset)  # archived records are one segment at the standby
        size = log.size_bytes if new else watch.appended_bytes
        watch.appended_bytes = 0
        watch.told_start = log.log_start_offset
        watch.told_base = log.segments.last.base_offset
        return [
            partition.topic.id.hex,
            partition.index,
            log.log_start_offset,
            log.written_offset,
            size,
            bases,
            log.epochs.entries if new else None,
        ]

    def close(self) -> None:
        self.close_catalogue()
        for partition, watch in self._watches.items():
            partition.waiters.pop(watch, None)
        self._watches.clear()
        self._told.clear()


def _end(partition: Partition, size: int) -> list[Any]:
    topic = partition.topic
    return [topic.id.hex, topic.name, partition.index, partition.log.written_offset, size]


def _copy(reader: sqlite3.Connection, directory: str) -> tuple[int, int]:
    """Copy the catalogue into an unlinked file. Returns its descriptor and size."""
    file, path = tempfile.mkstemp(prefix=".catalogue-", dir=directory)
    try:
        target = sqlite3.connect(path)
        reader.backup(target)
        target.close()
    finally:
        os.unlink(path)
        reader.close()
    return file, os.fstat(file).st_size


class Followers:
    """All standbys of one broker. Lives on the server's loop."""

    def __init__(self, leader: LeaderState, role: Role, moved: Callable[[], None]) -> None:
        """``moved`` is called when a standby may have come further, or is lost."""
        self._leader = leader
        self._role = role
        self._moved = moved
        self._by_session: dict[str, Follower] = {}
        self._is_ending = False  # the broker takes nothing more, and tells the standbys so
        self._is_closed = False

    def __iter__(self) -> Iterator[Follower]:
        return iter(self._by_session.values())

    def __len__(self) -> int:
        return len(self._by_session)

    async def follow(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one request of a standby. Raises RequestRefused, with a reason for the standby's log."""
        clock, role = self._leader.clock, self._role
        if self._is_closed:
            raise BrokerUnavailable("it is being stopped")
        self._check(asked)
        follower = self._by_session.get(asked.get("session") or "")
        if follower is None or follower.point != asked.get("cut"):
            follower = await self._attach(asked)
        now = clock.monotonic()
        follower.reached(asked.get("complete", 0), now)
        self._moved()
        at_once = self._is_ending and not follower.last_point
        await follower.wait(0.0 if at_once else asked.get("wait_ms", 0) / 1000)
        if self._is_closed:
            raise BrokerUnavailable("it is being stopped")
        try:
            point = follower.next_point(clock.monotonic())
        except RequestRefused:
            follower = await self._attach(asked)
            point = follower.next_point(clock.monotonic())
        self._forget_commits()
        is_last = bool(role.fenced_by) or (self._is_ending and not follower.has_news)
        if is_last and not follower.last_point:
            follower.last_point = follower.point
        return {
            **self.introduction(),
            **point,
            "session": follower.session,
            "your_id": follower.broker[0],
            "last": is_last,
            "catalogue_size": follower.catalogue[1] if follower.catalogue is not None else 0,
        }

    def introduction(self) -> dict[str, Any]:
        """Describe this broker to a standby."""
        catalogue, role = self._leader.catalogue, self._role
        return {
            "spoken": SPOKEN,
            "cluster_id": catalogue.cluster_id,
            "schema": catalogue.schema,
            "lineage": catalogue.lineage,
            "leader": [role.own_id, role.own_host, role.own_port],
            "brokers": self.brokers,
        }

    @property
    def brokers(self) -> list[Broker]:
        return [follower.broker for follower in self._by_session.values()]

    def _check(self, asked: Mapping[str, Any]) -> None:
        catalogue = self._leader.catalogue
        if asked.get("spoken") != SPOKEN or asked.get("schema") != catalogue.schema:
            raise RequestRefused(
                0, "it is another version of millstream; a standby needs the same as its leader"
            )
        if leader := self._role.leader_address:
            raise RequestRefused(0, f"it is a standby itself, of {leader}; follow that one")
        if not self._leader.data_path:
            raise RequestRefused(0, "it keeps everything in memory; start it with --data")
        if asked.get("cluster_id") is None:
            return
        theirs = [Promotion(*each) for each in asked["lineage"]]
        if asked["cluster_id"] != catalogue.cluster_id:
            raise RequestRefused(
                0,
                f"it is of cluster {catalogue.cluster_id}, the standby's directory of "
                f"{asked['cluster_id']}; give an empty directory",
            )
        if not descends(catalogue.lineage, theirs):
            raise RequestRefused(
                0,
                "the standby's directory was promoted in a way that the leader knows nothing of: both may "
                "have taken records that the other has not. Let the leader follow this one instead; or, if "
                "what only this directory has is not needed, give an empty directory",
            )

    async def _attach(self, asked: Mapping[str, Any]) -> Follower:
        name = str(asked.get("name", "?"))
        for session, known in list(self._by_session.items()):
            if known.name == name:
                known.close()
                del self._by_session[session]
        taken = {self._role.own_id, *(known.broker[0] for known in self._by_session.values())}
        node_id: int = asked["node_id"]
        while node_id in taken:
            node_id += 1
        follower = Follower(self._leader, name, (node_id, asked["host"], asked["port"]))
        self._by_session[follower.session] = follower
        self._leader.catalogue.follow(self.wake_all)
        await follower.copy_catalogue()
        return follower

    def read_catalogue(self, session: str, position: int) -> bytes:
        """Read a piece of the copy that was made for a standby. The last piece releases the copy."""
        follower = self._by_session.get(session)
        if follower is None or follower.catalogue is None:
            raise RequestRefused(0, "no copy of the catalogue waits for it; it has to ask again")
        file, size = follower.catalogue
        data = os.pread(file, CHUNK, position)
        if position + len(data) >= size:
            follower.close_catalogue()
        return data

    async def latest_report(self, session: str, seconds: float) -> dict[str, Any]:
        """The latest report, for a standby that is busy with the last point or waits for the next."""
        follower = self._by_session.get(session)
        if follower is None:
            raise RequestRefused(0, "the leader no longer knows this session")
        follower.asked_at = self._leader.clock.monotonic()
        return await follower.latest_report(seconds)

    def wake_all(self) -> None:
        for follower in self._by_session.values():
            follower.wake()

    def _forget_commits(self) -> None:
        feed = self._leader.catalogue.feed
        if feed is not None:
            feed.forget(min(follower.number for follower in self._by_session.values()))

    def tick(self, now: float) -> None:
        """Drop standbys that have not asked for long. With the last one, drop what is recorded for them."""
        for session, follower in list(self._by_session.items()):
            if now - follower.asked_at > FORGET_AFTER:
                follower.close()
                del self._by_session[session]
        self._moved()
        if not self._by_session:
            self._leader.catalogue.unfollow()

    async def finish(self) -> None:
        """Hand over to the standbys before the broker stops.

        No more records are taken by now. Waits for the standbys that keep up to take the rest, and tells
        them that nothing follows.
        """
        self._is_ending = True
        self.wake_all()
        deadline = self._leader.clock.monotonic() + FINISH_PATIENCE
        while any(not 0 < follower.last_point <= follower.complete for follower in self):
            if self._leader.clock.monotonic() > deadline:
                return
            await asyncio.sleep(0.005)

    def close(self) -> None:
        self._is_closed = True
        self.wake_all()
        for follower in self._by_session.values():
            follower.close()
        self._by_session.clear()
