"""Realistic streams for property tests: out of order, with repetitions and stragglers.

Events come in a few partitions, batches are cut anywhere, and the state is saved and loaded in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from millstream.pipeline.kernel.clock import NEVER, TimeRules
from tests.support.kernel_feed import SECOND, Event, run


@dataclass(frozen=True)
class Stream:
    """Events in the order of the log, where they are cut into batches, and after which batches the state is
    saved and loaded again.
    """

    events: tuple[Event, ...]
    cuts: tuple[int, ...]
    reloads: frozenset[int]
    buckets: int

    @property
    def batches(self) -> list[list[Event]]:
        bounds = [0, *self.cuts, len(self.events)]
        return [list(self.events[start:end]) for start, end in pairwise(bounds)]

    def judged(self, lateness: int) -> Iterator[tuple[Event, int, tuple[int, int]]]:
        """Each event, the watermark of its partition before it, and its place in the log."""
        latest: dict[int, int] = {}
        offsets: dict[int, int] = {}
        for event in self.events:
            before = latest.get(event.partition)
            offsets[event.partition] = offsets.get(event.partition, -1) + 1
            yield (
                event,
                NEVER if before is None else before - lateness,
                (event.partition, offsets[event.partition]),
            )
            latest[event.partition] = max(event.time, before if before is not None else NEVER)

    def reached(self, lateness: int) -> int:
        """The watermark at the end."""
        partitions = {event.partition for event in self.events}
        return min(
            max(event.time for event in self.events if event.partition == one) - lateness
            for one in partitions
        )

    def run(
        self, plan: Any, schema: Any, *, lateness: int = 0, whole: bool = False
    ) -> dict[str, list[dict[str, Any]]]:
        """The output of a plan; with ``whole``, in one batch and one bucket."""
        rules = TimeRules(lateness=lateness)
        if whole:
            return run(plan, [schema], [self.events], buckets=1, rules=rules)
        return run(plan, [schema], self.batches, reload_after=self.reloads, buckets=self.buckets, rules=rules)


@st.composite
def streams(draw: Callable[[Any], Any], columns: Mapping[str, Any], most: int = 40) -> Stream:
    """Streams of rows with these columns. Every partition has an event in the first batch, because a
    watermark can't wait for a partition that it does not know.
    """
    partitions = draw(st.integers(1, 3))
    row = st.fixed_dictionaries(dict(columns))
    events = [Event(0, draw(row), partition) for partition in range(partitions)]
    now = 0
    for _ in range(draw(st.integers(0, most))):
        if len(events) > partitions and draw(st.integers(0, 9)) == 0:
            events.append(draw(st.sampled_from(events)))  # sent twice
            continue
        now += draw(st.integers(0, 4))
        time = max(0, now - draw(st.sampled_from((0, 0, 0, 1, 2, 3, 6, 12, 25))))
        events.append(Event(time * SECOND, draw(row), draw(st.integers(0, partitions - 1))))
    cuts = sorted(draw(st.sets(st.integers(partitions, len(events)), max_size=6)))
    reloads = draw(st.sets(st.integers(0, len(cuts)), max_size=3))
    return Stream(tuple(events), tuple(cuts), frozenset(reloads), draw(st.integers(1, 3)))


def sorted_rows(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows as a multiset that can be compared, and that is readable where it differs."""
    return sorted(repr(sorted((name, str(value)) for name, value in row.items())) for row in rows)
