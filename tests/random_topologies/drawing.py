"""Holds the state while a case is drawn, and draws its sources and their records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from tests.random_topologies.joins import TableStep
from tests.random_topologies.shape import About, Step
from tests.random_topologies.sinks import Sink
from tests.random_topologies.stateless import CONDITIONS, Record, SourceStep, about_source, garbage
from tests.random_topologies.values import KINDS, NOON, SECOND, record

ODD = {"s": "string", "x": "double", "d": "decimal", "b": "binary", "t": "timestamp", "m": "map",
        "n": "nested", "flag": "boolean"}  # fmt: skip
KNOWN = {**ODD, "v": "bigint"}  # the columns that conditions, expressions and aggregates use


@dataclass
class Drawing:
    rng: Random
    late: bool
    ties: bool
    native: bool  # some windows may be Spark's own
    on_spark: bool
    steps: list[Step] = field(default_factory=list)
    streams: dict[str, About] = field(default_factory=dict)  # which later steps can use
    sinks: list[Sink] = field(default_factory=list)
    times: int = 0
    loops_state: bool = False  # a stateful operator's output is read again

    def chance(self, of: float) -> bool:
        return self.rng.random() < of

    def add(self, step: Step, *, ends: bool = False) -> None:
        self.steps.append(step)
        if not ends:
            for which, about in step.about.items():
                if which not in ("late", "outside", "rejected", "incomplete", "duplicates"):
                    self.streams[f"{step.name}.{which}" if which else step.name] = about

    def name(self, word: str) -> str:
        return f"{word}{len(self.steps)}"

    def pick(self, fits: Callable[[About], bool]) -> tuple[str, About] | None:
        found = [(name, about) for name, about in self.streams.items() if fits(about) and not about.of_table]
        # Prefer the latest streams, to get chains rather than many branches of one source.
        return self.rng.choice(found[-3:] if self.chance(0.6) else found) if found else None

    def stateful(self, about: About) -> bool:
        return "k" in about.columns and not (self.late and about.opaque)


def conditions(about: About) -> list[str]:
    return [sql for sql, column, _ in CONDITIONS if about.columns.get(column) == KNOWN[column]]


def kept_columns(drawing: Drawing, about: About) -> tuple[str, ...]:
    """The columns that later steps need, and some others."""
    always = {about.time, "k", "v", "u", "hop", "window_end"}
    return tuple(name for name in about.columns if name in always or drawing.chance(0.6))


def add_source(drawing: Drawing, name: str, *, table: bool = False) -> None:
    rng = drawing.rng
    columns = {"k": "key", "v": "bigint", "u": "bigint", "at": "timestamp"}
    columns |= {one: kind for one, kind in ODD.items() if rng.random() < 0.35}
    if table:
        columns = {"k": "key", "w": "bigint", "op": "key", "changed": "timestamp"}
    time_column = "changed" if table else "at"
    time = "log" if not table and rng.random() < 0.15 else time_column
    lateness = rng.choice([0, 1, 5, 20])
    partitions = 1 if drawing.native else rng.choice([1, 2])
    records = _records(drawing, columns, time_column, lateness, partitions, table, by_log=time == "log")
    kind = TableStep if table else SourceStep
    max_rows = rng.choice([None, None, 3, 10]) if not table else None
    if drawing.on_spark and max_rows is not None:
        max_rows = 20  # a batch takes a second there
    about = about_source(columns, time, lateness)
    if table:
        about[""] = replace(about[""], of_table=True)
    drawing.add(kind(name, (), about, tuple(records), columns, time, lateness, partitions, max_rows))


def _records(
    drawing: Drawing,
    columns: dict[str, str],
    time: str,
    lateness: int,
    partitions: int,
    table: bool,
    *,
    by_log: bool,
) -> list[Record]:
    rng = drawing.rng
    latest = dict.fromkeys(range(partitions), NOON)
    found: list[Record] = []
    now = 0
    for number in range(partitions + rng.randrange(4, 30)):
        partition = number if number < partitions else rng.randrange(partitions)
        now += 0 if number < partitions else rng.choice([0, 0, 1, 1, 3, 8, 30])
        back = 0 if number < partitions else rng.choice([0, 0, 0, 1, 2, 4, 10, 40])
        at = NOON + (now - back) * SECOND
        if not drawing.late or table:
            at = max(at, latest[partition] - lateness * SECOND)
        at = max(at, NOON)
        if table or not drawing.ties:
            drawing.times += 1000  # a millisecond: records have no finer time in the log
            at += drawing.times
        latest[partition] = max(latest[partition], at)
        values = {
            name: None if rng.random() < 0.1 else KINDS[kind].draw(rng) for name, kind in columns.items()
        }
        values |= {time: at}
        if table:
            values |= {"k": KINDS["key"].draw(rng), "op": rng.choice(["d", "u", "u"])}
        else:
            values |= {"u": number}
        found.append(Record(partition, record(columns, values), at, values))
        if number >= partitions and rng.random() < 0.05:
            bad = rng.choice(garbage(columns, "" if by_log else time, values))
            found.append(Record(partition, bad, at, None))
    return found
