"""Reads every byte of a stopped broker's directory and reports what is wrong with it. Changes nothing.

``check_directory`` is the engine of ``millstream log check``. It yields a ``Finding`` for everything that
is wrong, a ``CheckProgress`` now and then, and one ``Summary`` at the end.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from millstream.core.errors import DataDirectoryError
from millstream.log.archive.journal import JOURNAL
from millstream.log.compaction.compaction import as_swapped, read_checkpoint
from millstream.log.directory import CLEAN_SHUTDOWN, LOCK, META_PROPERTIES, machine_stopped, partition_of
from millstream.log.epochs import LeaderEpochs
from millstream.log.producers import Producers
from millstream.log.recovery.replay import Replay
from millstream.log.recovery.shortfall import (
    ACCEPTED_LOSSES,
    HighestCommits,
    LogFacts,
    began_before,
    described,
    of_another_topic,
)
from millstream.log.segment.aborted import ENTRY, VERSION
from millstream.log.segment.index import OffsetIndex, TimeIndex
from millstream.log.segment.scan import Damage, ScannedBatch, is_cut_off
from millstream.log.segment.segment import (
    ABORTED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    file_name,
    offset_of,
)
from millstream.log.snapshots import SNAPSHOT_SUFFIX, load_snapshot
from millstream.log.storage.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS, read_offsets, write_offsets
from millstream.log.storage.files import DIRECTORY, FilePool, Files, OsFiles, read_file
from millstream.log.storage.partition_metadata import read_topic_id
from millstream.log.transactions import Aborted, PartitionTransactions

_NO_CEILING = (1 << 63) - 1
_PROGRESS_BYTES = 16 << 20
_BUILD_ANEW = (
    f"remove {CLEAN_SHUTDOWN} and {RECOVERY_POINTS} from the directory, and the next start rebuilds it"
)

DAMAGE = "damage"  # records that are lost
TORN = "torn"  # the end of a write that a crash cut off: the next start truncates it
INDEX = "index"  # derived data that is wrong or missing: rebuilt when it is needed
GAP = "gap"  # offsets that are in no file
SHORT = "short"  # a log that ends before its last known end: the partition stays offline
CATALOGUE = "catalogue"  # the broker does not start with it
TRANSACTIONS = "transactions"  # a wrong index of aborted transactions: nothing else reveals it


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong. ``position`` is a byte position in ``file``."""

    kind: str
    partition: str
    file: str
    position: int
    message: str

    @property
    def loses_records(self) -> bool:
        return self.kind in (DAMAGE, GAP, SHORT)

    @property
    def misleads_readers(self) -> bool:
        """True if readers of committed records may get aborted ones, or miss committed ones."""
        return self.kind == TRANSACTIONS

    @property
    def stops_the_broker(self) -> bool:
        return self.kind == CATALOGUE

    def __str__(self) -> str:
        if self.kind in (SHORT, CATALOGUE):
            return self.message
        return f"{self.file} at byte {self.position}: {self.message}"


@dataclass(frozen=True, slots=True)
class CheckProgress:
    """How far the check has come."""

    partition: str
    bytes_read: int
    bytes_total: int


@dataclass(slots=True)
class Summary:
    """What was read, and the number of findings of each kind."""

    clean_shutdown: bool
    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    open_transactions: int = 0
    aborted_transactions: int = 0
    bytes: int = 0
    damage: int = 0
    torn: int = 0
    index: int = 0
    gap: int = 0
    transactions: int = 0
    short: int = 0
    catalogue: int = 0

    @property
    def sound(self) -> bool:
        return not any(
            (
                self.damage,
                self.torn,
                self.index,
                self.gap,
                self.transactions,
                self.short,
                self.catalogue,
            )
        )


Expected = Mapping[tuple[str, int], HighestCommits]  # the partitions that should exist
TopicIds = Mapping[str, uuid.UUID]


