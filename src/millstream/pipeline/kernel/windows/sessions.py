"""Session windows: a key's events that belong together, by gaps or by conditions that open and close.

Rules:

- Events are taken in time order, so a session grows only at its end.
- *By gap*: an event belongs to its key's session if it is no further than the gap from the session's last
  event. Otherwise it begins a new session. A session ends one gap after its last event, and is over when
  the watermark has passed that.
- *By condition*: an event for which ``opens`` is true begins a session if its key has none. All events of
  the key belong to it, whether they match or not, until one for which ``closes`` is true, which belongs
  to it too, or until the timeout, counted from the first or from the last event. A session that times out
  is over before anything that happens at that time. Events of a key that has no session are outside.

Theory of operation. A batch is cut into *pieces*: consecutive events of a key that belong to one session.
By gap, numpy does that; by condition, a loop over the events that does nothing else. A session has at most
one piece in a batch. Aggregates compute a partial of every piece at once. Each partial is then merged into
the session that was open, or begins a new one. One open session is kept for each key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from millstream.pipeline.kernel.channels import OUTSIDE
from millstream.pipeline.kernel.clock import OperatorClock
from millstream.pipeline.kernel.grouping import RowGroups, check_keys, codes, key_tuples
from millstream.pipeline.kernel.program import MAIN, Events, ProgramOutput, shown
from millstream.pipeline.kernel.state.containers import Keyed
from millstream.pipeline.kernel.state.store import StateStore
from millstream.pipeline.kernel.windows.aggregates import Aggregates
from millstream.pipeline.kernel.windows.calls import Call
from millstream.pipeline.kernel.windows.results import ClosedWindow, Windowing


@dataclass(frozen=True, slots=True)
class Sessions(Windowing):
    """The plan: either a gap, or the column of the condition that opens, and a timeout."""

    in_order: ClassVar[bool] = True

    keys: int
    calls: tuple[Call, ...]
    basis: str
    final: bool
    retract: bool
    what: str
    gap: int | None = None
    opens: str | None = None
    closes: str | None = None
    timeout: int = 0
    from_first: bool = False
    outside: bool = False  # True if events outside sessions are wanted

    def channels(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        (schema,) = inputs
        check_keys(schema, self.keys)
        for condition in (self.opens, self.closes):
            if condition is not None and not pa.types.is_boolean(schema.field(condition).type):
                raise ValueError(f"{self.what}: a condition is not boolean")
        found = {MAIN: self.results(schema).schema}
        if self.outside:
            found[OUTSIDE] = pa.schema([schema.field(name) for name in shown(schema.names)])
        return found

    def program(self, inputs: Sequence[pa.Schema]) -> SessionsProgram:
        return SessionsProgram(self, inputs[0])


class Session(NamedTuple):
    """An open session: its start, its end if nothing more comes, the state of its aggregates, and the
    result last shown for it."""

    start: int
    end: int
    state: tuple[Any, ...]
    shown: tuple[Any, ...] | None = None


class Piece(NamedTuple):
    """Events ``low`` to ``high`` in the order of key and time. ``start`` is None if they belong to the
    session that was already open. ``end`` is the session's end now; ``over`` is True if it is over."""

    key: tuple[Any, ...]
    low: int
    high: int
    start: int | None
    end: int
    over: bool


