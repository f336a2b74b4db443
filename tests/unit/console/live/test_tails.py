"""Seats of pages that follow, and the threads they read on."""

from __future__ import annotations

import asyncio
import threading

from millstream.client.connect import Connection
from millstream.console.live.tails import MOST, Tails
from millstream.console.observing.request_pool import RequestPool


def test_a_seat_is_kept_and_the_next_in_line_gets_one_that_is_left() -> None:
    tails = Tails()
    try:
        with tails.seat() as first:
            assert first.take()
            assert first.take(), "it is the same seat"
            others = [tails.seat().__enter__() for _ in range(MOST - 1)]
            assert all(seat.take() for seat in others)
            with tails.seat() as waits:
                assert not waits.take()
                others[0].leave()
                assert waits.take()
            assert tails.following == MOST - 1
    finally:
        tails.close()
    assert tails.following == MOST - 2


def test_followers_that_read_for_long_hold_up_no_question_to_the_broker() -> None:
    async def asked() -> int:
        tails, requests, over = Tails(), RequestPool(Connection.of("127.0.0.1:1")), threading.Event()
        reading = [asyncio.ensure_future(tails.run(over.wait)) for _ in range(MOST)]
        try:
            return await asyncio.wait_for(requests.run(lambda: 42), 60)
        finally:
            over.set()
            await asyncio.gather(*reading)
            tails.close()
            requests.close()

    assert asyncio.run(asked()) == 42
