"""The queries on Bytewax: its own operators where it has them, a stateful step where it has not. Answers that
change keep their key, so that those of a key stay in order.

Its clocks are a key's own. Where a window is over all bids (q5, q7), all of them have one key, so that the
window has one clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import orjson
from bytewax.connectors.kafka import KafkaSinkMessage
from bytewax.connectors.kafka import operators as kop
from bytewax.dataflow import Dataflow, Stream
from bytewax.operators import KeyedStream
from bytewax.run import cli_main
from tasks import SIDE_ROWS, Task, serve

ALIGN = datetime(2026, 1, 1, tzinfo=UTC)
TEN = timedelta(seconds=10)
ALL = "all"
Event = dict[str, Any]


class Flow:
    """A dataflow that reads the topics it is asked for, and writes one."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.flow = Dataflow(task.query)

    def read(self, kind: str) -> Stream:
        topics = [f"{self.task.prefix}{kind}"]
        tail = not self.task.bounded
        # Read ahead of the dataflow as far as the client does by default, and whatever comes when live.
        got = kop.input(kind, self.flow, brokers=[self.task.address], topics=topics, tail=tail)
        return op.map(f"{kind}-parsed", got.oks, lambda message: orjson.loads(message.value))

    def write(self, answers: Stream) -> None:
        def record(row: Event | tuple[str, Event]) -> KafkaSinkMessage[bytes | None, bytes]:
            key, event = row if isinstance(row, tuple) else (None, row)
            return KafkaSinkMessage(key and key.encode(), orjson.dumps(event))

        encoded = op.map("encoded", answers, record)
        kop.output("answers", encoded, brokers=[self.task.address], topic=self.task.output)

    def clock(self) -> win.EventClock:
        # In a replay partitions are read at their own pace: wait for as long as that may make a difference.
        wait = timedelta(days=7) if self.task.bounded else timedelta(milliseconds=self.task.lateness_ms)
        return win.EventClock(time_of, wait)


def time_of(event: Event) -> datetime:
    return datetime.fromisoformat(event["dateTime"])


def text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def q0(flow: Flow) -> Stream:
    keep = ("auction", "bidder", "price", "dateTime", "extra")
    return op.map("kept", flow.read("bid"), lambda bid: {name: bid[name] for name in keep})


def q1(flow: Flow) -> Stream:
    def priced(bid: Event) -> Event:
        return {
            "auction": bid["auction"],
            "bidder": bid["bidder"],
            "price": 0.908 * bid["price"],
            "dateTime": bid["dateTime"],
            "extra": bid["extra"],
        }

    return op.map("priced", flow.read("bid"), priced)


def q2(flow: Flow) -> Stream:
    def chosen(bid: Event) -> Event | None:
        if bid["auction"] % 123:
            return None
        return {"auction": bid["auction"], "price": bid["price"], "dateTime": bid["dateTime"]}

    return op.filter_map("chosen", flow.read("bid"), chosen)


def joined(
    flow: Flow,
    left: Stream,
    left_key: str,
    right: Stream,
    right_key: str,
    merge: Callable[[Event, Event], Event],
) -> Stream:
    """Every pair of a left and a right event with the same key; there is one right event to a key at most."""

    def step(state: Any, tagged: tuple[bool, Event]) -> tuple[Any, Iterable[Event]]:
        waiting, one = state or ([], None)
        is_left, event = tagged
        if is_left:
            if one is None:
                waiting.append(event)
                return (waiting, one), []
            return (waiting, one), [merge(event, one)]
        return ([], event), [merge(other, event) for other in waiting]

    lefts = op.map("lefts", left, lambda event: (str(event[left_key]), (True, event)))
    rights = op.map("rights", right, lambda event: (str(event[right_key]), (False, event)))
    return op.key_rm("pairs", op.stateful_flat_map("joined", op.merge("both", lefts, rights), step))


def q3(flow: Flow) -> Stream:
    auctions = op.filter("category", flow.read("auction"), lambda auction: auction["category"] == 10)
    people = op.filter("state", flow.read("person"), lambda person: person["state"] in ("OR", "ID", "CA"))

    def merge(auction: Event, person: Event) -> Event:
        return {
            "name": person["name"],
            "city": person["city"],
            "state": person["state"],
            "id": auction["id"],
            "dateTime": max(auction["dateTime"], person["dateTime"]),
        }

    return joined(flow, auctions, "seller", people, "id", merge)


