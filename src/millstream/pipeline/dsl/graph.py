"""The graph of a topology: its streams, the stateful operators between them, and its sinks.

Each kind of stream is a subclass of ``StreamNode`` in a module of its own. The passes over the graph
(planning, counting, drawing, the lowering to Spark, the test driver) ask a node what they need to know, and
do not ask of which kind it is. What a node answers without Spark is here and in its subclass. How its rows
are computed is in ``spark/lowering``, in one module for each kind.

Every node remembers the line of the user's file that made it. An error in it is reported at that line,
whether it is found now or when Spark plans the job.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.columns import SqlTexts
from millstream.pipeline.dsl.counts import stream_count
from millstream.pipeline.dsl.declaring import ARRIVAL, StreamTime
from millstream.pipeline.dsl.expressions import ExpressionError, check_sql, output_name, without_spaces
from millstream.pipeline.kernel.clock import TimeRules

if TYPE_CHECKING:
    from millstream.pipeline.formats.value_schemas import SinkSchema
    from millstream.pipeline.kernel.program import ProgramPlan

_NAMED = "named "


class StreamNode:
    """A stream of rows: every source, operator, window, union and channel is one.

    ``columns`` are its columns if they can be known without Spark, else None. ``time`` is the time that its
    rows go by; None if they have none, or if its inputs go by different times.
    """

    kind = "stream"
    topic: str | None = None  # of a source: the topic that it reads
    state: Stateful | None = None  # of a channel of a stateful operator: the operator
    late_source: StreamNode | None = None  # of a stream of late rows: the source
    condition: str | None = None  # of a filter: the SQL of the rows of its input that it passes on
    no_time: str | None = None  # why stateful operators can't take its rows
    has_rows = True  # False: a function that splits its rows, which only its channels have
    is_record = False  # True: the rows are records, and are written as they came
    always_counted = False  # True: its rows are counted in every job
    counted_where_it_runs = False  # True: a function counts its rows itself, wherever they go
    drawn_with_input = False  # True: an input without a name is drawn in this stream's box

    def __init__(
        self,
        flow: StreamGraph,
        inputs: tuple[StreamNode, ...],
        *,
        at: str,
        name: str | None = None,
        columns: tuple[str, ...] | None = None,
        time: StreamTime | None = None,
        kind: str | None = None,
    ) -> None:
        self.flow = flow
        self.inputs = inputs
        self.at = at
        self.columns = columns
        self.time = time
        if kind is not None:
            self.kind = kind
        self.given_name = name
        self.named = name is not None
        self.name = flow.register(self, name)

    # ---- what the passes ask ------------------------------------------------------------------------

    def origin(self) -> Any:
        """Where the rows come from and what is done with them, as JSON. It is a part of the identity of the
        stateful operators below, so it must not change between versions."""
        raise NotImplementedError

    def sql_inputs(self) -> Sequence[tuple[StreamNode | Stateful, str]]:
        """The streams, or the stateful operator, from whose rows SQL alone makes this stream's, row by row;
        each with the tag of its rows in a union. Empty if it takes more than that."""
        return ()

    @property
    def count(self) -> str:
        """The name of the count of its rows."""
        return stream_count(self.name)

    @property
    def counted_as(self) -> tuple[StreamNode, ...] | None:
        """The streams whose rows together number as many as this one's; None if it needs its own count."""
        return None

    def about(self) -> str:
        """What the stream does, in a few words, for drawings."""
        return ""

    def label(self) -> str:
        """Its line in drawings."""
        about = self.about()
        return f"{self.kind} {about}" if about else self.kind

    def feeding(self) -> list[StreamNode]:
        """The sources whose rows reach this stream without passing a stateful operator."""
        return [source for one in self.inputs for source in one.feeding()]

    def find_inputs(self) -> None:
        """Find the inputs that depend on all declarations. Called when everything is declared."""

    def settle(self) -> None:
        """Refuse impossible declarations. Called when the inputs of all streams are known."""

    # ---- what is the same for all kinds --------------------------------------------------------------

    def upstream(self) -> list[StreamNode]:
        """This stream and all streams that it is made from, each once: branch by branch, as Spark numbers its
        state."""
        found: dict[int, StreamNode] = {}
        stack: list[StreamNode] = [self]
        while stack:
            node = stack.pop()
            if id(node) not in found:
                found[id(node)] = node
                stack.extend(reversed(node.inputs))
        return list(found.values())

    @property
    def known_as(self) -> str:
        """Its name or, if it has none, the name of the named stream that its rows go to, as long as they go
        nowhere else."""
        stream = self
        while not stream.named:
            consumers = [other for other in self.flow.streams if stream in other.inputs]
            if len(consumers) != 1:
                return self.name
            stream = consumers[0]
        return stream.name

    def check(self, sql: object, what: str, at: str) -> None:
        """Refuse SQL that can't be right over this stream's columns."""
        try:
            check_sql(sql, self.columns, what=what)
        except ExpressionError as error:
            raise TopologyError(str(error), where=at) from None

    def check_time(self, at: str) -> None:
        """Refuse a stream for which it is not clear by which time its rows go."""
        for node in self.upstream():
            if node.no_time is not None:
                raise TopologyError(node.no_time, where=at)
        if self.time is None:
            raise TopologyError(
                f"the streams joined in {self.name!r} differ in time=, lateness=, idle_after= or ahead=; "
                "make these the same, or window each stream before the union",
                where=at,
            )
        if self.columns is not None and self.time.column not in self.columns:
            raise TopologyError(
                f"the stream's time is {self.time.basis}, but select leaves out column {self.time.column!r}",
                where=at,
            )

    def __repr__(self) -> str:
        return f"<{self.kind} {self.name!r} from {self.at}>"


