"""A data directory: its lock, the checkpoints of all its partitions, and a directory for each partition.

.reserve                           room for what a broker has to write on a full disk
.lock                              held by the broker that uses the directory; names its process
meta.properties                    which cluster and node the directory belongs to
.boot                              which boot of the machine the last broker ran in
.kafka_cleanshutdown               exists only after a clean shutdown, until the next broker starts
recovery-point-offset-checkpoint   below it everything was synced
log-start-offset-checkpoint        where the records begin, if not where the files do
accepted-losses                    losses that a person accepted; until the next start
TOPIC-PARTITION/                   a log; its ``partition.metadata`` names the topic's id
TOPIC-PARTITION.ID-delete/         a log that is being deleted
TOPIC-PARTITION.ID-stray/          a log that the catalogue does not know: set aside, never deleted
TOPIC-PARTITION.ID-cut/            the end of a log that its leader does not have: set aside, never deleted
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from millstream.core.clock import Clock, SystemClock
from millstream.core.errors import DataDirectoryError, LogError, LogFailed, LogOffline
from millstream.core.topic_config import TopicConfig
from millstream.log.disk_failures import NO_ROOM, UNREADABLE
from millstream.log.partition import PartitionLog
from millstream.log.recovery.recovery import open_partition
from millstream.log.recovery.shortfall import (
    ACCEPTED_LOSSES,
    HighestCommits,
    LogFacts,
    described,
    of_another_topic,
)
from millstream.log.retention import RetentionClock
from millstream.log.segment.scan import WINDOW
from millstream.log.segment.segment import INDEX_SUFFIXES, LOG_SUFFIX, file_name, offset_of
from millstream.log.snapshots import SNAPSHOT_SUFFIX
from millstream.log.storage.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets, write_offsets
from millstream.log.storage.files import (
    DIRECTORY,
    File,
    FilePool,
    Files,
    OsFiles,
    RunOnThread,
    read_file,
    replace_file,
)
from millstream.log.storage.memory import MemoryFiles
from millstream.log.storage.partition_metadata import read_topic_id, write_topic_id
from millstream.log.storage.room import DiskRoom

_log = logging.getLogger(__name__)

LOCK = ".lock"
BOOT = ".boot"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
CUT_SUFFIX = "-cut"
_ALL = (1 << 63) - 1
_CLOSING_THREADS = 8
_OPENING_THREADS = 16

_PARTITION_NAME = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")


def partition_of(name: str) -> tuple[str, int] | None:
    """The topic and partition that a directory is named after, or None."""
    if name.endswith((DELETE_SUFFIX, STRAY_SUFFIX)):
        return None
    match = _PARTITION_NAME.fullmatch(name)
    return (match[1], int(match[2])) if match else None


class LogToOpen(NamedTuple):
    """A log to open, and what the catalogue knows about it."""

    topic: str
    partition: int
    config: TopicConfig
    topic_id: uuid.UUID | None = None
    commits: HighestCommits = HighestCommits()


class LogDirectory:
    """One data directory, in use by this process only. Created by ``open``."""

    def __init__(self, path: str, files: Files, clock: Clock, reserve: int) -> None:
        self.path = path
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self._files = files
        self._clock = clock
        self.pool = FilePool(files)
        self._retention_clock = RetentionClock()
        self._forgetting = threading.Lock()  # several threads open logs
        self._unlock = take_lock(files, path)
        try:
            self._room = DiskRoom(files, path, reserve) if reserve else None
            if self._room is not None:
                self.pool.out_of_room = self._out_of_room
            self.clean = self._begin()
        except BaseException:
            self._unlock()
            raise

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        reserve: int = 0,
    ) -> LogDirectory:
        """Lock the directory, creating it if needed, and reserve ``reserve`` bytes of its disk. Raises
        DataDirectoryError if it can't be used, or if another broker uses it."""
        files = files or OsFiles()
        name = os.path.abspath(path)
        try:
            files.make_directory(name)
            return cls(name, files, clock or SystemClock(), reserve)
        except OSError as error:
            if error.errno in NO_ROOM:
                raise DataDirectoryError(
                    f"can't use the data directory {name}: its disk is full, and nothing can be written to "
                    "it; make room, then start again"
                ) from error
            raise DataDirectoryError(
                f"can't use the data directory {name}: {error.strerror or error}; "
                "give one that this user may read and write"
            ) from error

    def _begin(self) -> bool:
        """Read the checkpoints and remove the clean shutdown mark. It stays away until the next clean
        shutdown."""
        self._recovery_points = read_offsets(self._files, f"{self.path}/{RECOVERY_POINTS}")
        self._start_offsets = read_offsets(self._files, f"{self.path}/{LOG_START_OFFSETS}")
        self._accepted = read_offsets(self._files, f"{self.path}/{ACCEPTED_LOSSES}")
        self._machine_stopped = self._note_boot()
        mark = f"{self.path}/{CLEAN_SHUTDOWN}"
        clean = self._files.exists(mark)
        if clean:
            self._files.remove(mark)
            self._files.sync_directory(self.path)
        listing = self._files.listing(self.path)
        gone = [f"{self.path}/{name}" for name in listing if name.endswith(DELETE_SUFFIX)]
        if gone:
            self._files.discard(gone)
        return clean

    def _note_boot(self) -> bool:
        """True if the machine may have stopped since the last broker ran. Notes the current boot."""
        stopped = machine_stopped(self._files, self.path)
        if stopped:
            replace_file(self._files, f"{self.path}/{BOOT}", self._files.boot_id().encode())
        return stopped

    def claim(self, cluster_id: str, node_id: int) -> None:
        """Check that the directory belongs to this cluster and node. A new directory gets their ids."""
        path = f"{self.path}/{META_PROPERTIES}"
        try:
            known = read_properties(self._files, self.path)
        except FileNotFoundError:
            directory_id = uuid.uuid4().hex
            lines = [
                "#",
                f"cluster.id={cluster_id}",
                f"directory.id={directory_id}",
                f"node.id={node_id}",
                "version=1",
                "",
            ]
            replace_file(self._files, path, "\n".join(lines).encode())
            return
        for name, mine in (("version", "1"), ("cluster.id", cluster_id), ("node.id", str(node_id))):
            if known.get(name) != mine:
                raise DataDirectoryError(
                    f"{path} says {name}={known.get(name)}, this broker has {mine}: "
                    "the directory belongs to another broker; give the right one"
                )

    def work_aside(self, aside: RunOnThread) -> None:
        """From now on, run work that reads whole files elsewhere: see ``FilePool.aside``."""
        self.pool.aside = aside

    def open_log(
        self,
        topic: str,
        partition: int,
        config: TopicConfig,
        *,
        topic_id: uuid.UUID | None = None,
        is_new: bool = False,
        is_copy: bool = False,
    ) -> PartitionLog:
        """Open a partition's log. It is created if needed, and recovered if the last shutdown was not clean.
        ``is_new``: the topic was just created, so offsets known of an earlier topic of that name do not
        count. ``is_copy``: the log copies another broker's, and takes all offsets and epochs from it."""
        if is_new:
            self.forget_offsets([(topic, partition)])
        return self._open(LogToOpen(topic, partition, config, topic_id), clean=self.clean, is_copy=is_copy)

    def open_logs(
        self, wanted: Sequence[LogToOpen], *, is_copy: bool = False, can_fetch: bool = False
    ) -> list[PartitionLog]:
        """Open all logs of a starting broker. A log that is shorter than it is known to have been is
        opened offline, unless it is a copy that ``can_fetch`` the rest."""

        def open_one(each: LogToOpen) -> PartitionLog:
            try:
                return self._open(each, clean=self.clean, is_copy=is_copy, can_fetch=can_fetch)
            except LogOffline as offline:
                _log.error("%s", offline)
                return self._offline_log(each, offline)

        if self.clean:
            return [open_one(each) for each in wanted]
        # After a crash this mostly waits for the disk, which can serve several threads.
        with ThreadPoolExecutor(_OPENING_THREADS, "millstream-open") as threads:
            return list(threads.map(open_one, wanted))

    def reopen(self, wanted: LogToOpen) -> PartitionLog:
        """Open a log that was offline: everything it lacks was found elsewhere."""
        self._accepted[wanted.topic, wanted.partition] = _ALL
        return self._open(wanted, clean=self.clean, is_copy=False)

    def _offline_log(self, wanted: LogToOpen, why: LogOffline) -> PartitionLog:
        """A log without files that refuses everything. What is on the disk is left alone."""
        files = MemoryFiles()
        path = f"{self.path}/{wanted.topic}-{wanted.partition}"
        files.make_directory(path)
        log = self._new_log(wanted, path, FilePool(files, limit=4), lambda: None)
        log.go_offline(why)
        return log

    def _new_log(
        self, wanted: LogToOpen, path: str, pool: FilePool, save_start_offset: Callable[[], None]
    ) -> PartitionLog:
        return PartitionLog(
            wanted.topic,
            wanted.partition,
            wanted.config,
            path=path,
            pool=pool,
            clock=self._clock,
            save_start_offset=save_start_offset,
            retention_clock=self._retention_clock,
        )

    def _open(
        self, wanted: LogToOpen, *, clean: bool, is_copy: bool, can_fetch: bool = False
    ) -> PartitionLog:
        key = (wanted.topic, wanted.partition)
        if key in self.logs:
            raise ValueError(f"{wanted.topic}-{wanted.partition} is open already")
        path = f"{self.path}/{wanted.topic}-{wanted.partition}"
        log = self._new_log(wanted, path, self.pool, self._save_start_offsets)
        machine_stopped = self._machine_stopped and not clean
        known_end = 0
        try:
            is_accepted = self._accepted.get(key, -1) >= self._known(wanted).end_offset
            is_named = self._check_topic(path, wanted, keep=clean and not can_fetch, is_accepted=is_accepted)
            known = self._known(wanted)
            known_end = known.end_offset
            new = not self._files.exists(path)
            if new:
                known = known.without_directory()
            is_accepted = is_accepted or self._accepted.get(key, -1) >= known.end_offset
            if new and not can_fetch and not is_accepted:
                missing = known.missing(None, machine_stopped=machine_stopped)
                if missing:
                    raise LogOffline(described(log.name, path, None, missing, known), known.end_offset)
            if new:
                self._files.make_directory(path)
            if wanted.topic_id is not None and not is_named:
                write_topic_id(self._files, path, wanted.topic_id)
            open_partition(
                log,
                known,
                new=new,
                clean=clean,
                machine_stopped=machine_stopped,
                is_accepted=is_accepted,
                is_copy=is_copy,
            )
        except OSError as error:
            if error.errno in NO_ROOM:
                self._out_of_room()
            if error.errno in UNREADABLE:
                raise LogOffline(
                    f"{log.name} is offline: {path} can't be read: {error.strerror}. Stop the broker; "
                    "repair it, or put the partition's files back from a backup; start it again",
                    known_end,
                ) from error
            raise DataDirectoryError(f"can't open the log {path}: {error.strerror or error}") from error
        if self.full:
            log.suspend(LogFailed(self.full))
        self.logs[key] = log
        return log

    def _known(self, wanted: LogToOpen) -> LogFacts:
        key = (wanted.topic, wanted.partition)
        return LogFacts(
            self._recovery_points.get(key, 0),
            self._start_offsets.get(key, 0),
            wanted.commits,
            was_there=key in self._recovery_points or key in self._start_offsets,
        )

    def _check_topic(self, path: str, wanted: LogToOpen, *, keep: bool, is_accepted: bool) -> bool:
        """True if the directory names this topic. A directory that names another topic is set aside: the
        topic was deleted and created again, and the broker was killed before the old directory was gone.
        After a clean shutdown (``keep``) that can't happen, so a person has put the wrong files there.
        Then it raises LogOffline, unless the loss is accepted."""
        found = read_topic_id(self._files, path) if wanted.topic_id is not None else None
        if found is not None and wanted.topic_id is not None and found != wanted.topic_id:
            if keep and not is_accepted:
                why = of_another_topic(f"{wanted.topic}-{wanted.partition}", path, found, wanted.topic_id)
                raise LogOffline(why, self._known(wanted).end_offset)
            aside = self.set_aside(Path(path))
            if not is_accepted:
                self.forget_offsets([(wanted.topic, wanted.partition)])
            _log.warning(
                "%s belongs to another topic of that name, with the id %s; it was set aside as %s",
                path,
                found,
                aside.name,
            )
        return found == wanted.topic_id

    # Room

    @property
    def full(self) -> str:
        """Why the disk takes no records; empty while it does."""
        return self._room.why if self._room is not None and self._room.is_full else ""

    def make_room(self) -> bool:
        """Handle a full disk while writing something other than a log. From any thread. True if the write
        should be retried."""
        return self._room is not None and self._room.refused()

    def look_for_room(self) -> None:
        """Check the free space, and refuse records while the disk is full. Call several times a second."""
        if self._room is not None and self._room.look():
            why = LogFailed(self.full) if self.full else None
            for log in self.logs.values():
                log.suspend(why)

    def _out_of_room(self) -> None:
        self.make_room()
        self.look_for_room()

    def forget_offsets(self, keys: Iterable[tuple[str, int]]) -> None:
        """Forget the checkpoints of deleted logs: they do not apply to new logs of the same names. May
        raise OSError."""
        with self._forgetting:
            known = [
                (self._recovery_points.pop(key, None), self._start_offsets.pop(key, None)) for key in keys
            ]
            if any(offsets != (None, None) for offsets in known):
                write_offsets(self._files, f"{self.path}/{RECOVERY_POINTS}", self._recovery_points)
                write_offsets(self._files, f"{self.path}/{LOG_START_OFFSETS}", self._start_offsets)

    def forget_all_but(self, known: set[tuple[str, int]]) -> None:
        """Forget the checkpoints of partitions that are not in ``known``."""
        for offsets in (self._recovery_points, self._start_offsets):
            for key in offsets.keys() - known:
                del offsets[key]

    def cut_log(self, log: PartitionLog, offset: int) -> tuple[PartitionLog, Path]:
        """Remove the records from ``offset`` on from a copy. Returns the reopened log, and the directory
        that keeps the removed records, in ordinary log files."""
        log.close()
        key = (log.topic, log.partition)
        aside = self._new_name(log.path, CUT_SUFFIX)
        self._files.make_directory(aside)
        for number, segment in enumerate(log.segments):
            ceiling = log.segments.ceiling(number, log.end_offset)
            if ceiling <= offset or not segment.size:
                continue
            found = segment.locate(offset, segment.written, ceiling) if segment.base_offset < offset else None
            position = found.position if found is not None else 0
            name = file_name(max(segment.base_offset, offset)) + LOG_SUFFIX
            self._copy(segment.log.get(), position, segment.written, f"{aside}/{name}")
        self._files.sync_directory(aside)
        self._files.sync_directory(self.path)
        for number, segment in enumerate(log.segments):
            ceiling = log.segments.ceiling(number, log.end_offset)
            if segment.base_offset >= offset and number:
                for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
                    self._files.remove(segment.path + suffix)
            elif ceiling > offset:
                found = segment.locate(offset, segment.written, ceiling)
                segment.log.get().truncate(found.position if found is not None else segment.written)
                segment.log.get().sync()
        for name in self._files.listing(log.path):
            if name.endswith(SNAPSHOT_SUFFIX) and offset_of(name) > offset:
                self._files.remove(f"{log.path}/{name}")
        self._files.sync_directory(log.path)
        del self.logs[key]
        log.abandon()
        self._recovery_points[key] = min(log.synced_offset, offset)
        return _in_place_of(log, self._open_again(log)), Path(aside)

    def _open_again(self, log: PartitionLog) -> PartitionLog:
        wanted = LogToOpen(log.topic, log.partition, log.config)
        return self._open(wanted, clean=False, is_copy=True, can_fetch=True)

    def _copy(self, source: File, position: int, end: int, path: str) -> None:
        target = self._files.open(path, create=True)
        written = 0
        while position < end:
            data = source.pread(min(WINDOW, end - position), position)
            target.pwrite(data, written)
            position += len(data)
            written += len(data)
        target.sync()

    def restart_log(self, log: PartitionLog, offset: int) -> PartitionLog:
        """Replace a log with an empty copy that begins at ``offset``: its leader has nothing of it left."""
        key = (log.topic, log.partition)
        topic_id = read_topic_id(self._files, log.path)
        self.delete_log(*key)
        self._start_offsets[key] = offset
        self._files.make_directory(log.path)
        if topic_id is not None:
            write_topic_id(self._files, log.path, topic_id)
        self._files.sync_directory(self.path)
        return _in_place_of(log, self._open_again(log))

    def delete_log(self, topic: str, partition: int) -> None:
        """Delete a partition's log. Once this returns it does not come back, even after a crash. Its
        space is freed a little later."""
        self.remove([self.drop_log(topic, partition)])
        self.forget_offsets([(topic, partition)])

    def drop_log(self, topic: str, partition: int) -> str:
        """Stop using a partition's log. Returns its directory, for ``remove``."""
        log = self.logs.pop((topic, partition), None)
        if log is not None:
            log.abandon()
        return f"{self.path}/{topic}-{partition}"

    def remove(self, paths: Sequence[str]) -> None:
        """Delete the directories that exist. Once this returns they do not come back, even after a crash.
        Their space is freed a little later. From any thread. May raise OSError."""
        renamed = []
        for path in paths:
            new = self._new_name(path, DELETE_SUFFIX)
            with contextlib.suppress(FileNotFoundError):
                self._files.rename(path, new)
                renamed.append(new)
        if renamed:
            self._files.sync_directory(self.path)
            self._files.discard(renamed)

    def strays(self, known: set[tuple[str, int]]) -> list[Path]:
        """Directories of partitions that are not in ``known``."""
        listing = self._files.listing(self.path)
        return [
            Path(self.path, name)
            for name, size in sorted(listing.items())
            if size == DIRECTORY and (found := partition_of(name)) is not None and found not in known
        ]

    def set_aside(self, path: Path) -> Path:
        """Rename an unknown directory out of the way; returns its new name."""
        new = self._new_name(str(path), STRAY_SUFFIX)
        self._files.rename(str(path), new)
        self._files.sync_directory(self.path)
        return Path(new)

    def _new_name(self, path: str, suffix: str) -> str:
        # A file name has at most 255 bytes, and a topic name may have 249.
        head, _, name = path.rpartition("/")
        suffix = f".{uuid.uuid4().hex}{suffix}"
        return f"{head}/{name[: 255 - len(suffix)]}{suffix}"

    def checkpoint(self) -> None:
        """Save how far each log is synced and where it starts. Call now and then: after a crash, only the
        records after that are read and checked. Blocks for a sync. May raise OSError."""
        for key, log in self.logs.items():
            self._recovery_points[key] = log.synced_offset
        write_offsets(self._files, f"{self.path}/{RECOVERY_POINTS}", self._recovery_points)
        self._save_start_offsets()
        if self._accepted:
            # The accepted losses are no longer needed: the logs continue after them.
            self._files.remove(f"{self.path}/{ACCEPTED_LOSSES}")
            self._accepted.clear()

    def _save_start_offsets(self) -> None:
        for key, log in self.logs.items():
            if start := log.retention.start_to_remember:
                self._start_offsets[key] = start
            else:
                self._start_offsets.pop(key, None)
        write_offsets(self._files, f"{self.path}/{LOG_START_OFFSETS}", self._start_offsets)

    def close(self) -> None:
        """Close every log. If all went well, leave the mark that lets the next start skip its checks."""
        # This mostly waits for the disk, which can serve several threads.
        with ThreadPoolExecutor(_CLOSING_THREADS, "millstream-close") as threads:
            clean = all(list(threads.map(_closes, self.logs.values())))
        try:
            self.checkpoint()
            if clean:
                replace_file(self._files, f"{self.path}/{CLEAN_SHUTDOWN}", b'{"version":0,"brokerEpoch":-1}')
        except OSError as error:
            _log.error(
                "can't write the checkpoints in %s: %s; the next start checks the logs", self.path, error
            )
        self.logs.clear()
        if self._room is not None:
            self._room.close()
        self._unlock()


