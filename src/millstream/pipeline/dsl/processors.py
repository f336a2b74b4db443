"""Processors as users write them, and ``stream.process(...)``.

class Limit(Processor):
    def on_event(self, event, context):
        context.state = (context.state or 0) + 1
        if context.state > 5:
            context.emit(n=context.state)

payments.process(key="card", with_=Limit, output="card string, n bigint", ttl="1 day")
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from millstream.core.errors import TopologyError
from millstream.core.units import DurationError, duration_ms
from millstream.pipeline.dsl.declaring import check_on_error
from millstream.pipeline.dsl.graph import KeyedInput, StreamNode
from millstream.pipeline.dsl.stateful import ChannelNode, declare
from millstream.sqltypes.ddl import Schema, SchemaError, schema_of

if TYPE_CHECKING:
    from millstream.pipeline.kernel.event import Event
    from millstream.pipeline.kernel.processor.processor import Context, Timer

_CHANNEL = re.compile(r"[a-z][a-z0-9_]{0,62}")
_TAKEN = ("late", "ahead", "failed", "status")  # names of channels that exist already
_ERROR_COLUMNS = ("error", "error_at", "error_timer")


class Processor:
    """A stateful function of the user's, called for every event of a key, in time order, and for timers.

    An instance serves many keys. What it has to remember belongs in ``context.state``, which is kept, and not
    in ``self``, which is not. ``version`` identifies the kind of state that it keeps. A job continues with
    state of another version only if a method ``migrate(self, version, state)`` returns the new state.

        >>> class Quiet(Processor):
        ...     def on_event(self, event, context):
        ...         context.timer(after="1 hour", name="quiet")
        ...     def on_timer(self, timer, context):
        ...         context.emit(since=timer.time)
        >>> quiet = payments.process(key="card", with_=Quiet, output="card string, since timestamp")
    """

    version = 1

    def on_event(self, event: Event, context: Context) -> None:
        raise NotImplementedError

    def on_timer(self, timer: Timer, context: Context) -> None:
        raise NotImplementedError


class ProcessNode(ChannelNode):
    """The rows that a processor emits with ``context.emit``."""

    def emitted_to(self, name: str, at: str) -> ChannelNode:
        """The rows emitted with ``context.emit_to(name, ...)``."""
        plan: Any = self.state.plan
        if name not in plan.others:
            there = ", ".join(plan.others) or "none"
            raise TopologyError(
                f"{self.name!r} has no channel {name!r}; it has {there} (channels=)", where=at
            )
        return self.side_output(name, at, columns=tuple(plan.others[name].names))

    def failed(self, at: str) -> ChannelNode:
        """The events on which the processor failed."""
        plan: Any = self.state.plan
        if not plan.to_channel:
            raise TopologyError(
                f"{self.name!r} stops the job when it fails; with on_error='channel' the job continues and"
                " such events appear here",
                where=at,
            )
        return self.side_output("failed", at)

    def check_time(self, at: str) -> None:
        if self.time is None:
            raise TopologyError(
                f"the results of {self.name!r} have no time: name a timestamp column of its output with"
                " process(..., time='at')",
                where=at,
            )
        super().check_time(at)


class StateBounds(NamedTuple):
    """How a key's state is kept: how long after its last event or timer, by which clock, and how much."""

    ttl: str | None
    ttl_clock: str
    max_state_bytes: int


