"""Turns Spark's own progress reports into what a running job reports after every batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from millstream.pipeline.connector.offsets import Offsets, from_json
from millstream.pipeline.dsl.counts import (
    PASSED,
    rejected_count,
    sink_count,
    source_count,
    stream_count,
)
from millstream.pipeline.formats.decode import BETWEEN
from millstream.pipeline.kernel.channels import COUNTED
from millstream.pipeline.kernel.clock import NEVER
from millstream.pipeline.planning.outputs import native_windows
from millstream.pipeline.planning.plan import Query
from millstream.pipeline.run.delivery.report import DeliveryReport
from millstream.pipeline.run.reporting.progress import BatchProgress, OperatorStatus, StoreStatus


def progress_of(
    query: Query, report: dict[str, Any], delivered: DeliveryReport, before: Mapping[str, OperatorStatus]
) -> BatchProgress:
    """The BatchProgress of a batch, from Spark's report and what was ``delivered`` to each sink.

    Spark counts a source once for every scan of it, so rows are counted by observed metrics instead.
    ``before`` holds the operators' status after the previous batch. In a batch without records and without a
    tick, which Spark runs to close its own windows, no operator of the kernel runs. Each keeps its status.
    """
    observed = report.get("observedMetrics") or {}
    seen_of = {source.name: observed.get(source_count(source.name)) or {} for source in query.sources}
    watermark = (report.get("eventTime") or {}).get("watermark")
    operators = {
        operator.name: _status(seen) if has_run or former is None else former.without_counts()
        for operator in query.operators
        if (seen := observed.get(f"state {operator.name}")) is not None
        for has_run, former in [(seen.get("entries") is not None, before.get(operator.name))]
    }
    reached = [one.watermark for one in operators.values() if one.watermark is not None]
    return BatchProgress(
        query=query.name,
        batch=int(report["batchId"]),
        rows_in=sum(int(seen.get("rows") or 0) for seen in seen_of.values()),
        rejected=sum(int(seen.get("rejected") or 0) for seen in seen_of.values()),
        rows_out=delivered.rows,
        watermark=_moment(min(reached)) if reached else _time(watermark) if watermark else None,
        milliseconds=int((report.get("durationMs") or {}).get("triggerExecution") or 0),
        state_rows=sum(one.entries for one in operators.values())
        or sum(int(state["numRowsTotal"]) for state in report.get("stateOperators") or []),
        steps=delivered.steps,
        repeats=delivered.repeats,
        operators=operators,
        counts=_counts(seen_of, observed, delivered),
        spark={name: float(ms) for name, ms in (report.get("durationMs") or {}).items()},
        windows=_windows(query, report.get("stateOperators") or []),
        samples={
            name: (why, what)
            for name, seen in seen_of.items()
            for why, between, what in [str(seen.get("sample") or "").partition(BETWEEN)]
            if between
        },
        ends=[_document(source.get("endOffset")) for source in report.get("sources") or []],
        moved=any(
            _offsets(source.get("startOffset")) != _offsets(source.get("endOffset"))
            for source in report.get("sources") or []
        ),
    )


def _counts(
    seen_of: dict[str, dict[str, Any]], observed: dict[str, Any], delivered: DeliveryReport
) -> dict[str, int]:
    """Everything that was counted on the way, by the names of counting.py."""
    counts = {sink_count(label): rows for label, rows in delivered.rows.items()}
    for name, seen in seen_of.items():
        rejected = int(seen.get("rejected") or 0)
        counts[source_count(name)] = int(seen.get("rows") or 0) - rejected
        counts[rejected_count(name)] = rejected
    for name, seen in observed.items():
        if name.startswith(f"{PASSED} "):
            for column, rows in seen.items():
                stream = stream_count(column.partition(" ")[2])
                counts[stream] = counts.get(stream, 0) + int(rows or 0)
        elif name.startswith(stream_count("")):
            counts[name] = int(seen.get("rows") or 0)
    return counts


def _windows(query: Query, states: list[dict[str, Any]]) -> dict[str, StoreStatus]:
    """The stores of Spark's own windows. Spark numbers its stores by their place in the plan, which is the
    order of the outputs. Windows that share a store share its figures."""
    own = [state for state in states if "transformWithState" not in str(state.get("operatorName"))]
    shared = [windows for output in query.outputs if (windows := native_windows(output))]
    if len(own) != len(shared):
        return {}
    return {
        window.name: StoreStatus(
            int(state.get("numRowsTotal") or 0),
            int(state.get("memoryUsedBytes") or 0),
            int(state.get("numRowsDroppedByWatermark") or 0),
            len(windows) > 1,
        )
        for windows, state in zip(shared, own, strict=True)
        for window in windows
    }


def _status(seen: dict[str, Any]) -> OperatorStatus:
    watermark = seen.get("watermark")
    return OperatorStatus(
        watermark=None if watermark == NEVER else watermark,
        waits_for=seen.get("waits_for"),
        timer=seen.get("timer"),
        may_move=seen.get("may_move"),
        entries=int(seen.get("entries") or 0),
        bytes=int(seen.get("bytes") or 0),
        **{word: int(seen.get(word) or 0) for word in COUNTED},
    )


def _moment(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1_000_000, UTC)


def _time(text: str) -> datetime | None:
    time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return None if time.year < 1971 else time  # Spark reports 1970 as long as there is none


def _offsets(value: Any) -> Offsets:
    return from_json(_document(value))


def _document(value: Any) -> dict[str, Any]:
    """A source's offsets, which Spark gives as text or parsed; empty for null, before the first batch."""
    found = json.loads(value) if isinstance(value, str) else value
    return found if isinstance(found, dict) else {}


class ProgressListener(StreamingQueryListener):
    """Passes on every progress of ``queries``, which are given by Spark's names for them. ``delivered``
    returns what became of a query's batch."""

    def __init__(
        self,
        queries: Mapping[str, Query],
        delivered: Callable[[str, int], DeliveryReport],
        report: Callable[[BatchProgress], None],
    ) -> None:
        self._queries = queries
        self._delivered = delivered
        self._report = report
        self._operators: dict[str, Mapping[str, OperatorStatus]] = {}  # by query, after its last batch

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's names
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        query = self._queries.get(event.progress.name)
        if query is not None:
            delivered = self._delivered(query.name, event.progress.batchId)
            before = self._operators.get(query.name, {})
            progress = progress_of(query, json.loads(event.progress.json), delivered, before)
            self._operators[query.name] = progress.operators
            self._report(progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass
