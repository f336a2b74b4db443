"""The Nexmark queries as topologies: each a function from the auction house's streams to its answer.

    flow = Topology("nexmark-q5")
    hot_items(Events(flow)).to_topic("answers")

``answers`` has each query's answer in SQL. Some answers change while events come; such a
query gives the new row of a key whenever it changes, and ``QUERIES`` says which columns are the key. Every
answer has the time of its latest event or of its window in it, asked for or not: its latency goes by that.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from bench.nexmark.answers import SIDE_ROWS
from bench.nexmark.generator import AUCTIONS, BIDS, PEOPLE
from millstream import Processor, Topology
from millstream.pipeline.dsl.streams import Source, Stream
from millstream.pipeline.dsl.topology import MAX_ROWS

PERSON = """id bigint NOT NULL, name string, emailAddress string, creditCard string, city string,
    state string, dateTime timestamp, extra string"""
AUCTION = """id bigint NOT NULL, itemName string, description string, initialBid bigint, reserve bigint,
    dateTime timestamp, expires timestamp, seller bigint, category bigint, extra string"""
BID = """auction bigint NOT NULL, bidder bigint, price bigint, channel string, url string, dateTime timestamp,
    extra string"""

# The benchmark joins forever; a stream is joined within a time, and this is longer than its events take.
ALL_TIME = "1 hour"
ONE_WINDOW = "36500 days"  # windows are counted from 1970: this one is open until 2069
_ITEM = ("itemName", "description", "initialBid", "reserve")
_OFFER = ("seller", "category")
_BID = ("auction", "bidder", "price", "channel", "url", "dateTime", "extra")


class Events:
    """The three topics as streams; only those that a query asks for become sources."""

    def __init__(
        self, flow: Topology, *, prefix: str = "", lateness: str = "4 seconds", max_rows: int = MAX_ROWS
    ) -> None:
        self.flow = flow
        self._prefix = prefix
        self._options: dict[str, Any] = {"lateness": lateness, "max_rows": max_rows}

    def _source(self, kind: str, schema: str, time: str = "dateTime") -> Source:
        name = kind if time == "dateTime" else f"{kind} by {time} time"
        return self.flow.source(f"{self._prefix}{kind}", schema=schema, time=time, name=name, **self._options)

    @cached_property
    def people(self) -> Source:
        return self._source(PEOPLE, PERSON)

    @cached_property
    def auctions(self) -> Source:
        return self._source(AUCTIONS, AUCTION)

    @cached_property
    def bids(self) -> Source:
        return self._source(BIDS, BID)

    @cached_property
    def bids_as_processed(self) -> Source:
        """The bids again, by the time at which they are processed."""
        return self._source(BIDS, BID, time="processing")


def passed_on(events: Events) -> Stream:
    """q0: every bid, as it is. What reading, parsing and writing cost."""
    return events.bids.select("auction", "bidder", "price", "dateTime", "extra")


def in_euros(events: Events) -> Stream:
    """q1: every bid with its price in another currency."""
    return events.bids.select("auction", "bidder", "0.908 * price AS price", "dateTime", "extra")


def of_some_auctions(events: Events) -> Stream:
    """q2: the bids for every 123rd auction."""
    return events.bids.where("auction % 123 = 0").select("auction", "price", "dateTime")


def local_items(events: Events) -> Stream:
    """q3: what people in three states offer in one category."""
    offered = events.auctions.where("category = 10").select("id", "seller", "dateTime")
    local = events.people.where("state IN ('OR', 'ID', 'CA')").select(
        "id", "name", "city", "state", "dateTime"
    )
    return offered.join(local, on={"seller": "id"}, within=ALL_TIME).select(
        "name", "city", "state", "id", "greatest(left_dateTime, right_dateTime) AS dateTime"
    )


class BestBids(Processor):
    """Every bid that is the best so far for an auction that is open. Events come in the order of time, so a
    bid that finds no auction came before it opened or after it expired."""

    def on_event(self, event: Any, context: Any) -> None:
        if "expires" in event.columns:
            context.state = event.as_dict(), None
            context.timer(event.expires + timedelta(microseconds=1))  # a bid at that very time still counts
        elif context.state is not None:
            auction, best = context.state
            if best is None or event.price > best:
                context.state = auction, event.price
                self.give(context, auction, event, best)

    def on_timer(self, timer: Any, context: Any) -> None:
        context.state = None

    def give(self, context: Any, auction: dict[str, Any], bid: Any, before: int | None) -> None:
        raise NotImplementedError


class NewBest(BestBids):
    def give(self, context: Any, auction: dict[str, Any], bid: Any, before: int | None) -> None:
        context.emit(category=auction["category"], price=bid.price, before=before)


class Average(Processor):
    """The average of the best bids of a category's auctions, as they get better."""

    def on_event(self, event: Any, context: Any) -> None:
        total, count = context.state or (0, 0)
        total += event.price - (event.before or 0)
        count += event.before is None
        context.state = total, count
        context.emit(final=total / count)


