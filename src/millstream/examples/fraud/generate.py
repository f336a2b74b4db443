"""Card payments with planted fraud, from a seed.

Every card has habits: a home country and currency, a usual amount, hours of use, how often it pays online.
Some holders travel and pay abroad for days, which is not fraud. The generator plants four kinds of fraud on
separate cards, and records them separately from the payments, to judge a detector by:

    burst            many payments within seconds
    card_testing     a few tiny amounts, then a large one
    two_countries    a payment in a shop at home and, moments later, in a shop abroad
    unusual_amount   one payment far above the card's habit

A few records are malformed, as in real life. The same seed, start and rate give the same events.
"""

from __future__ import annotations

import heapq
import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from millstream.examples.example import BEGINNING_MS, Event, iso
from millstream.examples.feed import main

PAYMENTS = "payments"
KINDS = ("burst", "card_testing", "two_countries", "unusual_amount")
_HOMES = {
    "DE": "EUR",
    "FR": "EUR",
    "NL": "EUR",
    "ES": "EUR",
    "IT": "EUR",
    "US": "USD",
    "GB": "GBP",
    "CH": "CHF",
}
_EURO = {"EUR": 1.0, "USD": 0.92, "GBP": 1.17, "CHF": 1.04}
_LONGEST_MS = 16_000  # of a burst, from its first payment to its last
_SHOPS = ("groceries", "fuel", "restaurant", "pharmacy", "clothes", "books", "transport", "electronics")


@dataclass(frozen=True, slots=True)
class Fraud:
    """What was planted: the truth to judge against."""

    card: str
    kind: str
    start_ms: int
    end_ms: int

    def value(self) -> bytes:
        return json.dumps(
            {"card": self.card, "kind": self.kind, "start": iso(self.start_ms), "end": iso(self.end_ms)}
        ).encode()


@dataclass(slots=True)
class _Card:
    number: str
    home: str
    away: str | None  # where its holder travels, if anywhere
    usual: float  # the median amount, in euros
    spread: float
    hours: tuple[int, int]
    online: float  # share of payments

    @property
    def country(self) -> str:
        return self.away or self.home


