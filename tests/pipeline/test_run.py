"""``millstream run``, ``graph``, ``view`` and ``demo`` as a user starts them: as programs."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from tests.pipeline.test_job import produce, records
from tests.support.apache_kafka import free_port
from tests.support.command import run_command, users_environment
from tests.support.serve import MILLSTREAM
from tests.support.sessions import members, signal_session
from tests.support.waiting import wait_for

PIPELINE = """\
from millstream import Topology
flow = Topology("alerts")
payments = flow.source("payments", schema="card string NOT NULL, paid_at timestamp", time="paid_at")
many = payments.window(by="card", size="1 hour").agg(n="count(*)").where("n >= 3")
many.to_topic("alerts", key="card")
many.to_view("blocked", key="card")
"""


def millstream(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = run_command(*arguments, environment=users_environment(), directory=cwd)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def as_a_program(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([MILLSTREAM, *arguments], cwd=cwd, capture_output=True, text=True, timeout=400)


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.py"
    path.write_text(PIPELINE)
    return path


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            ("many.to_topic", "many.to_tpoic"),
            "pipeline.py:5: AttributeError: a stream has no 'to_tpoic'; did you mean 'to_topic'?",
        ),
        (("n >= 3", "m >= 3"), "pipeline.py:4: the condition 'm >= 3': there is no column 'm'"),
        (('"1 hour")', '"1 hour"'), "pipeline.py:4: "),
        (("flow.source(", "flow.source(5, "), "pipeline.py:3: TypeError"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_with_its_place(
    pipeline: Path, tmp_path: Path, change: tuple[str, str], says: str
) -> None:
    pipeline.write_text(PIPELINE.replace(*change, 1))
    for command in ("run", "graph"):
        done = millstream(command, "pipeline.py", cwd=tmp_path)
        assert done.returncode == 1
        assert says in done.stderr
        assert "Traceback" not in done.stderr


def test_what_is_missing_is_said_before_spark_starts(
    pipeline: Path, tmp_path: Path, millstream_broker: Broker
) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    assert (
        f"no broker answers at {nobody}"
        in millstream("run", "pipeline.py", "-b", nobody, cwd=tmp_path).stderr
    )
    there = millstream("run", "pipeline.py", "-b", millstream_broker.address, cwd=tmp_path)
    assert there.returncode == 1
    assert "pipeline.py:3: there is no topic 'payments'" in there.stderr
    assert "--create-topics" in there.stderr
    wrong = millstream("run", "pipeline.py", "--trigger", "soon", cwd=tmp_path)
    assert "--trigger: 'soon' is not a duration" in wrong.stderr


def test_why_spark_did_not_start_is_said_and_not_only_written_down(
    pipeline: Path, tmp_path: Path, millstream_broker: Broker
) -> None:
    to = ("-b", millstream_broker.address, "--create-topics", "--spark", "spark.driver.memory=lots")
    done = millstream("run", "pipeline.py", *to, cwd=tmp_path)
    assert done.returncode == 1
    assert "Spark did not start: Invalid maximum heap size: -Xmxlots (its full output is in" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_killed_jvm_is_one_line_and_the_job_is_started_again_where_that_was_asked_for(
    pipeline: Path, tmp_path: Path, millstream_broker: Broker
) -> None:
    to = ("-b", millstream_broker.address, "--create-topics", "--restart", "on-failure")
    said, complaints = tmp_path / "said", tmp_path / "complaints"
    with said.open("wb") as out, complaints.open("wb") as err:
        command = [MILLSTREAM, "run", "pipeline.py", *to]
        running = subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=err)
    try:

        def runs(times: int) -> bool:
            assert running.poll() is None, complaints.read_text()
            return said.read_text().count("alerts is running") == times

        wait_for(lambda: runs(1), timeout=300, what="the job runs")
        os.kill(_java_of(running.pid), signal.SIGKILL)
        wait_for(lambda: runs(2), timeout=300, what="the job runs again")
        running.terminate()
        assert running.wait(400) == 0
    finally:
        running.kill()
        running.wait()
    told = complaints.read_text()
    assert "Spark's JVM has ended (SIGKILL)" in told
    assert "starting again in 1 s (restart 1)" in told
    assert "Traceback" not in told


SLOW = """\
import pathlib, time
from millstream import Processor, Topology

