"""Makes Spark's DataFrames of a job's queries, over streams of their sources' records."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from millstream.pipeline.connector.columns import COLUMNS
from millstream.pipeline.connector.offsets import to_json
from millstream.pipeline.dsl.graph import Stateful, TopicSink
from millstream.pipeline.dsl.sources import SourceNode
from millstream.pipeline.formats.decode import plain_columns
from millstream.pipeline.planning.edited_columns import check_columns, to_text
from millstream.pipeline.planning.plan import Query
from millstream.pipeline.planning.record_columns import wanted_columns
from millstream.pipeline.run.checkpoint.checkpoint import Checkpoint, Continuation
from millstream.pipeline.run.settings import JobSettings
from millstream.pipeline.run.tick_schedule import TickSchedule
from millstream.pipeline.spark.job_session import check_supported
from millstream.pipeline.spark.kernel_operator import StateLocation
from millstream.pipeline.spark.lowering.frames import Frames
from millstream.pipeline.spark.lowering.sinks import sink_rows
from millstream.sqltypes.python_functions import registered_functions
from millstream.views.views import View

_REBUILD_ROWS = 200_000


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query as Spark has analysed it: its rows, its views by the number of their sink, and the columns of
    its operators' inputs."""

    query: Query
    rows: DataFrame
    views: dict[int, View]
    columns: dict[str, list[str]]


class QueryBuilder:
    """The queries of one run of a job. ``encode`` gives the SQL function for a sink's values
    (schema_encode.py). ``counted`` are the counts that are wanted (planning/counting.py)."""

    def __init__(
        self,
        spark: SparkSession,
        settings: JobSettings,
        checkpoint: Checkpoint,
        claimed: Continuation,
        ticks: TickSchedule,
        *,
        run: str,
        encode: Callable[[TopicSink, str], str],
        counted: Collection[str],
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._checkpoint = checkpoint
        self._claimed = claimed
        self._ticks = ticks
        self._run = run
        self._encode = encode
        self._counted = counted

    def planned(self, query: Query) -> PlannedQuery:
        """Raises TopologyError at the line that declared what Spark rejects."""
        with registered_functions(self._spark, self._claimed.plan.flow.texts.functions):
            return self._planned(query)

    def _planned(self, query: Query) -> PlannedQuery:
        frames = Frames(
            partial(self._records, query),
            run=self._run,
            output_mode=query.output_mode,
            keeping=partial(self._state_location, query),
            encode=self._encode,
            counted=self._counted,
        )
        for sink in query.sinks:
            frames.of(sink.stream)  # builds the whole way to every sink once, to find Spark's errors
        for output in query.outputs:
            check_supported(self._spark, frames.of(output), query.output_mode, output.at)
        rows, views = sink_rows(query, frames)
        inputs = frames.kernels.inputs
        check_columns(self._claimed.columns.get(query.name, {}), inputs, self._checkpoint.location)
        columns = {name: to_text(schemas) for name, (_, schemas) in inputs.items()}
        return PlannedQuery(query, rows, views, columns)

    def _state_location(self, query: Query, operator: Stateful) -> StateLocation:
        """Where an operator keeps its state: by its place in the query, which the checkpoint keeps."""
        flow = self._claimed.plan.flow
        place = f"{self._checkpoint.identity}/{query.name}/{query.operators.index(operator)}"
        resets = self._claimed.resets.get(query.name, {}).get(operator.identity, 0)
        if resets:
            place += f"/{resets}"
        return StateLocation(flow.state, place, flow.max_state)

    def _records(self, query: Query, source: SourceNode) -> DataFrame:
        """The records of a source as a stream."""
        reader = self._spark.readStream.format("millstream")
        for name, value in self._settings.options.items():
            reader = reader.option(name, value)
        # The job's own topics keep their start: another query may write before this one asks for the end.
        is_own = any(map(source.reads, self._claimed.plan.own))
        start = source.start if is_own else self._settings.start or source.start
        if source.pattern is not None:
            reader = reader.option("pattern", source.pattern)
        else:
            reader = reader.option("topic", source.topic)
        reader = reader.option("startingOffsets", start)
        if self._settings.skip_lost:
            reader = reader.option("failOnDataLoss", "false")
        if self._settings.bounds.until is not None:
            until = self._settings.bounds.until[query.name]
            own = {place: offset for place, offset in until.items() if source.reads(place.topic)}
            reader = reader.option("endingOffsets", json.dumps(to_json(own)))
        # The group's offsets are the ledger, which is written with the results.
        reader = reader.option("groupId", self._claimed.groups[query.name]).option("commitOffsets", "false")
        most = [source.max_rows] if source.max_rows is not None else []
        if self._settings.rebuild:
            # The views' database is also the running job's, which must not have to wait long for it.
            most.append(_REBUILD_ROWS)
        if most:
            reader = reader.option("maxOffsetsPerTrigger", str(min(most)))
        is_endless = not self._settings.available_now
        if (query.operators and is_endless) or query.name in self._settings.bounds.endings:
            reader = reader.option("tickFile", str(self._ticks.file(query.name)))
        wanted = wanted_columns(query, source)
        columns = [f"{name} {kind}" for name, kind in COLUMNS.items() if name in wanted]
        if (plain := plain_columns(source)) is not None:
            columns.append(plain)
        return reader.schema(", ".join(columns)).load()