@dataclass(frozen=True, slots=True)
class KeyedInput:
    """A stream as a stateful operator takes it: by which keys, and which of its columns.

    ``by`` are SQL expressions with names. Two inputs of one operator meet where their keys are equal, so they
    need the same number of keys, of the same types. ``columns`` are SQL expressions: each a column,
    ``expression AS name``, or ``*`` for all columns that are not keys. None means all columns. The operator
    gets the keys first. With ``arrival``, rows go by their arrival in the log, because their sources have no
    time.
    """

    stream: StreamNode
    by: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    arrival: bool = False

    @property
    def time(self) -> StreamTime:
        """The time that the rows go by."""
        time = ARRIVAL if self.arrival else self.stream.time
        assert time is not None, "a stateful operator without a time is refused when declared"
        return time

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(str(output_name(key)) for key in self.by)


class Stateful:
    """A stateful operator: its inputs, and the plan of what the kernel does with them.

    Its *identity* is what its state is found by after the file was edited. An operator that was given a name
    is known by its name. Any other is known by its definition: its kind, where its rows come from, its keys,
    conditions and aggregates, a processor's class. None of this depends on where in the file the operator is,
    on the variable that holds it, or on what is done with its results.
    """

    keeps_rows = True  # False if the state has keys and computed columns only, and no other columns of rows

    def __init__(self, inputs: Sequence[KeyedInput], plan: ProgramPlan, *, at: str) -> None:
        self.inputs = tuple(inputs)
        self.plan = plan
        self.at = at
        self.main: StreamNode | None = None

    @property
    def native(self) -> bool:
        """True if Spark's own operators do the work."""
        return False

    @property
    def why(self) -> str | None:
        """Why the kernel does the work, if Spark might have done it."""
        return None

    @property
    def name(self) -> str:
        """The name of its main channel, which may become its variable's name once the whole file is read."""
        assert self.main is not None
        return self.main.name

    @property
    def known_as(self) -> str:
        """The name that people know it by: that of its main stream."""
        assert self.main is not None
        return self.main.known_as

    def upstream(self) -> list[StreamNode]:
        found: dict[int, StreamNode] = {}
        for one in self.inputs:
            for stream in one.stream.upstream():
                found.setdefault(id(stream), stream)
        return list(found.values())

    def rules(self) -> dict[tuple[int, int], TimeRules]:
        """The time rules of each input's sources, by input and the source's number. Rows from another
        stateful operator need none, because that operator has already waited for late rows."""
        found: dict[tuple[int, int], TimeRules] = {}
        for number, one in enumerate(self.inputs):
            for source in one.stream.feeding():
                time = one.time if one.arrival else source.time
                assert time is not None
                found[number, source.flow.number_of(source)] = time.rules
        return found

    # ---- its identity --------------------------------------------------------------------------------

    @property
    def identity(self) -> str:
        """The identity under which its state is kept."""
        assert self.main is not None
        if self.main.given_name is not None:
            return _NAMED + self.main.given_name
        # A processor may migrate state of another version. That is checked when the state is found.
        made = {part: what for part, what in self.definition().items() if part not in ("version", "migrates")}
        return digest({"definition": made, "of": self.origins()})

    def definition(self) -> dict[str, Any]:
        """What its state depends on, apart from its name."""
        assert self.main is not None
        keys = [[without_spaces(key) for key in one.by] for one in self.inputs]
        return {"kind": self.main.kind, "keys": keys} | dict(self.shape())

    def shape(self) -> Mapping[str, object]:
        """What the plan adds to the definition."""
        return self.plan.shape()

    def origins(self) -> list[Any]:
        """Where the rows of its inputs come from, and which columns it takes."""
        return [
            [
                one.stream.origin(),
                None if one.columns is None else [without_spaces(column) for column in one.columns],
            ]
            for one in self.inputs
        ]

    def __repr__(self) -> str:
        return f"<stateful {self.name!r} from {self.at}>"