def winning(flow: Flow) -> KeyedStream:
    """Every new best bid of an auction while it is open: (auction, bid, the bid that was best before)."""

    def step(state: Any, event: Event) -> tuple[Any, Iterable[Any]]:
        auction, waiting, best = state or (None, [], None)
        if "seller" in event:
            auction, bids, waiting = event, waiting, []
        elif auction is None:
            waiting.append(event)
            return (auction, waiting, best), []
        else:
            bids = [event]
        given = []
        opened, expires = auction["dateTime"], auction["expires"]
        for bid in bids:
            at = bid["dateTime"]
            if opened <= at <= expires and (
                best is None or (bid["price"], best["dateTime"]) > (best["price"], at)
            ):
                given.append((auction, bid, best))
                best = bid
        return (auction, waiting, best), given

    auctions = op.map("auctions", flow.read("auction"), lambda auction: (str(auction["id"]), auction))
    bids = op.map("bids", flow.read("bid"), lambda bid: (str(bid["auction"]), bid))
    return op.stateful_flat_map("winning", op.merge("both", auctions, bids), step)


def q4(flow: Flow) -> Stream:
    def step(state: Any, change: tuple[Event, Event, Event | None]) -> tuple[Any, Event]:
        total, count = state or (0, 0)
        auction, bid, before = change
        total += bid["price"] - (before["price"] if before else 0)
        count += before is None
        category = auction["category"]
        return (total, count), {"category": category, "final": total / count, "dateTime": bid["dateTime"]}

    changes = op.map("by-category", winning(flow), lambda item: (str(item[1][0]["category"]), item[1]))
    return op.stateful_map("average", changes, step)


def q5(flow: Flow) -> Stream:
    keyed = op.key_on("all", flow.read("bid"), lambda bid: ALL)
    hops = win.SlidingWindower(length=TEN, offset=timedelta(seconds=2), align_to=ALIGN)

    def count(counts: Counter[int], bid: Event) -> Counter[int]:
        counts[bid["auction"]] += 1
        return counts

    windows = win.fold_window("counts", keyed, flow.clock(), hops, Counter, count, Counter.__add__)

    def hottest(item: tuple[str, tuple[int, Counter[int]]]) -> list[Event]:
        number, counts = item[1]
        most = max(counts.values())
        end = text(ALIGN + timedelta(seconds=2) * number + TEN)
        return [
            {"auction": auction, "num": most, "endtime": end}
            for auction, num in counts.items()
            if num == most
        ]

    return op.flat_map("hottest", windows.down, hottest)


def q7(flow: Flow) -> Stream:
    keyed = op.key_on("all", flow.read("bid"), lambda bid: ALL)
    tens = win.TumblingWindower(length=TEN, align_to=ALIGN)
    best = win.max_window("best", keyed, flow.clock(), tens, by=lambda bid: bid["price"])
    keep = ("auction", "price", "bidder", "dateTime", "extra")
    return op.map("kept", best.down, lambda item: {name: item[1][1][name] for name in keep})


def q8(flow: Flow) -> Stream:
    people = op.key_on("people", flow.read("person"), lambda person: str(person["id"]))
    auctions = op.key_on("auctions", flow.read("auction"), lambda auction: str(auction["seller"]))
    tens = win.TumblingWindower(length=TEN, align_to=ALIGN)
    both = win.join_window("met", flow.clock(), tens, people, auctions)

    def seller(item: tuple[str, tuple[int, tuple[Event, Event]]]) -> Event | None:
        number, (person, auction) = item[1]
        if person is None or auction is None:
            return None
        return {"id": person["id"], "name": person["name"], "starttime": text(ALIGN + TEN * number)}

    return op.filter_map("sellers", both.down, seller)


def q11(flow: Flow) -> Stream:
    keyed = op.key_on("bidders", flow.read("bid"), lambda bid: str(bid["bidder"]))

    def count(seen: Any, bid: Event) -> Any:
        at = bid["dateTime"]
        return (seen[0] + 1, min(seen[1], at), max(seen[2], at)) if seen else (1, at, at)

    def merge(one: Any, other: Any) -> Any:
        if not one or not other:
            return one or other
        return one[0] + other[0], min(one[1], other[1]), max(one[2], other[2])

    sessions = win.fold_window(
        "counts", keyed, flow.clock(), win.SessionWindower(gap=TEN), tuple, count, merge
    )

    def row(item: Any) -> Event:
        bidder, (_, (bids, first, last)) = item
        ended = text(datetime.fromisoformat(last) + TEN)
        return {"bidder": int(bidder), "bid_count": bids, "starttime": first, "endtime": ended}

    return op.map("rows", sessions.down, row)


