"""``millstream run --restart on-failure``: decides when a failed job is restarted, and after what pause."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.terminal.output import note
from millstream.core.errors import ConfigError, DataLoss, MillstreamError, TopologyError
from millstream.core.units import count

if TYPE_CHECKING:
    from millstream.cli.run.end_requests import EndRequests
    from millstream.core.interrupts import Interrupts

_FIRST_S, _LONGEST_S = 1.0, 60.0
_SETTLED_S = 600.0  # a job that ran this long had recovered from its earlier failure


class Restart(StrEnum):
    NEVER = "never"
    ON_FAILURE = "on-failure"


RestartOption = Annotated[
    Restart,
    typer.Option(
        "--restart",
        metavar="never|on-failure",
        help="What to do when the job fails. on-failure restarts Spark and the job from the checkpoint, "
        "after a pause that doubles from 1 s to 60 s. Errors that a restart can't fix end the job: a "
        "mistake in the file or the options, lost records, or a takeover by another run.",
    ),
]
MaxRestartsOption = Annotated[
    int,
    typer.Option(
        "--max-restarts",
        metavar="N",
        min=1,
        help="With --restart on-failure: the most restarts in a row. A run of at least 10 minutes resets "
        "the count.",
    ),
]


class Restarts:
    """Decides how often and how soon a job is restarted. It has no clock: the caller passes the duration of
    the last run.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.row = 0

    def after(self, ran_s: float) -> float | None:
        """The seconds to wait before the next start; None if there have been too many in a row."""
        if ran_s >= _SETTLED_S:
            self.row = 0
        if self.row >= self._most:
            return None
        self.row += 1
        return min(_LONGEST_S, _FIRST_S * 2.0 ** (self.row - 1))


def helps(error: MillstreamError, *, ran: bool) -> bool:
    """True if a restart of the same job may succeed. ``ran`` means that the job got past planning, so the
    file is correct as far as Spark can tell.
    """
    from millstream.pipeline.run.delivery.ledger import LedgerProblem
    from millstream.pipeline.run.delivery.transactions import JobTakenOver
    from millstream.views.views import ViewsRebuilt

    if isinstance(error, ConfigError | DataLoss | LedgerProblem | JobTakenOver | ViewsRebuilt):
        return False
    if "DataLoss:" in str(error):  # raised in one of Spark's processes, so the type is lost
        return False
    return ran or not isinstance(error, TopologyError)


def restarting(
    run: Callable[[], int],
    restarts: Restarts,
    interrupts: Interrupts | EndRequests,
    *,
    ran: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Call ``run`` until it succeeds, the user interrupts it, or a restart no longer helps."""
    while True:
        began = clock()
        try:
            return run()
        except MillstreamError as error:
            pause = restarts.after(clock() - began) if helps(error, ran=ran()) else None
            if pause is None or interrupts:
                if restarts.row:
                    note(f"gave up after {count(restarts.row, 'restart')}")
                raise
            note(f"{error}\nstarting again in {pause:g} s (restart {restarts.row})")
        until = clock() + pause
        while clock() < until:
            if interrupts:
                return 130
            sleep(0.1)
