"""What declarations of a topology are made of, and the checks that need nothing but the declaration."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from millstream.errors import TopologyError
from millstream.pipeline.expressions import ExpressionError, duration_ms, duration_text, output_name
from millstream.pipeline.kernel.clock import TimeRules

_HERE = str(Path(__file__).parent)
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_STATE = re.compile(r"memory|disk|postgres(ql)?://.+|cassandra://[^/]+/\w+(\?.*)?")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]B)")
_BYTES = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_TABLE = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,62}")


def caller() -> str:
    """``file:line`` of the user's code that is calling us."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return f"{shown(frame.f_code.co_filename)}:{frame.f_lineno}"


def shown(filename: str) -> str:
    """A path as the user would type it here."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def check_topic(topic: object, at: str) -> None:
    """Kafka's rule for names."""
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise TopologyError(
            f"{topic!r} can't be a topic's name: up to 249 of letters, digits, '.', '_' and '-'", where=at
        )


def check_view(name: object, at: str) -> None:
    """What can be a table's name and is not one of our own."""
    fits = isinstance(name, str) and _TABLE.fullmatch(name)
    if not fits or str(name).lower().startswith(("sqlite_", "millstream_")):
        raise TopologyError(
            f"{name!r} can't be a view's name: letters, digits and _, not starting with a digit, sqlite_ or"
            " millstream_",
            where=at,
        )


def check_state(state: object, at: str) -> str:
    """Where state is kept."""
    if not isinstance(state, str) or not _STATE.fullmatch(state):
        raise TopologyError(
            f"state={state!r} is not 'memory', 'disk', 'postgresql://user@host/database' or"
            " 'cassandra://host/keyspace'",
            where=at,
        )
    return state


def check_size(name: str, size: object, at: str) -> int | None:
    """Bytes of ``500 MB`` or ``2 GB``."""
    if size is None:
        return None
    match = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    if match is None or float(match[1]) == 0:
        raise TopologyError(f"{name}={size!r} is not a size; write it as '500 MB' or '2 GB'", where=at)
    return int(float(match[1]) * _BYTES[match[2].upper()])


@dataclass(frozen=True, slots=True)
class Time:
    """Which time a stream goes by, in which column, and how late an event may come."""

    kind: str  # event, log or processing
    column: str
    lateness_ms: int = 0
    idle_after_ms: int | None = None  # how long a quiet partition is waited for
    ahead_ms: int | None = None  # how far in the future a time may be
    origin: str | None = None  # of a result: the column that the time of its events was in
    before_us: int = 0  # a result is so much older than its column says: a window's end is not in it

    @property
    def basis(self) -> str:
        """As results name it."""
        return f"event time ({self.origin or self.column})" if self.kind == "event" else f"{self.kind} time"

    @property
    def rules(self) -> TimeRules:
        def micros(ms: int | None) -> int | None:
            return None if ms is None else 1000 * ms

        return TimeRules(1000 * self.lateness_ms, micros(self.idle_after_ms), micros(self.ahead_ms))

    @property
    def sql(self) -> str:
        """The time of a row, as a timestamp."""
        if not self.before_us:
            return f"`{self.column}`"
        return f"(`{self.column}` - INTERVAL '{self.before_us}' MICROSECOND)"

    def of_results(self, column: str, *, before_us: int = 0) -> Time:
        """The time that results of a stateful operator go by: all stragglers have been waited for."""
        return Time(self.kind, column, origin=self.origin or self.column, before_us=before_us)


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Keys and bounds of a window: a size and perhaps a slide, or the gap of a session."""

    by: tuple[str, ...]
    size_ms: int | None
    every_ms: int | None
    gap_ms: int | None
    emit: str  # update or final

    def describe(self) -> str:
        if self.gap_ms is not None:
            text = f"sessions, gap {duration_text(self.gap_ms)}"
        else:
            text = duration_text(self.size_ms or 0)
            if self.every_ms is not None:
                text += f" every {duration_text(self.every_ms)}"
        return f"{text} by {', '.join(self.by)}"


def check_window(
    by: str | Sequence[str], size: str | None, every: str | None, gap: str | None, emit: str | None, at: str
) -> WindowSpec:
    keys = (by,) if isinstance(by, str) else tuple(by)
    if not keys:
        raise TopologyError("window(by=...) needs at least one column to group by", where=at)
    for key in keys:
        if output_name(key) is None:
            raise TopologyError(f"give the key {key!r} a name: {key + ' AS name'!r}", where=at)
    if every == "event":
        raise TopologyError(
            "a window that moves with every event (every='event') is not in this version;"
            " a hopping window, for example every='10 seconds', comes near",
            where=at,
        )
    if (size is None) == (gap is None):
        raise TopologyError(
            "a window has either size= (tumbling; with every=, hopping) or gap= (sessions)", where=at
        )
    if every is not None and size is None:
        raise TopologyError("every= goes with size=; a session has only its gap=", where=at)
    try:
        size_ms = duration_ms(size) if size is not None else None
        every_ms = duration_ms(every) if every is not None else None
        gap_ms = duration_ms(gap) if gap is not None else None
    except ExpressionError as error:
        raise TopologyError(str(error), where=at) from None
    if size_ms is not None and every_ms is not None and every_ms > size_ms:
        raise TopologyError(
            f"every={every!r} is longer than size={size!r}: events in between would be in no window",
            where=at,
        )
    chosen = emit or ("final" if gap is not None else "update")
    if chosen not in ("update", "final"):
        raise TopologyError(f"emit= is 'update' or 'final', not {emit!r}", where=at)
    if gap is not None and chosen != "final":
        raise TopologyError("a session is known only when it has ended: emit='final'", where=at)
    return WindowSpec(keys, size_ms, every_ms, gap_ms, chosen)
