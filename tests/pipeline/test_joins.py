"""Joins, tables and gather as a job on Spark against a real broker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Broker, Topology
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.produce import RecordSender
from millstream.client.text.lines import Outgoing
from millstream.core.errors import TopologyError
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.settings import JobSettings
from millstream.views.opening import open_reader
from tests.pipeline.test_job import records
from tests.support.jobs import run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = 1_767_268_800  # 2026-01-01 12:00:00 UTC, in seconds
END = 100_000


def record(second: int, key: str | None, value: dict[str, Any] | None, partition: int = 0) -> Outgoing:
    """A record with its time; where the value has one too, it is the same."""
    at = NOON + second
    text = None if value is None else json.dumps({**value, "at": at}).encode()
    return Outgoing(text, None if key is None else key.encode(), None, partition, at * 1000)


def produce(broker: Broker, topic: str, sent: Sequence[Outgoing], end: dict[str, Any]) -> None:
    """Records, and in every partition one that ends all waiting."""
    with Admin(Connection(broker.address)) as admin:
        admin.create_topic(topic, partitions=2)
    sender = RecordSender(Connection(broker.address), topic)
    sender.send([*sent, *(record(END, "end", end, partition) for partition in (0, 1))])
    assert sender.finish(20)


def values(broker: Broker, topic: str) -> list[dict[str, Any]]:
    found = [json.loads(one.value()) for one in records(broker, topic)]
    return [one for one in found if "end" not in map(str, one.values()) and one.get("order_id") != -1]


def shop() -> Topology:
    """Orders looked up in a table, and that table joined with another by foreign key."""
    flow = Topology("shop", buckets=2)
    orders = flow.source("orders", schema="order_id int, customer string", time="log")
    customers = flow.table("customers", schema="id string, name string NOT NULL, city string", key="id")
    cities = flow.table("cities", schema="city string, country string", key="city")
    people = customers.join(cities, on="city", how="left", name="people")
    people.to_view("people").to_topic("people")
    orders.join(customers, on="customer", how="left", name="named").to_topic("named", key="order_id")
    customers.rejected.to_topic("bad")
    return flow


def test_a_stream_looks_up_a_table_and_tables_are_joined(
    spark: SparkSession, tmp_path: Path, millstream_broker: Broker
) -> None:
    broker = millstream_broker
    produce(
        broker,
        "customers",
        [
            record(0, "ann", {"name": "Ann", "city": "Bonn"}),  # its id is the key alone
            record(0, '{"id": "bob"}', {"id": "bob", "name": "Bob", "city": "Rome"}, 1),
            record(50, "ann", {"name": "Anna", "city": "Rome"}),
            record(60, "bob", None, 1),
            record(70, None, None),
            record(70, "eve", {"city": "Bonn"}),
        ],
        {"id": "end", "name": "end"},
    )
    produce(
        broker,
        "cities",
        [record(10, "Bonn", {"country": "DE"}), record(20, "Rome", {"country": "IT"}, 1)],
        {"country": "end"},
    )
    produce(
        broker,
        "orders",
        [
            record(40, None, {"order_id": 1, "customer": "ann"}),
            record(50, None, {"order_id": 2, "customer": "ann"}),
            record(55, None, {"order_id": 3, "customer": "bob"}, 1),
            record(60, None, {"order_id": 4, "customer": "bob"}),
        ],
        {"order_id": -1},
    )
    settings = JobSettings(Connection(broker.address), str(tmp_path / "checkpoint"), available_now=True)
    job = Job(shop(), settings)
    job.prepare()
    run_once(job, spark)

    orders = values(broker, "named")
    named = {one["order_id"]: (one.get("name"), one.get("city")) for one in orders}
    assert named == {1: ("Ann", "Bonn"), 2: ("Anna", "Rome"), 3: ("Bob", "Rome"), 4: (None, None)}
    assert {one["time_basis"] for one in orders} == {"log time"}

    reasons = sorted(dict(one.headers())["millstream-reason"].decode() for one in records(broker, "bad"))
    assert reasons == ["field name is missing", "neither a value nor a key to be deleted"]
    changes = [
        (one.key(), one.timestamp()[1] // 1000 - NOON, one.value()) for one in records(broker, "people")
    ]
    ann = [(second, json.loads(value)) for key, second, value in changes if key == b"ann"]
    assert [(second, row["name"], row.get("country")) for second, row in ann] == [
        (0, "Ann", None),
        (10, "Ann", "DE"),
        (50, "Anna", "IT"),
    ]
    bob = [(second, value is None) for key, second, value in changes if key == b"bob"]
    assert bob == [(0, False), (20, False), (60, True)]
    reader = open_reader(tmp_path / "checkpoint" / "views.db")
    try:
        assert reader.query("SELECT id, name, country FROM people")[1] == [("ann", "Anna", "IT")]
    finally:
        reader.close()


def test_keys_of_types_that_never_meet_are_refused_when_the_job_is_planned(
    spark: SparkSession, tmp_path: Path, millstream_broker: Broker
) -> None:
    flow = Topology("wrong")
    left = flow.source("orders", schema="id int, at timestamp", time="at")
    right = flow.source("payments", schema="order_id string, paid_at timestamp", time="paid_at")
    left.join(right, on={"id": "order_id"}, within="1 minute").to_topic("out")
    settings = JobSettings(Connection(millstream_broker.address), str(tmp_path / "c"), create_topics=True)
    job = Job(flow, settings)
    job.prepare()
    try:
        with pytest.raises(TopologyError, match=r"test_joins.py:\d+: .*'id' of 'orders' is int, 'order_id'"):
            job.start(spark)
    finally:
        job.close()
