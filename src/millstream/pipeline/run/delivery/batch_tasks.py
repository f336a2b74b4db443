"""Runs a query's batches on Spark, with one instruction to all tasks of a run (instructions.py)."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame

from millstream.client.protocol.cluster import Cluster
from millstream.client.protocol.transaction_requests import ProducerSession
from millstream.client.text.position import TopicPartition
from millstream.pipeline.connector.options import WriteOptions
from millstream.pipeline.run.delivery.handover import Receiver
from millstream.pipeline.run.delivery.instructions import PROPERTY, Instruction, instructed
from millstream.pipeline.run.delivery.sending import ORDER, ROWS, SHUFFLED, TASK, SendInTransaction, Targets

DROP = Instruction("drop")
# How long the partition count of a topic is cached: as long as in other clients.
_PARTITIONS_KNOWN_S = 300.0
# The most that one Arrow batch of encoded batches may hold: a task's memory must not grow with its share.
_ARROW_BYTES = 32 * 1024 * 1024


class BatchTasks:
    """The tasks of one query. ``topics`` are its topics by the number of their sink. ``in_transactions``:
    records are sent in transactions."""

    def __init__(
        self, topics: Mapping[int, str], options: WriteOptions, cluster: Cluster, *, in_transactions: bool
    ) -> None:
        self._topics = topics
        self._options = options
        self._cluster = cluster
        self._in_transactions = in_transactions
        self._known_targets: tuple[float, Targets] | None = None
        self._receiver: Receiver | None = None  # only where tasks and driver are on one machine

    def at_the_end_of(self, rows: DataFrame) -> DataFrame:
        """The rows to write to Spark's stream: the query's, with the tasks' last step attached."""
        if self._in_transactions and is_one_machine(rows.sparkSession.sparkContext):
            self._receiver = Receiver()
        shuffled = self._in_transactions and self._receiver is None
        return instructed(rows, self._options, self._topics, addressed=shuffled)

    @property
    def spark_settings(self) -> dict[str, str]:
        """Settings for the query's Spark session."""
        if not self._in_transactions:
            return {}
        return {
            # Adaptive execution would make several jobs of a batch, and could not change anything here.
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.execution.arrow.maxBytesPerBatch": str(_ARROW_BYTES),
        }

    def close(self) -> None:
        if self._receiver is not None:
            self._receiver.close()

    def run(self, batch: DataFrame, instruction: Instruction) -> pa.Table:
        """Run the batch with this instruction to its tasks. Returns the rows that come back."""
        _instruct(batch, instruction)
        return batch.toArrow()

    def advance(self, batch: DataFrame) -> None:
        """Run the batch only to move the query's state on. Nothing is sent, and nothing comes back."""
        _instruct(batch, DROP)
        batch.write.format("noop").mode("append").save()

    def send_in_transaction(self, batch: DataFrame, producer: ProducerSession) -> pa.Table:
        """Run the batch and send its records in the producer's transaction. Returns the rows that come
        back."""
        targets = self._targets()
        if not targets.partitions:
            return self.run(batch, DROP)
        send = SendInTransaction(self._options, targets, producer)
        if self._receiver is not None:
            sender = send.sender(self._cluster)
            try:
                with self._receiver.receiving(sender, targets.partitions) as driver:
                    return self.run(batch, Instruction("encode", targets=targets, to=driver))
            except BaseException:
                sender.close()  # drops what is in flight: the next attempt can't use the connection
                raise
        tasks = min(batch.sparkSession.sparkContext.defaultParallelism, len(targets.partitions))
        _instruct(batch, Instruction("encode", targets=targets, to=tasks))
        addressed = batch.repartitionById(tasks, TASK).sortWithinPartitions(*ORDER)
        kept = [f"{name} {kind}" for name, kind in batch.dtypes if name not in SHUFFLED]
        return addressed.mapInArrow(send, ", ".join([*kept, f"{ROWS} bigint"])).toArrow()

    def forget_partitions(self) -> None:
        """Look up the topics' partitions again before the next run."""
        self._known_targets = None

    def _targets(self) -> Targets:
        if self._known_targets is not None and time.monotonic() < self._known_targets[0]:
            return self._known_targets[1]
        partitions: list[TopicPartition] = []
        first: dict[int, int] = {}
        count: dict[int, int] = {}
        by_topic: dict[str, int] = {}
        for number, topic in self._topics.items():
            if topic not in by_topic:
                by_topic[topic] = len(partitions)
                found = self._cluster.partitions_of(topic, create=True)
                partitions += [TopicPartition(topic, partition) for partition in range(found)]
            first[number] = by_topic[topic]
            count[number] = sum(1 for place in partitions if place.topic == topic)
        targets = Targets(tuple(partitions), first, count)
        self._known_targets = time.monotonic() + _PARTITIONS_KNOWN_S, targets
        return targets


def is_one_machine(context: SparkContext) -> bool:
    """True if the tasks run on the driver's machine."""
    return context.master is not None and context.master.startswith("local")


def _instruct(batch: DataFrame, instruction: Instruction) -> None:
    """Set the instruction for the jobs that this thread starts from now on."""
    batch.sparkSession.sparkContext.setLocalProperty(PROPERTY, instruction.text())
