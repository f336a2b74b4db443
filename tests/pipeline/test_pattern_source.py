r"""``flow.source(pattern=r"orders\..*")``: topics that match are read, also those that come later."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Topology
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.core.errors import MillstreamError, TopologyError
from millstream.jobs.report import nodes_with_lags
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.rebuild.rebuild import Rebuild
from millstream.pipeline.run.reporting.status_account import RunningProcess, StatusAccount
from millstream.pipeline.run.settings import JobSettings
from millstream.records.build import Record
from millstream.views.opening import open_reader
from tests.support.jobs import records, run_to_the_end
from tests.support.topics import create_topic, delete_topic, produce
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Shop:
    """Topics of orders by region, and a job that takes each order once, exactly once."""

    def __init__(self, spark: SparkSession, address: str, home: Path, name: str) -> None:
        self.spark, self.address, self.home, self.name = spark, address, home, name
        for out in ("first", "again", "all"):
            create_topic(address, f"{name}.{out}", partitions=1)

    def flow(self, **how: Any) -> Topology:
        flow = Topology(self.name, guarantee="exactly-once", buckets=2)
        orders = flow.source(
            pattern=rf"{self.name}\.orders\..*",
            schema="id string, at timestamp",
            time="at",
            include=["topic"],
            name="orders",
            **how,
        )
        orders.to_topic(f"{self.name}.all")
        first = orders.deduplicate(by="id", within="1 hour", name="first_orders")
        first.to_topic(f"{self.name}.first")
        first.duplicates.to_topic(f"{self.name}.again")
        orders.to_view("latest", key="id", index=["record_topic"])
        return flow

    def settings(self, **how: Any) -> JobSettings:
        return JobSettings(Connection(self.address), str(self.home / "checkpoint"), **how)

    def create(self, region: str, partitions: int = 1) -> str:
        return create_topic(self.address, f"{self.name}.orders.{region}", partitions)

    def order(self, region: str, *ids: str, minute: int = 0, partition: int = 0) -> None:
        values = [json.dumps({"id": id_, "at": f"2026-01-01T12:{minute:02}:00Z"}).encode() for id_ in ids]
        topic = f"{self.name}.orders.{region}"
        produce(self.address, topic, [Record(None, value) for value in values], partition)

    def found(self, out: str) -> list[tuple[str, str]]:
        rows = [json.loads(record.value()) for record in records(self, f"{self.name}.{out}")]
        return sorted((row["record_topic"].rpartition(".")[2], row["id"]) for row in rows)

    @contextmanager
    def running(self, **how: Any) -> Iterator[Job]:
        job = Job(self.flow(), self.settings(**how))
        job.prepare()
        job.start(self.spark)
        try:
            yield job
        finally:
            job.stop()

    def wait(self, job: Job, out: str, *wanted: tuple[str, str]) -> None:
        def there() -> bool:
            if (error := job.failed()) is not None:
                raise error
            return self.found(out) == sorted(wanted)

        wait_for(there, timeout=120, what=f"{wanted} in {out}")


@pytest.fixture
def shop(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Shop:
    address = request.getfixturevalue(getattr(request, "param", "our_address"))
    return Shop(spark, address, tmp_path, f"shop{abs(hash(request.node.nodeid)) % 10**10}")


@pytest.mark.parametrize("shop", ["our_address", "apache_address"], indirect=True, ids=["ours", "Kafka"])
def test_a_job_waits_for_a_first_topic_and_takes_up_those_that_come(shop: Shop) -> None:
    job = Job(shop.flow(), shop.settings())
    job.prepare()
    (said,) = job.unmatched()
    assert (
        said == f"no topic at {shop.address} matches /{shop.name}\\.orders\\..*/ yet: the job waits for one"
    )
    with shop.running() as job:
        wait_for(job.last_progress, timeout=120, what="a batch without a topic")
        eu = shop.create("eu", partitions=2)
        shop.order("eu", "a", "b", minute=1)
        shop.order("eu", "c", minute=1, partition=1)
        shop.wait(job, "all", ("eu", "a"), ("eu", "b"), ("eu", "c"))
        us = shop.create("us")
        shop.order("us", "a", "d", minute=2)
        shop.wait(job, "all", ("eu", "a"), ("eu", "b"), ("eu", "c"), ("us", "a"), ("us", "d"))
        assert job.lags() == {job.plan.queries[0].name: {eu: 0, us: 0}}
        assert job.unmatched() == []
    asia = shop.create("asia")  # while the job is stopped
    shop.order("asia", "e", minute=3)
    run_to_the_end(Job(shop.flow(), shop.settings(available_now=True)), shop.spark)
    assert shop.found("all") == sorted(
        [("eu", "a"), ("eu", "b"), ("eu", "c"), ("us", "a"), ("us", "d"), ("asia", "e")]
    )
    # Both topics have an order "a". The topics' partitions have the same number, and each its own clock.
    assert shop.found("first") == sorted([("eu", "a"), ("eu", "b"), ("eu", "c"), ("us", "d"), ("asia", "e")])
    assert shop.found("again") == [("us", "a")]
    with Admin(Connection(shop.address)) as admin:  # the ledger has the partitions that came later
        committed = admin.committed(shop.name)
    assert {(place.topic, place.partition) for place in committed} == {(eu, 0), (eu, 1), (us, 0), (asia, 0)}


def test_a_deleted_topic_ends_the_job_in_words_which_can_go_on_without_it(shop: Shop) -> None:
    shop.create("eu")
    us = shop.create("us")
    shop.order("eu", "a")
    shop.order("us", "b")
    with shop.running() as job:
        shop.wait(job, "all", ("eu", "a"), ("us", "b"))
        delete_topic(shop.address, us)
        wait_for(job.failed, timeout=120, what="the job has failed")
        error = job.failed()
    assert isinstance(error, MillstreamError)
    assert f"{us}[0] from offset 1: deleted while they were being read" in str(error)
    with shop.running(skip_lost=True) as job:
        shop.order("eu", "c")
        shop.wait(job, "all", ("eu", "a"), ("us", "b"), ("eu", "c"))
        shop.create("us")  # another topic of the same name
        shop.order("us", "d")
        shop.wait(job, "all", ("eu", "a"), ("us", "b"), ("eu", "c"), ("us", "d"))


def test_lag_is_that_of_all_topics_in_the_status_and_of_each_by_name(shop: Shop) -> None:
    account = StatusAccount(Job(shop.flow(), shop.settings()).plan, RunningProcess("r", "host", 1, 0))
    (query,) = account.status(0).queries
    pattern = rf"/{shop.name}\.orders\..*/"
    assert query.reads == [pattern]
    lags = {query.name: {f"{shop.name}.orders.eu": 3, f"{shop.name}.orders.us": 4, "other": 9}}
    nodes = {node.title: node.lag for node in nodes_with_lags(account.status(0).nodes, lags)}
    assert nodes[pattern] == 7


def test_a_job_ends_without_a_topic_and_its_views_are_rebuilt_up_to_where_it_is(shop: Shop) -> None:
    job = Job(shop.flow(), shop.settings(available_now=True))
    job.prepare()
    assert job.unmatched()[0].endswith("yet: there is nothing to read")
    run_to_the_end(job, shop.spark)
    shop.create("eu")
    shop.order("eu", "a")
    run_to_the_end(Job(shop.flow(), shop.settings(available_now=True)), shop.spark)
    assert shop.found("all") == shop.found("first") == [("eu", "a")]
    shop.create("us")  # the job has not come to it, so the rebuild must not read it either
    shop.order("us", "b")
    job = Job(shop.flow(), shop.settings(available_now=True))
    Rebuild(shop.flow(), shop.settings()).run(shop.spark, job.views)
    run_to_the_end(job, shop.spark)
    assert shop.found("all") == [("eu", "a"), ("us", "b")]
    reader = open_reader(job.views)
    assert reader.query("SELECT id FROM latest ORDER BY id")[1] == [("a",), ("b",)]
    assert [view.indexes for view in reader.described()] == [(("record_topic",),)]
    reader.close()


def test_what_a_job_writes_and_reads_by_pattern_is_read_to_its_end(
    spark: SparkSession, our_address: str, tmp_path: Path
) -> None:
    name = f"chain{abs(hash(str(tmp_path))) % 10**10}"

    def flow(pattern: str) -> Topology:
        flow = Topology(name, guarantee="exactly-once", buckets=2)
        schema = "id string, at timestamp"
        numbers = flow.source(f"{name}.in", schema=schema, time="at", name="given")
        numbers.to_topic(f"{name}.made.all").where("id > 'b'").to_topic(f"{name}.made.some")
        made = flow.source(pattern=pattern, schema=schema, time="at", name="made")
        made.deduplicate(by="id", within="1 hour", name="once").to_topic(f"{name}.once")
        return flow

    def job(pattern: str) -> Job:
        settings = JobSettings(Connection(our_address), str(tmp_path / "checkpoint"), available_now=True)
        return Job(flow(pattern), settings)

    create_topic(our_address, f"{name}.in", partitions=1)
    at = "2026-01-01T12:00:00Z"
    values = [json.dumps({"id": id_, "at": at}).encode() for id_ in "abc"]
    produce(our_address, f"{name}.in", [Record(None, value) for value in values])
    run_to_the_end(job(rf"{name}\.made\..*"), spark)
    address = SimpleNamespace(address=our_address)
    once = [json.loads(record.value())["id"] for record in records(address, f"{name}.once")]
    assert sorted(once) == ["a", "b", "c"]
    with pytest.raises(TopologyError, match=r"read /chain.*made.*/; now /chain.*m\.\*/"):
        job(rf"{name}\.m.*").prepare()
