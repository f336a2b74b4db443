"""The test driver: what a pipeline gives in a test is what it would give in a job."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream import Processor, Topology, step
from millstream.core.errors import MillstreamError, TopologyError
from millstream.pipeline.dsl.streams import Source
from millstream.testing import Driver, Record
from millstream.testing.records import to_bytes

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCHEMA = "card string NOT NULL, eur double, paid_at timestamp"


def flow_of(**options: Any) -> tuple[Topology, Source]:
    flow = Topology("fraud")
    return flow, flow.source("payments", **{"schema": SCHEMA, "time": "paid_at", **options})


def payment(card: str, eur: float, seconds: float) -> dict[str, Any]:
    return {"card": card, "eur": eur, "paid_at": NOON + timedelta(seconds=seconds)}


# ---- records, streams, views -------------------------------------------------------------------------


def test_records_go_through_the_flow_into_topics() -> None:
    flow, payments = flow_of()
    payments.where("eur > 10").select("card", "eur * 2 AS twice", "paid_at").to_topic(
        "large", key="card", time="paid_at"
    )
    payments.to_topic("names", value="upper(card)")
    with Driver(flow) as driver:
        driver.feed("payments", payment("a", 1.5, 0))
        driver.feed("payments", [payment("b", 60, 0.25), payment("c", 20, 1)])
        assert driver.topic("large") == [
            {"card": "b", "twice": 120.0, "paid_at": "2026-01-01T12:00:00.250000Z"},
            {"card": "c", "twice": 40.0, "paid_at": "2026-01-01T12:00:01.000000Z"},
        ]
        assert driver.topic("names") == ["A", "B", "C"]
        first = driver.records("large")[0]
        assert first.key == b"b"
        assert first.timestamp == NOON + timedelta(seconds=0.25)
        assert first.value == b'{"card":"b","twice":120.0,"paid_at":"2026-01-01T12:00:00.250000Z"}'


def test_the_columns_of_a_value_keep_their_names_whatever_made_them() -> None:
    flow, payments = flow_of()
    twice = payments.select("card", "eur * 2 AS twice", "paid_at")
    twice.to_topic("listed", value=["card", "twice", "twice + 1 AS more"])
    twice.select("to_json(struct(twice, card)) AS json").to_topic("nested", value="json")
    flow.union(twice, payments.select("*"), tag="from").to_topic("tagged", value=["from", "twice"])
    with Driver(flow) as driver:
        driver.feed("payments", payment("b", 60, 0))
        assert driver.topic("listed") == [{"card": "b", "twice": 120.0, "more": 121.0}]
        assert driver.topic("nested") == ['{"twice":120.0,"card":"b"}']
        assert [row.get("twice") for row in driver.topic("tagged")] == [120.0, None]
        assert all(row["from"].startswith("select") for row in driver.topic("tagged"))


def test_what_does_not_parse_is_rejected_with_the_reason_and_its_place() -> None:
    flow, payments = flow_of()
    payments.rejected.to_topic("bad")
    good = b'{"card": "a", "eur": 1.5, "paid_at": "2026-01-01T12:00:00Z"}'
    cases: dict[bytes | None, str] = {
        b"nope": "not JSON",
        b"": "not JSON",
        None: "no value",
        b"\xff\xfe": "not UTF-8",
        b"[1, 2]": "JSON, but not an object",
        b"null": "JSON, but not an object",
        good + b" and more": "not JSON: it continues after the object",
        good + b"\n" + good: "not JSON: it continues after the object",
        good.replace(b"1.5", b'"ten"'): "field eur: ten is not double",
        good.replace(b'"card"', b'"crad"'): "field card is missing",
        b'{"card": "a"}': "field paid_at is missing",
        b'{"card": "a", "paid_at": "some day"}': "field paid_at: some day is not timestamp",
    }
    with Driver(flow) as driver:
        driver.feed("payments", good, partition=1)
        driver.feed("payments", [*cases, good], key="k")
        rejected = driver.stream("payments.rejected")
        assert [row["reason"] for row in rejected] == list(cases.values())
        assert [row["offset"] for row in rejected] == list(range(len(cases)))
        assert [row["value"] for row in rejected] == list(cases)
        assert len(driver.stream("payments")) == 2
        assert driver.records("bad")[0].headers["millstream-reason"] == b"not JSON"
        assert driver.records("bad")[0].key == b"k"
        assert driver.topic("bad")[3] == b"\xff\xfe"


def test_views_hold_the_latest_row_of_every_key() -> None:
    flow, payments = flow_of()
    payments.to_view("latest", key="card", delete_when="eur < 0")
    with Driver(flow) as driver:
        driver.feed("payments", [payment("a", 1, 5), payment("b", 2, 5), payment("a", 9, 3)])
        assert driver.view("latest")["a"] == {"card": "a", "eur": 1.0, "paid_at": NOON + timedelta(seconds=5)}
        driver.feed("payments", [payment("a", -1, 6), payment("b", -1, 4)])
        assert set(driver.view("latest")) == {"b"}
        assert driver.sql("SELECT card, eur FROM latest") == [{"card": "b", "eur": 2.0}]


def test_a_view_may_have_a_nested_key_and_a_window_a_large_decimal_one() -> None:
    flow = Topology("odd-keys")
    schema = "owner struct<id:int,tags:array<string>>, owed decimal(20,2), at timestamp"
    rows = flow.source("rows", schema=schema, time="at")
    rows.to_view("owners", key="owner")
    rows.window(by="owed", size="1 minute", emit="final").agg(n="count(*)").to_topic("counts")
    row = {"owner": {"id": 1, "tags": ["x"]}, "owed": "-12345678901234567.89", "at": "2026-01-01T12:00:00Z"}
    with Driver(flow) as driver:
        driver.feed("rows", [row, row])
        driver.finish()
        assert driver.view("owners")[(1, ("x",))]["owner"] == row["owner"]
        assert [one["n"] for one in driver.topic("counts")] == [2]


def test_types_come_back_as_python_has_them() -> None:
    flow = Topology("types")
    things = flow.source(
        "things",
        schema="id int, price decimal(10,2), on_sale boolean, day date, tags array<string>,"
        " maker struct<name:string>",
    )
    things.to_view("shelf", key="id")
    row = {"id": 1, "price": 9.99, "on_sale": True, "day": "2026-01-31", "tags": ["x"]}
    with Driver(flow) as driver:
        driver.feed("things", row | {"maker": {"name": "ACME"}})
        (stream_row,), view_row = driver.stream("things"), driver.view("shelf")[1]
        assert str(stream_row["price"]) == "9.99"
        assert stream_row["day"].isoformat() == "2026-01-31"
        assert stream_row["maker"] == {"name": "ACME"}
        assert stream_row == view_row


def test_channels_unions_and_splitting_operators() -> None:
    flow, payments = flow_of()
    large = payments.channel("large", where="eur > 100")
    payments.otherwise("rest")

    @payments.operator(channels=["odd", "even"])
    def sorted_out(df: Any) -> Any:
        return {"odd": df.where("eur % 2 = 1"), "even": df.where("eur % 2 = 0")}

    both = flow.union(large, sorted_out.channel("odd"), tag="way", name="both")
    both.to_topic("out")
    with Driver(flow) as driver:
        driver.feed("payments", [payment("a", 101, 0), payment("b", 3, 1), payment("c", 4, 2)])
        assert [(row["card"], row["way"]) for row in driver.stream("both")] == [
            ("a", "large"),
            ("a", "sorted_out.odd"),
            ("b", "sorted_out.odd"),
        ]
        assert [row["card"] for row in driver.stream("rest")] == ["b", "c"]


# ---- time --------------------------------------------------------------------------------------------


def test_windows_close_with_event_time_and_late_rows_have_a_channel() -> None:
    flow, payments = flow_of(lateness="10 seconds")
    perminute = payments.window(by="card", size="1 minute", emit="final", name="perminute").agg(
        n="count(*)", spent="sum(eur)"
    )
    perminute.to_topic("totals", key="card")
    payments.late.to_topic("late")
    with Driver(flow) as driver:
        driver.feed("payments", [payment("a", 1, 0), payment("a", 2, 59), payment("b", 5, 69)])
        assert driver.topic("totals") == []
        driver.feed("payments", payment("b", 5, 71))
        assert [(row["card"], row["n"], row["spent"]) for row in driver.topic("totals")] == [("a", 2, 3.0)]
        driver.feed("payments", payment("a", 7, 30))
        (late,) = driver.stream("payments.late")
        assert (late["card"], late["eur"], late["late_ms"]) == ("a", 7.0, 1000)
        assert driver.watermark("perminute") == NOON + timedelta(seconds=61)
        driver.finish()
        assert [row["card"] for row in driver.topic("totals")] == ["a", "b"]


def test_a_window_that_updates_gives_its_result_with_every_change() -> None:
    flow, payments = flow_of()
    payments.window(by="card", size="1 minute", name="running").agg(n="count(*)").to_view(
        "counts", key="card"
    )
    with Driver(flow) as driver:
        for second in range(3):
            driver.feed("payments", payment("a", 1, second))
        assert [row["n"] for row in driver.stream("running")] == [1, 2, 3]
        assert driver.view("counts")["a"]["n"] == 3


def test_a_quiet_source_falls_idle_when_the_clock_moves() -> None:
    flow, payments = flow_of(idle_after="30 seconds")
    payments.window(by="card", size="1 minute", emit="final", name="totals").agg(n="count(*)").to_topic("t")
    with Driver(flow) as driver:
        driver.feed("payments", payment("a", 1, 0))
        driver.advance("40 seconds")
        assert driver.topic("t") == []
        driver.advance("1 minute")
        assert [row["n"] for row in driver.topic("t")] == [1]
        assert driver.now == NOON + timedelta(seconds=100)


def test_a_partition_that_lags_holds_the_window_open() -> None:
    flow, payments = flow_of()
    payments.window(by="card", size="1 minute", emit="final", name="totals").agg(n="count(*)").to_topic("t")
    with Driver(flow) as driver:
        driver.feed("payments", payment("a", 1, 0), partition=0)
        driver.feed("payments", payment("a", 1, 1), partition=1)
        driver.feed("payments", payment("a", 1, 90), partition=0)
        assert driver.topic("t") == []
        driver.feed("payments", payment("a", 1, 90), partition=1)
        assert [row["n"] for row in driver.topic("t")] == [2]


def test_processing_time_is_the_drivers_clock_and_log_time_the_records() -> None:
    flow = Topology("clocks")
    seen = flow.source("seen", schema="k string", time="processing")
    logged = flow.source("logged", schema="k string", time="log")
    seen.to_topic("seen.out")
    logged.window(by="k", size="1 minute", emit="final").agg(n="count(*)").to_topic("logged.out")
    with Driver(flow, now="2026-01-01T12:00:00Z") as driver:
        driver.feed("seen", {"k": "a"})
        driver.advance("90 seconds")
        driver.feed("seen", {"k": "b"})
        times = [row["processing_time"] for row in driver.stream("seen")]
        assert times == [NOON, NOON + timedelta(seconds=90)]
        driver.feed("logged", {"k": "a"}, timestamp=NOON)
        driver.feed("logged", {"k": "a"})
        (closed,) = driver.topic("logged.out")
        assert (closed["n"], closed["time_basis"]) == (1, "log time")


def test_a_row_that_is_filtered_out_tells_the_time() -> None:
    flow, payments = flow_of()
    large = payments.where("eur > 10").window(by="card", size="1 minute", emit="final").agg(n="count(*)")
    large.to_topic("t")
    with Driver(flow) as driver:
        driver.feed("payments", payment("a", 20, 0))
        driver.feed("payments", payment("b", 1, 61))
        assert [row["card"] for row in driver.topic("t")] == ["a"]


@given(
    events=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 200)), max_size=8),
    cuts=st.sets(st.integers(0, 8)),
)
@settings(max_examples=8, deadline=None)
def test_results_do_not_depend_on_how_events_are_fed(events: list[tuple[str, int]], cuts: set[int]) -> None:
    def totals(cuts: set[int]) -> tuple[list[Any], list[Any]]:
        flow, payments = flow_of(lateness="20 seconds")
        window = payments.where("eur < 150").window(by="card", size="30 seconds", emit="final", name="w")
        window.agg(n="count(*)", spent="sum(eur)").to_topic("t")
        payments.late.to_topic("late")
        with Driver(flow) as driver:
            batch: list[dict[str, Any]] = []
            for at, (card, second) in enumerate(events):
                batch.append(payment(card, float(second), second))
                if at in cuts or at == len(events) - 1:
                    driver.feed("payments", batch)
                    batch = []
            driver.finish()
            return sorted(map(str, driver.topic("t"))), sorted(map(str, driver.topic("late")))

    assert totals(cuts) == totals(set(range(len(events))))


# ---- stateful operators ------------------------------------------------------------------------------


def test_a_pattern_and_sessions_and_a_window_that_moves_with_every_event() -> None:
    flow, payments = flow_of()
    testing = payments.pattern(
        by="card",
        within="5 minutes",
        steps=[step("small", "eur < 2").times(3), step("big", "eur > 500")],
        name="testing",
    )
    testing.to_view("blocked", key="card")
    sliding = payments.window(by="card", size="1 minute", every="event", name="sliding").agg(n="count(*)")
    sliding.to_topic("sliding")
    payments.window(by="card", gap="2 minutes", name="visits").agg(n="count(*)").to_topic("visits")
    with Driver(flow) as driver:
        driver.feed("payments", [payment("a", 1, s) for s in (0, 10, 20)])
        driver.feed("payments", [payment("a", 900, 30), payment("b", 900, 31)])
        driver.finish()
        assert list(driver.view("blocked")) == ["a"]
        assert [row["n"] for row in driver.stream("sliding") if row["card"] == "a"] == [1, 2, 3, 4]
        assert sorted((row["card"], row["n"]) for row in driver.topic("visits")) == [("a", 4), ("b", 1)]


def test_joins_with_a_stream_and_with_a_table() -> None:
    flow, payments = flow_of()
    refunds = flow.source("refunds", schema=SCHEMA, time="paid_at")
    owners = flow.table(
        "owners", schema="card string, owner string, since timestamp", key="card", time="since"
    )
    pairs = payments.join(refunds, on="card", within="1 minute", name="pairs")
    pairs.to_topic("pairs")
    named = payments.join(owners, on="card", how="left", name="named")
    named.to_topic("named")
    with Driver(flow) as driver:
        driver.feed("owners", {"card": "a", "owner": "Ann", "since": NOON - timedelta(days=1)})
        driver.feed("payments", [payment("a", 10, 0), payment("b", 20, 1)])
        driver.feed("refunds", payment("a", 10, 30))
        driver.finish()
        assert [row["card"] for row in driver.stream("pairs")] == ["a"]
        assert [(row["card"], row["owner"]) for row in driver.stream("named")] == [("a", "Ann"), ("b", None)]


def test_parts_of_an_event_are_gathered_and_what_stays_incomplete_is_said() -> None:
    flow, payments = flow_of()
    priced = payments.select("card", "paid_at", "eur * 2 AS price")
    scored = payments.where("eur < 100").select("card", "paid_at", "eur / 100 AS risk")
    whole = flow.gather(price=priced, risk=scored, by="card", timeout="30 seconds", name="whole")
    whole.to_topic("whole")
    whole.incomplete.to_topic("incomplete")
    with Driver(flow) as driver:
        driver.feed("payments", [payment("a", 10, 0), payment("b", 500, 1)])
        driver.feed("payments", payment("c", 10, 100))
        assert [row["card"] for row in driver.stream("whole")][:1] == ["a"]
        assert [row["card"] for row in driver.stream("whole.incomplete")] == ["b"]


class Reminder(Processor):
    """Says when a card was quiet for a minute on the wall, and what it got, ten minutes later."""

    def on_event(self, event: Any, context: Any) -> None:
        context.state = (context.state or 0) + 1
        context.timer(name="quiet", after="1 minute", clock="processing")
        context.timer(name="total", after="10 minutes")

    def on_timer(self, timer: Any, context: Any) -> None:
        context.emit(card=context.key, what=timer.name, n=context.state)


def test_timers_of_a_processor_fire_by_the_clock_and_by_event_time() -> None:
    flow, payments = flow_of()
    reminded = payments.process(
        key="card", with_=Reminder, output="card string, what string, n bigint", name="reminded"
    )
    reminded.to_topic("reminders")
    with Driver(flow) as driver:
        driver.feed("payments", [payment("a", 1, 0), payment("a", 1, 1)])
        driver.feed("payments", payment("b", 1, 2))
        driver.advance("59 seconds")
        assert driver.topic("reminders") == []
        driver.advance("5 minutes")
        assert driver.topic("reminders") == [{"card": "a", "what": "quiet", "n": 2}]
        driver.finish()
        assert sorted((row["card"], row["what"], row["n"]) for row in driver.stream("reminded")) == [
            ("a", "quiet", 2),
            ("a", "total", 2),
            ("b", "total", 1),
        ]


def test_what_did_not_count_can_be_seen_without_a_channel_for_it_in_the_flow() -> None:
    flow, payments = flow_of(ahead="1 hour")
    totals = payments.window(by="card", size="1 minute", emit="final", name="totals").agg(n="count(*)")
    totals.to_topic("totals")
    with Driver(flow) as driver:
        driver.feed("payments", [payment("a", 1, 0), payment("a", 1, 100), payment("a", 1, 2), "?"])
        driver.feed("payments", payment("a", 1, 7200))
        assert [row["late_ms"] for row in driver.stream("totals.late")] == [40_000]
        assert len(driver.stream("totals.ahead")) == 1
        assert [row["reason"] for row in driver.stream("payments.rejected")] == ["not JSON"]


def test_a_window_over_the_results_of_another() -> None:
    flow, payments = flow_of()
    minutes = payments.window(by="card", size="1 minute", emit="final", name="minutes").agg(spent="sum(eur)")
    hours = minutes.window(by="card", size="1 hour", emit="final", name="hours").agg(most="max(spent)")
    hours.to_topic("hours")
    with Driver(flow) as driver:
        driver.feed("payments", [payment("a", eur, second) for eur, second in ((5, 0), (6, 30), (9, 90))])
        driver.finish()
        assert [(row["card"], row["most"]) for row in driver.topic("hours")] == [("a", 11.0)]


def test_a_result_counts_in_the_window_that_holds_its_last_instant() -> None:
    flow, payments = flow_of()
    minutes = payments.window(by="card", size="1 minute", emit="final", name="minutes").agg(n="count(*)")
    visits = payments.window(by="card", gap="1 minute", name="visits").agg(n="count(*)")
    for name, stream in {"hours": minutes, "of_visits": visits}.items():
        stream.window(by="card", size="1 hour", emit="final", name=name).agg(n="count(*)").to_topic(name)
    with Driver(flow) as driver:
        driver.feed("payments", payment("a", 1, 3540))  # in the minute up to 13:00, a session up to 13:00
        driver.finish()
        assert [row["window_end"] for row in driver.stream("hours")] == [NOON + timedelta(hours=1)]
        assert [row["window_end"] for row in driver.stream("of_visits")] == [NOON + timedelta(hours=2)]


def test_the_first_rows_of_partitions_that_come_together_are_each_judged_by_their_own() -> None:
    """A partition that begins later, when time has moved on, can't reopen what is closed: as in a job."""

    def visits(*batches: list[Record]) -> tuple[int, int]:
        flow, payments = flow_of()
        payments.window(by="card", gap="1 minute", name="visits").agg(n="count(*)").to_topic("t")
        with Driver(flow) as driver:
            for batch in batches:
                driver.feed("payments", batch)
            driver.finish()
            return sum(row["n"] for row in driver.topic("t")), len(driver.stream("visits.late"))

    ahead = [Record(to_bytes(payment("a", 1, second))) for second in (0, 600)]
    behind = [Record(to_bytes(payment("b", 1, second)), partition=1) for second in (1, 2)]
    assert visits([*ahead, *behind]) == (4, 0)
    assert visits(ahead, behind) == (2, 2)