def is_named(identity: str) -> bool:
    """True if an operator with this identity is known by its name."""
    return identity.startswith(_NAMED)


def digest(made: Any) -> str:
    return hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class TopicSink:
    stream: StreamNode
    topic: str
    at: str
    key: str | None
    value: str | tuple[str, ...] | None
    time: str | None
    delete_when: str | None = None
    value_schema: SinkSchema | None = None  # if the values carry the id of a schema; None: JSON

    @property
    def label(self) -> str:
        return f"topic {self.topic}"

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that the sink writes."""
        return (self.topic,)

    @property
    def is_json(self) -> bool:
        """True if the values are objects made from the columns."""
        return not isinstance(self.value, str) and not self.stream.is_record


@dataclass(frozen=True, slots=True)
class ViewSink:
    stream: StreamNode
    name: str
    at: str
    key: tuple[str, ...]
    delete_when: str | None
    order: str | None
    changelog: str | None = None
    indexes: tuple[tuple[str, ...], ...] = ()  # the columns of each secondary index

    @property
    def label(self) -> str:
        return f"view {self.name}"

    @property
    def topics(self) -> tuple[str, ...]:
        return () if self.changelog is None else (self.changelog,)


Sink = TopicSink | ViewSink


class StreamGraph:
    """The streams of a topology by their names, in the order of the file, and its sinks."""

    def __init__(self, name: str, *, buckets: int, state: str) -> None:
        self.name = name
        self.buckets = buckets
        self.state = state
        self.source_numbers: dict[str, int] = {}  # by name; if left empty, sources count in the file's order
        self.texts = SqlTexts()
        self.kernel_only: str | None = None  # why no window may be Spark's own; None: windows may be
        self.streams: list[StreamNode] = []
        self.sinks: list[Sink] = []
        self.without_aggregates: dict[object, str] = {}  # windows that still need .agg, and their lines
        self._names: dict[str, StreamNode] = {}

    def register(self, stream: StreamNode, name: str | None) -> str:
        """Add a stream. Returns its name, which is a new one if it was given none."""
        if name is None:
            number = sum(1 for other in self.streams if other.kind == stream.kind) + 1
            name = f"{stream.kind} {number}"
        if name in self._names:
            raise TopologyError(
                f"there is already a stream {name!r} ({self._names[name].at}); choose another name",
                where=stream.at,
            )
        self._names[name] = stream
        self.streams.append(stream)
        return name

    def rename(self, stream: StreamNode, name: str) -> None:
        """Name a stream that was given no name after the variable that holds it, and its channels after
        it."""
        if stream.named or name in self._names:
            return
        old = stream.name
        self._call(stream, name)
        stream.named = True
        if stream.topic is not None or (stream.state is not None and stream.state.main is stream):
            for other in self.streams:
                called = other.name.replace(f"{old}.", f"{name}.", 1)
                beside = other.state is stream.state and other.name.startswith(f"{old}.")
                if beside and called not in self._names:
                    self._call(other, called)

    def _call(self, stream: StreamNode, name: str) -> None:
        del self._names[stream.name]
        self._names[name] = stream
        stream.name = name

    def settle(self) -> None:
        """Resolve what depends on all declarations. Called once everything is declared."""
        for stream in list(self.streams):
            stream.find_inputs()
        for stream in list(self.streams):
            stream.settle()

    def copy(self) -> Self:
        """The same topology once more. It can be planned and changed without changing this one. What the user
        gave it (functions, processors, schemas) is shared."""
        shared: dict[int, Any] = {}
        holders: list[object] = [self.texts, *self.streams]
        holders += [stream.state for stream in self.streams if stream.state is not None]
        for holder in holders:
            for value in vars(holder).values():
                inner = value.values() if isinstance(value, dict) else value
                for one in inner if isinstance(value, dict | list | tuple) else [value]:
                    if not isinstance(one, StreamNode | Stateful | StreamGraph | KeyedInput | SqlTexts):
                        shared[id(one)] = one
        return deepcopy(self, shared)

    def number_of(self, source: StreamNode) -> int:
        """The number by which operators know a source. A checkpoint keeps the numbers of the sources that it
        has seen."""
        sources = [stream for stream in self.streams if stream.topic is not None]
        return self.source_numbers.get(source.name, sources.index(source))
