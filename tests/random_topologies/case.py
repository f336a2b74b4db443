"""A case: what is declared, what comes in, and what must come out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any

from millstream import Topology
from tests.random_topologies.joins import Gather
from tests.random_topologies.shape import Given, Row, Step
from tests.random_topologies.sinks import Sink, TopicSink
from tests.random_topologies.stateless import Record, SourceStep, Where
from tests.random_topologies.windows import Window

_GATHERED = {
    "": ("k", "one.v AS v_one", "other.v AS v_other", "gather_time"),
    "incomplete": ("k", "missing"),
    "duplicates": ("k", "part"),
}


@dataclass(frozen=True)
class Case:
    seed: int
    late: bool  # some rows come too late
    guarantee: str
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    records: tuple[tuple[str, Record], ...]  # of all topics, in the order in which they are produced
    cuts: tuple[int, ...]  # where the records are cut into batches

    @property
    def sources(self) -> list[SourceStep]:
        return [step for step in self.steps if isinstance(step, SourceStep)]

    @property
    def batches(self) -> list[list[tuple[str, Record]]]:
        bounds = [0, *self.cuts, len(self.records)]
        return [list(self.records[one:other]) for one, other in pairwise(bounds)]

    def topology(self) -> Topology:
        flow = Topology("random", guarantee=self.guarantee, buckets=3)
        streams: dict[str, Any] = {}
        outputs: dict[str, Any] = {}

        def output(name: str) -> Any:
            if name not in outputs:
                owner, _, which = name.partition(".")
                outputs[name] = _output(self.step(owner), streams[owner], which)
            return outputs[name]

        for step in self.steps:
            streams[step.name] = step.declare(flow, *map(output, step.inputs))
        for sink in self.sinks:
            sink.declare(output(sink.stream))
        return flow

    def step(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)

    def expected(self) -> dict[str, list[Row]]:
        """The rows of every stream, by ``STEP`` or ``STEP.OUTPUT``."""
        found: dict[str, list[Row]] = {}
        for step in self.steps:
            given: Given = step.expected(*(found[name] for name in step.inputs))
            found |= {f"{step.name}.{which}" if which else step.name: rows for which, rows in given.items()}
        return found

    def with_step(self, changed: Step) -> Case:
        return replace(self, steps=tuple(changed if one.name == changed.name else one for one in self.steps))

    def reordered(self, rng: Random) -> Case:
        """The same lines in another order, but each line after those that it uses."""
        left = list(self.steps)
        found: list[Step] = []
        while left:
            known = {one.name for one in found}
            ready = [one for one in left if {name.partition(".")[0] for name in one.inputs} <= known]
            # ``otherwise`` depends on which channels there are, so those lines stay in order.
            if any(isinstance(one, Where) and one.way != "where" for one in ready):
                ready = ready[:1]
            found.append(rng.choice(ready))
            left.remove(found[-1])
        sinks = rng.sample(self.sinks, len(self.sinks))
        steps = tuple(
            replace(one, aggregates=dict(rng.sample(list(one.aggregates.items()), len(one.aggregates))))
            if isinstance(one, Window)
            else one
            for one in found
        )
        return replace(self, steps=steps, sinks=tuple(sinks))

    def with_new_sink(self) -> Case:
        topics = [sink for sink in self.sinks if isinstance(sink, TopicSink) and sink.way == "all"]
        new = [replace(sink, topic=f"{sink.topic}-more", some=True) for sink in topics[:1]]
        return replace(self, sinks=(*self.sinks, *new))

    def __str__(self) -> str:
        lines = [f"seed {self.seed}, {'some rows late' if self.late else 'in time'}, {self.guarantee}"]
        lines += [str(step) for step in self.steps]
        lines += [str(sink) for sink in self.sinks]
        return "\n".join([*lines, f"batches end after {self.cuts} of {len(self.records)} records"])


def _output(step: Step, stream: Any, which: str) -> Any:
    if isinstance(step, Gather):
        return (getattr(stream, which) if which else stream).select(*_GATHERED[which])
    if which in ("late", "outside", "rejected", "duplicates"):
        return getattr(stream, which)
    return stream.channel(which) if which else stream
