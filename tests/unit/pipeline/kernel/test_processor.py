"""The user's processor on the kernel: state, timers and lives of keys, however the input is cut."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream import Processor
from millstream.core.errors import OperatorFailed
from millstream.pipeline.kernel.channels import FAILED
from millstream.pipeline.kernel.clock import TimeRules
from millstream.pipeline.kernel.processor.processor import MOST_TIMERS, ProcessorPlan
from millstream.pipeline.kernel.program import MAIN, TIMESTAMP
from tests.support.kernel_feed import SECOND, Event, Feed, run

COLUMNS = pa.schema([pa.field("card", pa.string()), pa.field("eur", pa.float64())])
OUTPUT = pa.schema([pa.field("card", pa.string()), pa.field("n", pa.int64()), pa.field("what", pa.string())])


def plan_of(processor: Any, **how: Any) -> ProcessorPlan:
    given: dict[str, Any] = {
        "output": OUTPUT,
        "others": {},
        "keys": 1,
        "streams": ("payments",),
        "at": "here:1",
    }
    return ProcessorPlan(processor, **{**given, **how})


def payment(seconds: float, eur: float = 1.0, card: str = "a") -> Event:
    return Event(round(seconds * SECOND), {"card": card, "eur": eur})


END = payment(10_000, card="z")


def emitted(processor: Any, *events: Event, channel: str = MAIN, **how: Any) -> list[Any]:
    """What a processor gives for card a, all time being over at the end."""
    rows = run(plan_of(processor, **how), [COLUMNS], [[*events, END]]).get(channel, [])
    return [row for row in rows if row["card"] != "z"]


class Counts(Processor):
    def on_event(self, event: Any, context: Any) -> None:
        context.state = (context.state or 0) + 1
        context.emit(n=context.state)


def test_state_is_kept_for_a_key_from_event_to_event() -> None:
    rows = emitted(Counts, payment(1), payment(2, card="b"), payment(3))
    assert [(row["card"], row["n"]) for row in rows if row["card"] == "a"] == [("a", 1), ("a", 2)]
    assert [row["n"] for row in rows if row["card"] == "b"] == [1]


def test_state_that_is_changed_in_place_is_kept_too() -> None:
    class Remembers(Processor):
        def on_event(self, event: Any, context: Any) -> None:
            if context.state is None:
                context.state = []
            context.state.append(event.eur)
            context.emit(n=len(context.state), what=str(context.state[0]))

    feed = Feed(plan_of(Remembers), [COLUMNS])
    for seconds in (1, 2, 3):
        feed.batch([payment(seconds, float(seconds))])
        feed.reload()
    feed.batch([END])
    assert [(row["n"], row["what"]) for row in feed.given[MAIN] if row["card"] == "a"] == [
        (1, "1.0"),
        (2, "1.0"),
        (3, "1.0"),
    ]


def test_an_event_shows_its_columns_and_its_time() -> None:
    class Shows(Processor):
        def on_event(self, event: Any, context: Any) -> None:
            assert (event["card"], event.as_dict()) == (context.key, {"card": "a", "eur": 2.5})
            assert event.stream == "payments"
            context.emit(n=event.time.second, what=str(event.eur))

    (row,) = emitted(Shows, payment(7, 2.5))[:1]
    assert (row["n"], row["what"]) == (7, "2.5")


class Waits(Processor):
    """Tells of a card of which nothing came for five seconds."""

    def on_event(self, event: Any, context: Any) -> None:
        context.state = (context.state or 0) + 1
        context.timer(after="5 seconds", name="quiet")

    def on_timer(self, timer: Any, context: Any) -> None:
        context.emit(n=context.state, what=f"{timer.name} at {timer.time.second} by {timer.clock}")


def test_a_timer_is_due_when_time_has_come_and_moves_when_it_is_set_again() -> None:
    rows = emitted(Waits, payment(1), payment(3), payment(20))
    assert [(row["n"], row["what"]) for row in rows] == [
        (2, "quiet at 8 by event"),
        (3, "quiet at 25 by event"),
    ]


def test_a_timer_comes_before_the_events_of_its_time_and_after_those_before() -> None:
    rows = emitted(Waits, payment(1), payment(6), payment(9))
    assert [(row["n"], row["what"]) for row in rows] == [
        (1, "quiet at 6 by event"),
        (3, "quiet at 14 by event"),
    ]


def test_a_timer_that_is_cancelled_or_past_and_those_of_one_time() -> None:
    class Plays(Processor):
        def on_event(self, event: Any, context: Any) -> None:
            context.timer(event.time + timedelta(seconds=1), name="b")
            context.timer(event.time + timedelta(seconds=1), name="a")
            context.timer(event.time - timedelta(seconds=100), name="past")
            context.timer(event.time + timedelta(seconds=2), name="never")
            context.cancel("never")

        def on_timer(self, timer: Any, context: Any) -> None:
            if timer.name == "a":
                context.cancel("b")
            context.emit(n=timer.time.second, what=timer.name)

    assert [(row["n"], row["what"]) for row in emitted(Plays, payment(5))] == [(5, "past"), (6, "a")]


def test_a_timer_by_the_clock_on_the_wall_waits_for_it() -> None:
    class Alarms(Processor):
        def on_event(self, event: Any, context: Any) -> None:
            context.timer(after=timedelta(seconds=10), clock="processing", name="wall")

        def on_timer(self, timer: Any, context: Any) -> None:
            context.emit(n=context.now.second, what=timer.clock)

    feed = Feed(plan_of(Alarms), [COLUMNS], buckets=1)
    feed.batch([payment(1), payment(2)], now=30 * SECOND)
    assert feed.buckets[0].status().timer == 40 * SECOND
    feed.batch([], now=39 * SECOND)
    assert MAIN not in feed.given
    feed.reload()
    feed.batch([], now=41 * SECOND)
    assert [(row["n"], row["what"]) for row in feed.given[MAIN]] == [(41, "processing")]
    assert feed.buckets[0].status().timer is None


def test_state_is_forgotten_when_nothing_of_its_key_came_for_so_long() -> None:
    given = (payment(0), payment(9), payment(18.5), payment(28.5))
    assert [row["n"] for row in emitted(Counts, *given, ttl=10 * SECOND)] == [1, 2, 3, 1]


def test_a_life_may_be_measured_by_the_clock_on_the_wall() -> None:
    feed = Feed(plan_of(Counts, ttl=10 * SECOND, ttl_clock="processing"), [COLUMNS])
    for now in (0, 9, 20):
        feed.batch([payment(now), payment(now + 1, card="z")], now=now * SECOND)
    assert [row["n"] for row in feed.given[MAIN] if row["card"] == "a"] == [1, 2, 1]


def test_what_is_no_longer_remembered_takes_no_room() -> None:
    class Forgets(Processor):
        def on_event(self, event: Any, context: Any) -> None:
            context.state = None if event.eur < 0 else {"seen": True}

    feed = Feed(plan_of(Forgets, ttl=10 * SECOND), [COLUMNS], buckets=1)
    feed.batch([payment(1), payment(2, card="b"), payment(3, -1.0, card="b"), payment(4, card="c")])
    assert feed.buckets[0].status().entries == 2  # a, and c, which waits for its turn
    feed.batch([payment(5, -1.0, card="z"), payment(1000, -1.0, card="z"), payment(1001, -1.0, card="z")])
    assert feed.buckets[0].status().entries == 1  # the last, which waits


def test_rows_go_to_channels_by_name() -> None:
    class Splits(Processor):
        def on_event(self, event: Any, context: Any) -> None:
            context.emit_to("odd", {"n": 1}, what="x")

    rows = emitted(Splits, payment(1), channel="odd", others={"odd": OUTPUT})
    assert [(row["card"], row["n"], row["what"]) for row in rows] == [("a", 1, "x")]


def test_results_may_have_the_time_of_what_they_came_from() -> None:
    output = pa.schema([pa.field("n", pa.int64()), pa.field("card", pa.string()), pa.field("at", TIMESTAMP)])
    (row,) = emitted(Counts, payment(7), output=output, time="at")
    assert row["at"].second == 7


class Divides(Processor):
    def on_event(self, event: Any, context: Any) -> None:
        context.state = context.state or {"sum": 0.0}
        context.state["sum"] += event.eur
        context.timer(after="1 second", name=str(event.eur))
        context.emit(n=round(context.state["sum"]))
        context.emit(n=round(1 / event.eur))

    def on_timer(self, timer: Any, context: Any) -> None:
        context.emit(what=timer.name)


def test_what_fails_stops_the_job_and_names_operator_key_and_event() -> None:
    with pytest.raises(OperatorFailed) as failed:
        emitted(Divides, payment(1), payment(2, 0.0))
    assert str(failed.value) == (
        "operator 'fed' failed for card='a': ZeroDivisionError: float division by zero"
        " (the event: card='a', eur=0.0)"
    )
    assert isinstance(failed.value.__cause__, ZeroDivisionError)


def test_what_fails_goes_to_a_channel_if_asked_for_and_leaves_nothing_behind() -> None:
    given = run(
        plan_of(Divides, to_channel=True), [COLUMNS], [[payment(1), payment(2, 0.0), payment(3), END]]
    )
    rows = [(row["n"], row["what"]) for row in given[MAIN] if row["card"] == "a"]
    assert rows == [(1, None), (1, None), (None, "1.0"), (2, None), (1, None), (None, "1.0")]
    ((failed),) = given[FAILED]
    assert (failed["card"], failed["eur"], failed["error_timer"]) == ("a", 0.0, None)
    assert failed["error"] == "ZeroDivisionError: float division by zero"
    assert "test_processor.py:" in failed["error_at"]


def test_a_timer_that_fails_goes_to_the_channel_with_its_name() -> None:
    class Bad(Processor):
        def on_event(self, event: Any, context: Any) -> None:
            context.timer(after="1 second", name="t")

        def on_timer(self, timer: Any, context: Any) -> None:
            raise ValueError("too late")

    given = run(plan_of(Bad, to_channel=True), [COLUMNS], [[payment(1), END]])
    ((failed),) = given[FAILED]
    assert (failed["card"], failed["eur"], failed["error_timer"]) == ("a", None, "t")
    assert failed["error"] == "ValueError: too late"


def test_a_processor_without_on_timer_can_set_none() -> None:
    class Sets(Processor):
        def on_event(self, event: Any, context: Any) -> None:
            context.timer(after="1 second")

    with pytest.raises(OperatorFailed, match="has no on_timer"):
        emitted(Sets, payment(1), on_timers=False)


def _does(what: Any) -> Any:
    """A processor that does one thing wrong."""

    class Wrong(Processor):
        def on_event(self, event: Any, context: Any) -> None:
            what(event, context)

        def on_timer(self, timer: Any, context: Any) -> None:
            context.timer(timer.time)

    return Wrong


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (lambda event, context: context.emit(n="seven"), "n='seven' is str, but the column is int64"),
        (lambda event, context: context.emit(n=1 << 70), "too large for 64 bits"),
        (
            lambda event, context: context.emit(m=1),
            "the output has no column 'm'; its columns are card, n, what",
        ),
        (lambda event, context: context.emit_to("odd", n=1), "there is no channel 'odd'"),
        (lambda event, context: event.euro, "an event of this stream has no 'euro'; it has card, eur"),
        (lambda event, context: event["euro"], "no column 'euro'"),
        (lambda event, context: context.timer(), "a timer needs either a time"),
        (lambda event, context: context.timer(after="soon"), "'soon' is not a duration"),
        (lambda event, context: context.timer(event.time, clock="wall"), "'event' or 'processing'"),
        (lambda event, context: context.timer(event.time), "would never end"),
        (lambda event, context: setattr(context, "state", event), "plain values"),
        (lambda event, context: setattr(context, "state", "x" * 2000), "max_state_bytes=1,000"),
        (
            lambda event, context: [
                context.timer(event.time, name=str(number)) for number in range(MOST_TIMERS + 1)
            ],
            "at most 1000 timers",
        ),
    ],
)
def test_a_mistake_in_a_processor_is_told_in_words_with_its_key(what: Any, says: str) -> None:
    with pytest.raises(OperatorFailed, match="operator 'fed' failed for card='a'") as failed:
        emitted(_does(what), payment(1), max_state_bytes=1000)
    assert says in str(failed.value)


def test_state_of_an_older_version_is_brought_to_the_new_one() -> None:
    class Newer(Counts):
        version = 2

        def migrate(self, version: int, state: Any) -> Any:
            assert version == 1
            return state * 100

    feed = Feed(plan_of(Counts), [COLUMNS])
    feed.batch([payment(1), payment(2), payment(3, card="b")])
    feed.replace(plan_of(Newer))
    feed.batch([payment(4), payment(5, card="z")])
    feed.reload()
    feed.batch([payment(6), END])
    assert [row["n"] for row in feed.given[MAIN] if row["card"] == "a"] == [1, 2, 201, 202]


def test_events_of_several_streams_come_in_one_order_and_say_whose_they_are() -> None:
    class Sees(Processor):
        def on_event(self, event: Any, context: Any) -> None:
            context.state = [*(context.state or []), event.stream[0]]
            context.emit(n=len(context.state), what="".join(context.state))

    other = pa.schema([pa.field("who", pa.string()), pa.field("limit", pa.int64())])
    plan = plan_of(Sees, streams=("payments", "limits"))
    events = [
        payment(1),
        Event(2 * SECOND, {"who": "a", "limit": 5}, input=1),
        payment(3),
        END,
        Event(10_000 * SECOND, {"who": "z", "limit": 5}, input=1),
    ]
    rows = run(plan, [COLUMNS, other], [events], keys=1)[MAIN]
    assert [row["what"] for row in rows if row["card"] == "a"] == ["p", "pl", "plp"]


# ---- against a plain simulation of one key ----------------------------------------------------------

SCRIPT = pa.schema(
    [
        pa.field("card", pa.string()),
        pa.field("does", pa.string()),
        pa.field("name", pa.string()),
        pa.field("wait", pa.int64()),
    ]
)


class Script(Processor):
    """Does what events tell it: counts, sets timers, cancels them, forgets, fails."""

    def on_event(self, event: Any, context: Any) -> None:
        context.state = context.state or {"n": 0}
        context.state["n"] += 1
        context.emit(n=context.state["n"], what=event.does)
        if event.does == "set":
            context.timer(after=timedelta(seconds=event.wait), name=event.name)
        elif event.does == "cancel":
            context.cancel(event.name)
        elif event.does == "forget":
            context.state = None
        elif event.does == "fail":
            context.timer(after=timedelta(seconds=event.wait), name=event.name)
            raise ValueError("as told")

    def on_timer(self, timer: Any, context: Any) -> None:
        n = context.state["n"] if context.state is not None else 0
        context.emit(n=n, what=f"timer {timer.name} {timer.time.timestamp():.0f}")
        if timer.name == "again" and n % 2:
            context.timer(timer.time + timedelta(seconds=2), name="again")
        context.state = {"n": n + 5}


def plainly(events: list[Event], ttl: int | None) -> list[tuple[int, str]]:
    """What the script gives for the events of one key in order."""
    given: list[tuple[int, str]] = []
    state: int | None = None
    seen = 0
    timers: dict[str, int] = {}

    def at(time: int) -> int | None:
        return None if state is None or (ttl is not None and seen + ttl <= time) else state

    def timers_until(time: int) -> None:
        nonlocal state, seen
        while timers and min(timers.values()) <= time:
            due, name = min((due, name) for name, due in timers.items())
            del timers[name]
            n = at(due) or 0
            given.append((n, f"timer {name} {due // SECOND}"))
            if name == "again" and n % 2:
                timers[name] = due + 2 * SECOND
            state, seen = n + 5, due

    for event in events:
        timers_until(event.time)
        does, name, wait = event.row["does"], event.row["name"], event.row["wait"]
        if does == "fail":
            state = at(event.time)
            continue
        state, seen = (at(event.time) or 0) + 1, event.time
        given.append((state, does))
        if does == "set":
            timers[name] = event.time + wait * SECOND
        elif does == "cancel":
            timers.pop(name, None)
        elif does == "forget":
            state = None
    timers_until(10_000 * SECOND)
    return given


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_results_are_those_of_the_plain_simulation_however_the_input_is_cut(data: st.DataObject) -> None:
    does = st.sampled_from(["count", "set", "set", "cancel", "forget", "fail"])
    events = [
        Event(
            data.draw(st.integers(0, 30)) * SECOND,
            {
                "card": data.draw(st.sampled_from("ab")),
                "does": data.draw(does),
                "name": data.draw(st.sampled_from(["again", "t", "u"])),
                "wait": data.draw(st.integers(0, 12)),
            },
            partition=data.draw(st.integers(0, 1)),
        )
        for _ in range(data.draw(st.integers(1, 14)))
    ]
    ttl = data.draw(st.sampled_from([None, 6 * SECOND]))
    lateness = data.draw(st.sampled_from([0, 10])) * SECOND
    empty = {"card": "z", "does": "count", "name": "", "wait": 0}
    begins = [Event(0, empty, partition) for partition in (0, 1)]
    ends = [Event(10_000 * SECOND, empty, partition) for partition in (0, 1)]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=4)))
    feed = Feed(
        plan_of(Script, ttl=ttl, to_channel=True),
        [SCRIPT],
        buckets=data.draw(st.integers(1, 3)),
        rules=TimeRules(lateness=lateness),
    )
    feed.batch(begins)
    for low, high in zip([0, *cuts], [*cuts, len(events)], strict=True):
        feed.batch(events[low:high])
        if data.draw(st.booleans()):
            feed.reload(snapshot=data.draw(st.booleans()))
    feed.batch(ends)
    latest: dict[int, int] = {0: 0, 1: 0}
    kept: list[tuple[int, int, int, Event]] = []
    for number, event in enumerate(events):
        if event.time >= latest[event.partition] - lateness:
            kept.append((event.time, event.partition, number, event))
        latest[event.partition] = max(latest[event.partition], event.time)
    in_order = [entry[3] for entry in sorted(kept, key=lambda entry: entry[:3])]
    for card in "ab":
        wanted = plainly([event for event in in_order if event.row["card"] == card], ttl)
        rows = feed.given.get(MAIN, [])
        assert [(row["n"], row["what"]) for row in rows if row["card"] == card] == wanted
    failed = sum(1 for event in in_order if event.row["does"] == "fail")
    assert len(feed.given.get(FAILED, [])) == failed
