"""A stream processor in a process of its own: installed if need be, given tasks, and watched from outside."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.nexmark.contestants.tasks import Task
from bench.processes import own_cpu_seconds, tree_cpu_seconds
from tests.support.maven import REPOSITORY, JarsUnavailable, fetch_jars

HERE = Path(__file__).parent / "contestants"
OURS = "millstream"
LONGEST_S = 600.0  # that a task may take


class Unavailable(Exception):
    """A contestant that can't be had here; says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Who takes part: the name in the tables, the program, what it needs installed, and whether it compiles
    what it runs while it runs."""

    name: str
    program: str
    packages: tuple[str, ...] = ()
    jars: Path | None = None
    on_a_jvm: bool = False

    def python(self) -> Path:
        """The interpreter of its own environment, which is made if it is not there."""
        home = REPOSITORY / "build" / "peers" / self.program.removeprefix("on_").removesuffix(".py")
        python, marker, wanted = home / "bin" / "python", home / ".ready", "\n".join(self.packages)
        if marker.exists() and marker.read_text() == wanted:
            return python
        for command in (
            [sys.executable, "-m", "venv", str(home)],
            [str(python), "-m", "pip", "install", "-q", "--no-cache-dir", *self.packages],
        ):
            done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
            if done.returncode != 0:
                last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
                raise Unavailable(f"{self.name} can't be installed: {last}")
        marker.write_text(wanted)
        return python

    def command(self) -> list[str]:
        """Ours is part of this repository; the others can import nothing of it."""
        if not self.packages:
            return [sys.executable, "-m", f"bench.nexmark.contestants.{self.program.removesuffix('.py')}"]
        return [str(self.python()), str(HERE / self.program)]

    def environment(self) -> dict[str, str]:
        found = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if self.jars is not None:
            try:
                found["FLINK_JARS"] = str(fetch_jars(self.jars))
            except JarsUnavailable as reason:
                raise Unavailable(f"{self.name}: {reason}") from None
        return found


ENTRIES = (
    Entry(OURS, "on_millstream.py", on_a_jvm=True),
    Entry("PyFlink", "on_flink.py", ("apache-flink==2.3.0",), HERE / "flink_sql_kafka" / "pom.xml", True),
    Entry("Bytewax", "on_bytewax.py", ("bytewax[kafka]==0.21.1", "orjson")),
    Entry("Quix Streams", "on_quix.py", ("quixstreams==3.28.1",)),
)


@dataclass(frozen=True, slots=True)
class Run:
    seconds: float
    cpu_seconds: float


class Contestant:
    """One entry at work. Raises Unavailable if it can't be."""

    def __init__(self, entry: Entry, log: Path) -> None:
        self.name = entry.name
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                entry.command(),
                cwd=REPOSITORY,
                env=entry.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
            )

    def begin(self, task: Task) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(task)) + "\n")
        self._process.stdin.flush()

    def do(self, task: Task) -> Run:
        """Do a bounded task to its end. Raises Unavailable if the contestant can't."""
        cpu, start = self.cpu_seconds(), time.perf_counter()
        with contextlib.suppress(BrokenPipeError):  # it has ended, and says so below
            self.begin(task)
        answer = self._answer()
        seconds = time.perf_counter() - start
        if not answer.get("done"):
            if "cannot" in answer:
                raise Unavailable(f"{self.name} can't express {task.query}: {answer['cannot']}")
            raise Unavailable(f"{self.name}, {task.query}: {answer['error']} (see {self._log})")
        return Run(seconds, self.cpu_seconds() - cpu)

    def _answer(self) -> dict[str, object]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], LONGEST_S)[0]:
            self._process.kill()
            return {"error": f"it was not done in {LONGEST_S:g} s"}
        line = self._process.stdout.readline()
        answer: dict[str, object] = json.loads(line) if line else {"error": "it ended"}
        if not line:
            self._process.wait()
        return answer

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def answered(self) -> bool:
        """Whether it has something to say: of a task without end, that it failed."""
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def last_words(self) -> str:
        """What it said of a task without end, if anything."""
        if not self.answered:
            return ""
        answer = self._answer()
        return str(answer.get("cannot") or answer.get("error") or "it came to an end")

    def cpu_seconds(self) -> float:
        return own_cpu_seconds(self._process.pid) + tree_cpu_seconds(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._process.terminate()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
