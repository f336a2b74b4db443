"""One partition of one share group: which of its records are finished, given out, or to be given out.

Rules:

1. Everything that affects the delivery of records is here. Time is passed in, and nothing here does I/O.
2. A record is AVAILABLE until it is given out, then ACQUIRED by one member until that member acknowledges it
   or its lock runs out. A FINISHED record is never given out again.
3. The delivery count rises when a record is given out, and at no other time. A record that comes back with
   its count at the limit is given up: it is FINISHED.
4. A request's acknowledgements of a partition are all applied, or none is.
5. Records before the start offset are finished, whatever a member says of them later.
6. Only what is decided is saved: finished records, and how often the others were delivered. A record that is
   acquired is saved as it was before, because its delivery may end with the broker.

Theory: the partition's records are in three parts. Before ``start_offset`` all are finished. From ``end`` on,
none was ever looked at. Between them, runs of records (``InFlight``) follow each other without a hole, in the
order of their offsets. What is finished at the front is dropped, so ``start_offset`` is the oldest unfinished
record, and what is finished elsewhere is merged with its neighbours. So memory depends on the unfinished
records, which are limited, and not on the backlog.

A run is what was given out together, and mostly it is acknowledged so. Then each step costs one operation
for the run, however many records it has.

    from        by                              to
    AVAILABLE   acquire                         ACQUIRED
    AVAILABLE   the log, which lacks it         FINISHED
    ACQUIRED    accept, reject, gap             FINISHED
    ACQUIRED    release, time-out, leave        AVAILABLE, or FINISHED at the limit
    ACQUIRED    renew                           ACQUIRED, with a new lock
    any         the log starts after it         FINISHED
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from millstream.broker.groups.share.in_flight import (
    ACQUIRED,
    AVAILABLE,
    FINISHED,
    MIXED,
    NEVER,
    InFlight,
)
from millstream.core.errors import RequestRefused
from millstream.core.group_config import GroupConfig
from millstream.core.kafka_errors import INVALID_RECORD_STATE, INVALID_REQUEST

# The types of an acknowledgement, with Kafka's numbers.
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)

_FINISHED = bytes((FINISHED,))
_AFTER = bytes.maketrans(bytes(range(4)), bytes((FINISHED, FINISHED, AVAILABLE, FINISHED)))  # state by type
_AT_LIMIT = bytes.maketrans(bytes(range(4)), bytes((FINISHED,) * 4))


def _halved_from(settings: GroupConfig) -> int:
    """From this number of deliveries on, records are given out in half the batch each time, so that a record
    that kills its consumer ends up alone."""
    return max(2, (settings.share_delivery_count_limit + 1) // 2)


class Counts:
    """What happened to records, of all share partitions that share this object."""

    def __init__(self) -> None:
        self.given_out = 0
        self.acknowledged = [0] * 5  # by type
        self.timed_out = 0
        self.given_up = 0  # they came back once too often


class LogBatch(NamedTuple):
    """A batch of the log. ``is_offered`` is false if nobody is to see its records: it is a transaction's
    marker, or the group reads committed records and the batch was aborted."""

    first: int
    last: int
    is_offered: bool = True


class Acquired(NamedTuple):
    """Records given out, and for which time."""

    first: int
    last: int
    deliveries: int


class Acknowledgement(NamedTuple):
    """What a member says of these records: one type for all, or one for each."""

    first: int
    last: int
    types: bytes


class SharePartition:
    """See the module's description."""

    def __init__(self, start_offset: int, settings: GroupConfig, counts: Counts | None = None) -> None:
        self.settings = settings
        self.counts = counts or Counts()
        self.start_offset = start_offset
        self.end = start_offset  # the first offset that was never looked at
        self.unfinished = 0  # records between start_offset and end that are available or acquired
        self.revision = 0  # incremented with every change that is to be saved
        self.wake_at = NEVER  # no lock runs out earlier than this
        self._runs: list[InFlight] = []
        self._firsts: list[int] = []  # of the runs
        self._available_from = start_offset  # no record before this is available

    @property
    def runs(self) -> Sequence[InFlight]:
        """The records between ``start_offset`` and ``end``."""
        return self._runs

    def lag(self, log_end: int) -> int:
        """The number of records that are not finished yet."""
        return max(0, log_end - self.end) + self.unfinished

    def count_of(self, state: int) -> int:
        return sum(run.count_of(state) for run in self._runs)

    # Giving records out

    def next_offset(self) -> int | None:
        """The offset to read from, for the next ``acquire``. None if nothing may be given out now."""
        for run in self._runs[self._index(self._available_from) :] if self._runs else ():
            found = run.first_available()
            if found >= 0:
                self._available_from = found
                return found
        self._available_from = self.end
        return None if self.unfinished >= self.settings.share_partition_max_record_locks else self.end

    def acquirable(self, first: int, last: int) -> int:
        """How many of these records can be given out now. Those that were never looked at count."""
        found = max(0, last - max(first, self.end) + 1)
        if first < self.end:
            for run in self._runs[self._index(max(first, self.start_offset)) :]:
                if run.first > last:
                    break
                found += run.count_of(AVAILABLE)
        return found

    def acquire(
        self,
        member: str,
        offset: int,
        batches: Sequence[LogBatch],
        now: float,
        *,
        max_records: int,
        batch_size: int = 0,
        by_record: bool = False,
    ) -> list[Acquired]:
        """Give records to a member: some of ``batches``, which were read from ``offset`` on, in order.

        Offsets between the batches are in no batch: compaction has removed them. Records are given out by
        whole runs and batches, so more than ``max_records`` may be; or, ``by_record``, exactly as many at
        most. New batches are put together to runs of about ``batch_size`` records.
        """
        deadline = now + self.settings.share_record_lock_duration_ms / 1000
        taken: list[Acquired] = []
        left = max_records
        known, new = self._pieces(offset, batches)
        for first, last, is_offered in known:
            if not is_offered:
                self._finish_available(first, last)
            elif left > 0:
                left = self._take_known(member, first, last, deadline, left, taken, by_record=by_record)
        if left > 0:
            self._take_new(member, new, deadline, left, taken, batch_size=batch_size, by_record=by_record)
        if taken:
            self.wake_at = min(self.wake_at, deadline)
            self.counts.given_out += sum(last - first + 1 for first, last, _ in taken)
        self._drop_finished()
        return taken

    def _pieces(self, offset: int, batches: Iterable[LogBatch]) -> tuple[list[LogBatch], list[LogBatch]]:
        """The batches from ``offset`` on without holes, divided at ``end``. Those before it are merged."""
        known: list[LogBatch] = []
        new: list[LogBatch] = []

        def add(first: int, last: int, is_offered: bool) -> None:
            if first < self.end:
                before = min(last, self.end - 1)
                if known and known[-1].is_offered == is_offered:
                    first = known.pop().first
                known.append(LogBatch(first, before, is_offered))
                first = before + 1
            if first <= last:
                new.append(LogBatch(first, last, is_offered))

        at = max(offset, self.start_offset)
        for first, last, is_offered in batches:
            if first > at:
                add(at, first - 1, False)
                at = first
            if last >= at:
                add(at, last, is_offered)
                at = last + 1
        return known, new

    def _take_known(
        self,
        member: str,
        first: int,
        last: int,
        deadline: float,
        left: int,
        taken: list[Acquired],
        *,
        by_record: bool,
    ) -> int:
        """Give out what is available of these records. Returns how many more may be; 0 to stop."""
        halved_from = _halved_from(self.settings)
        at = max(first, self.start_offset)
        while at <= last and left > 0:
            number = self._index(at)
            run = self._runs[number]
            if run.state == MIXED and run.count_of(AVAILABLE):
                self._replace(number, run.runs())
                continue
            if run.state == AVAILABLE:
                if run.first < at:
                    self._cut(number, at)
                    continue
                size = min(run.last, last) - at + 1
                is_alone = run.count >= halved_from
                if is_alone:
                    if taken:
                        return 0
                    size = min(size, self._share_of(run))
                if by_record:
                    size = min(size, left)
                if size < len(run):
                    self._cut(number, at + size)
                run.state, run.owner, run.deadline = ACQUIRED, member, deadline
                run.count += 1
                taken.append(Acquired(at, run.last, run.count))
                left = 0 if is_alone else left - size
            at = run.last + 1
        return left

    def _share_of(self, run: InFlight) -> int:
        """How many records of a run that failed several times are given out together."""
        limit = self.settings.share_delivery_count_limit
        if run.count >= limit - 1 and limit > 2:
            return 1
        return max(1, run.size >> (run.count - _halved_from(self.settings) + 1))

    def _take_new(
        self,
        member: str,
        pieces: Sequence[LogBatch],
        deadline: float,
        left: int,
        taken: list[Acquired],
        *,
        batch_size: int,
        by_record: bool,
    ) -> None:
        """Give out what was never looked at, in runs as they will be acknowledged."""
        left = min(left, self.settings.share_partition_max_record_locks - self.unfinished)
        start, end = -1, self.end  # the run that is being put together

        def finish_run() -> None:
            if start >= 0:
                self._append(InFlight(start, end - 1, ACQUIRED, 1, owner=member, deadline=deadline))
                taken.append(Acquired(start, end - 1, 1))

        for first, last, is_offered in pieces:
            if left <= 0:
                break
            if not is_offered:
                finish_run()
                start = -1
                self._append(InFlight(first, last, FINISHED))
                continue
            if start < 0 or not (by_record or first - start < batch_size):
                finish_run()
                start = first
            size = last - first + 1
            if by_record and size > left:
                size = left
            left -= size
            end = first + size
        finish_run()

    def _append(self, run: InFlight) -> None:
        self._runs.append(run)
        self._firsts.append(run.first)
        self.end = run.last + 1
        if run.state == FINISHED:
            self.revision += 1
            self._merge(len(self._runs) - 1)
        else:
            self.unfinished += len(run)

    # What members say

    def acknowledge(self, member: str, given: Sequence[Acknowledgement], now: float) -> None:
        """Apply a member's acknowledgements, which are in order and don't overlap. Those of records before
        the start are ignored. Raises RequestRefused, with nothing changed."""
        for each in given:
            self._check(member, each)
        before = self.revision
        for first, last, types in given:
            if last >= self.start_offset:
                if first < self.start_offset:
                    types = types if len(types) == 1 else types[self.start_offset - first :]
                    first = self.start_offset
                self._apply(first, last, types, now)
        if self.revision != before:
            self._drop_finished()

    def _check(self, member: str, given: Acknowledgement) -> None:
        if given.last >= self.end:
            raise RequestRefused(
                INVALID_REQUEST, f"offset {given.last} was not delivered yet; it can't be acknowledged"
            )
        if RENEW in given.types and not self.settings.share_renew_acknowledge_enable:
            raise RequestRefused(
                INVALID_RECORD_STATE, "share.renew.acknowledge.enable is false for this group"
            )
        at = max(given.first, self.start_offset)
        while at <= given.last:
            run = self._runs[self._index(at)]
            last = min(run.last, given.last)
            if not run.is_held_by(member, at, last):
                raise RequestRefused(
                    INVALID_RECORD_STATE,
                    f"offsets {at} to {last} are not acquired by this member: they are acknowledged already, "
                    "or their lock has run out",
                )
            at = last + 1

    def _apply(self, first: int, last: int, types: bytes, now: float) -> None:
        """Apply a member's acknowledgement of records that it holds."""
        if len(types) > 1 and RENEW in types:
            start = 0
            while start < len(types):
                stop = start + 1
                while stop < len(types) and types[stop] == types[start]:
                    stop += 1
                self._apply(first + start, first + stop - 1, types[start : start + 1], now)
                start = stop
            return
        at = first
        while at <= last:
            number = self._index(at)
            run = self._runs[number]
            until = min(run.last, last)
            if types[0] == RENEW:
                self._renew(number, at, until, now)
            else:
                at_limit = run.count >= self.settings.share_delivery_count_limit
                part = types if len(types) == 1 else types[at - first : until - first + 1]
                each = until - at + 1 if len(part) == 1 else 1
                for kind in part if len(part) == 1 else set(part):
                    self.counts.acknowledged[kind] += part.count(kind) * each
                if at_limit:
                    self.counts.given_up += part.count(RELEASE) * each
                self._set(number, at, until, part.translate(_AT_LIMIT if at_limit else _AFTER))
            at = until + 1

    def _renew(self, number: int, first: int, last: int, now: float) -> None:
        run = self._runs[number]
        if last < run.last:
            self._cut(number, last + 1)
        if first > run.first:
            run = self._cut(number, first)
        run.deadline = now + self.settings.share_record_lock_duration_ms / 1000
        self.counts.acknowledged[RENEW] += len(run)

    def _set(self, number: int, first: int, last: int, states: bytes) -> None:
        """Decide about acquired records of one run: one state for all, or one for each."""
        self.revision += 1
        available = states.count(AVAILABLE) * (last - first + 1 if len(states) == 1 else 1)
        self.unfinished -= last - first + 1 - available
        if available and first < self._available_from:
            self._available_from = first
        run = self._runs[number]
        run.mark(first, last, states)
        if run.state == FINISHED:
            self._merge(number)

    # Records that come back

    def release(self, member: str) -> bool:
        """Take back all that a member holds: it has left. True if that was anything."""
        return self._take_back([run for run in self._runs if run.owner == member])

    def expire(self, now: float) -> bool:
        """Take back the records whose lock has run out. True if there are any."""
        if now < self.wake_at:
            return False
        overdue = [run for run in self._runs if run.deadline <= now]
        self.counts.timed_out += sum(run.count_of(ACQUIRED) for run in overdue)
        has_changed = self._take_back(overdue)
        self.wake_at = min((run.deadline for run in self._runs), default=NEVER)
        return has_changed

    def _take_back(self, runs: Sequence[InFlight]) -> bool:
        for run in runs:
            state = FINISHED if run.count >= self.settings.share_delivery_count_limit else AVAILABLE
            held = run.count_of(ACQUIRED)
            if state == FINISHED:
                self.unfinished -= held
                self.counts.given_up += held
            elif run.first < self._available_from:
                self._available_from = run.first
            if run.marks is None:
                run.state = state
            else:
                run.marks = run.marks.replace(bytes((ACQUIRED,)), bytes((state,)))
                run.unify()
            run.owner, run.deadline = "", NEVER
        if runs:
            self.revision += 1
            for run in runs:
                if run.state == FINISHED:
                    self._merge(self._index(run.first))
            self._drop_finished()
        return bool(runs)

    # The log

    def on_log_start(self, offset: int) -> bool:
        """The log starts at ``offset`` now: records before it are finished. True if that changes anything."""
        if offset <= self.start_offset:
            return False
        self.revision += 1
        if offset >= self.end:
            self._begin_at(offset)
            return True
        number = self._index(offset)
        if self._runs[number].first < offset:
            self._cut(number, offset)
            number += 1
        self.unfinished -= sum(run.unfinished for run in self._runs[:number])
        del self._runs[:number]
        del self._firsts[:number]
        self._drop_finished()
        return True

    def seek(self, offset: int) -> None:
        """Forget everything and begin at ``offset``."""
        self.revision += 1
        self._begin_at(offset)

    def _begin_at(self, offset: int) -> None:
        self._runs.clear()
        self._firsts.clear()
        self.start_offset = self.end = self._available_from = offset
        self.unfinished = 0

    def restore(self, runs: Iterable[InFlight]) -> None:
        """Continue with saved runs, which begin at ``start_offset`` and have no holes."""
        for run in runs:
            self._runs.append(run)
            self._firsts.append(run.first)
            self.end = run.last + 1
            self.unfinished += run.unfinished
        self._drop_finished()

    def _finish_available(self, first: int, last: int) -> None:
        """These offsets are not to be given out: finish those that are not acquired."""
        at = max(first, self.start_offset)
        while at <= last:
            number = self._index(at)
            run = self._runs[number]
            if run.state == MIXED and run.count_of(AVAILABLE):
                self._replace(number, run.runs())
                continue
            until = min(run.last, last)
            if run.state == AVAILABLE:
                self._set(number, at, until, bytes((FINISHED,)))
            at = until + 1

    # The list of runs

    def _index(self, offset: int) -> int:
        """The number of the run that holds ``offset``, which is between ``start_offset`` and ``end``."""
        return max(bisect_right(self._firsts, offset) - 1, 0)

    def _cut(self, number: int, offset: int) -> InFlight:
        """Divide a run, and return its second part."""
        rest = self._runs[number].cut(offset)
        self._runs.insert(number + 1, rest)
        self._firsts.insert(number + 1, offset)
        return rest

    def _replace(self, number: int, runs: list[InFlight]) -> None:
        self._runs[number : number + 1] = runs
        self._firsts[number : number + 1] = [run.first for run in runs]

    def _merge(self, number: int) -> None:
        """Merge a finished run with finished neighbours."""
        low, high = number, number + 1
        while low > 0 and self._runs[low - 1].state == FINISHED:
            low -= 1
        while high < len(self._runs) and self._runs[high].state == FINISHED:
            high += 1
        if high - low > 1:
            merged = InFlight(self._runs[low].first, self._runs[high - 1].last, FINISHED)
            self._runs[low:high] = [merged]
            self._firsts[low:high] = [merged.first]

    def _drop_finished(self) -> None:
        """Move the start past what is finished at the front."""
        runs = self._runs
        done = 0
        while done < len(runs) and runs[done].state == FINISHED:
            done += 1
        if done < len(runs) and (marks := runs[done].marks) is not None:
            finished = len(marks) - len(marks.lstrip(_FINISHED))
            if finished:
                runs[done].trim(finished)
                self._firsts[done] += finished
        if done:
            del runs[:done]
            del self._firsts[:done]
        self.start_offset = self._firsts[0] if runs else self.end
        if self._available_from < self.start_offset:
            self._available_from = self.start_offset
