"""Ride prices: the generator, what counts as found, and the pipeline's own rules."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, islice, pairwise
from typing import Any

from millstream.examples.example import BEGINNING_MS, iso
from millstream.examples.pricing import EXAMPLE
from millstream.examples.pricing.check import check
from millstream.examples.pricing.generate import DRIVERS, KINDS, REQUESTS, Generator, Move
from millstream.examples.trial import trial

MINUTE = 60_000


def test_events_are_in_order_and_the_same_for_a_seed() -> None:
    events = list(Generator(seed=3, seconds=200.0).events())
    assert events == list(Generator(seed=3, seconds=200.0).events())
    assert events != list(Generator(seed=4, seconds=200.0).events())
    assert all(one.at_ms <= following.at_ms for one, following in pairwise(events))
    assert events[-1].at_ms < BEGINNING_MS + 200_000


def test_without_a_length_it_does_not_end() -> None:
    assert len(list(islice(Generator().events(), 20_000))) == 20_000


def test_what_is_planted_shows_in_the_events_and_is_over_before_the_end() -> None:
    generator = Generator(seed=7, seconds=900.0)
    events = list(generator.events())
    assert {move.kind for move in generator.planted} == set(KINDS)
    for move in generator.planted:
        assert move.end_ms < BEGINNING_MS + 900_000
        during = Counter(
            event.topic
            for event in events
            if event.key == move.area and move.start_ms <= event.at_ms < move.end_ms
        )
        ordinary = {REQUESTS: 96, DRIVERS: 144}  # in four minutes: of 12 drivers, four requests in two
        if move.kind == "surge":
            assert during[REQUESTS] > 3 * ordinary[REQUESTS]
        else:
            assert during[DRIVERS] < ordinary[DRIVERS] / 4


def price(area: str, factor: float, minute: float) -> dict[str, Any]:
    return {"area": area, "factor": factor, "since": iso(BEGINNING_MS + int(minute * MINUTE))}


SURGE = Move("north", "surge", BEGINNING_MS + MINUTE, BEGINNING_MS + 4 * MINUTE)


def test_a_surge_is_found_by_a_raised_price_while_it_lasts() -> None:
    found, _ = check([SURGE], {"prices": [price("north", 1.5, 1.5), price("north", 2.1, 2)]})
    assert (found.planted, found.found, found.given, found.right) == (1, 1, 1, 1)


def test_a_price_that_rises_too_late_or_elsewhere_is_wrong() -> None:
    found, _ = check([SURGE], {"prices": [price("north", 2.1, 5), price("centre", 2.1, 2)]})
    assert (found.found, found.given, found.right) == (0, 2, 0)
    assert not EXAMPLE.reached([found])


def test_a_price_around_the_limit_has_risen_once() -> None:
    ups_and_downs = [price("north", factor, 2 + at / 10) for at, factor in enumerate([2.0, 1.9, 2.0, 1.9])]
    found, _ = check([SURGE], {"prices": ups_and_downs})
    assert found.given == 1


def test_prices_are_bounded_and_smooth_whatever_the_batches() -> None:
    def prices(batch: int) -> list[dict[str, Any]]:
        rows = trial(EXAMPLE.pipeline, Generator(seed=5, seconds=290.0), ["prices"], batch=batch)["prices"]
        return sorted((dict(row) for row in rows), key=lambda row: (row["area"], row["since"]))

    found = prices(5000)
    assert max(row["factor"] for row in found) > 2
    for _, rows in groupby(found, key=lambda row: row["area"]):
        factors = [row["factor"] for row in rows]
        assert all(1.0 <= factor <= 3.0 for factor in factors)
        assert all(0.05 < abs(after - before) < 0.5 for before, after in pairwise(factors))
    assert found == prices(700)
