"""What is asked of a running pipeline: here, and from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.cli.run.end_requests import EndRequests, check_file
from millstream.jobs.command import Command
from millstream.jobs.report import Action

PIPELINE = """\
from millstream import Topology
print("hello")
flow = Topology("fraud")
flow.source("payments", schema="card string").where("card > 'a'").to_topic("alerts")
"""


def command(action: Action) -> Command:
    return Command("c1", "fraud", "r1", action, "anna@box")


def test_a_stop_ends_the_job_and_nothing_comes_after_it(capsys: pytest.CaptureFixture[str]) -> None:
    requests = EndRequests(lambda: None)
    assert not requests
    assert requests.obey(command("stop")) is None
    assert (bool(requests), requests.commanded, requests.restart()) == (True, True, None)
    assert "anna@box asks the job to stop" in capsys.readouterr().err


def test_a_restart_ends_the_run_and_the_next_one_is_free() -> None:
    requests = EndRequests(lambda: None)
    assert requests.obey(command("restart")) is None
    assert requests
    assert requests.restart() == command("restart")
    assert (bool(requests), requests.restart()) == (False, None)


def test_a_restart_that_could_not_start_again_is_refused() -> None:
    requests = EndRequests(lambda: "fraud.py:3: SyntaxError")
    assert requests.obey(command("restart")) == "fraud.py:3: SyntaxError"
    assert not requests


def test_a_stop_is_stronger_than_a_restart() -> None:
    requests = EndRequests(lambda: None)
    requests.obey(command("restart"))
    assert requests.obey(command("stop")) is None
    assert requests.restart() is None
    assert requests.obey(command("restart")) == "the job is ending already"


def test_ctrl_c_is_stronger_than_a_restart() -> None:
    requests = EndRequests(lambda: None)
    requests.obey(command("restart"))
    requests.interrupts.count += 1
    assert requests.restart() is None
    requests = EndRequests(lambda: None)
    requests.interrupts.count += 1
    assert requests.obey(command("restart")) == "the job is ending already"


def test_a_job_without_a_way_to_restart_says_so() -> None:
    requests = EndRequests()
    assert list(requests.takes) == ["stop"]
    assert requests.obey(command("restart")) == "this job can't restart"


def test_the_file_is_checked_as_it_is_now(tmp_path: Path) -> None:
    file = tmp_path / "fraud.py"
    file.write_text(PIPELINE)
    assert check_file(file, "fraud", "fraud") is None
    other = check_file(file, None, "pricing")
    assert other == f"{file} defines 'fraud' now, which is another job than 'pricing'"
    file.write_text(PIPELINE.replace("flow.source(", "flow.sauce("))
    assert "fraud.py:4: AttributeError" in (check_file(file, None, "fraud") or "")
