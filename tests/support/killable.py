"""Brokers for tests that kill them: millstream, and Apache Kafka to see whether a test demands too much."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from tests.support.apache_kafka import apache_kafka
from tests.support.serve import ServeProcess

KINDS = ["ours", "Apache Kafka"]
SMALL_SEGMENTS = "1048576"  # the smallest size that Apache Kafka accepts; a run fills several segments


class Killable(Protocol):
    address: str

    def kill(self) -> None: ...
    def start(self) -> object: ...


@contextmanager
def killable(kind: str, scratch: Path) -> Iterator[Killable]:
    """A running broker. Apache Kafka runs only with KILL_KAFKA=1, because it takes seconds to restart."""
    if kind == "ours":
        with ServeProcess(scratch / "data", settings={"topic.segment.bytes": SMALL_SEGMENTS}) as broker:
            yield broker
        return
    if not os.environ.get("KILL_KAFKA"):
        pytest.skip("takes minutes; KILL_KAFKA=1 runs it on Apache Kafka too")
    settings = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "log.segment.bytes": SMALL_SEGMENTS,
    }
    with apache_kafka(settings=settings, quick=True) as kafka:
        yield kafka
