"""Place orders in PostgreSQL and in the log, and recover after a crash."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from millstream.core.errors import MillstreamError
from millstream.examples.two_phase.orders import Orders


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m millstream.examples.two_phase", description=__doc__)
    parser.add_argument("--broker", default="127.0.0.1:9092", help="the broker [127.0.0.1:9092]")
    parser.add_argument(
        "--database",
        default="postgresql://localhost/postgres",
        help="PostgreSQL, with max_prepared_transactions of 1 or more",
    )
    parser.add_argument(
        "--decisions", type=Path, default=Path("decisions.db"), help="the coordinator's log [decisions.db]"
    )
    parser.add_argument("order", nargs="*", help="orders to place, such as 42:9.90; none: only recover")
    arguments = parser.parse_args()
    try:
        with Orders(arguments.broker, arguments.database, arguments.decisions) as orders:
            for what in orders.recover():
                print(f"recovered: {what}")
            for order in arguments.order:
                number, _, amount = order.partition(":")
                orders.place(number, amount, on_step=lambda step: print(f"  {step}"))
                print(f"order {number} is in PostgreSQL and in the log")
    except MillstreamError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
