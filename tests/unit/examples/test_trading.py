"""Trading: the generator, what counts as the right order, and the pipeline's own limits."""

from __future__ import annotations

import json
from itertools import islice, pairwise
from typing import Any

import pytest

from millstream.examples.example import BEGINNING_MS, Event, iso
from millstream.examples.trading import EXAMPLE
from millstream.examples.trading.check import LIMIT, check, expected
from millstream.examples.trading.generate import KINDS, Generator, Move
from millstream.examples.trial import feed
from millstream.testing import Driver

SECOND = 1000


def test_ticks_are_in_order_and_the_same_for_a_seed() -> None:
    events = list(Generator(seed=3, seconds=100.0).events())
    assert events == list(Generator(seed=3, seconds=100.0).events())
    assert events != list(Generator(seed=4, seconds=100.0).events())
    assert all(one.at_ms <= following.at_ms for one, following in pairwise(events))
    assert len(list(islice(Generator().events(), 10_000))) == 10_000


def test_every_kind_of_move_is_planted_and_over_before_the_end() -> None:
    generator = Generator(seed=7, seconds=700.0)
    list(generator.events())
    assert {move.kind for move in generator.planted} == set(KINDS)
    assert all(move.end_ms < BEGINNING_MS + 700_000 for move in generator.planted)


def move(kind: str, at: int = 0, **other: Any) -> Move:
    start = BEGINNING_MS + at * SECOND
    return Move("NORD", kind, start, start + 45 * SECOND, **other)


def test_a_class_that_falls_alone_is_bought_and_the_other_sold() -> None:
    orders = expected([move("apart", moved="NORD-B", up=False)])
    assert [(order.instrument, order.side) for order in orders] == [("NORD-B", "buy"), ("NORD-A", "sell")]


def test_a_whole_stock_that_rises_or_stays_down_is_left_alone() -> None:
    assert expected([move("rally"), move("slump", 300)]) == []


def test_beyond_the_limit_an_order_is_to_be_refused() -> None:
    kinds = [order.kind for order in expected([move("rebound", 300 * number) for number in range(3)])]
    assert kinds == ["rebound"] * 4 + ["refused"] * 2


def order(instrument: str, at: int = 30, side: str = "buy") -> dict[str, Any]:
    time = iso(BEGINNING_MS + at * SECOND)
    return {"instrument": instrument, "side": side, "rule": "rebound", "ordered_at": time}


@pytest.mark.parametrize(
    "wrong",
    [
        order("NORD-A", 31),  # twice for one signal
        order("NORD-A", 90),  # long after
        order("VELA-A"),  # of which nothing is planted
        order("NORD-A", side="sell"),
    ],
)
def test_an_order_that_nothing_explains_is_wrong(wrong: dict[str, Any]) -> None:
    orders = [order("NORD-A"), order("NORD-B"), wrong]
    rebound = next(score for score in check([move("rebound")], {"orders": orders}) if score.kind == "rebound")
    assert (rebound.planted, rebound.found, rebound.given, rebound.right) == (2, 2, 3, 2)
    assert not EXAMPLE.reached([rebound])


def test_orders_keep_to_the_limit_and_positions_add_up() -> None:
    generator = Generator(seed=2, seconds=700.0)
    with Driver(EXAMPLE.pipeline) as driver:
        feed(driver, generator.events())
        driver.finish()
        orders, view = driver.topic("orders"), driver.view("positions")
        assert driver.topic("orders.refused")
    assert len({one["id"] for one in orders}) == len(orders)
    positions: dict[str, int] = {}
    for one in orders:
        signed = one["quantity"] if one["side"] == "buy" else -one["quantity"]
        positions[one["instrument"]] = positions.get(one["instrument"], 0) + signed
        assert one["position"] == positions[one["instrument"]]
        assert abs(one["position"]) <= LIMIT
    assert {instrument: row["position"] for instrument, row in view.items()} == positions


def test_orders_do_not_depend_on_how_ticks_come_in_batches_nor_on_their_order_within_the_lateness() -> None:
    events = list(Generator(seed=5, seconds=120.0).events())
    swapped = [event for at in range(0, len(events) - 1, 2) for event in (events[at + 1], events[at])]

    def orders(events: list[Event], batch: int) -> list[str]:
        with Driver(EXAMPLE.pipeline) as driver:
            feed(driver, events, batch=batch)
            driver.finish()
            return sorted(json.dumps(row) for row in driver.topic("orders"))

    found = orders(events, 5000)
    assert found
    assert orders(swapped, 300) == found