def check_directory(
    path: str | Path,
    *,
    files: Files | None = None,
    expected: Expected | None = None,
    topic_ids: TopicIds | None = None,
    first: Sequence[Finding] = (),
) -> Iterator[Finding | CheckProgress | Summary]:
    """Check every partition, including those that only the catalogue knows. ``topic_ids`` are the
    catalogue's. Findings that the caller has already made are yielded ``first``. Raises DataDirectoryError
    if the directory can't be read, is not a broker's, or is used by a running broker."""
    checking = _open(path, files)
    if not checking.is_used:
        raise DataDirectoryError(f"{path} is not the data directory of a broker: it has no {META_PROPERTIES}")
    checking.expected = expected or {}
    checking.topic_ids = topic_ids or {}
    yield from checking.run(first)


def accept_losses(
    path: str | Path,
    names: Sequence[str],
    expected: Expected,
    *,
    topic_ids: TopicIds | None = None,
    files: Files | None = None,
) -> list[Finding]:
    """Make the next start continue without what is missing from these partitions. Returns what is
    missing. Raises DataDirectoryError, and changes nothing, if nothing is missing from one of them."""
    checking = _open(path, files)
    checking.expected = expected
    checking.topic_ids = topic_ids or {}
    found = []
    accepted = read_offsets(checking.files, f"{checking.root}/{ACCEPTED_LOSSES}")
    for name in names:
        key = partition_of(name)
        if key is None:
            raise DataDirectoryError(f"{name} is not a partition; write TOPIC-NUMBER, like orders-0")
        short = [item for item in checking.length_of(key) if isinstance(item, Finding) and item.kind == SHORT]
        if not short:
            raise DataDirectoryError(
                f"nothing is missing of {name} in {checking.root}: there is no loss to accept"
            )
        found += short
        accepted[key] = checking.known(key).end_offset
    write_offsets(OsFiles() if files is None else files, f"{checking.root}/{ACCEPTED_LOSSES}", accepted)
    return found


def _open(path: str | Path, files: Files | None) -> _Check:
    files = files or OsFiles(read_only=True)
    root = os.path.abspath(path)
    try:
        listing = files.listing(root)
    except OSError as error:
        raise DataDirectoryError(
            f"can't read the data directory {root}: {error.strerror or error}"
        ) from error
    if LOCK in listing and files.is_locked(f"{root}/{LOCK}"):
        holder = read_file(files, f"{root}/{LOCK}").decode(errors="replace").strip()
        raise DataDirectoryError(f"a broker (process {holder}) uses {root}; stop it first")
    return _Check(files, root, listing)


