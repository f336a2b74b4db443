"""Memory for requests that arrive in pieces."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.net.buffers import SLOW, SMALLEST, RequestBuffers


def test_a_buffer_is_large_enough_and_used_again() -> None:
    buffers = RequestBuffers(1 << 20)
    first = buffers.take(5000)
    assert len(first) == 8192
    buffers.give_back(first)
    assert buffers.take(8000) is first
    assert len(buffers.take(1)) == SMALLEST


class Client:
    """A connection as the buffers know it."""

    def __init__(self, held: bytearray | None = None, missing: int = 0, rate: int | None = 0) -> None:
        self.buffer = held
        self.missing = missing
        self.rate = rate
        self.calls = 0
        self.is_dropped = False
        self.of: RequestBuffers | None = None

    @property
    def held(self) -> int:
        return 0 if self.buffer is None else len(self.buffer)

    def arrived(self) -> int | None:
        return self.rate

    def memory_returned(self) -> None:
        self.calls += 1

    def drop(self) -> None:
        self.is_dropped = True
        buffer, self.buffer = self.buffer, None
        if self.of is not None and buffer is not None:
            self.of.forget(self)
            self.of.give_back(buffer)


def test_without_room_one_waits_until_there_is_some() -> None:
    buffers = RequestBuffers(1 << 20)
    large = buffers.take(1 << 20)
    assert not buffers.has_room_for(1)
    first, second = Client(), Client()
    buffers.wait(4096, first)
    buffers.wait(4096, second)
    assert buffers.is_scarce
    buffers.give_back(large)
    assert (first.calls, second.calls) == (1, 1)
    assert not buffers.is_scarce


def test_the_turn_comes_in_order_and_only_while_there_is_room() -> None:
    buffers = RequestBuffers(1 << 20)
    halves = [buffers.take(1 << 19), buffers.take(1 << 19)]

    class Taker(Client):
        def memory_returned(self) -> None:
            super().memory_returned()
            self.buffer = buffers.take(1 << 19)

    takers = [Taker() for _ in range(3)]
    for taker in takers:
        buffers.wait(1 << 19, taker)
    buffers.give_back(halves.pop())
    assert [taker.calls for taker in takers] == [1, 0, 0]
    assert takers[0].buffer is not None
    buffers.give_back(takers[0].buffer)
    assert [taker.calls for taker in takers] == [1, 1, 0]


def test_a_request_larger_than_the_bound_is_taken_when_it_is_alone() -> None:
    buffers = RequestBuffers(1 << 20)
    assert buffers.has_room_for(50 << 20)
    alone = Client(buffers.take(1 << 20))
    assert buffers.has_room_for(50 << 20, alone)
    assert not buffers.has_room_for(50 << 20, Client())


def holders(buffers: RequestBuffers, size: int, *rates: int | None) -> list[Client]:
    found = [Client(buffers.take(size), missing=100 - n, rate=rate) for n, rate in enumerate(rates)]
    for client in found:
        client.of = buffers
    return found


def test_the_slowest_is_dropped_while_others_wait_and_no_more_than_it_takes() -> None:
    buffers = RequestBuffers(1 << 20)
    clients = holders(buffers, 1 << 18, SLOW, 5, 0, None)
    waiting = Client()
    buffers.wait(4096, waiting)
    buffers.relieve([*clients, waiting])
    assert [client.is_dropped for client in clients] == [False, False, True, False]
    assert waiting.calls == 1


def test_nobody_is_dropped_while_nobody_waits() -> None:
    buffers = RequestBuffers(1 << 20)
    clients = holders(buffers, 1 << 18, 0, 0, 0, 0)
    buffers.relieve(clients)
    assert not any(client.is_dropped for client in clients)


def test_one_that_waits_for_memory_is_not_taken_for_stalled() -> None:
    buffers = RequestBuffers(1 << 20)
    clients = holders(buffers, 1 << 18, 0, SLOW, SLOW, SLOW)
    buffers.wait(1 << 19, clients[0])
    buffers.relieve(clients)
    assert not any(client.is_dropped for client in clients)
    assert clients[0].calls == 0  # the others move on, and make room


def test_where_all_wait_for_each_other_one_goes_on_beyond_the_bound_until_it_is_done() -> None:
    buffers = RequestBuffers(1 << 20)
    clients = holders(buffers, 1 << 18, 0, 0, 0, 0)
    newcomer = Client()
    for client in (newcomer, *clients):
        buffers.wait(1 << 19, client)
    for _ in range(3):
        buffers.relieve([*clients, newcomer])
        clients[3].rate = SLOW  # it is read from now
        assert [client.calls for client in clients] == [0, 0, 0, 1]  # it misses least
    assert buffers.has_room_for(1 << 30, clients[3])
    assert not buffers.has_room_for(1 << 19, clients[2])
    buffers.forget(clients[3])  # its request has arrived
    buffers.relieve([*clients[:3], newcomer])
    assert [client.calls for client in clients] == [0, 0, 1, 1]
    assert newcomer.calls == 0


def test_one_that_is_gone_is_not_called() -> None:
    buffers = RequestBuffers(1 << 20)
    large = buffers.take(1 << 20)
    gone = Client()
    buffers.wait(4096, gone)
    buffers.forget(gone)
    buffers.give_back(large)
    assert gone.calls == 0


@given(st.lists(st.integers(1, 3_000_000), max_size=50))
@settings(max_examples=50)
def test_all_that_was_taken_can_be_given_back(sizes: list[int]) -> None:
    buffers = RequestBuffers(1 << 22)
    taken = [buffers.take(size) for size in sizes]
    assert buffers.used == sum(map(len, taken))
    assert all(len(buffer) >= size for buffer, size in zip(taken, sizes, strict=True))
    for buffer in taken:
        buffers.give_back(buffer)
    assert buffers.used == 0