def declare_process(
    streams: Sequence[StreamNode],
    key: str | Sequence[str],
    with_: object,
    output: object,
    channels: Mapping[str, object] | None,
    time: str | None,
    state: StateBounds,
    on_error: str,
    name: str | None,
    at: str,
) -> ProcessNode:
    from millstream.pipeline.kernel.processor.processor import CLOCKS, ProcessorPlan

    processor = _processor(with_, at)
    keys = (key,) if isinstance(key, str) else tuple(key)
    for stream in streams:
        stream.check_time(at)
    check_on_error(on_error, at)
    if state.ttl_clock not in CLOCKS:
        raise TopologyError(f"ttl_clock={state.ttl_clock!r} is not 'event' or 'processing'", where=at)
    if state.max_state_bytes < 1:
        raise TopologyError(f"max_state_bytes={state.max_state_bytes!r} must be at least 1", where=at)
    given, columns = _schema(output, "output", at)
    if time is not None:
        field = columns.field(time)
        if field is None or field.type != "timestamp":
            raise TopologyError(
                f"time={time!r} must be a timestamp column of the output; it is filled with the time of the"
                " event or timer",
                where=at,
            )
    others = {}
    for channel, schema in (channels or {}).items():
        if not isinstance(channel, str) or not _CHANNEL.fullmatch(channel) or channel in _TAKEN:
            raise TopologyError(
                f"{channel!r} can't be a channel's name: use lower-case letters, digits and _, and none of"
                f" {', '.join(_TAKEN)}",
                where=at,
            )
        others[channel] = _schema(schema, f"channel {channel!r}", at)[0]
    if on_error == "channel" and len(streams) == 1:
        for column in streams[0].columns or ():
            if column.lower() in _ERROR_COLUMNS:
                raise TopologyError(
                    f"on_error='channel' adds columns {', '.join(_ERROR_COLUMNS)} to the events that failed,"
                    f" and the stream has a column {column!r}; rename it with select",
                    where=at,
                )
    plan = ProcessorPlan(
        processor=processor,
        output=given,
        others=others,
        keys=len(keys),
        streams=tuple(stream.name for stream in streams),
        at=at,
        ttl=_micros(state.ttl, at),
        ttl_clock=state.ttl_clock,
        time=time,
        max_state_bytes=state.max_state_bytes,
        to_channel=on_error == "channel",
        on_timers=_class(processor).on_timer is not Processor.on_timer,
    )
    return declare(
        ProcessNode,
        "process",
        [KeyedInput(stream, keys) for stream in streams],
        plan,
        at=at,
        name=name,
        columns=columns.names,
        time=_time(streams, time, at),
    )


def _class(given: Any) -> Any:
    return given if isinstance(given, type) else type(given)


def _processor(given: object, at: str) -> object:
    """The class or instance that the user gave. Raises TopologyError if it can't be used."""
    made = _class(given)
    if not issubclass(made, Processor) or made is Processor:
        raise TopologyError(
            f"with_= must be a subclass of millstream.Processor, or an instance of one; {given!r} is neither",
            where=at,
        )
    if made.on_event is Processor.on_event:
        raise TopologyError(f"{made.__name__} has no on_event(self, event, context)", where=at)
    for method, arguments in (("on_event", 3), ("on_timer", 3), ("migrate", 3)):
        function = getattr(made, method, None)
        if function is not None:
            try:
                inspect.signature(function).bind(*[None] * arguments)
            except TypeError:
                raise TopologyError(
                    f"{made.__name__}.{method} is called with {arguments - 1} arguments", where=at
                ) from None
    if not isinstance(made.version, int) or made.version < 1:
        raise TopologyError(
            f"{made.__name__}.version={made.version!r} must be a number of at least 1", where=at
        )
    if isinstance(given, type):
        try:
            inspect.signature(made).bind()
        except TypeError:
            raise TopologyError(
                f"{made.__name__} takes arguments: give an instance, with_={made.__name__}(...)",
                where=at,
            ) from None
    return given


def _schema(given: object, what: str, at: str) -> tuple[Any, Schema]:
    from millstream.sqltypes.arrow import arrow_schema

    try:
        schema = schema_of(given)
        return arrow_schema(schema.fields), schema
    except SchemaError as error:
        raise TopologyError(f"{what}: {error}", where=at) from None


def _micros(ttl: object, at: str) -> int | None:
    try:
        return None if ttl is None else 1000 * duration_ms(ttl)
    except DurationError as error:
        raise TopologyError(f"ttl: {error}", where=at) from None


def _time(streams: Sequence[StreamNode], column: str | None, at: str) -> Any:
    if column is None:
        return None
    times = [stream.time for stream in streams if stream.time is not None]
    if len({time.kind for time in times}) > 1:
        raise TopologyError("time= requires streams with the same kind of time", where=at)
    return times[0].of_results(column)
