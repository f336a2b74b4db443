"""Events of an auction house: people, auctions and bids as 1:3:46, from a seed.

The event with number n is a person, an auction or a bid by its place among 50, and happens at n / rate
seconds. Half of all bids go to a hot auction, three in four are made by a hot bidder, and one in ten or so is
for an auction, or by a person, that is yet to come: bids and auctions overtake what they refer to, as they do
where services write their events independently. All of it is made column by column, so that millions take
seconds; the same seed gives the same events, and the first n of them don't depend on how many are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PEOPLE, AUCTIONS, BIDS = "person", "auction", "bid"
KINDS = (PEOPLE, AUCTIONS, BIDS)
PROPORTIONS = {PEOPLE: 1, AUCTIONS: 3, BIDS: 46}
KEYS = {PEOPLE: "id", AUCTIONS: "id", BIDS: "auction"}  # what a record's key is

_EPOCH = sum(PROPORTIONS.values())
_FIRST_ID = 1000
_FIRST_CATEGORY = 10
_CATEGORIES = 5
_HOT_EVERY = 100  # of so many auctions or people, one is hot
_IN_FLIGHT = 100  # auctions that are open at a time, about
_ACTIVE = 1000  # people who still do something
_LEAD = 10  # how many auctions or people ahead of the latest a bid may refer to
_CHUNK = 50_000  # events made at a time: a multiple of 50
_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_CITIES = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
]
_FIRST_NAMES = [
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
]
_LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
_HOT_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
_CHANNELS = 10_000
_TIMESTAMP = pa.timestamp("ms", tz="UTC")


@dataclass(frozen=True, slots=True)
class Settings:
    """``rate`` is of event time: how many events a second. ``start`` is when the first happens."""

    seed: int = 1
    rate: int = 10_000
    start_ms: int = 1_767_225_600_000  # 2026-01-01

    def time_ms(self, number: Any) -> Any:
        return self.start_ms + number * 1000 // self.rate


def tables(count: int, settings: Settings = Settings()) -> dict[str, pa.Table]:  # noqa: B008 - it is frozen
    """The first ``count`` events, by kind."""
    made = list(chunks(count, settings))
    return {kind: pa.concat_tables(chunk[kind] for chunk in made) for kind in KINDS}


def chunks(count: int, settings: Settings) -> Iterator[dict[str, pa.Table]]:
    """The events some ten thousand at a time, in the order of time."""
    for first in range(0, count, _CHUNK):
        # Every chunk is made whole with a generator of its own, and cut: what comes first is always the same.
        random = np.random.default_rng([settings.seed, first // _CHUNK])
        made = _chunk(first, random, settings)
        last = min(first + _CHUNK, count)
        yield {
            kind: table.slice(0, _how_many(kind, last) - _how_many(kind, first))
            for kind, table in made.items()
        }


def closing(settings: Settings, count: int, after_s: int = 3 * 86_400) -> dict[str, bytes]:
    """A record of each kind for an event long after the last of ``count``: it moves time on, so that all that
    waits for time is given. Its numbers are negative, and refer to nothing."""
    first = next(chunks(_EPOCH, settings))
    at = int(settings.time_ms(count)) + 1000 * after_s
    late = {kind: first[kind].slice(0, 1) for kind in KINDS}
    for kind, table in late.items():
        for name in ("id", "seller", "auction", "bidder", "category"):
            if name in table.column_names:
                table = _with(table, name, pa.array([-1], pa.int64()))
        late[kind] = _with(table, "dateTime", pa.array([at], _TIMESTAMP))
    late[AUCTIONS] = _with(late[AUCTIONS], "expires", pa.array([at], _TIMESTAMP))
    return {kind: encoded(table)[0].as_py() for kind, table in late.items()}


def encoded(table: pa.Table) -> pa.Array:
    """Every row as an object in JSON, binary. No text of ours has anything in it to be escaped."""
    parts: list[Any] = []
    for at, name in enumerate(table.column_names):
        column = table[name].combine_chunks()
        quote = "" if pa.types.is_integer(column.type) else '"'
        parts.append(f'{"," if at else "{"}"{name}":{quote}')
        parts.append(_text(column))
        if quote:
            parts.append(quote)
    parts.append("}")
    lone = [part if isinstance(part, pa.Array) else pa.scalar(part) for part in parts]
    return pc.binary_join_element_wise(*lone, "").cast(pa.binary())


def partition_of(keys: Any, partitions: int) -> Any:
    """Where the records of a key go: the same for the same number in every topic, and evenly."""
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (mixed >> np.uint64(40)).astype(np.int64) % partitions


def records(table: pa.Table, kind: str, partitions: int) -> list[dict[str, Any]]:
    """Rows as librdkafka takes them."""
    keys = table[KEYS[kind]].to_numpy()
    places = partition_of(keys, partitions).tolist()
    names = pc.cast(table[KEYS[kind]], pa.string()).cast(pa.binary()).to_pylist()
    values = encoded(table).to_pylist()
    return [
        {"key": key, "value": value, "partition": place}
        for key, value, place in zip(names, values, places, strict=True)
    ]


# ---- one chunk --------------------------------------------------------------------------------------


def _chunk(first: int, random: np.random.Generator, settings: Settings) -> dict[str, pa.Table]:
    numbers = np.arange(first, first + _CHUNK, dtype=np.int64)
    place = numbers % _EPOCH
    bounds = np.cumsum(list(PROPORTIONS.values()))
    people = numbers[place < bounds[0]]
    auctions = numbers[(place >= bounds[0]) & (place < bounds[1])]
    bids = numbers[place >= bounds[1]]
    return {
        PEOPLE: _people(people, random, settings),
        AUCTIONS: _auctions(auctions, random, settings),
        BIDS: _bids(bids, random, settings),
    }


def _people(numbers: Any, random: np.random.Generator, settings: Settings) -> pa.Table:
    n = len(numbers)
    cards = [_digits(random, n, 4) for _ in range(4)]
    return pa.table(
        {
            "id": _last_person(numbers) + _FIRST_ID,
            "name": _joined(_pick(random, _FIRST_NAMES, n), " ", _pick(random, _LAST_NAMES, n)),
            "emailAddress": _joined(_letters(random, n, 7), "@", _letters(random, n, 5), ".com"),
            "creditCard": _joined(cards[0], " ", cards[1], " ", cards[2], " ", cards[3]),
            "city": _pick(random, _CITIES, n),
            "state": _pick(random, _STATES, n),
            "dateTime": _times(numbers, settings),
            "extra": _letters(random, n, 120),
        }
    )


def _auctions(numbers: Any, random: np.random.Generator, settings: Settings) -> pa.Table:
    n = len(numbers)
    ids = _last_auction(numbers)
    latest = _last_person(numbers)
    sellers = np.where(
        random.integers(4, size=n) > 0, latest // _HOT_EVERY * _HOT_EVERY, _some_person(numbers, random)
    )
    # Auctions are open until about as many as are in flight have been opened after them, on average.
    horizon = max(_IN_FLIGHT * _EPOCH // PROPORTIONS[AUCTIONS] * 1000 // settings.rate, 1)
    opened = settings.time_ms(numbers)
    first_bid = _prices(random, n)
    return pa.table(
        {
            "id": ids + _FIRST_ID,
            "itemName": _letters(random, n, 20),
            "description": _letters(random, n, 100),
            "initialBid": first_bid,
            "reserve": first_bid + _prices(random, n),
            "dateTime": pa.array(opened, _TIMESTAMP),
            "expires": pa.array(opened + 1 + random.integers(2 * horizon, size=n), _TIMESTAMP),
            "seller": sellers + _FIRST_ID,
            "category": _FIRST_CATEGORY + random.integers(_CATEGORIES, size=n),
            "extra": _letters(random, n, 300),
        }
    )


def _bids(numbers: Any, random: np.random.Generator, settings: Settings) -> pa.Table:
    n = len(numbers)
    latest = _last_auction(numbers)
    oldest = np.maximum(latest - _IN_FLIGHT, 0)
    some = oldest + (random.random(n) * (latest - oldest + 1 + _LEAD)).astype(np.int64)
    auctions = np.where(random.integers(2, size=n) > 0, latest // _HOT_EVERY * _HOT_EVERY, some)
    hot_bidder = _last_person(numbers) // _HOT_EVERY * _HOT_EVERY + 1
    bidders = np.where(random.integers(4, size=n) > 0, hot_bidder, _some_person(numbers, random))
    channel = random.integers(_CHANNELS, size=n)
    hot = random.integers(2, size=n) > 0
    named = _joined("channel-", _text(pa.array(channel)))
    names = pc.if_else(pa.array(hot), _pick(random, _HOT_CHANNELS, n), named)
    path = _joined(_digits_of(channel, 5), "/", _digits_of(channel * 7 % _CHANNELS, 5))
    return pa.table(
        {
            "auction": auctions + _FIRST_ID,
            "bidder": bidders + _FIRST_ID,
            "price": _prices(random, n),
            "channel": names,
            "url": _joined("https://www.nexmark.com/", path, "/item.htm?query=1"),
            "dateTime": _times(numbers, settings),
            "extra": _letters(random, n, 40),
        }
    )


def _how_many(kind: str, count: int) -> int:
    """Of the first ``count`` events, those of a kind."""
    before = sum(PROPORTIONS[other] for other in KINDS[: KINDS.index(kind)])
    whole, rest = divmod(count, _EPOCH)
    return whole * PROPORTIONS[kind] + min(max(rest - before, 0), PROPORTIONS[kind])


def _last_person(numbers: Any) -> Any:
    """The number of the latest person by then; a person's own."""
    return numbers // _EPOCH