@dataclass(slots=True)
class Generator:
    """Events from ``start_ms`` on, for ``seconds`` or without end. ``planted`` grows along with them.

    In the ``history`` seconds before the start, one card in ``regulars`` pays a few times: habits have to
    come from somewhere. Fraud begins with the live part, on cards that have habits.
    """

    seed: int = 7
    start_ms: int = BEGINNING_MS
    seconds: float | None = None
    rate: float = 100.0  # payments per second, without fraud
    cards: int = 8000  # so many that an honest card rarely pays twice a minute
    regulars: int = 8
    fraud_every: float = 3.0  # seconds between two planted frauds, on average
    malformed: float = 0.001  # share of records
    history: float = 3 * 3600.0
    history_payments: int = 8  # per card
    planted: list[Fraud] = field(default_factory=list)

    def events(self) -> Iterator[Event]:
        """The events, in the order of their times."""
        rng = random.Random(self.seed)
        cards = [self._card(rng, index) for index in range(self.cards)]
        regulars = cards[:: self.regulars]
        victims = rng.sample(regulars, len(regulars) // 2)  # each of them gets one fraud
        yield from self._past(rng, regulars)
        yield from self._live(rng, cards, victims)

    def _card(self, rng: random.Random, index: int) -> _Card:
        home = rng.choice(list(_HOMES))
        first = rng.randrange(6, 12)
        return _Card(
            number=f"4{rng.randrange(10**11):011d}{index:04d}",
            home=home,
            away=rng.choice([c for c in _HOMES if c != home]) if rng.random() < 0.05 else None,
            usual=rng.lognormvariate(3.0, 0.5),
            spread=rng.uniform(0.3, 0.6),
            hours=(first, rng.randrange(19, 24)),
            online=rng.uniform(0.1, 0.5),
        )

    def _past(self, rng: random.Random, cards: list[_Card]) -> Iterator[Event]:
        begin = self.start_ms - int(self.history * 1000)
        times = [
            (begin + int(rng.random() * (self.history - 600) * 1000), card)
            for card in cards
            for _ in range(self.history_payments)
        ]
        times.sort(key=lambda entry: entry[0])
        for at_ms, card in times:
            yield self._payment(rng, at_ms, card)

    def _live(self, rng: random.Random, cards: list[_Card], victims: list[_Card]) -> Iterator[Event]:
        reserved = {card.number for card in victims}
        honest = [card for card in cards if card.number not in reserved]
        waiting: list[tuple[int, int, Event]] = []  # planted payments that are due later
        number = 0
        clock = float(self.start_ms)
        end = math.inf if self.seconds is None else clock + self.seconds * 1000
        next_fraud = clock + 1000 * min(1.0, self.fraud_every)
        while clock < end:
            clock += rng.expovariate(self.rate) * 1000
            while next_fraud <= clock:
                if victims and next_fraud + _LONGEST_MS < end:
                    for event in self._plant(rng, int(next_fraud), victims.pop()):
                        number += 1
                        heapq.heappush(waiting, (event.at_ms, number, event))
                next_fraud += rng.uniform(0.5, 1.5) * self.fraud_every * 1000
            while waiting and waiting[0][0] <= clock:
                yield heapq.heappop(waiting)[2]
            at_ms = int(clock)
            card = self._someone(rng, honest, at_ms)
            if rng.random() < self.malformed:
                yield Event(at_ms, PAYMENTS, card.number, self._broken(rng, at_ms, card), well_formed=False)
            else:
                yield self._payment(rng, at_ms, card)

    def _someone(self, rng: random.Random, cards: list[_Card], at_ms: int) -> _Card:
        """A card, preferably one that is in use at this hour."""
        hour = datetime.fromtimestamp(at_ms / 1000, UTC).hour
        card = rng.choice(cards)
        return card if card.hours[0] <= hour < card.hours[1] else rng.choice(cards)

    # ---- payments -----------------------------------------------------------------------------------

    def _payment(
        self,
        rng: random.Random,
        at_ms: int,
        card: _Card,
        *,
        eur: float | None = None,
        country: str | None = None,
        merchant: str | None = None,
    ) -> Event:
        country = country or card.country
        currency = _HOMES[country]
        if eur is None:
            eur = max(2.5, min(card.usual * rng.lognormvariate(0, card.spread), card.usual * 4))
        if merchant is None:
            merchant = "online" if rng.random() < card.online else rng.choice(_SHOPS)
        payment = {
            "id": f"{rng.getrandbits(64):016x}",
            "card": card.number,
            "amount": round(eur / _EURO[currency], 2),
            "currency": currency,
            "country": country,
            "merchant": merchant,
            "paid_at": iso(at_ms),
        }
        return Event(at_ms, PAYMENTS, card.number, json.dumps(payment).encode())

    def _broken(self, rng: random.Random, at_ms: int, card: _Card) -> bytes:
        good = self._payment(rng, at_ms, card).value or b""
        return rng.choice(
            (
                good[: len(good) // 2],  # cut off
                good.replace(b'"amount": ', b'"amount": "ten", "was": '),
                json.dumps({"card": card.number, "amount": 1.0}).encode(),  # no time, no id
                b"\xff\xfe" + good,
            )
        )

    # ---- fraud --------------------------------------------------------------------------------------

    def _plant(self, rng: random.Random, at_ms: int, card: _Card) -> list[Event]:
        kind = KINDS[len(self.planted) % len(KINDS)]
        events = getattr(self, f"_{kind}")(rng, at_ms, card)
        self.planted.append(Fraud(card.number, kind, events[0].at_ms, events[-1].at_ms))
        return list(events)

    def _burst(self, rng: random.Random, at_ms: int, card: _Card) -> list[Event]:
        events = []
        for _ in range(rng.randrange(9, 14)):
            events.append(self._payment(rng, at_ms, card, eur=rng.uniform(20, 90), merchant="online"))
            at_ms += rng.randrange(300, 1200)
        return events

    def _card_testing(self, rng: random.Random, at_ms: int, card: _Card) -> list[Event]:
        events = []
        for _ in range(rng.randrange(3, 6)):
            events.append(self._payment(rng, at_ms, card, eur=rng.uniform(0.5, 1.8), merchant="online"))
            at_ms += rng.randrange(500, 2000)
        events.append(self._payment(rng, at_ms, card, eur=rng.uniform(400, 1500), merchant="online"))
        return events

    def _two_countries(self, rng: random.Random, at_ms: int, card: _Card) -> list[Event]:
        abroad = rng.choice([country for country in _HOMES if country != card.country])
        here = self._payment(rng, at_ms, card, merchant=rng.choice(_SHOPS))
        there = self._payment(
            rng, at_ms + rng.randrange(2000, 8000), card, country=abroad, merchant=rng.choice(_SHOPS)
        )
        return [here, there]

    def _unusual_amount(self, rng: random.Random, at_ms: int, card: _Card) -> list[Event]:
        eur = max(250.0, card.usual * rng.uniform(18, 40))
        return [self._payment(rng, at_ms, card, eur=eur)]


if __name__ == "__main__":
    main(Generator)
