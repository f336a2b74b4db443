"""Run a registry beside the broker that starts it: ``python -m millstream.registry BROKER LISTEN``."""

from __future__ import annotations

import sys

from millstream.registry.running import Registry
from millstream.serving import run_beside


def main(broker: str, listen: str) -> int:
    return run_beside(Registry(broker, listen=listen))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
