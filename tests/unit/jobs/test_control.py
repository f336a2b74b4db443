"""What becomes of a command, from statuses made by hand: no broker, time passed in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.jobs.board import JobRun
from millstream.jobs.command import Command
from millstream.jobs.control import ANSWER_S, CommandRefused, NoSuchJob, Outcome, Pending, chosen, obstacle
from millstream.jobs.report import Action, DisplayedState, TakenCommand
from tests.unit.jobs.test_board import NOW, Log, status

TIMEOUT_S = 300.0


def run(state: DisplayedState = "running", id_: str = "r1", **more: object) -> JobRun:
    told = status(id_, **{"takes": ["stop", "restart"], **more})
    return JobRun(told, state, NOW, 90_000 if state == "silent" else 1000)


class Sent:
    """A command that was sent at second 0, and the topic that answers."""

    def __init__(self, action: Action) -> None:
        self.log = Log()
        self.log.write(NOW)
        self.command = Command.to(status(), action, "anna@box")
        self.pending = Pending(self.command, 0.0)

    def answer(self, state: str = "running", run: str = "r1", **more: object) -> None:
        taken = TakenCommand(self.command.id, self.command.action, self.command.by, NOW)
        given = {"command": taken} if run == "r1" else {"previous": "r1"}
        self.log.write(NOW, run, **{"state": state, **given, **more})

    def after(self, seconds: float = 1.0) -> Outcome | None:
        return self.pending.look(self.log.board, NOW, seconds, TIMEOUT_S)


# Which run ------------------------------------------------------------------------------------------


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(NoSuchJob, match=r"no job 'fruad' has reported; did you mean 'fraud'\?"):
        chosen([], "fruad", ["fraud", "pricing"])
    with pytest.raises(NoSuchJob, match="has reported that this version can read"):
        chosen([], "fraud", ["fraud"])


def test_two_runs_of_one_name_are_told_apart_before_anything_is_sent() -> None:
    runs = [run(id_="aa1"), run(id_="ab2", pid=77)]
    with pytest.raises(
        CommandRefused, match=r"2 runs report as 'fraud'.*aa1, process 42 on h1; ab2, process 77"
    ):
        chosen(runs, "fraud", ["fraud"])
    assert chosen(runs, "fraud", ["fraud"], "ab") is runs[1]
    with pytest.raises(CommandRefused, match="choose one with --run"):
        chosen(runs, "fraud", ["fraud"], "a")
    with pytest.raises(NoSuchJob, match="begins with 'x'"):
        chosen(runs, "fraud", ["fraud"], "x")


# What can't be followed -----------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["starting", "running", "waiting"])
@pytest.mark.parametrize("action", ["stop", "restart"])
def test_a_job_that_is_alive_can_be_told(state: DisplayedState, action: Action) -> None:
    assert obstacle(run(state), action) is None


def test_a_job_that_was_killed_is_not_told_anything() -> None:
    why = obstacle(run("silent"), "stop") or ""
    assert "not been heard from for 1 min 30 s: process 42 on h1 was killed, or is cut off" in why


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_a_job_that_is_over_is_stopped_already_and_has_no_process_to_restart_it(
    state: DisplayedState,
) -> None:
    over = run(state, reason="no disk" if state == "failed" else None)
    assert obstacle(over, "stop") is None
    assert "start it with `millstream run`" in (obstacle(over, "restart") or "")
    outcome = Pending(Command.to(over.status, "stop", "me"), 0.0, over).sent()
    assert (outcome.result, outcome.good) == ("over", True)
    assert outcome.said.startswith(f"was not running: it {state} 1 s ago")


def test_a_job_that_failed_and_starts_again_by_itself_is_not_called_stopped() -> None:
    failed = run("failed", reason="no disk", retries=True)
    for action in ("stop", "restart"):
        why = obstacle(failed, action) or ""  # type: ignore[arg-type]
        assert "it failed 1 s ago: no disk. It may start again by itself within a minute" in why
    assert obstacle(replace(failed, silent_ms=3_600_000), "stop") is None, "by then it has given up"


def test_a_job_that_follows_no_commands_is_ended_where_it_runs() -> None:
    assert "does not take the command 'stop'; end it there" in (obstacle(run(takes=[]), "stop") or "")
    assert obstacle(run(takes=["stop"]), "stop") is None
    assert obstacle(run(takes=["stop"]), "restart") is not None


# What comes of it -----------------------------------------------------------------------------------


def test_a_stop_is_taken_and_then_done() -> None:
    sent = Sent("stop")
    assert sent.after() is None
    assert not sent.pending.taken
    sent.answer()
    assert sent.after() is None
    assert sent.pending.taken
    sent.answer("stopped")
    outcome = sent.after()
    assert outcome is not None
    assert (outcome.result, outcome.said, outcome.good) == ("done", "has stopped", True)


def test_a_job_that_ends_by_itself_meanwhile_has_stopped_too_and_a_failure_is_told() -> None:
    sent = Sent("stop")
    sent.log.write(NOW, state="stopped")
    assert getattr(sent.after(), "result", None) == "done"
    sent = Sent("stop")
    sent.answer("failed", reason="no disk")
    outcome = sent.after()
    assert outcome is not None
    assert (outcome.result, outcome.said, outcome.good) == ("failed", "ended with an error: no disk", False)


def test_a_restart_is_done_when_the_next_run_of_the_process_runs() -> None:
    sent = Sent("restart")
    sent.answer("stopped")
    assert sent.after() is None
    sent.log.write(NOW, "stranger", previous=None)
    assert sent.after() is None, "another process that runs the job is not the restart"
    sent.answer("starting", run="r2")
    assert sent.after() is None
    sent.answer("running", run="r2")
    outcome = sent.after()
    assert outcome is not None
    assert (outcome.result, outcome.said) == ("done", "has restarted, as run r2")


def test_a_restart_that_is_refused_or_fails_says_why() -> None:
    sent = Sent("restart")
    refused = TakenCommand(sent.command.id, "restart", "me", NOW, refused="fraud.py:3: SyntaxError")
    sent.log.write(NOW, command=refused)
    outcome = sent.after()
    assert outcome is not None
    assert (outcome.result, outcome.said) == ("refused", "continues as before: fraud.py:3: SyntaxError")
    sent = Sent("restart")
    sent.answer("stopped")
    sent.answer("failed", run="r2", reason="there is no topic 'x'")
    outcome = sent.after()
    assert outcome is not None
    assert outcome.said == "stopped, but failed to start again: there is no topic 'x'"


def test_a_stop_of_somebody_else_overtakes_a_restart() -> None:
    sent = Sent("restart")
    other = TakenCommand("another", "stop", "bert@box", NOW)
    sent.log.write(NOW, state="stopped", command=other)
    outcome = sent.after()
    assert outcome is not None
    assert (outcome.result, outcome.said) == ("failed", "was stopped by bert@box instead")


def test_nobody_answers() -> None:
    sent = Sent("stop")
    assert sent.after(ANSWER_S - 1) is None
    outcome = sent.after(ANSWER_S)
    assert outcome is not None
    assert (outcome.result, outcome.good) == ("unanswered", False)
    assert "did not answer within 15 s: process 42 on h1" in outcome.said
    assert "no later run follows it" in outcome.said


def test_a_job_that_answered_has_until_the_timeout() -> None:
    sent = Sent("stop")
    sent.answer()
    assert sent.after(TIMEOUT_S - 1) is None
    outcome = sent.after(TIMEOUT_S)
    assert outcome is not None
    assert (outcome.result, outcome.said) == ("late", "took the command, but has not stopped within 300 s")
    sent = Sent("restart")
    sent.answer("stopped")
    assert sent.after(TIMEOUT_S - 1) is None
    outcome = sent.after(TIMEOUT_S)
    assert outcome is not None
    assert "has stopped, but not started again within 300 s; look at process 42 on h1" in outcome.said


def test_answers_to_other_commands_are_not_ours() -> None:
    sent = Sent("stop")
    sent.log.write(NOW, command=TakenCommand("another", "restart", "me", NOW, refused="no"))
    assert sent.after() is None
    assert not sent.pending.taken
