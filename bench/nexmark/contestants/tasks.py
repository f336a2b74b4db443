"""What all contestants have in common: tasks in, answers out. Standard library only."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass

SIDE_ROWS = 10_000  # of the table that q13 looks up


@dataclass(frozen=True)
class Task:
    """Run a query over the topics ``PREFIXperson``, ``PREFIXauction`` and ``PREFIXbid``, into ``output``:
    to the end of what is there if ``bounded``, until the process is ended if not."""

    query: str
    address: str
    prefix: str
    output: str
    bounded: bool
    lateness_ms: int
    scratch: str  # a directory for state


class CannotExpress(Exception):
    """The contestant has no means for this query; says why."""


def serve(run: Callable[[Task], None]) -> None:
    """Do the tasks that come on standard input, one after another."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print must not be taken for an answer
    for line in sys.stdin:
        try:
            run(Task(**json.loads(line)))
            answer: dict[str, object] = {"done": True}
        except CannotExpress as reason:
            answer = {"done": False, "cannot": str(reason)}
        except Exception as error:
            traceback.print_exc()
            answer = {"done": False, "error": f"{type(error).__name__}: {error}"[:500]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
