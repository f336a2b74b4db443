"""Pipelines in a browser, with a real job on Spark behind."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
from confluent_kafka import Producer

from millstream import Broker, Processor, Topology
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.console.run import Console
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.reporting.status_writer import StatusWriter
from millstream.pipeline.run.settings import JobSettings
from tests.support.browser import PHONE, keep, window
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page
    from pyspark.sql import SparkSession


class Scored(Processor):
    def on_event(self, event, context):  # type: ignore[no-untyped-def]
        if event.amount < 0:
            raise ValueError("an amount below nothing")
        context.emit(score=event.amount / 2)


def shop() -> Topology:
    flow = Topology("shop")
    orders = flow.source(
        "orders",
        schema="customer string NOT NULL, amount double NOT NULL, at timestamp",
        time="at",
        lateness="1 second",
    )

    @orders.operator
    def priced(df):  # type: ignore[no-untyped-def]
        """Every amount in euros"""
        return df.selectExpr("*", "amount * 0.92 AS eur")

    scored = orders.process(
        key="customer",
        with_=Scored(),
        output="customer string, score double, at timestamp",
        time="at",
        name="scored",
    )
    alerts = flow.union(scored.where("score > 3"), priced.where("eur > 10"), tag="rule", name="alerts")
    alerts.to_topic("alerts", key="customer")
    scored.to_view("scores", key="customer")
    orders.rejected.to_topic("orders.rejected")
    return flow


def order(number: int, amount: float = 12.5) -> bytes:
    at = datetime.now(UTC).isoformat()
    return json.dumps({"customer": f"c{number % 7}", "amount": amount, "at": at}).encode()


@contextmanager
def orders(address: str) -> Iterator[None]:
    """Some every tenth of a second, one of which does not parse."""
    ended = threading.Event()

    def produce() -> None:
        producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
        number = 0
        while not ended.wait(0.1):
            for _ in range(10):
                number += 1
                producer.produce(
                    "orders", b'{"customer": "c1", "amount": "ten"}' if number % 40 == 0 else order(number)
                )
            producer.poll(0)
        producer.flush(10)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def rows_on(page: Page, number: int = 0) -> str:
    return page.locator("svg.graph text.rate").nth(number).inner_html()


def test_a_job_from_its_first_batch_to_its_failure(
    browser: Browser, spark: SparkSession, tmp_path: Path
) -> None:
    """One after the other, because a job on Spark costs as much as all the rest."""
    with (
        Broker(tmp_path / "broker", num_partitions=2) as broker,
        Console(broker.address) as console,
        window(browser) as page,
    ):
        page.goto(f"{console.url}/pipelines")
        page.get_by_text("No pipeline has run here yet").wait_for()
        assert f"millstream run fraud.py --broker {broker.address}" in page.inner_text("pre")
        keep(page, "pipelines-empty-day")

        connection = Connection(broker.address)
        with Admin(connection) as admin:
            admin.create_topic("orders", partitions=2)
        with StatusWriter(connection) as status:
            job = Job(shop(), JobSettings(connection, str(tmp_path / "checkpoint"), status=status))
            job.prepare()
            page.get_by_role("link", name="shop").wait_for()  # by itself, and before Spark has done anything
            try:
                with orders(broker.address):
                    job.start(spark)
                    _look_at_it_run(page, console)
                _let_it_fail(job, broker.address)
            finally:
                job.stop()
            _look_at_what_failed(page, console)
            for night in (False, True):
                with window(browser, night=night) as other:
                    other.goto(f"{console.url}/pipelines/shop")
                    other.locator("svg.graph").wait_for()
                    keep(other, f"pipeline-failed-{'night' if night else 'day'}")
            with window(browser, size=PHONE) as phone:
                for path in ("/pipelines", "/pipelines/shop?node=t0"):
                    phone.goto(console.url + path)
                    phone.get_by_text("failed").first.wait_for()
                    assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
                keep(phone, "pipeline-phone-day")


def _look_at_it_run(page: Page, console: Console) -> None:
    page.set_default_timeout(180_000)
    page.get_by_role("link", name="shop").click()
    page.locator(".badge.good", has_text="running").wait_for()
    page.locator("svg.graph text.note", has_text="state").first.wait_for()
    page.locator("svg.graph text.rate").first.wait_for()
    page.locator("svg.bars rect.part-process").nth(3).wait_for()
    page.locator("svg.graph text.note", has_text="watermark").first.wait_for()
    page.get_by_text("did not parse: field amount").wait_for()
    assert '"amount": "ten"' in page.inner_text("pre.record")
    page.set_default_timeout(60_000)
    before = rows_on(page)
    page.wait_for_function(
        "before => document.querySelector('svg.graph text.rate').innerHTML !== before", arg=before
    )
    assert page.locator("svg.graph text.rate").count() == page.locator("svg.graph path.arrow").count()
    keep(page, "pipeline-day")
    page.emulate_media(color_scheme="dark")
    keep(page, "pipeline-night")
    page.emulate_media(color_scheme="light")

    # A box tells more, its link can be shared, and it leads to the topic and the group.
    page.locator("svg.graph a", has_text="orders").first.click()
    page.wait_for_url("**/pipelines/shop?node=*")
    details = page.locator(".details")
    details.get_by_text("did not parse").wait_for()
    assert details.get_by_role("link", name="Topic orders").get_attribute("href") == "/topics/orders"
    assert details.get_by_role("link", name="Group shop").get_attribute("href") == "/groups/shop"
    keep(page, "pipeline-node-day")
    page.goto(f"{console.url}/pipelines")
    page.locator("td .badge.good", has_text="running").wait_for()
    keep(page, "pipelines-day")
    page.emulate_media(color_scheme="dark")
    keep(page, "pipelines-night")
    page.emulate_media(color_scheme="light")

    told = httpx.get(f"{console.url}/api/pipelines/shop").json()
    assert told["summary"]["state"] == "running"
    assert told["status"]["views"] == ["scores"]
    titles = {node["key"]: node["title"] for node in told["status"]["nodes"]}
    rows = {(titles[e["tail"]], titles[e["head"]]): e["rows"] for e in told["status"]["edges"]}
    assert rows["orders", "priced"] > 0
    assert rows["orders", "orders.rejected"] > 0
    assert httpx.get(f"{console.url}/api/pipelines").json()["pipelines"][0]["name"] == "shop"
    missing = httpx.get(f"{console.url}/api/pipelines/nobody")
    assert missing.status_code == 404
    assert "no job 'nobody'" in missing.json()["detail"]


def _let_it_fail(job: Job, address: str) -> None:
    producer = Producer({"bootstrap.servers": address})
    producer.produce("orders", order(1, -1.0))
    assert producer.flush(20) == 0

    # Rows that wait for their turn are let go by what comes after them.
    def failure() -> object:
        producer.produce("orders", order(1))
        producer.flush(5)
        return job.failed()

    wait_for(failure, timeout=90, what="the job has failed", every=0.3)
    error = job.failed()
    assert error is not None
    job.tell(error)


def _look_at_what_failed(page: Page, console: Console) -> None:
    """From the badge on the overview to the record."""
    page.goto(console.url)
    row = page.get_by_role("link", name="shop has failed")
    row.wait_for()
    keep(page, "overview-failed-job-day")
    row.click()
    page.wait_for_url("**/pipelines/shop#errors")
    error = page.locator(".troubles li", has_text="ended the job")
    error.get_by_text("an amount below nothing").wait_for()
    assert "amount=-1.0" in error.locator("pre").inner_text()
    assert "in scored" in error.inner_text()
    assert page.locator("svg.graph .blamed", has_text="scored").count() == 1
