"""Which runs there are, and which of them are alive, from records made by hand. Time is passed in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.jobs.board import Board
from millstream.jobs.report import HEARTBEAT_MS, JobStatus, encoded

NOW = 1_700_000_000_000
HOUR = 3_600_000


def status(run: str = "r1", **more: object) -> JobStatus:
    told = {"host": "h1", "pid": 42, "started_ms": NOW, "at_ms": NOW, "state": "running", "since_ms": NOW}
    return JobStatus(
        **{"version": 1, "job": "fraud", "run": run, "guarantee": "exactly-once", **told, **more}
    )  # type: ignore[arg-type]


class Log:
    """The topic, and the board of one who reads it."""

    def __init__(self, machine: str = "") -> None:
        self.board = Board(machine)
        self._end = 0

    def write(self, stamp_ms: int, run: str = "r1", *, live_ms: int | None = None, **more: object) -> None:
        """A report. The broker stamps it, and it comes while the reader's clock says ``live_ms``."""
        self.board.take(
            "fraud",
            encoded(status(run, **more)),
            offset=self._end,
            timestamp=stamp_ms,
            run=run,
            arrived_ms=live_ms,
        )
        self._end += 1

    def states(self, own_ms: int) -> dict[str, str]:
        return {run.status.run: run.state for run in self.board.runs("fraud", own_ms)}


def test_a_run_that_misses_several_heartbeats_is_silent_and_one_that_ended_is_not() -> None:
    log = Log()
    log.write(NOW)
    assert log.states(NOW + 3 * HEARTBEAT_MS) == {"r1": "running"}
    assert log.states(NOW + HOUR) == {"r1": "silent"}
    log.write(NOW + 1, state="stopped")
    assert log.states(NOW + HOUR) == {"r1": "stopped"}


def test_a_run_may_be_silent_as_long_as_it_said() -> None:
    log = Log()
    log.write(NOW, heartbeat_ms=10 * HEARTBEAT_MS)
    assert log.states(NOW + 30 * HEARTBEAT_MS) == {"r1": "running"}
    assert log.states(NOW + 50 * HEARTBEAT_MS) == {"r1": "silent"}


def test_the_reports_of_a_job_whose_clock_is_wrong_are_as_old_as_their_records() -> None:
    log = Log()
    log.write(NOW, at_ms=NOW - 7 * HOUR)
    assert log.states(NOW + 1000) == {"r1": "running"}


def test_a_reader_whose_clock_is_ahead_listens_and_finds_the_job_alive() -> None:
    log = Log()
    log.write(NOW)
    own = NOW + HOUR + 1000
    assert [run.status.run for run in log.board.in_doubt(own)] == ["r1"]
    log.write(NOW + HEARTBEAT_MS, live_ms=own + 4000)
    assert log.board.in_doubt(own + 4000) == []
    assert log.states(own + 4000) == {"r1": "running"}
    assert log.states(own + HOUR) == {"r1": "silent"}, "by the same clock, it is silent later"


def test_a_reader_whose_clock_is_behind_does_not_take_a_killed_job_for_alive() -> None:
    log = Log()
    log.write(NOW)
    own = NOW - HOUR
    assert [run.status.run for run in log.board.in_doubt(own)] == ["r1"]
    log.board.give_up(own)
    assert log.states(own) == {"r1": "silent"}
    log.write(NOW + 60_000, live_ms=own)
    assert log.states(own) == {"r1": "running"}, "it was only cut off"


def test_a_job_on_the_readers_own_machine_compares_the_clocks_without_listening() -> None:
    log = Log("m1")
    behind = NOW - 2 * HOUR  # what the clock of that machine says when it is NOW at the broker
    log.write(NOW, machine="m1", at_ms=behind - 30)
    assert log.board.in_doubt(behind + HOUR) == []
    assert log.states(behind + HEARTBEAT_MS) == {"r1": "running"}
    assert log.states(behind + HOUR) == {"r1": "silent"}
    log = Log("m2")
    log.write(NOW, machine="m1", at_ms=behind)
    assert log.board.in_doubt(behind) != [], "another machine's clock says nothing about this one's"


