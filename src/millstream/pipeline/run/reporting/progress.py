"""What a running job reports after every batch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from millstream.pipeline.kernel.channels import COUNTED


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
    duplicates: int = 0  # events that came again

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
class BatchProgress:
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
        """The line that ``millstream run`` prints. If it is wider than ``width``, less is said: the sinks are
        summed, then state and watermark are left out, then numbers are rounded and everything that was not
        processed is summed. The query's name is shortened last."""
        line = ""
        for detail in _DETAILS:
            line = self._line(detail)
            if width is None or len(line) <= width:
                return line
        name, rest = self.query, line.removeprefix(self.query)
        assert width is not None
        return f"{name[: max(4, width - len(rest) - 1)]}…{rest}"[:width]

    def _line(self, detail: _Detail) -> str:
        def number(amount: int) -> str:
            return _short(amount, "") if detail.short else f"{amount:,}"

        sinks = [f"{name.partition(' ')[2]} {rows:,}" for name, rows in self.rows_out.items()]
        out = ", ".join(sinks) or "0" if detail.sinks else number(sum(self.rows_out.values()))
        odd = {
            "rejected": self.rejected,
            **{word: sum(getattr(one, word) for one in self.operators.values()) for word in COUNTED},
        }
        parts = [f"in {number(self.rows_in)}", f"out {out}"]
        if detail.short and any(odd.values()):
            parts.append(f"left out {number(sum(odd.values()))}")
        elif self.rejected:
            parts.append(f"rejected {self.rejected:,}")
        if self.lag is not None:
            parts.append(f"lag {number(self.lag)}")
        if self.watermark is not None and detail.watermark:
            parts.append(f"watermark {self.watermark:%H:%M:%S}")
        if not detail.short:
            parts += [f"{word} {odd[word]:,}" for word in COUNTED if odd[word]]
        if self.operators and detail.state:
            entries = sum(one.entries for one in self.operators.values())
            size = sum(one.bytes for one in self.operators.values())
            parts.append(f"state {_short(entries, '')} keys {_short(size, ' ')}B")
        parts.append(f"{number(self.milliseconds)} ms")
        if self.repeats:
            parts.append(f"run {self.repeats + 1}{'x' if detail.short else ' times'}")
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


class _Detail(NamedTuple):
    """How much a line says."""

    sinks: bool = True
    state: bool = True
    watermark: bool = True
    short: bool = False


_DETAILS = (
    _Detail(),
    _Detail(sinks=False),
    _Detail(sinks=False, state=False),
    _Detail(sinks=False, state=False, watermark=False),
    _Detail(sinks=False, state=False, watermark=False, short=True),
)


def _short(number: int, space: str) -> str:
    """A number in three digits, which are enough: ``550k``."""
    amount = float(number)
    for unit in ("", "k", "M", "G"):
        if amount < 999.5 or unit == "G":
            break
        amount /= 1000
    return f"{amount:.3g}{space}{unit}"
