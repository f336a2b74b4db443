"""What the programs share: their command line, and what they print."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any


class Stop:
    """Set when standard input ends, which is how a consumer is told to stop."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        sys.stdin.read()
        self._ended.set()

    def __bool__(self) -> bool:
        return self._ended.is_set()


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def tell(partition: int, offset: int, key: bytes | None, value: bytes | None, headers: Any) -> None:
    """A record that was read."""
    header = headers[0][1] if headers else b""
    text = [(part or b"").decode() for part in (key, value, header)]
    say(partition=partition, offset=offset, key=text[0], value=text[1], header=text[2])


def record(number: int) -> dict[str, Any]:
    """The record with this number."""
    return {
        "partition": number % 2,
        "key": f"k{number}".encode(),
        "value": f"v{number}".encode(),
        "headers": [("n", str(number).encode())],
    }
