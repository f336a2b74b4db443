"""Deduplications: the first event of each key within a time."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.expressions import without_alias
from millstream.pipeline.dsl.graph import KeyedInput, StreamNode
from millstream.pipeline.dsl.joins.matching import micros_of
from millstream.pipeline.dsl.sources import sources_of
from millstream.pipeline.dsl.stateful import ChannelNode, declare
from millstream.pipeline.kernel.channels import DUPLICATES, HIDDEN


class DeduplicateNode(ChannelNode):
    """The first events."""

    def duplicates(self, at: str) -> ChannelNode:
        """The events that were dropped."""
        return self.side_output(DUPLICATES, at, columns=self.columns, time=self.time)


def declare_deduplicate(
    stream: StreamNode, by: str | Sequence[str], within: str, *, name: str | None, at: str
) -> DeduplicateNode:
    from millstream.pipeline.kernel.deduplication import Deduplicate

    keys = tuple(without_alias(key) for key in ((by,) if isinstance(by, str) else by))
    for key in keys:
        stream.check(key, "the key", at)
    span = micros_of("within", within, at)
    if span == 0:
        raise TopologyError("within= must be longer than 0: only equal times would be duplicates", where=at)
    arrival = _has_only_arrival(stream)
    # The keys are columns of their own, beside the stream's: those stay as they are, in their order.
    hidden = tuple(f"{key} AS {HIDDEN}key_{number}" for number, key in enumerate(keys))
    time = stream.time
    return declare(
        DeduplicateNode,
        "deduplicate",
        [KeyedInput(stream, hidden, arrival=arrival)],
        Deduplicate(keys, span, arrival),
        at=at,
        name=name,
        columns=stream.columns,
        time=None if time is None else time.of_results(time.column, before_us=time.before_us),
    )


def _has_only_arrival(stream: StreamNode) -> bool:
    """True if the rows are records of sources without a time, so that only their arrival in the log can say
    which of them is the first."""
    upstream = stream.upstream()
    untimed = [source for source in sources_of(upstream) if source.time is None]
    return bool(untimed) and all(
        node in untimed or (node.no_time is None and node.state is None and node.topic is None)
        for node in upstream
    )
