"""Compaction leaves the newest record of each key, where it was, and nothing that anyone needs is lost."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from millstream.core.clock import ManualClock
from millstream.log.partition import PartitionLog
from millstream.log.recovery.check import Finding, check_directory
from millstream.log.storage.memory import MemoryFiles
from millstream.records.batch import DELETE_HORIZON, BatchHeader, batches
from millstream.records.build import Record, build_batch, read_batches
from tests.support.compacting import compact_now
from tests.support.logs import NOW, contents, open_log, reopen

DAY = 86_400_000
COMPACT: dict[str, Any] = {"cleanup_policy": ("compact",), "segment_bytes": 1024, "index_interval_bytes": 100}


def put(log: PartitionLog, *pairs: tuple[bytes, bytes | None], at: int = NOW, **options: Any) -> int:
    batch = build_batch([Record(key, value, timestamp=at) for key, value in pairs], **options)
    offset = log.append(batch, at).base_offset
    log.write_staged()
    return offset


def seal(log: PartitionLog) -> None:
    """What is there may be compacted."""
    log.roll()
    log.sync()


def left(log: PartitionLog, start: int | None = None) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of every record that a reader gets."""
    return [(r.offset, r.key, r.value) for data in fetched(log, start) for r in read_batches(data)]


def fetched(log: PartitionLog, start: int | None = None) -> list[bytes]:
    found = []
    offset = log.log_start_offset if start is None else start
    while offset < log.written_offset:
        data = log.read(offset, 4096).bytes()
        assert data, f"nothing is read from {offset}, the log ends at {log.written_offset}"
        found.append(data)
        following = max(header.next_offset for _, header in batches(data))
        assert following > offset
        offset = following
    return found


def headers(log: PartitionLog) -> list[BatchHeader]:
    """Of all batches, those without a record too."""
    found: list[BatchHeader] = []
    for number, segment in enumerate(log.segments):
        ceiling = log.segments.ceiling(number, log.end_offset)
        found += [batch.header for batch in segment.good_batches(segment.base_offset, ceiling)]
    return found


def test_the_newest_record_of_each_key_stays_at_its_offset() -> None:
    _, log = open_log(**COMPACT)
    for number in range(30):
        put(log, (b"k%d" % (number % 3), b"%d" % number))
    seal(log)
    [done] = compact_now(log, NOW)
    assert left(log) == [(27, b"k0", b"27"), (28, b"k1", b"28"), (29, b"k2", b"29")]
    assert (done.clean_to, done.keys, done.records_before, done.records_after) == (30, 3, 30, 3)
    assert done.bytes_after == log.size_bytes < done.bytes_before
    assert log.compaction.look(NOW).dirty_bytes == 0


def test_the_active_segment_and_what_is_not_synced_stay_as_they_are() -> None:
    _, log = open_log(**COMPACT)
    put(log, (b"k", b"0"))
    log.roll()
    put(log, (b"k", b"1"))
    assert compact_now(log, NOW) == []
    log.sync()
    compact_now(log, NOW)
    assert left(log) == [(0, b"k", b"0"), (1, b"k", b"1")], "the newer one is in the active segment"


def test_small_segments_become_one() -> None:
    _, log = open_log(**COMPACT)
    for number in range(8):
        put(log, (b"k%d" % number, b"v"))
        seal(log)
    assert len(log.segments) == 9
    compact_now(log, NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 8]
    assert len(left(log)) == 8


def test_a_tombstone_stays_until_its_horizon_and_takes_older_records_along_at_once() -> None:
    _, log = open_log(**COMPACT, delete_retention_ms=DAY)
    put(log, (b"k", b"v"), (b"other", b"v"))
    put(log, (b"k", None), (b"more", b"v"), at=NOW + 5)
    seal(log)
    compact_now(log, NOW + 10)
    assert left(log) == [(1, b"other", b"v"), (2, b"k", None), (3, b"more", b"v")]
    marked = headers(log)[1]
    assert marked.attributes & DELETE_HORIZON
    assert marked.base_timestamp == NOW + 10 + DAY
    assert [r.timestamp for data in fetched(log) for r in read_batches(data)] == [NOW, NOW + 5, NOW + 5]

    put(log, (b"a", b"v"))
    seal(log)
    compact_now(log, NOW + 9 + DAY)
    assert (2, b"k", None) in left(log), "a moment before the horizon"
    put(log, (b"b", b"v"))
    seal(log)
    compact_now(log, NOW + 10 + DAY)
    assert [offset for offset, _, _ in left(log)] == [1, 3, 4, 5]


