"""Transactions in a log against a naive model of them, under whatever can happen to a log, in any order.

The model keeps every batch ever appended and works everything out from the first one on, each time it is
asked. The log keeps little, forgets with retention, and is killed, cut at any byte and robbed of what it
did not sync. Both have to say the same of the last stable offset, the open and the aborted transactions, the
next sequence of each producer, and what a reader of committed records gets.
"""

from __future__ import annotations

import contextlib
import random
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millstream.core.clock import ManualClock
from millstream.core.errors import LogFailed
from millstream.log.directory import LogDirectory
from millstream.records.columns import compiled as compiled_columns
from millstream.records.columns import with_numpy as numpy_columns
from millstream.records.columns.arrow import decode
from millstream.records.fetched import next_offset
from tests.support.disk import SimulatedDisk
from tests.support.logs import NOW, TOPIC, a_batch, a_transactional_batch, an_idempotent_batch
from tests.support.logs import settings as topic_settings

PRODUCERS = st.integers(1, 3)
IDEMPOTENT = 9
VALUES = st.lists(st.binary(max_size=60), min_size=1, max_size=3)


class Appended(NamedTuple):
    offset: int
    values: list[bytes]
    producer: int = -1
    epoch: int = 0
    transactional: bool = False
    marker: str = ""  # commit or abort

    @property
    def next_offset(self) -> int:
        return self.offset + (1 if self.marker else len(self.values))


class Model:
    """All that was appended, and what follows from it."""

    def __init__(self) -> None:
        self.appended: list[Appended] = []

    @property
    def end(self) -> int:
        return self.appended[-1].next_offset if self.appended else 0

    def cut(self, end: int) -> None:
        """A crash left the batches before ``end``."""
        self.appended = [one for one in self.appended if one.offset < end]

    def producer(self, producer: int) -> tuple[int, int]:
        """Its epoch and the sequence number that comes next."""
        epoch, sequence = 0, 0
        for one in self.appended:
            if one.producer == producer:
                if one.epoch != epoch:
                    epoch, sequence = one.epoch, 0
                sequence += len(one.values)
        return epoch, sequence

    def transactions(self, end: int) -> tuple[dict[int, int], list[tuple[int, int, int]]]:
        """As of ``end``: the first offsets of those open, by producer, and the aborted ones: producer, first
        offset and marker's."""
        open_: dict[int, int] = {}
        aborted = []
        for one in self.appended:
            if one.offset >= end:
                break
            if one.marker:
                first = open_.pop(one.producer, None)
                if first is not None and one.marker == "abort":
                    aborted.append((one.producer, first, one.offset))
            elif one.transactional:
                open_.setdefault(one.producer, one.offset)
        return open_, aborted

    def committed(self, start: int, end: int) -> list[tuple[int, bytes]]:
        _, aborted = self.transactions(self.end)
        return [
            (offset, value)
            for one in self.appended
            if not any(p == one.producer and first <= one.offset < last for p, first, last in aborted)
            for offset, value in enumerate(one.values, one.offset)
            if start <= offset < end
        ]


class TransactionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(NOW)
        self.steps = 0

    @initialize(
        segment_bytes=st.sampled_from([1024, 1500, 1 << 20]), interval=st.sampled_from([0, 150, 4096])
    )
    def start(self, segment_bytes: int, interval: int) -> None:
        self.config = topic_settings(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            retention_ms=10_000,
            file_delete_delay_ms=1000,
        )
        self.begin()

    def begin(self) -> None:
        self.disk = SimulatedDisk()
        self.model = Model()
        self.written = self.synced = 0
        self.open()

    def open(self) -> None:
        self.directory = LogDirectory.open("/data", files=self.disk, clock=self.clock)
        self.log = self.directory.open_log(TOPIC, 0, self.config)

    def took(self, appended: Appended) -> None:
        assert appended.offset == self.model.end
        self.model.appended.append(appended)
        self.written = self.log.written_offset  # a new segment has what was staged written first

    # What producers and the coordinator do

    @rule(values=VALUES)
    def plain(self, values: list[bytes]) -> None:
        now = self.clock.now_ms()
        self.took(Appended(self.log.append(a_batch(*values, at=now), now).base_offset, values))

    @rule(values=VALUES)
    def idempotent(self, values: list[bytes]) -> None:
        _, sequence = self.model.producer(IDEMPOTENT)
        batch = an_idempotent_batch(sequence, *values, producer=IDEMPOTENT)
        self.took(Appended(self.log.append(batch, self.clock.now_ms()).base_offset, values, IDEMPOTENT))

    @rule(producer=PRODUCERS, values=VALUES)
    def transactional(self, producer: int, values: list[bytes]) -> None:
        epoch, sequence = self.model.producer(producer)
        now = self.clock.now_ms()
        batch = a_transactional_batch(sequence, *values, producer=producer, epoch=epoch, at=now)
        offset = self.log.append(batch, now).base_offset
        self.took(Appended(offset, values, producer, epoch, transactional=True))

    @rule(producer=PRODUCERS, commit=st.booleans(), bump=st.booleans())
    def end_transaction(self, producer: int, commit: bool, bump: bool) -> None:
        epoch = self.model.producer(producer)[0] + bump
        offset = self.log.append_marker(
            producer, epoch, commit=commit, coordinator_epoch=0, now_ms=self.clock.now_ms()
        )
        self.took(Appended(offset, [], producer, epoch, marker="commit" if commit else "abort"))

    @rule()
    def write(self) -> None:
        self.log.write_staged()
        self.written = self.model.end

    @rule()
    def sync(self) -> None:
        self.synced = max(self.log.sync(), self.synced)

    # What the broker does by the clock, and people by hand

    @rule()
    def roll(self) -> None:
        self.log.roll()
        self.written = self.log.written_offset

    @precondition(lambda self: self.written > self.log.log_start_offset)
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        self.log.delete_records(data.draw(st.integers(self.log.log_start_offset, self.written)))

    @rule(seconds=st.integers(0, 8))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def retention(self) -> None:
        self.log.apply_retention(self.clock.now_ms())
        self.written = self.log.written_offset

    @rule()
    def checkpoint(self) -> None:
        self.directory.checkpoint()

    # Faults

    @rule(room=st.integers(0, 77), producer=PRODUCERS)  # not one whole batch: a crash could bring it back
    def disk_is_full(self, room: int, producer: int) -> None:
        self.log.write_staged()
        self.written = self.model.end
        epoch, sequence = self.model.producer(producer)
        self.disk.room = room
        now = self.clock.now_ms()
        batch = a_transactional_batch(sequence, b"v" * 300, producer=producer, epoch=epoch, at=now)

        def fill() -> None:
            self.log.append_marker(producer, epoch, commit=False, coordinator_epoch=0, now_ms=now)
            self.log.append(batch, now)
            self.log.append_marker(producer, epoch + 1, commit=False, coordinator_epoch=0, now_ms=now)
            self.log.write_staged()

        with pytest.raises(LogFailed):
            fill()
        with contextlib.suppress(LogFailed):
            self.log.write_staged()  # where it is told again, if it was an append that found out
        self.disk.room = None
        assert self.log.failed is None

    @rule()
    def close_and_reopen(self) -> None:
        self.directory.close()
        self.open()
        assert self.directory.clean
        self.written = self.synced = self.model.end

    @rule()
    def kill(self) -> None:
        self.disk.process_killed()
        self.open()
        assert self.log.end_offset == self.written
        self.go_on()

    @rule(data=st.data())
    def kill_and_cut_what_was_not_synced(self, data: st.DataObject) -> None:
        self.disk.process_killed()
        last = self.disk.files[self.log.segments.last.log.path]
        cut = data.draw(st.integers(len(last.synced), max(len(last.data), len(last.synced))))
        del last.data[cut:]
        self.open_after_loss()

    @rule(seed=st.integers(0, 10**6))
    def power_loss(self, seed: int) -> None:
        self.disk = self.disk.power_loss(seed)
        self.open_after_loss()

    def open_after_loss(self) -> None:
        start = self.log.log_start_offset
        self.open()
        assert self.log.end_offset >= self.synced
        if self.log.damage or self.log.log_start_offset > min(start, self.synced):
            # Batches at the start or in the middle are gone, markers perhaps: what they decided nobody knows.
            self.begin()
        else:
            self.go_on()

    def go_on(self) -> None:
        self.model.cut(self.log.end_offset)
        assert self.model.end == self.log.end_offset, "cut between two batches"
        self.written = self.log.written_offset
        self.synced = self.log.synced_offset

    # What has to hold

    @invariant()
    def log_and_model_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        log, model = self.log, self.model
        assert (log.end_offset, log.written_offset) == (model.end, self.written)
        known = {p.producer_id: p for p in log.describe_producers()}
        for producer in {one.producer for one in model.appended if one.producer >= 0}:
            state = log.producers.states[producer]
            assert state[:2] == model.producer(producer)
        for producer, opened in log.open_transactions().items():
            assert opened.epoch == model.producer(producer)[0]
            assert known[producer].first_offset == opened.first_offset
        now_open, _ = model.transactions(model.end)
        assert {p: o.first_offset for p, o in log.open_transactions().items()} == now_open
        stable_open, aborted = model.transactions(self.written)
        stable = max(min(stable_open.values(), default=self.written), log.log_start_offset)
        assert log.last_stable_offset == stable
        self.aborted_are_told(aborted)
        self.committed_are_read(stable)

    def aborted_are_told(self, aborted: list[tuple[int, int, int]]) -> None:
        start, end = self.log.log_start_offset, self.written
        for first in (start, (start + end) // 2, end - 1):
            for upto in (first + 1, (first + end) // 2, end):
                expected = [(p, begun) for p, begun, last in aborted if last >= first and begun < upto]
                if start <= first < upto:
                    assert self.log.aborted(first, upto) == expected

    def committed_are_read(self, stable: int) -> None:
        log = self.log
        self.steps += 1
        implementation = (compiled_columns, numpy_columns)[self.steps % 2]
        found: list[tuple[int, bytes]] = []
        offset = log.log_start_offset
        while offset < stable:
            part = log.read(offset, 300 if self.steps % 3 else 1 << 16, upto=stable)
            data = part.bytes()
            batches = decode(
                data, first=offset, aborted=log.aborted_in(offset, part), implementation=implementation
            )
            for batch in batches:
                found += zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
            before, offset = offset, next_offset(data, offset)
            assert offset > before
        assert found == self.model.committed(log.log_start_offset, stable)


TestTransactionMachine = TransactionMachine.TestCase
TestTransactionMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("seed", range(40))
def test_transactions_over_many_segments_survive_what_happens_to_a_broker(seed: int) -> None:
    """The same in longer lives: segments are sealed, synced and checkpointed before the crash."""
    chance = random.Random(seed)
    machine = TransactionMachine()
    machine.start(segment_bytes=1024, interval=chance.choice([0, 150, 4096]))

    def values() -> list[bytes]:
        return [b"%d" % chance.randrange(10**9) * chance.randrange(1, 12)]

    for _ in range(4):
        for _ in range(chance.randrange(20, 120)):
            step = chance.random()
            producer = chance.randrange(1, 4)
            if step < 0.5:
                machine.transactional(producer=producer, values=values())
            elif step < 0.6:
                machine.plain(values=values())
            elif step < 0.85:
                machine.end_transaction(producer=producer, commit=step < 0.65, bump=chance.random() < 0.5)
            elif step < 0.94:
                machine.write()
            elif step < 0.98:
                machine.sync()
            else:
                machine.checkpoint()
        machine.write()
        machine.log_and_model_agree()
        chance.choice((machine.kill, machine.close_and_reopen, lambda: None))()
        machine.log_and_model_agree()
        if chance.random() < 0.3:
            machine.clock.advance(11)
            machine.retention()
        machine.power_loss(seed=chance.randrange(10**9))
        machine.log_and_model_agree()