def test_a_views_changelog_is_a_topic_and_may_be_read_again() -> None:
    flow, payments = flow_of()
    payments.to_view("latest", key="card", delete_when="eur < 0", changelog="latest.changes")
    again = flow.table(
        "latest.changes", schema="card string, eur double", key="card", time="log", name="again"
    )
    again.to_view("copy")
    with Driver(flow) as driver:
        driver.feed("payments", [payment("a", 1, 0), payment("b", 2, 1)])
        driver.feed("payments", [payment("a", -1, 2), payment("b", 3, 0)])  # an older row changes nothing
        assert [record.key for record in driver.records("latest.changes")] == [
            b'{"card":"a"}',
            b'{"card":"b"}',
            b'{"card":"a"}',
        ]
        *_, last = driver.topic("latest.changes")
        assert last is None
        assert [row["eur"] for row in driver.view("copy").values()] == [2.0]


def test_a_records_time_may_be_milliseconds_as_in_the_log() -> None:
    flow, payments = flow_of(time="log")
    payments.to_topic("t", time="log_time")
    with Driver(flow) as driver:
        driver.feed("payments", payment("a", 1, 0), timestamp=0)
        driver.feed("payments", Record(to_bytes(payment("a", 1, 0)), timestamp=1500))  # type: ignore[arg-type]
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        assert [one.timestamp for one in driver.records("t")] == [epoch, epoch + timedelta(seconds=1.5)]
        with pytest.raises(MillstreamError, match=r"1\.5 is not a time"):
            driver.feed("payments", payment("a", 1, 0), timestamp=1.5)  # type: ignore[arg-type]


