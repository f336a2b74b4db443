"""When a job that failed is started again, by a clock that the test holds."""

from __future__ import annotations

import pytest

from millstream.cli.run.restart import Restarts, helps, restarting
from millstream.core.errors import BrokerUnavailable, ConfigError, DataLoss, MillstreamError, TopologyError
from millstream.core.interrupts import Interrupts
from millstream.pipeline.run.delivery.ledger import LedgerProblem
from millstream.pipeline.run.delivery.transactions import JobTakenOver


def test_pauses_double_to_a_minute_and_end() -> None:
    restarts = Restarts(9)
    assert [restarts.after(5) for _ in range(10)] == [1, 2, 4, 8, 16, 32, 60, 60, 60, None]


def test_a_job_that_ran_for_long_begins_a_new_row() -> None:
    restarts = Restarts(2)
    assert [restarts.after(ran) for ran in (5, 5, 601, 5, 5)] == [1, 2, 1, 2, None]


@pytest.mark.parametrize(
    ("error", "ran", "again"),
    [
        (BrokerUnavailable("no broker answers"), False, True),
        (MillstreamError("Spark did not start"), False, True),
        (TopologyError("query 'q' failed: ZeroDivisionError"), True, True),
        (TopologyError("there is no column 'm'"), False, False),
        (ConfigError("--trigger: 'soon' is not a duration"), False, False),
        (LedgerProblem("group 'q' belongs to another checkpoint"), True, False),
        (JobTakenOver("another run of this job has taken over"), True, False),
        (DataLoss("payments[0]: offsets 3 to 7 are gone"), True, False),
        (TopologyError("query 'q' failed: DataLoss: payments[0]: offsets 3 to 7 are gone"), True, False),
    ],
)
def test_what_a_restart_cannot_mend_ends_the_job(error: MillstreamError, ran: bool, again: bool) -> None:
    assert helps(error, ran=ran) is again


class Runs:
    """Runs that each fail after some seconds, until they are used up."""

    def __init__(self, *failures: MillstreamError, seconds: float = 5) -> None:
        self._failures = list(failures)
        self._seconds = seconds
        self.now = 0.0
        self.began: list[float] = []

    def run(self) -> int:
        self.began.append(self.now)
        self.now += self._seconds
        if self._failures:
            raise self._failures.pop(0)
        return 0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def start(runs: Runs, most: int = 3, interrupts: Interrupts | None = None) -> int:
    return restarting(
        runs.run,
        Restarts(most),
        Interrupts() if interrupts is None else interrupts,
        ran=lambda: True,
        clock=lambda: runs.now,
        sleep=runs.sleep,
    )


def test_it_is_started_until_it_ends_well_and_every_failure_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = Runs(MillstreamError("first"), MillstreamError("second"))
    assert start(runs) == 0
    assert runs.began == pytest.approx([0, 6, 13], abs=0.3)
    said = capsys.readouterr().err
    assert "first" in said
    assert "starting again in 1 s (restart 1)" in said
    assert "starting again in 2 s (restart 2)" in said


def test_after_the_last_the_failure_is_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    runs = Runs(*(MillstreamError(f"number {number}") for number in range(9)))
    with pytest.raises(MillstreamError, match="number 3"):
        start(runs)
    assert len(runs.began) == 4
    assert "gave up after 3 restarts" in capsys.readouterr().err


def test_ctrl_c_ends_the_pause() -> None:
    interrupts = Interrupts()
    runs = Runs(*(MillstreamError("no") for _ in range(9)))
    before = runs.sleep

    def interrupted(seconds: float) -> None:
        before(seconds)
        interrupts.count += runs.now > 6.5

    runs.sleep = interrupted  # type: ignore[method-assign]
    assert start(runs, interrupts=interrupts) == 130
    assert len(runs.began) == 2
