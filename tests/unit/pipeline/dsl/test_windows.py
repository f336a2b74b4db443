"""Windows in a topology: Spark's own or the kernel's, their channels, and windows over windows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream import Topology, aggregate
from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.streams import Aggregate, Source, Stream
from millstream.pipeline.kernel.windows.sessions import Sessions
from millstream.pipeline.planning.plan import plan

SCHEMA = "card string, amount double, kind string, paid_at timestamp"


def source(flow: Topology, **options: Any) -> Source:
    return flow.source("payments", **{"schema": SCHEMA, "time": "paid_at", **options})


@aggregate("amount", returns="double")
def median(amounts: list[float]) -> float:
    return sorted(amounts)[len(amounts) // 2]


def minutes(stream: Any, **how: Any) -> Aggregate:
    given = {"by": "card", "size": "1 minute", "emit": "final", "name": "minutes", **how}
    found: Aggregate = stream.window(**given).agg(n="count(*)")
    return found


def _late(flow: Topology) -> Aggregate:
    made = minutes(source(flow))
    made.late.to_topic("late")
    return made


def _late_of_source(flow: Topology) -> Aggregate:
    payments = source(flow)
    payments.late.to_topic("late")  # before there is a window
    return minutes(payments.where("amount > 5"))


def _under(flow: Topology) -> Aggregate:
    made = minutes(source(flow))
    made.window(by="card", size="1 hour", name="hours").agg(most="max(n)").to_topic("hours")
    return made


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda flow: minutes(source(flow)), None),
        (lambda flow: minutes(source(flow), engine="kernel"), "engine='kernel'"),
        (_late, "minutes.late is asked for"),
        (_late_of_source, "payments.late is asked for"),
        (_under, "hours takes its results"),
        (lambda flow: minutes(source(flow, idle_after="1 s")), "source payments has idle_after= or ahead="),
        (lambda flow: minutes(source(flow, ahead="1 s")), "source payments has idle_after= or ahead="),
        (lambda flow: minutes(source(flow), emit="update", retract=True), "its results are taken back"),
        (lambda flow: minutes(source(flow), emit=None, every="event"), "it moves with every event"),
        (
            lambda flow: minutes(source(flow), size=None, gap="1 s", emit="update"),
            "its sessions are shown before they have ended",
        ),
        (
            lambda flow: source(flow).window(by="card", size="1 m").agg(m=median),
            "m= is written in Python",
        ),
        (
            lambda flow: source(flow).window(by="card", size="1 m").agg(n="count(DISTINCT kind)"),
            "n= has DISTINCT, which Spark's own windows can't have",
        ),
        (
            lambda flow: source(flow).window(by="card", size="1 m").agg(k="coalesce(last (kind), 'none')"),
            "k= has last, for which the order of rows matters",
        ),
        (lambda flow: source(flow).window(by="card", size="1 m").agg(first="max(amount)"), None),
    ],
)
def test_a_window_is_sparks_own_unless_more_is_asked_of_it(
    build: Callable[[Topology], Aggregate], why: str | None
) -> None:
    flow = Topology("t")
    made = build(flow)
    made.to_topic("results")
    planned = plan(flow)
    assert made.node.state.why == why
    assert made.node.state.native == (why is None)
    described = planned.describe()
    assert ("(Spark's own)" if why is None else f"(kernel, 8 buckets: {why})") in described


def test_native_that_can_not_be_is_refused() -> None:
    flow = Topology("t")
    made = minutes(source(flow), engine="native")
    made.to_topic("results")
    assert plan(flow).queries[0].windows == [made.node]
    made.late.to_topic("late")
    with pytest.raises(TopologyError, match=r"engine='native', but .* minutes\.late is asked for"):
        plan(flow)
    with pytest.raises(TopologyError, match="m= is written in Python"):
        source(Topology("u")).window(by="card", size="1 m", engine="native").agg(m=median)


def test_an_aggregate_that_only_spark_has_is_refused_when_the_kernel_is_needed() -> None:
    flow = Topology("t")
    made = source(flow).window(by="card", size="1 m").agg(p="percentile(amount, 0.9)")
    made.to_topic("results")
    plan(flow)
    made.late.to_topic("late")
    with pytest.raises(TopologyError, match=r"needed because window 1\.late is asked for"):
        plan(flow)
    with pytest.raises(TopologyError, match="needed because it moves with every event") as caught:
        source(Topology("u")).window(by="card", size="1 m", every="event").agg(p="percentile(amount, 0.9)")
    assert "test_windows.py:" in str(caught.value.where)


def test_late_rows_are_whole_rows_and_other_windows_take_only_what_they_need() -> None:
    flow = Topology("t")
    made = source(flow).window(by="card", size="1 m", engine="kernel").agg(spent="sum(amount * 2)")
    made.to_topic("results")
    plan(flow)
    (taken,) = made.node.state.inputs
    assert taken.columns == ("amount * 2 AS `millstream_0`",)
    made.late.to_topic("late")
    plan(flow)
    (taken,) = made.node.state.inputs
    assert taken.columns == ("*", "amount * 2 AS `millstream_0`")


def test_the_late_rows_of_a_source_are_those_of_all_that_read_it() -> None:
    flow = Topology("t")
    payments = source(flow)
    late = payments.late
    assert payments.late.node is late.node
    late.to_topic("late")
    minutes(payments).to_topic("a")
    minutes(payments.where("amount > 5"), name=None).where("n > 5").to_topic("b")
    flow.check()
    assert [one.name for one in late.node.inputs] == ["minutes.late", "window 2.late"]
    assert [late.node.tag_of(one) for one in late.node.inputs] == ["minutes", "window 2"]  # type: ignore[attr-defined]


def test_late_rows_where_nothing_can_be_late_are_refused() -> None:
    flow = Topology("t")
    source(flow).late.to_topic("late")
    with pytest.raises(TopologyError, match="'payments' has no late rows"):
        flow.check()


def test_results_have_a_time_if_they_don_t_change() -> None:
    flow = Topology("t")
    payments = source(flow)
    time = minutes(payments).node.time
    assert time is not None
    assert (time.column, time.before_us, time.basis) == ("window_end", 1, "event time (paid_at)")
    moving = payments.window(by="card", size="1 m", every="event").agg(n="count(*)").node.time
    assert moving is not None
    assert (moving.column, moving.before_us) == ("window_end", 0)
    updating = minutes(payments, emit="update", name=None)
    assert updating.node.time is None
    with pytest.raises(TopologyError, match="give it emit='final'"):
        flow.union(updating, payments).window(by="card", size="1 m")


def test_sessions_that_an_event_opens_take_its_conditions_as_columns() -> None:
    flow = Topology("t")
    visits = (
        source(flow)
        .window(by="card", opens="kind = 'in'", closes="kind = 'out'", timeout="1 m", timeout_from="first")
        .agg(n="count(*)")
    )
    visits.to_topic("visits")
    plan(flow)
    planned = visits.node.state.plan
    assert isinstance(planned, Sessions)
    (taken,) = visits.node.state.inputs
    assert taken.columns == ("kind = 'in' AS `millstream_0`", "kind = 'out' AS `millstream_1`")
    assert (planned.opens, planned.closes, planned.timeout) == ("millstream_0", "millstream_1", 60_000_000)
    assert planned.from_first
    assert not planned.outside
    assert visits.outside.node is visits.outside.node
    visits.outside.to_topic("outside")
    plan(flow)
    assert "outside" in visits.node.state.plan.channels(
        [pa.schema([("card", pa.string()), ("millstream_0", pa.bool_()), ("millstream_1", pa.bool_())])]
    )
    with pytest.raises(TopologyError, match="only on sessions that an event opens"):
        _ = minutes(visits).outside


def test_the_examples_in_the_docs_can_be_planned() -> None:
    page = (Path(__file__).parents[4] / "docs" / "guides" / "windows.md").read_text()
    first, second = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(first, names)
    exec(second, names)
    described = plan(names["flow"]).describe()
    assert described.count("(kernel, 8 buckets: ") >= 7
    made = names["minutes"].node.inputs[0]
    made = Stream(made).window(by="card", size="1 m").agg(range=names["Range"])
    assert made.node.state.why == "range= is written in Python"


def test_functions_of_python_s_own_are_aggregates_too() -> None:
    made = aggregate("amount", returns="double")(max)
    assert (made.name, made.arguments, made.whole) == ("max", ("amount",), max)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: aggregate(returns="double"), "needs the columns that it reads"),
        (lambda: aggregate("amount", returns="dubble"), "returns='dubble'"),
        (lambda: aggregate("amount", "kind", returns="double")(lambda amounts: 1.0), "must take 2 arguments"),
        (lambda: aggregate("amount", returns="double")(17), "int.zero is missing"),
        (
            lambda: source(Topology("t")).window(by="card", size="1 m").agg(m=lambda values: 1),  # type: ignore[arg-type]
            "m= is a plain function",
        ),
        (
            lambda: (
                source(Topology("t"))
                .window(by="card", size="1 m")
                .agg(m=aggregate("amuont", returns="double")(lambda amounts: 1.0))
            ),
            "did you mean 'amount'",
        ),
    ],
)
def test_mistakes_in_python_aggregates_are_refused_where_they_are_made(
    build: Callable[[], object], says: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        build()
    assert says in str(caught.value)
    assert "test_windows.py:" in str(caught.value.where)
