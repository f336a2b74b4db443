"""Derives a job's status from the progress of its batches. No I/O, no Spark; the time is passed in."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import add
from typing import TYPE_CHECKING

from millstream.jobs.report import (
    VERSION,
    BatchReport,
    Edge,
    GraphNode,
    JobError,
    JobStatus,
    QueryStatus,
    State,
    nodes_with_lags,
    with_lags,
)
from millstream.pipeline.drawing.boxes import Graph
from millstream.pipeline.drawing.graph import graph
from millstream.pipeline.dsl.counts import rejected_count, sink_count, source_count
from millstream.pipeline.planning.counting import added_up

if TYPE_CHECKING:
    from millstream.pipeline.planning.plan import Plan
    from millstream.pipeline.run.reporting.progress import BatchProgress

TIMELINE = 60  # batches
ERRORS = 10
RATE_MS = 10_000
_MOST_OF_A_TEXT, _MOST_OF_A_RECORD = 600, 1000

# What each part of a batch's time consists of: Spark's own steps, and those of the delivery.
_STEPS: dict[str, tuple[str, ...]] = {
    "look": ("latestOffset", "getBatch", "getOffset"),
    "plan": ("queryPlanning",),
    "process": ("send", "replay"),
    "ledger": ("ledger", "offsets"),
    "commit": ("begin", "commit"),
    "views": ("views", "changelog"),
    "checkpoint": ("walCommit", "commitOffsets", "commitBatch"),
}


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """The process that runs the job."""

    id: str
    host: str
    pid: int
    started_ms: int
    views_at: str | None = None
    previous: str | None = None  # the run before it in the same process
    machine: str = ""
    retries: bool = False


@dataclass(frozen=True, slots=True)
class _Done:
    """A batch, and the counts of its rows."""

    batch: BatchReport
    counts: Mapping[str, int]


class StatusAccount:
    """The account of one run. It holds only totals and the last batches, so it does not grow."""

    def __init__(self, plan: Plan, run: RunningProcess) -> None:
        self._plan = plan
        self._run = run
        self._graph: Graph = graph(plan.flow)
        self._home = _homes(plan)
        self._state: State = "starting"
        self._since_ms = run.started_ms
        self._reason: str | None = None
        self._batches: deque[_Done] = deque(maxlen=TIMELINE)
        self._totals: dict[str, dict[str, int]] = {query.name: {} for query in plan.queries}
        self._queries: dict[str, QueryStatus] = {
            query.name: QueryStatus(
                query.name,
                plan.group(query),
                [source.topic for source in query.sources],
                list(dict.fromkeys(topic for sink in query.sinks for topic in sink.topics)),
            )
            for query in plan.queries
        }
        self._nodes: dict[str, GraphNode] = {
            box.key: GraphNode(
                box.key,
                box.kind,
                _cut(box.title),
                [_cut(line) for line in box.lines],
                list(box.streams),
                next((self._home[name] for name in box.streams if name in self._home), None),
            )
            for box in self._graph.boxes
        }
        self._lags: dict[str, Mapping[str, int]] = {}
        self._errors: deque[JobError] = deque(maxlen=ERRORS)

    # What happens ------------------------------------------------------------------------------------

    def turned(self, state: State, now_ms: int, reason: str | None = None) -> None:
        """The job is in another state now."""
        if (state, reason) != (self._state, self._reason):
            self._state, self._reason, self._since_ms = state, reason and _cut(reason), now_ms

    def progressed(self, progress: BatchProgress, now_ms: int) -> None:
        """A batch is done."""
        if self._state == "waiting":
            self.turned("running", now_ms)
        batch = BatchReport(
            progress.query,
            progress.batch,
            now_ms,
            progress.milliseconds,
            progress.rows_in,
            sum(progress.rows_out.values()),
            parts(progress),
            progress.repeats,
        )
        self._batches.append(_Done(batch, progress.counts))
        totals = self._totals[progress.query]
        for name, rows in progress.counts.items():
            totals[name] = totals.get(name, 0) + rows
        known = self._queries[progress.query]
        watermark = progress.watermark
        watermark_ms = None if watermark is None else round(watermark.timestamp() * 1000)
        self._queries[progress.query] = replace(
            known,
            batch=progress.batch,
            batches=known.batches + 1,
            rows_in=known.rows_in + progress.rows_in,
            rows_out=known.rows_out + batch.rows_out,
            watermark_ms=watermark_ms or known.watermark_ms,
            batch_ms=progress.milliseconds,
        )
        for key, node in self._nodes.items():
            self._nodes[key] = _with(node, progress, watermark_ms)
        self.measured(progress.query, progress.lags)
        for name, (why, record) in progress.samples.items():
            rows = progress.counts.get(rejected_count(name), 1)
            self._add(JobError(now_ms, f"did not parse: {why}", operator=name, record=record, times=rows))

    def measured(self, query: str, lags: Mapping[str, int]) -> None:
        """Note a query's lag in each of its topics. If nothing is known, the lag stays as it was."""
        if lags:
            self._lags[query] = dict(lags)

    def failed(self, what: str, now_ms: int, where: str | None = None) -> None:
        """The job has ended with an error."""
        operator, key, record = blamed(what)
        what = what.removesuffix(f" ({record})")  # the record is a field of its own
        self._add(JobError(now_ms, what, operator, where, key, record, fatal=True))
        self.turned("failed", now_ms, what)

    def troubled(self, what: str, now_ms: int) -> None:
        """Note a problem that the job overcomes."""
        self._add(JobError(now_ms, what))

    def _add(self, error: JobError) -> None:
        """Put the newest error first. An error that was reported before moves up, and its count grows."""
        error = replace(
            error, what=_cut(error.what), record=error.record and _cut(error.record, _MOST_OF_A_RECORD)
        )
        same = next((e for e in self._errors if (e.what, e.operator) == (error.what, error.operator)), None)
        if same is not None:
            self._errors.remove(same)
            error = replace(error, times=same.times + error.times)
        elif len(self._errors) == ERRORS:
            self._errors.pop()
        self._errors.appendleft(error)

    # The status --------------------------------------------------------------------------------------

    def status(self, now_ms: int) -> JobStatus:
        run = self._run
        recent = self._recent(now_ms)
        return JobStatus(
            VERSION,
            self._plan.flow.name,
            run.id,
            run.host,
            run.pid,
            run.started_ms,
            now_ms,
            self._state,
            self._since_ms,
            self._plan.flow.guarantee,
            reason=self._reason,
            views_at=run.views_at if self._plan.views else None,
            views=list(self._plan.views),
            queries=[
                replace(query, per_second=_per_second((d.batch.rows_in for d in done), span))
                for query in with_lags(self._queries.values(), self._lags)
                for done, span in [recent[query.name]]
            ],
            nodes=nodes_with_lags(self._nodes.values(), self._lags),
            edges=[
                self._edge(arrow, counted, recent)
                for arrow, counted in zip(self._graph.arrows, self._graph.counted, strict=True)
            ],
            batches=[done.batch for done in self._batches],
            errors=list(self._errors),
            previous=run.previous,
            machine=run.machine,
            retries=run.retries,
        )

    def _recent(self, now_ms: int) -> dict[str, tuple[list[_Done], int]]:
        """By query, the batches of the last seconds, and the time since the first of them began, in
        milliseconds."""
        found = {}
        for name in self._queries:
            own = [each for each in self._batches if each.batch.query == name]
            done = [each for each in own if each.batch.at_ms > now_ms - RATE_MS]
            if not done:  # a batch that took long counts until the next one is due
                done = [each for each in own[-1:] if each.batch.at_ms > now_ms - 2 * each.batch.ms]
            began = min((each.batch.at_ms - each.batch.ms for each in done), default=now_ms)
            found[name] = done, max(1000, now_ms - began)
        return found

    def _edge(
        self,
        arrow: tuple[str, str],
        counted: tuple[str, ...],
        recent: Mapping[str, tuple[list[_Done], int]],
    ) -> Edge:
        """An arrow with the counts of all queries. The counts of sinks are added up. Anything else may be
        read or computed, and so counted, by several queries: its count is that of the query that the arrow
        leads to, or the largest if there is no single one."""
        totals: dict[str, int] = {}
        rates: dict[str, float] = {}
        head = self._nodes[arrow[1]].query
        for query, counts in self._totals.items():
            done, span = recent[query]
            for name in set(counted).intersection(counts):
                together = add if name.startswith(sink_count("")) else max
                if together is add or head in (query, None):
                    lately = _per_second((each.counts.get(name, 0) for each in done), span)
                    totals[name] = together(totals.get(name, 0), counts[name])
                    rates[name] = together(rates.get(name, 0.0), lately)
        rate = added_up(counted, rates)
        return Edge(*arrow, added_up(counted, totals), None if rate is None else round(rate, 1))


