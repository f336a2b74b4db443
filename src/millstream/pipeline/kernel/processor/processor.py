"""Runs the user's own processor on the kernel: a function of an event, its key's state, and timers.

Rules:

1. Events of a key are processed one after another in time order, with timers in between. A timer fires
   before the events of the time at which it is due, and after all older ones. Timers due at one time fire
   by name.
2. A timer has a name. A key has one timer for a name and a clock: setting it again moves it. A timer that
   is set for a past time is due at once. A timer that sets a timer must set it for later.
3. Wall-clock timers fire with the first batch after their time.
4. A key's state is one plain value. It is kept until it is None, or until nothing has come for the key
   for as long as ``ttl`` says. Timers outlive it.
5. What a function did before it failed is undone: state, timers and emitted rows.

Theory of operation. States are stored as pickles, so state that a batch does not touch costs nothing, and
nothing can change it by accident. Small numbers and texts are stored as they are. A batch unpickles the
state of a key when it first needs it and pickles it once at its end.
"""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa

from millstream.core.errors import TopologyError
from millstream.core.units import duration_ms
from millstream.pipeline.kernel.channels import FAILED
from millstream.pipeline.kernel.clock import ALWAYS, NEVER, OperatorClock
from millstream.pipeline.kernel.event import MICROSECOND, event_type, micros, moment
from millstream.pipeline.kernel.processor.emitting import RowMaker
from millstream.pipeline.kernel.program import MAIN, Events, ProgramOutput
from millstream.pipeline.kernel.python_values import values_of
from millstream.pipeline.kernel.state.store import StateStore
from millstream.pipeline.kernel.user_failures import FAILED_COLUMNS, RecordFailed, line, reason, shortened

EVENT, PROCESSING = "event", "processing"
CLOCKS = (EVENT, PROCESSING)
MOST_TIMERS = 1000  # per key
_SHORT = 200  # texts of up to this many characters are stored as they are
_ERROR_TIMER = pa.field("error_timer", pa.string())
_RECORD = (pa.field("stream", pa.string()), pa.field("record", pa.string()))
STATES = "state"  # the container of the keys' states, which are pickles
_MISSING = object()
_UNCHANGING = (type(None), int, float, str, bool, bytes)

Key = tuple[Any, ...]