flow = Topology("slow", guarantee="exactly-once")
lines = flow.source("lines", schema="k string, at timestamp", time="at")


class Wait(Processor):
    def on_event(self, event, context):
        pathlib.Path({home!r}, "begun").touch()
        while not pathlib.Path({home!r}, "go").exists():
            time.sleep(0.01)
        context.emit(n=1)


lines.process(key="k", with_=Wait, output="k string, n int").to_topic("out", key="k")
"""


@pytest.fixture
def slow(tmp_path: Path, millstream_broker: Broker) -> Iterator[subprocess.Popen[str]]:
    """A job in the middle of a batch, which ends when there is a file ``go``. It is that of the first line,
    whose turn comes with the second."""
    (tmp_path / "slow.py").write_text(SLOW.format(home=str(tmp_path)))
    with Admin(Connection(millstream_broker.address)) as admin:
        admin.create_topic("lines")
    lines = [{"k": "a", "at": f"2026-01-01T0{hour}:00:00Z"} for hour in (1, 2)]
    produce(millstream_broker, [json.dumps(line).encode() for line in lines], "lines")
    job = subprocess.Popen(
        [MILLSTREAM, "run", "slow.py", "-b", millstream_broker.address],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for((tmp_path / "begun").exists, timeout=300, what="a batch is under way")
        yield job
    finally:
        signal_session(job.pid, signal.SIGKILL)
        job.communicate()


def complaints(err: str) -> list[str]:
    """What a run wrote to standard error, except that the machine is slow."""
    return [line for line in err.splitlines() if "the load of this machine is" not in line]


def test_sigterm_to_the_group_of_a_job_ends_it_after_the_batch_under_way(
    slow: subprocess.Popen[str], tmp_path: Path, millstream_broker: Broker
) -> None:
    os.killpg(slow.pid, signal.SIGTERM)  # as `timeout` does
    assert slow.stdout is not None
    assert any("stopping after this batch" in line for line in slow.stdout)
    (tmp_path / "go").touch()
    out, err = slow.communicate(timeout=400)
    assert (slow.returncode, complaints(err)) == (0, [])
    assert "slow ended: 2 records" in out
    assert len(records(millstream_broker, "out")) == 1
    wait_for(lambda: not members(slow.pid), timeout=90, what="no process is left")


def test_sigterm_to_every_process_of_a_job_ends_it_in_order_too(slow: subprocess.Popen[str]) -> None:
    signal_session(slow.pid, signal.SIGTERM)  # as systemd does; Python workers end at once
    out, err = slow.communicate(timeout=400)
    assert (slow.returncode, complaints(err)) == (0, [])
    assert "slow ended: 0 records" in out
    wait_for(lambda: not members(slow.pid), timeout=90, what="no process is left")


def test_a_job_that_is_killed_leaves_no_process_behind(slow: subprocess.Popen[str], tmp_path: Path) -> None:
    slow.kill()
    (tmp_path / "go").touch()
    wait_for(lambda: not members(slow.pid), timeout=90, what="no process is left")


def _java_of(process: int) -> int:
    """The JVM that a process has started."""
    children = Path(f"/proc/{process}/task")
    found = [
        int(child)
        for task in children.iterdir()
        for child in (task / "children").read_text().split()
        if b"java" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0]
    ]
    assert len(found) == 1, found
    return found[0]


def test_without_java_it_says_what_to_install(
    pipeline: Path, tmp_path: Path, millstream_broker: Broker
) -> None:
    environment = {**os.environ, "PATH": "/nonexistent", "JAVA_HOME": "/nonexistent"}
    arguments = ["run", "pipeline.py", "-b", millstream_broker.address, "--create-topics"]
    done = subprocess.run(
        [MILLSTREAM, *arguments], cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=400
    )
    assert done.returncode == 1
    assert "Spark needs Java" in done.stderr
    assert "Traceback" not in done.stderr


def test_graph_draws_and_shows_the_plan(pipeline: Path, tmp_path: Path) -> None:
    assert "╔" in millstream("graph", "pipeline.py", cwd=tmp_path).stdout
    assert millstream("graph", "pipeline.py", "-F", "mermaid", cwd=tmp_path).stdout.startswith("flowchart")
    assert millstream("graph", "pipeline.py", "-F", "svg", cwd=tmp_path).stdout.startswith("<svg")
    assert "1 Spark query" in millstream("graph", "pipeline.py", "--plan", cwd=tmp_path).stdout


def _payments(card: str, count: int) -> list[bytes]:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    return [
        json.dumps({"card": card, "paid_at": (noon + timedelta(seconds=number)).isoformat()}).encode()
        for number in range(count)
    ]


def _alerted(broker: Broker) -> dict[str, int]:
    """The highest count that was alerted, by card."""
    found: dict[str, int] = {}
    for record in records(broker, "alerts"):
        alert = json.loads(record.value())
        found[alert["card"]] = max(found.get(alert["card"], 0), alert["n"])
    return found


def test_killed_and_started_again_it_loses_no_alert_and_the_view_is_right(
    pipeline: Path, tmp_path: Path
) -> None:
    with Broker(tmp_path / "broker") as broker:
        with Admin(Connection(broker.address)) as admin:
            admin.create_topic("payments", partitions=2)
            admin.create_topic("alerts", partitions=1)
        command = [MILLSTREAM, "run", "pipeline.py", "-b", broker.address, "--master", "local[2]"]
        produce(broker, _payments("before", 4))
        with (tmp_path / "run.log").open("w") as log:
            job = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
        try:
            wait_for(
                lambda: _alerted(broker).get("before") == 4, timeout=400, what="the job alerts", every=0.2
            )
            produce(broker, [value for number in range(20) for value in _payments(f"{number}", 4)])
        finally:
            job.kill()  # in the middle of what was just produced
            job.wait()
        again = as_a_program(*command[1:], "--available-now", cwd=tmp_path)
        assert again.returncode == 0, again.stderr
        cards = {"before", *(f"{number}" for number in range(20))}
        assert _alerted(broker) == dict.fromkeys(cards, 4)
    asked = millstream("view", "query", "blocked", "--output", "json", cwd=tmp_path)
    assert {row["card"]: row["n"] for row in json.loads(asked.stdout)} == dict.fromkeys(cards, 4)
    one = millstream("view", "query", "blocked", "--key", "17", cwd=tmp_path)
    assert "17" in one.stdout
    assert millstream("view", "query", "blocked", "--key", "nobody", cwd=tmp_path).returncode == 1
    assert "blocked" in millstream("view", "list", cwd=tmp_path).stdout


def test_the_demo_finds_fraud_and_ends_by_itself(tmp_path: Path) -> None:
    done = as_a_program("demo", "--for", "6s", "--rate", "50", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    total = re.search(r"^ *all +(\d+) +(\d+)", done.stdout, re.MULTILINE)
    assert total is not None, done.stdout
    planted, found = int(total[1]), int(total[2])
    assert planted > 0
    assert found >= planted * 0.7
    assert "Where to look next" in done.stdout


def test_ctrl_c_ends_the_demo_and_its_console_with_nothing_left_behind(tmp_path: Path) -> None:
    """The console's usual port is taken, and a page of it is open."""
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):  # somebody else's does as well
            held.enter_context(socket.create_server(("127.0.0.1", 9090)))
        demo = subprocess.Popen(
            [MILLSTREAM, "demo", "--for", "60s", "--open"],
            cwd=tmp_path,
            env={**os.environ, "BROWSER": f"{browser} %s", "TMPDIR": str(temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert demo.stdout is not None
        url = next(line.split()[1] for line in demo.stdout if line.startswith("console: "))
        assert not url.startswith("http://127.0.0.1:9090/")
        live = url.replace("/pipelines", "/live/pipelines")
        with httpx.stream("GET", live, timeout=60) as page:
            assert page.status_code == 200
            wait_for(opened.exists, what="the browser is opened")
            os.killpg(demo.pid, signal.SIGINT)  # as a terminal does: everyone in the group
            out, err = demo.communicate(timeout=400)
    assert demo.returncode == 0
    assert opened.read_text().strip() == url
    assert "the demo was stopped" in out
    assert "Traceback" not in err
    wait_for(lambda: not members(demo.pid), timeout=90, what="no process of the demo is left")
    assert list(temporary.glob("millstream-*")) == []