@pytest.mark.parametrize("codec", range(5))
def test_batches_keep_their_codec_and_their_place(codec: int) -> None:
    _, log = open_log(**COMPACT)
    put(log, *[(b"k%d" % number, b"old" * 9) for number in range(9)], codec=codec)
    put(log, *[(b"k%d" % number, b"new" * 9) for number in range(3, 9)], codec=codec)
    seal(log)
    compact_now(log, NOW)
    first = headers(log)[0]
    assert (first.base_offset, first.last_offset, first.record_count, first.codec) == (0, 8, 3, codec)
    assert [offset for offset, _, _ in left(log)] == [0, 1, 2, *range(9, 15)]


def test_keys_that_do_not_fit_into_memory_take_several_passes() -> None:
    _, log = open_log(**COMPACT)
    for number in range(300):
        put(log, (b"k%d" % (number % 100), b"%d" % number))
    seal(log)
    done = compact_now(log, NOW, memory=32 * 40)
    assert len(done) > 3
    assert all(finished.keys <= 40 for finished in done)
    assert left(log) == [(number, b"k%d" % (number % 100), b"%d" % number) for number in range(200, 300)]


def test_a_batch_with_more_keys_than_memory_holds_is_compacted_all_the_same() -> None:
    _, log = open_log(**COMPACT)
    for _ in range(2):
        put(log, *[(b"k%d" % number, b"v") for number in range(30)])
    seal(log)
    compact_now(log, NOW, memory=1)
    assert [offset for offset, _, _ in left(log)] == list(range(30, 60))


def test_records_without_a_key_from_before_go() -> None:
    directory, log = open_log(segment_bytes=1024)
    log.append(build_batch([Record(None, b"v"), Record(b"k", b"v")]), NOW)
    log.write_staged()
    seal(log)
    log.set_config(log.config.__class__(cleanup_policy=("compact",)))
    [done] = compact_now(log, NOW)
    assert done.keyless == 1
    assert left(log) == [(1, b"k", b"v")]
    directory.close()


def test_the_last_batch_of_a_producer_stays_as_a_header() -> None:
    files = MemoryFiles()
    _, log = open_log(files, **COMPACT)
    for sequence in range(3):
        put(log, (b"k", b"v"), producer_id=7, producer_epoch=0, base_sequence=sequence)
    put(log, (b"k", b"newest"))
    seal(log)
    compact_now(log, NOW)
    assert [(h.base_offset, h.producer_id, h.base_sequence, h.record_count) for h in headers(log)] == [
        (2, 7, 2, 0),
        (3, -1, -1, 1),
    ]
    forget_snapshots(files, log)
    again = reopen(files, **COMPACT)
    assert again.producers.states[7][1] == 3, "known from the log alone"


@pytest.mark.parametrize("restart", [False, True])
def test_reading_from_an_offset_that_is_gone_gives_the_next_one(restart: bool) -> None:
    files = MemoryFiles()
    _, log = open_log(files, **COMPACT)
    for number in range(100):
        put(log, (b"k%d" % (number % 10) if number % 7 else b"u%d" % number, b"%d" % number * 9))
    seal(log)
    put(log, (b"last", b"v"))
    compact_now(log, NOW)
    if restart:
        files._locks.clear()
        log = reopen(files, **COMPACT)
    offsets = [offset for offset, _, _ in left(log)]
    assert len(offsets) < 40
    assert not log.damage
    for start in range(log.end_offset):
        found = [offset for offset, _, _ in left(log, start) if offset >= start]
        assert found == [offset for offset in offsets if offset >= start]


def test_look_up_by_time_is_right_where_records_are_gone() -> None:
    _, log = open_log(**COMPACT)
    times = {}
    for number in range(60):
        offset = put(
            log, (b"k%d" % (number % 4 if number < 50 else number), b"v"), at=NOW + number * 10 % 370
        )
        times[offset] = NOW + number * 10 % 370
    seal(log)
    compact_now(log, NOW)
    kept = [offset for offset, _, _ in left(log)]
    for timestamp in range(NOW - 5, NOW + 380, 5):
        expected = next(((o, times[o]) for o in kept if times[o] >= timestamp), None)
        assert log.offset_for_timestamp(timestamp) == expected
    newest = max(times[offset] for offset in kept)
    assert log.max_timestamp_offset() == (next(o for o in kept if times[o] == newest), newest)


