"""A pipeline that is over is forgotten, one that runs is not; and what a topic is to pipelines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import httpx
import pytest

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.produce import RecordSender
from millstream.client.text.lines import Outgoing
from millstream.client.text.position import TopicPartition
from millstream.console.run import Console
from millstream.console.settings import ConsoleSettings
from millstream.jobs.report import TOPIC, QueryStatus
from tests.console.test_job_topic import told
from tests.support.browser import keep, window

if TYPE_CHECKING:
    from playwright.sync_api import Browser

KILLED, RUNS, OVER = "nightly", "fraud", "backfill"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """With the last words of three jobs: one was killed an hour ago, one runs, one is over."""
    now = round(time.time() * 1000)
    hour_ago = now - 3_600_000
    with Broker() as started:
        with Admin(Connection.of(started.address)) as admin:
            for topic in ("payments", "alerts"):
                admin.create_topic(topic, partitions=1)
            admin.create_topic(TOPIC, partitions=1, config={"cleanup.policy": "compact"})
        sender = RecordSender(Connection.of(started.address), TOPIC)
        for name, state, at_ms in (
            (KILLED, "running", hour_ago),
            (RUNS, "running", now),
            (OVER, "stopped", hour_ago),
        ):
            query = asdict(QueryStatus("payments", name, ["payments"], ["alerts"]))
            value = told(name, state=state, at_ms=at_ms, heartbeat_ms=600_000, queries=[query])
            sender.send([Outgoing(value, name.encode())])
        assert sender.finish(20)
        with Admin(Connection.of(started.address)) as admin:
            for name in (RUNS, OVER):
                admin.commit(name, {TopicPartition("payments", 0): 0})
        yield started


def test_a_job_that_was_killed_is_forgotten_and_says_what_is_lost(
    browser: Browser, broker: Broker, console: Console
) -> None:
    with window(browser) as page:
        page.goto(console.url)
        page.get_by_role("link", name=f"{KILLED} has stopped reporting").click()
        page.get_by_role("link", name="forget it").click()
        page.get_by_text("What it told last").wait_for()
        page.get_by_text("Started again, it continues where it was").wait_for()
        keep(page, "pipeline-forget-day")
        page.get_by_role("button", name="Forget the pipeline").click()
        page.wait_for_url(f"**/pipelines?done=forgot*{KILLED}")
        page.get_by_text(f"{KILLED} is forgotten.").wait_for()
        assert page.locator("td.name", has_text=KILLED).count() == 0
        page.goto(console.url)
        page.get_by_text("Records per second").wait_for()
        assert page.get_by_text(KILLED).count() == 0
        page.goto(f"{console.url}/pipelines/{RUNS}/forget")
        page.get_by_text("Not now: it runs on h as process 1").wait_for()
        assert page.get_by_role("button", name="Forget the pipeline").is_disabled()


def test_the_ledger_of_a_job_is_not_moved_or_deleted_under_it(
    browser: Browser, broker: Broker, console: Console
) -> None:
    """Kafka takes its group for empty: Spark reads without being a member."""
    api = f"{console.url}/api/groups/{RUNS}"
    for refused in (
        httpx.post(f"{api}/reset", json={"to": "start"}),
        httpx.delete(api),
        httpx.delete(f"{api}/offsets", params={"topic": "payments"}),
    ):
        assert refused.status_code == 409
        assert f"pipeline {RUNS} is running" in refused.json()["detail"]
    with window(browser) as page:
        page.goto(f"{console.url}/groups/{RUNS}")
        page.get_by_text(f"It has none, and needs none: pipeline {RUNS}").wait_for()
        page.goto(f"{console.url}/groups/{RUNS}/reset?to=start")
        page.get_by_text("Not now: pipeline").wait_for()
        assert page.get_by_role("button", name="Move").is_disabled()
        page.goto(f"{console.url}/groups/{RUNS}/delete")
        page.get_by_text("Not now: pipeline").wait_for()
        page.goto(f"{console.url}/groups/{OVER}/reset?to=start")
        page.get_by_text(f"This does not move pipeline {OVER}").wait_for()
        keep(page, "group-reset-ledger-day")
        assert page.get_by_role("button", name="Move").is_enabled()


def test_programs_forget_too_and_what_runs_is_refused(console: Console, broker: Broker) -> None:
    api = f"{console.url}/api/pipelines"
    refused = httpx.delete(f"{api}/{RUNS}")
    assert refused.status_code == 409
    assert "Stop it first" in refused.json()["detail"]
    assert httpx.post(f"{console.url}/pipelines/{RUNS}/forget").status_code == 409
    with Console(ConsoleSettings(Connection.of(broker.address), read_only=True)) as locked:
        assert httpx.delete(f"{locked.url}/api/pipelines/{OVER}").status_code == 403
    assert httpx.get(f"{api}/{OVER}").status_code == 200, "nothing has happened to it"
    lost = httpx.delete(f"{api}/{OVER}")
    assert (lost.status_code, lost.json()["topics"], lost.json()["groups"]) == (200, ["alerts"], [OVER])
    assert httpx.get(f"{api}/{OVER}").status_code == 404
    assert httpx.delete(f"{api}/{OVER}").status_code == 404


def test_deleting_a_topic_names_the_pipelines_that_use_it(
    browser: Browser, broker: Broker, console: Console
) -> None:
    (use,) = [
        each
        for each in httpx.get(f"{console.url}/api/topics/alerts/loss").json()["pipelines"]
        if each["name"] == RUNS
    ]
    assert use == {"name": RUNS, "state": "running", "reads": False, "writes": True}
    with window(browser) as page:
        page.goto(f"{console.url}/topics/payments/delete")
        losses = page.locator(".losses li", has_text=f"Pipeline {RUNS} reads it, and is running")
        assert losses.get_by_role("link", name=RUNS).get_attribute("href") == f"/pipelines/{RUNS}"
        keep(page, "topic-delete-pipelines-day")
