"""A standby: keeps a copy of everything that another broker has, until it is promoted.

It repeats these steps:

1. It asks the leader for the next **replication point** (``broker.standby.followers``) and waits until there
   is one.
2. It creates new topics, removes records that its logs have and the leader's lack
   (``broker.catalogue.lineage``), and copies records up to the point over a few connections.
3. It syncs the logs. Then it applies the catalogue's changes and notes how far the logs are, in one commit.
   Now it has a complete point, a state in which the leader could have been killed.

On a second connection it hears the leader's latest report: what the leader has taken beyond the point. What
the copy lacks, from the point and the latest report, is one account (``broker.standby.lag_account``) for
status, metrics and promotion.

When anything fails, on either side, the standby starts over: it connects, gets a complete description, and
copies what is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from millstream.broker.catalogue import copy_state
from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.catalogue.database import set_fact
from millstream.broker.catalogue.lineage import Promotion, common_end, first_foreign_epoch
from millstream.broker.standby.catalogue_copy import is_blank, keep_catalogue, replace_catalogue
from millstream.broker.standby.lag_account import LagAccount, LeaderReport
from millstream.broker.standby.leader_link import LeaderLink
from millstream.broker.standby.promotion import PromotionVerdict, StandbyState, judge
from millstream.broker.standby.role import Broker, Role
from millstream.broker.topics.admin import TopicAdmin
from millstream.broker.topics.local_topics import LocalTopics
from millstream.broker.topics.logs import TopicLogs
from millstream.broker.topics.pacing import yield_if_due
from millstream.broker.topics.partition import Partition
from millstream.core.clock import Clock
from millstream.core.errors import (
    BrokerUnavailable,
    LogError,
    MillstreamError,
    ProtocolError,
    RequestRefused,
)
from millstream.core.kafka_errors import CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE
from millstream.log.copying import append_copied, jump, start_segment
from millstream.log.directory import LogDirectory
from millstream.wire.api_keys import AFTER_MISSING, COPY_CATALOGUE, FENCE, FETCH, FOLLOW, LATEST_REPORT
from millstream.wire.hot.replica import VERSION as FETCH_VERSION
from millstream.wire.hot.replica import fetch_request, read_copied
from millstream.wire.standby import SPOKEN

_log = logging.getLogger(__name__)

WAIT_MS = 2000  # how long the leader may hold a request for the next point
REPORT_WAIT_MS = 1000  # how long it may hold a request for its latest report
REPORT_EVERY = 0.01  # seconds between requests for the latest report, from a leader that always has news
ASK_PATIENCE = 3.0  # seconds in which a leader has to accept a connection
CONNECTIONS = 4  # connections that copy records
MOST_BYTES = 2 * 1024 * 1024  # of one response
AT_ONCE = 64  # partitions in one request
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between attempts to connect
STOP_PATIENCE = 5.0  # seconds to finish the current point when the standby is stopped
MOST_SHOWN = 100  # partitions in a status
SWITCH_PATIENCE = 60.0  # seconds to copy a fenced leader's last records


class _StartOver(Exception):
    """What the leader said no longer holds (a topic was deleted, records expired): start over."""


class _PendingPoint:
    """A point that is being copied."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.point: int = fields["cut"]
        self.now_ms: int = fields["now_ms"]
        self.number: int = fields["number"]
        self.statements: list[Any] = fields["statements"]
        self.is_last: bool = fields["last"]
        self.catalogue: Path | None = None  # a complete catalogue, to which the statements are applied
        self.ends: dict[Partition, int] = {}