def test_it_is_due_by_the_share_of_dirty_bytes_and_by_the_age_of_the_oldest() -> None:
    _, log = open_log(**COMPACT, min_cleanable_dirty_ratio=0.5, max_compaction_lag_ms=DAY)
    for number in range(10):
        put(log, (b"k%d" % number, b"v"))
    seal(log)
    dirt = log.compaction.look(NOW)
    assert (dirt.ratio, log.compaction.is_due(dirt)) == (1.0, True)
    compact_now(log, NOW)
    put(log, (b"new", b"v"))
    seal(log)
    dirt = log.compaction.look(NOW)
    assert 0 < dirt.ratio < 0.5
    assert not log.compaction.is_due(dirt)
    assert log.compaction.is_due(log.compaction.look(NOW + DAY + 1))


def test_young_records_wait_for_the_minimum_lag() -> None:
    _, log = open_log(**COMPACT, min_compaction_lag_ms=1000)
    put(log, (b"k", b"0"))
    seal(log)
    put(log, (b"k", b"1"), at=NOW + 500)
    seal(log)
    compact_now(log, NOW + 1200)
    assert len(left(log)) == 2
    compact_now(log, NOW + 1500)
    assert left(log) == [(1, b"k", b"1")]


def test_an_active_segment_is_sealed_when_its_records_may_wait_no_longer() -> None:
    clock = ManualClock(NOW)
    _, log = open_log(clock=clock, **COMPACT, max_compaction_lag_ms=1000)
    put(log, (b"k", b"0"))
    log.roll_by_time(NOW + 1000)
    assert len(log.segments) == 1
    log.roll_by_time(NOW + 1001)
    assert len(log.segments) == 2


def test_retention_and_compaction_go_together() -> None:
    _, log = open_log(
        cleanup_policy=("compact", "delete"), segment_bytes=1024, retention_ms=1000, file_delete_delay_ms=0
    )
    for number in range(40):
        put(log, (b"k%d" % (number % 20), b"v" * 40), at=NOW + number * 50)
    seal(log)
    compact_now(log, NOW + 2000)
    assert [offset for offset, _, _ in left(log)] == list(range(20, 40))
    log.apply_retention(NOW + 2_500)
    assert log.log_start_offset > 0
    assert left(log)
    put(log, (b"k1", b"x"), at=NOW + 2_500)
    seal(log)
    compact_now(log, NOW + 2_600)
    assert [key for _, key, _ in left(log)].count(b"k1") == 1


def in_transaction(log: PartitionLog, sequence: int, key: bytes, *, commit: bool, producer: int = 7) -> None:
    """A transaction of one record, and its marker."""
    names = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
    put(log, (key, b"v"), transactional=True, **names)
    log.append_marker(producer, 0, commit=commit, coordinator_epoch=0, now_ms=NOW)
    log.write_staged()


@pytest.mark.parametrize("commit", [False, True])
def test_a_marker_goes_a_while_after_all_of_its_transaction(commit: bool) -> None:
    _, log = open_log(**COMPACT, delete_retention_ms=DAY)
    in_transaction(log, 0, b"k", commit=commit)
    in_transaction(log, 1, b"k", commit=True)
    put(log, (b"k", b"newest"))
    seal(log)

    def markers() -> list[tuple[int, bool]]:
        return [(h.base_offset, bool(h.attributes & DELETE_HORIZON)) for h in headers(log) if h.is_control]

    compact_now(log, NOW)
    assert markers() == [(1, False), (3, False)], "this pass has met what they are of"
    assert log.aborted(0, 10) == ([] if commit else [(7, 0)])
    put(log, (b"k", b"newer"))
    seal(log)
    compact_now(log, NOW)
    assert markers() == [(1, True), (3, False)], "the second is of the producer's last batch, which stays"
    assert log.aborted(0, 10) == [], "no reader is told of a transaction whose marker is about to go"
    put(log, (b"k", b"again"))
    seal(log)
    compact_now(log, NOW + DAY)
    assert markers() == [(3, False)]


