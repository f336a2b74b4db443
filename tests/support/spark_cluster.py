"""Runs a standalone Spark cluster from the installed package: a master and workers on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.apache_kafka import free_port
from tests.support.shared_classes import quick_spark
from tests.support.waiting import wait_for


@contextmanager
def spark_cluster(workers: int = 2, *, memory: str = "1g") -> Iterator[str]:
    """The master's URL, once all workers have registered. All processes are stopped at exit. A worker has one
    core, so that two concurrent tasks run on two workers.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="spark-cluster-") as scratch, ExitStack() as running:
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": quick_spark(),
            "SPARK_WORKER_DIR": f"{scratch}/work",
            "SPARK_LOCAL_DIRS": f"{scratch}/local",
            "PYSPARK_PYTHON": sys.executable,
        }
        said = Path(scratch) / "master.log"

        def start(role: str, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *arguments]
            with log.open("wb") as output:
                process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
            running.callback(_end, process)
            return process

        address = ["--host", "127.0.0.1", "--webui-port", "0"]
        started = [start("master.Master", said, *address, "--port", str(port))]

        def listens() -> bool:
            _still(started, Path(scratch))
            return f"Starting Spark master at {master}" in said.read_text()

        wait_for(listens, timeout=90, what="Spark's master listens", every=0.1)
        for number in range(workers):
            log = Path(scratch) / f"worker-{number}.log"
            size = ["--cores", "1", "--memory", memory]
            started.append(start("worker.Worker", log, *address, *size, master))

        def all_came() -> bool:
            _still(started, Path(scratch))
            return said.read_text().count("Registering worker") == workers

        wait_for(all_came, timeout=90, what=f"{workers} workers have come", every=0.1)
        yield master


def _still(processes: list[subprocess.Popen[bytes]], logs: Path) -> None:
    if any(process.poll() is not None for process in processes):
        said = "\n".join(log.read_text()[-1500:] for log in sorted(logs.glob("*.log")))
        raise AssertionError(f"Spark's cluster ended:\n{said}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
