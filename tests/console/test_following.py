"""Many pages that follow topics at once: each gets what comes, the others of the console do not wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.console.live.tails import MOST
from millstream.console.run import Console
from tests.console.conftest import traffic


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        with Admin(Connection.of(started.address)) as admin:
            admin.create_topic("payments", partitions=2)
        yield started


class Follower:
    """A page that is open, and follows."""

    def __init__(self, opened: ExitStack, url: str) -> None:
        self._stack = opened.enter_context(ExitStack())
        answer = self._stack.enter_context(httpx.stream("GET", url, timeout=60))
        assert answer.status_code == 200
        self._lines = answer.iter_lines()

    def next(self, event: str) -> str:
        """The data of the next event of that name."""
        for line in self._lines:
            if line == f"event: {event}":
                return "\n".join(iter(lambda: next(self._lines), ""))
        raise AssertionError("the stream has ended")

    def close(self) -> None:
        self._stack.close()


def test_as_many_as_may_follow_and_one_more_waits_in_words(console: Console, broker: Broker) -> None:
    url = f"{console.url}/live/topics/payments?seek=live"
    with traffic(broker.address, payments=50), ExitStack() as opened:
        followers = [Follower(opened, url) for _ in range(MOST)]
        for follower in followers:
            assert "messages/" in follower.next("rows")
        last = Follower(opened, url)
        assert f"{MOST} pages follow topics here at the moment" in last.next("line")
        settings = httpx.get(f"{console.url}/api/topics/payments/settings", timeout=30)
        assert settings.status_code == 200
        assert "messages/" in followers[-1].next("rows"), "they go on"
        followers[0].close()
        assert "Not following yet" not in last.next("line")
        assert "messages/" in last.next("rows")
