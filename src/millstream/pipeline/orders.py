"""What the driver orders the tasks of a batch to do with their rows.

The function that tasks end with is part of a query's plan and the same for all of its batches. Given to Spark
with every batch, it would be pickled, typed and planned as often: a tenth of a small batch's time. What
differs comes as a property of the batch's jobs. There is nothing secret in it: Spark shows those properties
in its pages and keeps them in its event log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import pyarrow as pa
from pyspark.sql import DataFrame

from millstream.client.position import TopicPartition
from millstream.pipeline.options import WriteOptions
from millstream.pipeline.outgoing import RECORD
from millstream.pipeline.relay import Address
from millstream.pipeline.sending import ARROW, ROWS, SHUFFLED, Drop, Encode, Send, Targets

PROPERTY = "millstream.order"


@dataclass(frozen=True, slots=True)
class Order:
    """``send`` as rows come, by tasks that may be repeated or not; ``drop`` what is in the log already; or
    ``encode`` for the driver or for other tasks (sending.py)."""

    do: Literal["send", "drop", "encode"]
    repeatable: bool = False
    targets: Targets | None = None
    to: Address | int = 0

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> Self:
        told = json.loads(text)
        targets, to = told["targets"], told["to"]
        if targets is not None:
            # JSON has no numbers as keys.
            by_sink = ({int(sink): n for sink, n in targets[key].items()} for key in ("first", "count"))
            targets = Targets(tuple(TopicPartition(*place) for place in targets["partitions"]), *by_sink)
        return cls(told["do"], told["repeatable"], targets, to if isinstance(to, int) else Address(**to))


class Deliver:
    """The last function of a query's plan. ``topics`` are those of the sinks; the rows it gives back are what
    has to come back of every order, with nulls where an order has nothing to say."""

    def __init__(self, options: WriteOptions, topics: Mapping[int, str], columns: list[str]) -> None:
        self._options = options
        self._topics = topics
        self._columns = columns

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in self._ordered()(batches):
            missing = [name for name in self._columns if name not in batch.schema.names]
            for name in missing:
                nulls = pa.nulls(batch.num_rows, ARROW[SHUFFLED[name]])
                batch = batch.append_column(name, nulls)
            yield batch.select(self._columns) if missing else batch

    def _ordered(self) -> Any:
        from pyspark import TaskContext

        task = TaskContext.get()
        text = task.getLocalProperty(PROPERTY) if task is not None else None
        if text is None:
            raise RuntimeError(f"the driver has not set {PROPERTY}")
        order = Order.of(text)
        if order.do == "send":
            return Send(self._options, self._topics, repeatable=order.repeatable)
        if order.do == "drop":
            return Drop(self._topics)
        assert order.targets is not None
        return Encode(self._options, order.targets, order.to)


def delivered(
    rows: DataFrame, options: WriteOptions, topics: Mapping[int, str], *, addressed: bool
) -> DataFrame:
    """A query's rows with ``Deliver`` at their end; ``addressed`` if they may be for other tasks to send."""
    columns = {name: kind for name, kind in rows.dtypes if name not in RECORD}
    columns |= SHUFFLED if addressed else {ROWS: SHUFFLED[ROWS]}
    schema = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    return rows.mapInArrow(Deliver(options, topics, list(columns)), schema)