def _last_auction(numbers: Any) -> Any:
    within = np.minimum(numbers % _EPOCH, PROPORTIONS[AUCTIONS]) - PROPORTIONS[PEOPLE]
    opened = np.where(numbers % _EPOCH > PROPORTIONS[AUCTIONS], PROPORTIONS[AUCTIONS] - 1, within)
    return np.maximum(numbers // _EPOCH * PROPORTIONS[AUCTIONS] + opened, 0)


def _some_person(numbers: Any, random: np.random.Generator) -> Any:
    known = _last_person(numbers) + 1
    active = np.minimum(known, _ACTIVE)
    return known - active + (random.random(len(numbers)) * (active + _LEAD)).astype(np.int64)


def _prices(random: np.random.Generator, n: int) -> Any:
    return np.rint(10 ** (random.random(n) * 6) * 100).astype(np.int64)


def _times(numbers: Any, settings: Settings) -> pa.Array:
    return pa.array(settings.time_ms(numbers), _TIMESTAMP)


# ---- text ---------------------------------------------------------------------------------------------


def _text(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        return pc.utf8_replace_slice(pc.cast(column, pa.string()), 10, 11, "T")
    return column if pa.types.is_string(column.type) else pc.cast(column, pa.string())


def _pick(random: np.random.Generator, words: Sequence[str], n: int) -> pa.Array:
    return pa.array(words).take(pa.array(random.integers(len(words), size=n)))


def _letters(random: np.random.Generator, n: int, length: int) -> pa.Array:
    return _fixed(random.integers(97, 123, size=(n, length), dtype=np.uint8), length)


def _digits(random: np.random.Generator, n: int, length: int) -> pa.Array:
    return _fixed(random.integers(48, 58, size=(n, length), dtype=np.uint8), length)


def _digits_of(values: Any, length: int) -> pa.Array:
    powers = 10 ** np.arange(length - 1, -1, -1, dtype=np.int64)
    return _fixed((values[:, None] // powers % 10 + 48).astype(np.uint8), length)


def _fixed(characters: Any, length: int) -> pa.Array:
    offsets = np.arange(0, characters.size + 1, length, dtype=np.int32)
    return pa.StringArray.from_buffers(
        len(characters), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(characters))
    )


def _joined(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _with(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)
