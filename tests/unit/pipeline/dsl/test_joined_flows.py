"""Joins, tables and gather in whole flows, from records to records, in the test driver."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from millstream import Topology
from millstream.pipeline.dsl.streams import Source, Table
from millstream.testing import Driver

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(second: float) -> str:
    return (NOON + timedelta(seconds=second)).isoformat()


def orders(flow: Topology) -> Source:
    return flow.source(
        "orders", schema="order_id int, customer string, ordered_at timestamp", time="ordered_at"
    )


def payments(flow: Topology) -> Source:
    return flow.source("payments", schema="order_id bigint, eur double, paid_at timestamp", time="paid_at")


def customers(flow: Topology, **options: Any) -> Table:
    return flow.table("customers", schema="id string, name string NOT NULL, city string", key="id", **options)


def order(driver: Driver, number: int, customer: str, second: float) -> None:
    driver.feed("orders", {"order_id": number, "customer": customer, "ordered_at": at(second)})


def pay(driver: Driver, number: int, eur: float, second: float) -> None:
    driver.feed("payments", {"order_id": number, "eur": eur, "paid_at": at(second)})


def test_a_window_counts_what_an_outer_join_gives_and_a_table_names() -> None:
    flow = Topology("shop")
    paid = orders(flow).join(
        payments(flow), on="order_id", within=("0 seconds", "10 minutes"), how="left", name="paid"
    )
    named = paid.join(customers(flow), on="customer", how="left", name="named")
    named.to_topic("named")
    counts = named.window(by="name", size="20 minutes", emit="final").agg(n="count(*)", eur="sum(eur)")
    counts.to_topic("counts")
    with Driver(flow) as driver:
        driver.feed("customers", {"name": "Ann"}, key="ann", timestamp=at(0))
        driver.feed("customers", {"name": "Anna"}, key="ann", timestamp=at(200))
        driver.feed("customers", None, key="ann", timestamp=at(1300))
        for number, second in enumerate([100, 150, 300, 1250, 1300], 1):
            order(driver, number, "ann", second)
        pay(driver, 1, 5.0, 140)
        pay(driver, 2, 7.0, 250)
        driver.finish()
        rows = {row["order_id"]: (row.get("name"), row.get("eur")) for row in driver.topic("named")}
        assert rows == {
            1: ("Ann", 5.0),
            2: ("Anna", 7.0),  # by the time of the payment
            3: ("Anna", None),
            4: ("Anna", None),
            5: (None, None),
        }
        windows = [(row.get("name"), row["n"], row.get("eur")) for row in driver.topic("counts")]
        assert sorted(windows, key=str) == [
            ("Ann", 1, 5.0),
            ("Anna", 1, None),
            ("Anna", 2, 7.0),
            (None, 1, None),
        ]


def test_a_joined_table_is_a_view_and_a_topic_with_deletions() -> None:
    flow = Topology("people")
    cities = flow.table("cities", schema="city string, country string", key="city")
    known = customers(flow)
    people = known.join(cities, on="city", how="left", name="people")
    people.to_view("people").to_topic("people")
    known.rejected.to_topic("bad")
    with Driver(flow) as driver:
        driver.feed("customers", {"name": "Ann", "city": "Bonn"}, key="ann", timestamp=at(0))
        driver.feed("customers", {"id": "bob", "name": "Bob", "city": "Rome"}, key="x", timestamp=at(1))
        driver.feed("cities", {"country": "DE"}, key="Bonn", timestamp=at(10))
        driver.feed("cities", {"country": "IT"}, key="Rome", timestamp=at(20))
        driver.feed("customers", {"name": "Anna", "city": "Rome"}, key="ann", timestamp=at(50))
        driver.feed("customers", None, key='{"id": "bob"}', timestamp=at(60))
        driver.feed("customers", None, timestamp=at(70))
        driver.finish()
        changes = [
            (record.key, record.timestamp, record.value is None) for record in driver.records("people")
        ]
        assert [change for change in changes if change[0] == b"bob"] == [
            (b"bob", NOON + timedelta(seconds=1), False),
            (b"bob", NOON + timedelta(seconds=20), False),
            (b"bob", NOON + timedelta(seconds=60), True),
        ]
        assert {key: row["country"] for key, row in driver.view("people").items()} == {"ann": "IT"}
        (bad,) = driver.records("bad")
        assert bad.headers["millstream-reason"] == b"neither a value nor a key to be deleted"


def test_records_that_delete_by_what_they_say() -> None:
    flow = Topology("t")
    table = flow.table("t", schema="id int, deleted boolean, x int NOT NULL", key="id", delete_when="deleted")
    table.to_view("t")
    with Driver(flow) as driver:
        driver.feed("t", [{"id": 1, "x": 5}, {"id": 2, "x": 6}, {"x": 7}], key="3")
        driver.feed("t", [{"id": 1, "deleted": True}])  # what is required need not be there
        driver.finish()
        assert {key: row["x"] for key, row in driver.view("t").items()} == {2: 6, 3: 7}


def test_the_parts_of_an_event_are_gathered_though_their_keys_differ_in_size() -> None:
    flow = Topology("t")
    both = flow.gather(
        order=orders(flow), payment=payments(flow), by="order_id", timeout="5 minutes", name="both"
    )
    both.select("order_id", "order.customer", "payment.eur").to_topic("both")
    both.incomplete.select("order_id", "missing").to_topic("incomplete")
    both.duplicates.select("order_id", "part").to_topic("twice")
    with Driver(flow) as driver:
        order(driver, 1, "ann", 10)
        order(driver, 2, "bob", 20)
        pay(driver, 1, 5.0, 100)
        pay(driver, 1, 5.0, 101)
        pay(driver, 2, 6.0, 320)
        driver.finish()
        assert driver.topic("both") == [{"order_id": 1, "customer": "ann", "eur": 5.0}]
        assert driver.topic("twice") == [{"order_id": 1, "part": "payment"}]
        assert driver.topic("incomplete") == [
            {"order_id": 2, "missing": ["payment"]},
            {"order_id": 2, "missing": ["order"]},
        ]


def test_a_change_that_no_longer_counts_is_on_the_channel_of_late_rows() -> None:
    flow = Topology("t")
    named = orders(flow).join(customers(flow, time="log", lateness="0 seconds"), on="customer", name="named")
    named.to_topic("named")
    named.late.to_topic("late")
    with Driver(flow) as driver:
        driver.feed("customers", {"name": "Ann"}, key="ann", timestamp=at(100))
        order(driver, 1, "ann", 110)
        driver.feed("customers", {"name": "old"}, key="ann", timestamp=at(50))
        driver.finish()
        assert [row["name"] for row in driver.topic("named")] == ["Ann"]
        (late,) = driver.topic("late")
        assert (late["name"], late["late_ms"]) == ("old", 50_000)
