"""Spark's JVM: starts it on a background thread, and ends it with nothing left behind.

Starting takes seconds in which a user wants to see something and to press Ctrl-C, so it must not block the
main thread. And when PySpark is started on the main thread, it replaces the SIGINT handler with one that
cuts batches off.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.core.errors import MillstreamError
from millstream.pipeline.spark.session import prepare_java, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENDING_S = 10.0  # how long a JVM may take to exit
_CAUSES = 3  # lines of a log that are shown


class EngineLost(MillstreamError):
    """Spark's JVM has ended while it was still needed."""


def start_engine(
    name: str,
    *,
    master: str | None,
    log_file: Path,
    settings: Mapping[str, str] | None = None,
    ui: bool = False,
) -> Future[SparkSession]:
    """Begin to start a session. If the program ends first, the JVM notices and exits as well."""
    environment = {name: os.environ.get(name) for name in _ENVIRONMENT}
    prepare_java()  # a missing Java is for the user to fix, and is noticed at once
    log_file.parent.mkdir(parents=True, exist_ok=True)
    before = log_file.stat().st_size if log_file.exists() else 0  # skips what earlier runs logged
    future: Future[SparkSession] = Future()

    def start() -> None:
        try:
            session = spark_session(name, master=master, settings=settings, ui=ui, log_file=log_file)
            _lend(session, environment)
            future.set_result(session)
        except MillstreamError as error:
            _restore(environment)
            future.set_exception(error)
        except Exception as error:
            _restore(environment)
            said = "; ".join(causes(_text(log_file, before))) or str(error).partition("\n")[0]
            why = said or type(error).__name__
            future.set_exception(
                MillstreamError(f"Spark did not start: {why} (its full output is in {log_file})")
            )

    threading.Thread(target=start, name="spark-start", daemon=True).start()
    return future


# PySpark sets these for the session that it starts, and never takes them back.
_ENVIRONMENT = ("JAVA_HOME", "SPARK_LOCAL_IP", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE")
_changed = ExitStack()  # what start_engine has changed in this process; end_engine undoes it


def _lend(session: SparkSession, environment: Mapping[str, str | None]) -> None:
    """Note what ``end_engine`` has to undo, and silence Py4J until then. It prints a stack for every thread
    that the end of the JVM surprises. The end is reported once, by the code that waits for the job."""
    from pyspark import SparkFiles

    _changed.callback(_restore, environment, SparkFiles.getRootDirectory())
    root = logging.getLogger()  # Py4J logs there as well as under its own name
    _changed.callback(root.removeFilter, _not_of_py4j)
    root.addFilter(_not_of_py4j)
    py4j = logging.getLogger("py4j")
    _changed.callback(setattr, py4j, "propagate", py4j.propagate)
    py4j.propagate = False
    server: Any = session.sparkContext._accumulatorServer  # ends with the session
    server.handle_error = lambda request, address: None


def _restore(environment: Mapping[str, str | None], files: str | None = None) -> None:
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if files in sys.path:
        sys.path.remove(files)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "/py4j/" not in record.pathname


def _text(log_file: Path, start: int = 0) -> str:
    with suppress(OSError), log_file.open("rb") as file:
        file.seek(start)
        return file.read().decode(errors="replace")
    return ""


_STACK = re.compile(r"\s+at |\s+\.\.\. \d+ more")
_NAMED = re.compile(r"^(?:Exception in thread \S+ |.*?\bERROR\b[^:]*: )?(?=\S*(?:Exception|Error)\b)")
_AFTER_THAT = (  # Java's last lines, whatever was wrong
    "Error: Could not create the Java Virtual Machine.",
    "Error: A fatal exception has occurred. Program will exit.",
)
_JAVA = re.compile(r"Error: |Unrecognized |Invalid |Could not |OutOfMemory|There is insufficient memory")


def causes(log: str) -> list[str]:
    """The lines that say why Java ended. Where causes are logged, only the root cause."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and not _STACK.match(line)]
    roots = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    if roots:
        return [_without_package(roots[-1])]
    plain = [line for line in lines if _JAVA.match(line) and line not in _AFTER_THAT]
    named = [_without_package(_NAMED.sub("", line)) for line in lines if _NAMED.match(line)]
    return list(dict.fromkeys(plain or named))[:_CAUSES]


def _without_package(text: str) -> str:
    return re.sub(r"^(?:[a-z]\w*\.)+(\w+)", r"\1", text)


@contextmanager
def noticing_its_end(log_file: Path | None) -> Iterator[None]:
    """Turn an error inside into EngineLost, in one line, if the JVM has ended. ``log_file`` has the JVM's
    output, if that is known."""
    before = 0 if log_file is None else len(_text(log_file))
    try:
        yield
    except Exception as error:
        how = _ended()
        if how is None:
            raise
        said = "" if log_file is None else "; ".join(causes(_text(log_file)[before:]))
        why = f": {said}" if said else ". If it was not killed, the machine may have run out of memory"
        where = "" if log_file is None else f" (the JVM's full output is in {log_file})"
        raise EngineLost(
            f"Spark's JVM has ended ({how}){why}. Start the job again: it continues from its checkpoint"
            + where
        ) from (error if isinstance(error, MillstreamError) else None)


def _ended() -> str | None:
    """How the JVM of this process has ended; None while it is running."""
    from pyspark import SparkContext

    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        code = process.wait(1)  # a call may fail a moment before the process is gone
    except subprocess.TimeoutExpired:
        return None
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def end_engine(spark: SparkSession) -> None:
    """Stop the session and wait until its JVM has exited, if it has not already."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None and process.poll() is not None:
        _forget(spark)
    else:
        spark.stop()
    if gateway is None:
        return
    gateway.shutdown()
    if process is not None:
        if process.stdin is not None:
            process.stdin.close()  # which tells the JVM to exit
        try:
            process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None
    _changed.close()


def _forget(spark: SparkSession) -> None:
    """Do what ``stop`` does besides calling the JVM, which is gone. Then another session can be started."""
    from pyspark.sql import SparkSession

    context = spark.sparkContext
    context._jsc = None
    context.stop()
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None