class _Check:
    def __init__(self, files: Files, root: str, listing: dict[str, int]) -> None:
        self.files = files
        self.root = root
        self.pool = FilePool(files)
        self.partitions = sorted(n for n, size in listing.items() if size == DIRECTORY and partition_of(n))
        self.is_used = bool(self.partitions or listing.keys() & {LOCK, META_PROPERTIES, RECOVERY_POINTS})
        self.summary = Summary(CLEAN_SHUTDOWN in listing, len(self.partitions))
        self.read = 0
        self.total = 0
        self.expected: Expected = {}
        self.topic_ids: TopicIds = {}
        self.points = read_offsets(files, f"{root}/{RECOVERY_POINTS}")
        self.starts = read_offsets(files, f"{root}/{LOG_START_OFFSETS}")
        self.machine_stopped = not self.summary.clean_shutdown and machine_stopped(files, root)

    def known(self, key: tuple[str, int]) -> LogFacts:
        known = LogFacts(
            self.points.get(key, 0),
            self.starts.get(key, 0),
            self.expected.get(key, HighestCommits()),
            was_there=key in self.points or key in self.starts,
        )
        return known if "-".join(map(str, key)) in self.partitions else known.without_directory()

    def run(self, first: Sequence[Finding]) -> Iterator[Finding | CheckProgress | Summary]:
        for item in self._run(first):
            if isinstance(item, Finding):
                setattr(self.summary, item.kind, getattr(self.summary, item.kind) + 1)
            yield item
        yield self.summary

    def _run(self, first: Sequence[Finding]) -> Iterator[Finding | CheckProgress]:
        yield from first
        listings = {name: self.files.listing(f"{self.root}/{name}") for name in self.partitions}
        self.total = sum(
            size
            for listing in listings.values()
            for name, size in listing.items()
            if name.endswith(LOG_SUFFIX)
        )
        for name in self.partitions:
            yield from self._partition(name, listings[name])
        for key in sorted(self.expected):
            if f"{key[0]}-{key[1]}" not in self.partitions:
                yield from self.length_of(key)

    def length_of(self, key: tuple[str, int]) -> Iterator[Finding | CheckProgress]:
        """Check one partition, or report that its directory is missing."""
        name = f"{key[0]}-{key[1]}"
        if name in self.partitions:
            yield from self._partition(name, self.files.listing(f"{self.root}/{name}"))
        else:
            yield from self._length(name, self.known(key), None)

    def _length(self, partition: str, known: LogFacts, end: int | None) -> Iterator[Finding]:
        path = f"{self.root}/{partition}"
        missing = known.missing(end, machine_stopped=self.machine_stopped)
        if missing:
            yield Finding(SHORT, partition, path, 0, described(partition, path, end, missing, known))

    def _partition(self, partition: str, listing: dict[str, int]) -> Iterator[Finding | CheckProgress]:
        key = partition_of(partition)
        assert key is not None
        known = self.known(key)
        recovery_point = known.recovery_point
        directory = f"{self.root}/{partition}"
        wanted, named = self.topic_ids.get(key[0]), read_topic_id(self.files, directory)
        if wanted is not None and named is not None and named != wanted:
            yield Finding(
                SHORT, partition, directory, 0, of_another_topic(partition, directory, named, wanted)
            )
            return
        listing, stages = as_swapped(self.files, directory, listing)
        _, gaps_below = read_checkpoint(self.files, directory)
        bases = sorted(offset_of(n) for n in listing if n.endswith(LOG_SUFFIX) and offset_of(n) >= 0)
        if self.summary.clean_shutdown and bases:
            epochs = LeaderEpochs(self.files, directory)
            epochs.load()
            if began := began_before(epochs.entries, bases[0], JOURNAL in listing):
                path = f"{directory}/{file_name(bases[0])}{LOG_SUFFIX}"
                message = f"offsets {began.start} to {began.stop - 1} are missing: the log began there"
                yield Finding(GAP, partition, path, 0, message)
        end = 0
        transactions = self._transactions(directory, listing, bases, is_compacted=gaps_below > 0)
        for number, base in enumerate(bases):
            name = file_name(base)
            segment = Segment(
                self.pool,
                f"{directory}/{name}",
                base,
                size=listing[name + LOG_SUFFIX],
                index_size=listing.get(name + INDEX_SUFFIX, 0),
                times_size=listing.get(name + TIME_INDEX_SUFFIX, 0),
                aborted_size=listing.get(name + ABORTED_SUFFIX, 0),
                gaps=base < gaps_below,
            )
            segment.stand_at(lambda suffix, name=name: stages.get(name + suffix, ""))  # type: ignore[misc]
            last = number + 1 == len(bases)
            ceiling = _NO_CEILING if last else bases[number + 1]
            end = yield from self._segment(partition, segment, ceiling, recovery_point, transactions)
            self.summary.segments += 1
        self.summary.aborted_transactions += transactions.aborted
        self.summary.open_transactions += transactions.open
        for name in sorted(listing):
            if name.endswith(SNAPSHOT_SUFFIX) and not load_snapshot(
                read_file(self.files, f"{directory}/{name}"), Producers(), PartitionTransactions()
            ):
                yield Finding(
                    INDEX, partition, f"{directory}/{name}", 0, "the producers' snapshot is damaged"
                )
        if bases or JOURNAL not in listing:  # otherwise all of it may be in the archive
            yield from self._length(partition, known, end)

    def _transactions(
        self, directory: str, listing: dict[str, int], bases: list[int], *, is_compacted: bool
    ) -> _Transactions:
        """The state at the start of the first segment, as far as it is known."""
        replay = Replay(Producers(), PartitionTransactions(), now_ms=0)
        is_known = bases[:1] == [0]
        name = f"{file_name(bases[0])}{SNAPSHOT_SUFFIX}" if bases else ""
        if name in listing:
            snapshot = read_file(self.files, f"{directory}/{name}")
            is_known = load_snapshot(snapshot, replay.producers, replay.transactions)
        return _Transactions(replay, is_known=is_known, is_compacted=is_compacted)

    def _segment(
        self,
        partition: str,
        segment: Segment,
        ceiling: int,
        recovery_point: int,
        transactions: _Transactions,
    ) -> Generator[Finding | CheckProgress, None, int]:
        """Check one segment and its indexes. Returns the offset after its last record."""
        path = segment.log.path
        last = ceiling == _NO_CEILING
        indexes = _Indexes(self.files, segment)
        end = segment.base_offset
        reported = self.read
        for item in segment.scan(0, segment.size, segment.base_offset, ceiling, 0):
            transactions.follow(segment, item)
            if isinstance(item, Damage):
                torn = last and item.tail and item.first_offset >= recovery_point
                offsets = "" if item.tail else f", offsets {item.first_offset} to {item.next_offset - 1}"
                message = f"{item.reason} ({item.size} bytes{offsets})"
                yield Finding(TORN if torn else DAMAGE, partition, path, item.position, message)
                end = item.next_offset
                if last and item.tail:
                    is_gone = torn or is_cut_off(segment.log.get(), item)
                    end = item.first_offset if is_gone else max(recovery_point, item.first_offset + 1)
                self.read += item.size
                continue
            indexes.compare(item)
            self.summary.batches += 1
            self.summary.records += item.header.record_count
            self.summary.bytes += item.header.size
            self.read += item.header.size
            end = item.header.next_offset
            if self.read - reported >= _PROGRESS_BYTES:
                reported = self.read
                yield CheckProgress(partition, self.read, self.total)
        if not last and end < ceiling:
            message = f"the file ends after offset {end - 1}, the next one starts at {ceiling}"
            yield Finding(GAP, partition, path, segment.size, message)
        if self.summary.clean_shutdown or not last:
            # After a crash, the last segment's indexes are rebuilt anyway.
            for file, position, message in indexes.wrong():
                yield Finding(INDEX, partition, file, position, message)
            for position, message in transactions.wrong(segment):
                yield Finding(TRANSACTIONS, partition, segment.aborted.path, position, message)
        yield CheckProgress(partition, self.read, self.total)
        return end


