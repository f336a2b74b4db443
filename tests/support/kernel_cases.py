"""Random cases for operators with several inputs.

Events are out of order, late and repeated, over two partitions of each input. They are cut into random
batches, and the state is saved and loaded in between.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from millstream.pipeline.kernel.clock import TimeRules
from millstream.pipeline.kernel.program import ProgramPlan
from tests.support.kernel_feed import SECOND, Event, run

PARTITIONS = 2
END = 100_000  # the time of the last events, in seconds, after which nothing is left waiting


@dataclass(frozen=True)
class Fed:
    """An event as the reference implementation sees it: its time in seconds, and its place in the feed."""

    second: int
    input: int
    partition: int
    row: Mapping[str, Any]
    n: int  # its place in the feed

    @property
    def order(self) -> tuple[int, int, int, int]:
        """The order in which events of all inputs are processed. At equal times, the first input is first."""
        return self.second, self.input, self.partition, self.n


@dataclass(frozen=True)
class Case:
    events: tuple[Fed, ...]
    lateness: tuple[int, ...]  # of each input, in seconds
    cuts: frozenset[int]
    reload_after: frozenset[int]
    buckets: int

    def watermark(self, event: Fed) -> int | None:
        """The watermark that the event's partition had reached before it."""
        seen = [
            other.second
            for other in self.events[: event.n]
            if (other.input, other.partition) == (event.input, event.partition)
        ]
        return max(seen) - self.lateness[event.input] if seen else None

    def is_late(self, event: Fed) -> bool:
        watermark = self.watermark(event)
        return watermark is not None and event.second < watermark

    @property
    def on_time(self) -> list[Fed]:
        """The events that are not late, in order of time."""
        return sorted((event for event in self.events if not self.is_late(event)), key=lambda one: one.order)

    @property
    def late(self) -> list[Fed]:
        return [event for event in self.events if self.is_late(event)]

    def run(
        self,
        plan: ProgramPlan,
        inputs: Sequence[pa.Schema],
        last: Callable[[int], Mapping[str, Any]],
        *,
        cut: bool = True,
    ) -> dict[str, list[dict[str, Any]]]:
        """The output of a plan. ``last`` makes the last row of an input, which closes all that is open."""
        fed = [
            Event(one.second * SECOND, one.row, partition=one.partition, input=one.input)
            for one in self.events
        ]
        fed += [
            Event(END * SECOND, last(number), partition=partition, input=number)
            for number in range(len(inputs))
            for partition in range(PARTITIONS)
        ]
        bounds = [0, *(sorted(at for at in self.cuts if at < len(fed)) if cut else ()), len(fed)]
        return run(
            plan,
            inputs,
            [fed[start:end] for start, end in itertools.pairwise(bounds)],
            buckets=self.buckets if cut else 1,
            reload_after=self.reload_after if cut else (),
            rules={number: TimeRules(lateness=late * SECOND) for number, late in enumerate(self.lateness)},
            partitions=PARTITIONS,
        )


def cases(
    row: Callable[[int], st.SearchStrategy[Mapping[str, Any]]],
    *,
    inputs: int = 2,
    seconds: int = 30,
    most: int = 40,
) -> st.SearchStrategy[Case]:
    """Cases whose rows come from ``row``, called with an input's number. Column ``n`` numbers all events."""

    def event(number: int) -> st.SearchStrategy[tuple[int, int, int, Mapping[str, Any]]]:
        return st.tuples(
            st.integers(0, seconds), st.just(number), st.integers(0, PARTITIONS - 1), row(number)
        )

    events = st.lists(st.integers(0, inputs - 1).flatmap(event), max_size=most)
    return st.builds(
        lambda found, *rest: Case(
            tuple(
                Fed(second, number, partition, {**row, "n": n}, n)
                for n, (second, number, partition, row) in enumerate(found)
            ),
            *rest,
        ),
        events,
        st.tuples(*[st.integers(0, 12)] * inputs),
        st.frozensets(st.integers(1, most + 3), max_size=8),
        st.frozensets(st.integers(0, 8)),
        st.integers(1, 3),
    )
