"""Processes of Spark's on a machine that has no time for them."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.pipeline.spark.session import _launcher
from millstream.pipeline.spark.source_process import PROGRAMS, SOURCE
from tests.support.jobs import produce, records
from tests.support.serve import MILLSTREAM

SPARKS_PATIENCE = 10.0  # seconds, in PythonWorkerFactory.createSimpleWorker
_CPU = Path("/sys/fs/cgroup/cpu")
SHARE = 0.04  # of a core


@pytest.fixture
def starved() -> Iterator[Path]:
    """A control group whose processes get a small part of one core."""
    group = _CPU / f"millstream-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text(str(round(100_000 * SHARE)))
    except OSError as problem:
        pytest.skip(f"the CPU can't be taken away here, which needs cgroup v1 and root: {problem}")
    yield group
    deadline = time.monotonic() + 10
    while True:  # what was killed leaves the group a moment later
        try:
            group.rmdir()
            return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def connected_after(command: list[str], group: Path, tmp_path: Path) -> float | None:
    """Seconds until the process has connected and said who it is; None if Spark would have given up."""
    path = tmp_path / "jvm"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(path))
        listening.listen(1)
        listening.settimeout(SPARKS_PATIENCE)
        environment = {**os.environ, "PYTHON_WORKER_FACTORY_SOCK_PATH": str(path)}
        inside = f'echo $$ > {group}/cgroup.procs; exec "$@"'
        began = time.monotonic()
        process = subprocess.Popen(["sh", "-c", inside, "sh", *command], env=environment)
        try:
            connection, _ = listening.accept()
            with connection:
                assert struct.unpack(">i", connection.recv(4)) == (process.pid,)
            return time.monotonic() - began
        except TimeoutError:
            return None
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_process_connects_before_it_loads_anything(program: str, starved: Path, tmp_path: Path) -> None:
    """A second of CPU for PySpark and pandas would be 25 here."""
    took = connected_after([_launcher(sys.executable), "-m", program], starved, tmp_path)
    assert took is not None, f"it had not connected after {SPARKS_PATIENCE:g} s"


PIPELINE = """\
from millstream import Processor, Topology

flow = Topology("counts", guarantee="exactly-once")
lines = flow.source("lines", schema="k string", time="log")


class Count(Processor):
    def on_event(self, event, context):
        context.state = (context.state or 0) + 1
        context.emit(n=context.state)


lines.process(key="k", with_=Count, output="k string, n int").to_topic("out", key="k")
"""


def test_a_query_whose_process_was_too_slow_is_started_again(
    tmp_path: Path, millstream_broker: Broker
) -> None:
    """Once for each kind of process: the first of each kind never connects."""
    (tmp_path / "counts.py").write_text(PIPELINE)
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"
        f'case "$3" in {"|".join(PROGRAMS)}) mkdir {tmp_path}/"$3" 2>/dev/null && exec sleep 100;; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    with Admin(Connection(millstream_broker.address)) as admin:
        admin.create_topic("lines")
    produce(millstream_broker, [b'{"k": "a"}'] * 2, "lines")
    done = subprocess.run(
        [MILLSTREAM, "run", "counts.py", "-b", millstream_broker.address, "--available-now"],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    assert "was not up in the 10 s that Spark gives it" in done.stderr
    assert "It is started again (2 of 5)" in done.stderr
    assert "It is started again (3 of 5)" in done.stderr
    assert "counts ended: 2 records" in done.stdout
    assert len(records(millstream_broker, "out")) == 2


def test_what_else_is_asked_of_python_is_what_python_does() -> None:
    said = subprocess.run(
        [_launcher(sys.executable), "-c", "import sys; print(sys.argv[1:])", "a b", SOURCE],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == f"['a b', {SOURCE!r}]\n"


def test_over_tcp_it_shows_its_secret_first(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        environment = {
            **os.environ,
            "PYTHON_WORKER_FACTORY_PORT": str(listening.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": "s3cret",
        }
        command = [_launcher(sys.executable), "-m", SOURCE]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        try:
            listening.settimeout(60)
            connection, _ = listening.accept()
            with connection, connection.makefile("rwb") as stream:
                assert stream.read(10) == struct.pack(">i", 6) + b"s3cret"
                stream.write(struct.pack(">i", 2) + b"ok")
                stream.flush()
                assert struct.unpack(">i", stream.read(4)) == (process.pid,)
        finally:
            process.kill()
            process.wait()
