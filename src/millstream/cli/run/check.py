"""Loads and plans a pipeline's file, and prints the name of its topology.

    python -m millstream.cli.run.check FILE [NAME]

A running job asks this in another process before it restarts: loading the file changes the modules of the
process that loads it.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

from millstream.core.errors import MillstreamError
from millstream.pipeline.dsl.load import load_topology
from millstream.pipeline.planning.plan import plan


def check(file: str, name: str | None = None) -> int:
    try:
        with redirect_stdout(sys.stderr):  # the file may print
            flow = load_topology(Path(file), name)
            plan(flow)
    except MillstreamError as error:
        print(str(error).replace("\n", " "), file=sys.stderr)
        return 1
    print(flow.name)
    return 0


if __name__ == "__main__":
    sys.exit(check(*sys.argv[1:]))