def _in_place_of(old: PartitionLog, new: PartitionLog) -> PartitionLog:
    """Give a reopened log the gate, the callback and the refusal of the old one."""
    new.transactions_gate = old.transactions_gate
    new.start_moves = old.start_moves
    new.refuse(old.refusal)
    return new


def read_properties(files: Files, directory: str) -> dict[str, str]:
    """The properties that say whose directory this is. Raises FileNotFoundError if it was never used."""
    text = read_file(files, f"{directory}/{META_PROPERTIES}").decode(errors="replace")
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


def machine_stopped(files: Files, directory: str) -> bool:
    """True if the machine may have stopped since a broker ran here. That can't be ruled out if the broker
    did not note which boot of the machine it ran in."""
    path, boot_id = f"{directory}/{BOOT}", files.boot_id()
    known = read_file(files, path).decode(errors="replace") if files.exists(path) else ""
    return not known or known != boot_id


def take_lock(files: Files, directory: str) -> Callable[[], None]:
    """Lock a data directory for this process. Returns the function that unlocks it. Raises
    DataDirectoryError."""
    path = f"{directory}/{LOCK}"
    try:
        return files.lock(path)
    except BlockingIOError:
        holder = read_file(files, path).decode(errors="replace").strip() or "unknown"
        raise DataDirectoryError(
            f"the data directory {directory} is in use by another broker (process {holder}); "
            "stop it, or give another directory"
        ) from None


def _closes(log: PartitionLog) -> bool:
    try:
        log.close()
    except LogError:
        return False  # the log has reported why
    return log.failed is None
