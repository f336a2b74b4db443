"""Runs a real Apache Cassandra from its Maven artifacts: one small node on loopback that keeps nothing."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.apache_kafka import free_port
from tests.support.maven import JarsUnavailable, fetch_jars
from tests.support.waiting import wait_for

POM = Path(__file__).parent / "cassandra" / "pom.xml"
_START_S = 240
# Packages that Java 17 closes to libraries by default, and that Cassandra needs.
_OPENED = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.reflect",
    "java.base/java.math",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.nio.charset",
    "java.base/java.nio.file.spi",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
    "java.logging/java.util.logging",
    "jdk.management/com.sun.management",
    "jdk.management/com.sun.management.internal",
)
_EXPORTED = (
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
    "jdk.attach/sun.tools.attach",
)
_LOGGING = (
    "<configuration><appender name='out' class='ch.qos.logback.core.ConsoleAppender'><encoder>"
    "<pattern>%level %logger{20} %msg%n</pattern></encoder></appender>"
    "<root level='WARN'><appender-ref ref='out'/></root></configuration>"
)


def _settings(root: Path, port: int, storage: int) -> str:
    return "\n".join(
        [
            "cluster_name: tests",
            "num_tokens: 1",
            "partitioner: org.apache.cassandra.dht.Murmur3Partitioner",
            "commitlog_sync: periodic",
            "commitlog_sync_period: 1000ms",
            "commitlog_segment_size: 4MiB",
            "commitlog_total_space: 16MiB",
            "endpoint_snitch: SimpleSnitch",
            "listen_address: 127.0.0.1",
            "rpc_address: 127.0.0.1",
            f"native_transport_port: {port}",
            f"storage_port: {storage}",
            "concurrent_reads: 4",
            "concurrent_writes: 4",
            "memtable_heap_space: 64MiB",
            "memtable_offheap_space: 32MiB",
            "file_cache_size: 16MiB",
            "key_cache_size: 4MiB",
            "auto_snapshot: false",
            f"data_file_directories: ['{root}/data']",
            f"commitlog_directory: {root}/commitlog",
            f"saved_caches_directory: {root}/caches",
            f"hints_directory: {root}/hints",
            f"cdc_raw_directory: {root}/cdc",
            "seed_provider:",
            "  - class_name: org.apache.cassandra.locator.SimpleSeedProvider",
            f"    parameters: [{{seeds: '127.0.0.1:{storage}'}}]",
            "",
        ]
    )


def _command(root: Path, jars: Path) -> list[str]:
    agent = next(iter(jars.glob("jamm-*.jar")))
    return [
        "java",
        "-Xms256m",
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-javaagent:{agent}",
        *(f"--add-opens={name}=ALL-UNNAMED" for name in _OPENED),
        *(f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTED),
        "-Djdk.attach.allowAttachSelf=true",
        f"-Dcassandra.config=file://{root}/cassandra.yaml",
        f"-Dcassandra.storagedir={root}",
        f"-Dcassandra.logdir={root}/logs",
        f"-Dlogback.configurationFile=file://{root}/logback.xml",
        "-Dcassandra-foreground=yes",
        "-Dcassandra.ring_delay_ms=1",
        "-Dcassandra.skip_wait_for_gossip_to_settle=0",
        f"-Djava.io.tmpdir={root}/tmp",
        "-cp",
        f"{jars}/*",
        "org.apache.cassandra.service.CassandraDaemon",
    ]


@contextmanager
def cassandra() -> Iterator[str]:
    """The address of a running node, ``cassandra://127.0.0.1:port/tests``. Raises JarsUnavailable if it can't
    be had here.
    """
    jars = fetch_jars(POM)
    if not list(jars.glob("jamm-*.jar")):
        raise JarsUnavailable("Cassandra's jars lack the agent that it starts with")
    root = Path(tempfile.mkdtemp(prefix="millstream-cassandra-"))
    port, storage = free_port(), free_port()
    (root / "tmp").mkdir()
    (root / "cassandra.yaml").write_text(_settings(root, port, storage))
    (root / "logback.xml").write_text(_LOGGING)
    log = root / "server.log"
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(
                _command(root, jars), stdout=output, stderr=subprocess.STDOUT, cwd=root
            )
        try:
            wait_for(
                lambda: _answers(process, log, port), timeout=_START_S, what="Cassandra answers", every=0.5
            )
            yield f"cassandra://127.0.0.1:{port}/tests"
        finally:
            process.kill()
            process.wait(30)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _answers(process: subprocess.Popen[bytes], log: Path, port: int) -> bool:
    from cassandra.cluster import Cluster, NoHostAvailable

    if process.poll() is not None:
        raise AssertionError(f"Cassandra ended: {log.read_text()[-3000:]}")
    cluster = Cluster(["127.0.0.1"], port=port, connect_timeout=5)
    try:
        session = cluster.connect()
        session.execute(
            "CREATE KEYSPACE IF NOT EXISTS tests"
            " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
    except NoHostAvailable:
        return False
    finally:
        cluster.shutdown()
    return True
