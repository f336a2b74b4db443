"""Runs a real Apache Kafka from its Maven artifacts: one combined node on loopback, and its tools."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.support.maven import fetch_jars
from tests.support.shared_classes import QUICK_JAVA, archiving, sharing
from tests.support.waiting import wait_for

POM = Path(__file__).parent / "kafka" / "pom.xml"

_QUIET = '<Configuration status="OFF"><Loggers><Root level="OFF"/></Loggers></Configuration>'


@cache
def jars() -> Path:
    """The directory of Kafka's jars, with a logging configuration that keeps its tools quiet."""
    directory = fetch_jars(POM)
    (directory / "log4j2.xml").write_text(_QUIET)
    return directory


def java(main: str, *arguments: str, heap: str = "256m") -> list[str]:
    """The command line that runs one of Kafka's classes."""
    quiet = f"-Dlog4j2.configurationFile={jars()}/log4j2.xml"
    return [
        "java",
        f"-Xmx{heap}",
        *QUICK_JAVA.split(),
        *sharing("server" if main.startswith("kafka.") else "clients", jars()),
        quiet,
        "-cp",
        f"{jars()}/*",
        main,
        *arguments,
    ]


def run_tool(
    tool: str, *arguments: str, stdin: str | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a tool such as ``TopicCommand``; names without a package are in ``org.apache.kafka.tools``."""
    main = (
        tool if "." in tool and tool.split(".")[0] in ("org", "kafka") else f"org.apache.kafka.tools.{tool}"
    )
    return subprocess.run(
        java(main, *arguments), input=stdin, capture_output=True, text=True, timeout=timeout
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ApacheKafka:
    """A node whose directory and port stay the same when it is killed and started again."""

    def __init__(self, address: str, root: Path, command: list[str]) -> None:
        self.address = address
        self.data = root / "data"
        self._output = root / "server.log"
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> None:
        """Start the node, and wait until it answers."""
        with self._output.open("ab") as output:
            self._process = process = subprocess.Popen(self._command, stdout=output, stderr=subprocess.STDOUT)
        host, _, port = self.address.rpartition(":")

        def answers() -> bool:
            if process.poll() is not None:
                raise AssertionError(f"Apache Kafka ended: {self._output.read_text()[-2000:]}")
            try:
                with socket.create_connection((host, int(port)), timeout=1) as connection:
                    connection.sendall(bytes.fromhex("0000000a 0012 0000 00000001 0000".replace(" ", "")))
                    return len(connection.recv(4)) == 4
            except OSError:
                return False

        wait_for(answers, timeout=90, what="Apache Kafka answers ApiVersions", every=0.1)

    def kill(self) -> None:
        """kill -9: nothing is flushed or logged."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Ask the node to stop. Kill it if it takes too long."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()


@contextmanager
def apache_kafka(
    *,
    heap: str = "512m",
    settings: dict[str, str] | None = None,
    quick: bool = False,
    classes_into: Path | None = None,
) -> Iterator[ApacheKafka]:
    """Start one node, wait until it answers, and stop it at exit. In the values of ``settings``, ``{port}``
    and ``{controller}`` are replaced by the node's ports. With ``quick``, Java runs with only its quick
    compiler and with archived classes; leave that out where Kafka is compared with millstream.
    ``classes_into`` is a file in which to archive the loaded classes for later runs.
    """
    port, controller = free_port(), free_port()
    root = Path(tempfile.mkdtemp(prefix="apache-kafka-"))
    values = {
        "node.id": "0",
        "process.roles": "broker,controller",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(root / "data"),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **{key: value.format(port=port, controller=controller) for key, value in (settings or {}).items()},
    }
    properties = root / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    features = [
        part
        for name in ("share.version=1", "group.version=1", "transaction.version=2")
        for part in ("--feature", name)
    ]
    cluster_id = "bWlsbHN0cmVhbS10ZXN0cw"
    subprocess.run(
        java(
            "kafka.tools.StorageTool",
            "format",
            "--standalone",
            "-t",
            cluster_id,
            "-c",
            str(properties),
            *features,
        ),
        check=True,
        capture_output=True,
    )
    command = java("kafka.Kafka", str(properties), heap=heap)
    if classes_into is not None:
        command = archiving(command, classes_into)
    if not quick:
        hurried = {*QUICK_JAVA.split(), *sharing("server", jars())}
        command = [part for part in command if part not in hurried]
    kafka = ApacheKafka(f"127.0.0.1:{port}", root, command)
    try:
        kafka.start()
        yield kafka
    finally:
        kafka.stop()
        shutil.rmtree(root, ignore_errors=True)
