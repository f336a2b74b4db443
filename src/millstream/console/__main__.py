"""Runs a console as a process beside the broker that started it.

Usage: ``python -m millstream.console BROKER LISTEN [REGISTRY]``.
"""

from __future__ import annotations

import sys

from millstream.client.connect import Connection
from millstream.console.run import Console
from millstream.console.settings import ConsoleSettings
from millstream.core.serving import run_beside


def main(broker: str, listen: str, registry: str | None = None) -> int:
    return run_beside(Console(ConsoleSettings(Connection.of(broker), registry=registry), listen=listen))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
