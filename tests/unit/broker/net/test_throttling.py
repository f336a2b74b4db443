"""Client quotas: whose counts, and how long who is above it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from millstream.broker.catalogue.quotas import Entity
from millstream.broker.net.throttling import FETCH_RATE, PRODUCE_RATE, Meter, Throttling
from millstream.broker.server import Server
from tests.support.fake_peer import FakePeer, with_server
from tests.support.wire_client import API_VERSIONS, FETCH, PRODUCE, answer, fetch, produce, records, request

Connect = Callable[[], FakePeer]


def entity(**names: str | None) -> Entity:
    return frozenset((kind.replace("_", "-"), name) for kind, name in names.items())


def test_a_burst_of_ten_seconds_worth_is_free_and_what_is_beyond_waits_as_long_as_it_is_worth() -> None:
    meter = Meter(1000)
    assert meter.burst == 10_000
    assert meter.count(10_000, 0.0) == 0.0
    assert meter.count(2_000, 0.0) == pytest.approx(2.0)
    assert meter.wait(1.0) == pytest.approx(2.0)  # ten seconds are the least that is measured over
    assert meter.wait(10.9) == pytest.approx(1.1)
    assert meter.wait(11.0) == 0.0


@hypothesis_settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 5000), st.floats(0, 3)), min_size=1, max_size=50))
def test_who_waits_as_long_as_it_is_told_stays_within_its_rate(uses: list[tuple[int, float]]) -> None:
    meter = Meter(1000)
    now = used = 0.0
    for amount, pause in uses:
        used += amount
        wait = meter.count(amount, now)
        assert wait >= 0
        now += wait + pause
        # What was used, but for the last one and the first ten seconds' worth, had its time.
        assert used - amount <= 1000 * (now + 12)


def test_the_most_particular_quota_counts() -> None:
    throttling = Throttling()
    quotas: dict[Entity, dict[str, float]] = {}
    for limit, who in enumerate(
        (
            entity(client_id=None),
            entity(client_id="c"),
            entity(user=None),
            entity(user=None, client_id=None),
            entity(user=None, client_id="c"),
            entity(user="u"),
            entity(user="u", client_id=None),
            entity(user="u", client_id="c"),
        ),
        start=1,
    ):
        quotas[who] = {"producer_byte_rate": float(limit)}
        throttling.set_quotas(dict(quotas))
        meter = throttling.meter(PRODUCE_RATE, "c", "u")
        assert meter is not None
        assert meter.limit == limit
    assert throttling.meter(FETCH_RATE, "c", "u") is None


def test_a_rate_is_shared_by_those_whom_its_quota_stands_for() -> None:
    throttling = Throttling()
    throttling.set_quotas({entity(client_id=None): {"producer_byte_rate": 1.0}})
    assert throttling.meter(PRODUCE_RATE, "a") is throttling.meter(PRODUCE_RATE, "a")
    assert throttling.meter(PRODUCE_RATE, "a") is not throttling.meter(PRODUCE_RATE, "b")
    throttling.set_quotas({entity(user="u"): {"producer_byte_rate": 1.0}})
    assert throttling.meter(PRODUCE_RATE, "a", "u") is throttling.meter(PRODUCE_RATE, "b", "u")
    assert throttling.meter(PRODUCE_RATE, "a") is None


def test_a_changed_quota_keeps_what_was_measured_and_one_taken_back_counts_no_more() -> None:
    throttling = Throttling()
    throttling.set_quotas({entity(client_id="c"): {"consumer_byte_rate": 1000.0}})
    meter = throttling.meter(FETCH_RATE, "c")
    assert meter is not None
    meter.count(20_000, 0.0)
    throttling.set_quotas({entity(client_id="c"): {"consumer_byte_rate": 2000.0}})
    assert throttling.meter(FETCH_RATE, "c") is meter
    assert meter.wait(0.0) == 0.0
    throttling.set_quotas({})
    assert throttling.meter(FETCH_RATE, "c") is None


def hello(client: bytes) -> bytes:
    return request(API_VERSIONS, 2, 99, client=client)


def throttle_of(api_key: int, version: int, frame: bytes) -> int:
    return int(answer(api_key, version, frame)[1].throttle_time.total_seconds() * 1000)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_producer_above_its_quota_is_answered_at_once_and_not_read_from_for_a_while(acks: int) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        peer, other = connect(), connect()
        for each, client in ((peer, b"busy"), (other, b"free")):
            each.give(hello(client))
            await each.answers(1)
        await server.node.set_quotas(entity(client_id="busy"), {"producer_byte_rate": 1000.0})
        peer.give(produce(1, "t", batch=records(b"v" * 9_000), acks=acks))
        assert throttle_of(PRODUCE, 9, (await peer.answers(2))[1]) == 0
        peer.give(produce(2, "t", batch=records(b"v" * 1_000), acks=acks) + produce(3, "t", acks=acks))
        answers = await peer.answers(3)
        assert 0 < throttle_of(PRODUCE, 9, answers[2]) < 1000
        assert len(answers) == 3
        assert not peer.transport.is_reading_now
        other.give(produce(1, "t", batch=records(b"v" * 20_000), acks=acks))
        assert throttle_of(PRODUCE, 9, (await other.answers(2))[1]) == 0
        assert len(await peer.answers(4)) == 4  # after its time
        assert server.node.counters.throttled == 2
        assert server.node.counters.throttled_seconds > 0

    with_server(steps)


def test_a_reader_above_its_quota_gets_nothing_for_a_while() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        peer = connect()
        peer.give(hello(b"busy") + produce(1, "t", batch=records(b"v" * 10_000)))
        await peer.answers(2)
        await server.node.set_quotas(entity(client_id="busy"), {"consumer_byte_rate": 1000.0})
        peer.give(fetch(2, "t"))
        first = (await peer.answers(3))[2]
        assert throttle_of(FETCH, 12, first) == 0
        assert len(first) > 10_000
        peer.give(fetch(3, "t"))
        second = (await peer.answers(4))[3]
        assert throttle_of(FETCH, 12, second) > 0
        assert len(second) < 100
        async with asyncio.timeout(20):
            while not peer.transport.is_reading_now:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    with_server(steps)


def test_a_fetch_session_outlives_being_throttled() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        peer = connect()
        peer.give(hello(b"busy") + produce(1, "t", batch=records(b"v" * 10_000)))
        await peer.answers(2)
        await server.node.set_quotas(entity(client_id="busy"), {"consumer_byte_rate": 2000.0})
        peer.give(fetch(2, "t", session_epoch=0))
        session = answer(FETCH, 12, (await peer.answers(3))[2])[1].session_id
        assert session > 0
        meter = peer.connection.fetch_meter
        assert meter is not None
        meter.count(10_000, server.clock.monotonic())
        following = {"session_id": session, "topics": []}
        peer.give(fetch(3, "t", session_epoch=1, **following))
        second = answer(FETCH, 12, (await peer.answers(4))[3])[1]
        assert (second.session_id, second.throttle_time.total_seconds() > 0) == (session, True)
        await peer.send(fetch(4, "t", session_epoch=2, **following))
        third = answer(FETCH, 12, (await peer.answers(5))[4])[1]
        assert (third.session_id, third.error_code.value) == (session, 0)

    with_server(steps)


def test_a_quota_bounds_what_one_fetch_may_have() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        peer = connect()
        peer.give(hello(b"busy") + b"".join(produce(n, "t", batch=records(b"v" * 1_000)) for n in range(10)))
        await peer.answers(11)
        await server.node.set_quotas(entity(client_id="busy"), {"consumer_byte_rate": 300.0})
        peer.give(fetch(20, "t"))
        assert 1_000 < len((await peer.answers(12))[11]) < 4_000

    with_server(steps)
