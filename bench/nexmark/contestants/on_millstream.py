"""The queries on millstream, in a process of its own as the others are."""

from __future__ import annotations

import uuid
from typing import Any

from bench.nexmark.contestants.tasks import CannotExpress, Task, serve
from bench.nexmark.queries import QUERIES, topology
from millstream.client.connect import Connection
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.settings import JobSettings
from millstream.pipeline.spark.session import spark_session


class Runner:
    """Keeps the Spark session from one task to the next."""

    def __init__(self) -> None:
        self._spark: Any = None

    def run(self, task: Task) -> None:
        if task.query not in QUERIES:
            raise CannotExpress("there is no such query yet")
        if self._spark is None:
            self._spark = spark_session("nexmark")
        flow = topology(
            task.query,
            task.output,
            prefix=task.prefix,
            lateness=f"{task.lateness_ms} milliseconds",
        )
        settings = JobSettings(
            Connection(task.address),
            f"{task.scratch}/{uuid.uuid4().hex}",
            available_now=task.bounded,
            new_ledger=True,
        )
        job = Job(flow, settings)
        job.prepare()
        job.start(self._spark)
        for query in self._spark.streams.active:
            query.awaitTermination()
        problem = job.failed()
        job.close()
        if problem is not None:
            raise problem


if __name__ == "__main__":
    serve(Runner().run)