def test_a_job_that_reports_shows_the_time_at_the_broker_for_all() -> None:
    log = Log()
    log.write(NOW)
    own = NOW - HOUR
    log.board.take("other", encoded(status("o")), offset=9, timestamp=NOW + HOUR, run="o", arrived_ms=own)
    assert log.board.in_doubt(own) == []
    assert log.states(own) == {"r1": "silent"}


def test_nobody_listens_for_a_job_that_was_killed_days_ago_or_is_over() -> None:
    log = Log()
    log.write(NOW)
    assert log.board.in_doubt(NOW + 48 * HOUR) == []
    assert log.states(NOW + 48 * HOUR) == {"r1": "silent"}
    log.write(NOW, state="failed")
    assert log.board.in_doubt(NOW + HOUR) == []


def test_two_processes_that_run_one_job_are_both_shown() -> None:
    log = Log()
    for number in range(3):
        log.write(NOW + 1000 * number, "r1")
        log.write(NOW + 1000 * number, "r2")
    assert log.states(NOW + 4000) == {"r2": "running", "r1": "running"}


def test_a_run_that_another_has_replaced_is_history() -> None:
    log = Log()
    log.write(NOW, "killed")
    log.write(NOW + 2000, "r2")
    log.write(NOW + 3000, "r2")
    assert log.states(NOW + 4000) == {"r2": "running"}, "it says nothing since the other began"


def test_of_two_runs_the_one_that_was_killed_beside_the_other_is_left_out() -> None:
    log = Log()
    for number in range(2):
        log.write(NOW + number, "r1")
        log.write(NOW + number, "r2")
    log.write(NOW + HOUR, "r2")
    assert log.states(NOW + HOUR) == {"r2": "running"}


def test_a_restart_in_place_is_found_from_the_run_before() -> None:
    log = Log()
    log.write(NOW, "r1", state="stopped")
    assert log.board.successor("fraud", "r1", NOW) is None
    log.write(NOW + 1, "r2", state="starting", previous="r1")
    found = log.board.successor("fraud", "r1", NOW)
    assert found is not None
    assert (found.status.run, found.state) == ("r2", "starting")


def test_a_tombstone_and_rubbish() -> None:
    log = Log()
    log.write(NOW)
    log.board.take("fraud", None, offset=5, timestamp=NOW)
    assert log.board.names() == []
    for number, value in enumerate((b"\xff", b"[]", b'{"job": 1}', encoded(status(state="odd")))):
        log.board.take("x", value, offset=number, timestamp=NOW)
    assert log.board.names() == ["x"]
    assert log.board.runs("x", NOW) == []


def test_a_record_without_the_header_is_of_the_run_in_its_value() -> None:
    board = Board()
    for offset, run in enumerate(("r1", "r2", "r1")):
        board.take("fraud", encoded(status(run)), offset=offset, timestamp=NOW)
    assert {run.status.run for run in board.runs("fraud", NOW)} == {"r1", "r2"}


@given(
    skew_ms=st.integers(-3 * HOUR, 3 * HOUR),
    silent_ms=st.integers(0, HOUR),
)
def test_whatever_the_readers_clock_says_after_listening_it_is_right(skew_ms: int, silent_ms: int) -> None:
    """But for one span: a clock that is behind by the very age of a killed job's last report."""
    log = Log()
    log.write(NOW)
    at_broker = NOW + silent_ms
    own = at_broker + skew_ms
    alive = silent_ms <= HEARTBEAT_MS
    if log.board.in_doubt(own):
        if alive:
            log.write(at_broker + 1000, live_ms=own + 1000)
        else:
            log.board.give_up(own)
    elif not alive and -2000 <= own - NOW <= 4 * HEARTBEAT_MS:
        return
    assert log.states(own) == {"r1": "running" if alive else "silent"}
