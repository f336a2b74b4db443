"""Runs a job on a Spark that repeats tasks: ``python -m tests.support.repeating_spark ADDRESS HOME``.

Either one task fails after it has sent, or the files of the shuffle before it are deleted while other tasks
have yet to read them, as when an executor is lost. The outcome is printed as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from millstream.pipeline.run.delivery import batch_tasks
from millstream.pipeline.spark.jvm import end_engine
from millstream.pipeline.spark.session import spark_session
from tests.support import failing_tasks
from tests.support.counting_job import Scene


def lose_shuffle(directory: Path) -> None:
    """Delete the files of the newest shuffle."""
    files = list(directory.rglob("shuffle_*"))
    newest = max(int(file.name.split("_")[1]) for file in files)
    for file in files:
        if int(file.name.split("_")[1]) == newest:
            file.unlink()


def main(address: str, home: Path) -> None:
    # One task at a time, so that the second one runs after what the first one did; four attempts for each.
    spark = spark_session(
        "repeating",
        master="local[1,4]",
        settings={
            "spark.default.parallelism": "2",
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(home / "spark"),
            "spark.driver.memory": "700m",
        },
        log_file=home / "spark.log",
    )
    cloudpickle.register_pickle_by_value(failing_tasks)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    faults: dict[str, Callable[[], None]] = {
        "task": failing_tasks.after_sending,
        "stage": partial(lose_shuffle, home / "spark"),
    }
    try:
        outcomes = {name: disturbed(spark, address, home / name, fault) for name, fault in faults.items()}
        print(json.dumps(outcomes))
    finally:
        end_engine(spark)


def disturbed(spark: SparkSession, address: str, home: Path, fault: Callable[[], None]) -> dict[str, Any]:
    """The outcome of a job in which one task had a fault."""
    home.mkdir()
    vars(batch_tasks)["is_one_machine"] = lambda context: False
    vars(batch_tasks)["SendInTransaction"] = failing_tasks.once(home / "failed", fault)
    scene = Scene(spark, address, home, f"repeated-{home.name}")
    scene.produce(*(f'{{"card": "card {n}", "amount": {n}}}'.encode() for n in range(40)))
    trouble: list[str] = []
    scene.run(scene.plain_flow(), on_trouble=trouble.append)
    return {
        "trouble": trouble,
        "committed": len(scene.read("all")),
        "uncommitted": len(scene.read("all", "read_uncommitted")),
    }


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
