"""Gatherings: the parts of one event, which went different ways, put together again by key."""

from __future__ import annotations

import re
from collections.abc import Sequence

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.expressions import output_name
from millstream.pipeline.dsl.graph import KeyedInput, StreamGraph, StreamNode
from millstream.pipeline.dsl.joins.matching import micros_of, time_of
from millstream.pipeline.dsl.stateful import ChannelNode, declare
from millstream.pipeline.kernel.channels import DUPLICATES, TIME_BASIS

_PART = re.compile(r"[^\W\d]\w*")


class GatherNode(ChannelNode):
    """The complete events."""

    def incomplete(self, at: str) -> ChannelNode:
        """The events that lacked parts when their time was over."""
        from millstream.pipeline.kernel.joins.gather import INCOMPLETE, MISSING

        columns = self.columns
        if columns is not None:
            columns = (*columns[:-2], MISSING, *columns[-2:])
        return self.side_output(INCOMPLETE, at, columns=columns, time=self.time)

    def duplicates(self, at: str) -> ChannelNode:
        """The rows of a part that had arrived already."""
        from millstream.pipeline.kernel.joins.gather import PART

        keys = self.state.inputs[0].keys
        columns = (*keys, PART, *(self.columns or ())[len(keys) :]) if self.columns is not None else None
        return self.side_output(DUPLICATES, at, columns=columns, time=self.time)


def declare_gather(
    flow: StreamGraph,
    given: Sequence[tuple[str | None, StreamNode]],
    by: str | Sequence[str],
    timeout: str,
    *,
    name: str | None,
    at: str,
) -> GatherNode:
    """``given`` are the parts, each with its name if it was given one."""
    from millstream.pipeline.kernel.joins.gather import (
        GATHER_TIME,
        INCOMPLETE,
        MISSING,
        PART,
        Gather,
    )

    parts: dict[str, StreamNode] = {}
    for part, stream in given:
        if stream.flow is not flow:
            raise TopologyError(f"{stream.name!r} belongs to topology {stream.flow.name!r}", where=at)
        called = part or stream.name
        if not _PART.fullmatch(called):
            raise TopologyError(
                f"{called!r} can't be a column: give the part a name, as in gather(price=..., ...)",
                where=at,
            )
        if called in parts:
            raise TopologyError(f"two parts are called {called!r}: give one of them another name", where=at)
        parts[called] = stream
    if len(parts) < 2:
        raise TopologyError("gather needs at least two streams", where=at)
    keys = (by,) if isinstance(by, str) else tuple(by)
    inputs = [KeyedInput(stream, keys) for stream in parts.values()]
    taken = {
        *(str(output_name(key)) for key in keys),
        *(GATHER_TIME, TIME_BASIS, MISSING, PART, INCOMPLETE, DUPLICATES),
    }
    for part in parts:
        if part in taken:
            raise TopologyError(
                f"a part can't be called {part!r}: the result already has a column of that name", where=at
            )
    time = time_of(GATHER_TIME, tuple(parts.values()), at)
    return declare(
        GatherNode,
        "gather",
        inputs,
        Gather(tuple(parts), len(keys), micros_of("timeout", timeout, at), time.basis),
        at=at,
        name=name,
        columns=(*inputs[0].keys, *parts, GATHER_TIME, TIME_BASIS),
        time=time,
    )
