"""``millstream job``: jobs that run in other processes are listed, stopped and restarted through the log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.produce import send_one
from millstream.client.text.lines import Outgoing
from millstream.jobs.command import CONFIG, TOPIC, Command, encoded
from millstream.jobs.listener import CommandListener
from tests.support.command import CommandLine
from tests.support.jobs import produce, records
from tests.support.sessions import members, signal_session
from tests.support.waiting import wait_for

PIPELINE = """\
from millstream import Processor, Topology

print("the file prints")
flow = Topology("{name}", guarantee="exactly-once")
lines = flow.source("{name}.lines", schema="k string, at timestamp", time="at")


class Greet(Processor):
    def on_event(self, event, context):
        print("the processor prints")
        context.emit(text="{text}")


lines.process(key="k", with_=Greet, output="k string, text string").to_topic("{name}.out", key="k")
"""


def write(directory: Path, name: str, text: str = "hello") -> Path:
    file = directory / f"{name}_job.py"
    file.write_text(PIPELINE.format(name=name, text=text))
    return file


@contextmanager
def running(millstream: CommandLine, file: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """``millstream run`` as a process of its own. What it prints is in files beside the pipeline."""
    with (file.parent / "out").open("wb") as out, (file.parent / "err").open("wb") as err:
        job = millstream.start(
            *("run", file.name, "--create-topics", "--master", "local[2]", *options),
            cwd=file.parent,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    try:
        yield job
    finally:
        signal_session(job.pid, signal.SIGKILL)
        job.wait()


def listed(millstream: CommandLine, name: str) -> dict[str, Any] | None:
    """The job's line of ``job list``."""
    return next((each for each in millstream.json("job", "list") if each["job"] == name), None)


def in_state(millstream: CommandLine, name: str, state: str, but: str = "") -> Callable[[], Any]:
    """A condition: the job is in this state, in another run than ``but``."""

    def look() -> dict[str, Any] | None:
        found = listed(millstream, name)
        return found if found and found["state"] == state and found["run"] != but else None

    return look


