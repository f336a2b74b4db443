"""Windows that move with every event, against a reference that looks at all events for each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.pipeline.kernel.windows.calls import Call, PythonAggregate
from millstream.pipeline.kernel.windows.sliding import SlidingWindows
from tests.support.kernel_feed import SECOND, Event, Feed
from tests.support.out_of_order import Stream, sorted_rows, streams

SCHEMA = pa.schema([("key", pa.string()), ("x", pa.float64()), ("n", pa.int32()), ("large", pa.bool_())])
COLUMNS = {
    "key": st.sampled_from(["a", "b"]),
    "x": st.sampled_from([None, 0.5, 2.0, -8.25]),
    "n": st.one_of(st.none(), st.integers(-3, 3)),
    "large": st.booleans(),
}


def spread(values: list[int]) -> int:
    return max(values) - min(values)


CALLS = (
    Call("rows", "count"),
    Call("large", "count", where="large"),
    Call("total", "sum", ("n",)),
    Call("mean", "avg", ("x",)),
    Call("least", "min", ("x",)),
    Call("kinds", "count", ("n",), distinct=True),
    Call("spread", "spread", ("n",), python=PythonAggregate("spread", ("n",), "int", pa.int32(), spread)),
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plan(seconds: int) -> SlidingWindows:
    return SlidingWindows(1, seconds * SECOND, CALLS, "event time (t)", "w")


def reference(stream: Stream, size: int, lateness: int) -> tuple[list[dict[str, Any]], list[Event]]:
    on_time = [event for event, watermark, _ in stream.judged(lateness) if event.time >= watermark]
    late = [event for event, watermark, _ in stream.judged(lateness) if event.time < watermark]
    results = []
    for event in on_time:
        if event.time >= stream.reached(lateness):
            continue  # it still waits
        inside = [
            other.row
            for other in on_time
            if other.row["key"] == event.row["key"] and event.time - size < other.time <= event.time
        ]
        ns = [row["n"] for row in inside if row["n"] is not None]
        xs = [row["x"] for row in inside if row["x"] is not None]
        results.append(
            {
                "key": event.row["key"],
                "window_start": EPOCH + timedelta(microseconds=event.time - size),
                "window_end": EPOCH + timedelta(microseconds=event.time),
                "rows": len(inside),
                "large": sum(row["large"] for row in inside),
                "total": sum(ns) if ns else None,
                "mean": sum(xs) / len(xs) if xs else None,
                "least": min(xs, default=None),
                "kinds": len(set(ns)),
                "spread": spread(ns) if ns else None,
                "time_basis": "event time (t)",
            }
        )
    return results, late


@settings(max_examples=60, deadline=None)
@given(streams(COLUMNS), st.sampled_from([1, 5, 20]), st.sampled_from([0, 4]))
def test_every_event_has_the_window_of_the_reference_however_the_input_is_cut(
    stream: Stream, seconds: int, late_seconds: int
) -> None:
    lateness = late_seconds * SECOND
    found = stream.run(plan(seconds), SCHEMA, lateness=lateness)
    results, late = reference(stream, seconds * SECOND, lateness)
    assert sorted_rows(found.get("", [])) == sorted_rows(results)
    for key in ("a", "b"):
        ends = [row["window_end"] for row in found.get("", []) if row["key"] == key]
        assert ends == sorted(ends)
    assert len(found.get("late.0", [])) == len(late)


def test_events_of_one_instant_see_each_other() -> None:
    row = {"key": "a", "x": 1.0, "n": 1, "large": False}
    feed = Feed(plan(10), [SCHEMA])
    found = feed.batch(
        [Event(SECOND, row), Event(SECOND, row), Event(11 * SECOND, row), Event(99 * SECOND, row)]
    )
    assert [row["rows"] for row in found[""]] == [2, 2, 1]  # at 11 s those at 1 s are just out of reach


def test_what_is_kept_of_a_key_are_its_events_within_the_size() -> None:
    feed = Feed(plan(10), [SCHEMA], buckets=1)
    row = {"key": "a", "x": 1.0, "n": 1, "large": True}
    for second in range(0, 300, 3):
        feed.batch([Event(second * SECOND, {**row, "key": f"key {second % 7}"})])
        if second % 60 == 0:
            feed.reload(snapshot=second % 120 == 0)
    assert feed.buckets[0].status().entries <= 6
