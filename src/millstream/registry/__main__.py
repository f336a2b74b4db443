"""A registry beside a broker that started it: ``python -m millstream.registry BROKER LISTEN``.

It ends when standard input does, so that it never outlives its parent, however that ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from millstream.errors import MillstreamError
from millstream.registry.running import Registry, run, set_up_logging


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


def main(broker: str, listen: str) -> int:
    set_up_logging()
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    try:
        return run(Registry(broker, listen=listen), on_ready=lambda url: None)
    except MillstreamError as error:
        print(f"millstream: the schema registry did not start: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
