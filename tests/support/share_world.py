"""One share partition under a seed: a log that grows and loses its start, members that acknowledge in every
way or not at all, locks that run out, and a broker that is killed between its saves.

Beside the partition runs a model that keeps every record by itself. After each step both must agree on each
record, and what was given out must have been free to give.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from millstream.broker.groups.share.in_flight import (
    ACQUIRED,
    AVAILABLE,
    FINISHED,
    MIXED,
)
from millstream.broker.groups.share.saved_state import restored, to_bytes
from millstream.broker.groups.share.share_partition import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    Acquired,
    LogBatch,
    SharePartition,
)
from millstream.core.errors import RequestRefused
from millstream.core.group_config import GroupConfig

MEMBERS = ("ada", "bob")


@dataclass
class Record:
    state: int = AVAILABLE
    count: int = 0
    owner: str = ""
    deadline: float = 0.0

    def copy(self) -> Record:
        return Record(self.state, self.count, self.owner, self.deadline)


@dataclass
class Fate:
    """What became of a record, over all lives of the broker."""

    deliveries: int = 0
    accepted: bool = False  # and saved: it must never be given out again
    given_up: bool = False


@dataclass
class ShareWorld:
    seed: int
    settings: GroupConfig = field(default_factory=lambda: GroupConfig(share_partition_max_record_locks=40))

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.now = 0.0
        self.log: list[LogBatch] = []
        self.log_start = 0
        self.log_end = 0
        self.model: dict[int, Record] = {}
        self.fates: dict[int, Fate] = {}
        self.unsaved: list[int] = []  # accepted, but not saved yet
        self.partition = SharePartition(0, self.settings)
        self.saved = (0, b"")
        self.saved_model: dict[int, Record] = {}

    @property
    def lock(self) -> float:
        return self.settings.share_record_lock_duration_ms / 1000

    # Steps

    def run(self, steps: int) -> None:
        choices = [
            (self.append, 4),
            (self.fetch, 10),
            (self.acknowledge, 14),
            (self.acknowledge_badly, 2),
            (self.wait, 3),
            (self.leave, 1),
            (self.save, 5),
            (self.crash, 1),
            (self.trim, 1),
        ]
        for _ in range(steps):
            step = self.random.choices([c for c, _ in choices], [w for _, w in choices])[0]
            step()
            self.check()

    def append(self) -> None:
        roll = self.random.random()
        first = self.log_end + (self.random.randint(1, 3) if roll < 0.1 else 0)  # compaction left a gap
        size = 1 if roll > 0.9 else self.random.randint(1, 12)
        batch = LogBatch(first, first + size - 1, self.random.random() > 0.1)
        self.log.append(batch)
        self.log_end = batch.last + 1

    def fetch(self, member: str = "", *, most: int = 0) -> list[Acquired]:
        member = member or self.random.choice(MEMBERS)
        offset = self.partition.next_offset()
        if offset is None or offset >= self.log_end:
            return []
        most = most or self.random.choice((1, 3, 10, 50))
        by_record = self.random.random() < 0.4
        batches = []
        enough = 0
        for batch in self.log:
            if batch.last >= offset:
                batches.append(batch)
                enough += self.partition.acquirable(batch.first, batch.last) if batch.is_offered else 0
                if enough >= most:
                    break
        taken = self.partition.acquire(
            member, offset, batches, self.now, max_records=most, batch_size=8, by_record=by_record
        )
        self.note_taken(member, taken, batches, most if by_record else 0)
        # What is in the log but not offered is finished once it was looked at.
        end = self.partition.end
        offered = {o for b in batches if b.is_offered for o in range(b.first, b.last + 1)}
        for at in range(max(offset, self.partition.start_offset), min(batches[-1].last + 1, end)):
            record = self.model.setdefault(at, Record())
            if at not in offered and record.state == AVAILABLE:
                record.state = FINISHED
        assert taken or not enough, "records could be given out, and were not"
        return taken

    def note_taken(self, member: str, taken: list[Acquired], batches: list[LogBatch], at_most: int) -> None:
        offered = {o for b in batches if b.is_offered for o in range(b.first, b.last + 1)}
        before = -1
        total = 0
        for first, last, deliveries in taken:
            assert first > before, "ranges overlap"
            before = last
            for at in range(first, last + 1):
                assert at in offered
                record = self.model.setdefault(at, Record())
                assert record.state == AVAILABLE, at
                record.state, record.owner, record.deadline = ACQUIRED, member, self.now + self.lock
                record.count += 1
                assert record.count == deliveries <= self.settings.share_delivery_count_limit
                fate = self.fates.setdefault(at, Fate())
                assert not fate.accepted, f"{at} was accepted and is given out again"
                fate.deliveries += 1
                total += 1
            if deliveries > max(2, (self.settings.share_delivery_count_limit + 1) // 2):
                assert len(taken) == 1, "a record that failed often is given out alone"
        if at_most:
            assert total <= at_most

    def held(self, member: str) -> list[int]:
        return sorted(o for o, r in self.model.items() if r.state == ACQUIRED and r.owner == member)

    def acknowledge(self, member: str = "", kinds: tuple[int, ...] = ()) -> None:
        member = member or self.random.choice(MEMBERS)
        held = self.held(member)
        if not held:
            return
        kinds = kinds or self.random.choice(
            (
                (ACCEPT,),
                (ACCEPT,),
                (ACCEPT,),
                (RELEASE,),
                (ACCEPT, RELEASE),
                (ACCEPT, REJECT, GAP, RELEASE, RENEW),
            )
        )
        given = []
        at = self.random.choice(held) if self.random.random() < 0.5 else held[0]
        while at in self.model and self.model[at].state == ACQUIRED and self.model[at].owner == member:
            last = at
            longest = self.random.choice((1, 4, 100))
            while (
                last + 1 - at < longest
                and (after := self.model.get(last + 1)) is not None
                and after.state == ACQUIRED
                and after.owner == member
            ):
                last += 1
            if self.random.random() < 0.6:
                types = bytes((self.random.choice(kinds),))
            else:
                types = bytes(self.random.choice(kinds) for _ in range(at, last + 1))
            given.append(Acknowledgement(at, last, types))
            at = last + 1
        late = self.partition.start_offset - 1
        ignored = [Acknowledgement(late, late, bytes((ACCEPT,)))]
        self.partition.acknowledge(
            member, ignored + given if late >= 0 and self.random.random() < 0.2 else given, self.now
        )
        for first, last, types in given:
            for at in range(first, last + 1):
                if at in self.model:
                    self.decide(at, types[0] if len(types) == 1 else types[at - first])

    def decide(self, at: int, kind: int) -> None:
        record = self.model[at]
        if kind == RENEW:
            record.deadline = self.now + self.lock
        elif kind == ACCEPT:
            record.state = FINISHED
            self.unsaved.append(at)
        elif kind == RELEASE:
            self.give_back(at)
        else:
            record.state = FINISHED
            self.fates[at].given_up = True

    def give_back(self, at: int) -> None:
        record = self.model[at]
        if record.count >= self.settings.share_delivery_count_limit:
            record.state = FINISHED
            self.fates[at].given_up = True
        else:
            record.state = AVAILABLE

    def acknowledge_badly(self) -> None:
        """Records that the member does not hold, after some that it may hold: nothing may change."""
        member = self.random.choice(MEMBERS)
        wrong = [o for o, r in self.model.items() if r.state != ACQUIRED or r.owner != member]
        wrong = [o for o in wrong if o >= self.partition.start_offset] or [self.partition.end]
        bad = self.random.choice(wrong)
        given = [Acknowledgement(bad, bad, bytes((ACCEPT,)))]
        good = [o for o in self.held(member) if o < bad]
        if good:
            given.insert(0, Acknowledgement(good[0], good[0], bytes((REJECT,))))
        try:
            self.partition.acknowledge(member, given, self.now)
        except RequestRefused:
            return
        raise AssertionError(f"{member} may not acknowledge {bad}")

    def wait(self) -> None:
        self.now += self.random.choice((0.1, 1.0, self.lock / 2, self.lock + 1))
        self.partition.expire(self.now)
        for at, record in list(self.model.items()):
            if record.state == ACQUIRED and record.deadline <= self.now:
                self.give_back(at)

    def leave(self) -> None:
        member = self.random.choice(MEMBERS)
        self.partition.release(member)
        for at in self.held(member):
            self.give_back(at)

    def save(self) -> None:
        self.saved = (self.partition.start_offset, to_bytes(self.partition))
        self.saved_model = {at: record.copy() for at, record in self.model.items()}
        for record in self.saved_model.values():
            if record.state == ACQUIRED:
                record.state, record.count = AVAILABLE, record.count - 1
        for at in self.unsaved:
            self.fates[at].accepted = True
        self.unsaved.clear()

    def crash(self) -> None:
        """kill -9, or now and then a power failure, with which the log loses its end."""
        if self.log and self.random.random() < 0.3:
            self.lose_end()
        start, state = self.saved
        self.partition = restored(start, state, self.settings, log_start=self.log_start, log_end=self.log_end)
        self.model = {at: record.copy() for at, record in self.saved_model.items()}
        self.forget_before_start()
        self.unsaved.clear()
        self.saved = (self.partition.start_offset, to_bytes(self.partition))  # as at every start

    def lose_end(self) -> None:
        """New records get the offsets of those that are lost."""
        del self.log[-self.random.randint(1, 3) :]
        self.log_end = max(self.log[-1].last + 1 if self.log else 0, self.log_start)
        for known in (self.model, self.saved_model, self.fates):
            for at in [at for at in known if at >= self.log_end]:
                del known[at]

    def trim(self) -> None:
        if self.log_end > self.log_start and self.random.random() < 0.3:
            self.log_start = self.random.randint(self.log_start, self.partition.end)
            self.partition.on_log_start(self.log_start)
            self.log = [batch for batch in self.log if batch.last >= self.log_start]
            self.forget_before_start()

    def forget_before_start(self) -> None:
        for at in [at for at in self.model if at < self.log_start]:
            del self.model[at]

    # Checks

    def check(self) -> None:
        partition, model = self.partition, self.model
        at = partition.start_offset
        for run in partition.runs:
            assert run.first == at, "the runs have a hole"
            for number, offset in enumerate(range(run.first, run.last + 1)):
                state = run.state if run.marks is None else run.marks[number]
                known = model.get(offset, Record())
                assert state == known.state, (offset, run, known)
                if state in (AVAILABLE, ACQUIRED):
                    assert run.count == known.count, (offset, run, known)
                if state == ACQUIRED:
                    assert run.owner == known.owner
                    assert run.deadline == known.deadline >= partition.wake_at
            assert run.state != MIXED or len(set(run.marks or b"")) > 1
            at = run.last + 1
        assert at == partition.end
        unfinished = [o for o, r in model.items() if r.state in (AVAILABLE, ACQUIRED)]
        in_window = range(partition.start_offset, partition.end)
        assert partition.unfinished == sum(
            model.get(o, Record()).state in (AVAILABLE, ACQUIRED) for o in in_window
        )
        assert all(o >= partition.start_offset for o in unfinished)
        if partition.runs:
            first = model.get(partition.start_offset, Record())
            assert first.state in (AVAILABLE, ACQUIRED), "the start is the oldest unfinished record"
        free = [o for o in in_window if model.get(o, Record()).state == AVAILABLE]
        expected = (
            free[0]
            if free
            else partition.end
            if partition.unfinished < self.settings.share_partition_max_record_locks
            else None
        )
        assert partition.next_offset() == expected

    def settle(self) -> None:
        """Let everybody do their work, until nothing is left."""
        for _ in range(10_000):
            member = self.random.choice(MEMBERS)
            self.fetch(member)
            for name in MEMBERS:
                while self.held(name):
                    self.acknowledge(name, (ACCEPT,))
            self.check()
            if self.partition.start_offset >= self.log_end:
                break
        self.save()
