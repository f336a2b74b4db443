"""A batch of a bucket: who is late, who waits, in which order events come, and what is told of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.pipeline.kernel.clock import OperatorClock, TimeRules
from millstream.pipeline.kernel.packing import Unpack, struct_name
from millstream.pipeline.kernel.program import MAIN, TIMESTAMP, Events, ProgramOutput
from millstream.pipeline.kernel.state.containers import to_bytes
from millstream.pipeline.kernel.state.store import StateStore
from tests.support.kernel_feed import SECOND, Event, Feed, run

ROW = pa.schema([pa.field("key", pa.string()), pa.field("n", pa.int64())])


@dataclass(frozen=True)
class Repeat:
    """Gives every event as it comes in order, with the number of those before it of the same key."""

    in_order: ClassVar[bool] = True

    def channels(self, inputs: Sequence[pa.Schema]) -> dict[str, pa.Schema]:
        return {MAIN: pa.schema([*inputs[0], pa.field("at", pa.int64()), pa.field("before", pa.int64())])}

    def program(self, inputs: Sequence[pa.Schema]) -> Any:
        return _Repeating()

    def shape(self) -> dict[str, object]:
        return {}

    def describe(self) -> str:
        return "repeat"


class _Repeating:
    def open(self, store: StateStore) -> None:
        self._counts = store.keyed("counts")

    def events(self, events: Events, clock: OperatorClock, out: ProgramOutput) -> None:
        rows = [table.to_pylist() for table in events.tables]
        for time, number, index in zip(events.time, events.input, events.index, strict=True):
            row = rows[number][index]
            before = self._counts.get(row["key"], 0)
            self._counts.put(row["key"], before + 1)
            out.row(MAIN, (row["key"], row["n"], int(time), before))

    def advance(self, clock: OperatorClock, out: ProgramOutput) -> None:
        pass

    def next_due(self) -> int | None:
        return None

    def next_timer(self) -> int | None:
        return None


def event(second: float, n: int, key: str = "a", **more: Any) -> Event:
    return Event(int(second * SECOND), {"key": key, "n": n}, **more)


def numbers(rows: Sequence[dict[str, Any]]) -> list[int]:
    return [row["n"] for row in rows]


def test_events_wait_until_the_watermark_is_past_them_and_come_in_order() -> None:
    feed = Feed(Repeat(), [ROW], rules=TimeRules(lateness=10 * SECOND))
    assert feed.batch([event(5, 1), event(3, 2), event(4, 3)]) == {}
    assert numbers(feed.batch([event(14.5, 4)])[MAIN]) == [2, 3]  # before 4.5 s, and not at it
    assert numbers(feed.batch([event(60, 5)])[MAIN]) == [1, 4]


def test_a_late_event_goes_its_own_way_with_how_late_it_is() -> None:
    feed = Feed(Repeat(), [ROW], rules=TimeRules(lateness=2 * SECOND))
    given = feed.batch([event(10, 1), event(7.5, 2), event(8, 3)])
    late = given["late.0"]
    assert [(row["n"], row["late_ms"]) for row in late] == [(2, 500)]
    assert late[0]["watermark"].timestamp() == 8.0
    assert MAIN not in given  # nothing that is on time is older than the watermark, 8 s
    assert numbers(feed.batch([event(20, 4)])[MAIN]) == [3, 1]


def test_of_equal_times_the_partition_and_then_the_offset_decide() -> None:
    feed = Feed(Repeat(), [ROW], buckets=1)
    feed.batch([event(1, 3, partition=1), event(1, 1), event(1, 2)])
    assert numbers(feed.batch([event(9, 4), event(9, 5, partition=1)])[MAIN]) == [1, 2, 3]


def test_a_time_too_far_in_the_future_moves_nothing() -> None:
    feed = Feed(Repeat(), [ROW], rules=TimeRules(ahead=60 * SECOND))
    given = feed.batch([event(1000, 1), event(5000, 2), event(1001, 3)], now=1000 * SECOND)
    assert [(row["n"], row["ahead_ms"]) for row in given["ahead.0"]] == [(2, 4_000_000)]
    assert numbers(given[MAIN]) == [1]
    assert feed.buckets[0].clock.watermark == 1001 * SECOND


def test_a_row_without_a_time_is_not_lost() -> None:
    feed = Feed(Repeat(), [ROW])
    given = feed.batch([Event(None, {"key": "a", "n": 7}), event(5, 1)])  # type: ignore[arg-type]
    assert numbers(given["late.0"]) == [7]


def test_a_row_that_was_filtered_out_tells_the_time_all_the_same() -> None:
    feed = Feed(Repeat(), [ROW])
    given = feed.batch([event(1, 1), event(50, 2, clock=True)])
    assert numbers(given[MAIN]) == [1]


def test_all_buckets_see_the_same_time_whoever_has_the_rows() -> None:
    feed = Feed(Repeat(), [ROW], buckets=5)
    feed.batch([event(3, 1, key="x")])
    feed.batch([event(9, 2, key="x")])
    assert {bucket.clock.watermark for bucket in feed.buckets} == {9 * SECOND}


def test_a_bucket_tells_what_it_waits_for() -> None:
    feed = Feed(Repeat(), [ROW], buckets=1, rules=TimeRules(idle_after=30 * SECOND))
    feed.batch([event(10, 1)], now=100 * SECOND)
    status = feed.buckets[0].status()
    assert (status.watermark, status.waits_for) == (10 * SECOND, 10 * SECOND + 1)
    assert (status.may_move, status.timer, status.entries) == (130 * SECOND, None, 1)
    assert numbers(feed.batch([], now=status.may_move or 0)[MAIN]) == [1]
    assert feed.buckets[0].status().waits_for is None


events = st.lists(
    st.builds(
        lambda second, key, partition: (second, key, partition),
        st.integers(0, 40),
        st.sampled_from("abc"),
        st.integers(0, 1),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(
    events=events,
    lateness=st.integers(0, 15),
    cuts=st.sets(st.integers(1, 39), max_size=8),
    reload_after=st.sets(st.integers(0, 8)),
    buckets=st.integers(1, 4),
)
def test_what_comes_out_does_not_depend_on_how_the_input_was_cut(
    events: list[tuple[int, str, int]], lateness: int, cuts: set[int], reload_after: set[int], buckets: int
) -> None:
    fed = [event(second, n, key, partition=where) for n, (second, key, where) in enumerate(events)]
    fed += [event(1000, -1, "a", partition=where) for where in (0, 1)]  # the end of all
    bounds = [0, *sorted(cut for cut in cuts if cut < len(fed)), len(fed)]
    batches = [fed[start:end] for start, end in itertools.pairwise(bounds)]
    given = run(
        Repeat(),
        [ROW],
        batches,
        buckets=buckets,
        reload_after=reload_after,
        rules=TimeRules(lateness=lateness * SECOND),
        partitions=2,
    )
    on_time, late = [], []
    for n, (second, key, where) in enumerate(events):
        earlier = [other for other, _, at in events[:n] if at == where]
        is_late = bool(earlier) and second < max(earlier) - lateness
        (late if is_late else on_time).append((second, where, n, key))
    assert sorted(row["n"] for row in given.get("late.0", [])) == sorted(n for _, _, n, _ in late)
    for key in "abc":
        rows = [row for row in given.get(MAIN, []) if row["key"] == key and row["n"] >= 0]
        assert [row["n"] for row in rows] == [n for _, _, n, of in sorted(on_time) if of == key]
        assert [row["before"] for row in rows] == list(range(len(rows)))


def test_results_travel_as_structs_by_channel() -> None:
    channels = {MAIN: ROW, "late.0": pa.schema([*ROW, pa.field("watermark", TIMESTAMP)])}
    unpack = Unpack(channels)
    main = to_bytes(pa.table({"key": ["a"], "n": [1]}, schema=ROW))
    late = to_bytes(pa.Table.from_pylist([{"key": "b", "n": 2, "watermark": 5}], schema=channels["late.0"]))
    sent = pa.RecordBatch.from_pydict({"channel": [MAIN, "late.0", "status"], "blob": [main, late, b"{}"]})
    rows = pa.Table.from_batches(unpack(iter([sent])), unpack.schema).to_pylist()
    assert [row["channel"] for row in rows] == [MAIN, "late.0", "status"]
    assert rows[0][struct_name(0)] == {"key": "a", "n": 1}
    assert rows[0][struct_name(1)] is None
    assert rows[1][struct_name(1)]["n"] == 2
    assert rows[2]["status"] == b"{}"
