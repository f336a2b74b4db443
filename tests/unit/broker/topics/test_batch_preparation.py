"""Batches that are too large to be decompressed on the loop: others are served meanwhile, order is kept."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from millstream.broker.server import Server
from millstream.broker.topics import batch_preparation
from millstream.log.validation import RecordRules, Verdict, verdict_of
from millstream.records.batch import Buffer, seal
from millstream.records.build import Record, build_batch
from millstream.records.compression import ZSTD
from tests.support.fake_peer import FakePeer, with_server
from tests.support.wire_client import PRODUCE, answer, produce, records

Connect = Callable[[], FakePeer]
LARGE = bytes(build_batch([Record(None, bytes(400_000)), Record(None, b"x")], codec=ZSTD))


class HeldThreads:
    """Threads that do not begin to decompress until they are let."""

    def __init__(self) -> None:
        self.may_go = threading.Event()
        self.begun = threading.Semaphore(0)

    def verdict_of(self, records: Buffer, rules: RecordRules, now_ms: int) -> Verdict:
        self.begun.release()
        assert self.may_go.wait(20)
        return verdict_of(records, rules, now_ms)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldThreads]:
    held = HeldThreads()
    monkeypatch.setattr(batch_preparation, "verdict_of", held.verdict_of)
    yield held
    held.may_go.set()


def partitions(frame: bytes) -> list[tuple[int, int]]:
    """Error and base offset of each partition in an answer."""
    parsed = answer(PRODUCE, 9, frame)[1]
    return [
        (p.error_code.value, p.base_offset) for topic in parsed.responses for p in topic.partition_responses
    ]


def correlation(frame: bytes) -> int:
    return int.from_bytes(frame[:4], "big")


@pytest.mark.parametrize("acks", [1, -1])
def test_others_are_served_while_a_thread_decompresses(held: HeldThreads, acks: int) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        slow, other = connect(), connect()
        slow.give(produce(1, "t", batch=LARGE, acks=acks) + produce(2, "t", acks=acks))
        for number in range(5):
            other.give(produce(number, "t"))
            assert partitions((await other.answers(number + 1))[-1]) == [(0, number)]
        held.may_go.set()
        first, second = await slow.answers(2)
        # Its own next request waited for it, and took effect after it.
        assert (correlation(first), partitions(first)) == (1, [(0, 5)])
        assert (correlation(second), partitions(second)) == (2, [(0, 7)])
        assert server.shared.buffers.used == 0

    with_server(steps)


def test_every_batch_of_a_request_is_checked_before_any_is_appended(held: HeldThreads) -> None:
    held.may_go.set()

    async def steps(server: Server, connect: Connect) -> None:
        peer = connect()
        peer.give(produce(1, "t", 0, 1, batch=LARGE))
        assert partitions((await peer.answers(1))[0]) == [(0, 0), (0, 0)]
        peer.give(produce(2, "t", 0, 1))
        assert partitions((await peer.answers(2))[1]) == [(0, 2), (0, 2)]

    with_server(steps)


def test_what_a_thread_refuses_is_refused() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        peer = connect()
        cut = bytearray(build_batch([Record(None, bytes(400_000))] * 2, codec=ZSTD))
        cut[57:61] = (1).to_bytes(4, "big")  # one record, where there are two
        cut[23:27] = bytes(4)
        seal(cut, 0, len(cut))
        peer.give(produce(1, "t", batch=bytes(cut)) + produce(2, "t"))
        refused, taken = await peer.answers(2)
        assert partitions(refused) == [(87, -1)]
        assert partitions(taken) == [(0, 0)]

    with_server(steps)


def test_a_client_that_left_without_waiting_for_an_answer_has_its_records_kept(held: HeldThreads) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        peer, other = connect(), connect()
        peer.give(produce(1, "t", batch=LARGE, acks=0))
        await asyncio.to_thread(held.begun.acquire)
        peer.close()
        held.may_go.set()
        while not server.node.preparer.is_idle:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        other.give(produce(2, "t"))
        assert partitions((await other.answers(1))[0]) == [(0, 2)]
        assert server.shared.buffers.used == 0

    with_server(steps)


def test_small_batches_need_no_thread(held: HeldThreads) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        peer = connect()
        for number in range(3):
            peer.give(produce(number, "t", batch=records(b"small", codec=ZSTD)))
            assert partitions((await peer.answers(number + 1))[-1]) == [(0, number)]
        assert not held.begun.acquire(blocking=False)

    with_server(steps)
