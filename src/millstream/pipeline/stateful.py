"""Streams that come out of the keyed kernel. Declarations only, no Spark.

A ``Stateful`` is one operator with its state; what it gives are its channels, each a stream. Windows, joins,
patterns and the user's own processors are all declared through ``declare``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.errors import TopologyError
from millstream.pipeline.declaring import Time, caller
from millstream.pipeline.expressions import output_name
from millstream.pipeline.kernel.channels import MAIN, ahead_channel, late_channel
from millstream.pipeline.kernel.clock import TimeRules
from millstream.pipeline.streams import Source, Stream, Union

if TYPE_CHECKING:
    from millstream.pipeline.kernel.program import Plan


@dataclass(frozen=True, slots=True)
class Input:
    """A stream as an operator takes it: by which keys, and which columns of it.

    ``by`` are SQL expressions with names; two inputs of one operator meet where their keys are equal, so they
    need as many, of the same types. ``columns`` are SQL expressions, each a column or ``expression AS name``;
    None: all columns. The operator is given the keys first.
    """

    stream: Stream
    by: tuple[str, ...]
    columns: tuple[str, ...] | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(str(output_name(key)) for key in self.by)


class Stateful:
    """An operator on the kernel: its inputs, and the plan of what it does with them."""

    def __init__(self, name: str, inputs: Sequence[Input], plan: Plan, *, at: str) -> None:
        self.name = name
        self.inputs = tuple(inputs)
        self.plan = plan
        self.at = at

    def upstream(self) -> list[Stream]:
        found: dict[int, Stream] = {}
        for one in self.inputs:
            for stream in one.stream.upstream():
                found.setdefault(id(stream), stream)
        return list(found.values())

    def rules(self, sources: Sequence[Source]) -> dict[tuple[int, int], TimeRules]:
        """What each input's sources say about their time; ``sources`` are numbered as the job numbers them.
        What comes from another stateful operator has had its stragglers waited for already."""
        found: dict[tuple[int, int], TimeRules] = {}
        for number, one in enumerate(self.inputs):
            for source in _first_sources(one.stream):
                assert source.time is not None, "a stateful operator without a time is refused when declared"
                found[number, sources.index(source)] = source.time.rules
        return found

    def shape(self) -> dict[str, object]:
        """What its state depends on."""
        return {
            "operator": self.name,
            "inputs": [{"from": one.stream.name, "by": list(one.by)} for one in self.inputs],
            **self.plan.shape(),
        }

    def __repr__(self) -> str:
        return f"<stateful {self.name!r} from {self.at}>"


def _first_sources(stream: Stream) -> list[Source]:
    """The sources whose rows come here without passing another stateful operator."""
    if isinstance(stream, StatefulChannel) and not stream.native:
        return []
    if isinstance(stream, Source):
        return [stream]
    return [source for one in stream.inputs for source in _first_sources(one)]


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
        """Whether Spark's own operators do it after all."""
        return False

    @property
    def late(self) -> Stream:
        """The rows that came too late to count, as the operator got them, and by how much (``late_ms``)."""
        return self._beside(late_channel, "late", caller())

    @property
    def ahead(self) -> Stream:
        """The rows whose time was too far in the future, with ``ahead_ms``."""
        return self._beside(ahead_channel, "ahead", caller())

    def _beside(self, channel_of: Callable[[int], str], word: str, at: str) -> Stream:
        inputs = self.stateful.inputs
        name = f"{self.name}.{word}"
        if len(inputs) == 1:
            return self.flow._channel(self.stateful, channel_of(0), name, at)
        if name not in self._unions:
            parts = tuple(
                self.flow._channel(self.stateful, channel_of(number), f"{name}.{one.stream.name}", at)
                for number, one in enumerate(inputs)
            )
            self._unions[name] = Union(self.flow, parts, None, name, at)
        return self._unions[name]

    def about(self) -> str:
        return self.stateful.plan.describe() if self.channel_name == MAIN else ""


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
    """A stateful operator; returns its main channel. ``columns`` and ``time`` are those of its results,
    ``stream`` is the class of one that has more channels to offer."""
    for one in inputs:
        check_input(one, at)
    stateful = Stateful(name or "", inputs, plan, at=at)
    made = stream(stateful, MAIN, at=at, name=name, columns=columns, time=time, kind=kind)
    stateful.name = made.name
    return made


def check_input(one: Input, at: str) -> None:
    """Refuse what has no keys, or no time to go by."""
    stream = one.stream
    if not one.by:
        raise TopologyError("by= needs at least one column to group by", where=at)
    for key in one.by:
        if output_name(key) is None:
            raise TopologyError(f"give the key {key!r} a name: {key + ' AS name'!r}", where=at)
        stream._check(key, "the key", at)
    for column in one.columns or ():
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
    """Another channel of the operator that ``main`` is of."""
    return StatefulChannel(
        main.stateful, name, at=at, name=f"{main.name}.{name}", columns=columns, time=time, kind="channel"
    )
