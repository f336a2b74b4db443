"""Plans the runs of a job that ends when all existing input is processed and nothing is left waiting.

A query that reads what another query of the same job writes would end too early, because its topic is not
complete when it begins. So the job is run again, until a run adds nothing to such topics. Topics from
outside are read up to where they ended when the first run began.

Then event time is advanced until windows are closed and waiting rows have come out, because no later row will
do that. Queries are carried to their end in the order of their topics. What a query writes at its end is read
by the others before it is their turn. Queries that read each other's results advance one step per run, so
that time has not passed what comes back. Spark's own windows are closed by a batch without records that has a
later watermark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from millstream.client.connect import Connection
from millstream.client.protocol.cluster import LATEST, Cluster
from millstream.client.text.position import TopicPartition
from millstream.core.errors import MillstreamError
from millstream.pipeline.connector.offsets import Offsets
from millstream.pipeline.kernel.ending import EndOfInput
from millstream.pipeline.planning.plan import Plan, Query
from millstream.pipeline.planning.query_order import in_order, is_circle

if TYPE_CHECKING:
    from millstream.pipeline.run.reporting.progress import BatchProgress

_MOST_CARRIES = 40  # each moves Spark's watermark twice as far as the one before


class WatermarkAdvance(NamedTuple):
    """How to close Spark's own windows: after this batch, move the watermark on by this much."""

    batch: int
    by_ms: int


@dataclass(frozen=True, slots=True)
class RunBounds:
    """Where a run ends, and which windows it closes there."""

    until: dict[str, Offsets] | None = None  # by query: read no further. None: read all that is there
    endings: Mapping[str, EndOfInput] = field(default_factory=dict)  # queries that are carried to their end
    carries: Mapping[str, WatermarkAdvance] = field(default_factory=dict)


class RunPlanner:
    """The runs of a job. Created once the topics exist, and before the first run. ``finish=False`` leaves
    what is open to a later start of the job."""

    def __init__(self, plan: Plan, connection: Connection, *, finish: bool = True) -> None:
        self._plan = plan
        self._connection = connection
        self._own = set(plan.writes).intersection(plan.reads)
        self._from_outside = self._ends(set(plan.reads) - self._own) if self._own else {}
        self._last: Offsets | None = None
        self._only_read = not finish
        self._groups = in_order(plan) if finish else []
        self._endings: dict[str, EndOfInput] = {}  # of the group whose turn it is
        self._carries: dict[str, int] = {}
        self._progress: dict[str, BatchProgress] = {}

    def next(self, progress: Mapping[str, BatchProgress]) -> RunBounds | None:
        """The bounds of the next run; None if there is nothing more to do. ``progress`` holds the last
        progress of each query in the previous run."""
        self._progress |= progress
        if self._own:
            own = self._ends(self._own)
            if own != self._last:
                self._last = own
                return RunBounds(self._until(own))
        elif self._only_read:
            self._only_read = False
            return RunBounds()
        while self._groups:
            found = self._carried_on(self._groups[0])
            if found is not None:
                return found
            self._groups.pop(0)
            self._endings, self._carries = {}, {}
        return None

    def _carried_on(self, group: list[Query]) -> RunBounds | None:
        """The next step of the queries whose turn it is; None if they have reached their end."""
        until = self._until(self._last) if self._last is not None else None
        in_circle = is_circle(group)
        if not self._endings:
            self._endings = {query.name: EndOfInput(strides=not in_circle) for query in group}
            # Nothing is known of a query that has not run. Spark's own windows are handled below.
            waits = any(query.operators or query.name not in self._progress for query in group)
        else:
            waits = any(self._progress[query.name].waits_for is not None for query in group)
        if in_circle and waits:
            return RunBounds(until, {name: OneStep(ending) for name, ending in self._endings.items()})
        if waits:
            return RunBounds(until, self._endings)
        carries: dict[str, WatermarkAdvance] = {}
        for query in group:
            last = self._progress.get(query.name)
            if last is not None and query.output_mode == "append" and last.open_windows:
                number = self._carries[query.name] = self._carries.get(query.name, 0) + 1
                if number > _MOST_CARRIES:
                    raise MillstreamError(f"the windows of query {query.name!r} do not close")
                carries[query.name] = WatermarkAdvance(last.batch, _reach_ms(query) << (number - 1))
        return RunBounds(until, {}, carries) if carries else None

    def _until(self, own: Offsets) -> dict[str, Offsets]:
        found = {}
        for query in self._plan.queries:
            topics = {source.topic for source in query.sources}
            every = {**self._from_outside, **own}
            found[query.name] = {place: offset for place, offset in every.items() if place.topic in topics}
        return found

    def _ends(self, topics: set[str]) -> Offsets:
        cluster = Cluster(self._connection, patience=self._connection.patience)
        try:
            counts = cluster.topics(topics)
            places = [TopicPartition(topic, n) for topic, count in counts.items() for n in range(count)]
            return cluster.ends(places, LATEST, read_committed=True) if places else {}
        finally:
            cluster.close()


class OneStep(EndOfInput):
    """Allows one step of an ending in this run."""

    def __init__(self, ending: EndOfInput) -> None:
        self._ending: EndOfInput | None = ending

    def next(self, waits: int | None) -> int | None:
        ending, self._ending = self._ending, None
        return None if ending is None else ending.next(waits)


def _reach_ms(query: Query) -> int:
    """How far the watermark is from the end of the last window, if all sources have come equally far."""
    times = [source.time for source in query.sources if source.time is not None]
    lengths = (window.window_spec.size_ms or window.window_spec.gap_ms or 0 for window in query.windows)
    return max((time.lateness_ms for time in times), default=0) + max(lengths, default=0) + 1
