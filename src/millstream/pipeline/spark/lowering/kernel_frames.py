"""Connects the kernel to Spark's plan: rows go in with their positions and times, channels come out.

On the way in, every row carries its *position* (source, partition, offset) in a column of its own, through
every step between the source and the operator. A row that is filtered out on the way still advances the
watermark; otherwise a source of which nothing is wanted at present would hold everything back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from millstream.core.errors import MillstreamError, TopologyError
from millstream.pipeline.dsl.expressions import with_columns, without_alias
from millstream.pipeline.dsl.graph import KeyedInput, Stateful, StreamNode
from millstream.pipeline.dsl.stateful import ChannelNode
from millstream.pipeline.kernel.bucket import KeyedOperator
from millstream.pipeline.kernel.channels import COUNTED
from millstream.pipeline.kernel.clock import MADE, TimeRules
from millstream.pipeline.kernel.packing import BUCKET, CLOCK, PACKED, Pack, Unpack, struct_name
from millstream.pipeline.kernel.state.containers import OFFSET, PARTITION, SOURCE, TIME
from millstream.pipeline.spark.failures import condensed
from millstream.pipeline.spark.kernel_operator import (
    RESULTS,
    STATUS,
    KernelProcessor,
    StateLocation,
    time_of_batch,
)
from millstream.pipeline.spark.row_positions import ROW_POSITION, RowPositions
from millstream.sqltypes.ddl import quoted

_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
_STATUS_SCHEMA = (
    "watermark bigint, waits_for bigint, timer bigint, may_move bigint, entries bigint, bytes bigint"
)


@dataclass(frozen=True, slots=True)
class PositionedRows:
    """The rows of a stream with their positions, on their way to a stateful operator."""

    frame: DataFrame
    behind_state: bool = False  # they include results of another stateful operator
    has_clock_rows: bool = False  # beside them are rows that only advance the watermark
    lost_positions: bool = False  # a function has made rows whose positions are not known


class KernelFrames:
    """The DataFrames of stateful operators, each made once. ``accepted`` gives a source's parsed records."""

    positions = RowPositions()

    def __init__(
        self,
        accepted: Callable[..., DataFrame],
        run: str,
        output_mode: str,
        keeping: Callable[[Stateful], StateLocation],
    ) -> None:
        self.accepted = accepted
        self._keeping = keeping
        self._run = run
        self._mode = output_mode
        self._made: dict[int, DataFrame] = {}
        self._placed: dict[int, Any] = {}
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

    def picked(self, stream: ChannelNode) -> tuple[str, dict[str, str]]:
        """The condition that selects a channel's rows, and the SQL of its columns."""
        frame = self.of(stream.state)
        number = self._channels[id(stream.state)].index(stream.channel_name)
        struct = struct_name(number)
        names = frame.schema[struct].dataType.fieldNames()
        made = {name: f"{struct}.{quoted(name)}" for name in names}
        if stream.selected is not None:
            made = {name: with_columns(sql, made) for name, sql in stream.selected.items()}
        return f"channel = '{stream.channel_name}'", made

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
        self.inputs[stateful.identity] = stateful, schemas
        operator = KeyedOperator(stateful.name, stateful.plan, schemas, rules)
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
            [
                kind
                for _, kind in self.positioned(one.stream)
                .frame.selectExpr(*map(_named, one.by, one.keys))
                .dtypes
            ]
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
                    f"keys must have the same type to be compared: {said}. Cast one, for example"
                    f" 'CAST({inputs[0].keys[at]} AS {kinds_of_key[-1]}) AS {inputs[0].keys[at]}'",
                    where=stateful.at,
                )
        return kinds

    def _keyed(self, one: KeyedInput, buckets: int, kinds: list[str | None]) -> DataFrame:
        """An input's rows: first the columns that the kernel needs, then the keys, then the other columns."""
        frame = self.positioned(one.stream).frame
        time = one.stream.time
        assert time is not None
        plain = [without_alias(key) for key in one.by]
        made = [
            key if kind is None else f"CAST(({key}) AS {kind})"
            for key, kind in zip(plain, kinds, strict=True)
        ]
        keys = [f"{key} AS {quoted(name)}" for key, name in zip(made, one.keys, strict=True)]
        every = [quoted(name) for name in frame.columns if name != ROW_POSITION and name not in one.keys]
        columns: list[str] = []
        for column in ("*",) if one.columns is None else one.columns:
            columns += every if column == "*" else [column] if column not in one.keys else []
        hashed = ", ".join(made)
        return frame.selectExpr(
            f"pmod(hash({hashed}), {buckets}) AS {BUCKET}",
            f"{time.sql} AS {TIME}",
            f"{ROW_POSITION}.source AS {SOURCE}",
            f"{ROW_POSITION}.partition AS {PARTITION}",
            f"{ROW_POSITION}.offset AS {OFFSET}",
            f"{ROW_POSITION}.clock AS {CLOCK}",
            *keys,
            *columns,
        )

    def positioned(self, stream: StreamNode) -> PositionedRows:
        """A stream's rows with their positions."""
        positioned = self.made(stream)
        assert isinstance(positioned, PositionedRows)
        return positioned

    def made(self, stream: StreamNode) -> Any:
        """The same. Of a function that splits its rows, the rows of each channel by its name."""
        if id(stream) not in self._placed:
            try:
                positioned = lower_positioned(stream, self)
                if isinstance(positioned, PositionedRows):
                    _ = positioned.frame.schema
            except MillstreamError:
                raise
            except Exception as error:
                raise TopologyError(condensed(error), where=stream.at) from error
            self._placed[id(stream)] = positioned
        return self._placed[id(stream)]

    def _rules(self, stateful: Stateful) -> dict[tuple[int, int], TimeRules]:
        """The time rules of the inputs' sources, and those for rows that have no positions."""
        rules = stateful.rules()
        for number, one in enumerate(stateful.inputs):
            if self.positioned(one.stream).lost_positions:
                assert one.stream.time is not None
                rules[number, MADE] = one.stream.time.rules
        return rules


@singledispatch
def lower_positioned(stream: object, kernels: KernelFrames) -> Any:
    """Make the rows of a stream with their positions: a ``PositionedRows``. For a function that splits its
    rows, one for each channel by its name."""
    raise NotImplementedError(f"{type(stream).__name__} can't be the input of a stateful operator")


def _named(key: str, name: str) -> str:
    return f"{without_alias(key)} AS {quoted(name)}"


def check_time(stream: StreamNode, frame: DataFrame) -> None:
    """Refuse a DataFrame that lacks the stream's time column."""
    assert stream.time is not None
    if stream.time.column not in frame.columns:
        raise TopologyError(
            f"{stream.name!r} returns no column {stream.time.column!r}, which is the time of its rows. Keep"
            " the column, or name the new time column: .operator(time='column')",
            where=stream.at,
        )
