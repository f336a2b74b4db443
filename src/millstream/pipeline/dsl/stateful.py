"""Streams that come out of stateful operators on the keyed kernel. Declarations only, no Spark.

A ``Stateful`` is one operator with its state. What it gives are its channels, each of them a stream. Joins,
patterns and the user's own processors are declared through ``declare`` or ``declare_as``; windows are built
from the same classes (windowed.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.declaring import Time, caller
from millstream.pipeline.dsl.expressions import output_name
from millstream.pipeline.dsl.streams import Source, Stream, Union
from millstream.pipeline.kernel.channels import LATE, MAIN, ahead_channel, late_channel
from millstream.pipeline.kernel.clock import TimeRules

if TYPE_CHECKING:
    from millstream.pipeline.kernel.program import Plan


S = TypeVar("S", bound="StatefulChannel")


@dataclass(frozen=True, slots=True)
class Input:
    """A stream as an operator takes it: by which keys, and which of its columns.

    ``by`` are SQL expressions with names. Two inputs of one operator meet where their keys are equal, so they
    need the same number of keys, of the same types. ``columns`` are SQL expressions: each a column,
    ``expression AS name``, or ``*`` for all columns that are not keys. None means all columns. The operator
    gets the keys first.
    """

    stream: Stream
    by: tuple[str, ...]
    columns: tuple[str, ...] | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(str(output_name(key)) for key in self.by)


class Stateful:
    """An operator on the kernel: its inputs, and the plan of what it does with them."""

    def __init__(self, inputs: Sequence[Input], plan: Plan, *, at: str) -> None:
        self.inputs = tuple(inputs)
        self.plan = plan
        self.at = at
        self.main: StatefulChannel | None = None

    @property
    def name(self) -> str:
        """The name of its main channel, which may become its variable's name once the whole file is read."""
        assert self.main is not None
        return self.main.name

    def upstream(self) -> list[Stream]:
        found: dict[int, Stream] = {}
        for one in self.inputs:
            for stream in one.stream.upstream():
                found.setdefault(id(stream), stream)
        return list(found.values())

    def rules(self) -> dict[tuple[int, int], TimeRules]:
        """The time rules of each input's sources, by input and the source's number. Rows from another
        stateful operator need none, because that operator has already waited for late rows."""
        found: dict[tuple[int, int], TimeRules] = {}
        for number, one in enumerate(self.inputs):
            for source in feeding_sources(one.stream):
                assert source.time is not None, "a stateful operator without a time is refused when declared"
                found[number, source.flow.number_of(source)] = source.time.rules
        return found

    @property
    def known_as(self) -> str:
        """The name that people know it by: that of its main stream."""
        assert self.main is not None
        return self.main.known_as

    def __repr__(self) -> str:
        return f"<stateful {self.name!r} from {self.at}>"


def feeding_sources(stream: Stream) -> list[Source]:
    """The sources whose rows reach this stream without passing a stateful operator."""
    if isinstance(stream, StatefulChannel):
        return []
    if isinstance(stream, Source):
        return [stream]
    return [source for one in stream.inputs for source in feeding_sources(one)]


class StatefulChannel(Stream):
    """One channel of a stateful operator."""

    kind = "channel"

    def __init__(
        self,
        stateful: Stateful,
        channel: str,
        *,
        at: str,
        name: str | None = None,
        columns: tuple[str, ...] | None = None,
        time: Time | None = None,
        kind: str | None = None,
    ) -> None:
        self.stateful = stateful
        self.channel_name = channel
        if kind is not None:
            self.kind = kind
        self._unions: dict[str, Union] = {}
        streams = tuple(one.stream for one in stateful.inputs)
        super().__init__(streams[0].flow, streams, at=at, name=name, columns=columns, time=time)

    @property
    def native(self) -> bool:
        """True if Spark's own operators do the work after all."""
        return False

    @property
    def selected(self) -> dict[str, str] | None:
        """The SQL that makes the stream's columns from the kernel's; None if they are the same."""
        return None

    @property
    def late(self) -> Stream:
        """The rows that came too late to count, as the operator got them, with ``late_ms``: how late."""
        return self._beside("late", caller())

    @property
    def ahead(self) -> Stream:
        """The rows whose time was too far in the future, with ``ahead_ms``: how far."""
        return self._beside("ahead", caller())

    def _beside(self, word: str, at: str) -> Stream:
        inputs = self.stateful.inputs
        if len(inputs) == 1:
            return beside(self.stateful, 0, word, at)
        name = f"{self.stateful.name}.{word}"
        if name not in self._unions:
            parts = tuple(beside(self.stateful, number, word, at) for number in range(len(inputs)))
            self._unions[name] = Union(self.flow, parts, None, name, at)
        return self._unions[name]

    def about(self) -> str:
        return self.stateful.plan.describe() if self.channel_name == MAIN else ""


def beside(stateful: Stateful, number: int, word: str, at: str) -> StatefulChannel:
    """The channel of an input's late rows, or of its rows too far ahead; made once."""
    channel_of = late_channel if word == LATE else ahead_channel
    one = stateful.inputs[number].stream
    name = f"{stateful.name}.{word}" + (f".{one.name}" if len(stateful.inputs) > 1 else "")
    made = one.flow._channel(stateful, channel_of(number), name, at)
    made.no_time = f"rows that are {word} are outside of time; they can't be windowed or joined"
    return made


def declare(
    kind: str,
    inputs: Sequence[Input],
    plan: Plan,
    *,
    at: str,
    name: str | None = None,
    columns: tuple[str, ...] | None = None,
    time: Time | None = None,
    stream: type[StatefulChannel] = StatefulChannel,
) -> StatefulChannel:
    """Declare a stateful operator; returns its main channel. ``columns`` and ``time`` are those of its
    results. ``stream`` is the class of the main channel, if that offers further channels."""
    return declare_as(stream, kind, inputs, plan, at=at, name=name, columns=columns, time=time)


def declare_as(made_as: type[S], kind: str, inputs: Sequence[Input], plan: Plan, **told: Any) -> S:
    """The same, typed as the class of its main channel."""
    for one in inputs:
        check_input(one, told["at"])
    stateful = Stateful(inputs, plan, at=told["at"])
    stateful.main = made = made_as(stateful, MAIN, kind=kind, **told)
    return made


def check_input(one: Input, at: str) -> None:
    """Refuse an input without keys, or without a time to go by."""
    stream = one.stream
    if not one.by:
        raise TopologyError("by= needs at least one column to group by", where=at)
    for key in one.by:
        if output_name(key) is None:
            raise TopologyError(f"give the key {key!r} a name: {key + ' AS name'!r}", where=at)
        stream._check(key, "the key", at)
    for column in one.columns or ():
        if column != "*":
            stream._check(column, "the column", at)
    stream._needs_time(at)


def channel(
    main: StatefulChannel,
    name: str,
    *,
    at: str,
    columns: tuple[str, ...] | None = None,
    time: Time | None = None,
) -> StatefulChannel:
    """Another channel of the operator whose main channel is ``main``."""
    return StatefulChannel(
        main.stateful, name, at=at, name=f"{main.name}.{name}", columns=columns, time=time, kind="channel"
    )