@pytest.mark.parametrize("place", ["our_address", "apache_address"])
def test_a_job_is_listed_and_stopped_from_another_process_even_while_it_starts(
    place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    millstream = CommandLine(request.getfixturevalue(place))
    name = f"early{os.getpid()}"
    with running(millstream, write(tmp_path, name)) as job:
        found = wait_for(lambda: listed(millstream, name), timeout=120, what="the job has reported")
        assert (found["state"], found["pid"], found["takes"]) == ("starting", job.pid, ["stop", "restart"])
        shown = millstream.ok("job", "show", name)
        assert f"{name} is starting as process {job.pid} on " in shown
        assert f"{name}.lines" in shown
        (outcome,) = millstream.json("job", "stop", name)
        assert (outcome["job"], outcome["run"], outcome["result"]) == (name, found["run"], "done")
        assert job.wait(60) == 0
    over = listed(millstream, name)
    assert over is not None
    assert (over["state"], over["run"], over["command"]["action"]) == ("stopped", found["run"], "stop")
    assert "was not running: it stopped" in millstream.ok("job", "stop", name)
    assert "start it with `millstream run`" in millstream.refused("job", "restart", name)
    typo = millstream.refused("job", "stop", name, f"x{name}")
    assert f"no job 'x{name}' has reported; did you mean '{name}'?" in typo


def test_a_job_that_was_killed_is_told_from_one_that_is_alive(our_address: str, tmp_path: Path) -> None:
    millstream = CommandLine(our_address)
    with running(millstream, write(tmp_path, "killed")) as job:
        found = wait_for(lambda: listed(millstream, "killed"), timeout=120, what="the job has reported")
        assert found["state"] == "starting"
        job.kill()
        job.wait()
        said = wait_for(in_state(millstream, "killed", "silent"), timeout=90, every=1, what="it is missed")
        assert said["silent_ms"] > 15_000
        assert "killed has not been heard from for" in millstream.ok("job", "show", "killed")
        for action in ("stop", "restart"):
            refused = millstream.refused("job", action, "killed")
            assert f"process {job.pid} on {found['host']} was killed, or is cut off" in refused


def test_a_real_job_is_restarted_in_place_and_stopped_from_another_process(
    millstream_broker: Broker, tmp_path: Path
) -> None:
    millstream = CommandLine(millstream_broker.address)
    file = write(tmp_path, "greet")

    def greeted() -> list[str]:
        with Admin(Connection(millstream_broker.address)) as admin:
            if "greet.out" not in admin.topics():
                return []
        return [json.loads(record.value())["text"] for record in records(millstream_broker, "greet.out")]

    def line(hour: int) -> None:  # an event has its turn once a later one has come
        value = {"k": "a", "at": f"2026-01-01T{hour:02}:00:00Z"}
        produce(millstream_broker, [json.dumps(value).encode()], "greet.lines")

    with running(millstream, file, "--progress", "json") as job:
        first = wait_for(in_state(millstream, "greet", "running"), timeout=300, every=0.5, what="it runs")
        for hour in (1, 2):
            line(hour)
        wait_for(greeted, timeout=300, every=0.2, what="a greeting")

        good = file.read_text()
        file.write_text(good.replace("flow.source(", "flow.sauce("))
        (outcome,) = json.loads(millstream.run("job", "restart", "greet", "--output", "json").stdout)
        assert outcome["result"] == "refused"
        assert "greet_job.py:5: AttributeError" in outcome["said"]
        assert job.poll() is None

        file.write_text(good.replace("hello", "goodbye"))
        done = millstream.run("job", "restart", "greet", timeout=300)
        assert done.returncode == 0, done.stderr.decode()
        again = wait_for(in_state(millstream, "greet", "running", but=first["run"]), timeout=60)
        assert (again["pid"], again["state"]) == (job.pid, "running"), "the same process, another run"
        stale = Command("late", "greet", first["run"], "stop", "somebody")
        send_one(
            Connection(millstream_broker.address), TOPIC, Outgoing(encoded(stale), b"greet", partition=0)
        )
        line(3)
        wait_for(lambda: greeted() == ["hello", "goodbye"], timeout=300, every=0.2, what="the new greeting")

        sent = millstream.ok("job", "stop", "greet", "--no-wait")
        assert "was told to stop" in sent
        assert job.wait(120) == 0
        wait_for(lambda: not members(job.pid), timeout=90, what="no process of the job is left")
    found = listed(millstream, "greet")
    assert found is not None
    assert (found["state"], found["command"]["action"], found["lag"]) == ("stopped", "stop", 0)

    events = [json.loads(each) for each in (tmp_path / "out").read_text().splitlines()]
    assert {each["job"] for each in events} == {"greet"}
    kinds = [each["event"] for each in events if each["event"] != "batch"]
    assert kinds == ["starting", "running", "ended"] * 2
    batches = [each for each in events if each["event"] == "batch"]
    assert sum(each["rows_in"] for each in batches) == 3
    assert (events[-1]["stopped"], events[-1]["rows_in"]) == (True, 3)
    said = (tmp_path / "err").read_text()
    assert "the file prints" in said
    assert "the file is read again" in said
    assert "waiting for the first batch from greet.lines" in said


def test_only_commands_for_this_run_are_taken_also_after_the_topic_was_created_again() -> None:
    taken: list[Command] = []
    other, own, again = (Command(name, "fraud", run, "stop", "me") for name, run in ("ax", "br", "cr"))
    with Broker() as broker:
        connection = Connection(broker.address)

        def send(*commands: Command) -> None:
            for command in commands:
                send_one(connection, TOPIC, Outgoing(encoded(command), b"fraud", partition=0))

        with Admin(connection) as admin:
            admin.create_topic(TOPIC, partitions=1, config=CONFIG)
            send(own)
            listener = CommandListener(connection, "r", taken.append)
            listener.open()
            send_one(connection, TOPIC, Outgoing(b"rubbish", b"fraud", partition=0))
            send(other, again)
            wait_for(lambda: taken, what="a command")
            assert taken == [again], "what was sent before the run is not for it"
            admin.delete_topics([TOPIC])
            admin.create_topic(TOPIC, partitions=1, config=CONFIG)
        send(own)
        wait_for(lambda: taken == [again, own], what="a command in the new topic")
        listener.end()
        listener.join(60)
