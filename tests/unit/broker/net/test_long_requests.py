"""Nobody takes the loop for long: the largest legal request of every kind leaves others their turns.

Work is counted, not timed: calls of functions between two rounds of the loop, by the interpreter's own hook.
A look at the clock takes most of a millisecond here, so a slice ends after some three elements. The largest
request is made smaller, so that the test is quick; work that is not done in slices still shows.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest

from millstream.broker.api import produce, serving
from millstream.broker.net import connection
from millstream.broker.server import Server
from millstream.core import loop_slices
from millstream.wire.api_keys import name_of
from millstream.wire.codec import request_reader as reader
from millstream.wire.codec import schema_codec as codec
from millstream.wire.hot import fetch
from tests.support.fake_peer import FakePeer, with_server
from tests.support.largest import Path, kinds, largest
from tests.support.wire_client import API_VERSIONS, PRODUCE, answer, request
from tests.support.wire_client import produce as a_produce

ELEMENTS = 1500
CALLS = 3 * ELEMENTS  # between two rounds of the loop


CASES = [pytest.param(api_key, path, id=f"{name_of(api_key)}-{'.'.join(path)}") for api_key, path in kinds()]


class Work:
    """Counts calls, and remembers the most between two rounds."""

    def __init__(self) -> None:
        self.calls = self.most = self.rounds = 0

    def __call__(self, frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self.calls += 1

    def round(self) -> None:
        self.rounds += 1
        self.most = max(self.most, self.calls)
        self.calls = 0


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader.Body, "left", 2 * ELEMENTS)
    monkeypatch.setattr(fetch, "MOST_PARTITIONS", 2 * ELEMENTS)
    monkeypatch.setattr(produce, "MOST_PARTITIONS", 2 * ELEMENTS)
    now = 0.0

    def monotonic() -> float:
        nonlocal now
        now += 0.0007
        return now

    monkeypatch.setattr(loop_slices, "monotonic", monotonic)
    monkeypatch.setattr(connection, "monotonic", monotonic)
    monkeypatch.setattr(serving, "monotonic", monotonic)


async def watched(busy: FakePeer, other: FakePeer, data: bytes, count: int = 1) -> tuple[Work, int]:
    """Send ``data``, and small requests of another client in every tenth round, until ``data`` has ``count``
    answers. The work of the rounds, and how many requests of the other client were not answered meanwhile."""
    work = Work()
    asked = 0
    sys.setprofile(work)
    try:
        sending = asyncio.ensure_future(busy.send(data))
        while whole(busy) < count and not busy.transport.closed:
            if work.rounds % 10 == 0:
                asked += 1
                other.give(request(API_VERSIONS, 0, asked))
            await asyncio.sleep(0)
            work.round()
            busy.take()
            other.take()
    finally:
        sys.setprofile(None)
    await sending
    return work, asked - whole(other)


def whole(peer: FakePeer) -> int:
    position = found = 0
    while position + 4 <= len(peer.received):
        position += 4 + int.from_bytes(peer.received[position : position + 4], "big")
        found += position <= len(peer.received)
    return found


@pytest.mark.parametrize(("api_key", "path"), CASES)
def test_the_largest_request_of_every_kind_leaves_others_their_turns(api_key: int, path: Path) -> None:
    data = largest(api_key, path, ELEMENTS)

    async def steps(server: Server, connect: Callable[[], FakePeer]) -> None:
        # What only the first request of a kind does (loading modules) is not the work of its elements.
        await watched(connect(), connect(), largest(api_key, path, 1))
        busy, other = connect(), connect()
        work, unanswered = await watched(busy, other, data)
        assert server.node.counters.bugs == 0
        assert server.node.counters.protocol_errors == 0
        assert unanswered <= 1
        assert work.most < CALLS

    with_server(steps, topics={"t": 100})


def test_one_topic_named_many_times_is_described_once() -> None:
    resources = [{"resource_type": 2, "resource_name": "t", "configuration_keys": None}] * ELEMENTS

    async def steps(server: Server, connect: Callable[[], FakePeer]) -> None:
        busy, other = connect(), connect()
        await watched(busy, other, request(32, 4, 1, resources=resources))
        assert len(busy.received) < 20_000
        _, parsed = answer(32, 4, (await busy.answers(1))[0])
        assert [result.resource_name for result in parsed.results] == ["t"]

    with_server(steps)


@pytest.mark.parametrize("kind", ["ApiVersions", "Produce"])
def test_many_requests_at_once_leave_others_their_turns(kind: str) -> None:
    count = 500 if kind == "ApiVersions" else 3000
    one = request(API_VERSIONS, 0, 1) if kind == "ApiVersions" else a_produce(1, "t")

    async def steps(server: Server, connect: Callable[[], FakePeer]) -> None:
        busy, other = connect(), connect()
        work, unanswered = await watched(busy, other, one * count, count)
        assert work.rounds >= count / serving.SHARE
        assert unanswered <= 1
        assert work.most < 100 * 2 * serving.SHARE
        assert whole(busy) == count

    with_server(steps)


def test_a_request_with_too_many_elements_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async def steps(server: Server, connect: Callable[[], FakePeer]) -> None:
        for data in (
            request(15, 5, 1, groups=["g"] * (2 * ELEMENTS + 1)),
            request(PRODUCE, 9, 1, acks=1, timeout=5000, topic_data=[
                {"name": "t", "partition_data": [{"index": n, "records": None} for n in range(2 * ELEMENTS)]}
            ]),
        ):  # fmt: skip
            busy, other = connect(), connect()
            await watched(busy, other, data)
            assert busy.transport.closed
        assert server.node.counters.bugs == 0

    with_server(steps)
    assert f"more than {reader.MOST_ELEMENTS} elements" in caplog.text
    assert "topics and partitions" in caplog.text


def test_an_answer_that_no_client_takes_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(codec, "LARGEST_ANSWER", 30_000)

    async def steps(server: Server, connect: Callable[[], FakePeer]) -> None:
        busy, other = connect(), connect()
        await watched(busy, other, request(15, 5, 1, groups=[f"group-{n}" for n in range(ELEMENTS)]))
        assert busy.transport.closed
        assert server.node.counters.bugs == 0

    with_server(steps)
    assert "ask for less at a time" in caplog.text


def test_a_client_that_leaves_takes_its_work_along() -> None:
    async def steps(server: Server, connect: Callable[[], FakePeer]) -> None:
        busy = connect()
        await busy.send(request(15, 5, 1, groups=[f"group-{n}" for n in range(ELEMENTS)]))
        await asyncio.sleep(0)
        busy.close()
        given = server.shared.slices.count
        for _ in range(10):
            await asyncio.sleep(0)
        assert server.shared.slices.count <= given + 1
        assert server.node.counters.bugs == 0

    with_server(steps)


def test_an_orderly_stop_does_not_wait_for_the_request_of_a_client_that_has_left() -> None:
    async def steps(server: Server, connect: Callable[[], FakePeer]) -> None:
        busy = connect()
        await busy.send(request(15, 5, 1, groups=[f"group-{n}" for n in range(ELEMENTS)]))
        await asyncio.sleep(0)
        busy.socket.shutdown(socket.SHUT_RDWR)  # the transport does not read now, so it does not see this
        assert not busy.transport.is_reading_now
        busy.connection.close_when_answered()
        assert busy.transport.closed

    with_server(steps)


def test_records_for_many_partitions_are_acknowledged_each_as_they_were_written() -> None:
    """Appended in many turns: each turn writes and settles what came in it."""

    async def steps(server: Server, connect: Callable[[], FakePeer]) -> None:
        busy, other = connect(), connect()
        await watched(busy, other, a_produce(1, "t", *range(600), acks=-1))
        _, parsed = answer(PRODUCE, 9, (await busy.answers(1))[0])
        results = parsed.responses[0].partition_responses
        assert [result.index for result in results] == list(range(600))
        assert [result.error_code.value for result in results] == [0] * 500 + [3] * 100
        logs = [partition.log for partition in server.node.hosted["t"].partitions]
        assert [log.written_offset for log in logs] == [1] * 500

    with_server(steps, topics={"t": 500})