class _Transactions:
    """Compares a partition's indexes of aborted transactions with its batches. After a damaged batch
    nothing more is reported, because it may have begun or ended any transaction. Compaction removes
    aborted records and keeps markers for a while: a transaction may then begin later than its entry says,
    or have no records left."""

    def __init__(self, replay: Replay, *, is_known: bool, is_compacted: bool) -> None:
        self._replay = replay
        self._is_known = is_known
        self._is_compacted = is_compacted
        self._aborted: list[Aborted] = []  # of the current segment
        self._markers: set[tuple[int, int]] = set()  # offset and producer of markers that ended nothing
        self.aborted = 0

    @property
    def open(self) -> int:
        return len(self._replay.transactions.open)

    def follow(self, segment: Segment, item: ScannedBatch | Damage) -> None:
        if isinstance(item, Damage):
            self._is_known = False
            return
        aborted = self._replay.show(segment, item)
        if aborted is not None:
            self._aborted.append(aborted)
            self.aborted += 1
        elif item.header.is_control:
            self._markers.add((item.header.base_offset, item.header.producer_id))

    def _is_right(self, entry: Aborted, expected: Aborted | None) -> bool:
        if not self._is_compacted:
            return entry == expected
        if expected is None:
            return (entry.last_offset, entry.producer_id) in self._markers
        return entry.producer_id == expected.producer_id and entry.first_offset <= expected.first_offset

    def wrong(self, segment: Segment) -> Iterator[tuple[int, str]]:
        """(position, message) for every wrong or missing entry of the segment's index."""
        expected = {entry.last_offset: entry for entry in self._aborted}
        self._aborted.clear()
        index = segment.aborted
        if not self._is_known:
            return
        if not index.is_whole:
            yield index.count * ENTRY.size, f"the last entry is cut off; {_BUILD_ANEW}"
        for number, version in enumerate(index.versions()):
            entry = index.entry(number)
            if not self._is_right(entry, expected.pop(entry.last_offset, None)) or version != VERSION:
                yield number * ENTRY.size, f"entry {number}: no such transaction was aborted; {_BUILD_ANEW}"
        for missing in expected.values():
            message = (
                f"no entry for the aborted transaction of producer {missing.producer_id}, "
                f"offsets {missing.first_offset} to {missing.last_offset}; {_BUILD_ANEW}"
            )
            yield index.count * ENTRY.size, message