# ---- topics that come back ---------------------------------------------------------------------------


def test_a_topic_that_the_flow_writes_is_fed_to_those_that_read_it() -> None:
    flow, payments = flow_of()
    payments.where("eur > 10").to_topic("large", key="card")
    again = flow.source("large", schema=SCHEMA, time="paid_at", include=["key"])
    again.select("record_key", "eur").to_topic("twice")
    with Driver(flow) as driver:
        driver.feed("payments", [payment("a", 1, 0), payment("b", 20, 1)])
        assert driver.topic("twice") == [{"record_key": "Yg==", "eur": 20.0}]


def test_at_the_end_time_has_not_passed_what_is_still_to_be_read_again() -> None:
    """Results of the first window come when time has passed them. The second must not be that far yet."""
    flow, payments = flow_of()
    moving = {"by": "card", "size": "1 minute", "every": "event"}
    payments.window(**moving).agg(n="count(*)").select("card", "n", "window_end AS at").to_topic("counts")
    counts = flow.source("counts", schema="card string, n bigint, at timestamp", time="at")
    counts.window(**moving, name="sums").agg(n="sum(n)").to_topic("sums")
    with Driver(flow) as driver:
        driver.feed("payments", [payment("a", 1, second) for second in range(3)])
        driver.finish()
        assert driver.stream("sums.late") == []
        assert [row["n"] for row in driver.topic("sums")] == [1, 3, 6]


