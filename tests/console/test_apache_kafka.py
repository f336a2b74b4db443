"""The console for Apache Kafka, screen by screen: it works, and what Kafka lacks is greyed out with the
reason."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.produce import RecordSender
from millstream.client.text.lines import Outgoing
from millstream.client.text.position import TopicPartition
from millstream.console.run import Console
from millstream.jobs.report import TOPIC, QueryStatus
from tests.console.conftest import write
from tests.console.test_job_topic import told
from tests.support.apache_kafka import apache_kafka
from tests.support.browser import PHONE, keep, window
from tests.support.maven import JarsUnavailable

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    """Its address; with a topic, a group that has read some of it, and the last word of a job."""
    try:
        with apache_kafka(quick=True) as started:
            connection = Connection.of(started.address)
            with Admin(connection) as admin:
                admin.create_topic("payments", partitions=2)
                admin.create_topic(TOPIC, partitions=1, config={"cleanup.policy": "compact"})
                write(started.address, "payments", 300)
                admin.commit("billing", {TopicPartition("payments", index): 10 for index in range(2)})
            sender = RecordSender(connection, TOPIC)
            query = asdict(QueryStatus("payments", "fraud", ["payments"], ["alerts"]))
            now = round(time.time() * 1000)
            value = told("fraud", at_ms=now, heartbeat_ms=600_000, queries=[query])
            sender.send([Outgoing(value, b"fraud")])
            assert sender.finish(20)
            yield started.address
    except JarsUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def console(kafka: str) -> Iterator[Console]:
    with Console(kafka) as started:
        yield started


@pytest.fixture
def page(browser: Browser, console: Console) -> Iterator[Page]:
    with window(browser) as opened:
        yield opened


def test_the_overview_knows_the_cluster_and_its_disk(page: Page, console: Console, kafka: str) -> None:
    page.goto(console.url)
    page.get_by_text("All is well.").wait_for()
    row = page.locator("tr", has_text=kafka)
    row.get_by_text(re.compile(r"[kMGT]B$")).wait_for()  # since Kafka 3.3 it tells what is free
    assert page.get_by_text("not reported by this broker").count() == 0
    page.locator(".figure", has_text="Pipelines").get_by_text("running, of 1").wait_for()
    keep(page, "kafka-overview-day")


def test_topics_without_kafkas_own_and_with_them(page: Page, console: Console) -> None:
    page.goto(f"{console.url}/topics")
    page.get_by_role("link", name="payments").wait_for()
    assert page.get_by_role("link", name="__consumer_offsets").count() == 0
    page.get_by_label("internal").check()
    page.get_by_role("link", name="__consumer_offsets").wait_for()


def test_a_topics_messages_partitions_and_consumers(page: Page, console: Console, kafka: str) -> None:
    page.goto(f"{console.url}/topics/payments")
    page.locator(".figure", has_text="Records").get_by_text("300", exact=True).wait_for()
    assert page.locator(".messages > li").count() == 50
    page.goto(f"{console.url}/topics/payments?where=offset+=+7")
    assert page.locator(".messages > li").count() == 2
    page.goto(f"{console.url}/topics/payments/partitions")
    assert page.locator("tbody tr", has_text="1 of 1").count() == 2
    page.goto(f"{console.url}/topics/payments/consumers")
    page.locator("tbody tr", has_text="billing").get_by_text("280", exact=True).wait_for()
    page.goto(f"{console.url}/topics/payments/produce")
    page.locator("textarea[name=value]").fill('{"eur": 1}')
    page.get_by_role("button", name="Produce").click()
    page.get_by_text("The record was produced").wait_for()


def test_settings_that_only_our_broker_has_are_greyed_out(page: Page, console: Console) -> None:
    page.goto(f"{console.url}/topics/payments/settings")
    page.locator("details[id='retention.ms']").get_by_text("7 d", exact=True).wait_for()
    for name in ("millstream.overload", "millstream.storage"):
        lacking = page.locator(".lacking[aria-disabled]", has=page.get_by_text(name, exact=True))
        lacking.get_by_text("not on this broker").wait_for()
        assert "Only millstream's broker has it." in lacking.inner_text()
        assert page.locator(f"details[id='{name}']").count() == 0, "there is nothing to set"
    page.locator(".lacking").first.scroll_into_view_if_needed()
    keep(page, "kafka-settings-day")
    page.goto(f"{console.url}/topics/payments/settings?search=jitter")
    assert page.locator(".lacking").count() == 0


def test_a_group_is_moved_and_what_kafka_forgets_is_said(page: Page, console: Console) -> None:
    page.goto(f"{console.url}/groups")
    page.get_by_role("link", name="billing").click()
    page.get_by_text("Lag by partition").wait_for()
    missed = page.locator("#missed[aria-disabled]")
    missed.get_by_text("Apache Kafka does not write down what a group missed").wait_for()
    keep(page, "kafka-group-day")
    page.goto(f"{console.url}/groups/billing/reset?to=start")
    page.get_by_text("20 records will be read again").wait_for()
    page.get_by_role("button", name="Move 2 partitions").click()
    page.get_by_text("The group was moved").wait_for()


def test_jobs_on_kafka_tell_of_themselves_and_views_say_where_they_come_from(
    page: Page, console: Console
) -> None:
    page.goto(f"{console.url}/pipelines")
    page.get_by_role("link", name="fraud").click()
    page.locator(".badge.good", has_text="running").wait_for()
    page.goto(f"{console.url}/views")
    page.locator(".empty").wait_for()
    page.goto(f"{console.url}/sql")
    page.get_by_role("heading", name="Query with SQL").wait_for()


def test_a_phone_scrolls_only_down(browser: Browser, console: Console) -> None:
    with window(browser, size=PHONE, night=True) as phone:
        for path in ("/", "/topics", "/topics/payments/settings", "/groups/billing", "/pipelines/fraud"):
            phone.goto(console.url + path)
            phone.locator("h1").wait_for()
            assert phone.evaluate("document.documentElement.scrollWidth") <= PHONE[0], path
