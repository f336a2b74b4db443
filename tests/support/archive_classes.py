"""Makes what shared_classes finds: ``python -m tests.support.archive_classes``, once a checkout.

An archive holds the classes that a process had loaded when it ended: so each is of one that did what tests do
with it. Where Java, Maven or Spark is missing there is none, as there are no tests then that would use it.
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
    """Have ``run`` archive the classes of a process, unless that was done before. Made aside and then put in
    place: whoever finds an archive finds a whole one."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as aside:
        made = Path(aside) / path.name
        try:
            run(made)
            made.rename(path)
        except Exception as problem:  # tests are slower without, and that is all
            print(f"no archive of classes, {path.name}: {problem}")


def exchange(address: str) -> list[str]:
    """A program that administers, produces and consumes."""
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
    """A job with a window, sinks, a view and transactions; its JVM is then left the time it takes."""
    from pyspark import SparkContext

    from millstream.pipeline.session import spark_session
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
