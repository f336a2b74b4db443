"""What a topology refuses, before Spark starts and with the line of the user's file."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable

import pytest

from millstream import Topology
from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.streams import Source

SCHEMA = "card string, amount double, country string, paid_at timestamp"


def payments(flow: Topology, **options: object) -> Source:
    return flow.source("payments", **{"schema": SCHEMA, "time": "paid_at", **options})  # type: ignore[arg-type]


def test_importing_the_topology_does_not_import_spark() -> None:
    code = "import sys; from millstream import Topology; print({'pyspark', 'pyarrow'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"


def test_an_error_names_the_line_that_made_it() -> None:
    flow = Topology("t")
    line = inspect.currentframe().f_lineno + 2  # type: ignore[union-attr]
    with pytest.raises(TopologyError) as caught:
        payments(flow).where("amuont > 5")
    assert caught.value.where is not None
    assert caught.value.where.endswith(f"test_topology.py:{line}")
    assert "did you mean 'amount'?" in str(caught.value)


def _wrong(build: Callable[[Topology], object], says: str) -> object:
    return pytest.param(build, says, id=says)


@pytest.mark.parametrize(
    ("build", "says"),
    [
        _wrong(lambda f: f.source("pay ments", schema=SCHEMA), "can't be a topic's name"),
        _wrong(lambda f: f.source("p"), "needs schema="),
        _wrong(lambda f: f.source("p", schema="card strong"), "the type of column 'card'"),
        _wrong(lambda f: f.source("p", schema=SCHEMA, format="xml"), "format='xml'"),
        _wrong(lambda f: f.source("p", schema=SCHEMA, format="text"), "leave schema out"),
        _wrong(lambda f: f.source("p", schema=SCHEMA, time="paid"), "there is no column 'paid'"),
        _wrong(lambda f: f.source("p", schema=SCHEMA, time="card"), "must be a timestamp column"),
        _wrong(lambda f: f.source("p", schema=SCHEMA, time="paid_at", lateness="soon"), "not a duration"),
        _wrong(lambda f: f.source("p", schema=SCHEMA, lateness="1 minute"), "requires time="),
        _wrong(lambda f: f.source("p", schema=SCHEMA, include=["color"]), "include='color'"),
        _wrong(lambda f: f.source("p", schema=SCHEMA, start="yesterday"), "start='yesterday'"),
        _wrong(lambda f: f.source("p", schema=SCHEMA, max_rows=0), "max_rows=0"),
        _wrong(lambda f: (payments(f), payments(f)), "already a stream 'payments'"),
        _wrong(lambda f: payments(f).operator(17), "an operator is a function"),
        _wrong(lambda f: payments(f).operator(print), "an operator is a function"),
        _wrong(lambda f: payments(f).operator(lambda: None), "must take one argument"),
        _wrong(lambda f: payments(f).select(), "at least one expression"),
        _wrong(lambda f: payments(f).select("crad"), "did you mean 'card'"),
        _wrong(lambda f: payments(f).select("card").where("amount > 5"), "no column 'amount'"),
        _wrong(lambda f: payments(f).channel("big"), "needs where="),
        _wrong(lambda f: payments(f).otherwise("rest"), "has no channels yet"),
        _wrong(lambda f: payments(f).window(by="card"), "either size= "),
        _wrong(lambda f: payments(f).window(by="card", size="1 m", gap="1 m"), "either size= "),
        _wrong(lambda f: payments(f).window(by="card", gap="1 m", every="1 s"), "every= requires size="),
        _wrong(lambda f: payments(f).window(by="card", size="1 m", every="2 m"), "is longer than"),
        _wrong(
            lambda f: payments(f).window(by="card", size="1 m", every="event", emit="final"),
            "leave out emit=",
        ),
        _wrong(lambda f: payments(f).window(by="card", opens="amount > 5"), "needs timeout="),
        _wrong(lambda f: payments(f).window(by="card", gap="1 m", closes="amount > 5"), "require opens="),
        _wrong(
            lambda f: payments(f).window(by="card", opens="amuont > 5", timeout="1 m"),
            "did you mean 'amount'",
        ),
        _wrong(
            lambda f: payments(f).window(by="card", opens="true", timeout="1 m", timeout_from="end"),
            "'first' or 'last'",
        ),
        _wrong(lambda f: payments(f).window(by="card", size="1 m", engine="flink"), "'kernel' or 'native'"),
        _wrong(
            lambda f: payments(f).window(by="card", size="1 m", every="event", engine="native"),
            "because it moves with every event",
        ),
        _wrong(
            lambda f: payments(f).window(by="card", size="1 m", emit="final", retract=True),
            "never retracted",
        ),
        _wrong(lambda f: payments(f).window(by="crad", size="1 m"), "did you mean 'card'"),
        _wrong(lambda f: payments(f).window(by="upper(card)", size="1 m"), "AS name"),
        _wrong(lambda f: payments(f).window(by="card", gap="1 m", emit="once"), "not 'once'"),
        _wrong(
            lambda f: payments(f, time=None).window(by="card", size="1 m"),
            "give it time='a timestamp column'",
        ),
        _wrong(
            lambda f: payments(f).select("card").window(by="card", size="1 m"), "leaves out column 'paid_at'"
        ),
        _wrong(lambda f: payments(f).rejected.window(by="topic", size="1 m"), "have no event time"),
        _wrong(lambda f: payments(f).window(by="card", size="1 m").agg(), "at least one aggregate"),
        _wrong(
            lambda f: payments(f).window(by="card AS Window_Start", size="1 m").agg(n="count(*)"),
            "has a column 'Window_Start' of its own; give the key another name",
        ),
        _wrong(lambda f: payments(f).window(by="card", size="1 m").agg(n="amount"), "is not an aggregate"),
        _wrong(
            lambda f: payments(f).window(by="card", size="1 m").agg(card="count(*)"), "already has a column"
        ),
        _wrong(
            lambda f: (
                payments(f).window(by="card", size="1 m").agg(n="count(*)").window(by="card", size="1 h")
            ),
            "give it emit='final'",
        ),
        _wrong(lambda f: f.union(payments(f)), "at least two"),
        _wrong(lambda f: f.union(payments(f), 5), "5 is not one"),
        _wrong(lambda f: f.union(*[payments(f)] * 2), "occurs twice"),
        _wrong(lambda f: f.union(payments(f), payments(Topology("u"))), "belongs to topology 'u'"),
        _wrong(lambda f: payments(f).to_topic("a/b"), "can't be a topic's name"),
        _wrong(lambda f: payments(f).to_topic("a", key="crad"), "did you mean 'card'"),
        _wrong(lambda f: payments(f).to_topic("a").to_topic("a"), "already goes to topic 'a'"),
        _wrong(lambda f: payments(f).to_view("a b", key="card"), "can't be a view's name"),
        _wrong(lambda f: payments(f).to_view("v", key="crad"), "did you mean 'card'"),
        _wrong(lambda f: payments(f).to_view("v", key=[]), "needs key="),
        _wrong(lambda f: payments(f).to_view("v", key="card").to_view("V", key="card"), "already written at"),
        _wrong(
            lambda f: payments(f).where("amount > 5").late, "exists on a source and on the result of a window"
        ),
        _wrong(lambda f: payments(f).late.window(by="card", size="1 m"), "outside of time"),
        _wrong(lambda f: Topology("t", guarantee="twice"), "is not one of"),
        _wrong(lambda f: f.source(schema=SCHEMA), "a source reads a topic or the topics of a pattern"),
        _wrong(lambda f: f.source("p", pattern="p.*", schema=SCHEMA), "a source reads a topic or"),
        _wrong(lambda f: f.source(pattern="", schema=SCHEMA), "pattern='' is not a regular expression"),
        _wrong(lambda f: f.source(pattern="a(", schema=SCHEMA), "of RE2: missing ): a("),
        _wrong(lambda f: f.source(pattern="(?!a).*", schema=SCHEMA), "is not a regular expression of RE2"),
        _wrong(lambda f: f.source(pattern="a.*", format="avro"), "needs schema= or subject="),
        _wrong(lambda f: payments(f).deduplicate(by=[], within="1 hour"), "at least one column"),
        _wrong(lambda f: payments(f).deduplicate(by="crad", within="1 hour"), "did you mean 'card'"),
        _wrong(lambda f: payments(f).deduplicate(by="card", within="soon"), "within: 'soon'"),
        _wrong(lambda f: payments(f).deduplicate(by="card", within="0 seconds"), "longer than 0"),
        _wrong(
            lambda f: f.union(payments(f), f.source("b", format="text")).deduplicate(by="card", within="1 h"),
            "does not say which time its events have",
        ),
        _wrong(
            lambda f: payments(f, time=None).rejected.deduplicate(by="offset", within="1 h"),
            "have no event time",
        ),
        _wrong(lambda f: payments(f).to_view("v", key="card", index="cuntry"), "did you mean 'country'"),
        _wrong(lambda f: payments(f).to_view("v", key="card", index=[["country", "city"]]), "column 'city'"),
        _wrong(lambda f: payments(f).to_view("v", key="card", index=[[]]), "neither a column nor a list"),
        _wrong(lambda f: payments(f).to_view("v", key="card", index=[5]), "neither a column nor a list"),
        _wrong(lambda f: payments(f).to_view("v", key="card", index=["card"]), "is the key, which has an"),
        _wrong(lambda f: payments(f).to_view("v", key="card", index=["amount"] * 2), "has amount twice"),
        _wrong(
            lambda f: payments(f).to_view("v", key="card", index=[["amount", "amount"]]),
            "names a column twice",
        ),
    ],
)
def test_a_mistake_is_refused_where_it_is_made(build: Callable[[Topology], object], says: str) -> None:
    with pytest.raises(TopologyError) as caught:
        build(Topology("t"))
    assert says in str(caught.value)
    assert "test_topology.py:" in str(caught.value.where)


def test_a_topology_without_source_or_sink_is_refused() -> None:
    flow = Topology("t")
    with pytest.raises(TopologyError, match="reads nothing"):
        flow.check()
    payments(flow)
    with pytest.raises(TopologyError, match="writes nothing"):
        flow.check()


def test_a_window_that_was_left_without_aggregates_is_refused() -> None:
    flow = Topology("t")
    source = payments(flow)
    source.window(by="card", size="1 minute")
    source.to_topic("out")
    with pytest.raises(TopologyError, match=r"add \.agg"):
        flow.check()


def test_a_cycle_through_topics_is_refused_unless_it_is_meant() -> None:
    flow = Topology("t")
    flow.source("a", format="text").to_topic("b")
    flow.source("b", format="text").to_topic("a")
    with pytest.raises(TopologyError, match="a -> b -> a are a cycle"):
        flow.check()

    meant = Topology("t")
    meant.source("a", format="text", feedback=True).to_topic("b")
    meant.source("b", format="text").to_topic("a")
    assert meant.check() == []


def test_a_pattern_that_matches_a_topic_of_the_flow_is_a_cycle_unless_it_is_meant() -> None:
    flow = Topology("t")
    flow.source(pattern="a.*", format="text").to_topic("b").to_topic("others")
    flow.source("b", format="text").to_topic("apples")
    with pytest.raises(TopologyError, match="apples -> b -> apples are a cycle"):
        flow.check()

    meant = Topology("t")
    meant.source(pattern="a.*", format="text", feedback=True).to_topic("all")
    assert meant.check() == []


def test_a_source_by_pattern_is_named_like_other_streams() -> None:
    flow = Topology("t")
    source = flow.source(pattern=r"orders\..*", format="text")
    rejected, named = source.rejected, flow.source(pattern="a.*", format="text", name="letters")
    assert (source.name, rejected.name, named.name) == ("source 1", "source 1.rejected", "letters")
    flow.rename(source.node, "orders")  # after the variable that holds it, when its file is loaded
    assert (source.name, rejected.name) == ("orders", "orders.rejected")


def test_a_deduplicated_stream_has_the_columns_and_the_time_of_its_input() -> None:
    flow = Topology("t")
    once = payments(flow).deduplicate(by=["card", "lower(country)"], within="1 hour", name="once")
    assert once.columns == once.duplicates.columns == ("card", "amount", "country", "paid_at")
    assert once.node.time is not None
    assert once.node.time.basis == "event time (paid_at)"
    assert once.duplicates.name == "once.duplicates"
    assert once.window(by="card", size="1 minute").agg(n="count(*)").columns is not None
    plain = flow.source("plain", schema="id string").deduplicate(by="id", within="1 hour")
    with pytest.raises(TopologyError, match="does not say which time its events have"):
        plain.window(by="id", size="1 minute")


def test_a_branch_that_leads_nowhere_is_warned_about() -> None:
    flow = Topology("t")
    source = payments(flow)
    source.to_topic("out")
    source.where("amount > 5").select("card")
    (warning,) = flow.check()
    assert "select 1" in warning
    assert "goes nowhere" in warning


def test_columns_are_known_through_steps_windows_and_unions() -> None:
    flow = Topology("t")
    source = payments(flow, include=["offset"])
    assert source.columns == ("card", "amount", "country", "paid_at", "record_offset")
    window = source.window(by=["card", "upper(country) AS land"], size="1 minute").agg(n="count(*)")
    assert window.columns == ("card", "land", "window_start", "window_end", "n", "time_basis")
    united = flow.union(window, source.select("card", "amount AS n"), tag="kind")
    assert united.columns == ("card", "land", "window_start", "window_end", "n", "time_basis", "kind")
    assert source.operator(lambda df: df).columns is None


def test_log_time_and_processing_time_are_columns_of_their_own() -> None:
    flow = Topology("t")
    assert flow.source("a", format="text", time="log").columns == ("value", "log_time")
    processing = flow.source("b", format="binary", time="processing").node.time
    assert processing is not None
    assert processing.basis == "processing time"


def test_a_splitting_operator_has_the_channels_it_names() -> None:
    flow = Topology("t")

    @payments(flow).operator(channels=["good", "bad"])
    def sorted_out(df):  # type: ignore[no-untyped-def]
        return {"good": df, "bad": df}

    assert sorted_out.channel("good").name == "sorted_out.good"
    with pytest.raises(TopologyError, match="it has good, bad"):
        sorted_out.channel("ugly")
