"""Nexmark beside others: how many events a second of one core each stream processor takes, and how long an
event takes to its result.

Rate: all events are in the topics; a contestant reads them to the end and writes its answers. One on a JVM
has done so before, as a job that has run for a while: half of a JVM's time in a first minute goes into
compiling what it runs. What starting a job costs is taken off by running the query over few events too: the
rate is of the events in which the runs differ, by the CPU of all that works on them, the contestant's
processes and the broker. Where the runs hardly differ there is no figure. The few events' answers are checked
against DuckDB's.

Latency: events come at a moderate rate with the present time in them, and a consumer looks at the clock when
an answer arrives. Of a window that is given when it is over, the time counts from when it could be known: its
end, and the lateness that all of them wait for.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.memory import make_ready
from bench.nexmark import feed, generator
from bench.nexmark.answers import SQL, Answers
from bench.nexmark.contestant import ENTRIES, OURS, Contestant, Entry, Unavailable
from bench.nexmark.contestants.tasks import Task
from bench.nexmark.live import latencies
from bench.nexmark.queries import QUERIES
from bench.rounds import Figure
from bench.servers import Server, settle
from bench.topics import drop_topic, fresh_topic

PARTITIONS = 2
FEW = 10_000
WARM_UP = 2  # runs before the one that counts
LEAST_SECONDS = 0.4  # of CPU, below which a difference says nothing
LATENESS_MS = 4_000
LIVE_LATENESS_MS = 1_000
LIVE_RATE = 500
# One of each kind: a projection, a processor of two streams, Spark's own window.
TIMED = ("q0", "q9", "q17")
EVENTS = generator.Settings(rate=5_000)
_UNIT = "events/s a core"


class Field:
    """The contestants that could be had, each in a running process; one that crashes is restarted."""

    def __init__(self, stack: ExitStack, scratch: Path) -> None:
        self._stack, self._scratch = stack, scratch
        self._running: dict[str, Contestant] = {}
        self.entries: dict[str, Entry] = {}
        for entry in ENTRIES:
            try:
                self._running[entry.name] = self._start(entry)
                self.entries[entry.name] = entry
            except Unavailable as reason:
                say(str(reason))

    def _start(self, entry: Entry) -> Contestant:
        return self._stack.enter_context(Contestant(entry, self._scratch / f"{entry.name}.log"))

    def get(self, name: str) -> Contestant:
        if not self._running[name].alive:
            self._running[name] = self._start(self.entries[name])
        return self._running[name]


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


# ---- how many -----------------------------------------------------------------------------------------


def rates(server: Server, *, quick: bool) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch, ExitStack() as stack:
        yield from _rates(server, Field(stack, Path(scratch)), Path(scratch), quick=quick)


def _rates(server: Server, field: Field, scratch: Path, *, quick: bool) -> Iterator[Figure]:
    many = 60_000 if quick else 500_000
    feed.write(server.address, FEW, EVENTS, partitions=PARTITIONS, prefix="few-")
    feed.write(server.address, many, EVENTS, partitions=PARTITIONS, prefix="many-")
    answers = Answers(generator.tables(FEW, EVENTS))
    for query in SQL:
        seen: dict[str, list[float]] = {}
        notes: dict[str, str] = {}
        for name in field.entries:
            try:
                found = check(server, field.get(name), query, scratch, answers)
                if found:
                    notes[name] = found
                seen[name] = []
            except Unavailable as reason:
                say(str(reason))
        for name in list(seen):
            make_ready(many * 300)
            try:
                for _ in range(WARM_UP if field.entries[name].on_a_jvm and not quick else 0):
                    cpu_seconds(server, field.get(name), query, scratch, "many-")
                seen[name].append(rate(server, field.get(name), query, scratch, many))
            except Unavailable as reason:
                say(str(reason))
                del seen[name]
        yield from beside("rate", query, seen, notes)
    answers.close()


def check(server: Server, contestant: Contestant, query: str, scratch: Path, answers: Answers) -> str:
    """Warm it up on few events, and look at its answer; what is wrong with it, if anything."""
    output = fresh_topic(server, PARTITIONS)
    contestant.do(task(server, query, "few-", output, scratch))
    columns, expected = answers.of(query)
    key = QUERIES[query].key
    shared = [column for column in columns if column not in ("price", "final", "avg_price")]
    shown = [column for column in shared if query != "q12" or column != "bid_count"]
    got = set(feed.answer(feed.read(server.address, output), shown, key))
    at = [columns.index(column) for column in shown]
    missing = {tuple(row[place] for place in at) for row in expected} - got
    drop_topic(server, output)
    return f"{contestant.name}'s answer lacks {len(missing)} of {len(expected)} rows" if missing else ""


def rate(server: Server, contestant: Contestant, query: str, scratch: Path, many: int) -> float:
    """Events a second of one core, without what it costs to start. Raises Unavailable where that hides what
    the events cost."""
    whole, start = (cpu_seconds(server, contestant, query, scratch, prefix) for prefix in ("many-", "few-"))
    if whole - start < LEAST_SECONDS:
        raise Unavailable(
            f"{contestant.name}, {query}: {many:,} events took {whole:.1f} s of CPU and {FEW:,} took"
            f" {start:.1f} s; what an event costs can't be told from that"
        )
    return (many - FEW) / (whole - start)


def cpu_seconds(server: Server, contestant: Contestant, query: str, scratch: Path, prefix: str) -> float:
    """CPU of the contestant and of the broker for a run over the events of some topics."""
    output = fresh_topic(server, PARTITIONS)
    settle(server)
    broker = server.cpu_seconds()
    used = contestant.do(task(server, query, prefix, output, scratch)).cpu_seconds
    used += server.cpu_seconds() - broker
    drop_topic(server, output)
    return used


def task(
    server: Server, query: str, prefix: str, output: str, scratch: Path, *, bounded: bool = True
) -> Task:
    lateness = LATENESS_MS if bounded else LIVE_LATENESS_MS
    return Task(query, server.address, prefix, output, bounded, lateness, tempfile.mkdtemp(dir=scratch))


def beside(key: str, query: str, seen: dict[str, list[float]], notes: dict[str, str]) -> Iterator[Figure]:
    """A row for each of the others; one for ours alone if there are none."""
    if OURS not in seen:
        return
    faster = key == "rate"
    unit = _UNIT if faster else "ms"
    others = [name for name in seen if name != OURS]
    for other in others or [None]:
        ours = statistics.median(seen[OURS])
        theirs = statistics.median(seen[other]) if other else None
        sides = [OURS, other] if other else [OURS]
        what = f"{query}" + ("" if faster else f", {key}") + (f", beside {other}" if other else "")
        met = None if theirs is None else (ours >= theirs if faster else ours <= theirs)
        target = "" if theirs is None else ("≥ 1x" if faster else "≤ 1x")
        rounds = {side: seen[side] for side in sides}
        note = "; ".join(notes[side] for side in sides if side in notes)
        yield Figure(
            "nexmark" if faster else "nexmark_latency",
            what,
            unit,
            ours,
            theirs,
            faster,
            target,
            met,
            rounds,
            note,
        )


# ---- how soon -----------------------------------------------------------------------------------------


def delays(server: Server, *, quick: bool) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch:
        yield from _delays(server, Path(scratch), quick=quick)


def _delays(server: Server, scratch: Path, *, quick: bool) -> Iterator[Figure]:
    for query in ("q0", "q17") if quick else TIMED:
        p50: dict[str, list[float]] = {}
        p99: dict[str, list[float]] = {}
        for entry in ENTRIES:
            try:
                seconds = 5 if quick else 15
                found = delay(server, entry, query, scratch, seconds=seconds)
            except Unavailable as reason:
                say(str(reason))
                continue
            p50[entry.name] = [statistics.median(found)]
            if len(found) >= 100:  # fewer have no hundredth part: a window over all bids gives one in 10 s
                p99[entry.name] = [statistics.quantiles(found, n=100, method="inclusive")[98]]
        yield from beside("p50", query, p50, {})
        yield from beside("p99", query, p99, {})


def delay(server: Server, entry: Entry, query: str, scratch: Path, *, seconds: float) -> list[float]:
    prefix = f"{fresh_topic(server)}-"
    output = fresh_topic(server, PARTITIONS)
    topics = [f"{prefix}{kind}" for kind in generator.KINDS]
    feed.create(server.address, topics, PARTITIONS)
    with Contestant(entry, scratch / f"{entry.name}.log") as contestant:
        contestant.begin(task(server, query, prefix, output, scratch, bounded=False))
        found = latencies(
            server.address,
            query,
            prefix,
            output,
            rate=LIVE_RATE,
            partitions=PARTITIONS,
            seconds=seconds,
            lateness_ms=LIVE_LATENESS_MS,
            alive=lambda: contestant.alive and not contestant.answered,
        )
        if not found:
            why = contestant.last_words() or f"no answer came that belongs to {seconds:g} s"
            raise Unavailable(f"{entry.name}, {query}: {why}")
    for topic in (*topics, output):
        drop_topic(server, topic)
    return found