def parts(progress: BatchProgress) -> dict[str, int]:
    """Where a batch's time went, in whole milliseconds; what remains is ``rest``."""
    spent = {**progress.spark, **progress.steps}
    found = {part: round(sum(spent.get(step, 0.0) for step in steps)) for part, steps in _STEPS.items()}
    found["rest"] = max(0, progress.milliseconds - sum(found.values()))
    return {part: ms for part, ms in found.items() if ms}


_BLAMED = re.compile(
    r"operator '(?P<operator>[^']+)' failed(?: for (?P<key>.*?))?: .*?(?:\((?P<record>.*)\))?$", re.S
)


def blamed(what: str) -> tuple[str | None, str | None, str | None]:
    """The operator, key and record that an error names, in the wording of ``kernel/bucket.py``."""
    found = _BLAMED.search(what)
    return (None, None, None) if found is None else (found["operator"], found["key"], found["record"])


def _with(node: GraphNode, progress: BatchProgress, watermark_ms: int | None) -> GraphNode:
    """A box of the graph, updated with a batch's counts."""
    if node.kind == "topic":
        sources = [name for name in node.streams if source_count(name) in progress.counts]
        if not sources:
            return node
        rejected = sum(progress.counts.get(rejected_count(name), 0) for name in sources)
        return replace(
            node,
            watermark_ms=watermark_ms or node.watermark_ms,
            rejected=node.rejected + rejected,
        )
    for name in node.streams:
        operator = progress.operators.get(name)
        if operator is not None:
            return replace(
                node,
                watermark_ms=None if operator.watermark is None else operator.watermark // 1000,
                entries=operator.entries,
                bytes=operator.bytes,
                late=node.late + operator.late,
                ahead=node.ahead + operator.ahead,
                failed=node.failed + operator.failed,
                overflow=node.overflow + operator.overflow,
                duplicates=node.duplicates + operator.duplicates,
            )
        store = progress.windows.get(name)
        if store is not None:
            return replace(
                node,
                watermark_ms=watermark_ms or node.watermark_ms,
                entries=store.entries,
                bytes=store.bytes,
                shared=store.shared,
                dropped=node.dropped + store.dropped,
            )
    return node


def _homes(plan: Plan) -> dict[str, str]:
    """The query that computes each stream, without the streams that several queries compute."""
    found: dict[str, set[str]] = {}
    for query in plan.queries:
        for sink in query.sinks:
            for stream in sink.stream.upstream():
                found.setdefault(stream.name, set()).add(query.name)
    return {name: next(iter(queries)) for name, queries in found.items() if len(queries) == 1}


def _per_second(rows: Iterable[int], span_ms: int) -> float:
    return round(1000 * sum(rows) / span_ms, 1)


def _cut(text: str, most: int = _MOST_OF_A_TEXT) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
