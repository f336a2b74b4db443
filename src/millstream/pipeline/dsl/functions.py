"""The user's functions from DataFrame to DataFrame, and the channels into which they split their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.declaring import check_function
from millstream.pipeline.dsl.graph import StreamNode


class FunctionNode(StreamNode):
    kind = "operator"
    counted_where_it_runs = True

    def __init__(
        self,
        stream: StreamNode,
        function: FunctionType,
        name: str | None,
        channels: tuple[str, ...] | None,
        time: str | None,
        at: str,
    ) -> None:
        if channels is not None and (not channels or len(set(channels)) != len(channels)):
            raise TopologyError("channels= must name at least one channel, and each only once", where=at)
        self.function = function
        self.channels = channels
        self.has_rows = channels is None
        goes_by = stream.time
        if goes_by is not None and time is not None:
            goes_by = replace(goes_by, column=time, origin=None)
        super().__init__(stream.flow, (stream,), at=at, name=name, time=goes_by)

    def origin(self) -> Any:
        return {"operator": self.function.__name__, "of": [self.inputs[0].origin()]}

    def about(self) -> str:
        doc = (self.function.__doc__ or "").strip().splitlines()
        return doc[0].rstrip(".") if doc else ""


class FunctionChannelNode(StreamNode):
    kind = "channel"
    counted_where_it_runs = True

    def __init__(self, function: FunctionNode, channel: str, at: str) -> None:
        self.channel_name = channel
        name = f"{function.name}.{channel}"
        super().__init__(function.flow, (function,), at=at, name=name, time=function.time)

    def origin(self) -> Any:
        return {"channel": self.channel_name, "of": [self.inputs[0].origin()]}


def declare_function(
    stream: StreamNode,
    function: object,
    name: str | None,
    channels: Sequence[str] | None,
    time: str | None,
    at: str,
) -> FunctionNode:
    function, at = check_function(function, at)
    chosen = name or (None if function.__name__ == "<lambda>" else function.__name__)
    if time is not None and stream.time is None:
        raise TopologyError(f"time={time!r}: the stream that {chosen!r} takes has no time", where=at)
    split = tuple(channels) if channels is not None else None
    return FunctionNode(stream, function, chosen, split, time, at)


def function_channel_of(function: FunctionNode, name: str, where: str | None, at: str) -> FunctionChannelNode:
    """A channel that a function fills; made once."""
    if where is not None:
        raise TopologyError(
            f"{function.name!r} fills its channels itself; take {name!r} without where=", where=at
        )
    if name not in (function.channels or ()):
        raise TopologyError(
            f"{function.name!r} has no channel {name!r}; it has {', '.join(function.channels or ())}",
            where=at,
        )
    for stream in function.flow.streams:
        if (
            isinstance(stream, FunctionChannelNode)
            and stream.inputs == (function,)
            and stream.channel_name == name
        ):
            return stream
    return FunctionChannelNode(function, name, at)