@dataclass(frozen=True)
class ProcessorPlan:
    """A processor as it was declared. ``processor`` is an instance, or a class to instantiate."""

    processor: Any
    output: pa.Schema
    others: Mapping[str, pa.Schema]  # by channel
    keys: int
    streams: tuple[str, ...]
    at: str
    ttl: int | None = None
    ttl_clock: str = EVENT
    time: str | None = None  # the output column that is filled with the time
    max_state_bytes: int = 1_000_000
    to_channel: bool = False
    on_timers: bool = True  # True if it handles timers

    in_order: ClassVar[bool] = True

    def channels(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        keys = list(inputs[0])[: self.keys]
        for key in keys:
            if pa.types.is_nested(key.type):
                raise TopologyError(
                    f"the key {key.name!r} is {key.type}; a key must be a plain value", where=self.at
                )
        found = {MAIN: self.output, **self.others}
        if self.to_channel:
            own = list(inputs[0])[self.keys :] if len(inputs) == 1 else _RECORD
            found[FAILED] = pa.schema([*keys, *own, *FAILED_COLUMNS, _ERROR_TIMER])
        return found

    def program(self, inputs: Sequence[pa.Schema]) -> ProcessorProgram:
        return ProcessorProgram(self, inputs)

    @property
    def version(self) -> int:
        return int(self.processor.version)

    @property
    def user_code(self) -> tuple[Any, ...]:
        """The user's own code that the plan contains."""
        return (self.processor if isinstance(self.processor, type) else type(self.processor),)

    def shape(self) -> Mapping[str, object]:
        (made,) = self.user_code
        return {
            "processor": made.__qualname__,
            "version": self.version,
            "migrates": hasattr(made, "migrate"),
            "ttl_clock": self.ttl_clock,
        }

    def describe(self) -> str:
        made = self.processor if isinstance(self.processor, type) else type(self.processor)
        return str(made.__name__)


class Timer(NamedTuple):
    """A timer that is due."""

    name: str
    time: datetime
    clock: str


class Context:
    """What a processor can do for the current key: use its state, set timers, and emit rows."""

    __slots__ = ("_asked", "_clock", "_given", "_key", "_makers", "_on_timers", "_time", "_timer", "state")

    def __init__(self, makers: Mapping[str, RowMaker], on_timers: bool) -> None:
        self.state: Any = None
        self._on_timers = on_timers
        self._makers = makers
        self._given: list[tuple[str, tuple[Any, ...]]] = []
        self._asked: list[tuple[str, str, int | None]] = []
        self._key: Key = ()
        self._time = NEVER
        self._timer: str | None = None  # the clock of the timer that fired; None for an event
        self._clock: OperatorClock

    @property
    def key(self) -> Any:
        """The key; a tuple if it has several columns."""
        return self._key[0] if len(self._key) == 1 else self._key

    @property
    def time(self) -> datetime | None:
        """The time of the event or of the timer; None if there is no time yet."""
        return None if self._time == NEVER else moment(self._time)

    @property
    def now(self) -> datetime:
        """The wall-clock time. Results that depend on it may change when they are computed again."""
        return moment(self._clock.now)

    @property
    def watermark(self) -> datetime | None:
        """The operator's watermark; like ``now``, it may be different when results are computed again."""
        return None if self._clock.watermark == NEVER else moment(self._clock.watermark)

    def emit(self, row: Mapping[str, Any] | None = None, /, **columns: Any) -> None:
        """Emit a row. Columns that are left out are null, except the key's, which are filled in."""
        given = columns if row is None else {**row, **columns}
        time = None if self._time == NEVER else self._time
        self._given.append((MAIN, self._makers[MAIN].row(given, self._key, time)))

    def emit_to(self, channel: str, row: Mapping[str, Any] | None = None, /, **columns: Any) -> None:
        """Emit a row on a channel."""
        if channel == MAIN or channel not in self._makers:
            there = ", ".join(name for name in self._makers if name != MAIN)
            raise KeyError(
                f"there is no channel {channel!r} in channels=; the channels are {there or 'none'}"
            )
        given = columns if row is None else {**row, **columns}
        time = None if self._time == NEVER else self._time
        self._given.append((channel, self._makers[channel].row(given, self._key, time)))

    def timer(
        self,
        at: datetime | None = None,
        *,
        after: timedelta | str | None = None,
        name: str = "",
        clock: str = EVENT,
    ) -> None:
        """Have ``on_timer`` called at a time, or some time after the present."""
        present = self._present(clock)
        if not self._on_timers:
            raise NotImplementedError("a timer was set, but the class has no on_timer(self, timer, context)")
        if (at is None) == (after is None):
            raise TypeError("a timer needs either a time, at=, or a delay, after=")
        if at is not None:
            due = micros(at)
        elif present == NEVER:
            raise ValueError("after= needs a current time, and no event has set one yet")
        else:
            due = present + (_span(after) if isinstance(after, str) else after // MICROSECOND)  # type: ignore[operator]
        if self._timer == clock and due <= present:
            raise ValueError(
                f"a timer set by a timer must be due later, or it would never end: {moment(due)} is not later"
            )
        self._asked.append((clock, str(name), max(due, present)))

    def cancel(self, name: str = "", *, clock: str = EVENT) -> None:
        """Cancel a timer; nothing happens if there is none."""
        self._present(clock)
        self._asked.append((clock, str(name), None))

    def _present(self, clock: str) -> int:
        if clock not in CLOCKS:
            raise ValueError(f"clock={clock!r} is not 'event' or 'processing'")
        return self._time if clock == EVENT else self._clock.now


class ProcessorProgram:
    """A processor running in one bucket."""

    def __init__(self, plan: ProcessorPlan, inputs: Sequence[pa.Schema]) -> None:
        self._plan = plan
        self._processor = plan.processor() if isinstance(plan.processor, type) else plan.processor
        self._names = [schema.names for schema in inputs]
        self._key_names = inputs[0].names[: plan.keys]
        self._types: list[Any] = [
            event_type(schema.names, stream) for schema, stream in zip(inputs, plan.streams, strict=True)
        ]
        places = {name: place for place, name in enumerate(self._key_names)}
        makers = {MAIN: RowMaker(plan.output, places, plan.time)}
        makers |= {name: RowMaker(schema, places, None) for name, schema in plan.others.items()}
        self._context = Context(makers, plan.on_timers)
        self._live: dict[Key, Any] = {}  # the states that this batch uses, as they are now
        self._ends: dict[Key, int] = {}  # and when they expire
        self._due = ALWAYS  # the next event-time timer

    def open(self, store: StateStore) -> None:
        self._states = store.keyed(STATES)
        self._timers = {EVENT: store.keyed("timers"), PROCESSING: store.keyed("alarms")}
        self._about = store.in_memory("about")
        self._due = self._next(EVENT)

    def _migrate(self) -> None:
        """Migrate all states of another version to this one, at once."""
        version = self._plan.version
        old = self._about.get("version", 1)
        if old == version:
            return
        self._about.put("version", version)
        for key, kept in list(self._states.items()):
            try:
                state = self._processor.migrate(old, opened(kept))
            except Exception as error:
                raise RecordFailed(self._shown(key), f"its state of version {old}", error) from error
            if state is None:
                self._states.remove(key)
            else:
                self._states.put(key, self._closed(key, state), self._states.due_of(key))

    # ---- events -------------------------------------------------------------------------------------

    def events(self, events: Events, clock: OperatorClock, out: ProgramOutput) -> None:
        self._migrate()
        rows, keys = self._rows(events)
        for container in (self._states, *self._timers.values()):
            container.fetch(keys)
        context, live, on_event = self._context, self._live, self._processor.on_event
        context._clock, given, asked = clock, self._context._given, self._context._asked
        ttl, by_event = self._plan.ttl, self._plan.ttl_clock == EVENT
        context._timer = None
        for row, key, time in zip(rows, keys, events.time.tolist(), strict=True):
            if self._due <= time:
                self._fire(EVENT, time, out)
                context._timer = None
            state = live.get(key, _MISSING)
            if state is _MISSING or ttl is not None:
                state = self._state(key, time if by_event else clock.now)
            context._key, context._time, context.state = key, time, state
            before = self._copied(state)
            try:
                on_event(row, context)
            except Exception as error:
                self._failed(key, before, error, out, event=row)
                continue
            live[key] = context.state
            if ttl is not None:
                self._ends[key] = ttl + (time if by_event else clock.now)
            if given:
                for channel, values in given:
                    out.row(channel, values)
                given.clear()
            if asked:
                self._set_timers(key)

    def _rows(self, events: Events) -> tuple[list[Any], list[Key]]:
        """The events in order, and their keys."""
        size = self._plan.keys
        rows: list[Any] = [None] * len(events)
        keys: list[Any] = [None] * len(events)
        for number, table in enumerate(events.tables):
            places = np.flatnonzero(events.input == number)
            if not len(places):
                continue
            part = table.take(pa.array(events.index[places]))
            columns = [values_of(part[name]) for name in self._names[number]]
            of_input = map(self._types[number], zip(*columns, events.time[places].tolist(), strict=True))
            their_keys = zip(*columns[:size], strict=True)
            if len(places) == len(events):
                return list(of_input), list(their_keys)
            for place, row, key in zip(places.tolist(), of_input, their_keys, strict=True):
                rows[place], keys[place] = row, key
        return rows, keys

    # ---- state --------------------------------------------------------------------------------------

    def _state(self, key: Key, time: int) -> Any:
        """The state of a key at a time, by the clock of its ``ttl``; None if it has expired."""
        if key in self._live:
            state, end = self._live[key], self._ends.get(key)
        else:
            kept = self._states.get(key, _MISSING)
            if kept is _MISSING:
                return None
            state, end = opened(kept), self._states.due_of(key)
            self._live[key] = state
            if end is not None:
                self._ends[key] = end
        return None if end is not None and end <= time else state

    def _copied(self, state: Any) -> Any:
        """What is needed to restore a state after a failure. A copy is made only if the job survives it."""
        if not self._plan.to_channel or isinstance(state, _UNCHANGING):
            return state
        return pickle.dumps(state, 5), None

    def _closed(self, key: Key, state: Any) -> Any:
        """A state as it is stored."""
        if type(state) in (bool, float) or (type(state) is int and state.bit_length() < 64):
            return state
        if type(state) is str and len(state) <= _SHORT:
            return state
        try:
            kept = pickle.dumps(state, 5)
            if b"millstream_pipeline_" in kept:
                raise TypeError("it contains a class from the pipeline's own file")
        except Exception as error:
            plain = TypeError(
                "the state must be made of plain values (numbers, text, lists, dicts, times):"
                f" {reason(error)}"
            )
            raise RecordFailed(self._shown(key), _state_shown(state), plain) from error
        if len(kept) > self._plan.max_state_bytes:
            large = ValueError(
                f"the state of this key is {len(kept):,} bytes, more than"
                f" max_state_bytes={self._plan.max_state_bytes:,}"
            )
            raise RecordFailed(self._shown(key), _state_shown(state), large)
        return kept

    def _write(self, clock: OperatorClock) -> None:
        """Write all states that this batch used back to the store."""
        states, ends = self._states, self._ends
        for key, state in self._live.items():
            if state is None:
                states.remove(key)
                continue
            kept, end = self._closed(key, state), ends.get(key)
            old = states.get(key, _MISSING)
            if type(old) is not type(kept) or old != kept or states.due_of(key) != end:
                states.put(key, kept, end)
        self._live.clear()
        ends.clear()
        if self._plan.ttl is not None:
            states.take_due(clock.watermark if self._plan.ttl_clock == EVENT else clock.now)

    # ---- timers -------------------------------------------------------------------------------------

    def _next(self, clock: str) -> int:
        due = self._timers[clock].next_due() if self._plan.on_timers else None
        return ALWAYS if due is None else due

    def _set_timers(self, key: Key, clocks: Sequence[str] = CLOCKS) -> None:
        """Apply what a function asked for to the timers of these clocks."""
        asked = self._context._asked
        for clock in clocks:
            if any(one[0] == clock for one in asked):
                timers = self._timers[clock]
                of_key = dict(timers.get(key) or {})
                self._change(key, of_key, clock)
                if of_key:
                    timers.put(key, of_key, min(of_key.values()))
                    if clock == EVENT:
                        self._due = min(self._due, *of_key.values())
                else:
                    timers.remove(key)
        asked.clear()

    def _change(self, key: Key, of_key: dict[str, int], clock: str) -> None:
        """Apply the requested changes to a key's timers of one clock."""
        for of_clock, name, due in self._context._asked:
            if of_clock == clock and due is not None:
                of_key[name] = due
            elif of_clock == clock:
                of_key.pop(name, None)
        if len(of_key) > MOST_TIMERS:
            many = ValueError(
                f"a key may have at most {MOST_TIMERS} timers; reuse their names, so that a timer replaces"
                " the last"
            )
            raise RecordFailed(self._shown(key), f"{len(of_key)} timers", many)

    def _fire(self, clock: str, until: int, out: ProgramOutput) -> None:
        """Call the timers that are due, in the order of their times and, at one time, of their names."""
        timers = self._timers[clock]
        order: list[tuple[int, str, int, Key]] = []  # a heap; some timers in it have been moved since
        taken = {key: dict(of_key) for _, key, of_key in timers.take_due(until)}
        for number, (key, of_key) in enumerate(taken.items()):
            order += [(due, name, number, key) for name, due in of_key.items() if due <= until]
        heapq.heapify(order)
        while order:
            due, name, number, key = heapq.heappop(order)
            of_key = taken[key]
            if of_key.get(name) != due:
                continue
            del of_key[name]
            self._call(key, name, due, clock, out)
            if self._context._asked:
                before = dict(of_key)
                self._change(key, of_key, clock)
                for other, at in of_key.items():
                    if at <= until and before.get(other) != at:
                        heapq.heappush(order, (at, other, number, key))
                self._set_timers(key, [other for other in CLOCKS if other != clock])
        for key, of_key in taken.items():
            if of_key:
                timers.put(key, of_key, min(of_key.values()))
        if clock == EVENT:
            self._due = self._next(EVENT)

    def _call(self, key: Key, name: str, due: int, clock: str, out: ProgramOutput) -> None:
        context = self._context
        # Results of a wall-clock timer get the watermark as their time.
        time = due if clock == EVENT else context._clock.watermark
        lived = time if self._plan.ttl_clock == EVENT else context._clock.now
        state = self._state(key, lived)
        context._key, context._time, context._timer, context.state = key, time, clock, state
        before = self._copied(state)
        try:
            self._processor.on_timer(Timer(name, moment(due), clock), context)
        except Exception as error:
            self._failed(key, before, error, out, timer=name)
            return
        self._live[key] = context.state
        if self._plan.ttl is not None:
            self._ends[key] = lived + self._plan.ttl
        for channel, values in context._given:
            out.row(channel, values)
        context._given.clear()

    def advance(self, clock: OperatorClock, out: ProgramOutput) -> None:
        self._migrate()
        self._context._clock = clock
        if self._due <= clock.watermark:
            self._fire(EVENT, clock.watermark, out)
        if self._next(PROCESSING) <= clock.now:
            self._fire(PROCESSING, clock.now, out)
            if self._due <= clock.watermark:
                self._fire(EVENT, clock.watermark, out)
        self._write(clock)

    def next_due(self) -> int | None:
        return self._timers[EVENT].next_due() if self._plan.on_timers else None

    def next_timer(self) -> int | None:
        return self._timers[PROCESSING].next_due() if self._plan.on_timers else None

    # ---- failures -----------------------------------------------------------------------------------

    def _failed(
        self,
        key: Key,
        before: Any,
        error: Exception,
        out: ProgramOutput,
        *,
        event: Any = None,
        timer: str | None = None,
    ) -> None:
        """Undo what the function did and report it on the channel, or stop the job."""
        context = self._context
        context._given.clear()
        context._asked.clear()
        if not self._plan.to_channel:
            sample = (
                f"timer {timer!r}" if event is None else f"the event: {shortened(event.columns, event[:-1])}"
            )
            raise RecordFailed(self._shown(key), sample, error) from error
        self._live[key] = pickle.loads(before[0]) if isinstance(before, tuple) else before  # noqa: S301 - ours
        told = (reason(error), line(error), timer)
        if len(self._types) > 1:
            record = (None, None) if event is None else (event.stream, repr(event.as_dict()))
            out.row(FAILED, (*key, *record, *told))
        elif event is None:
            out.row(FAILED, (*key, *[None] * (len(self._names[0]) - len(key)), *told))
        else:
            out.row(FAILED, (*event[:-1], *told))

    def _shown(self, key: Key) -> str:
        return shortened(self._key_names, key)


def opened(kept: Any) -> Any:
    """A state from its stored form."""
    return pickle.loads(kept) if type(kept) is bytes else kept  # noqa: S301 - ours, from our checkpoint


def _state_shown(state: Any) -> str:
    return shortened(["state"], [state])


@lru_cache(maxsize=256)
def _span(text: str) -> int:
    return 1000 * duration_ms(text)