def q12(flow: Flow) -> Stream:
    tens = win.TumblingWindower(length=TEN, align_to=ALIGN)
    counts = win.count_window(
        "counts", flow.read("bid"), win.SystemClock(), tens, key=lambda bid: str(bid["bidder"])
    )

    def row(item: Any) -> Event:
        bidder, (number, bids) = item
        start = ALIGN + TEN * number
        return {
            "bidder": int(bidder),
            "bid_count": bids,
            "starttime": text(start),
            "endtime": text(start + TEN),
        }

    return op.map("rows", counts.down, row)


def q13(flow: Flow) -> Stream:
    side = {number: str(number) for number in range(SIDE_ROWS)}

    def found(bid: Event) -> Event | None:
        value = side.get(bid["auction"] % SIDE_ROWS)
        if value is None:
            return None
        keep = ("auction", "bidder", "price", "dateTime")
        return {**{name: bid[name] for name in keep}, "value": value}

    return op.filter_map("found", flow.read("bid"), found)


def q17(flow: Flow) -> Stream:
    def step(state: Any, bid: Event) -> tuple[Any, Event]:
        total, low, middle, high, least, most, sum_ = state or (0, 0, 0, 0, None, None, 0)
        price = bid["price"]
        total, sum_ = total + 1, sum_ + price
        low, middle, high = (
            low + (price < 10000),
            middle + (10000 <= price < 1000000),
            high + (price >= 1000000),
        )
        least = price if least is None else min(least, price)
        most = price if most is None else max(most, price)
        row = {
            "auction": bid["auction"],
            "day": bid["dateTime"][:10],
            "total_bids": total,
            "rank1_bids": low,
            "rank2_bids": middle,
            "rank3_bids": high,
            "min_price": least,
            "max_price": most,
            "avg_price": sum_ / total,
            "sum_price": sum_,
            "dateTime": bid["dateTime"],
        }
        return (total, low, middle, high, least, most, sum_), row

    by_day = op.key_on("days", flow.read("bid"), lambda bid: f"{bid['auction']}|{bid['dateTime'][:10]}")
    return op.stateful_map("figures", by_day, step)


def q18(flow: Flow) -> Stream:
    def step(latest: str | None, bid: Event) -> tuple[str, Iterable[Event]]:
        if latest is not None and latest > bid["dateTime"]:
            return latest, []
        return bid["dateTime"], [bid]

    keyed = op.key_on("pairs", flow.read("bid"), lambda bid: f"{bid['bidder']}|{bid['auction']}")
    return op.stateful_flat_map("latest", keyed, step)


def q19(flow: Flow) -> Stream:
    def step(top: list[Event] | None, bid: Event) -> tuple[list[Event], Iterable[Event]]:
        top = top or []
        place = next((at for at, other in enumerate(top) if other["price"] < bid["price"]), len(top))
        if place >= 10:
            return top, []
        top = [*top[:place], bid, *top[place:]][:10]
        return top, [{**top[at], "rank_number": at + 1} for at in range(place, len(top))]

    keyed = op.key_on("auctions", flow.read("bid"), lambda bid: str(bid["auction"]))
    return op.stateful_flat_map("top", keyed, step)


def q9(flow: Flow) -> Stream:
    def row(change: Any) -> Event:
        auction, bid, _ = change
        best = {"auction": bid["auction"], "bidder": bid["bidder"], "price": bid["price"]}
        return {**auction, **best, "bid_dateTime": bid["dateTime"], "bid_extra": bid["extra"]}

    return op.map_value("rows", winning(flow), row)


def q20(flow: Flow) -> Stream:
    auctions = op.filter("category", flow.read("auction"), lambda auction: auction["category"] == 10)
    keep_bid = ("auction", "bidder", "price", "channel", "url")
    keep = ("itemName", "description", "initialBid", "reserve", "expires", "seller", "category")

    def merge(bid: Event, auction: Event) -> Event:
        return {
            **{name: bid[name] for name in keep_bid},
            "bid_dateTime": bid["dateTime"],
            "bid_extra": bid["extra"],
            **{name: auction[name] for name in keep},
            "auction_dateTime": auction["dateTime"],
            "auction_extra": auction["extra"],
        }

    return joined(flow, flow.read("bid"), "auction", auctions, "id", merge)


QUERIES: dict[str, Callable[[Flow], Stream]] = {
    function.__name__: function
    for function in (q0, q1, q2, q3, q4, q5, q7, q8, q9, q11, q12, q13, q17, q18, q19, q20)
}


def run(task: Task) -> None:
    flow = Flow(task)
    flow.write(QUERIES[task.query](flow))
    cli_main(flow.flow)


if __name__ == "__main__":
    serve(run)
