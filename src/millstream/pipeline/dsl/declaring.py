"""What the declarations of a topology have in common, and the checks that need only the declaration."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, FunctionType

from millstream.core.errors import TopologyError
from millstream.pipeline.kernel.clock import TimeRules

_HERE = str(Path(__file__).parents[1])
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_STATE = re.compile(r"memory|disk|postgres(ql)?://.+|cassandra://[^/]+/\w+(\?.*)?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]B)")
_BYTES = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
ON_ERROR = ("fail", "channel")
_TABLE = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,62}")


def caller() -> str:
    """``file:line`` of the user's code that called into this package."""
    frame = _calling_frame()
    return f"{shown(frame.f_code.co_filename)}:{frame.f_lineno}"


def calling_module() -> str:
    """The name of the user's module that called into this package."""
    return str(_calling_frame().f_globals.get("__name__", ""))


def _calling_frame() -> FrameType:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return frame


def shown(filename: str) -> str:
    """A path as the user would type it in the current directory."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def check_topic(topic: object, at: str) -> None:
    """Refuses names that Kafka does not allow."""
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise TopologyError(
            f"{topic!r} can't be a topic's name: use at most 249 letters, digits, '.', '_' and '-'", where=at
        )


def check_view(name: object, at: str) -> None:
    """Refuses names that can't be a table's, or that are reserved."""
    fits = isinstance(name, str) and _TABLE.fullmatch(name)
    if not fits or str(name).lower().startswith(("sqlite_", "millstream_")):
        raise TopologyError(
            f"{name!r} can't be a view's name: use letters, digits and _; it can't start with a digit,"
            " sqlite_ or millstream_",
            where=at,
        )


def check_function(function: object, at: str) -> tuple[FunctionType, str]:
    """Checks a user's operator. Returns it and the line where it is defined."""
    if not isinstance(function, FunctionType):
        raise TopologyError(
            f"an operator is a function that takes and returns a DataFrame; this is {function!r}", where=at
        )
    code = function.__code__
    at = f"{shown(code.co_filename)}:{code.co_firstlineno}"
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise TopologyError(
            f"operator {function.__name__!r} can't be async or a generator: it is called once, to plan the"
            " job",
            where=at,
        )
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise TopologyError(
            f"operator {function.__name__!r} must take one argument, the DataFrame", where=at
        ) from None
    return function, at


def check_on_error(on_error: object, at: str) -> None:
    if on_error not in ON_ERROR:
        raise TopologyError(
            f"on_error={on_error!r} is not 'fail' (the job stops) or 'channel' (the record goes to .failed)",
            where=at,
        )


def check_state(state: object, at: str) -> str:
    """Checks where state is to be kept."""
    if not isinstance(state, str) or not _STATE.fullmatch(state):
        raise TopologyError(
            f"state={state!r} is not 'memory', 'disk', 'postgresql://user@host/database' or"
            " 'cassandra://host/keyspace'",
            where=at,
        )
    return state


def check_size(name: str, size: object, at: str) -> int | None:
    """The bytes in ``500 MB`` or ``2 GB``."""
    if size is None:
        return None
    match = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    if match is None or float(match[1]) == 0:
        raise TopologyError(f"{name}={size!r} is not a size; write it as '500 MB' or '2 GB'", where=at)
    return int(float(match[1]) * _BYTES[match[2].upper()])


@dataclass(frozen=True, slots=True)
class StreamTime:
    """The time that a stream goes by: its kind, its column, and how late an event may come."""

    kind: str  # event, log or processing
    column: str
    lateness_ms: int = 0
    idle_after_ms: int | None = None  # how long the watermark waits for a quiet partition
    ahead_ms: int | None = None  # how far in the future a time may be
    origin: str | None = None  # for results: the column that held the time of their events
    before_us: int = 0  # a result is this much older than its column says: a window's end is not in it
    behind_us: int = 0  # and may be this much older than the operator's watermark: rows that waited in vain

    @property
    def basis(self) -> str:
        """The name of this time in results."""
        return f"event time ({self.origin or self.column})" if self.kind == "event" else f"{self.kind} time"

    @property
    def rules(self) -> TimeRules:
        def micros(ms: int | None) -> int | None:
            return None if ms is None else 1000 * ms

        return TimeRules(1000 * self.lateness_ms, micros(self.idle_after_ms), micros(self.ahead_ms))

    @property
    def sql(self) -> str:
        """The SQL of a row's time, as a timestamp."""
        if not self.before_us:
            return f"`{self.column}`"
        return f"(`{self.column}` - INTERVAL '{self.before_us}' MICROSECOND)"

    @property
    def mark_us(self) -> int:
        """What to add to an operator's watermark to get that of its results, in their time column."""
        return self.before_us - self.behind_us

    def of_results(self, column: str, *, before_us: int = 0, behind_us: int = 0) -> StreamTime:
        """The time of a stateful operator's results. It has no lateness: the operator has waited."""
        origin = self.origin or self.column
        return StreamTime(self.kind, column, origin=origin, before_us=before_us, behind_us=behind_us)
