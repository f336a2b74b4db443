"""Windows: ``stream.window(...).agg(...)``.

A window is Spark's own aggregation unless it has to do more; then it runs on the keyed kernel. The choice
between the two is made when the flow is planned, because it may depend on later declarations: a stream of the
late rows, or another window over the results.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.expressions import output_name, tokens_of, without_spaces
from millstream.pipeline.dsl.graph import KeyedInput, Stateful, StreamNode
from millstream.pipeline.dsl.stateful import ChannelNode
from millstream.pipeline.dsl.windows.bounds import WindowSpec
from millstream.pipeline.dsl.windows.sql_aggregates import NotOnKernel, SplitAggregates, take_apart
from millstream.pipeline.kernel.channels import (
    CHANGE,
    HIDDEN,
    MAIN,
    OUTSIDE,
    TIME_BASIS,
    WINDOW_END,
    WINDOW_START,
)
from millstream.pipeline.kernel.windows.calls import PythonAggregate

if TYPE_CHECKING:
    from millstream.pipeline.kernel.program import ProgramPlan

# Aggregates whose result depends on the order of rows.
_BY_TIME = {"first", "first_value", "last", "last_value", "min_by", "max_by"}
_BY_TIME |= {"collect_list", "array_agg", "collect_set"}


class WindowNode(ChannelNode):
    """The results of a window: its keys, window_start, window_end, the aggregates, and the time it went
    by."""

    drawn_with_input = True
    state: WindowOperator

    def __init__(
        self,
        stream: StreamNode,
        spec: WindowSpec,
        aggregates: dict[str, str | PythonAggregate],
        name: str | None,
        at: str,
    ) -> None:
        self.window_spec = spec
        self.aggregates = aggregates
        keys = [str(output_name(key)) for key in spec.by]
        columns = [
            *keys,
            WINDOW_START,
            WINDOW_END,
            *aggregates,
            TIME_BASIS,
            *([CHANGE] if spec.retract else []),
        ]
        time = None
        if spec.emit == "final" and stream.time is not None:
            # If an event moves or closes a window, the window's end still belongs to it.
            before = 1 if spec.size_ms is not None and not spec.each_event else 0
            time = stream.time.of_results(WINDOW_END, before_us=before)
        state = WindowOperator(self, stream, at)
        super().__init__(state, MAIN, at=at, name=name, columns=tuple(columns), time=time, kind="window")
        if time is None:
            self.no_time = (
                f"window {self.name!r} ({self.at}) gives results that change; stateful operators take those"
                " that don't: give it emit='final'"
            )
        why = state.beyond_spark() or ("engine='kernel'" if spec.engine == "kernel" else None)
        if why is not None:
            if spec.engine == "native":
                raise TopologyError(
                    f"engine='native': Spark can't compute this, because {why}; leave out engine=", where=at
                )
            state.taken_apart(why)

    @property
    def sql(self) -> dict[str, str]:
        """The aggregates that are SQL, which Spark can compute itself."""
        return {name: given for name, given in self.aggregates.items() if isinstance(given, str)}

    def settle(self) -> None:
        """Refuse a window that the chosen engine can't compute."""
        why = self.state.why
        if why is None:
            return
        if self.window_spec.engine == "native":
            raise TopologyError(
                f"engine='native', but Spark's own windows can't compute this: {why}", where=self.at
            )
        self.state.plan.describe()

    @property
    def selected(self) -> dict[str, str] | None:
        apart = self.state.taken_apart(self.state.why or "")
        if apart.plain:
            return None
        return {name: apart.results.get(name, f"`{name}`") for name in self.columns or ()}

    def outside(self, at: str) -> StreamNode:
        """The events that came while their key had no open session."""
        if self.window_spec.opens is None:
            raise TopologyError(".outside exists only on sessions that an event opens (opens=)", where=at)
        (stream,) = self.inputs
        assert stream.time is not None
        return self.side_output(OUTSIDE, at, time=stream.time.of_results(stream.time.column))

    def about(self) -> str:
        return f"{self.window_spec.describe()}: {', '.join(self.aggregates)}"


