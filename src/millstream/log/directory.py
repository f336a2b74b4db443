"""A data directory: one lock, the checkpoints of all partitions in it, and a directory for each.

.reserve                           room for what a broker has to write on a full disk
.lock                              held by the broker that uses the directory; names its process
meta.properties                    whose directory this is
.kafka_cleanshutdown               there only while no broker runs, and if the last one ended in order
recovery-point-offset-checkpoint   below it everything was synced
log-start-offset-checkpoint        where the records begin, where that is not where the files do
TOPIC-PARTITION/                   a log
TOPIC-PARTITION.ID-delete/         a log on its way out
TOPIC-PARTITION.ID-stray/          a log that the catalogue does not know: set aside, never deleted
TOPIC-PARTITION.ID-cut/            the end of a log that its leader does not have: set aside, never deleted
"""

from __future__ import annotations

import logging
import os
import re
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from millstream.clock import Clock, SystemClock
from millstream.config import TopicConfig
from millstream.errors import DataDirectoryError, LogError, LogFailed
from millstream.log.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets, write_offsets
from millstream.log.failing import NO_ROOM
from millstream.log.files import (
    DIRECTORY,
    File,
    FilePool,
    Files,
    MemoryFiles,
    OsFiles,
    read_file,
    replace_file,
)
from millstream.log.partition import PartitionLog
from millstream.log.recovery import open_partition
from millstream.log.retention import RetentionClock
from millstream.log.room import DiskRoom
from millstream.log.scan import WINDOW
from millstream.log.segment import INDEX_SUFFIXES, LOG_SUFFIX, file_name, offset_of
from millstream.log.snapshots import SNAPSHOT_SUFFIX

_log = logging.getLogger(__name__)

LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
CUT_SUFFIX = "-cut"
_CLOSING_THREADS = 8
_OPENING_THREADS = 16

_PARTITION_NAME = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")


def partition_of(name: str) -> tuple[str, int] | None:
    """The topic and partition that a directory is named after, or None."""
    if name.endswith((DELETE_SUFFIX, STRAY_SUFFIX)):
        return None
    match = _PARTITION_NAME.fullmatch(name)
    return (match[1], int(match[2])) if match else None


