"""Connects the kernel to Spark's plan: rows go in with their places and times, channels come out.

On the way in, every row carries its *place* (source, partition, offset) in a column of its own, through
every step between the source and the operator. A row that is filtered out on the way still advances the
watermark; otherwise a source of which nothing is wanted at present would hold everything back. A user's
function is given neither places nor such rows (placing.py): these bypass the function. If the rows that the
function returns have lost their places, all rows that it took bypass it too, to advance the time of each
partition. That costs one more read of the source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from millstream.core.errors import MillstreamError, TopologyError
from millstream.pipeline.dsl.expressions import with_columns, without_alias
from millstream.pipeline.dsl.stateful import Input, Stateful, StatefulChannel
from millstream.pipeline.dsl.streams import Operator as UserOperator
from millstream.pipeline.dsl.streams import (
    Otherwise,
    Select,
    Source,
    SplitChannel,
    Stream,
    Union,
    Where,
)
from millstream.pipeline.formats.decode import accepted
from millstream.pipeline.kernel.channels import COUNTED
from millstream.pipeline.kernel.clock import MADE, NEVER, RESULT, TimeRules
from millstream.pipeline.kernel.packing import BUCKET, CLOCK, MARK, PACKED, Pack, Unpack, struct_name
from millstream.pipeline.kernel.spark import RESULTS, STATUS, Keeping, KernelProcessor, time_of_batch
from millstream.pipeline.kernel.state.state import OFFSET, PARTITION, SOURCE, TIME
from millstream.pipeline.kernel.step import Operator
from millstream.pipeline.planning.identity import identity
from millstream.pipeline.spark.causes import condensed
from millstream.pipeline.spark.operators import check_time, operated
from millstream.pipeline.spark.placing import (
    CLOCK_PLACE,
    EVERY_ROW,
    MADE_PLACE,
    NO_OFFSET,
    PLACE,
    ROW_BY_ROW,
    Places,
)
from millstream.sqltypes.ddl import quoted

_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
_STATUS_SCHEMA = (
    "watermark bigint, waits_for bigint, timer bigint, may_move bigint, entries bigint, bytes bigint"
)


class Kernels:
    """The DataFrames of stateful operators, each made once. ``rows`` gives a source's parsed records."""

    places = Places()

    def __init__(
        self,
        rows: Callable[[Source], DataFrame],
        run: str,
        output_mode: str,
        keeping: Callable[[Stateful], Keeping],
    ) -> None:
        self._rows = rows
        self._keeping = keeping
        self._run = run
        self._mode = output_mode
        self._made: dict[int, DataFrame] = {}
        self._timed: dict[int, Any] = {}
        # Outputs of users' functions, each a stream and a channel (None where there is only one output).
        # The rows of the first set have no places. Those of the second set have rows beside them that only
        # advance the watermark.
        self._placeless: set[tuple[int, str | None]] = set()
        self._told_beside: set[tuple[int, str | None]] = set()
        self._channels: dict[int, list[str]] = {}
        self.inputs: dict[str, tuple[Stateful, tuple[pa.Schema, ...]]] = {}  # columns, by operator's identity

    # ---- out of the kernel --------------------------------------------------------------------------

    def of(self, stateful: Stateful) -> DataFrame:
        """All channels of an operator in one frame; ``picked`` selects the rows and columns of one."""
        if id(stateful) not in self._made:
            try:
                self._made[id(stateful)] = self._run_on_spark(stateful)
            except TopologyError as error:
                if error.where is None:  # a plan does not know where it was declared
                    raise TopologyError(str(error), where=stateful.at) from None
                raise
            except MillstreamError:
                raise
            except Exception as error:
                raise TopologyError(condensed(error), where=stateful.at) from error
        return self._made[id(stateful)]

    def picked(self, stream: StatefulChannel) -> tuple[str, dict[str, str]]:
        """The condition that selects a channel's rows, and the SQL of its columns."""
        frame = self.of(stream.stateful)
        number = self._channels[id(stream.stateful)].index(stream.channel_name)
        struct = struct_name(number)
        names = frame.schema[struct].dataType.fieldNames()
        made = {name: f"{struct}.{quoted(name)}" for name in names}
        if stream.selected is not None:
            made = {name: with_columns(sql, made) for name, sql in stream.selected.items()}
        return f"channel = '{stream.channel_name}'", made

    def channel(self, stream: StatefulChannel) -> DataFrame:
        """The rows of one channel."""
        condition, columns = self.picked(stream)
        made = [f"{sql} AS {quoted(name)}" for name, sql in columns.items()]
        return self.of(stream.stateful).where(condition).selectExpr(*made)

    def _run_on_spark(self, stateful: Stateful) -> DataFrame:
        flow = stateful.inputs[0].stream.flow
        kinds = self._key_kinds(stateful)
        frames = [self._keyed(one, flow.buckets, kinds) for one in stateful.inputs]
        rules = self._rules(stateful)
        zone = str(frames[0].sparkSession.conf.get("spark.sql.session.timeZone"))
        schemas = tuple(
            to_arrow_schema(frame.drop(BUCKET, TIME, SOURCE, PARTITION, OFFSET, CLOCK).schema, timezone=zone)
            for frame in frames
        )
        self.inputs[identity(stateful)] = stateful, schemas
        operator = Operator(stateful.name, stateful.plan, schemas, rules)
        channels = operator.channels()
        packed: DataFrame | None = None
        for number, frame in enumerate(frames):
            of_input = {source: rule for (at, source), rule in rules.items() if at == number}
            blobs = frame.mapInArrow(
                Pack(number, flow.buckets, of_input, time_of_batch), from_arrow_schema(PACKED)
            )
            packed = blobs if packed is None else packed.unionAll(blobs)
        assert packed is not None
        results = packed.groupBy(BUCKET).transformWithState(
            KernelProcessor(operator, self._run, self._keeping(stateful)), RESULTS, self._mode, "None"
        )
        unpack = Unpack(channels)
        self._channels[id(stateful)] = list(channels)
        rows = results.mapInArrow(unpack, from_arrow_schema(unpack.schema))
        return self._observed(rows, stateful)

    def _observed(self, rows: DataFrame, stateful: Stateful) -> DataFrame:
        """Report the operator's status to whatever listens to the query."""
        told = rows.withColumn(STATUS, fn.from_json(fn.col(STATUS).cast("string"), _STATUS_SCHEMA))
        return told.observe(
            f"state {stateful.name}",
            fn.max(f"{STATUS}.watermark").alias("watermark"),
            fn.min(f"{STATUS}.waits_for").alias("waits_for"),
            fn.min(f"{STATUS}.timer").alias("timer"),
            fn.min(f"{STATUS}.may_move").alias("may_move"),
            fn.sum(f"{STATUS}.entries").alias("entries"),
            fn.sum(f"{STATUS}.bytes").alias("bytes"),
            *(
                fn.count(fn.expr(f"CASE WHEN split_part(channel, '.', 1) = '{word}' THEN 1 END")).alias(word)
                for word in COUNTED
            ),
        )

    # ---- into the kernel ----------------------------------------------------------------------------

    def _key_kinds(self, stateful: Stateful) -> list[str | None]:
        """The types that an operator's keys are cast to; None for a key that is not cast. Rows of several
        inputs meet in one bucket only if their keys have the same type: Spark hashes an int differently
        from an equal bigint."""
        inputs = stateful.inputs
        found = [
            [kind for _, kind in self.timed(one.stream).selectExpr(*map(_named, one.by, one.keys)).dtypes]
            for one in inputs
        ]
        kinds: list[str | None] = []
        for at, kinds_of_key in enumerate(zip(*found, strict=True)):
            if len(set(kinds_of_key)) == 1:
                kinds.append(None)
            elif set(kinds_of_key) <= set(_WHOLE_NUMBERS):
                kinds.append(max(kinds_of_key, key=_WHOLE_NUMBERS.index))
            else:
                said = ", ".join(
                    f"{one.keys[at]!r} of {one.stream.name!r} is {kind}"
                    for one, kind in zip(inputs, kinds_of_key, strict=True)
                )
                raise TopologyError(
                    f"keys that are to be equal need the same type: {said}. Cast one, for example"
                    f" 'CAST({inputs[0].keys[at]} AS {kinds_of_key[-1]}) AS {inputs[0].keys[at]}'",
                    where=stateful.at,
                )
        return kinds

    def _keyed(self, one: Input, buckets: int, kinds: list[str | None]) -> DataFrame:
        """An input's rows: first the columns that the kernel needs, then the keys, then the other columns."""
        frame = self.timed(one.stream)
        time = one.stream.time
        assert time is not None
        plain = [without_alias(key) for key in one.by]
        made = [
            key if kind is None else f"CAST(({key}) AS {kind})"
            for key, kind in zip(plain, kinds, strict=True)
        ]
        keys = [f"{key} AS {quoted(name)}" for key, name in zip(made, one.keys, strict=True)]
        every = [quoted(name) for name in frame.columns if name != PLACE and name not in one.keys]
        columns: list[str] = []
        for column in ("*",) if one.columns is None else one.columns:
            columns += every if column == "*" else [column] if column not in one.keys else []
        hashed = ", ".join(made)
        return frame.selectExpr(
            f"pmod(hash({hashed}), {buckets}) AS {BUCKET}",
            f"{time.sql} AS {TIME}",
            f"{PLACE}.source AS {SOURCE}",
            f"{PLACE}.partition AS {PARTITION}",
            f"{PLACE}.offset AS {OFFSET}",
            f"{PLACE}.clock AS {CLOCK}",
            *keys,
            *columns,
        )

    def timed(self, stream: Stream) -> DataFrame:
        """A stream's rows with their places."""
        if id(stream) not in self._timed:
            try:
                frame = self._with_place(stream)
                if not isinstance(frame, dict):
                    _ = frame.schema
            except MillstreamError:
                raise
            except Exception as error:
                raise TopologyError(condensed(error), where=stream.at) from error
            self._timed[id(stream)] = frame
        frame = self._timed[id(stream)]
        assert isinstance(frame, DataFrame)
        return frame

    def _with_place(self, stream: Stream) -> Any:
        if isinstance(stream, Source):
            number = stream.flow.number_of(stream)
            place = fn.expr(
                f"named_struct('source', {number}, 'partition', partition, 'offset', offset, 'clock', false)"
            )
            return accepted(self._rows(stream), stream, place.alias(PLACE))
        if isinstance(stream, StatefulChannel):
            return self._of_results(stream)
        if isinstance(stream, Union):
            first, *others = [
                self.timed(part).withColumn(stream.tag, fn.lit(stream.tag_of(part)))
                if stream.tag
                else self.timed(part)
                for part in stream.inputs
            ]
            for other in others:
                first = first.unionByName(other, allowMissingColumns=True)
            return first
        if isinstance(stream, UserOperator):
            return self._operated(stream)
        if isinstance(stream, SplitChannel):
            self._timed.setdefault(id(stream.inputs[0]), self._with_place(stream.inputs[0]))
            return self._timed[id(stream.inputs[0])][stream.channel_name]
        frame = self.timed(stream.inputs[0])
        if isinstance(stream, Select):
            return frame.selectExpr(*stream.expressions, *([] if "*" in stream.expressions else [PLACE]))
        if isinstance(stream, Where):
            return self._filtered(frame, f"coalesce(({stream.condition}), false)", stream)
        assert isinstance(stream, Otherwise), stream
        without = " AND ".join(f"NOT coalesce(({one}), false)" for one in stream.conditions)
        return self._filtered(frame, without, stream)

    def _operated(self, stream: UserOperator) -> Any:
        """What a user's function makes of a stream's rows, with their places."""
        (above,) = stream.inputs
        given = self.timed(above)
        rows = given
        if self._tells(above) and not _behind_state(above):
            rows = given.where(f"NOT {PLACE}.clock")
        hidden = self.places.hide(rows)
        made = operated(stream, hidden)
        if isinstance(made, dict):
            return {name: self._placed(stream, name, one, given, hidden) for name, one in made.items()}
        return self._placed(stream, None, made, given, hidden)

    def _placed(
        self, stream: UserOperator, channel: str | None, made: DataFrame, given: DataFrame, hidden: DataFrame
    ) -> DataFrame:
        (above,) = stream.inputs
        assert above.time is not None
        assert stream.time is not None
        check_time(stream, made)
        steps = self.places.steps(made, hidden)
        if _behind_state(above):
            if steps is None or not steps <= EVERY_ROW or stream.time != above.time:
                raise TopologyError(
                    f"operator {stream.name!r} stands between two stateful operators, and does more than make"
                    " columns of columns: the first could not tell the second how far time has come. Use"
                    " .where() of the stream for what is to be left out, or write the results to a topic and"
                    " read them from there",
                    where=stream.at,
                )
            return self.places.shown(made)
        if steps is not None and steps <= ROW_BY_ROW:
            made = self.places.shown(made)
            if not self._tells(above):
                return made
            given = given.where(f"{PLACE}.clock")
        else:
            made = made.selectExpr("*", MADE_PLACE)
            self._placeless.add((id(stream), channel))
        self._told_beside.add((id(stream), channel))
        time = f"{quoted(above.time.column)} AS {quoted(stream.time.column)}"
        tells = given.selectExpr(time, f"{CLOCK_PLACE} AS {PLACE}")
        return made.unionByName(tells, allowMissingColumns=True)

    def _tells(self, stream: Stream) -> bool:
        """True if there are rows beside a stream's own that only advance the watermark."""
        if isinstance(stream, Where | Otherwise | StatefulChannel):
            return True
        return self._marked(stream, self._told_beside)

    def _rules(self, stateful: Stateful) -> dict[tuple[int, int], TimeRules]:
        """The time rules of the inputs' sources, and those for rows that have no places."""
        rules = stateful.rules()
        for number, one in enumerate(stateful.inputs):
            if self._marked(one.stream, self._placeless):
                assert one.stream.time is not None
                rules[number, MADE] = one.stream.time.rules
        return rules

    def _marked(self, stream: Stream, marked: set[tuple[int, str | None]]) -> bool:
        """True if the stream, or one that its rows come through, is among the marked ones."""
        if isinstance(stream, StatefulChannel):
            return False
        if isinstance(stream, SplitChannel):
            of = (id(stream.inputs[0]), stream.channel_name)
            return of in marked or self._marked(stream.inputs[0].inputs[0], marked)
        return (id(stream), None) in marked or any(self._marked(one, marked) for one in stream.inputs)

    def _filtered(self, frame: DataFrame, condition: str, stream: Stream) -> DataFrame:
        """Rows that don't match still advance the watermark, until they are packed for the kernel. Only
        their time column is kept: later steps must not fail on a row that they were not meant to see."""
        place = f"if({condition}, {PLACE}, {CLOCK_PLACE})"
        names = [name for name in frame.columns if name != PLACE]
        marked = frame.selectExpr(*(quoted(name) for name in names), f"{place} AS {PLACE}")
        time = stream.time.column if stream.time is not None else None
        return marked.selectExpr(
            *(
                quoted(name) if name == time else f"if({PLACE}.clock, NULL, {quoted(name)}) AS {quoted(name)}"
                for name in names
            ),
            PLACE,
        )

    def _of_results(self, stream: StatefulChannel) -> DataFrame:
        """Another operator's results, and how far it has come: a row with its watermark."""
        assert stream.time is not None
        condition, columns = self.picked(stream)
        told = f"channel = '{STATUS}'"
        made = dict(columns)
        # After everything that the operator has given, and before everything that it will give.
        reached = f"{STATUS}.watermark"
        mark = f"timestamp_micros(if({reached} = {NEVER}L, NULL, {reached} + {stream.time.mark_us}))"
        made[stream.time.column] = f"if({told}, {mark}, {columns[stream.time.column]})"
        offset = f"if({told}, {MARK}L, {NO_OFFSET}L)"
        place = f"named_struct('source', {RESULT}, 'partition', -1, 'offset', {offset}, 'clock', {told})"
        return (
            self.of(stream.stateful)
            .where(f"{condition} OR {told}")
            .selectExpr(*(f"{sql} AS {quoted(name)}" for name, sql in made.items()), f"{place} AS {PLACE}")
        )


def _behind_state(stream: Stream) -> bool:
    """True if a stream's rows include results of a stateful operator."""
    return isinstance(stream, StatefulChannel) or any(_behind_state(one) for one in stream.inputs)


def _named(key: str, name: str) -> str:
    return f"{without_alias(key)} AS {quoted(name)}"