class WindowOperator(Stateful):
    """A window as a stateful operator. Its inputs and its plan are derived on request, since they depend on
    which of its channels are used."""

    keeps_rows = False

    def __init__(self, window: WindowNode, stream: StreamNode, at: str) -> None:
        self.window, self._stream = window, stream
        self.main, self.at = window, at
        self._apart: SplitAggregates | None = None
        self._why: tuple[object, str | None] | None = None

    # ---- Spark's own, or the kernel -----------------------------------------------------------------

    @property
    def native(self) -> bool:
        return self.why is None

    @property
    def why(self) -> str | None:
        """Why the window runs on the kernel; None if it is Spark's own."""
        flow = self._stream.flow
        asked = len(flow.streams), flow.kernel_only
        if self._why is None or self._why[0] != asked:
            self._why = asked, flow.kernel_only or self._reason()
        return self._why[1]

    def beyond_spark(self) -> str | None:
        """Why Spark can't compute the window or an aggregate in a stream; None if it can."""
        if (why := self.window.window_spec.only_kernel()) is not None:
            return why
        for name, given in self.window.aggregates.items():
            if isinstance(given, PythonAggregate):
                return f"{name}= is written in Python"
            tokens = tokens_of(given)
            if any(token.kind == "word" and token.text.lower() == "distinct" for token in tokens):
                return f"{name}= has DISTINCT, which Spark's own windows can't have"
            for token, following in pairwise(tokens):
                if token.text.lower() in _BY_TIME and following.text == "(":
                    return f"{name}= has {token.text}, for which the order of rows matters"
        return None

    def _reason(self) -> str | None:
        if (why := self.beyond_spark()) is not None:
            return why
        sources = self._stream.feeding()
        for stream in self._stream.flow.streams:
            if stream.late_source in sources:
                return f"{stream.name} is asked for"
            if stream.state is None or stream is self.window:
                continue
            if stream.state is self:
                return f"{stream.name} is asked for"
            if self.window in stream.upstream():
                return f"{stream.name} takes its results"
        for source in sources:
            assert source.time is not None
            if source.time.idle_after_ms is not None or source.time.ahead_ms is not None:
                return f"source {source.name} has idle_after= or ahead="
        above = next((node for node in self._stream.upstream() if node.state is not None), None)
        if above is not None:
            return f"it takes the results of {above.name}"
        return "engine='kernel'" if self.window.window_spec.engine == "kernel" else None

    # ---- as the kernel sees it ----------------------------------------------------------------------

    @property
    def inputs(self) -> tuple[KeyedInput, ...]:  # type: ignore[override]
        """The columns that the aggregates need, once the flow was checked, and all columns of the rows if a
        stream shows the rows that don't count."""
        apart = self._apart
        own = ("*",) if self._rows_are_wanted() else ()
        return (
            KeyedInput(self._stream, self.window.window_spec.by, (*own, *(apart.selected if apart else ()))),
        )

    @property
    def plan(self) -> ProgramPlan:  # type: ignore[override]
        from millstream.pipeline.kernel.windows.fixed import TimeWindows
        from millstream.pipeline.kernel.windows.sessions import Sessions
        from millstream.pipeline.kernel.windows.sliding import SlidingWindows

        apart = self.taken_apart(self.why or "")
        spec, time = self.window.window_spec, self._stream.time
        assert time is not None, "a window without a time is refused when it is declared"
        keys, calls, what = len(spec.by), tuple(apart.calls.values()), spec.describe()
        final = spec.emit == "final"
        if spec.size_ms is None:
            return Sessions(
                keys,
                calls,
                time.basis,
                final,
                spec.retract,
                what,
                gap=None if spec.gap_ms is None else 1000 * spec.gap_ms,
                opens=None if spec.opens is None else apart.column(spec.opens),
                closes=None if spec.closes is None else apart.column(spec.closes),
                timeout=1000 * (spec.timeout_ms or 0),
                from_first=spec.timeout_from == "first",
                outside=any(one.channel_name == OUTSIDE for one in self._channels()),
            )
        size = 1000 * spec.size_ms
        if spec.each_event:
            return SlidingWindows(keys, size, calls, time.basis, what)
        return TimeWindows(
            keys, size, 1000 * (spec.every_ms or spec.size_ms), calls, time.basis, final, spec.retract, what
        )

    def taken_apart(self, why: str) -> SplitAggregates:
        """The aggregates as the kernel computes them. Raises TopologyError if it can't."""
        if self._apart is None:
            spec = self.window.window_spec
            outside = [*(str(output_name(key)) for key in spec.by), WINDOW_START, WINDOW_END]
            try:
                self._apart = take_apart(self.window.aggregates, outside)
                for condition in (spec.opens, spec.closes):
                    if condition is not None:
                        self._apart.column(condition)
            except NotOnKernel as error:
                raise TopologyError(f"{error}. The kernel is needed because {why}", where=self.at) from None
        return self._apart

    def shape(self) -> Mapping[str, object]:
        """What the window's state depends on, whatever the order of its aggregates in the file. It does not
        depend on the engine that computes it."""
        spec, given = self.window.window_spec, self.window.aggregates.items()
        return {
            "window": spec.describe(),
            "emit": spec.emit,
            "retract": spec.retract,
            "opens": spec.opens,
            "closes": spec.closes,
            "aggregates": {
                name: without_spaces(one) if isinstance(one, str) else one.shape() for name, one in given
            },
        }

    def origins(self) -> list[Any]:
        return [self._stream.origin()]  # the columns it takes are those of its aggregates

    def _channels(self) -> list[ChannelNode]:
        """Its channels beside the results."""
        streams = self._stream.flow.streams
        return [one for one in streams if isinstance(one, ChannelNode) and one.state is self][1:]

    def _rows_are_wanted(self) -> bool:
        sources = self._stream.feeding()
        late = any(stream.late_source in sources for stream in self._stream.flow.streams)
        return late or bool(self._channels())


