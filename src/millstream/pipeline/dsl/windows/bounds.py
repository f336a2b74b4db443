"""The declaration of a window: keys, bounds, when results come, and the checks that need nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.core.errors import TopologyError
from millstream.core.units import DurationError, duration_ms, exact_duration
from millstream.pipeline.dsl.expressions import output_name

ENGINES = ("kernel", "native")


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Keys and bounds of a window: a size and perhaps a slide, a session's gap, or what opens a session."""

    by: tuple[str, ...]
    emit: str  # update or final
    size_ms: int | None = None
    every_ms: int | None = None
    each_event: bool = False  # it moves with every event
    gap_ms: int | None = None
    opens: str | None = None
    closes: str | None = None
    timeout_ms: int | None = None
    timeout_from: str = "last"
    retract: bool = False
    engine: str | None = None  # kernel or native, if the user has chosen one

    def describe(self) -> str:
        return f"{self._bounds()} by {', '.join(self.by)}"

    def _bounds(self) -> str:
        if self.opens is not None:
            until = f" until {self.closes}" if self.closes is not None else ""
            after = f"{exact_duration(self.timeout_ms or 0)} after the {self.timeout_from} event"
            return f"sessions from {self.opens}{until}, at most {after},"
        if self.gap_ms is not None:
            return f"sessions, gap {exact_duration(self.gap_ms)}"
        size = exact_duration(self.size_ms or 0)
        if self.each_event:
            return f"{size} with every event"
        return size if self.every_ms is None else f"{size} every {exact_duration(self.every_ms)}"

    def only_kernel(self) -> str | None:
        """Why Spark itself does not have this kind of window; None if it does."""
        if self.each_event:
            return "it moves with every event"
        if self.opens is not None:
            return "an event opens its sessions"
        if self.gap_ms is not None and self.emit == "update":
            return "its sessions are shown before they have ended"
        if self.retract:
            return "its results are taken back"
        return None


def check_window(
    at: str,
    *,
    by: str | Sequence[str],
    size: str | None = None,
    every: str | None = None,
    gap: str | None = None,
    opens: str | None = None,
    closes: str | None = None,
    timeout: str | None = None,
    timeout_from: str | None = None,
    emit: str | None = None,
    retract: bool = False,
    engine: str | None = None,
) -> WindowSpec:
    """The window that was declared. Raises TopologyError if the arguments don't make sense."""

    def wrong(text: str) -> TopologyError:
        return TopologyError(text, where=at)

    keys = (by,) if isinstance(by, str) else tuple(by)
    if not keys:
        raise wrong("window(by=...) needs at least one column to group by")
    for key in keys:
        if output_name(key) is None:
            raise wrong(f"give the key {key!r} a name: {key + ' AS name'!r}")
    if sum(given is not None for given in (size, gap, opens)) != 1:
        raise wrong(
            "a window has either size= (tumbling; with every=, hopping, or moving with every event), gap="
            " (sessions) or opens= (sessions that an event opens)"
        )
    if every is not None and size is None:
        raise wrong("every= requires size=; a session has no slide")
    if opens is None and (closes or timeout or timeout_from):
        raise wrong("closes=, timeout= and timeout_from= require opens=, the condition that opens a session")
    if opens is not None and timeout is None:
        raise wrong("a session that an event opens needs timeout=, or it might stay open forever")
    if timeout_from not in (None, "first", "last"):
        raise wrong(
            "timeout_from= must be 'first' or 'last', the event that the timeout starts from, not"
            f" {timeout_from!r}"
        )
    if engine is not None and engine not in ENGINES:
        raise wrong(f"engine= must be 'kernel' or 'native' (Spark's own aggregation), not {engine!r}")
    each_event = every == "event"
    try:
        ms = {
            name: None if text is None or (name == "every" and each_event) else duration_ms(text)
            for name, text in (("size", size), ("every", every), ("gap", gap), ("timeout", timeout))
        }
    except DurationError as error:
        raise wrong(str(error)) from None
    if ms["size"] is not None and ms["every"] is not None and ms["every"] > ms["size"]:
        raise wrong(
            f"every={every!r} is longer than size={size!r}: events between two windows would be in none"
        )
    if each_event and (emit is not None or retract):
        raise wrong("with every='event' each event has one final result: leave out emit= and retract=")
    sessions = gap is not None or opens is not None
    chosen = emit or ("update" if retract or not (sessions or each_event) else "final")
    if chosen not in ("update", "final"):
        raise wrong(f"emit= must be 'update' or 'final', not {emit!r}")
    if retract and chosen == "final":
        raise wrong("final results are never retracted: retract=True requires emit='update'")
    spec = WindowSpec(
        keys,
        chosen,
        ms["size"],
        ms["every"],
        each_event,
        ms["gap"],
        opens,
        closes,
        ms["timeout"],
        timeout_from or "last",
        bool(retract),
        engine,
    )
    if engine == "native" and (why := spec.only_kernel()) is not None:
        raise wrong(f"engine='native': Spark has no such window, because {why}; leave out engine=")
    return spec
