"""Trading rules on the prices of several instruments, with planted moves to trade on. Orders are events."""

from __future__ import annotations

from millstream.examples.example import Example

EXAMPLE = Example(
    name="trading",
    title="trading on price moves of several instruments: orders as events, positions as a view",
    about="""Four stocks have two classes of shares each, whose prices move together. Two rules watch the
    prices. If the two classes of a stock move apart by more than 2 % within a minute, the pipeline sells the
    one ahead and buys the one behind. If a price falls by 3 % and recovers by 2 % within a minute, the
    pipeline buys. A signal that lasts for many ticks leads to one order. No position may exceed 200 shares:
    an order beyond that is refused and reported. The generator plants both moves, and two similar moves that
    must not lead to orders: a whole stock that rises, and a stock that falls and stays down.""",
    operators=(
        "operator",
        "window moving with every event",
        "pattern with Python conditions",
        "processor of several streams",
        "channels",
        "view",
    ),
    results={
        "orders": ("ordered_at", "rule", "instrument", "side", "price", "position"),
        "orders.refused": ("at", "rule", "instrument", "side", "reason"),
    },
    view="positions",
    change={
        "pipeline.py": "the rules, `apart` and `rebounds`; then the limits of `Trader`",
        "generate.py": "the price curves of the moves (_COURSES), then what a tick looks like (_tick)",
        "check.py": "which orders a planted move must lead to (expected)",
    },
    seconds=700.0,
    speed=30.0,
)
