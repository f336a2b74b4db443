"""Trading rules on the prices of several instruments; orders are events, with planted moves to trade on."""

from __future__ import annotations

from millstream.examples.shape import Example

EXAMPLE = Example(
    name="trading",
    title="trading on price moves of several instruments: orders as events, positions as a view",
    about="""Four stocks have two classes of shares each, whose prices move together. Two rules watch them: if
    both classes of a stock have moved apart by more than 2 % within a minute, the one ahead is sold and the
    one behind is bought; if a price falls by 3 % and comes back by 2 % within a minute, it is bought. A
    signal that goes on for many ticks is one order, and nobody holds more than 200 shares of an instrument:
    what would go beyond is refused, and told. Planted are both moves, and two that come close and must not be
    traded on: a whole stock that rises, and one that falls and stays down.""",
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
        "generate.py": "the moves, by their course in _COURSES; then what a tick looks like (_tick)",
        "check.py": "which orders a planted move has to lead to (expected)",
    },
    seconds=700.0,
    speed=30.0,
)
