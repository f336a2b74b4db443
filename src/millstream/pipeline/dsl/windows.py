"""Windows as streams: ``stream.window(...).agg(...)``. Declarations only, no Spark.

A window is Spark's own aggregation unless it has to do more; then it runs on the keyed kernel. The choice
between the two is made when the flow is planned, because it may depend on later declarations: a stream of the
late rows, or another window over the results.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.declaring import caller
from millstream.pipeline.dsl.expressions import output_name, tokens_of, without_spaces
from millstream.pipeline.dsl.late import SourceChannel
from millstream.pipeline.dsl.sql_aggregates import NotOnKernel, TakenApart, take_apart
from millstream.pipeline.dsl.stateful import Input, Stateful, StatefulChannel, feeding_sources
from millstream.pipeline.dsl.streams import Stream
from millstream.pipeline.dsl.window_bounds import WindowSpec
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
    from millstream.pipeline.kernel.program import Plan

# Aggregates whose result depends on the order of rows.
_BY_TIME = {"first", "first_value", "last", "last_value", "min_by", "max_by"}
_BY_TIME |= {"collect_list", "array_agg", "collect_set"}


class Window:
    """A window that still needs its aggregates: ``.agg(n="count(*)", spent="sum(amount)")``."""

    def __init__(self, stream: Stream, spec: WindowSpec, name: str | None, at: str) -> None:
        self.stream, self.spec, self.name, self.at = stream, spec, name, at
        self.aggregated = False
        stream.flow._windows.append(self)

    def agg(self, **aggregates: str | PythonAggregate) -> Aggregate:
        """Named aggregates over the rows of each window: SQL, or functions made with millstream.aggregate."""
        at = caller()
        if not aggregates:
            raise TopologyError("agg needs at least one aggregate, for example n='count(*)'", where=at)
        keys = [str(output_name(key)) for key in self.spec.by]
        own = [WINDOW_START, WINDOW_END, TIME_BASIS, *([CHANGE] if self.spec.retract else [])]
        for key in keys:
            if key.lower() in own:
                raise TopologyError(
                    f"a window's result has a column {key!r} of its own; give the key another name:"
                    f" by='{key} AS first_{key}'",
                    where=at,
                )
        taken = [*keys, *own]
        for name, given in aggregates.items():
            self._check(name, given, at)
            if name.lower() in (column.lower() for column in taken) or name.startswith(HIDDEN):
                raise TopologyError(
                    f"the result already has a column {name!r}; name the aggregate otherwise", where=at
                )
        self.aggregated = True
        return Aggregate(self, dict(aggregates), at)

    def _check(self, name: str, given: object, at: str) -> None:
        if isinstance(given, PythonAggregate):
            for argument in given.arguments:
                self.stream._check(argument, f"aggregate {name}= of", at)
            return
        if callable(given):
            raise TopologyError(
                f"{name}= is a plain function; say of which values, and what it gives:"
                f" @millstream.aggregate('amount', returns='double')",
                where=at,
            )
        self.stream._check(given, f"aggregate {name}=", at)
        if "(" not in str(given):
            raise TopologyError(
                f"{name}={given!r} is not an aggregate; a window has many rows: sum({given}),"
                f" max({given}), ...",
                where=at,
            )


class Aggregate(StatefulChannel):
    """The results of a window: its keys, window_start, window_end, the aggregates, and the time it went
    by."""

    def __init__(self, window: Window, aggregates: dict[str, str | PythonAggregate], at: str) -> None:
        spec = window.spec
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
        self._why: tuple[object, str | None] | None = None
        time = None
        if spec.emit == "final" and window.stream.time is not None:
            # If an event moves or closes a window, the window's end still belongs to it.
            before = 1 if spec.size_ms is not None and not spec.each_event else 0
            time = window.stream.time.of_results(WINDOW_END, before_us=before)
        state = self._window = WindowState(self, window.stream, window.at)
        super().__init__(
            state, MAIN, at=window.at, name=window.name, columns=tuple(columns), time=time, kind="window"
        )
        if time is None:
            self.no_time = (
                f"window {self.name!r} ({self.at}) gives results that change; stateful operators take those"
                " that don't: give it emit='final'"
            )
        why = (
            spec.only_kernel()
            or self._not_sparks()
            or ("engine='kernel'" if spec.engine == "kernel" else None)
        )
        if why is not None:
            if spec.engine == "native":
                raise TopologyError(
                    f"engine='native': Spark can't, because {why}; leave engine= out", where=at
                )
            state.taken_apart(why)

    @property
    def sql(self) -> dict[str, str]:
        """The aggregates that are SQL, which Spark can compute itself."""
        return {name: given for name, given in self.aggregates.items() if isinstance(given, str)}

    # ---- Spark's own, or the kernel -----------------------------------------------------------------

    @property
    def native(self) -> bool:
        return self.why_kernel() is None

    def why_kernel(self) -> str | None:
        """Why the window runs on the kernel; None if it is Spark's own."""
        asked = len(self.flow.streams), self.flow.kernel_only
        if self._why is None or self._why[0] != asked:
            self._why = asked, self.flow.kernel_only or self._reason()
        return self._why[1]

    def _not_sparks(self) -> str | None:
        """Why Spark can't compute an aggregate in a stream; None if it can compute all of them."""
        for name, given in self.aggregates.items():
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
        spec, state = self.window_spec, self.stateful
        if (why := spec.only_kernel() or self._not_sparks()) is not None:
            return why
        sources = feeding_sources(self.inputs[0])
        for stream in self.flow.streams:
            if isinstance(stream, SourceChannel) and stream.source in sources:
                return f"{stream.name} is asked for"
            if not isinstance(stream, StatefulChannel) or stream is self:
                continue
            if stream.stateful is state:
                return f"{stream.name} is asked for"
            if self in stream.upstream():
                return f"{stream.name} takes its results"
        for source in sources:
            assert source.time is not None
            if source.time.idle_after_ms is not None or source.time.ahead_ms is not None:
                return f"source {source.name} has idle_after= or ahead="
        above = next((node for node in self.upstream()[1:] if isinstance(node, StatefulChannel)), None)
        if above is not None:
            return f"it takes the results of {above.name}"
        return "engine='kernel'" if spec.engine == "kernel" else None

    def settle(self) -> None:
        """Refuse what the chosen engine can't do. Called when everything is declared."""
        why = self.why_kernel()
        if why is None:
            return
        if self.window_spec.engine == "native":
            raise TopologyError(
                f"engine='native', but Spark's own windows can't do what is asked for: {why}", where=self.at
            )
        self.stateful.plan.describe()

    @property
    def selected(self) -> dict[str, str] | None:
        apart = self._window.taken_apart(self.why_kernel() or "")
        if apart.plain:
            return None
        return {name: apart.results.get(name, f"`{name}`") for name in self.columns or ()}

    @property
    def outside(self) -> Stream:
        """The events that came while their key had no open session."""
        at = caller()
        if self.window_spec.opens is None:
            raise TopologyError(".outside is of sessions that an event opens (opens=)", where=at)
        (stream,) = self.inputs
        made = self.flow._channel(self.stateful, OUTSIDE, f"{self.stateful.name}.{OUTSIDE}", at)
        assert stream.time is not None
        made.time = stream.time.of_results(stream.time.column)
        return made

    def about(self) -> str:
        return f"{self.window_spec.describe()}: {', '.join(self.aggregates)}"


