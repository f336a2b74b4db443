"""Runs stateful operators in the test's own process: the kernel's programs, as Spark's tasks run them.

There is one bucket. The kernel guarantees that results do not depend on the number of buckets. With only one,
results come in time order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as fn

from millstream.core.errors import MillstreamError, TopologyError
from millstream.pipeline.dsl.graph import Stateful, TopicSink
from millstream.pipeline.dsl.sources import SourceNode
from millstream.pipeline.formats.decode import decoded
from millstream.pipeline.kernel.bucket import Bucket, KeyedOperator
from millstream.pipeline.kernel.channels import AHEAD, LATE
from millstream.pipeline.kernel.clock import BatchTime
from millstream.pipeline.kernel.packing import IN_FRONT, Pack, Unpack, unpacked
from millstream.pipeline.kernel.state.containers import to_bytes
from millstream.pipeline.kernel.state.store import StateStore
from millstream.pipeline.spark.kernel_operator import STATUS, StateLocation
from millstream.pipeline.spark.lowering.frames import Frames
from millstream.pipeline.spark.lowering.kernel_frames import KernelFrames
from millstream.pipeline.spark.row_positions import ROW_POSITION, RowPositions
from millstream.testing.dataframe import DataFrame
from millstream.testing.engine import Engine


class OperatorStates:
    """The running stateful operators of a flow, kept from batch to batch."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[str, Bucket]] = {}

    def bucket(self, operator: KeyedOperator, known_as: str) -> Bucket:
        if operator.name not in self._buckets:
            self._buckets[operator.name] = known_as, Bucket(operator, StateStore())
        return self._buckets[operator.name][1]

    def named(self) -> dict[str, Bucket]:
        return dict(self._buckets.values())

    def names(self) -> set[str]:
        return set(self._buckets)

    def of(self, operators: Collection[str]) -> list[Bucket]:
        """The buckets of the operators with these names, as far as they are running."""
        return [bucket for name, (_, bucket) in self._buckets.items() if name in operators]

    def __iter__(self) -> Iterator[Bucket]:
        return iter(bucket for _, bucket in self._buckets.values())


@dataclass(frozen=True, slots=True)
class BatchClock:
    """The time of a batch, and the operators whose event time it advances once the input has ended."""

    at: BatchTime
    carried: Collection[str] = ()

    def of(self, operator: KeyedOperator) -> BatchTime:
        return self.at if operator.name in self.carried else BatchTime(self.at.now)


class DriverRowPositions(RowPositions):
    """Hides row positions in the driver's own DataFrames."""

    def hide(self, frame: Any) -> Any:
        return frame.hide(ROW_POSITION) if isinstance(frame, DataFrame) else super().hide(frame)

    def steps(self, made: Any, hidden: Any) -> set[str] | None:
        return made.steps if isinstance(made, DataFrame) else super().steps(made, hidden)

    def shown(self, made: Any) -> Any:
        return made.show_hidden() if isinstance(made, DataFrame) else super().shown(made)


class InProcessKernels(KernelFrames):
    """Stateful operators whose rows are DataFrames of the engine and whose state is in ``states``."""

    positions = DriverRowPositions()

    def __init__(
        self, accepted: Callable[..., Any], engine: Engine, states: OperatorStates, time: BatchClock
    ) -> None:
        super().__init__(accepted, "", "update", lambda stateful: StateLocation())
        self._engine, self._states, self._time = engine, states, time
        self.beside: dict[str, list[pa.Table]] = {}  # late and early rows, by stream and word

    def _run_on_spark(self, stateful: Stateful) -> Any:
        kinds = self._key_kinds(stateful)
        tables = [self._keyed(one, 1, kinds).toArrow() for one in stateful.inputs]
        operator = self._operator(stateful, [table.schema for table in tables])
        given = self._step(operator, tables, stateful.known_as)
        channels = operator.channels()
        unpack = Unpack(channels)
        self._channels[id(stateful)] = list(channels)
        rows = list(unpack(iter([pa.RecordBatch.from_pylist(given, _RESULTS)])))
        table = pa.Table.from_batches(rows, unpack.schema) if rows else unpack.schema.empty_table()
        return self._observed(self._engine.frame(table), stateful)

    def _operator(self, stateful: Stateful, schemas: list[pa.Schema]) -> KeyedOperator:
        own = tuple(pa.schema([f for f in schema if f.name not in IN_FRONT]) for schema in schemas)
        return KeyedOperator(stateful.name, stateful.plan, own, self._rules(stateful))

    def _step(self, operator: KeyedOperator, tables: list[pa.Table], known_as: str) -> list[dict[str, Any]]:
        """Run a batch through the operator. Returns what a task would: blobs by channel, and its status."""
        blobs: list[bytes] = []
        for number, table in enumerate(tables):
            rules = {source: rule for (at, source), rule in operator.rules.items() if at == number}
            pack = Pack(number, 1, rules, lambda: self._time.of(operator))
            for packed in pack(iter(table.combine_chunks().to_batches())):
                blobs += packed["blob"].to_pylist()
        bucket = self._states.bucket(operator, known_as)
        results = bucket.step(unpacked(blobs))
        for channel, table in results.items():
            word = channel.partition(".")[0]
            if word in (LATE, AHEAD):
                self.beside.setdefault(f"{known_as}.{word}", []).append(table)
        given = [{"channel": name, "blob": to_bytes(table)} for name, table in results.items()]
        told = {"operator": operator.name, "bucket": 0, **asdict(bucket.status()), "bytes": 0}
        return [*given, {"channel": STATUS, "blob": json.dumps(told).encode()}]


_RESULTS = pa.schema([pa.field("channel", pa.string()), pa.field("blob", pa.binary())])


def _checked(sink: TopicSink, kind: str) -> None:
    """Refuse an encoded topic whose columns do not fit its schema, as planning a job would. The values are
    not encoded: a test sees JSON."""
    from millstream.pipeline.formats.encoded_rows import check_columns

    assert sink.value_schema is not None
    try:
        check_columns(sink.value_schema, kind)
    except MillstreamError as error:
        said = f"topic {sink.topic!r} as {sink.value_schema.format}: {error}"
        raise TopologyError(said, where=sink.at) from None


class BatchFrames(Frames):
    """The DataFrames of one batch. ``raw`` returns a source's records in the batch."""

    def __init__(
        self, raw: Callable[[SourceNode], pa.Table], engine: Engine, states: OperatorStates, time: BatchClock
    ) -> None:
        super().__init__(lambda source: None, encode=_checked)
        self._raw, self._engine = raw, engine
        self.kernels: InProcessKernels = InProcessKernels(self.accepted, engine, states, time)

    def rows(self, source: SourceNode) -> Any:
        if id(source) not in self._decoded:
            self._decoded[id(source)] = decoded(self._engine.frame(self._raw(source)), source)
        return self._decoded[id(source)]

    def accepted(self, source: SourceNode, *columns: Any) -> Any:
        """The rows, whose processing time is the driver's time, whatever Spark thinks it is."""
        frame: Any = super().accepted(source, *columns)
        if source.time is None or source.time.kind != "processing":
            return frame
        return frame.withColumn(source.time.column, fn.lit(self._engine.moment.now))
