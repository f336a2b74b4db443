"""The driver's instructions to the tasks of a batch: what to do with their rows.

The function that ends every task is part of the query's plan and the same for all batches. If it were given
to Spark with every batch, it would also be pickled, typed and planned every time, which takes a tenth of a
small batch's time. What differs between batches is passed as a property of the batch's jobs. The property
contains no secrets, because Spark shows such properties in its pages and keeps them in its event log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import pyarrow as pa
from pyspark.sql import DataFrame

from millstream.client.text.position import TopicPartition
from millstream.pipeline.connector.options import WriteOptions
from millstream.pipeline.planning.sink_columns import RECORD
from millstream.pipeline.run.delivery.handover import ReceiverAddress
from millstream.pipeline.run.delivery.sending import ARROW, ROWS, SHUFFLED, Drop, Encode, Send, Targets

PROPERTY = "millstream.order"


@dataclass(frozen=True, slots=True)
class Instruction:
    """What tasks do with their rows: ``send`` them as they come (``repeatable``: a task may run twice),
    ``drop`` records that are in the log already, or ``encode`` records for the driver or for other tasks to
    send (sending.py)."""

    do: Literal["send", "drop", "encode"]
    repeatable: bool = False
    targets: Targets | None = None
    to: ReceiverAddress | int = 0

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Self:
        kept = json.loads(text)
        targets, to = kept["targets"], kept["to"]
        if targets is not None:
            # In JSON, keys are text: make them numbers again.
            by_sink = ({int(sink): n for sink, n in targets[key].items()} for key in ("first", "count"))
            targets = Targets(tuple(TopicPartition(*place) for place in targets["partitions"]), *by_sink)
        return cls(
            kept["do"], kept["repeatable"], targets, to if isinstance(to, int) else ReceiverAddress(**to)
        )


class FollowInstruction:
    """The last function of a query's plan. ``topics`` are the sinks' topics. The rows that it returns have
    the same columns for every instruction, with nulls where one does not fill them."""

    def __init__(self, options: WriteOptions, topics: Mapping[int, str], columns: list[str]) -> None:
        self._options = options
        self._topics = topics
        self._columns = columns

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in self._instruction()(batches):
            missing = [name for name in self._columns if name not in batch.schema.names]
            for name in missing:
                nulls = pa.nulls(batch.num_rows, ARROW[SHUFFLED[name]])
                batch = batch.append_column(name, nulls)
            yield batch.select(self._columns) if missing else batch

    def _instruction(self) -> Any:
        from pyspark import TaskContext

        task = TaskContext.get()
        text = task.getLocalProperty(PROPERTY) if task is not None else None
        if text is None:
            raise RuntimeError(f"the driver has not set {PROPERTY}")
        instruction = Instruction.of(text)
        if instruction.do == "send":
            return Send(self._options, self._topics, repeatable=instruction.repeatable)
        if instruction.do == "drop":
            return Drop(self._topics)
        assert instruction.targets is not None
        return Encode(self._options, instruction.targets, instruction.to)


def instructed(
    rows: DataFrame, options: WriteOptions, topics: Mapping[int, str], *, addressed: bool
) -> DataFrame:
    """A query's rows, passed through ``FollowInstruction``. ``addressed``: other tasks may have to send
    them."""
    columns = {name: kind for name, kind in rows.dtypes if name not in RECORD}
    columns |= SHUFFLED if addressed else {ROWS: SHUFFLED[ROWS]}
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    return rows.mapInArrow(FollowInstruction(options, topics, list(columns)), schema)