class SessionsProgram:
    def __init__(self, plan: Sessions, schema: pa.Schema) -> None:
        self._plan = plan
        self._aggregates = Aggregates(plan.calls, schema)
        self._results = plan.results(schema)
        self._shown = shown(schema.names)
        # An event exactly one gap after the last still belongs to the session; one at the timeout does not.
        self._after = 1 if plan.gap is not None else 0

    def open(self, store: StateStore) -> None:
        self._sessions: Keyed[tuple[Any, ...], tuple[Any, ...]] = store.keyed("sessions")

    def events(self, events: Events, clock: OperatorClock, out: ProgramOutput) -> None:
        keys = self._plan.keys
        table = events.tables[0].take(pa.array(events.index))
        groups = RowGroups(codes([table.column(number) for number in range(keys)]))
        of_groups = key_tuples(table, keys, groups.any_row)
        table, time = table.take(pa.array(groups.order)), events.time[groups.order]
        if self._plan.gap is not None:
            pieces = self._cut_at_gaps(self._plan.gap, of_groups, groups, time)
        else:
            pieces = self._cut_by_condition(of_groups, groups, time, table, out)
        if pieces:
            self._add(pieces, table, time, out)

    # ---- where sessions begin and end -----------------------------------------------------------------

    def _cut_at_gaps(
        self, gap: int, keys: list[tuple[Any, ...]], groups: RowGroups, time: Any
    ) -> list[Piece]:
        begins = np.zeros(len(time), bool)
        begins[1:] = np.diff(time) > gap
        begins[groups.lo] = True
        self._sessions.fetch(keys)
        lows = np.flatnonzero(begins)
        highs = np.append(lows[1:], len(time))
        of_piece = (np.cumsum(np.bincount(groups.lo, minlength=len(time))) - 1)[lows].tolist()
        pieces = []
        before = -1
        firsts, lasts = time[lows].tolist(), time[highs - 1].tolist()
        for number, low, high, first, last in zip(
            of_piece, lows.tolist(), highs.tolist(), firsts, lasts, strict=True
        ):
            key = keys[number]
            known = self._sessions.get(key) if number != before else None
            goes_on = known is not None and first <= known[1]
            pieces.append(Piece(key, low, high, None if goes_on else first, last + gap, False))
            before = number
        return pieces

    def _cut_by_condition(
        self, keys: list[tuple[Any, ...]], groups: RowGroups, time: Any, table: pa.Table, out: ProgramOutput
    ) -> list[Piece]:
        plan = self._plan
        assert plan.opens is not None
        timeout, from_first = plan.timeout, plan.from_first
        times, opens = time.tolist(), _flags(table, plan.opens)
        closes = [False] * len(times) if plan.closes is None else _flags(table, plan.closes)
        pieces: list[Piece] = []
        outside: list[int] = []
        self._sessions.fetch(keys)
        for key, low, high in zip(keys, groups.lo.tolist(), groups.hi.tolist(), strict=True):
            known = self._sessions.get(key)
            end: int | None = None if known is None else known[1]  # None: no session is open
            start: int | None = None
            first = low  # of the piece
            for at in range(low, high):
                now = times[at]
                if end is not None and now >= end:
                    if at > first:
                        pieces.append(Piece(key, first, at, start, end, False))
                    end = None
                if end is None:
                    first = at
                    if not opens[at]:
                        outside.append(at)
                        first = at + 1
                        continue
                    start, end = now, now + timeout
                elif not from_first:
                    end = now + timeout
                if closes[at]:
                    pieces.append(Piece(key, first, at + 1, start, now, True))
                    end, first = None, at + 1
            if end is not None and high > first:
                pieces.append(Piece(key, first, high, start, end, False))
        if plan.outside and outside:
            out.table(OUTSIDE, table.select(self._shown).take(pa.array(outside)))
        return pieces

    # ---- what is in them ------------------------------------------------------------------------------

    def _add(self, pieces: list[Piece], table: pa.Table, time: Any, out: ProgramOutput) -> None:
        lows, highs = (np.array([piece[at] for piece in pieces]) for at in (1, 2))
        ranks = [(one,) for one in time.tolist()] if self._aggregates.ordered else []
        partials = self._aggregates.partials(table, lows, highs, ranks)
        sessions, fold, final = self._sessions, self._aggregates.fold, self._plan.final
        closed: list[ClosedWindow] = []
        changed: list[ClosedWindow] = []
        were: list[tuple[Any, ...] | None] = []
        still: dict[tuple[Any, ...], tuple[int, Session]] = {}  # sessions that stay open
        for piece, partial in zip(pieces, partials, strict=True):
            key = piece.key
            known = sessions.get(key)
            if piece.start is None:
                assert known is not None
                start, _, state, was = known
                state = fold(state, partial)
            else:
                if known is not None and final:
                    closed.append((key, known[0], known[1], known[2]))
                start, state, was = piece.start, fold(None, partial), None
            now = Session(start, piece.end, state, was)
            if final:
                if piece.over:
                    closed.append((key, start, piece.end, state))
            else:
                still[key] = len(changed), now
                changed.append((key, start, piece.end, state))
                were.append(was)
            if piece.over:
                sessions.remove(key)
                still.pop(key, None)
            else:
                sessions.put(key, tuple(now), piece.end + self._after)
        self._results.final(closed, out)
        if changed:
            self._update(changed, were, still, out)

    def _update(
        self,
        changed: list[ClosedWindow],
        were: list[tuple[Any, ...] | None],
        still: Mapping[tuple[Any, ...], tuple[int, Session]],
        out: ProgramOutput,
    ) -> None:
        if not self._plan.retract:
            self._results.final(changed, out)
            return
        now = self._results.updated(changed, were, out)
        for key, (number, session) in still.items():
            self._sessions.put(key, tuple(session._replace(shown=now[number])), session.end + self._after)

    def advance(self, clock: OperatorClock, out: ProgramOutput) -> None:
        over = self._sessions.take_due(clock.watermark)
        if self._plan.final:
            self._results.final([(key, known[0], known[1], known[2]) for _, key, known in over], out)

    def next_due(self) -> int | None:
        return self._sessions.next_due()

    def next_timer(self) -> int | None:
        return None


def _flags(table: pa.Table, name: str) -> list[bool]:
    flags: list[bool] = table[name].combine_chunks().fill_null(False).to_pylist()
    return flags