def test_an_open_transaction_holds_compaction_back() -> None:
    _, log = open_log(**COMPACT)
    put(log, (b"k", b"0"))
    seal(log)
    put(log, (b"k", b"1"), transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    seal(log)
    put(log, (b"k", b"2"))
    seal(log)
    compact_now(log, NOW)
    assert len(left(log)) == 3
    log.append_marker(7, 0, commit=False, coordinator_epoch=0, now_ms=NOW)
    log.write_staged()
    compact_now(log, NOW)
    assert left(log) == [(2, b"k", b"2")], "its marker is in the active segment"


def test_the_epoch_of_a_producer_is_known_from_a_marker_that_is_gone() -> None:
    files = MemoryFiles()
    _, log = open_log(files, **COMPACT, delete_retention_ms=0)
    put(log, (b"k", b"v"), transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    log.append_marker(7, 1, commit=True, coordinator_epoch=0, now_ms=NOW)
    for value in (b"1", b"2", b"3"):
        put(log, (b"k", value))
        seal(log)
        compact_now(log, NOW)
    [empty] = [header for header in headers(log) if header.is_control]
    assert (empty.record_count, empty.producer_epoch) == (0, 1)
    forget_snapshots(files, log)
    assert reopen(files, **COMPACT).producers.states[7][0] == 1


def forget_snapshots(files: MemoryFiles, log: PartitionLog) -> None:
    """The process is killed, and what it kept beside the log is lost."""
    for name in [name for name in files.listing(log.path) if name.endswith(".snapshot")]:
        files.remove(f"{log.path}/{name}")
    files._locks.clear()


@pytest.mark.parametrize("bit", range(0, 61 * 8, 7))
def test_a_flipped_bit_in_a_compacted_segment_never_shows_another_record(bit: int) -> None:
    files = MemoryFiles()
    roomy = {**COMPACT, "segment_bytes": 8192}
    _, log = open_log(files, **roomy)
    for number in range(40):
        put(log, (b"u%d" % number if 10 <= number < 20 else b"k%d" % (number % 5), b"%d" % number))
    seal(log)
    compact_now(log, NOW)
    before = left(log)
    assert [offset for offset, _, _ in before] == [*range(10, 20), *range(35, 40)]
    flipped = log.segments[0]
    batch = next(b for b in flipped.good_batches(0, 40) if b.header.base_offset == 15)
    data = files.open(flipped.log.path).data  # type: ignore[attr-defined]
    data[batch.position + bit // 8] ^= 1 << bit % 8
    files._locks.clear()
    log = reopen(files, **roomy)
    found = contents(log)
    assert dict(found).items() <= {offset: value for offset, _, value in before}.items()
    assert len(found) >= len(before) - 1


Step = tuple[str, Any]
_KEYS = st.sampled_from([b"a", b"b", b"c"])
_VALUES = st.none() | st.binary(min_size=1, max_size=30)
_PRODUCERS = st.integers(1, 2)
_STEPS = st.lists(
    st.tuples(st.just("plain"), st.lists(st.tuples(_KEYS, _VALUES), min_size=1, max_size=3))
    | st.tuples(st.just("in transaction"), st.tuples(_PRODUCERS, _KEYS, _VALUES))
    | st.tuples(st.just("end"), st.tuples(_PRODUCERS, st.booleans()))
    | st.tuples(
        st.sampled_from(["roll", "compact", "compact", "later", "close", "kill", "forget"]), st.none()
    ),
    min_size=10,
    max_size=60,
)


@given(steps=_STEPS, codec=st.integers(0, 4))
@hypothesis_settings(max_examples=200, deadline=None)
def test_whoever_replays_the_log_ends_with_the_same_table(steps: list[Step], codec: int) -> None:
    """Against a table that is kept beside: for readers of everything, and of committed records."""
    world = _World(codec)
    for kind, what in steps:
        world.do(kind, what)
    world.end_all()
    world.do("roll", None)
    world.do("compact", None)
    world.check()
    world.do("kill", None)
    world.check()


class _World:
    """A log, and what was put into it."""

    def __init__(self, codec: int) -> None:
        self.codec = codec
        self.files = MemoryFiles()
        self.now = NOW
        self.directory, self.log = open_log(self.files, **COMPACT, delete_retention_ms=DAY)
        self.written: dict[int, tuple[bytes, bytes | None]] = {}
        self.open: dict[int, list[int]] = {}
        self.aborted: set[int] = set()
        self.sequences: dict[int, int] = {}

    def do(self, kind: str, what: Any) -> None:
        if kind == "plain":
            first = put(self.log, *what, at=self.now, codec=self.codec)
            self.written |= {first + number: pair for number, pair in enumerate(what)}
        elif kind == "in transaction":
            producer, key, value = what
            sequence = self.sequences.get(producer, 0)
            names = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
            offset = put(self.log, (key, value), at=self.now, transactional=True, codec=self.codec, **names)
            self.sequences[producer] = sequence + 1
            self.written[offset] = (key, value)
            self.open.setdefault(producer, []).append(offset)
        elif kind == "end":
            producer, commit = what
            if producer in self.open:
                self.log.append_marker(producer, 0, commit=commit, coordinator_epoch=0, now_ms=self.now)
                self.log.write_staged()
                offsets = self.open.pop(producer)
                self.aborted |= set() if commit else set(offsets)
        elif kind == "roll":
            seal(self.log)
        elif kind == "compact":
            seal(self.log)
            compact_now(self.log, self.now)
            clean = [(o, key) for o, key, _ in left(self.log) if o < self.log.compaction.clean_to]
            assert len({key for _, key in clean}) == len(clean), "one record a key"
            assert not {offset for offset, _ in clean} & self.aborted
            self.check()
        elif kind == "later":
            self.now += DAY + 1
        elif kind == "close":
            self.directory.close()
            self._open()
        elif kind == "kill":
            self.files._locks.clear()
            self._open()
        elif kind == "forget":
            forget_snapshots(self.files, self.log)
            self._open()

    def _open(self) -> None:
        self.directory, self.log = open_log(self.files, **COMPACT, delete_retention_ms=DAY)

    def end_all(self) -> None:
        for producer in list(self.open):
            self.do("end", (producer, producer % 2 == 0))

    def check(self) -> None:
        log = self.log
        assert not log.damage
        found = {offset: (key, value) for offset, key, value in left(log)}
        assert found.items() <= self.written.items(), "nothing is new, nothing has another offset"
        stable = log.last_stable_offset
        undecided = {offset for offsets in self.open.values() for offset in offsets}
        decided = {o: pair for o, pair in self.written.items() if o not in self.aborted | undecided}
        assert table(self.committed(stable)) == table({o: p for o, p in decided.items() if o < stable})
        # Who reads everything may see less of what was aborted, and nothing else is different.
        assert {o for o in self.written if o >= log.compaction.clean_to} - set(found) <= self.aborted
        assert {p: s[1] for p, s in log.producers.states.items()} == self.sequences
        assert set(log.transactions.open) == set(self.open)
        self.check_files()

    def check_files(self) -> None:
        """As the command that checks a stopped broker's directory does."""
        self.log.segments.last.write_indexes(final=True)
        locks = set(self.files._locks)
        self.files._locks.clear()
        assert [f for f in check_directory("/data", files=self.files) if isinstance(f, Finding)] == []
        self.files._locks |= locks

    def committed(self, stable: int) -> dict[int, tuple[bytes, bytes | None]]:
        """By the list of aborted transactions, as a client does it."""
        log = self.log
        found: dict[int, tuple[bytes, bytes | None]] = {}
        aborted = sorted(((first, producer) for producer, first in log.aborted(0, stable)), reverse=True)
        aborting: set[int] = set()
        for data in fetched(log):
            for position, header in batches(data):
                if header.base_offset >= stable:
                    return found
                while aborted and aborted[-1][0] <= header.last_offset:
                    aborting.add(aborted.pop()[1])
                if header.is_control:
                    kinds = [
                        r.key for r in read_batches(data[position : position + header.size], control=True)
                    ]
                    if kinds and kinds[0] is not None and kinds[0][3] == 0:
                        aborting.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in aborting):
                    records = read_batches(data[position : position + header.size])
                    found |= {r.offset: (r.key or b"", r.value) for r in records}
        return found


def table(records: dict[int, tuple[bytes, bytes | None]]) -> dict[bytes, bytes]:
    """What a consumer has that puts every value under its key, in the order of offsets."""
    latest = {key: value for _, (key, value) in sorted(records.items())}
    return {key: value for key, value in latest.items() if value is not None}
