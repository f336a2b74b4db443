"""Stateful operators on the keyed kernel, and the channels that their rows come out of.

Joins, patterns and the user's own processors are declared with ``declare``. Windows are built from the same
classes (``windows/window.py``).

A new stateful operator needs a program in ``kernel``, a module in ``dsl`` that calls ``declare``, and a
method of ``Stream``. It needs no lowering: ``spark/lowering/stateful.py`` runs every program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.declaring import StreamTime
from millstream.pipeline.dsl.expressions import output_name
from millstream.pipeline.dsl.graph import KeyedInput, Stateful, StreamNode
from millstream.pipeline.dsl.unions import UnionNode
from millstream.pipeline.kernel.channels import LATE, MAIN, ahead_channel, late_channel

if TYPE_CHECKING:
    from millstream.pipeline.kernel.program import ProgramPlan


C = TypeVar("C", bound="ChannelNode")


class ChannelNode(StreamNode):
    """One channel of a stateful operator."""

    kind = "channel"
    state: Stateful

    def __init__(
        self,
        stateful: Stateful,
        channel: str,
        *,
        at: str,
        name: str | None = None,
        columns: tuple[str, ...] | None = None,
        time: StreamTime | None = None,
        kind: str | None = None,
    ) -> None:
        self.state = stateful
        self.channel_name = channel
        self._late: dict[str, UnionNode] = {}  # of a main channel: its late rows, and its rows too far ahead
        streams = tuple(one.stream for one in stateful.inputs)
        super().__init__(streams[0].flow, streams, at=at, name=name, columns=columns, time=time, kind=kind)

    @property
    def selected(self) -> dict[str, str] | None:
        """The SQL that makes the stream's columns from the kernel's; None if they are the same."""
        return None

    def origin(self) -> Any:
        return {"channel": self.channel_name, "of": self.state.identity}

    def sql_inputs(self) -> Sequence[tuple[StreamNode | Stateful, str]]:
        return () if self.state.native else ((self.state, ""),)

    def feeding(self) -> list[StreamNode]:
        return []

    def about(self) -> str:
        return self.state.plan.describe() if self.channel_name == MAIN else ""

    def late_rows(self, word: str, at: str) -> StreamNode:
        """The rows that were late, or ahead, in any of the operator's inputs; made once for all channels."""
        main = self.state.main
        assert isinstance(main, ChannelNode)
        parts = main.late_parts(word, at)
        if len(parts) == 1:
            return parts[0]
        if word not in main._late:
            main._late[word] = UnionNode(main.flow, parts, None, f"{main.name}.{word}", at)
        return main._late[word]

    def late_parts(self, word: str, at: str) -> tuple[StreamNode, ...]:
        """The rows that were late, or ahead, in each of the operator's inputs."""
        return tuple(late_rows(self.state, number, word, at) for number in range(len(self.state.inputs)))

    def side_output(
        self, channel: str, at: str, *, columns: tuple[str, ...] | None = None, time: StreamTime | None = None
    ) -> ChannelNode:
        """A further channel of the operator, a side output; made once."""
        made = channel_of(self.state, channel, f"{self.name}.{channel}", at)
        made.columns, made.time = columns, time
        return made


def channel_of(stateful: Stateful, channel: str, name: str, at: str) -> ChannelNode:
    """A channel of a stateful operator, made once, however often it is requested."""
    for stream in stateful.inputs[0].stream.flow.streams:
        if isinstance(stream, ChannelNode) and stream.state is stateful and stream.channel_name == channel:
            return stream
    return ChannelNode(stateful, channel, at=at, name=name)


def late_rows(stateful: Stateful, number: int, word: str, at: str, *, of: str | None = None) -> ChannelNode:
    """The channel of an input's late rows, or of its rows too far ahead; made once. It is named after ``of``,
    by default the operator."""
    kernel_channel = late_channel if word == LATE else ahead_channel
    one = stateful.inputs[number].stream
    name = f"{of or stateful.name}.{word}" + (f".{one.name}" if len(stateful.inputs) > 1 else "")
    made = channel_of(stateful, kernel_channel(number), name, at)
    made.no_time = f"rows that are {word} are outside of time; they can't be windowed or joined"
    return made


def declare(
    made_as: type[C],
    kind: str,
    inputs: Sequence[KeyedInput],
    plan: ProgramPlan,
    *,
    at: str,
    name: str | None = None,
    columns: tuple[str, ...] | None = None,
    time: StreamTime | None = None,
) -> C:
    """Declare a stateful operator. Returns its main channel, whose class may offer further channels.
    ``columns`` and ``time`` are those of its results."""
    for one in inputs:
        _check_input(one, at)
    stateful = Stateful(inputs, plan, at=at)
    made = made_as(stateful, MAIN, at=at, name=name, columns=columns, time=time, kind=kind)
    stateful.main = made
    return made


def _check_input(one: KeyedInput, at: str) -> None:
    """Refuse an input without keys, or without a time to go by."""
    stream = one.stream
    if not one.by:
        raise TopologyError("by= needs at least one column to group by", where=at)
    for key in one.by:
        if output_name(key) is None:
            raise TopologyError(f"give the key {key!r} a name: {key + ' AS name'!r}", where=at)
        stream.check(key, "the key", at)
    for column in one.columns or ():
        if column != "*":
            stream.check(column, "the column", at)
    if not one.arrival:
        stream.check_time(at)
