"""Runs small programs, each with a different client library, that take the same commands and answer in JSON.

    PROGRAM ADDRESS administer TOPIC            create, describe, change, grow, list and delete a topic
    PROGRAM ADDRESS produce TOPIC COUNT CODEC   records k0 v0, k1 v1 ... with a header, to partitions 0 and 1
                                                in turn; a line for each, or for each batch, that was written
    PROGRAM ADDRESS consume GROUP TOPIC PROTOCOL   in a group, until standard input ends: a line for each
                                                record, which is then committed
    PROGRAM ADDRESS read TOPIC PARTITION OFFSET|@MILLIS COUNT   without a group, from there on
    PROGRAM ADDRESS transact TOPIC ID           three transactions of two records; the second is aborted
    PROGRAM ADDRESS describe-group GROUP TOPIC  its state, its number of members, its offsets
    PROGRAM ADDRESS delete-group GROUP
    PROGRAM ADDRESS share GROUP TOPIC COUNT     in a share group, until all are accepted: a line for each
                                                delivery, with its number. Only java and franz-go

Programs that must be compiled or fetched are built once per checkout, under ``build/``.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.apache_kafka import jars
from tests.support.java_program import java_program
from tests.support.maven import REPOSITORY, JarsUnavailable
from tests.support.waiting import wait_for

SOURCES = REPOSITORY / "tests" / "clients"
BUILD = REPOSITORY / "build" / "clients"
ALL_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class ProgramUnavailable(Exception):
    """This program is not available here; the message says why. Tests turn it into a skip."""


@dataclass(frozen=True, slots=True)
class Program:
    """The program of one client library: how it is started, and what the library can do."""

    name: str
    command: Callable[[], list[str]]
    codecs: tuple[str, ...] = ALL_CODECS
    protocols: tuple[str, ...] = ("classic",)
    has_transactions: bool = True
    deletes_groups: bool = True

    def ask(self, address: str, *arguments: object, timeout: float = 60) -> list[Any]:
        """Run a command to its end, and return its lines of output, parsed."""
        command = [*self.command(), address, *map(str, arguments)]
        done = subprocess.run(
            command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
        )
        assert done.returncode == 0, f"{self.name} {arguments}: {done.stdout}{done.stderr}"
        return [json.loads(line) for line in done.stdout.splitlines()]


class Member:
    """A program that reads in a group for as long as the context lasts. ``read`` has its records so far."""

    def __init__(self, program: Program, address: str, group: str, topic: str, protocol: str) -> None:
        self.read: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [*program.command(), address, "consume", group, topic, protocol],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines = threading.Thread(target=self._listen)
        self._said: list[str] = []
        self._words = threading.Thread(target=self._overhear)
        self._lines.start()
        self._words.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.read.append(json.loads(line))

    def _overhear(self) -> None:
        assert self._process.stderr is not None
        self._said += self._process.stderr

    def stop(self) -> None:
        """Tell the program to stop, and wait until it has left the group."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(400)
        self._lines.join()
        self._words.join()
        assert code == 0, "".join(self._said)

    def __enter__(self) -> Member:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._lines.join()
        self._words.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()


def values(*members: Member) -> list[str]:
    return [record["value"] for member in members for record in member.read]


def wait_until_read(count: int, *members: Member) -> None:
    wait_for(
        lambda: len(set(values(*members))) >= count,
        what=f"{count} records are read, not {len(set(values(*members)))}",
        timeout=60,
    )


# How the programs are built


def _digest(directory: Path) -> str:
    """The hash of all sources in a directory, so that a change causes a new build."""
    found = hashlib.sha256()
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        found.update(path.relative_to(directory).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:16]


def _built(name: str, tool: str, sources: Path, build: Callable[[Path], list[list[str]]]) -> Path:
    """The directory with what the commands of ``build`` make from ``sources``. It is built in a temporary
    directory and then moved into place, because several processes may build at once.
    """
    directory = BUILD / f"{name}-{_digest(sources)}"
    if directory.exists():
        return directory
    if shutil.which(tool) is None:
        raise ProgramUnavailable(f"{name} needs {tool}, which is not installed")
    aside = BUILD / f"{name}-{_digest(sources)}-{id(sources)}"
    aside.mkdir(parents=True, exist_ok=True)
    try:
        for command in build(aside):
            done = subprocess.run(command, cwd=sources, capture_output=True, text=True, timeout=900)
            if done.returncode != 0:
                raise ProgramUnavailable(f"{name} could not be built: {(done.stdout + done.stderr)[-800:]}")
        if not directory.exists():
            aside.rename(directory)
    except subprocess.TimeoutExpired:
        raise ProgramUnavailable(f"{name} could not be built within 15 minutes") from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return directory


@cache
def _go(name: str) -> list[str]:
    def build(aside: Path) -> list[list[str]]:
        # Without C and without optimising: a new machine compiles the standard library as well.
        return [
            [
                "env",
                "CGO_ENABLED=0",
                "go",
                "build",
                "-gcflags=all=-N",
                "-ldflags=-s",
                "-o",
                f"{aside}/",
                "./...",
            ]
        ]

    return [str(_built("go", "go", SOURCES / "go", build) / name)]


@cache
def _rust() -> list[str]:
    def build(aside: Path) -> list[list[str]]:
        # The dependencies take a minute to compile, so they are kept in one place when the program changes.
        # Neither C nor Rust is optimised: that took three minutes more, and the program's speed does not
        # matter here.
        target = BUILD / "rust-target"
        plain = ["env", "CFLAGS=-O0 -g0", "CXXFLAGS=-O0 -g0", "CARGO_PROFILE_DEV_DEBUG=false"]
        sources = shutil.copytree(SOURCES / "rust", aside / "sources")
        manifest = str(sources / "Cargo.toml")
        return [
            [*plain, "cargo", "build", "-q", "--target-dir", str(target), "--manifest-path", manifest],
            ["cp", str(target / "debug" / "rdkafka-client"), str(aside)],
        ]

    return [str(_built("rust", "cargo", SOURCES / "rust", build) / "rdkafka-client")]


@cache
def _node() -> list[str]:
    def build(aside: Path) -> list[list[str]]:
        for name in ("package.json", "kafkajs.js"):
            shutil.copy(SOURCES / "node" / name, aside)
        return [["npm", "install", "--silent", "--no-package-lock", "--prefix", str(aside)]]

    return ["node", str(_built("node", "npm", SOURCES / "node", build) / "kafkajs.js")]


def _java() -> list[str]:
    try:
        return java_program("PlainClient", jars())
    except JarsUnavailable as reason:
        raise ProgramUnavailable(str(reason)) from None


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", f"tests.clients.python.{module}"]


BOTH = ("classic", "consumer")
JAVA = Program("java", _java, codecs=("lz4", "zstd"), protocols=BOTH)  # starting it takes longest
FRANZ = Program("franz-go", lambda: _go("franz"), protocols=BOTH)
PROGRAMS = [
    Program("confluent-kafka", lambda: _python("confluent"), protocols=BOTH),
    Program("kafka-python", lambda: _python("kafka_python"), codecs=("none", "gzip")),
    Program("aiokafka", lambda: _python("aio"), deletes_groups=False),
    JAVA,
    FRANZ,
    Program("sarama", lambda: _go("sarama")),
    Program("kafka-go", lambda: _go("kafkago"), has_transactions=False),
    Program("kafkajs", _node, codecs=("none", "gzip")),
    Program("rdkafka", _rust, protocols=BOTH),
]
