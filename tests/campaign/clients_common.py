"""What all clients of the campaign share: when to stop, and how soon to ask again."""

from __future__ import annotations

import time
from typing import Any

IMPATIENT: dict[str, Any] = {
    # A broker that has just started may not know its topics yet. The default is to ask again in 5 minutes.
    "topic.metadata.refresh.interval.ms": 500,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "log_level": 0,
}

_stopping = False


def ask_to_stop(*_: object) -> None:
    global _stopping
    _stopping = True


def stopping() -> bool:
    return _stopping


def now_ms() -> int:
    return int(time.time() * 1000)
