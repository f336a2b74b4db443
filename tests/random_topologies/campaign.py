"""Runs many cases one after another; prints the wrong ones with their seeds, and exits with 1 if any are."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from millstream import Broker
from millstream.core.errors import MillstreamError
from tests.random_topologies import on_driver
from tests.random_topologies.case import Case
from tests.random_topologies.generate import draw
from tests.random_topologies.on_spark import Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Run = Callable[[Case], list[str]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.random_topologies", description=__doc__)
    parser.add_argument("--engine", choices=["driver", "spark"], default="driver")
    parser.add_argument("--seed", type=int, help="of the first case; random, if left out")
    parser.add_argument("--cases", type=int, help="so many, instead of --minutes")
    parser.add_argument("--minutes", type=float, default=10)
    given = parser.parse_args()
    first = random.SystemRandom().randrange(10**6) if given.seed is None else given.seed
    until = time.monotonic() + given.minutes * 60
    on_spark = given.engine == "spark"
    done, wrong = 0, []
    with _engine(on_spark) as run:
        while done < given.cases if given.cases else time.monotonic() < until:
            seed = first + done
            done += 1
            case = draw(seed, on_spark=on_spark)
            try:
                problems = run(case)
            except MillstreamError as refused:
                problems = [f"it failed or was refused: {refused}"]
            except Exception:
                problems = [traceback.format_exc()]
            if problems:
                wrong.append(seed)
                print("\n".join([str(case), *problems, ""]), flush=True)
            else:
                print(f"{seed} is right", flush=True)
    print(f"{done} cases on {given.engine} from seed {first}: {len(wrong)} wrong {wrong}")
    return 1 if wrong else 0


@contextmanager
def _engine(on_spark: bool) -> Iterator[Run]:
    if not on_spark:
        yield on_driver.differences
        return
    from millstream.pipeline.spark.jvm import end_engine
    from millstream.pipeline.spark.session import spark_session
    from tests.support.python_server import quick_python
    from tests.support.shared_classes import QUICK_JAVA, quick_spark

    os.environ["SPARK_SUBMIT_OPTS"], os.environ["SPARK_LAUNCHER_OPTS"] = quick_spark(), QUICK_JAVA
    with tempfile.TemporaryDirectory(prefix="random-topologies-") as scratch, quick_python() as python:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = python
        spark = spark_session(
            "random-topologies",
            master="local[2]",
            settings={"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"},
            log_file=Path(scratch) / "spark.log",
        )
        try:
            yield lambda case: _on_spark(case, spark, Path(scratch) / str(case.seed))
        finally:
            end_engine(spark)


def _on_spark(case: Case, spark: SparkSession, scratch: Path) -> list[str]:
    with Broker() as broker:
        trial = Trial(case, spark, broker, scratch)
        began = time.monotonic()
        try:
            problems = trial.differences()
        except Exception:
            print(f"seed {case.seed}: {'; '.join(trial.log)}", flush=True)
            raise
        print(f"seed {case.seed} took {time.monotonic() - began:.0f} s: {'; '.join(trial.log)}", flush=True)
        return problems


if __name__ == "__main__":
    sys.exit(main())
