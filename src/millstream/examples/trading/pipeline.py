"""Trading by rules: prices come in, orders go out, positions are a view.

millstream graph src/millstream/examples/trading/pipeline.py
millstream run   src/millstream/examples/trading/pipeline.py --broker 127.0.0.1:9092
"""

from datetime import timedelta

from millstream import Processor, Topology, step

flow = Topology("trading", guarantee="exactly-once")

ticks = flow.source(
    "ticks",
    schema="instrument string NOT NULL, price double NOT NULL, traded_at timestamp",
    time="traded_at",
    lateness="3 seconds",
)


@ticks.operator
def shares(df):
    """NORD-A is class A of the stock NORD"""
    return df.selectExpr(
        "*", "split_part(instrument, '-', 1) AS stock", "split_part(instrument, '-', 2) AS class"
    )


# The two classes of a stock move together. If they are 2 % apart after a minute, they will converge again.
apart = (
    shares.window(by="stock", size="1 minute", every="event")
    .agg(
        a="last(price) FILTER (WHERE class = 'A')",
        a_before="first(price) FILTER (WHERE class = 'A')",
        b="last(price) FILTER (WHERE class = 'B')",
        b_before="first(price) FILTER (WHERE class = 'B')",
    )
    .select("*", "a / a_before - b / b_before AS gap")
    .where("abs(gap) > 0.02")
)
ahead = apart.select(
    "concat(stock, if(gap > 0, '-A', '-B')) AS instrument",
    "if(gap > 0, a, b) AS price",
    "'sell' AS side",
    "'apart' AS rule",
    "window_end",
)
behind = apart.select(
    "concat(stock, if(gap > 0, '-B', '-A')) AS instrument",
    "if(gap > 0, b, a) AS price",
    "'buy' AS side",
    "'apart' AS rule",
    "window_end",
)

# A fall of 3 %, then a recovery of 2 %.
rebounds = shares.pattern(
    by="instrument",
    within="1 minute",
    steps=[
        step("high", "price > 0"),
        step("low", where=lambda tick, so_far: tick.price < 0.97 * so_far["high"][0].price),
        step("back", where=lambda tick, so_far: tick.price > 1.02 * so_far["low"][0].price),
    ],
    give={"price": "back.price"},
).select("*", "'buy' AS side", "'rebound' AS rule")


class Trader(Processor):
    """Turns a signal into one order, however long the signal lasts. Refuses orders beyond the limit."""

    size, limit = 100, 200  # shares
    pause = timedelta(minutes=1)  # after a silence of this long, a rule's next signal is a new one

    def on_event(self, signal, context):
        position, heard = context.state or (0, {})
        last, heard[signal.rule] = heard.get(signal.rule), signal.time
        if last is None or signal.time - last >= self.pause:
            after = position + (self.size if signal.side == "buy" else -self.size)
            about = {"side": signal.side, "price": signal.price, "rule": signal.rule}
            if abs(after) > self.limit:
                context.emit_to("refused", **about, reason=f"{after} shares are too many", at=signal.time)
            else:
                position = after
                id_ = f"{signal.rule} {context.key} {signal.time:%H:%M:%S}"
                context.emit(**about, id=id_, quantity=self.size, position=position)
        context.state = position, heard


orders = flow.process(
    [ahead, behind, rebounds],
    key="instrument",
    with_=Trader,
    output="instrument string, id string, rule string, side string, quantity int, price double, position int,"
    " ordered_at timestamp",
    time="ordered_at",
    channels={
        "refused": "instrument string, side string, price double, rule string, reason string, at timestamp"
    },
)

orders.to_topic("orders", key="instrument", time="ordered_at")
orders.channel("refused").to_topic("orders.refused", key="instrument")
orders.select("instrument", "position", "price AS last_price", "ordered_at").to_view(
    "positions", key="instrument", order="ordered_at"
)
