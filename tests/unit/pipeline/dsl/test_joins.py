"""Joins, tables and gatherings as they are declared: what they give, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream import Topology
from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.load import load_topology
from millstream.pipeline.dsl.streams import Source, Stream, Table
from millstream.pipeline.planning.plan import plan

ORDERS = "id string, customer string, eur double, ordered_at timestamp"
PAYMENTS = "order_id string, eur double, paid_at timestamp"


def orders(flow: Topology, **options: Any) -> Source:
    return flow.source("orders", **{"schema": ORDERS, "time": "ordered_at", **options})


def payments(flow: Topology, **options: Any) -> Source:
    return flow.source("payments", **{"schema": PAYMENTS, "time": "paid_at", **options})


def customers(flow: Topology, **options: Any) -> Table:
    return flow.table("customers", **{"schema": "id string, name string", "key": "id", **options})


def paid(flow: Topology, **options: Any) -> Stream:
    return orders(flow).join(payments(flow), **{"on": {"id": "order_id"}, "within": "1 hour", **options})


# ---- what they give ----------------------------------------------------------------------------------


def test_joined_streams_have_the_key_once_the_columns_of_both_and_the_later_time() -> None:
    joined = paid(Topology("t"))
    assert joined.columns == (
        *("id", "customer", "left_eur", "ordered_at"),
        *("right_eur", "paid_at", "join_time", "time_basis"),
    )
    assert joined.node.time is not None
    assert joined.node.time.basis == "event time (ordered_at, paid_at)"
    assert joined.node.about() == "inner join, within 1 hour"


def test_what_waits_in_vain_is_older_than_the_watermark_by_as_long_as_it_waits() -> None:
    def behind(how: str) -> int:
        time = paid(Topology("t"), how=how, within=("-5 minutes", "1 hour")).node.time
        assert time is not None
        return time.behind_us // 1_000_000

    assert [behind(how) for how in ("inner", "left", "right", "outer")] == [0, 3600, 300, 3600]


def test_joins_follow_each_other() -> None:
    flow = Topology("t")
    named = paid(flow).join(customers(flow), on="customer")
    assert named.columns == (
        *("customer", "id", "left_eur", "ordered_at", "right_eur", "paid_at"),
        *("name", "log_time", "join_time", "time_basis"),
    )
    closed = named.window(by="customer", size="1 minute", emit="final").agg(n="count(*)")
    closed.to_topic("out")
    (query,) = plan(flow).queries
    assert {source.topic for source in query.sources} == {"orders", "payments", "customers"}


def test_a_table_goes_by_the_log_and_holds_nothing_up_for_longer_than_a_second() -> None:
    table = customers(Topology("t"))
    assert table.changes.columns == ("id", "name", "log_time", "deleted")
    assert table.changes.node.time is not None
    assert (table.changes.node.time.kind, table.changes.node.time.idle_after_ms) == ("log", 1000)


def test_tables_with_the_same_key_are_a_table() -> None:
    flow = Topology("t")
    profiles = flow.table("profiles", schema="customer string, city string", key="customer")
    both = customers(flow).join(profiles, how="outer", name="both")
    assert both.table.key == ("id",)
    assert both.changes.columns == (
        *("id", "name", "left_log_time", "city", "right_log_time"),
        *("deleted", "change_time", "time_basis"),
    )
    again = both.join(flow.table("notes", schema="id string, note string", key="id"), how="left")
    assert again.changes.columns is not None
    assert again.changes.columns.count("change_time") == 1
    both.to_view("both").to_topic("both")
    view, topic = flow.sinks
    assert (view.delete_when, topic.delete_when) == ("deleted", "deleted")
    assert topic.key == "`id`"


def test_a_table_is_joined_by_a_column_that_is_the_others_key() -> None:
    flow = Topology("t")
    invoices = flow.table("invoices", schema="no int, customer string, name string", key="no")
    joined = invoices.join(customers(flow), on={"customer": "id"}, how="left", name="billed")
    assert joined.table.key == ("no",)
    assert joined.changes.columns == (
        *("no", "customer", "left_name", "left_log_time", "right_name", "right_log_time"),
        *("deleted", "change_time", "time_basis"),
    )
    joined.to_topic("out")
    joined.late.to_topic("late")
    (query,) = plan(flow).queries
    assert {operator.name for operator in query.operators} == {"billed", "billed.matched", "billed.assigned"}


def test_a_table_with_several_key_columns_is_written_with_an_object_as_key() -> None:
    flow = Topology("t")
    lines = flow.table("lines", schema="order string, line int, eur double", key=["order", "line"])
    lines.to_topic("copy")
    (sink,) = flow.sinks
    assert sink.key == "to_json(struct(`order`, `line`))"
    assert sink.value == ("`order`", "`line`", "`eur`", "`log_time`")


def test_any_stream_can_be_a_table() -> None:
    flow = Topology("t")
    latest = orders(flow).as_table(key="customer", delete_when="eur = 0")
    assert latest.changes.columns == ("id", "customer", "eur", "ordered_at", "deleted")
    joined = payments(flow).join(latest, on={"order_id": "customer"}, how="left")
    assert joined.columns is not None
    assert "deleted" not in joined.columns


def test_a_gathering_has_a_column_for_every_part_and_channels_beside_it() -> None:
    flow = Topology("t")
    source = orders(flow)
    large = source.channel("large", where="eur > 5")
    whole = flow.gather(large, paid=payments(flow).select("order_id AS id", "*"), by="id", timeout="1 minute")
    assert whole.columns == ("id", "large", "paid", "gather_time", "time_basis")
    assert whole.incomplete.columns == ("id", "large", "paid", "missing", "gather_time", "time_basis")
    assert whole.duplicates.columns == ("id", "part", "large", "paid", "gather_time", "time_basis")
    assert whole.incomplete.node is whole.incomplete.node
    assert whole.node.about() == "gather large, paid, within 1 minute"


def test_a_table_is_named_by_the_variable_that_holds_it(tmp_path: Path) -> None:
    file = tmp_path / "flow.py"
    file.write_text(
        "from millstream import Topology\n"
        "flow = Topology('t')\n"
        "a = flow.table('a', schema='id string', key='id')\n"
        "b = flow.table('b', schema='id string, x int', key='id')\n"
        "both = a.join(b)\n"
        "both.to_view('both')\n"
    )
    assert "both" in [stream.name for stream in load_topology(file).streams]


# ---- cycles ------------------------------------------------------------------------------------------


def test_a_cycle_through_a_join_or_a_table_is_refused_unless_it_is_meant() -> None:
    def flow(**of_table: bool) -> Topology:
        made = Topology("t")
        scores = made.table("scores", schema="id string, score int", key="id", **of_table)
        orders(made).join(scores, on="customer").to_topic("scores", key="customer")
        return made

    with pytest.raises(TopologyError, match="scores -> scores are a cycle"):
        flow().check()
    assert flow(feedback=True).check() == []


def test_a_cycle_round_about_over_several_operators_is_refused() -> None:
    flow = Topology("t")
    source, other = orders(flow), payments(flow)
    source.join(other, on={"id": "order_id"}, within="1 minute").to_topic("joined")
    joined = flow.source("joined", schema="id string, join_time timestamp", time="join_time")
    whole = flow.gather(joined=joined, order=source, by="id", timeout="1 minute")
    whole.incomplete.to_topic("payments")
    with pytest.raises(TopologyError, match="read 'payments' with feedback=True"):
        flow.check()


# ---- what is refused ---------------------------------------------------------------------------------


def table(flow: Topology, **options: Any) -> Table:
    return flow.table("t", **{"schema": "id int, x double, at timestamp", "key": "id", **options})


WRONG: list[tuple[str, Callable[[Topology], object]]] = [
    ("needs within=", lambda f: paid(f, within=None)),
    ("neither a duration nor two", lambda f: paid(f, within=5)),
    ("within: 'soon' is not a duration", lambda f: paid(f, within=("0 s", "soon"))),
    ("give the lower bound first", lambda f: paid(f, within=("5 s", "-5 s"))),
    ("how='full' is not one of", lambda f: paid(f, how="full")),
    ("order='key' is not one of", lambda f: paid(f, order="key")),
    ("as_of= requires a table", lambda f: paid(f, as_of="event")),
    ("did you mean 'order_id'?", lambda f: paid(f, on={"id": "order_ids"})),
    ("on=5 is not", lambda f: paid(f, on=5)),
    ("on=['id', 5] is not", lambda f: paid(f, on=["id", 5])),
    ("at least one column", lambda f: paid(f, on=[])),
    ("give the key 'upper(id)' a name", lambda f: paid(f, on={"upper(id)": "order_id"})),
    ("5 is neither", lambda f: orders(f).join(5, on="id")),  # type: ignore[arg-type]
    (
        "no rows until .agg",
        lambda f: orders(f).join(orders(f, name="o").window(by="id", size="1 m"), on="id"),
    ),  # type: ignore[arg-type]
    ("belongs to topology 'u'", lambda f: orders(f).join(payments(Topology("u")), on="id", within="1 m")),
    ("belongs to topology 'u'", lambda f: orders(f).join(customers(Topology("u")), on="customer")),
    ("time='a timestamp column'", lambda f: orders(f, time=None).join(customers(f), on="customer")),
    (
        "two columns 'left_eur'",
        lambda f: (
            orders(f).select("*", "eur AS left_eur").join(payments(f), on={"id": "order_id"}, within="1 m")
        ),
    ),
    (
        "a column 'join_time' of its own",
        lambda f: orders(f).select("*", "1 AS join_time").join(customers(f), on="customer"),
    ),
    ("within= and order= require a stream", lambda f: orders(f).join(customers(f), on="id", within="1 m")),
    ("how='outer' is not one of", lambda f: orders(f).join(customers(f), on="customer", how="outer")),
    ("as_of='now' is not one of", lambda f: orders(f).join(customers(f), on="customer", as_of="now")),
    ("on= must name as many columns", lambda f: orders(f).join(customers(f), on=["customer", "id"])),
    ("a table is joined by its key", lambda f: orders(f).join(customers(f), on={"customer": "name"})),
    ("there is no column 'ids'; did you mean 'id'?", lambda f: table(f, key="ids")),
    ("needs key=", lambda f: table(f, key=[])),
    ("a key must be a plain value", lambda f: table(f, schema="id array<int>")),
    ("delete_when='deleted'", lambda f: table(f, schema="id int, deleted boolean")),
    ("there is no column 'op'", lambda f: table(f, delete_when="op = 'd'")),
    ("has no rejected records", lambda f: orders(f).as_table(key="id").rejected),
    ("table.changes is its stream", lambda f: table(f).where("x > 5")),
    ("only with respect to a join", lambda f: table(f).late),
    ("joined with a table", lambda f: table(f).join(orders(f))),  # type: ignore[arg-type]
    ("use on= to say", lambda f: table(f).join(f.table("u", schema="a int, b int", key=["a", "b"]))),
    ("use 'inner' or 'left'", lambda f: table(f).join(customers(f), on="x", how="outer")),
    ("there is no column 'y'", lambda f: table(f).join(customers(f), on="y")),
    ("there is no column 'card'", lambda f: orders(f).as_table(key="card")),
    ("at least two streams", lambda f: f.gather(orders(f), by="id", timeout="1 m")),
    (
        "two parts are called 'orders'",
        lambda f: f.gather(orders(f), orders=payments(f), by="id", timeout="1 m"),
    ),
    ("'where 1' can't be a column", lambda f: f.gather(orders(f).where("eur > 1"), by="id", timeout="1 m")),
    ("timeout: 'soon'", lambda f: f.gather(orders(f), p=payments(f), by="eur", timeout="soon")),
    ("there is no column 'id'", lambda f: f.gather(orders(f), payments(f), by="id", timeout="1 m")),
    (
        "can't be called 'missing'",
        lambda f: f.gather(orders(f), missing=payments(f), by="eur", timeout="1 m"),
    ),
    ("a part is a stream; 5", lambda f: f.gather(orders(f), x=5, by="id", timeout="1 m")),  # type: ignore[arg-type]
    ("delete_when= requires key=", lambda f: orders(f).to_topic("out", delete_when="eur = 0")),
]


@pytest.mark.parametrize(
    ("says", "build"), [pytest.param(*one, id=f"{n}: {one[0]}") for n, one in enumerate(WRONG)]
)
def test_a_mistake_is_refused_where_it_is_made(says: str, build: Callable[[Topology], object]) -> None:
    with pytest.raises(TopologyError) as caught:
        build(Topology("t"))
    assert says in str(caught.value)
    assert "test_joins.py:" in str(caught.value.where)
