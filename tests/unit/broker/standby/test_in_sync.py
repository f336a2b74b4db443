"""Answers that wait for standbys, without a network."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.standby.in_sync import InSync
from millstream.core.clock import ManualClock
from millstream.core.config import BrokerConfig
from millstream.core.errors import LogError


class Standby:
    """Has every partition up to ``reached``."""

    def __init__(self) -> None:
        self.reached, self.made = 0, 0

    def is_in_sync(self, now: float, most: float) -> bool:
        return True

    def reached_in(self, partition: Any) -> int:
        return self.reached


class Partition:
    topic = SimpleNamespace(copies=2, name="orders")


class Request:
    """Notes how it was settled; then the client may send its next request."""

    timeout_ms = 30_000

    def __init__(self, settled: list[str], name: str, then: Any = None) -> None:
        self._settled, self._name, self._then = settled, name, then

    def settled(self, place: int, failure: LogError | None) -> None:
        assert failure is None
        self._settled.append(self._name)
        if self._then is not None:
            self._then()


def test_an_answer_that_brings_the_next_request_of_its_client_settles_each_once() -> None:
    standby = Standby()
    followers: Any = [standby]
    deadlines: Any = SimpleNamespace(add=lambda wait, seconds: 0, remove=lambda wait, tick: None)
    in_sync = InSync(followers, Catalogue(), deadlines, ManualClock(), BrokerConfig)
    partition: Any = Partition()
    settled: list[str] = []

    def next_request() -> None:  # the standby has its records already: it is settled at once
        in_sync.wait(partition, 2, Request(settled, "third"), 0)  # type: ignore[arg-type]

    in_sync.wait(partition, 1, Request(settled, "first", next_request), 0)  # type: ignore[arg-type]
    in_sync.wait(partition, 2, Request(settled, "second"), 0)  # type: ignore[arg-type]
    assert settled == []
    standby.reached = 2
    in_sync.look()
    assert sorted(settled) == ["first", "second", "third"]
    standby.reached = 3
    in_sync.look()
    assert len(settled) == 3
