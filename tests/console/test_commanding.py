"""A pipeline is stopped and restarted from its page, by the button and by programs, through the log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import httpx
import pytest

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.produce import send_one
from millstream.client.text.lines import Outgoing
from millstream.console.run import Console
from millstream.console.settings import ConsoleSettings
from millstream.jobs import command
from millstream.jobs.command import Command
from millstream.jobs.listener import CommandListener
from millstream.jobs.report import CONFIG, RUN_HEADER, TOPIC, TakenCommand
from tests.console.test_job_topic import told
from tests.support.browser import keep, window
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

TAKES = ["stop", "restart"]


class RunningJob:
    """A job's own end of it: it reports, takes commands, and answers as it is told to."""

    def __init__(self, address: str, name: str, run: str = "r1") -> None:
        self._connection = Connection.of(address)
        self.name = name
        self.run = run
        self.taken: list[Command] = []
        self._listener = CommandListener(self._connection, run, self.taken.append)
        self._listener.open()
        self.report("running")

    def report(
        self, state: str, refused: str | None = None, *, run: str = "", previous: str | None = None
    ) -> None:
        last = self.taken[-1] if self.taken and not run else None
        answer = last and asdict(TakenCommand(last.id, last.action, last.by, 0, refused))
        value = told(
            self.name,
            run=run or self.run,
            state=state,
            at_ms=round(time.time() * 1000),
            heartbeat_ms=600_000,
            takes=TAKES,
            command=answer,
            previous=previous,
        )
        header = (RUN_HEADER, (run or self.run).encode())
        send_one(self._connection, TOPIC, Outgoing(value, self.name.encode(), [header]))

    def end(self) -> None:
        self._listener.end()


def open_page(page: Page, console: Console, name: str) -> None:
    """A pipeline's page, once the console has heard of the pipeline."""
    api = f"{console.url}/api/pipelines/{name}"
    wait_for(lambda: httpx.get(api).status_code == 200, what="the console has heard of the job")
    page.goto(f"{console.url}/pipelines/{name}")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        with Admin(Connection.of(started.address)) as admin:
            admin.create_topic(TOPIC, partitions=1, config=CONFIG)
            admin.create_topic(command.TOPIC, partitions=1, config=command.CONFIG)
        yield started


def test_a_job_is_stopped_from_its_page_after_a_confirmation(
    browser: Browser, broker: Broker, console: Console
) -> None:
    job = RunningJob(broker.address, "fraud")
    try:
        with window(browser) as page:
            open_page(page, console, "fraud")
            page.get_by_role("link", name="Stop…").click()
            page.get_by_text("It ends after its current batch").wait_for()
            keep(page, "pipeline-stop-day")
            assert job.taken == [], "nothing is sent before the confirmation"
            page.get_by_role("button", name="Stop the pipeline").click()
            page.get_by_text("The command was sent").wait_for()
            wait_for(lambda: job.taken, what="the command arrives")
            assert (job.taken[0].action, job.taken[0].run) == ("stop", "r1")
            assert job.taken[0].by.startswith("the console on ")
            job.report("running")
            page.get_by_text("It is about to stop").wait_for()
            job.report("stopped")
            page.get_by_text("asked it to stop").wait_for()
            page.get_by_role("link", name="Forget…").wait_for()
            assert page.get_by_role("link", name="Stop…").count() == 0
            keep(page, "pipeline-stopped-day")
            page.goto(f"{console.url}/pipelines/fraud/stop")
            page.get_by_text("Not now: it is not running").wait_for()
            assert page.get_by_role("button", name="Stop the pipeline").is_disabled()
    finally:
        job.end()


def test_a_restart_that_the_job_refuses_says_why_and_the_job_goes_on(
    browser: Browser, broker: Broker, console: Console
) -> None:
    job = RunningJob(broker.address, "pricing")
    try:
        with window(browser) as page:
            open_page(page, console, "pricing")
            page.get_by_role("link", name="Restart…").click()
            page.get_by_text("The file is checked first").wait_for()
            page.get_by_role("button", name="Restart the pipeline").click()
            page.get_by_text("The command was sent").wait_for()
            wait_for(lambda: job.taken, what="the command arrives")
            assert job.taken[0].action == "restart"
            job.report("running", refused="pricing.py:3: SyntaxError: invalid syntax")
            page.get_by_text("It did not restart").wait_for()
            page.get_by_text("pricing.py:3: SyntaxError: invalid syntax").wait_for()
            page.locator(".badge.good", has_text="running").wait_for()
            job.report("running", run="r2", previous="r1")
            wait_for(lambda: page.get_by_text("It did not restart").count() == 0, what="the next run")
    finally:
        job.end()


def test_of_two_processes_that_run_one_job_the_one_that_is_meant_is_stopped(
    browser: Browser, broker: Broker, console: Console
) -> None:
    jobs = [RunningJob(broker.address, "twice", run) for run in ("aa", "bb")]
    try:
        jobs[0].report("running")  # it still reports after the other one began
        api = f"{console.url}/api/pipelines/twice/stop"
        refused = httpx.post(api)
        assert refused.status_code == 409
        assert "2 runs report as 'twice'" in refused.json()["detail"]
        with window(browser) as page:
            page.goto(f"{console.url}/pipelines/twice/stop")
            page.get_by_text("Two processes run this job.").wait_for()
            keep(page, "pipeline-stop-two-day")
            page.locator("form:has(input[value=bb])").get_by_role("button").click()
            wait_for(lambda: jobs[1].taken, what="the command arrives")
        assert httpx.post(api, params={"run": "aa"}).json()["result"] == "sent"
        wait_for(lambda: jobs[0].taken, what="the other command")
        assert [len(job.taken) for job in jobs] == [1, 1]
    finally:
        for job in jobs:
            job.end()


def test_programs_command_too_and_nobody_else_does(broker: Broker, console: Console) -> None:
    job = RunningJob(broker.address, "guarded")
    try:
        for path in (
            "/pipelines/guarded/stop",
            "/api/pipelines/guarded/stop",
            "/api/pipelines/guarded/restart",
        ):
            foreign = httpx.post(console.url + path, headers={"Origin": "https://elsewhere.example"})
            assert foreign.status_code == 403, path
            with Console(ConsoleSettings(Connection.of(broker.address), read_only=True)) as locked:
                assert httpx.post(locked.url + path).status_code == 403, path
                shown = httpx.get(f"{locked.url}/pipelines/guarded/stop").text
                assert "This console is read-only" in shown
                assert '<button class="danger" disabled>' in shown
        assert httpx.get(f"{console.url}/api/pipelines/guarded/stop").status_code == 405, "a link can't do it"
        sent = httpx.post(f"{console.url}/api/pipelines/guarded/stop")
        assert (sent.status_code, sent.json()["result"], sent.json()["run"]) == (202, "sent", "r1")
        wait_for(lambda: job.taken, what="the command arrives")
        assert [each.action for each in job.taken] == ["stop"], "and none of the refused ones did"
        assert httpx.post(f"{console.url}/api/pipelines/nobody/stop").status_code == 404
        job.report("failed")
        over = httpx.post(f"{console.url}/api/pipelines/guarded/restart")
        assert over.status_code == 409
        assert "no process is left to restart it" in json.dumps(over.json())
    finally:
        job.end()
