"""A log against a model of itself, under whatever can happen to it, in any order."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millstream.core.clock import ManualClock
from millstream.core.errors import LogFailed
from millstream.log.directory import LogDirectory
from tests.support.disk import SimulatedDisk
from tests.support.logs import NOW, TOPIC, a_batch, an_idempotent_batch, contents
from tests.support.logs import settings as topic_settings

VALUES = st.lists(st.binary(max_size=60), min_size=1, max_size=3)


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.clock = ManualClock(NOW)
        self.records: list[tuple[int, bytes]] = []  # all that was appended and not undone or lost
        self.start = 0
        self.synced = 0
        self.written = 0
        self.sequence = 0
        self.epoch = 0
        self.sent: dict[int, tuple[list[bytes], int]] = {}  # by sequence: what, and where it stands

    @initialize(
        segment_bytes=st.sampled_from([1024, 1500, 1 << 20]),
        interval=st.sampled_from([0, 150, 4096]),
        append_time=st.booleans(),
    )
    def open(self, segment_bytes: int, interval: int, append_time: bool) -> None:
        self.config = topic_settings(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            message_timestamp_type="LogAppendTime" if append_time else "CreateTime",
            retention_ms=10_000,
            file_delete_delay_ms=1000,
        )
        self._open()

    def _open(self) -> None:
        self.directory = LogDirectory.open("/data", files=self.disk, clock=self.clock)
        self.log = self.directory.open_log(TOPIC, 0, self.config)
        assert self.log.leader_epoch >= self.epoch, "the leader epoch went back"
        self.epoch = self.log.leader_epoch

    @property
    def end(self) -> int:
        return self.records[-1][0] + 1 if self.records else self._end_when_empty

    _end_when_empty = 0

    def _appended(self, base: int, values: list[bytes]) -> None:
        assert base == self.end
        self.records += list(enumerate(values, base))
        self.written = self.log.written_offset  # a new segment has what was staged written first

    @rule(values=VALUES, large=st.booleans())
    def append(self, values: list[bytes], large: bool) -> None:
        now = self.clock.now_ms()
        batch = a_batch(*values, at=now)
        self._appended(self.log.append(batch, now).base_offset, values)
        if large:
            self.log.write_staged()
            self.written = self.end

    @rule(values=VALUES)
    def append_idempotent(self, values: list[bytes]) -> None:
        appended = self.log.append(an_idempotent_batch(self.sequence, *values), self.clock.now_ms())
        assert not appended.duplicate
        self._appended(appended.base_offset, values)
        self.sent[self.sequence] = (values, appended.base_offset)
        self.sequence += len(values)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.sent)[-5:]))
        values, base = self.sent[sequence]
        again = self.log.append(an_idempotent_batch(sequence, *values), self.clock.now_ms())
        assert again.duplicate
        assert again.base_offset == base

    @rule()
    def write(self) -> None:
        self.log.write_staged()
        self.written = self.end

    @rule()
    def sync(self) -> None:
        self.synced = max(self.log.sync(), self.synced)
        assert self.synced == self.log.synced_offset

    @rule(room=st.integers(0, 200))
    def disk_is_full(self, room: int) -> None:
        self.log.write_staged()
        self.written = self.end
        before = self.sequence
        self.disk.room = room
        try:
            self.log.append(an_idempotent_batch(before, b"v" * 300), self.clock.now_ms())
            self.log.write_staged()
        except LogFailed:
            pass
        else:
            raise AssertionError("a full disk took a write")
        finally:
            self.disk.room = None
        assert self.log.failed is None

    @precondition(lambda self: self.written > self.start)
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.written))
        self.start = self.log.delete_records(offset)
        assert self.start == offset

    @rule(seconds=st.integers(0, 8))
    def time_passes(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def retention(self) -> None:
        self.log.apply_retention(self.clock.now_ms())
        self.written = self.log.written_offset
        assert self.start <= self.log.log_start_offset <= self.end
        self.start = self.log.log_start_offset

    @rule()
    def checkpoint(self) -> None:
        self.directory.checkpoint()

    @rule()
    def close_and_reopen(self) -> None:
        self.directory.close()
        self._open()
        assert self.directory.clean
        assert self.log.leader_epoch == self.log.epochs.latest
        self.written = self.synced = self.end

    @rule()
    def kill(self) -> None:
        self.disk.process_killed()
        self._open()
        self._forget_from(self.written)

    @rule(seed=st.integers(0, 10**6))
    def power_loss(self, seed: int) -> None:
        self.disk = self.disk.power_loss(seed)
        self.epoch = 0  # an epoch without records is not synced; what a commit names, recovery is told
        self._open()
        assert self.log.end_offset >= self.synced
        self._forget_from(self.log.end_offset, gone=True)

    def _forget_from(self, offset: int, *, gone: bool = False) -> None:
        """The model loses what the log may have lost, and keeps what it must not."""
        if gone:
            # Deletions that were not synced may have come back, unsynced records may be damaged or gone.
            deleted, self.start = self.start, self.log.log_start_offset
            left = dict(contents(self.log))
            known = dict(self.records)
            assert all(known.get(at, value) == value for at, value in left.items())
            first = max(deleted, self.start)  # nobody is owed what had been deleted
            must = [at for at, value in self.records if first <= at < self.synced and value is not GAP]
            assert set(must) <= set(left)
            self.records = sorted(left.items())
        else:
            self.records = [record for record in self.records if record[0] < offset]
            assert self.log.end_offset == offset
        self._end_when_empty = self.log.end_offset
        self.written = self.log.end_offset
        if not self.records or self.records[-1][0] + 1 != self.log.end_offset:
            self.records = [*self.records, (self.log.end_offset - 1, GAP)] if self.log.end_offset else []
        self.synced = self.log.synced_offset
        # Producers' state holds for what is left, no more and no less.
        state = self.log.producers.states.get(7)
        sent = {s: sent for s, sent in self.sent.items() if sent[1] < self.log.end_offset}
        if gone:
            # Of those lost, some may be in the middle: then their successors are known, and so are they.
            known = {first for first, *_ in state[2]} if state else set()
            sent = {s: one for s, one in sent.items() if s in known}
        else:
            assert state is None or not sent or state[1] == max(sent) + len(sent[max(sent)][0])
            assert (state is None) <= (not sent)
        self.sent = sent
        self.sequence = state[1] if state else 0

    @invariant()
    def what_is_read_is_what_was_written(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert log.end_offset == self.end
        assert log.log_start_offset <= log.written_offset <= log.end_offset
        assert log.synced_offset <= log.written_offset
        expected = [r for r in self.records if self.start <= r[0] < log.written_offset and r[1] is not GAP]
        assert contents(log) == expected


GAP = b"a record that a crash took"

TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_producers_are_known_after_retention_of_what_was_trimmed_and_lost() -> None:
    machine = LogMachine()
    machine.open(segment_bytes=1024, interval=0, append_time=False)
    machine.append_idempotent(values=[b""])
    machine.close_and_reopen()
    machine.append_idempotent(values=[b""])
    machine.write()
    machine.start = machine.log.delete_records(2)
    machine.power_loss(seed=0)
    machine.retention()
    machine.kill()
    assert 7 in machine.log.producers.states
