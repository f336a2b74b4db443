"""Runs a flow batch by batch: records in; records, changes of views and the rows of streams out.

The plan, the DataFrames, what sinks make of rows and the rules of views are the same as in a job. Only
three things differ: records come from the test, the engine evaluates SQL, and stateful operators run in
this process.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.core.errors import MillstreamError, TopologyError
from millstream.pipeline.dsl.graph import TopicSink
from millstream.pipeline.dsl.sources import SourceNode
from millstream.pipeline.dsl.topology import Topology
from millstream.pipeline.formats.decode import accepted, decoded, rejected
from millstream.pipeline.kernel.clock import BatchTime
from millstream.pipeline.planning.plan import Query, plan
from millstream.pipeline.planning.query_order import in_order, is_circle
from millstream.pipeline.planning.sink_columns import SINK, view_column
from millstream.pipeline.spark.failures import condensed
from millstream.pipeline.spark.lowering.sinks import sink_rows
from millstream.pipeline.sql.casts import from_micros
from millstream.testing.engine import Engine
from millstream.testing.kernels import BatchClock, BatchFrames, OperatorStates
from millstream.testing.records import RAW, Record, raw_table
from millstream.views.views import Changes, View


@dataclass(slots=True)
class BatchOutput:
    """The output of a batch."""

    records: list[tuple[str, Record]] = field(default_factory=list)
    changes: list[Changes] = field(default_factory=list)
    rows: dict[str, list[pa.Table]] = field(default_factory=dict)


class FlowRunner:
    def __init__(self, flow: Topology, engine: Engine) -> None:
        self.flow = flow
        plan(flow)  # refuses what a job would refuse
        with self._on_kernel():
            self.plan = plan(flow)
        self.engine = engine
        self.states = OperatorStates()
        self.views: dict[str, View] = {}
        # Run everything once without rows, on state that is thrown away, so that mistakes are reported now.
        self._batch({}, BatchClock(BatchTime(0)), OperatorStates())

    def batch(self, records: Mapping[str, Sequence[Record]], time: BatchClock) -> BatchOutput:
        """Run a batch. ``records``, by topic, are all that came since the last one."""
        return self._batch(records, time, self.states)

    def _batch(
        self, records: Mapping[str, Sequence[Record]], time: BatchClock, states: OperatorStates
    ) -> BatchOutput:
        self.engine.moment.now = from_micros(time.at.now)

        def raw(source: SourceNode) -> pa.Table:
            return raw_table(source.topic, records.get(source.topic, ())) if records else RAW.empty_table()

        given = BatchOutput()
        with self._on_kernel(), self.engine.at_work():
            frames = BatchFrames(raw, self.engine, states, time)
            for query in self.plan.queries:
                self._deliver(query, frames, given)
            for stream in self.flow.streams:
                if stream.named and stream.has_rows:
                    given.rows[stream.name] = [frames.of(stream).toArrow()]
            # A test may want to see these even if the flow does not use them.
            for source in self.flow.sources:
                name = f"{source.name}.rejected"
                if name not in given.rows:
                    given.rows[name] = [rejected(frames.rows(source)).toArrow()]
            given.rows |= {n: t for n, t in frames.kernels.beside.items() if n not in given.rows}
        return given

    def in_order(self) -> list[tuple[set[str], bool]]:
        """The operators by name, in the order in which they come to their end, like a job's queries: time may
        not pass what an operator still has to read from others. Each group comes with True if its operators
        read from each other."""
        with self._on_kernel():
            found = [
                ({operator.name for query in group for operator in query.operators}, is_circle(group))
                for group in in_order(self.plan)
            ]
        last, _ = found[-1]
        last |= self.states.names().difference(*(names for names, _ in found))  # those that no sink uses
        return found

    @contextmanager
    def _on_kernel(self) -> Iterator[None]:
        """Run windows on the kernel too that a job would leave to Spark."""
        before, self.flow.kernel_only = self.flow.kernel_only, "the test driver has no other"
        try:
            yield
        finally:
            self.flow.kernel_only = before

    def times(self, source: SourceNode, records: Sequence[Record]) -> list[Any]:
        """The event times of records that a source accepts."""
        assert source.time is not None
        with self.engine.at_work():
            rows = decoded(self.engine.frame(raw_table(source.topic, records)), source)
            return list(accepted(rows, source).toArrow()[source.time.column].to_pylist())

    def _deliver(self, query: Query, frames: BatchFrames, given: BatchOutput) -> None:
        for sink in query.sinks:
            frames.of(sink.stream)
        try:
            rows, views = sink_rows(query, frames)
            table = rows.toArrow()
        except MillstreamError:
            raise
        except Exception as error:
            raise TopologyError(condensed(error), where=query.sinks[0].at) from error
        for number, sink in enumerate(query.sinks):
            own = table.filter(pc.equal(table[SINK], number))
            if isinstance(sink, TopicSink):
                given.records += [(sink.topic, record) for record in _records(own, self.engine)]
            else:
                self.views[sink.name] = views[number]
                names = [view_column(number, at) for at in range(len(views[number].columns) + 1)]
                *values, deleted = [own[name].to_pylist() for name in names]
                given.changes.append(Changes(views[number], list(zip(*values, strict=True)), deleted))


def _records(table: pa.Table, engine: Engine) -> list[Record]:
    def column(name: str) -> list[Any]:
        return table[name].to_pylist() if name in table.column_names else [None] * table.num_rows

    return [
        Record(
            value,
            key,
            {name: str(text).encode() for name, text in json.loads(headers or "{}").items()},
            timestamp or engine.moment.now,
        )
        for value, key, headers, timestamp in zip(
            *map(column, ("value", "key", "headers", "timestamp")), strict=True
        )
    ]