class LogDirectory:
    """One data directory, in use by this process alone. Made by ``open``."""

    def __init__(self, path: str, files: Files, clock: Clock, reserve: int) -> None:
        self.path = path
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self._files = files
        self._clock = clock
        self._pool = FilePool(files)
        self._retention_clock = RetentionClock()
        self._unlock = take_lock(files, path)
        try:
            self._room = DiskRoom(files, path, reserve) if reserve else None
            if self._room is not None:
                self._pool.out_of_room = self._out_of_room
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
        """Take the directory, which is made if it is not there, and ``reserve`` bytes of its disk. Raises
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
        """Read the checkpoints, and take away the mark of a clean shutdown: until the next there was none."""
        self._recovery_points = read_offsets(self._files, f"{self.path}/{RECOVERY_POINTS}")
        self._start_offsets = read_offsets(self._files, f"{self.path}/{LOG_START_OFFSETS}")
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

    def claim(self, cluster_id: str, node_id: int) -> None:
        """Check that this is the directory of that cluster and node, and write it down if it is new."""
        path = f"{self.path}/{META_PROPERTIES}"
        try:
            text = read_file(self._files, path).decode(errors="replace")
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
        known = dict(
            line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#")
        )
        for name, mine in (("version", "1"), ("cluster.id", cluster_id), ("node.id", str(node_id))):
            if known.get(name) != mine:
                raise DataDirectoryError(
                    f"{path} says {name}={known.get(name)}, this broker has {mine}: "
                    "the directory belongs to another broker; give the right one"
                )

    def open_log(
        self, topic: str, partition: int, config: TopicConfig, *, is_copy: bool = False
    ) -> PartitionLog:
        """Open a partition's log, made if it is not there, recovered if the last shutdown was not clean.
        ``is_copy``: of another broker's log, which alone gives offsets and epochs."""
        return self._open(topic, partition, config, clean=self.clean, is_copy=is_copy)

    def open_logs(
        self, wanted: Sequence[tuple[str, int, TopicConfig]], *, is_copy: bool = False
    ) -> list[PartitionLog]:
        """Open many at once. After a crash that is mostly waiting for the disk, which can do several."""
        if self.clean:
            return [self.open_log(*each, is_copy=is_copy) for each in wanted]
        with ThreadPoolExecutor(_OPENING_THREADS, "millstream-open") as threads:
            return list(threads.map(lambda each: self.open_log(*each, is_copy=is_copy), wanted))

    def _open(
        self, topic: str, partition: int, config: TopicConfig, *, clean: bool, is_copy: bool
    ) -> PartitionLog:
        key = (topic, partition)
        if key in self.logs:
            raise ValueError(f"{topic}-{partition} is open already")
        path = f"{self.path}/{topic}-{partition}"
        log = PartitionLog(
            topic,
            partition,
            config,
            path=path,
            pool=self._pool,
            clock=self._clock,
            save_start_offset=self._save_start_offsets,
            retention_clock=self._retention_clock,
        )
        try:
            new = not self._files.exists(path)
            if new:
                self._files.make_directory(path)
                self._forget_offsets(key)
            open_partition(
                log,
                new=new,
                clean=clean,
                recovery_point=self._recovery_points.get(key, 0),
                start_offset=self._start_offsets.get(key, 0),
                is_copy=is_copy,
            )
        except OSError as error:
            if error.errno in NO_ROOM:
                self._out_of_room()
            raise DataDirectoryError(f"can't open the log {path}: {error.strerror or error}") from error
        if self.full:
            log.suspend(LogFailed(self.full))
        self.logs[key] = log
        return log

    # Room

    @property
    def full(self) -> str:
        """What is to be said while the disk takes no records; empty while it does."""
        return self._room.why if self._room is not None and self._room.is_full else ""

    def make_room(self) -> bool:
        """Something that is not a log could not be written. From any thread; whether to try again."""
        return self._room is not None and self._room.refused()

    def look_for_room(self) -> None:
        """To be called several times a second: records are refused while the disk is full."""
        if self._room is not None and self._room.look():
            why = LogFailed(self.full) if self.full else None
            for log in self.logs.values():
                log.suspend(why)

    def _out_of_room(self) -> None:
        self.make_room()
        self.look_for_room()

    def _forget_offsets(self, key: tuple[str, int]) -> None:
        """What the checkpoints say of a log that was deleted does not hold for a new one of the same name."""
        known = (self._recovery_points.pop(key, None), self._start_offsets.pop(key, None))
        if known != (None, None):
            self.checkpoint()

    def cut_log(self, log: PartitionLog, offset: int) -> tuple[PartitionLog, Path]:
        """Take what is at ``offset`` and after away from a copy; the log as it is then, opened anew, and the
        directory in which the rest is kept, in files that any reader of logs reads."""
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
        return _in_place_of(log, self._open(*key, log.config, clean=False, is_copy=True)), Path(aside)

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
        """An empty copy that begins at ``offset``, in place of a log whose leader has nothing of it left."""
        key = (log.topic, log.partition)
        self.delete_log(*key)
        self._recovery_points.pop(key, None)
        self._start_offsets[key] = offset
        self._files.make_directory(log.path)
        self._files.sync_directory(self.path)
        return _in_place_of(log, self._open(*key, log.config, clean=False, is_copy=True))

    def delete_log(self, topic: str, partition: int) -> None:
        """Take a partition's log away. Once this returns it does not come back, even after a crash; its space
        is given back a little later."""
        log = self.logs.pop((topic, partition), None)
        if log is not None:
            log.abandon()
        path = f"{self.path}/{topic}-{partition}"
        if self._files.exists(path):
            self._files.discard([self._rename(path, DELETE_SUFFIX)])

    def strays(self, known: set[tuple[str, int]]) -> list[Path]:
        """Directories of partitions that are not among ``known``."""
        listing = self._files.listing(self.path)
        return [
            Path(self.path, name)
            for name, size in sorted(listing.items())
            if size == DIRECTORY and (found := partition_of(name)) is not None and found not in known
        ]

    def set_aside(self, path: Path) -> Path:
        """Rename a directory that nobody knows so that it is in nobody's way; its new name."""
        return Path(self._rename(str(path), STRAY_SUFFIX))

    def _new_name(self, path: str, suffix: str) -> str:
        # A file's name has 255 bytes at most, and a topic's may have 249.
        head, _, name = path.rpartition("/")
        suffix = f".{uuid.uuid4().hex}{suffix}"
        return f"{head}/{name[: 255 - len(suffix)]}{suffix}"

    def _rename(self, path: str, suffix: str) -> str:
        new = self._new_name(path, suffix)
        self._files.rename(path, new)
        self._files.sync_directory(self.path)
        return new

    def checkpoint(self) -> None:
        """Write down how far each log is synced and where it starts. To be called now and then: after a
        crash, only what lies beyond is read and checked. Blocks for a sync. May raise OSError."""
        for key, log in self.logs.items():
            self._recovery_points[key] = log.synced_offset
        write_offsets(self._files, f"{self.path}/{RECOVERY_POINTS}", self._recovery_points)
        self._save_start_offsets()

    def _save_start_offsets(self) -> None:
        for key, log in self.logs.items():
            if log.log_start_offset > log.archive.oldest_offset(log.segments[0].base_offset):
                self._start_offsets[key] = log.log_start_offset
            else:
                self._start_offsets.pop(key, None)
        write_offsets(self._files, f"{self.path}/{LOG_START_OFFSETS}", self._start_offsets)

    def close(self) -> None:
        """Close every log; if all went well, leave the mark that the next start need not check anything."""
        # Mostly waiting for the disk, which can do several at once.
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
    """A log opened anew asks and tells those that the old one did."""
    new.transactions_gate = old.transactions_gate
    new.start_moves = old.start_moves
    new.refuse(old.refusal)
    return new


def take_lock(files: Files, directory: str) -> Callable[[], None]:
    """Have a data directory for this process alone; what gives it back. Raises DataDirectoryError."""
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
        return False  # it has logged why
    return log.failed is None


class MemoryDirectory:
    """Logs in memory: for topics with ``millstream.storage=memory``, and brokers without a directory."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._directory = LogDirectory.open("/memory", files=MemoryFiles(), clock=clock)

    @property
    def logs(self) -> dict[tuple[str, int], PartitionLog]:
        return self._directory.logs

    def open_log(self, topic: str, partition: int, config: TopicConfig) -> PartitionLog:
        return self._directory.open_log(topic, partition, config)

    def delete_log(self, topic: str, partition: int) -> None:
        self._directory.delete_log(topic, partition)

    def close(self) -> None:
        """Everything is gone."""
        self._directory.logs.clear()