class _Indexes:
    """Compares a segment's indexes with its batches as they are scanned."""

    def __init__(self, files: Files, segment: Segment) -> None:
        self._files = files
        self._segment = segment
        self._offsets = _entries(segment.index)
        self._times = _entries(segment.times)
        self._positions = {position: number for number, (_, position) in enumerate(self._offsets)}
        self._last_offsets = {relative: number for number, (_, relative) in enumerate(self._times)}
        self._right_offsets: set[int] = set()
        self._right_times: set[int] = set()
        self._largest = -1

    def compare(self, batch: ScannedBatch) -> None:
        header = batch.header
        self._largest = max(self._largest, header.newest_ms)
        relative = header.last_offset - self._segment.base_offset
        number = self._positions.get(batch.position)
        if number is not None and self._offsets[number][0] == relative:
            self._right_offsets.add(number)
        number = self._last_offsets.get(relative)
        if number is not None and self._times[number][0] == header.newest_ms == self._largest:
            self._right_times.add(number)

    def wrong(self) -> Iterator[tuple[str, int, str]]:
        """(file, position, message) for everything that is wrong in the indexes."""
        segment = self._segment
        for index in (segment.index, segment.times):
            if index is segment.times:
                is_intact = index.intact(segment.size) or (self._largest < 0 and index.count == 0)
            else:
                is_intact = segment.has_intact_index()
            if not self._files.exists(index.path) or not is_intact:
                yield (
                    index.path,
                    0,
                    "missing, or not an index of this log; it is rebuilt when needed",
                )
                return
        for number, (relative, position) in enumerate(self._offsets):
            if number not in self._right_offsets:
                message = (
                    f"entry {number}: no batch at byte {position} ends with {segment.base_offset + relative}"
                )
                yield segment.index.path, number * segment.index.ENTRY.size, message
        for number, (timestamp, relative) in enumerate(self._times):
            if number not in self._right_times:
                offset = segment.base_offset + relative
                message = (
                    f"entry {number}: no batch that ends with {offset} is the first to reach {timestamp}"
                )
                yield segment.times.path, number * segment.times.ENTRY.size, message
        if self._times and self._times[-1][0] < self._largest:
            message = f"the last entry is {self._times[-1][0]}, the newest record's time is {self._largest}"
            yield segment.times.path, len(self._times) * segment.times.ENTRY.size, message


def _entries(index: OffsetIndex | TimeIndex) -> list[tuple[int, int]]:
    return [index.entry(number) for number in range(index.count)]
