"""``python -m bench [--quick] [--only PART ...]``: run the benchmarks, show progress, write the results."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

from bench import (
    archive,
    bulk,
    checking,
    churn,
    compaction,
    connections,
    console,
    footprint,
    guarantees,
    history,
    hostile,
    latency,
    partitions,
    report,
    requests,
    servers,
    spark,
    standby,
    state,
    transactions,
    view_latency,
    wide,
)
from bench.nexmark import race
from bench.rounds import Figure
from tests.support.maven import JarsUnavailable

BESIDE_KAFKA = {
    "requests": requests.run,
    "connections": connections.run,
    "bulk": bulk.run,
    "checking": checking.run,
    "latency": latency.run,
    "transactions": transactions.run,
    "churn": churn.run,
}
ALONE = {
    "footprint": footprint.run,
    "partitions": partitions.run,
    "history": history.run,
    "archive": archive.run,
    "compaction": compaction.run,
    "state": state.run,
    "standby": standby.run,
}
ON_OURS = {
    "spark": spark.run,
    "guarantees": guarantees.run,
    "view_latency": view_latency.run,
    "wide": wide.run,
    "console": console.run,
    "hostile": hostile.run,
    "nexmark": race.rates,
    "nexmark_latency": race.delays,
}
PARTS = [*BESIDE_KAFKA, *ALONE, *ON_OURS]
assert set(PARTS) == set(report.TITLES), "what is measured and not told"
IN_TWO_MINUTES = ["requests", "bulk", "latency", "footprint", "spark"]


def figures(parts: list[str], *, quick: bool) -> Iterator[Figure]:
    if beside := [part for part in parts if part in BESIDE_KAFKA]:
        with ExitStack() as stack:
            ours = stack.enter_context(servers.millstream())
            theirs = stack.enter_context(servers.kafka())
            warm_up(theirs)
            for part in beside:
                yield from BESIDE_KAFKA[part]([ours, theirs], quick=quick)
    for part in parts:
        if part in ON_OURS:
            with servers.millstream() as ours:
                yield from ON_OURS[part](ours, quick=quick)
        if part in ALONE:
            yield from ALONE[part](quick=quick)


def warm_up(server: servers.Server) -> None:
    """Let Kafka's just-in-time compiler see the work before it is measured."""
    bulk.measure(server, size=100, count=200_000, partitions=1)
    requests.measure(server, count=20_000, connections=10, in_flight=5, acks=1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"small counts; about two minutes for {', '.join(IN_TWO_MINUTES)}, unless --only says which",
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}")
    options = parser.parse_args()
    parts = options.only or (IN_TWO_MINUTES if options.quick else PARTS)
    started = time.monotonic()
    done: list[Figure] = []
    print(f"millstream bench: {', '.join(parts)}{' (quick)' if options.quick else ''}", flush=True)
    try:
        for figure in figures(parts, quick=options.quick):
            done.append(figure)
            print(f"[{time.monotonic() - started:5.0f} s] {report.row(figure)}", flush=True)
    except JarsUnavailable as reason:
        print(f"bench: {reason}; Apache Kafka is what we compare with", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nbench: interrupted; nothing was written", file=sys.stderr)
        return 130
    kept = done
    if options.only and not options.quick and (report.RESULTS / "latest.json").exists():
        # A part that is measured again replaces its own figures and keeps those of the others.
        previous = json.loads((report.RESULTS / "latest.json").read_text())["figures"]
        others = [entry for entry in previous if entry["part"] not in parts]
        kept = [Figure(**{k: v for k, v in entry.items() if k != "ratio"}) for entry in others] + done
    report.write(kept, quick=options.quick)
    missed = [figure.what for figure in done if figure.met is False]
    print(
        f"{len(done)} figures, {len(missed)} short of their target"
        + "".join(f"\n  - {what}" for what in missed)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