def average_by_category(events: Events) -> Stream:
    """q4: what auctions of a category are won for, on average, as far as is known."""
    opened = events.auctions.select("id AS auction", "category", "expires", "dateTime")
    bids = events.bids.select("auction", "price", "dateTime")
    better = events.flow.process(
        [opened, bids],
        key="auction",
        with_=NewBest,
        output="category bigint, price bigint, before bigint, at timestamp",
        time="at",
    )
    return better.process(
        key="category",
        with_=Average,
        output="category bigint, final double, dateTime timestamp",
        time="dateTime",
    )


class Winner(BestBids):
    def give(self, context: Any, auction: dict[str, Any], bid: Any, before: int | None) -> None:
        context.emit(
            **auction, bidder=bid.bidder, price=bid.price, bid_dateTime=bid.dateTime, bid_extra=bid.extra
        )


def winning_bids(events: Events) -> Stream:
    """q9: every auction with its best bid, emitted again whenever there is a better one."""
    auctions = events.auctions.select("id AS auction", *_ITEM, "dateTime", "expires", *_OFFER, "extra")
    bids = events.bids.select("auction", "bidder", "price", "dateTime", "extra")
    item = "itemName string, description string, initialBid bigint, reserve bigint, dateTime timestamp"
    offer = "expires timestamp, seller bigint, category bigint, extra string"
    bid = "bidder bigint, price bigint, bid_dateTime timestamp, bid_extra string"
    best = events.flow.process(
        [auctions, bids], key="auction", with_=Winner, output=f"auction bigint, {item}, {offer}, {bid}"
    )
    return best.select("auction AS id", "*")


def hot_items(events: Events) -> Stream:
    """q5: the auctions with the most bids in ten seconds, every two.

    A window over the results of another: those that end at the same time meet in it.
    """
    counts = events.bids.window(by="auction", size="10 seconds", every="2 seconds", emit="final").agg(
        num="count(*)"
    )
    together = counts.window(by="window_end AS endtime", size="2 seconds", emit="final").agg(
        most="max(num)", counts="collect_list(struct(auction, num))"
    )

    def hottest(df: Any) -> Any:
        each = df.selectExpr("endtime", "explode(filter(counts, one -> one.num = most)) AS one")
        return each.selectExpr("one.auction AS auction", "one.num AS num", "endtime")

    return together.operator(hottest)


def highest_bids(events: Events) -> Stream:
    """q7: the highest bid of every ten seconds."""
    bid = ("auction", "price", "bidder", "dateTime", "extra")
    best = events.bids.window(by="'all' AS house", size="10 seconds", emit="final").agg(
        best=f"max_by(struct({', '.join(bid)}), price)"
    )
    return best.select(*(f"best.{name} AS {name}" for name in bid))


def new_sellers(events: Events) -> Stream:
    """q8: who came and opened an auction within the same ten seconds.

    People and auctions as one stream, by who it is: a window that has both is an answer.
    """
    came = events.people.select("id", "name", "NULL AS opened", "dateTime")
    opened = events.auctions.select(
        "seller AS id", "CAST(NULL AS string) AS name", "id AS opened", "dateTime"
    )
    both = events.flow.union(came, opened).window(by="id", size="10 seconds", emit="final")
    met = both.agg(name="max(name)", opened="count(opened)").where("name IS NOT NULL AND opened > 0")
    return met.select("id", "name", "window_start AS starttime")


def bids_in_a_row(events: Events) -> Stream:
    """q11: how many bids a person makes until resting for ten seconds."""
    sessions = events.bids.window(by="bidder", gap="10 seconds").agg(bid_count="count(*)")
    return sessions.select("bidder", "bid_count", "window_start AS starttime", "window_end AS endtime")


def bids_by_the_clock(events: Events) -> Stream:
    """q12: how many bids a person makes in ten seconds on the clock of the machine."""
    counts = events.bids_as_processed.window(by="bidder", size="10 seconds").agg(bid_count="count(*)")
    return counts.select("bidder", "bid_count", "window_start AS starttime", "window_end AS endtime")


