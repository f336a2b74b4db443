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

from millstream.pipeline.session import _launcher
from millstream.pipeline.source_process import RUNNER

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


def test_a_sources_process_connects_before_it_loads_anything(starved: Path, tmp_path: Path) -> None:
    """A second of CPU for PySpark and pandas would be 25 here."""
    took = connected_after([_launcher(sys.executable), "-m", RUNNER], starved, tmp_path)
    assert took is not None, f"it had not connected after {SPARKS_PATIENCE:g} s"


def test_what_else_is_asked_of_python_is_what_python_does() -> None:
    said = subprocess.run(
        [_launcher(sys.executable), "-c", "import sys; print(sys.argv[1:])", "a b", RUNNER],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == f"['a b', {RUNNER!r}]\n"


def test_over_tcp_it_shows_its_secret_first(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        environment = {
            **os.environ,
            "PYTHON_WORKER_FACTORY_PORT": str(listening.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": "s3cret",
        }
        command = [_launcher(sys.executable), "-m", RUNNER]
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
