"""Starting Spark beside the main thread, and ending it with nothing left behind.

Beside, because it takes seconds in which a user wants to see something and to press Ctrl-C; and because
PySpark replaces the handler of SIGINT when it is started in the main thread, with one that cuts batches off.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.errors import MillstreamError
from millstream.pipeline.session import prepare_java, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_engine(
    name: str,
    *,
    master: str | None,
    log_file: Path,
    settings: Mapping[str, str] | None = None,
    ui: bool = False,
) -> Future[SparkSession]:
    """Begin to start a session. If the program ends first, the JVM notices and ends as well."""
    prepare_java()  # no Java is the user's business, and known at once
    log_file.parent.mkdir(parents=True, exist_ok=True)
    future: Future[SparkSession] = Future()

    def start() -> None:
        try:
            future.set_result(spark_session(name, master=master, settings=settings, ui=ui, log_file=log_file))
        except MillstreamError as error:
            future.set_exception(error)
        except Exception as error:
            future.set_exception(MillstreamError(_why(error, log_file)))

    threading.Thread(target=start, name="spark-start", daemon=True).start()
    return future


def _why(error: Exception, log_file: Path) -> str:
    said = log_file.read_text(errors="replace").strip().splitlines() if log_file.exists() else []
    last = next((line for line in reversed(said) if "rror" in line or "xception" in line), "")
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    return f"Spark did not start: {last.strip() or first} (all that it said is in {log_file})"


def end_engine(spark: SparkSession) -> None:
    """Stop the session and wait until its JVM is gone."""
    from pyspark import SparkContext

    spark.stop()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None:
        if process.stdin is not None:
            process.stdin.close()  # what it takes as the sign to leave
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None