class Standby:
    """See the module's description. Lives on the server's loop."""

    def __init__(
        self,
        leader: str,
        host: str,
        port: int,
        *,
        role: Role,
        catalogue: Catalogue,
        state: copy_state.CopyState,
        topics: LocalTopics,
        topic_admin: TopicAdmin,
        logs: TopicLogs,
        checkpoint: Callable[[], None],
        clock: Clock,
        threads: int,
    ) -> None:
        """``state`` is what the catalogue had of the copy at startup. ``threads`` sync the logs."""
        self.leader = leader
        self.promoted = asyncio.Event()
        self.is_connected = False
        self._host, self._port = host, port
        self._role = role
        self._catalogue = catalogue
        self._known = state.facts
        self._topics = topics
        self._topic_admin = topic_admin
        self._logs = logs
        self._checkpoint = checkpoint
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._threads = ThreadPoolExecutor(threads, "millstream-copy")
        self._links: list[LeaderLink] = []
        self._copying: list[LeaderLink] = []  # those of ``_links`` that copy records
        self._session = ""  # the name of this session, given by the leader
        self._names: dict[bytes, str] = {}  # of the leader's topics, by id
        self._node_id: Sequence[int] | None = None  # the configured id, and the id used instead
        self._starts: dict[Partition, int] = {}  # the leader's log start offsets, still to be applied
        self._bases: dict[Partition, list[int]] = {}  # base offsets of the leader's segments
        self._ahead: set[bytes] = set()  # topics created here before the leader's catalogue change is applied
        self._pending: _PendingPoint | None = None
        self._whole: tuple[int, int] | None = (
            None  # the last complete point, by the leader's clock and by ours
        )
        self._whole_at = self._heard_at = clock.monotonic()
        self._is_last = False  # no point follows the last whole one: the leader takes no more writes
        self._account = LagAccount(state.ends)
        self._whole_event = asyncio.Event()
        self.copied_bytes = 0
        self.breaks = 0

    # Life

    def start(self) -> asyncio.Task[None]:
        """Start following. The returned task runs until it is cancelled, or raises an error that no retry
        can cure."""
        known = self._known
        whole = known.get(copy_state.WHOLE)
        self._whole = (whole[0], whole[1]) if whole else None
        if copy_state.CLIENTS in known and known[copy_state.LEADER] == self.leader:
            self._role.lead_clients_to(*_brokers(known[copy_state.CLIENTS]))
        self._task = asyncio.create_task(self._run())
        return self._task

    async def stop(self) -> None:
        """Stop following, with a complete point if that is possible in time, and save its state."""
        was_connected = self.is_connected
        if self._task is not None:
            if self._pending is not None and not self._task.done():
                self._whole_event.clear()
                whole = asyncio.create_task(self._whole_event.wait())
                await asyncio.wait({self._task, whole}, timeout=STOP_PATIENCE)
                whole.cancel()
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._close_links()
        if not self.promoted.is_set():
            state = self._state(answers=False)
            left = {
                "heard_ms": state.heard_ms,
                "was_connected": was_connected,
                "missing": [list(each) for each in state.missing],
                "behind_commits": state.behind_commits,
                "is_last": state.is_last,
            }
            with contextlib.suppress(RequestRefused):
                await self._catalogue.copy(lambda db: copy_state.save_facts(db, left=left))
        self._threads.shutdown()

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            started = self._clock.monotonic()
            try:
                await self._follow()
            except _StartOver as error:
                _log.info("the copy of %s starts over: %s", self.leader, error)
            except (BrokerUnavailable, ProtocolError, OSError) as error:
                if self.is_connected:
                    self.breaks += 1
                    _log.warning("the leader at %s is lost: %s; trying again", self.leader, error)
                elif pause == FIRST_PAUSE:
                    _log.warning("the leader can't be reached: %s; trying again", error)
            except LogError as error:
                _log.error("can't copy: %s; trying again", error)
            finally:
                self.is_connected = False
                self._close_links()
            if self._clock.monotonic() - started > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, LONGEST_PAUSE)

    def _close_links(self) -> None:
        for link in self._links:
            link.close()
        self._links.clear()
        self._copying.clear()

    async def _open(self) -> LeaderLink:
        link = await LeaderLink.open(self._host, self._port)
        self._links.append(link)
        return link

    # Following

    async def _follow(self) -> None:
        link = await self._open()
        catalogue = self._catalogue
        blank = is_blank(catalogue)
        asked: dict[str, Any] = {
            "spoken": SPOKEN,
            "schema": catalogue.schema,
            "name": f"{self._role.own_host}:{self._role.own_port}",
            "node_id": self._role.own_id,
            "host": self._role.own_host,
            "port": self._role.own_port,
            "cluster_id": None if blank else catalogue.cluster_id,
            "lineage": catalogue.lineage,
            "wait_ms": WAIT_MS,
        }
        listening: asyncio.Task[None] | None = None
        try:
            self._session, point, complete = "", 0, 0
            while True:
                news = asked | {"session": self._session, "cut": point, "complete": complete}
                fields, _ = await link.ask(FOLLOW, news)
                self._heard_at = self._clock.monotonic()
                if fields["first"] and self._session:
                    raise _StartOver("the leader starts over")
                self._session, point = fields["session"], fields["cut"]
                if listening is None:
                    listening = asyncio.create_task(self._listen())
                await self._take(link, fields)
                complete = point
        finally:
            if listening is not None:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    async def _listen(self) -> None:
        """Follow what the leader has, even while a point is being copied and synced."""
        try:
            await self._hear_reports(await self._open())
        except MillstreamError as error:
            _log.warning("the leader's latest report can't be received: %s; starting over", error)
            self._close_links()

    async def _hear_reports(self, link: LeaderLink) -> None:
        while True:
            asked = {"session": self._session, "wait_ms": REPORT_WAIT_MS}
            report, _ = await link.ask(LATEST_REPORT, asked)
            told = [
                LeaderReport((bytes.fromhex(topic_id), index), name, end, size)
                for topic_id, name, index, end, size in report["ends"]
            ]
            self._account.heard(report["cut"], report["number"], told)
            self._heard_at = self._clock.monotonic()
            await asyncio.sleep(REPORT_EVERY)

    async def _take(self, link: LeaderLink, fields: dict[str, Any]) -> None:
        """Copy all of a point, and apply it."""
        role, catalogue = self._role, self._catalogue
        target = self._pending = _PendingPoint(fields)
        self._names.update((bytes.fromhex(topic[1]), topic[0]) for topic in fields.get("topics", ()))
        told = [
            LeaderReport((key := bytes.fromhex(row[0]), row[1]), self._names.get(key, row[0]), row[3], row[4])
            for row in fields["partitions"]
        ]
        self._account.begin(target.number, told, first=fields["first"])
        role.lead_clients_to(*_brokers([fields["leader"], *fields["brokers"]]))
        self._node_id = role.take_id(fields["your_id"])
        limit = first_foreign_epoch([Promotion(*p) for p in fields["lineage"]], catalogue.lineage)
        if fields["first"]:
            self._bases.clear()
            target.catalogue = await self._copy_catalogue(link, fields)
            if not self.is_connected:
                self.is_connected = True
                _log.info("following %s", self.leader)
        if "topics" in fields:
            if is_blank(catalogue):
                await self._join(fields["lineage"])
            await self._make_topics(fields["topics"])
        for row in fields["partitions"]:
            self._heed(target, row, limit)
        if target.ends:
            await self._copy(target)
            await self._sync(target)
        await self._make_whole(target, fields)

    async def _copy_catalogue(self, link: LeaderLink, fields: dict[str, Any]) -> Path:
        path = Path(self._logs.data_path) / ".catalogue-incoming"
        size = fields["catalogue_size"]
        with path.open("wb") as file:
            while file.tell() < size:
                asked = {"session": fields["session"], "position": file.tell()}
                _, data = await link.ask(COPY_CATALOGUE, asked)
                if not data:
                    raise _StartOver("the leader's catalogue is shorter than it was")
                file.write(data)
        return path

    async def _join(self, lineage: list[Any]) -> None:
        """Join the leader's cluster, before its topics are created here. So a standby that is killed during
        its first copy can continue it, and can't be mistaken for a separate cluster."""
        (cluster_id, _), *promotions = lineage

        def write(db: sqlite3.Connection) -> None:
            set_fact(db, "cluster.id", cluster_id)
            set_fact(db, "promotions", json.dumps(promotions))
            copy_state.save_facts(db, leader=self.leader)

        await self._catalogue.copy(write)
        self._claim()

    async def _make_topics(self, topics: list[Any]) -> None:
        """Create new topics and partitions before their records come. Deleted topics are removed later, with
        the catalogue's changes, unless a new topic has the same name."""
        known = self._catalogue.topics
        made = []
        for name, topic_id, partitions, overrides in topics:
            have = known.get(name)
            if have is None or have.id.hex != topic_id or have.partitions < partitions:
                made.append((name, bytes.fromhex(topic_id), partitions, overrides))
                if have is None or have.id.hex != topic_id:
                    self._ahead.add(bytes.fromhex(topic_id))
        if made:
            await self._catalogue.foresee(made)
            await self._topic_admin.serve_catalogue()

    def _heed(self, target: _PendingPoint, row: list[Any], limit: int) -> None:
        """Apply what the leader says about one partition to this copy."""
        topic_id, index, start, end, _, bases, epochs = row
        topic = self._topics.by_key.get(bytes.fromhex(topic_id))
        if topic is None or index >= len(topic.partitions):
            raise _StartOver("a topic is not there")
        partition = topic.partitions[index]
        if partition.log.is_swapping:
            raise _StartOver(f"{partition} is being compacted at this moment")
        if epochs is not None:
            self._bases[partition] = bases
            self._reconcile(partition, [(epoch, at) for epoch, at in epochs], bases[0], end, limit)
        else:
            self._bases[partition] += bases
        log = partition.log
        if start > log.end_offset:
            partition.log = log = self._disk.restart_log(log, self._bases[partition][0])
        target.ends[partition] = end
        if start > log.log_start_offset:
            self._starts[partition] = start

    def _reconcile(
        self, partition: Partition, epochs: list[tuple[int, int]], first: int, end: int, limit: int
    ) -> None:
        """Cut off records that the leader's log does not have, and take over its epochs."""
        log = partition.log
        common = common_end(log.epochs.entries, log.end_offset, epochs, end, limit)
        if common < log.end_offset and log.size_bytes:
            count = log.end_offset - common
            partition.log, aside = self._disk.cut_log(log, max(common, log.log_start_offset))
            log = partition.log
            _log.warning(
                "%s: the leader does not have the last %d records here, from offset %d on; they were taken "
                "back and are kept in %s",
                partition, count, common, aside,
            )  # fmt: skip
        if log.end_offset < first or (log.size_bytes == 0 and log.end_offset != first):
            partition.log = log = self._disk.restart_log(log, first)
        log.epochs.replace(epochs)
        log.epochs.write()
        log.leader_epoch = log.epochs.latest
        partition.topic.described.clear()

    # Records

    async def _copy(self, target: _PendingPoint) -> None:
        """Copy records until every log is at its end in the point."""
        waiting = deque(partition for partition, end in target.ends.items() if partition.log.end_offset < end)
        count = min(CONNECTIONS, len(waiting))
        while len(self._copying) < count:
            self._copying.append(await self._open())
        workers = [
            asyncio.create_task(self._copy_some(link, target, waiting)) for link in self._copying[:count]
        ]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        for partition, end in target.ends.items():
            start_segment(partition.log, self._bases[partition], end)
            jump(partition.log, end)

    async def _copy_some(self, link: LeaderLink, target: _PendingPoint, waiting: deque[Partition]) -> None:
        alone = False
        while waiting:
            chosen = [waiting.popleft() for _ in range(1 if alone else min(AT_ONCE, len(waiting)))]
            wanted: dict[bytes, list[tuple[int, int]]] = {}
            for partition in chosen:
                at = (partition.index, partition.log.end_offset)
                wanted.setdefault(partition.topic.id_bytes, []).append(at)
            body = await link.request(FETCH, FETCH_VERSION, fetch_request(wanted, most=MOST_BYTES), tags=True)
            by_place = {(partition.topic.id_bytes, partition.index): partition for partition in chosen}
            taken = 0
            missing: list[Partition] = []
            for topic_id, index, error, records in read_copied(body):
                partition = by_place[topic_id, index]
                if error in (CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE):
                    missing.append(partition)
                elif error:
                    raise _StartOver(f"{partition}: the leader answers with error {error}")
                taken += self._append(partition, records, target.ends[partition])
            self.copied_bytes += taken
            for partition in missing:
                await self._pass_over(link, partition, target.ends[partition])
            for partition in chosen:
                if partition.log.end_offset < target.ends[partition]:
                    if alone and not taken:
                        # No records are left up to the point: they were compacted away or are damaged.
                        jump(partition.log, target.ends[partition])
                    else:
                        waiting.append(partition)
            alone = not taken

    async def _pass_over(self, link: LeaderLink, partition: Partition, upto: int) -> None:
        """Skip records that are damaged on the leader, or were deleted since it described the point. The
        leader does not serve them to anyone, and continues after them."""
        log = partition.log
        place = {"topic_id": partition.topic.id.hex, "partition": partition.index, "offset": log.end_offset}
        answer, _ = await link.ask(AFTER_MISSING, place)
        after = min(answer["offset"], upto)
        if after <= log.end_offset:
            raise _StartOver(
                f"{partition}: the leader can't read its records from offset {log.end_offset} on"
            )
        if not answer["deleted"]:
            _log.error(
                "%s: the leader's records %d to %d are damaged; the copy does not have them either",
                partition, log.end_offset, after - 1,
            )  # fmt: skip
        jump(log, after)

    def _append(self, partition: Partition, records: memoryview, upto: int) -> int:
        if not records:
            return 0
        taken = append_copied(
            partition.log, records, bases=self._bases[partition], upto=upto, now_ms=self._clock.now_ms()
        )
        partition.topic.bytes_in += taken
        if taken and partition.waiters:
            partition.wake(taken, _nothing)  # the responses schedule a turn, and are sent at its end
        return taken

    async def _sync(self, target: _PendingPoint) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.gather(
            *(
                loop.run_in_executor(self._threads, partition.log.sync)
                for partition in target.ends
                if partition.log.synced_offset < partition.log.written_offset
            )
        )

    # The catalogue

    async def _make_whole(self, target: _PendingPoint, fields: dict[str, Any]) -> None:
        catalogue = self._catalogue
        ahead = list(self._ahead)
        whole = (target.now_ms, self._clock.now_ms())
        ends = [(p.topic.id_bytes, p.index, end) for p, end in target.ends.items()]

        def write(db: sqlite3.Connection) -> None:
            if target.catalogue is not None:
                replace_catalogue(db, target.catalogue)
            else:
                db.executemany("DELETE FROM topics WHERE id = ?", [(topic_id,) for topic_id in ahead])
            for statement, rows in target.statements:
                db.executemany(statement, rows)
            copy_state.save_facts(
                db,
                leader=self.leader,
                clients=[fields["leader"], *fields["brokers"]],
                node_id=self._node_id,
                whole=whole,
                left=None,
                fenced=None,
                promoted=None,
            )
            copy_state.save_ends(db, ends)
            if target.catalogue is not None:
                db.execute("DELETE FROM copy_ends WHERE topic_id NOT IN (SELECT id FROM topics)")

        if target.catalogue is not None and not is_blank(catalogue):
            keep_catalogue(catalogue, self._logs.data_path, fields["lineage"])
        await catalogue.copy(write)
        if target.catalogue is not None:
            target.catalogue.unlink()
            self._claim()
        self._ahead.clear()
        await self._topic_admin.serve_catalogue()
        await self._apply_starts()
        self._account.complete(
            target.point, target.number, {(topic_id, index): end for topic_id, index, end in ends}
        )
        self._whole, self._pending, self._is_last = whole, None, target.is_last
        self._whole_at = self._heard_at
        self._whole_event.set()

    async def _apply_starts(self) -> None:
        """Move log start offsets up to the leader's."""
        if not self._starts:
            return
        starts, self._starts = self._starts, {}
        for partition, start in starts.items():
            log = partition.log
            log.log_start_offset = max(log.log_start_offset, min(start, log.end_offset))
        self._checkpoint()
        started = time.monotonic()
        for partition in starts:
            partition.log.apply_retention(self._clock.now_ms())
            started = await yield_if_due(started)

    @property
    def _disk(self) -> LogDirectory:
        assert self._logs.disk is not None
        return self._logs.disk

    def _claim(self) -> None:
        """Mark the directory as belonging to the leader's cluster."""
        self._disk.claim(self._catalogue.cluster_id, self._role.configured_id)

    # Status

    def _state(self, *, answers: bool) -> StandbyState:
        silent_ms = round((self._clock.monotonic() - self._heard_at) * 1000)
        heard_ms = self._clock.now_ms() - silent_ms
        account = self._account
        return StandbyState(
            self.leader,
            self._whole,
            answers,
            heard_ms,
            False,
            account.missing,
            account.commits,
            self._is_last and self._pending is None,
        )

    def status(self) -> dict[str, Any]:
        """The standby's status, for people and metrics."""
        account = self._account
        records = account.records
        now = self._clock.monotonic()
        state = self._state(answers=self.is_connected)
        is_known = self.is_connected or state.is_last
        is_behind = self._pending is not None or records > 0 or not is_known
        return {
            "leader": self.leader,
            "connected": self.is_connected,
            "whole": self._whole,
            "behind_records": records,
            "behind_bytes": account.bytes,
            "behind_commits": account.commits,
            "missing": [list(each) for each in state.missing[:MOST_SHOWN]],
            # Since when the leader may have taken records that are unknown here; null: all are known.
            "unknown_since_ms": None if is_known else state.heard_ms,
            "behind_seconds": round(now - self._whole_at, 3) if is_behind else 0.0,
            "silent_seconds": round(now - self._heard_at, 3),
            "copied_bytes": self.copied_bytes,
            "breaks": self.breaks,
        }

    # Promotion

    async def promote(self, address: str, *, force: bool) -> PromotionVerdict:
        """Replace the leader, if the rules allow it (``broker.standby.promotion``). Raises RequestRefused."""
        answers = await self._answers()
        verdict = judge(self._state(answers=answers), force=force)
        if not verdict.allowed:
            return verdict
        if answers:
            await self._take_over(address)
            verdict = PromotionVerdict(
                True, ["the leader was told: it accepts no more writes, and everything is here"], ()
            )
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        now_ms = self._clock.now_ms()
        await self._catalogue.copy(lambda db: copy_state.save_facts(db, promoted=now_ms))
        self.promoted.set()
        return verdict

    async def _answers(self) -> bool:
        """True if the leader accepts a connection now. One that hangs does not count."""
        try:
            async with asyncio.timeout(ASK_PATIENCE):
                link = await LeaderLink.open(self._host, self._port)
        except (MillstreamError, TimeoutError):
            return False
        link.close()
        return True

    async def _take_over(self, address: str) -> None:
        """Fence the leader, and wait until everything that it had is copied. If that takes too long, undo
        the fence and raise RequestRefused."""
        link = await LeaderLink.open(self._host, self._port)
        try:
            await link.ask(FENCE, {"by": address, "node_id": self._role.own_id})
            try:
                async with asyncio.timeout(SWITCH_PATIENCE):
                    while not self._is_last:
                        self._whole_event.clear()
                        await self._whole_event.wait()
            except TimeoutError:
                await link.ask(FENCE, {"by": ""})
                raise RequestRefused(
                    0, f"the leader's last records were not here within {SWITCH_PATIENCE:g} s; it still leads"
                ) from None
        finally:
            link.close()


def _brokers(listed: list[Any]) -> tuple[Broker, list[Broker]]:
    """The leader and the other brokers, from a message's list."""
    leader, *others = [(node_id, host, port) for node_id, host, port in listed]
    return leader, others


def _nothing() -> None:
    """No responses are sent while readers are woken."""