def test_feedback_ends_when_the_flow_lets_it_end_and_is_refused_where_it_never_does() -> None:
    def halving(until: str) -> Topology:
        flow = Topology("halving")
        numbers = flow.source("numbers", schema="n int", feedback=True)
        numbers.where(until).select("n div 2 AS n").select("cast(n AS int) AS n").to_topic("numbers")
        return flow

    with Driver(halving("n > 1")) as driver:
        driver.feed("numbers", {"n": 9})
        assert [row["n"] for row in driver.topic("numbers")] == [4, 2, 1]
    with (
        Driver(halving("true")) as driver,
        pytest.raises(MillstreamError, match="reading its own results"),
    ):
        driver.feed("numbers", {"n": 9})


# ---- mistakes ----------------------------------------------------------------------------------------


def test_names_that_are_not_there_are_answered_with_those_that_are() -> None:
    flow, payments = flow_of()
    payments.to_topic("copies")
    payments.to_view("latest", key="card")
    with Driver(flow) as driver:
        for call, says in (
            (lambda: driver.feed("paymnets", {}), "did you mean 'payments'?"),
            (lambda: driver.topic("copy"), "did you mean 'copies'?"),
            (lambda: driver.stream("nothing"), "there are: payments"),
            (lambda: driver.view("lates"), "did you mean 'latest'?"),
            (lambda: driver.advance("soon"), "'soon' is not a duration"),
            (lambda: driver.sql("SELECT * FROM nowhere"), "the views"),
        ):
            with pytest.raises(MillstreamError) as caught:
                call()
            assert says in str(caught.value)
        driver.finish()
        with pytest.raises(MillstreamError, match="has ended"):
            driver.feed("payments", payment("a", 1, 0))
    with pytest.raises(MillstreamError, match="'python' or 'spark'"):
        Driver(flow, engine="duckdb")


