"""The generator of card payments: seeded, in order, and honest about what it planted."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice, pairwise

from millstream.examples.example import Event
from millstream.examples.fraud.generate import KINDS, Generator


def take(count: int, **settings: object) -> tuple[list[Event], Generator]:
    generator = Generator(cards=400, regulars=2, **settings)  # type: ignore[arg-type]
    return list(islice(generator.events(), count)), generator


def payment(event: Event) -> dict[str, object]:
    return json.loads(event.value or b"")  # type: ignore[no-any-return]


def test_the_same_seed_gives_the_same_events_and_another_seed_others() -> None:
    events, generator = take(4000)
    again, same = take(4000)
    other, _ = take(4000, seed=8)
    assert events == again
    assert generator.planted == same.planted
    assert events != other


def test_events_come_in_the_order_of_their_times() -> None:
    events, _ = take(5000)
    assert all(one.at_ms <= following.at_ms for one, following in pairwise(events))


def test_history_comes_before_the_start_and_holds_no_fraud() -> None:
    events, generator = take(200 * 8)
    assert all(event.at_ms < generator.start_ms for event in events)
    assert generator.planted == []


def test_every_kind_of_fraud_is_planted_on_cards_of_its_own() -> None:
    events, generator = take(8000, fraud_every=1.0)
    assert set(Counter(fraud.kind for fraud in generator.planted)) == set(KINDS)
    assert len({fraud.card for fraud in generator.planted}) == len(generator.planted)
    by_card: dict[str, list[dict[str, object]]] = {}
    for event in events:
        if event.well_formed and event.at_ms >= generator.start_ms:
            by_card.setdefault(event.key, []).append(payment(event))
    finished = [fraud for fraud in generator.planted if fraud.end_ms < events[-1].at_ms]
    for fraud in finished:
        made = by_card[fraud.card]
        if fraud.kind == "burst":
            assert len(made) >= 9
        elif fraud.kind == "two_countries":
            assert len({one["country"] for one in made}) == 2
        elif fraud.kind == "card_testing":
            assert float(str(made[-1]["amount"])) > 300


def test_malformed_records_are_few_and_marked() -> None:
    events, _ = take(6000, malformed=0.05, history_payments=1)
    broken = [event for event in events if not event.well_formed]
    assert 0 < len(broken) < 600


def test_the_rate_is_kept_on_average() -> None:
    events, generator = take(200 * 8 + 3000, rate=50.0, fraud_every=1e9)
    seconds = (events[-1].at_ms - generator.start_ms) / 1000
    assert 50 < seconds < 70
