"""Makes the archives of classes that ``shared_classes`` uses, once for each checkout.

Run it with ``python -m tests.support.archive_classes``. An archive holds the classes that a process had
loaded when it ended. So each archive is made by a process that does what tests do. Where Java, Maven or Spark
is missing, there is no archive, and there are no tests that would use one.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from millstream import Broker
from tests.support.apache_kafka import apache_kafka, jars, java
from tests.support.maven import JarsUnavailable
from tests.support.shared_classes import QUICK_JAVA, archive, archiving, spark_jars


def make(path: Path, run: Callable[[Path], None]) -> None:
    """Have ``run`` archive the classes of a process, unless the archive exists. It is made in a temporary
    directory and then moved into place, so that nobody finds a partial archive.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as aside:
        made = Path(aside) / path.name
        try:
            run(made)
            made.rename(path)
        except Exception as problem:  # without an archive, tests are only slower
            print(f"no archive of classes, {path.name}: {problem}")


def exchange(address: str) -> list[str]:
    """The command line of a program that administers, produces and consumes."""
    count = ["--num-records", "20", "--record-size", "9", "--producer-acks", "all"]
    return java(
        "org.apache.kafka.tools.EndToEndLatency", "--bootstrap-server", address, "--topic", "t", *count
    )


def clients(into: Path) -> None:
    with Broker() as broker:
        subprocess.run(archiving(exchange(broker.address), into), capture_output=True, timeout=300)


def server(into: Path) -> None:
    with apache_kafka(quick=True, classes_into=into) as kafka:
        subprocess.run(exchange(kafka.address), capture_output=True, timeout=300)


def spark(into: Path) -> None:
    """Run a job with a window, sinks, a view and transactions, then wait as long as its JVM takes to end."""
    from pyspark import SparkContext

    from millstream.pipeline.spark.session import spark_session
    from tests.support.counting_job import Scene

    os.environ["SPARK_LAUNCHER_OPTS"] = QUICK_JAVA
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(archiving([QUICK_JAVA], into))
    home = into.parent
    session = spark_session(
        "archive",
        master="local[2]",
        settings={"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"},
        log_file=home / "spark.log",
    )
    gateway = SparkContext._gateway
    with Broker() as broker:
        scene = Scene(session, broker.address, home, "archived")
        scene.produce(b'{"card": "a", "amount": 5, "paid_at": "2026-01-01T12:00:00Z"}', b"no JSON")
        scene.run()
        session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(300)


def main() -> None:
    try:
        make(archive("clients", jars()), clients)
        make(archive("server", jars()), server)
    except JarsUnavailable as reason:
        print(f"no archive of Kafka's classes: {reason}")
    with suppress(ImportError):
        make(archive("spark", spark_jars()), spark)


if __name__ == "__main__":
    main()
