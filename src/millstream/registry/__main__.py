"""Run a registry beside the broker that starts it: ``python -m millstream.registry BROKER LISTEN``."""

from __future__ import annotations

import sys

from millstream.core.serving import run_beside
from millstream.registry.service.running import Registry


def main(broker: str, listen: str) -> int:
    return run_beside(Registry(broker, listen=listen))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
