"""The queries on Quix Streams: its windows and joins where it has them, a stateful function where it has not.

Its state belongs to a partition and a record's key. Bids and auctions come keyed by the auction, people by
their own number; what goes by another key is sent through a topic of its own first (``group_by``).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from quixstreams import Application, State
from quixstreams.dataframe import StreamingDataFrame
from quixstreams.dataframe.windows import Count, Max, Mean, Min, Reduce, Sum
from tasks import SIDE_ROWS, CannotExpress, Task, serve

TEN = timedelta(seconds=10)
LONG = timedelta(hours=1)  # within which both sides of q3 and q20 come
QUIET_S = 5.0  # nothing new for so long: a bounded run has come to its end
Event = dict[str, Any]


class Flow:
    """An application that reads the topics it is asked for, and writes one."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.app = Application(
            broker_address=task.address,
            consumer_group=f"quix-{uuid.uuid4().hex}",
            auto_offset_reset="earliest",
            state_dir=task.scratch,
            loglevel="ERROR",
        )
        # In a replay partitions are read at their own pace: wait for as long as that may make a difference.
        self.grace = LONG if task.bounded else timedelta(milliseconds=task.lateness_ms)

    def read(self, kind: str, *, by: Callable[..., int] | None = None) -> StreamingDataFrame:
        topic = self.app.topic(f"{self.task.prefix}{kind}", timestamp_extractor=by or time_of)
        return self.app.dataframe(topic)


def time_of(value: Event, headers: Any, timestamp: float, timestamp_type: Any) -> int:
    return int(datetime.fromisoformat(value["dateTime"]).timestamp() * 1000)


def now(value: Event, headers: Any, timestamp: float, timestamp_type: Any) -> int:
    return int(time.time() * 1000)


def text(milliseconds: int) -> str:
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03}Z"


def q0(flow: Flow) -> StreamingDataFrame:
    return flow.read("bid")[["auction", "bidder", "price", "dateTime", "extra"]]


def q1(flow: Flow) -> StreamingDataFrame:
    bids = flow.read("bid")
    bids["price"] = bids["price"] * 0.908
    return bids[["auction", "bidder", "price", "dateTime", "extra"]]


def q2(flow: Flow) -> StreamingDataFrame:
    bids = flow.read("bid")
    return bids[bids["auction"] % 123 == 0][["auction", "price", "dateTime"]]


def q3(flow: Flow) -> StreamingDataFrame:
    auctions, people = flow.read("auction"), flow.read("person")
    auctions = auctions[auctions["category"] == 10].group_by(lambda row: str(row["seller"]), name="seller")
    people = people[people["state"].isin(["OR", "ID", "CA"])].group_by(lambda row: str(row["id"]), name="id")

    def merge(auction: Event, person: Event) -> Event:
        return {
            "name": person["name"],
            "city": person["city"],
            "state": person["state"],
            "id": auction["id"],
            "dateTime": max(auction["dateTime"], person["dateTime"]),
        }

    return auctions.join_interval(
        people, on_merge=merge, grace_ms=LONG, backward_ms=LONG, forward_ms=LONG, how="inner"
    )


def winning(flow: Flow) -> StreamingDataFrame:
    """Every new best bid of an auction while it is open, with its auction and the price before."""

    def step(event: Event, state: State) -> list[Event]:
        auction, waiting, best = state.get("auction"), state.get("waiting", []), state.get("best")
        if "seller" in event:
            state.set("auction", event)
            auction, bids = event, waiting
            state.delete("waiting")
        elif auction is None:
            state.set("waiting", [*waiting, event])
            return []
        else:
            bids = [event]
        given = []
        for bid in bids:
            at = bid["dateTime"]
            if auction["dateTime"] <= at <= auction["expires"] and (
                best is None or (bid["price"], best["dateTime"]) > (best["price"], at)
            ):
                given.append({"auction": auction, "bid": bid, "before": best and best["price"]})
                best = bid
        if given:
            state.set("best", best)
        return given

    return flow.read("auction").concat(flow.read("bid")).apply(step, stateful=True, expand=True)


def q4(flow: Flow) -> StreamingDataFrame:
    def step(change: Event, state: State) -> Event:
        total, count = state.get("average", (0, 0))
        bid, before = change["bid"], change["before"]
        total += bid["price"] - (before or 0)
        count += before is None
        state.set("average", (total, count))
        category = change["auction"]["category"]
        return {"category": category, "final": total / count, "dateTime": bid["dateTime"]}

    changes = winning(flow).group_by(lambda change: str(change["auction"]["category"]), name="category")
    return changes.apply(step, stateful=True)


def q5(flow: Flow) -> StreamingDataFrame:
    raise CannotExpress(
        "a window over the results of windows in other partitions: partitions have no watermark in common"
    )


def q7(flow: Flow) -> StreamingDataFrame:
    bids = flow.read("bid").group_by(lambda bid: "all", name="all")
    best = Reduce(lambda best, bid: bid if bid["price"] > best["price"] else best, lambda bid: bid)
    tens = bids.tumbling_window(TEN, grace_ms=flow.grace).agg(best=best).final()
    keep = ("auction", "price", "bidder", "dateTime", "extra")
    return tens.apply(lambda window: {name: window["best"][name] for name in keep})