def test_a_mistake_in_the_flow_is_reported_at_its_line_when_the_driver_is_made() -> None:
    def made(build: Any) -> Topology:
        flow, payments = flow_of()
        build(payments).to_topic("out")
        return flow

    def missing(df: Any) -> Any:
        return df.select("nothing_like_this")

    def broken(df: Any) -> Any:
        return 1 / 0

    def forgotten(df: Any) -> Any:
        df.select("card")

    for build, says in (
        (lambda s: s.operator(missing), "operator 'missing' failed: AnalysisError: there is no column"),
        (lambda s: s.operator(broken), "operator 'broken' failed: ZeroDivisionError"),
        (lambda s: s.operator(forgotten), "is a return missing?"),
        (lambda s: s.where("eur > > 5"), "Syntax error"),
        (lambda s: s.select("soundex(card) AS s"), "use Driver(..., engine='spark')"),
        (lambda s: s.operator(lambda df: df.groupBy("card").count()), "DataFrame.groupBy is not in the test"),
    ):
        with pytest.raises(TopologyError) as caught:
            Driver(made(build))
        assert says in str(caught.value)
        assert "test_driver.py:" in str(caught.value.where)
        assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(TopologyError, match="writes nothing"):
        Driver(flow_of()[0])


def test_a_value_that_an_expression_cannot_take_fails_as_the_job_would() -> None:
    flow, payments = flow_of()
    payments.select("card", "1 / eur AS inverse").to_topic("out")
    with Driver(flow) as driver:
        driver.feed("payments", payment("a", 4, 0))
        with pytest.raises(TopologyError, match="division by zero"):
            driver.feed("payments", payment("a", 0, 1))


def test_a_driver_is_made_of_a_file_too(tmp_path: Path, millstream_driver: Any) -> None:
    file = tmp_path / "pipeline.py"
    file.write_text(
        "from pyspark.sql import functions as fn\n"
        "from millstream import Topology\n"
        "flow = Topology('t')\n"
        "lines = flow.source('lines', format='text')\n"
        "@fn.udf('int')\n"
        "def letters(text):\n"
        "    return len(text)\n"
        "@lines.operator\n"
        "def measured(df):\n"
        "    return df.withColumn('n', letters('value')).withColumn('big', fn.col('n') > 3)\n"
        "measured.to_topic('out')\n"
    )
    driver = millstream_driver(file)
    driver.feed("lines", ["abc", "abcd"])
    assert driver.topic("out") == [
        {"value": "abc", "n": 3, "big": False},
        {"value": "abcd", "n": 4, "big": True},
    ]
