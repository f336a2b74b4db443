"""All share partitions of one broker: connects them to their logs, to time, to the catalogue and to the
fetches that wait for records.

How it works:

- A partition is opened when it is first asked for: from what the catalogue has of it, or where the group's
  ``share.auto.offset.reset`` says. Where a new one begins is saved before it gives out anything, so that a
  restart doesn't begin elsewhere.
- Changes apply in memory at once. Those of one turn of the loop, and those made while a save is in progress,
  share the next save. A response that depends on a change waits for ``saved``.
- If a save fails, memory goes on, and the partitions are saved whole by the next one. The client learns that
  the outcome of its acknowledgement is not known. Whichever it is, no record is lost: a record is finished
  only because a member said so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple, Protocol

from millstream.broker.catalogue.share_states import SavedShare, ShareKey, ShareStates
from millstream.broker.groups.schedule import Schedule
from millstream.broker.groups.share.saved_state import end_of, restored, to_bytes
from millstream.broker.groups.share.sessions import Place, ShareSession, ShareSessions
from millstream.broker.groups.share.share_partition import Acknowledgement, Counts, SharePartition
from millstream.core.clock import Clock
from millstream.core.errors import CatalogueFailed, LogError, RequestRefused
from millstream.core.group_config import GroupConfig, auto_offset_reset
from millstream.core.kafka_errors import UNKNOWN_TOPIC_OR_PARTITION
from millstream.log.partition import PartitionLog

_log = logging.getLogger(__name__)

RETRY_AFTER = 1.0  # seconds after which a save that failed is tried again, if nothing else is saved before


class ShareWaiter(Protocol):
    """A fetch that waits for records of a share partition."""

    def look(self) -> None:
        """There may be records to give out."""


class Logs(Protocol):
    """The logs that share partitions read."""

    def log_of(self, topic_id: bytes, index: int) -> PartitionLog | None: ...

    def offset_at(self, log: PartitionLog, time_ms: int) -> Awaitable[int]:
        """The first offset that is not older than this, or the end. Raises LogError."""


class ShareOffsets(NamedTuple):
    """Where a group is in a partition. ``start_offset`` is -1 if it has not begun to read."""

    start_offset: int
    leader_epoch: int
    lag: int


class ShareLog:
    """One log as one group reads it. ``share`` is None until it is known where to begin."""

    __slots__ = ("key", "saved", "share", "waiters")

    def __init__(self, key: ShareKey) -> None:
        self.key = key
        self.share: SharePartition | None = None
        self.saved = 0  # the revision that is saved, or being saved
        self.waiters: dict[ShareWaiter, None] = {}

    def wake(self) -> None:
        for waiter in list(self.waiters):
            waiter.look()


class ShareDelivery:
    """Lives on the server's loop."""

    def __init__(
        self,
        states: ShareStates,
        logs: Logs,
        settings: Callable[[str], GroupConfig],
        session_limit: Callable[[], int],
        clock: Clock,
    ) -> None:
        self.sessions = ShareSessions(session_limit)
        self.counts = Counts()
        self._states = states
        self._logs = logs
        self._settings = settings
        self._known_settings: dict[str, GroupConfig] = {}
        self._clock = clock
        self._groups: dict[str, dict[Place, ShareLog]] = {}
        self._readers: dict[Place, dict[str, ShareLog]] = {}  # the same, by log
        self._schedule: Schedule[ShareKey] = Schedule()
        self._dirty: dict[ShareLog, None] = {}
        self._next_save: asyncio.Future[None] | None = None  # done with the save that follows
        self._is_saving = False
        self.save_errors = 0
        self._retry_at = inf  # after a save that failed
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = False

    def cut_to_logs(self) -> None:
        """Forget what is saved of records that logs have lost (``saved_state.restored``). Only at startup:
        later, other records may have their offsets."""
        cut: dict[ShareKey, SavedShare] = {}
        for group, place in self.begun():
            saved, log = self._states.of(group)[place], self._logs.log_of(*place)
            if log is None or log.offline is not None or end_of(*saved) <= log.written_offset:
                continue
            left = self._restored(group, saved, log)
            cut[group, *place] = SavedShare(left.start_offset, to_bytes(left))
        self._states.replace_now(cut)

    def _restored(self, group: str, saved: SavedShare, log: PartitionLog) -> SharePartition:
        return restored(
            saved.start_offset,
            saved.runs,
            self.settings_of(group),
            self.counts,
            log_start=log.log_start_offset,
            log_end=log.written_offset,
        )

    # Share partitions

    def find(self, group: str, place: Place) -> ShareLog | None:
        """A group's partition, if the group has begun to read it."""
        found = self._groups.get(group, {}).get(place)
        if found is None and place in self._states.of(group):
            return self.open(group, place)
        return found

    def open(self, group: str, place: Place) -> ShareLog | None:
        """A group's partition; it may take a moment until it is ready. None if there is no such log."""
        found = self._groups.get(group, {}).get(place)
        if found is not None:
            return found
        log = self._logs.log_of(*place)
        if log is None or log.offline is not None:
            return None
        opened = ShareLog((group, *place))
        self._groups.setdefault(group, {})[place] = opened
        self._readers.setdefault(place, {})[group] = opened
        saved = self._states.of(group).get(place)
        if saved is None:
            task = asyncio.ensure_future(self._begin(opened, log))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
        else:
            opened.share = self._restored(group, saved, log)
            opened.saved = opened.share.revision
        return opened

    async def _begin(self, opened: ShareLog, log: PartitionLog) -> None:
        """Find out where to begin, and save it."""
        group = opened.key[0]
        settings = self.settings_of(group)
        reset = auto_offset_reset(settings.share_auto_offset_reset)
        try:
            if isinstance(reset, int):
                start = await self._logs.offset_at(log, self._clock.now_ms() - reset)
            else:
                start = log.log_start_offset if reset == "earliest" else log.written_offset
            await self._states.save({opened.key: SavedShare(start, b"")})
        except (LogError, RequestRefused) as error:
            _log.warning("share group %s can't begin to read %s: %s", group, log.name, error)
            self._forget([opened])  # the next fetch tries again
            return
        if self._groups.get(group, {}).get(opened.key[1:]) is opened:
            opened.share = SharePartition(max(start, log.log_start_offset), settings, self.counts)
            opened.wake()

    def _forget(self, opened: Iterable[ShareLog]) -> None:
        for each in opened:
            group, topic_id, index = each.key
            of_group, readers = self._groups.get(group, {}), self._readers.get((topic_id, index), {})
            if of_group.get((topic_id, index)) is not each:
                continue
            del of_group[topic_id, index], readers[group]
            if not of_group:
                del self._groups[group]
            if not readers:
                del self._readers[topic_id, index]
            self._dirty.pop(each, None)
            self._schedule.forget(each.key)
            each.share = None
            each.wake()

    def of_group(self, group: str) -> list[ShareLog]:
        return list(self._groups.get(group, {}).values())

    def begun(self) -> list[tuple[str, Place]]:
        """The partitions that groups have begun to read, of all groups."""
        return [(group, place) for group in self._states.groups() for place in self._states.of(group)]

    def __len__(self) -> int:
        """The number of partitions in memory."""
        return sum(map(len, self._groups.values()))

    # Requests

    def acknowledge(self, opened: ShareLog, member: str, given: Sequence[Acknowledgement]) -> None:
        """Apply acknowledgements. The response waits for ``saved``. Raises RequestRefused."""
        if opened.share is None:
            raise RequestRefused(UNKNOWN_TOPIC_OR_PARTITION, "the group has not begun to read this partition")
        opened.share.acknowledge(member, given, self._clock.monotonic())
        self._changed(opened)

    def release(self, session: ShareSession) -> None:
        """End a session: what its member holds is given back."""
        self.sessions.end(session.group, session.member)
        for opened in self.of_group(session.group):
            if opened.share is not None and opened.share.release(session.member):
                self._changed(opened)

    def disconnected(self, connection: object) -> None:
        for session in self.sessions.of_connection(connection):
            self.release(session)

    def given_out(self, opened: ShareLog) -> None:
        """Records were acquired: look at them when their lock runs out. What is new is saved."""
        share = opened.share
        assert share is not None
        self._schedule.wake(opened.key, share.wake_at)
        if share.revision != opened.saved:
            opened.saved = share.revision
            self._save_later(opened)

    def _changed(self, opened: ShareLog) -> None:
        """The same, after a change that may have made records available."""
        self.given_out(opened)
        opened.wake()

    # Saving

    def saved(self) -> asyncio.Future[None] | None:
        """Done once everything that has changed by now is saved. None if it is already."""
        return self._next_save

    def _save_later(self, opened: ShareLog) -> None:
        self._dirty[opened] = None
        if self._next_save is None:
            loop = asyncio.get_running_loop()
            self._next_save = loop.create_future()
            if not self._is_saving:
                loop.call_soon(self._save)

    def _save(self) -> None:
        if self._next_save is None or self._is_saving:
            return
        waiting, self._next_save = self._next_save, None
        dirty, self._dirty = self._dirty, {}
        states = {
            opened.key: SavedShare(share.start_offset, to_bytes(share))
            for opened in dirty
            if (share := opened.share) is not None
        }
        try:
            saving = self._states.save(states)
        except RequestRefused as refused:
            self._saving_ended(waiting, dirty, refused)
            return
        self._is_saving = True
        saving.add_done_callback(lambda done: self._saving_ended(waiting, dirty, _failure_of(done)))

    def _saving_ended(
        self, waiting: asyncio.Future[None], dirty: dict[ShareLog, None], failure: BaseException | None
    ) -> None:
        self._is_saving = False
        if failure is not None:
            self.save_errors += 1
            self._dirty = {**dirty, **self._dirty}
            self._retry_at = self._clock.monotonic() + RETRY_AFTER
            if not waiting.done():
                waiting.set_exception(failure)
                waiting.exception()  # it is reported here, whether or not a request waits for it
            if not self._closed:
                _log.warning("the state of %d share partitions could not be saved: %s", len(dirty), failure)
        elif not waiting.done():
            waiting.set_result(None)
        if self._next_save is not None:
            self._save()

    # Time, the log and the settings

    def settings_of(self, group: str) -> GroupConfig:
        """A group's settings. Hot."""
        settings = self._known_settings.get(group)
        if settings is None:
            settings = self._known_settings[group] = self._settings(group)
        return settings

    def tick(self, now: float) -> None:
        """Take back what was not acknowledged in time. Cheap when there is nothing."""
        for key in self._schedule.due(now):
            opened = self._groups.get(key[0], {}).get(key[1:])
            if opened is not None and opened.share is not None:
                opened.share.expire(now)
                self._changed(opened)
        if now >= self._retry_at:
            self._retry_at = inf
            for opened in list(self._dirty):
                self._save_later(opened)

    def on_log_start(self, topic_id: bytes, index: int, start: int) -> None:
        """A log is about to begin at ``start``."""
        for opened in list(self._readers.get((topic_id, index), {}).values()):
            if opened.share is not None and opened.share.on_log_start(start):
                self._changed(opened)

    def forget_topic(self, topic_id: bytes) -> None:
        """A topic was deleted. What is saved of it was deleted with it."""
        gone = [place for place in self._readers if place[0] == topic_id]
        self._forget([opened for place in gone for opened in self._readers[place].values()])

    def configure(self, group: str) -> None:
        """Apply a group's changed settings, to all that is given out from now on."""
        self._known_settings.pop(group, None)
        for opened in self.of_group(group):
            if opened.share is not None:
                opened.share.settings = self.settings_of(group)
                opened.wake()

    def configure_all(self) -> None:
        self._known_settings.clear()
        for group in list(self._groups):
            self.configure(group)

    # The group's offsets

    def places(self, group: str) -> list[Place]:
        """The partitions that a group has begun to read."""
        return list(self._states.of(group))

    def describe(self, group: str, place: Place) -> ShareOffsets | None:
        """Where a group is in a partition. None if there is no such log."""
        log = self._logs.log_of(*place)
        if log is None:
            return None
        opened = self.find(group, place)
        if opened is None or opened.share is None:
            return ShareOffsets(-1, log.leader_epoch, -1)
        share = opened.share
        return ShareOffsets(share.start_offset, log.leader_epoch, share.lag(log.written_offset))

    async def alter(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Let a group that has no members begin at these offsets. Raises CatalogueFailed."""
        self._forget_places(group, offsets)  # so that what they were is not saved again
        await self._states.save(
            {(group, *place): SavedShare(offset, b"") for place, offset in offsets.items()}
        )
        self._forget_places(group, offsets)

    async def delete(self, group: str, places: Iterable[Place]) -> None:
        """Let a group that has no members begin in these partitions as in new ones. Raises
        CatalogueFailed."""
        gone = list(places)
        self._forget_places(group, gone)
        await self._states.delete((group, *place) for place in gone)
        self._forget_places(group, gone)

    def forget_group(self, group: str) -> None:
        """A group is about to be deleted. What is saved of it is deleted with it."""
        self._forget(self.of_group(group))

    def _forget_places(self, group: str, places: Iterable[Place]) -> None:
        known = self._groups.get(group, {})
        self._forget([opened for place in places if (opened := known.get(place)) is not None])

    def close(self) -> None:
        """Shut down: save what is not saved, and answer those that wait. The catalogue writes it when it
        closes."""
        self._closed = True
        for task in self._opening:
            task.cancel()
        self._save()
        for group in list(self._groups):
            for opened in self.of_group(group):
                opened.wake()


def _failure_of(done: asyncio.Future[None]) -> BaseException | None:
    return CatalogueFailed("the broker is shutting down") if done.cancelled() else done.exception()