def looked_up(events: Events) -> Stream:
    """q13: every bid with what a table that never changes says about its auction."""

    def with_side(df: Any) -> Any:
        side = df.sparkSession.range(SIDE_ROWS).selectExpr("id AS key", "CAST(id AS string) AS value")
        return df.join(side.hint("broadcast"), df.auction % SIDE_ROWS == side.key)

    found = events.bids.operator(with_side)
    return found.select("auction", "bidder", "price", "dateTime", "value")


def auctions_by_day(events: Events) -> Stream:
    """q17: the bids for an auction on a day, emitted again whenever there are more."""
    by_day = events.bids.window(by="auction", size="1 day").agg(
        total_bids="count(*)",
        rank1_bids="count_if(price < 10000)",
        rank2_bids="count_if(price >= 10000 AND price < 1000000)",
        rank3_bids="count_if(price >= 1000000)",
        min_price="min(price)",
        max_price="max(price)",
        avg_price="avg(price)",
        sum_price="sum(price)",
        dateTime="max(dateTime)",
    )
    figures = [*(f"{name}_price" for name in ("min", "max", "avg", "sum")), "dateTime"]
    day = "date_format(window_start, 'yyyy-MM-dd') AS day"
    return by_day.select("auction", day, "total_bids", "rank1_bids", "rank2_bids", "rank3_bids", *figures)


def latest_bids(events: Events) -> Stream:
    """q18: the latest bid of a person for an auction."""
    bid = f"struct({', '.join(_BID)})"
    latest = events.bids.window(by=["bidder", "auction"], size=ONE_WINDOW).agg(
        latest=f"max_by({bid}, dateTime)"
    )
    return latest.select(*(f"latest.{name} AS {name}" for name in _BID))


class TopTen(Processor):
    """The ten highest bids. A new one moves others down, and their rows are emitted again."""

    def on_event(self, event: Any, context: Any) -> None:
        top = context.state or []
        place = bisect_left(top, -event.price, key=lambda bid: -bid["price"])
        while place < len(top) and top[place]["price"] == event.price:
            place += 1  # the earlier bid keeps its place
        if place < 10:
            top.insert(place, event.as_dict())
            del top[10:]
            context.state = top
            for at in range(place, len(top)):
                context.emit(top[at], rank_number=at + 1)


def top_bids(events: Events) -> Stream:
    """q19: the ten highest bids for an auction."""
    return events.bids.process(key="auction", with_=TopTen, output=f"{BID}, rank_number bigint")


def with_auction(events: Events) -> Stream:
    """q20: every bid with its auction, of one category."""
    auctions = events.auctions.where("category = 10")
    return events.bids.join(auctions, on={"auction": "id"}, within=ALL_TIME).select(
        *("auction", "bidder", "price", "channel", "url"),
        "left_dateTime AS bid_dateTime",
        "left_extra AS bid_extra",
        *_ITEM,
        "right_dateTime AS auction_dateTime",
        "expires",
        *_OFFER,
        "right_extra AS auction_extra",
    )


@dataclass(frozen=True, slots=True)
class Query:
    """``key``: of an answer that changes, the columns whose last row counts; of others none."""

    stream: Callable[[Events], Stream]
    key: tuple[str, ...] = ()


QUERIES = {
    "q0": Query(passed_on),
    "q1": Query(in_euros),
    "q2": Query(of_some_auctions),
    "q3": Query(local_items),
    "q4": Query(average_by_category, key=("category",)),
    "q5": Query(hot_items),
    "q7": Query(highest_bids),
    "q8": Query(new_sellers),
    "q9": Query(winning_bids, key=("id",)),
    "q11": Query(bids_in_a_row),
    "q12": Query(bids_by_the_clock, key=("bidder", "starttime")),
    "q13": Query(looked_up),
    "q17": Query(auctions_by_day, key=("auction", "day")),
    "q18": Query(latest_bids, key=("bidder", "auction")),
    "q19": Query(top_bids, key=("auction", "rank_number")),
    "q20": Query(with_auction),
}


def topology(
    name: str, output: str, *, flow: Topology | None = None, guarantee: str = "at-least-once", **options: Any
) -> Topology:
    """One query as a job that reads the topics and writes its answer into ``output``."""
    flow = flow or Topology(f"nexmark-{name}", guarantee=guarantee)
    add(name, Events(flow, **options), output)
    return flow


def add(name: str, events: Events, output: str) -> None:
    query = QUERIES[name]
    key = "concat_ws('|', " + ", ".join(query.key) + ")" if query.key else None
    query.stream(events).to_topic(output, key=key)