def declare_window(
    stream: StreamNode,
    spec: WindowSpec,
    aggregates: dict[str, str | PythonAggregate],
    name: str | None,
    *,
    at: str,
    agg_at: str,
) -> WindowNode:
    """A window with its aggregates. ``at`` is the line of the window, ``agg_at`` that of the aggregates."""
    if not aggregates:
        raise TopologyError("agg needs at least one aggregate, for example n='count(*)'", where=agg_at)
    keys = [str(output_name(key)) for key in spec.by]
    own = [WINDOW_START, WINDOW_END, TIME_BASIS, *([CHANGE] if spec.retract else [])]
    for key in keys:
        if key.lower() in own:
            raise TopologyError(
                f"a window's result has a column {key!r} of its own; give the key another name:"
                f" by='{key} AS first_{key}'",
                where=agg_at,
            )
    taken = [column.lower() for column in (*keys, *own)]
    for column, given in aggregates.items():
        _check_aggregate(stream, column, given, agg_at)
        if column.lower() in taken or column.startswith(HIDDEN):
            raise TopologyError(
                f"the result already has a column {column!r}; give the aggregate another name", where=agg_at
            )
    return WindowNode(stream, spec, aggregates, name, at)


def _check_aggregate(stream: StreamNode, name: str, given: object, at: str) -> None:
    if isinstance(given, PythonAggregate):
        for argument in given.arguments:
            stream.check(argument, f"aggregate {name}= of", at)
        return
    if callable(given):
        raise TopologyError(
            f"{name}= is a plain function; declare its columns and its result type:"
            " @millstream.aggregate('amount', returns='double')",
            where=at,
        )
    stream.check(given, f"aggregate {name}=", at)
    if "(" not in str(given):
        raise TopologyError(
            f"{name}={given!r} is not an aggregate; a window has many rows, so use sum({given}),"
            f" max({given}), ...",
            where=at,
        )
