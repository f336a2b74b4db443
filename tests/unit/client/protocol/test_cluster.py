"""Which link a question goes over, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.client.connect import Connection
from millstream.client.protocol.cluster import Cluster


class FakeLink:
    def __init__(self, in_flight: int = 0) -> None:
        self.in_flight = in_flight
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[FakeLink]:
    links: list[FakeLink] = []

    def open_(_: Cluster, __: Any) -> FakeLink:
        links.append(FakeLink())
        return links[-1]

    monkeypatch.setattr(Cluster, "_open", open_)
    return links


def test_a_question_goes_over_a_link_that_owes_no_answer(opened: list[FakeLink]) -> None:
    cluster = Cluster(Connection("127.0.0.1:9092"))
    busy, free = FakeLink(in_flight=2), FakeLink()
    cluster._links = {("a", 1): busy, ("b", 1): free}  # type: ignore[dict-item]
    assert cluster.any_link() is free  # type: ignore[comparison-overlap]
    free.in_flight = 1
    spare = cluster.any_link()
    assert [spare] == opened
    assert cluster.any_link() is spare


def test_a_spare_link_that_never_answered_is_replaced(opened: list[FakeLink]) -> None:
    """A broker that dies between a question and its answer leaves the question standing."""
    cluster = Cluster(Connection("127.0.0.1:9092"))
    cluster.any_link()
    opened[0].in_flight = 1
    assert cluster.any_link() is opened[1]  # type: ignore[comparison-overlap]
    assert opened[0].closed