class WindowState(Stateful):
    """A window as an operator of the kernel. Its inputs and its plan are derived on request, since they
    depend on which of its channels are used."""

    def __init__(self, aggregate: Aggregate, stream: Stream, at: str) -> None:
        self._aggregate, self._stream = aggregate, stream
        self.main, self.at = aggregate, at
        self._apart: TakenApart | None = None

    @property
    def why(self) -> str | None:
        """Why the window runs on the kernel."""
        return self._aggregate.why_kernel()

    @property
    def inputs(self) -> tuple[Input, ...]:  # type: ignore[override]
        """The columns that the aggregates need, once the flow was checked, and all columns of the rows if a
        stream shows the rows that don't count."""
        apart = self._apart
        own = ("*",) if self._rows_are_wanted() else ()
        return (
            Input(self._stream, self._aggregate.window_spec.by, (*own, *(apart.selected if apart else ()))),
        )

    @property
    def plan(self) -> Plan:  # type: ignore[override]
        from millstream.pipeline.kernel.windows.fixed import TimeWindows
        from millstream.pipeline.kernel.windows.sessions import Sessions
        from millstream.pipeline.kernel.windows.sliding import SlidingWindows

        apart = self.taken_apart(self._aggregate.why_kernel() or "")
        spec, time = self._aggregate.window_spec, self._stream.time
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
                outside=self._asked_for(OUTSIDE),
            )
        size = 1000 * spec.size_ms
        if spec.each_event:
            return SlidingWindows(keys, size, calls, time.basis, what)
        return TimeWindows(
            keys, size, 1000 * (spec.every_ms or spec.size_ms), calls, time.basis, final, spec.retract, what
        )

    def taken_apart(self, why: str) -> TakenApart:
        """The aggregates as the kernel computes them. Raises TopologyError if it can't."""
        if self._apart is None:
            spec = self._aggregate.window_spec
            outside = [*(str(output_name(key)) for key in spec.by), WINDOW_START, WINDOW_END]
            try:
                self._apart = take_apart(self._aggregate.aggregates, outside)
                for condition in (spec.opens, spec.closes):
                    if condition is not None:
                        self._apart.column(condition)
            except NotOnKernel as error:
                raise TopologyError(f"{error}. The kernel is needed because {why}", where=self.at) from None
        return self._apart

    def window_shape(self) -> dict[str, object]:
        """What the window's state depends on, whatever the order of its aggregates in the file."""
        spec, given = self._aggregate.window_spec, self._aggregate.aggregates.items()
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

    def _asked_for(self, channel: str) -> bool:
        return any(
            isinstance(one, StatefulChannel) and one.stateful is self and one.channel_name == channel
            for one in self._stream.flow.streams
        )

    def _rows_are_wanted(self) -> bool:
        sources = feeding_sources(self._stream)
        return any(
            (isinstance(stream, SourceChannel) and stream.source in sources)
            or (
                isinstance(stream, StatefulChannel)
                and stream.stateful is self
                and stream is not self._aggregate
            )
            for stream in self._stream.flow.streams
        )
