"""Memory for requests that arrive in pieces."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.buffers import SMALLEST, RequestBuffers


def test_a_buffer_is_large_enough_and_used_again() -> None:
    buffers = RequestBuffers(1 << 20)
    first = buffers.take(5000)
    assert len(first) == 8192
    buffers.give_back(first)
    assert buffers.take(8000) is first
    assert len(buffers.take(1)) == SMALLEST


def test_without_room_one_waits_until_there_is_some() -> None:
    buffers = RequestBuffers(1 << 20)
    large = buffers.take(1 << 20)
    assert not buffers.has_room_for(1)
    called = []
    buffers.wait(4096, lambda: called.append("first"))
    buffers.wait(4096, lambda: called.append("second"))
    assert buffers.is_scarce
    buffers.give_back(large)
    assert called == ["first", "second"]
    assert not buffers.is_scarce


def test_the_turn_comes_in_order_and_only_while_there_is_room() -> None:
    buffers = RequestBuffers(1 << 20)
    halves = [buffers.take(1 << 19), buffers.take(1 << 19)]
    taken: list[bytearray] = []
    called: list[int] = []

    def waiter(number: int) -> None:
        called.append(number)
        taken.append(buffers.take(1 << 19))

    for number in range(3):
        buffers.wait(1 << 19, lambda number=number: waiter(number))  # type: ignore[misc]
    buffers.give_back(halves.pop())
    assert called == [0]
    buffers.give_back(taken.pop())
    assert called == [0, 1]


def test_a_request_larger_than_the_bound_is_taken_when_it_is_alone() -> None:
    buffers = RequestBuffers(1 << 20)
    assert buffers.has_room_for(50 << 20)


def test_now_and_then_one_may_pass_so_that_stuck_clients_stop_nobody() -> None:
    buffers = RequestBuffers(1 << 20)
    buffers.take(1 << 20)
    called = []
    buffers.wait(4096, lambda: called.append(1))
    buffers.wait(4096, lambda: called.append(2))
    buffers.let_one_pass()
    assert called == [1]
    buffers.let_one_pass()
    buffers.let_one_pass()
    assert called == [1, 2]


def test_one_that_is_gone_is_not_called() -> None:
    buffers = RequestBuffers(1 << 20)
    large = buffers.take(1 << 20)
    called = []

    def resume() -> None:
        called.append(1)

    buffers.wait(4096, resume)
    buffers.forget(resume)
    buffers.give_back(large)
    assert called == []


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
