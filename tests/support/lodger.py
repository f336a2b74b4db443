"""A program that runs jobs: once on a Spark that they start, once in a session of its own.

    python -m tests.support.lodger ADDRESS HOME

It prints a line of JSON for each step. When it says that it runs, Ctrl-C is expected.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

from millstream import Topology
from millstream.core.errors import MillstreamError
from tests.support import footprint


def copying(name: str) -> Topology:
    flow = Topology(name)
    flow.source("payments", schema="card string").to_topic(f"{name}.out", key="card")
    return flow


def say(what: str, **more: Any) -> None:
    print(json.dumps({"step": what, **more}, default=repr), flush=True)


def main(address: str, home: str) -> None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)

    def announce(progress: Any) -> None:
        if progress.rows_in:
            say("runs")

    def run(spark: SparkSession | None, name: str) -> None:
        summary = copying(name).run(spark, broker=address, checkpoint=f"{home}/{name}", on_progress=announce)
        say("ended", rows=summary.rows_in, interrupted=summary.interrupted)

    before = footprint.of_process()
    with copying("one").start(broker=address, checkpoint=f"{home}/one", master="local[2]") as one:
        with copying("two").start(broker=address, checkpoint=f"{home}/two", master="local[2]") as two:
            say("both", active=[one.is_active, two.is_active])
        say("first", state=one.status.state)
    run(None, "third")
    say("own Spark", changes=footprint.changes(before, footprint.of_process()), context=SparkContext._gateway)

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    before, session = footprint.of_process(), footprint.of_session(spark)
    run(spark, "fourth")
    say(
        "given session",
        changes=footprint.changes(before, footprint.of_process())
        | footprint.changes(session, footprint.of_session(spark)),
        rows=spark.range(3).count(),
    )

    job = copying("fifth").start(spark, broker=address, checkpoint=f"{home}/fifth")
    spark.stop()
    try:
        job.await_termination(timeout=120)
    except MillstreamError as error:
        say("session stopped", error=str(error), state=job.status.state)


if __name__ == "__main__":
    main(*sys.argv[1:])
