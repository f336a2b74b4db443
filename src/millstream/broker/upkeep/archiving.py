"""Run the archive: copy sealed segments to it, read from it for clients, delete old segments from it.

How it works:

- Every ``remote.log.manager.task.interval.ms`` a round goes through the archived partitions. For each one
  it removes leftovers, copies sealed segments, and drops segments beyond retention. A few partitions are
  handled at a time, each by one task, so the steps for one partition stay in order. Blocking calls run on
  threads. Decisions about a partition are made on the loop.
- A round begins by looking for the archive's mark. A directory that is not mounted looks like an empty
  one, so the catalogue remembers which archive was marked. If the mark is missing there, the archive
  counts as unavailable. The archive may also disappear in the middle of a round. So the mark is checked
  again before a copy counts as kept, and before a missing object counts as removed.
- An unavailable archive affects only clients that ask for records that are nowhere else. They get
  KAFKA_STORAGE_ERROR, which clients retry. Meanwhile the local logs keep every segment that is not
  archived yet.
- What a deleted topic had in the archive is removed ``file.delete.delay.ms`` later. The catalogue
  remembers it until that is done.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.topics.partition import LocalTopic, Partition
from millstream.broker.topics.segment_threads import SegmentThreads
from millstream.broker.topics.syncing import Syncer
from millstream.broker.topics.threads import Threads
from millstream.core.clock import Clock
from millstream.core.config import BrokerConfig
from millstream.core.errors import ArchiveError, ArchiveMissing, LogError, MillstreamError
from millstream.core.kafka_errors import KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT
from millstream.core.log_output import RateLimited
from millstream.log.archive.adoption import adopt, find_archived
from millstream.log.archive.blocks import Blocks
from millstream.log.archive.copy import Pace, copy_segment, next_copy
from millstream.log.archive.object import OBJECT_SUFFIX
from millstream.log.archive.reader import ArchiveRead, ArchiveReader
from millstream.log.archive.store import ArchiveStore
from millstream.log.partition import PartitionLog

_log = logging.getLogger(__name__)

T = TypeVar("T")
OnArchiveRead = Callable[[ArchiveRead | LogError], None]

_MARK = "millstream-archive.json"
_AHEAD_THREADS = 2
_GRACE = 2.0  # seconds that shutdown waits for calls to the archive
_REMEMBERED_MS = 24 * 3600 * 1000  # no deletion is put off for longer, whatever the clock says


class Archiving:
    """The archive of one broker. Lives on the server's loop."""

    def __init__(
        self,
        config: BrokerConfig,
        catalogue: Catalogue,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        segment_threads: SegmentThreads,
    ) -> None:
        """Raises ConfigError. Does not contact the archive: whether it is reachable turns out later."""
        self.config = config
        self.store = ArchiveStore(config.millstream_archive_url, config.millstream_archive_options)
        self._catalogue = catalogue
        self._clock = clock
        self._loop = loop
        self._segment_threads = segment_threads
        self._syncer: Syncer | None = None
        self._copiers = Threads(config.remote_log_manager_copier_thread_pool_size, "millstream-copy")
        self._readers = Threads(config.remote_log_reader_threads, "millstream-archive")
        self._ahead = Threads(_AHEAD_THREADS, "millstream-ahead")
        self.blocks = Blocks(self.store, config.millstream_archive_cache_bytes, self._ahead)
        self._reader = ArchiveReader(self.blocks, clock.monotonic)
        self._reading: dict[tuple[PartitionLog, int, int, bool], list[OnArchiveRead]] = {}
        self._pace = Pace(clock)
        self._complaints = RateLimited(_log)
        self.is_away = False
        # All counts are since the broker started.
        self.copied_bytes = 0
        self.copied_segments = 0
        self.deleted_segments = 0
        self.copy_errors = 0
        self.read_bytes = 0
        self.read_errors = 0

    def start(self, syncer: Syncer) -> None:
        self._syncer = syncer

    def close(self) -> None:
        """Wait briefly for work in progress. A copy is abandoned; the next start removes what it left."""
        self._pace.stop()
        came_back = [threads.close(_GRACE) for threads in (self._copiers, self._readers, self._ahead)]
        if not all(came_back):
            _log.warning("the archive %s does not answer; the broker shuts down without it", self.store.url)

    def prefix(self, topic: LocalTopic) -> str:
        """The path of a topic's objects. The id in it keeps apart topics that had the same name."""
        return f"{self._catalogue.cluster_id}/{topic.name}-{topic.id.hex}"

    def to_remove(self, topic: LocalTopic) -> tuple[str, int]:
        """The prefix of a topic that is about to be deleted, or "" if the archive has nothing of it, and when
        its objects may be removed."""
        logs = [partition.log for partition in topic.partitions]
        if not any(log.config.remote_storage_enable or log.archive.is_known for log in logs):
            return "", 0
        return self.prefix(topic), self._clock.now_ms() + logs[0].config.file_delete_delay_ms

    # Maintaining the archive

    async def run(self, partitions: Callable[[], Iterable[Partition]]) -> None:
        """Run a round per interval until cancelled."""
        while True:
            try:
                await self.round(partitions())
            except Exception:
                _log.exception("archiving failed; it continues")
            await asyncio.sleep(self.config.remote_log_manager_task_interval_ms / 1000)

    async def round(self, partitions: Iterable[Partition]) -> None:
        """Process every partition once. Errors are logged and counted, and the next round tries again."""
        archived = [partition for partition in partitions if _concerns(partition.log)]
        if not archived and not self._catalogue.deleted_archives:
            return
        self._pace.bytes_per_second = self.config.remote_log_manager_copy_max_bytes_per_second
        try:
            await self._in_thread(
                self._find_mark, self._is_marked or any(p.log.archive.segments for p in archived)
            )
            if not self._is_marked:
                await self._catalogue.archive_marked(self.store.url)
            waiting = iter(archived)
            count = self.config.remote_log_manager_copier_thread_pool_size
            await _all_of([self._look_after_each(waiting) for _ in range(count)])
            await self._remove_deleted()
        except ArchiveError as error:
            self.copy_errors += 1
            if not self.is_away:
                _log.error(
                    "%s. Archiving continues when that is over; until then nothing is deleted here", error
                )
            self.is_away = True
        else:
            if self.is_away:
                _log.info("the archive %s is there again", self.store.url)
            self.is_away = False

    @property
    def _is_marked(self) -> bool:
        return self._catalogue.marked_archive == self.store.url

    def _find_mark(self, known: bool) -> None:
        """Check that this archive is ours, and mark it if it is new. For a thread."""
        name = f"{self._catalogue.cluster_id}/{_MARK}"
        try:
            self.store.size(name)
        except ArchiveMissing:
            if known:
                raise ArchiveError(
                    f"the archive {self.store.url} should have {name}, but does not: is it the right "
                    "place, and mounted?"
                ) from None
            mark = {"cluster.id": self._catalogue.cluster_id, "format": 1}
            self.store.put(name, [json.dumps(mark).encode()])

    async def _look_after_each(self, waiting: Iterator[Partition]) -> None:
        for partition in waiting:
            log = partition.log
            try:
                await self._look_after(partition, self.prefix(partition.topic))
            except (MillstreamError, OSError) as error:
                if log.failed is not None or self._pace.is_stopping:
                    continue  # deleted meanwhile, or the broker is shutting down: not worth logging
                self.copy_errors += 1
                self._complaints.error("copy", "%s can't be archived, it is tried again: %s", log.name, error)
                await self._in_thread(self._find_mark, True)  # only this partition, or the whole archive?
            finally:
                log.archive.let_go()

    async def _look_after(self, partition: Partition, prefix: str) -> None:
        log = partition.log
        archive = log.archive
        if archive.is_known:
            archive.open()
        else:
            found = await self._in_thread(find_archived, self.store, f"{prefix}/{log.partition}")
            if log.failed is not None or not adopt(log, found):
                return
            archive.open()
        await self._remove_leftovers(log)
        identity = {"cluster_id": self._catalogue.cluster_id, "topic_id": str(partition.topic.id)}
        if log.wants_sync and self._syncer is not None and not partition.in_memory:
            self._syncer.sync(partition)
        while (
            log.failed is None and log.config.remote_storage_enable and not log.config.remote_log_copy_disable
        ):
            copy = next_copy(log, prefix, identity)
            if copy is None:
                break
            try:
                is_ours = partial(self._find_mark, True)
                written = await self._in_thread(copy_segment, copy, self.store, self._pace, is_ours)
            except BaseException:
                archive.leftovers[copy.segment.name] = None
                raise
            archive.add(written)
            self.copied_segments += 1
            self.copied_bytes += written.size
        if log.failed is None:
            await self._apply_retention(log)
            await self._remove_leftovers(log)

    async def _apply_retention(self, log: PartitionLog) -> None:
        archive = log.archive
        count = log.retention.due_in_archive(self._clock.now_ms())
        if count == 0:
            return
        dropped = archive.segments[:count]
        # If archiving was turned off for the topic, the local segments stay.
        start = dropped[-1].end_offset if log.config.remote_storage_enable else log.segments[0].base_offset
        if start > log.log_start_offset:
            log.delete_records(start)  # recorded first: the log must never start again at what is dropped
        log.epochs.cut_start(log.log_start_offset)
        await self._in_thread(archive.write_dropped, [segment.name for segment in dropped])
        archive.remove_first(count)
        self.deleted_segments += count
        _log.info(
            "%s: %d archived segments deleted, the log starts at %d", log.name, count, log.log_start_offset
        )

    async def _remove_leftovers(self, log: PartitionLog) -> None:
        archive = log.archive
        names = list(archive.leftovers)
        if not names or log.failed is not None:
            return

        def remove() -> None:
            for name in names:
                self.store.remove(name + OBJECT_SUFFIX)
                self.blocks.forget(name + OBJECT_SUFFIX)
            self._find_mark(True)
            archive.write_gone(names)

        await self._in_thread(remove)
        archive.forget_leftovers(names)

    async def _remove_deleted(self) -> None:
        """Remove what deleted topics had in the archive. Called at a round's end, when nothing is copied."""
        now_ms = self._clock.now_ms()
        for prefix, due_ms in list(self._catalogue.deleted_archives.items()):
            if now_ms < due_ms <= now_ms + _REMEMBERED_MS:
                continue
            await self._in_thread(self.store.remove_all, prefix)
            await self._in_thread(self._find_mark, True)
            await self._catalogue.archive_removed(prefix)
            _log.info("what a deleted topic had in the archive is removed: %s", prefix)

    def adopt_lost(
        self, partitions: Iterable[Partition], bring_back: Callable[[Partition], PartitionLog]
    ) -> None:
        """At startup, find out what is archived for the partitions whose archive journal is lost.

        A partition that is offline because its files are gone is brought back if the archive has all of
        it. This blocks: it has to finish before a log hands out offsets that the archive already has. If
        the archive does not respond, a later round tries again.
        """
        for partition in partitions:
            log = partition.log
            if log.config.remote_storage_enable and not log.archive.is_known:
                try:
                    if self._is_marked:
                        self._find_mark(True)
                    found = find_archived(self.store, f"{self.prefix(partition.topic)}/{log.partition}")
                except ArchiveError as error:
                    _log.error("%s: what is archived is no longer known, and %s", log.path, error)
                    return
                if (offline := log.offline) is not None:
                    end = found.segments[-1].end_offset if found.segments else 0
                    if end < offline.known_end:
                        _log.error("%s stays offline: the archive ends at offset %d", log.name, end)
                        continue
                    log = bring_back(partition)
                adopt(log, found)

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await self._loop.run_in_executor(self._copiers, partial(function, *arguments))

    # Reading

    def read(
        self, log: PartitionLog, offset: int, max_bytes: int, *, committed: bool, arrived: OnArchiveRead
    ) -> None:
        """Read batches that are only in the archive.

        ``arrived`` is called on the loop with the batches, or with the error for the client. Requests for
        the same range meanwhile share one read.
        """
        key = (log, offset, max_bytes, committed)
        waiting = self._reading.get(key)
        if waiting is not None:
            waiting.append(arrived)
            return
        self._reading[key] = [arrived]
        archive = log.archive
        try:
            reading = self._readers.submit(
                self._reader.read,
                archive.segments,
                archive.number_of(offset),
                offset,
                max_bytes,
                committed=committed,
            )
        except RuntimeError:  # the broker is shutting down
            del self._reading[key]
            arrived(LogError(KAFKA_STORAGE_ERROR, "the broker is shutting down"))
            return

        def done(future: Future[ArchiveRead]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no request waits any more
                self._loop.call_soon_threadsafe(self._arrived, key, future)

        reading.add_done_callback(done)

    def _arrived(self, key: tuple[PartitionLog, int, int, bool], reading: Future[ArchiveRead]) -> None:
        log, offset, _, committed = key
        outcome: ArchiveRead | LogError
        try:
            outcome = reading.result()
            self.read_bytes += len(outcome.data)
            if committed and outcome.data:
                # Transactions may have been aborted after the last archived segment.
                aborted = [*outcome.aborted, *log.aborted(offset, outcome.upto)]
                outcome = outcome._replace(aborted=list(dict.fromkeys(aborted)))
        except LogError as error:
            outcome = error
        except Exception as error:
            outcome = self._unreadable(log, error)
        for arrived in self._reading.pop(key):
            arrived(outcome)

    def _unreadable(self, log: PartitionLog, error: Exception) -> LogError:
        self.read_errors += 1
        expected = isinstance(error, ArchiveError)
        self._complaints.error(
            "read",
            "%s: a reader is told to try again: %s",
            log.name,
            error,
            exc_info=None if expected else error,
        )
        return LogError(KAFKA_STORAGE_ERROR, f"{log.name}: {error}")

    async def first_at(self, log: PartitionLog, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record not older than ``timestamp``, here or in the archive.
        Raises LogError."""
        elsewhere = log.archive.before(log.segments[0].base_offset)
        found = await self._looked_up(log, self._reader.first_at, elsewhere, timestamp, log.log_start_offset)
        return found if found is not None else await self._segment_threads.search(log.search_time(timestamp))

    async def newest(self, log: PartitionLog) -> tuple[int, int]:
        """(offset, timestamp) of the first record with the largest timestamp, here or in the archive.
        Raises LogError."""
        elsewhere = log.archive.before(log.segments[0].base_offset)
        here = await self._segment_threads.search(log.search_newest())
        if log.archive.newest_timestamp < here[1]:
            return here
        found = await self._looked_up(log, self._reader.newest, elsewhere, log.log_start_offset)
        return max(found, here, key=lambda known: known[1])

    async def _looked_up(self, log: PartitionLog, look: Callable[..., T], *arguments: Any) -> T:
        try:
            async with asyncio.timeout(self.config.remote_list_offsets_request_timeout_ms / 1000):
                return await self._loop.run_in_executor(self._readers, partial(look, *arguments))
        except TimeoutError:
            raise LogError(REQUEST_TIMED_OUT, f"{log.name}: the archive did not answer in time") from None
        except LogError:
            raise
        except Exception as error:
            raise self._unreadable(log, error) from None


def _concerns(log: PartitionLog) -> bool:
    return log.failed is None and bool(
        log.config.remote_storage_enable or log.archive.segments or log.archive.leftovers
    )


async def _all_of(steps: list[Any]) -> None:
    """Run all steps to their end, then raise the first error."""
    outcomes = await asyncio.gather(*steps, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