def q8(flow: Flow) -> StreamingDataFrame:
    people = flow.read("person").group_by(lambda row: str(row["id"]), name="id")
    auctions = flow.read("auction").group_by(lambda row: str(row["seller"]), name="seller")
    both = people.concat(auctions)

    def met(seen: Event, event: Event) -> Event:
        return {"name": seen["name"] or event.get("name"), "opened": seen["opened"] or "seller" in event}

    def first(event: Event) -> Event:
        return met({"name": None, "opened": False}, event)

    tens = both.tumbling_window(TEN, grace_ms=flow.grace).agg(met=Reduce(met, first)).final()
    tens = tens[tens.apply(lambda window: bool(window["met"]["name"] and window["met"]["opened"]))]
    return tens.apply(
        lambda window, key, *_: {
            "id": int(key),
            "name": window["met"]["name"],
            "starttime": text(window["start"]),
        },
        metadata=True,
    )


def q9(flow: Flow) -> StreamingDataFrame:
    def row(change: Event) -> Event:
        bid = change["bid"]
        best = {"auction": bid["auction"], "bidder": bid["bidder"], "price": bid["price"]}
        return {**change["auction"], **best, "bid_dateTime": bid["dateTime"], "bid_extra": bid["extra"]}

    return winning(flow).apply(row)


def _counted(window: Event, key: Any, *_: Any) -> Event:
    start, end = text(window["start"]), text(window["end"])
    return {"bidder": int(key), "bid_count": window["bids"], "starttime": start, "endtime": end}


def q11(flow: Flow) -> StreamingDataFrame:
    bids = flow.read("bid").group_by(lambda bid: str(bid["bidder"]), name="bidder")
    sessions = bids.session_window(TEN, grace_ms=flow.grace).agg(bids=Count()).final()
    return sessions.apply(_counted, metadata=True)


def q12(flow: Flow) -> StreamingDataFrame:
    bids = flow.read("bid", by=now).group_by(lambda bid: str(bid["bidder"]), name="bidder")
    return bids.tumbling_window(TEN).agg(bids=Count()).current().apply(_counted, metadata=True)


def q13(flow: Flow) -> StreamingDataFrame:
    side = {number: str(number) for number in range(SIDE_ROWS)}
    bids = flow.read("bid")
    bids["value"] = bids["auction"].apply(lambda auction: side.get(auction % SIDE_ROWS))
    return bids[bids["value"].notnull()][["auction", "bidder", "price", "dateTime", "value"]]


def q17(flow: Flow) -> StreamingDataFrame:
    def ranks(bid: Event) -> Event:
        price = bid["price"]
        return {
            "price": price,
            "dateTime": bid["dateTime"],
            "low": int(price < 10000),
            "middle": int(10000 <= price < 1000000),
            "high": int(price >= 1000000),
        }

    days = flow.read("bid").apply(ranks).tumbling_window(timedelta(days=1), grace_ms=flow.grace)
    figures = days.agg(
        total_bids=Count(),
        rank1_bids=Sum("low"),
        rank2_bids=Sum("middle"),
        rank3_bids=Sum("high"),
        min_price=Min("price"),
        max_price=Max("price"),
        avg_price=Mean("price"),
        sum_price=Sum("price"),
        dateTime=Max("dateTime"),
    ).current()

    def row(window: Event, key: Any, timestamp: int, _: Any) -> Event:
        named = {name: value for name, value in window.items() if name not in ("start", "end")}
        return {"auction": int(key), "day": text(window["start"])[:10], **named}

    return figures.apply(row, metadata=True)


def q18(flow: Flow) -> StreamingDataFrame:
    def latest(bid: Event, state: State) -> bool:
        bidder = str(bid["bidder"])
        before = state.get(bidder)
        if before is not None and before > bid["dateTime"]:
            return False
        state.set(bidder, bid["dateTime"])
        return True

    return flow.read("bid").filter(latest, stateful=True)  # the auction is the key already


def q19(flow: Flow) -> StreamingDataFrame:
    def step(bid: Event, state: State) -> list[Event]:
        top = state.get("top", [])
        place = next((at for at, other in enumerate(top) if other["price"] < bid["price"]), len(top))
        if place >= 10:
            return []
        top = [*top[:place], bid, *top[place:]][:10]
        state.set("top", top)
        return [{**top[at], "rank_number": at + 1} for at in range(place, len(top))]

    return flow.read("bid").apply(step, stateful=True, expand=True)


def q20(flow: Flow) -> StreamingDataFrame:
    auctions = flow.read("auction")
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

    return flow.read("bid").join_interval(
        auctions[auctions["category"] == 10],
        on_merge=merge,
        grace_ms=LONG,
        backward_ms=LONG,
        forward_ms=LONG,
    )


QUERIES: dict[str, Callable[[Flow], StreamingDataFrame]] = {
    function.__name__: function
    for function in (q0, q1, q2, q3, q4, q5, q7, q8, q9, q11, q12, q13, q17, q18, q19, q20)
}


def run(task: Task) -> None:
    flow = Flow(task)
    output = flow.app.topic(task.output)
    QUERIES[task.query](flow).to_topic(output)
    if task.bounded:
        flow.app.run(timeout=QUIET_S, collect=False)
    else:
        flow.app.run()


if __name__ == "__main__":
    serve(run)
