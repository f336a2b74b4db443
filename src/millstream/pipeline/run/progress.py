"""Turns Spark's own progress reports into what a running job reports after every batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
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
from millstream.pipeline.formats.decode import BETWEEN
from millstream.pipeline.kernel.channels import COUNTED
from millstream.pipeline.kernel.clock import NEVER
from millstream.pipeline.planning.counting import rejected_count, sink_count, source_count, stream_count
from millstream.pipeline.planning.outputs import tap_windows
from millstream.pipeline.planning.plan import Query
from millstream.pipeline.run.deliver import Delivered
from millstream.pipeline.run.outgoing import PASSED


@dataclass(frozen=True, slots=True)
class OperatorStatus:
    """The status of a stateful operator after a batch, over all its buckets. Times are in microseconds."""

    watermark: int | None  # None: there is none yet
    waits_for: int | None  # the event time at which the next thing is due
    timer: int | None  # the wall-clock time at which the next thing is due
    may_move: int | None  # the wall-clock time at which the watermark may advance without rows
    entries: int  # keys and waiting rows
    bytes: int  # the size of its state as written
    late: int = 0  # rows of this batch that came too late
    ahead: int = 0  # rows of this batch whose time was too far ahead
    failed: int = 0  # records on which a function of the user's failed
    overflow: int = 0  # partial matches that were dropped because their key had too many

    def without_counts(self) -> OperatorStatus:
        """The status after a batch in which the operator did not run."""
        return replace(self, **dict.fromkeys(COUNTED, 0))


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """What Spark stores for one of its own windows, or, if ``shared``, for several together. ``dropped``
    counts groups of rows that came too late."""

    entries: int
    bytes: int
    dropped: int
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """One batch of one query. Unknown figures are None."""

    query: str
    batch: int
    rows_in: int
    rejected: int
    rows_out: dict[str, int]  # by sink, as ``topic alerts`` or ``view blocked_cards``
    watermark: datetime | None
    milliseconds: int
    state_rows: int
    steps: dict[str, float] = field(default_factory=dict)  # milliseconds of each step of the delivery
    repeats: int = 0  # how often its delivery was started again
    operators: dict[str, OperatorStatus] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)  # see counting.py
    lags: dict[str, int] = field(default_factory=dict)  # by topic, at the time of the report
    spark: dict[str, float] = field(default_factory=dict)  # milliseconds of each of Spark's own steps
    windows: dict[str, StoreStatus] = field(default_factory=dict)  # Spark's own windows
    samples: dict[str, tuple[str, str]] = field(default_factory=dict)  # by source: a parse error, its record
    ends: list[dict[str, Any]] = field(default_factory=list)  # where the batch ended in Spark's sources
    moved: bool = True  # False if it read nothing, and was made only because time had passed

    @property
    def lag(self) -> int | None:
        """Records that are in the topics now and not committed yet."""
        return sum(self.lags.values()) if self.lags else None

    @property
    def open_windows(self) -> int:
        """Rows that Spark stores for its own windows."""
        return sum(store.entries for store in self.windows.values())

    @property
    def waits_for(self) -> int | None:
        """The earliest event time that a stateful operator on the kernel waits for."""
        due = [one.waits_for for one in self.operators.values() if one.waits_for is not None]
        return min(due, default=None)

    def line(self, width: int | None = None) -> str:
        """The line that ``millstream run`` prints. If it is wider than the terminal, the sinks are summed."""
        line = self._line(
            ", ".join(f"{name.partition(' ')[2]} {count:,}" for name, count in self.rows_out.items()) or "0"
        )
        if width is not None and len(line) > width:
            line = self._line(f"{sum(self.rows_out.values()):,}")
        return line

    def _line(self, out: str) -> str:
        parts = [f"in {self.rows_in:,}", f"out {out}"]
        if self.rejected:
            parts.append(f"rejected {self.rejected:,}")
        if self.lag is not None:
            parts.append(f"lag {self.lag:,}")
        if self.watermark is not None:
            parts.append(f"watermark {self.watermark:%H:%M:%S}")
        for word in COUNTED:
            count = sum(getattr(one, word) for one in self.operators.values())
            if count:
                parts.append(f"{word} {count:,}")
        if self.operators:
            entries = sum(one.entries for one in self.operators.values())
            size = sum(one.bytes for one in self.operators.values())
            parts.append(f"state {_short(entries, '')} keys {_short(size, ' ')}B")
        parts.append(f"{self.milliseconds:,} ms")
        if self.repeats:
            parts.append(f"run {self.repeats + 1} times")
        return f"{self.query} #{self.batch}  " + "  ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """Every figure, as ``millstream run --progress json`` prints it."""
        return {
            "query": self.query,
            "batch": self.batch,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "rejected": self.rejected,
            "lag": self.lag,
            "lag_by_topic": self.lags,
            "watermark": None if self.watermark is None else self.watermark.isoformat(),
            "milliseconds": self.milliseconds,
            "steps_ms": self.steps,
            "spark_ms": self.spark,
            "runs": self.repeats + 1,
            "operators": {
                name: {
                    "keys": one.entries,
                    "bytes": one.bytes,
                    **{word: getattr(one, word) for word in COUNTED},
                }
                for name, one in self.operators.items()
            },
            "windows": {name: asdict(store) for name, store in self.windows.items()},
        }


def progress_of(
    query: Query, report: dict[str, Any], delivered: Delivered, before: Mapping[str, OperatorStatus]
) -> Progress:
    """The Progress of a batch, from Spark's report and what was ``delivered`` to each sink.

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
    return Progress(
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
    seen_of: dict[str, dict[str, Any]], observed: dict[str, Any], delivered: Delivered
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
    order of the taps. Windows that share a store share its figures."""
    own = [state for state in states if "transformWithState" not in str(state.get("operatorName"))]
    shared = [windows for tap in query.taps if (windows := tap_windows(tap))]
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


def _short(number: int, space: str) -> str:
    """A number in three digits, which are enough: ``550k``."""
    amount = float(number)
    for unit in ("", "k", "M", "G"):
        if amount < 999.5 or unit == "G":
            break
        amount /= 1000
    return f"{amount:.3g}{space}{unit}"


def _time(text: str) -> datetime | None:
    time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return None if time.year < 1971 else time  # Spark reports 1970 as long as there is none


def _offsets(value: Any) -> Offsets:
    return from_json(_document(value))


def _document(value: Any) -> dict[str, Any]:
    """A source's offsets, which Spark gives as text or parsed; empty for null, before the first batch."""
    found = json.loads(value) if isinstance(value, str) else value
    return found if isinstance(found, dict) else {}


class Listener(StreamingQueryListener):
    """Passes on every progress of ``queries``, which are given by Spark's names for them. ``delivered``
    returns what became of a query's batch."""

    def __init__(
        self,
        queries: Mapping[str, Query],
        delivered: Callable[[str, int], Delivered],
        report: Callable[[Progress], None],
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
