"""Runs a case as jobs on Spark, with a broker and real checkpoints, and compares it with the model.

Some runs end by themselves, others are stopped. Between runs the topology is edited: an edit either carries
state over or is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Broker, Topology
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.produce import RecordSender
from millstream.client.text.lines import Outgoing
from millstream.core.errors import TopologyError
from millstream.pipeline.run.bounded.runs import runs
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.settings import JobSettings
from millstream.views.opening import open_reader
from tests.random_topologies.case import Case
from tests.random_topologies.keyed import OtherTotals, Process
from tests.random_topologies.sinks import TopicSink, ViewSink
from tests.random_topologies.stateless import Record
from tests.random_topologies.values import from_json
from tests.random_topologies.windows import Window
from tests.support.jobs import records
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE = 300.0  # seconds for a run


class Trial:
    """A case, run by run. ``log`` says what was done, for finding the cause of a difference."""

    def __init__(self, case: Case, spark: SparkSession, broker: Broker, scratch: Path) -> None:
        self.case = case
        self.log: list[str] = []
        self._spark, self._broker, self._scratch = spark, broker, scratch
        self._rng = Random(f"runs of {case.seed}")

    def differences(self) -> list[str]:
        """The differences from the model; empty if there are none."""
        with Admin(Connection(self._broker.address)) as admin:
            for source in self.case.sources:
                admin.create_topic(source.name, partitions=source.partitions, config={"retention.ms": "-1"})
        *firsts, last = self.case.batches[: self._rng.choice([1, 2, 3])]
        done = sum(map(len, (*firsts, last)))
        for part in firsts:
            self._produce(part)
            self._run_for_a_while(len(part))
            self._edit()
        self._produce([*last, *self.case.records[done:]])
        self.log.append("run to the end")
        self._run(self.case.topology(), finish=True)
        return self._compared()

    # ---- running --------------------------------------------------------------------------------------

    def _produce(self, given: list[tuple[str, Record]]) -> None:
        self.log.append(f"produce {len(given)}")
        topics: dict[str, list[Record]] = {}
        for topic, record in given:
            topics.setdefault(topic, []).append(record)
        for topic, own in topics.items():
            sender = RecordSender(Connection(self._broker.address), topic)
            sender.send(
                Outgoing(one.value, partition=one.partition, timestamp=one.time // 1000) for one in own
            )
            assert sender.finish(30)

    def _job(self, flow: Topology, **how: Any) -> Job:
        place = str(self._scratch / "checkpoint")
        made = Job(flow, JobSettings(Connection(self._broker.address), place, **how))
        try:
            made.prepare()
        except BaseException:
            made.close()
            raise
        return made

    def _run(self, flow: Topology, *, finish: bool) -> None:
        """Run as ``millstream run --available-now`` does."""
        for job in runs(self._job(flow, available_now=True), finish=finish):
            job.start(self._spark)
            wait_for(lambda: not job.running, timeout=_PATIENCE, what="the round has ended")  # noqa: B023
            if (error := job.failed()) is not None:
                raise error

    def _run_for_a_while(self, given: int) -> None:
        way = self._rng.choice(["bounded", "endless", "cut short"])
        self.log.append(f"run {way}")
        flow = self.case.topology()
        if way == "bounded":
            self._run(flow, finish=False)
            return
        seen: list[Any] = []
        job = self._job(flow, on_progress=seen.append)
        try:
            job.start(self._spark)
            enough = 1 if way == "cut short" else given
            wait_for(
                lambda: sum(one.rows_in for one in list(seen)) >= enough or not job.running,
                timeout=_PATIENCE,
                what="as many records are read as were produced",
            )
            if (error := job.failed()) is not None:
                raise error
        finally:
            job.stop()

    # ---- edits ----------------------------------------------------------------------------------------

    def _edit(self) -> None:
        """Edit nothing, or something that carries state over, or something that must be refused."""
        way = self._rng.choice(["nothing", "order", "order", "sink", "other", "other"])
        self.log.append(f"edit: {way}")
        if way == "order":
            self.case = self.case.reordered(self._rng)
        elif way == "sink" and not any(isinstance(one, TopicSink) and one.some for one in self.case.sinks):
            self.case = self.case.with_new_sink()
        elif way == "other" and (other := self._other()) is not None:
            with pytest.raises(TopologyError, match="can't be continued") as refusal:
                self._job(other.topology(), available_now=True).close()
            self.log.append(f"  refused: {str(refusal.value).splitlines()[1]}")

    def _other(self) -> Case | None:
        """The case with one operator changed so that it must not get the existing state."""
        stateful = [one for one in self.case.steps if isinstance(one, Window | Process)]
        if not stateful:
            return None
        step = self._rng.choice(stateful)
        if isinstance(step, Process):
            return self.case.with_step(replace(step, with_=OtherTotals))
        word = next(one for one in ("size", "gap", "timeout") if one in step.options)
        changed = {**step.options, word: step.options[word] * 2}
        self.log.append(f"  {step.name}: {word} {changed[word]}")
        return self.case.with_step(replace(step, options=changed))

    # ---- looking --------------------------------------------------------------------------------------

    def _compared(self) -> list[str]:
        expected = self.case.expected()
        found = []
        for sink in self.case.sinks:
            rows = expected[sink.stream]
            if isinstance(sink, TopicSink):
                values = [one.value() for one in records(self._broker, sink.topic)]
                found.append(sink.difference(rows, values))
            else:
                found.append(sink.difference(rows, self._view(sink)))
        return [one for one in found if one is not None]

    def _view(self, sink: ViewSink) -> Iterator[dict[str, Any]]:
        reader = open_reader(self._scratch / "checkpoint" / "views.db")
        try:
            columns, rows = reader.all(sink.view)
        finally:
            reader.close()
        for row in rows:
            yield {
                name: from_view(sink.about.columns[name], value)
                for name, value in zip(columns, row, strict=True)
                if name in sink.about.columns
            }


def from_view(kind: str, value: Any) -> Any:
    """A view's value read from SQLite, where it is stored as docs/guides/views.md says."""
    if value is None:
        return None
    if kind == "boolean":
        return bool(value)
    if kind == "decimal":
        return Decimal(str(value))
    if kind in ("map", "nested", "list", "list of text"):
        return json.loads(value)
    return value if kind in ("binary", "bigint", "string", "key") else from_json(kind, value)
