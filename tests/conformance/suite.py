"""Defines a suite: its name, its origin, and how it is run against a broker."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.maven import REPOSITORY

BUILD = REPOSITORY / "build" / "conformance"

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class SuiteUnavailable(Exception):
    """This suite is not available here; the message says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one test."""

    verdict: str
    detail: str = ""  # the end of its output, if it did not pass


@dataclass(frozen=True, slots=True)
class Target:
    """A running broker that a suite is run against."""

    name: str  # millstream or kafka
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests that someone else wrote, and the settings of the broker that they expect."""

    name: str
    origin: str
    run: Callable[[Target], Mapping[str, Outcome]]
    settings: Mapping[str, str] = field(default_factory=dict)
    node_id: int = 0
    host: str = "127.0.0.1"  # the host that the broker advertises


def run_quietly(
    command: list[str], *, cwd: Path | None = None, timeout: float = 600, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a command, and return its exit code and output. One that takes too long is killed, and fails."""
    try:
        ended = subprocess.run(
            command,
            cwd=cwd,
            env=None if env is None else dict(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired as late:
        said = late.stdout or b""
        text = said.decode(errors="replace") if isinstance(said, bytes) else said
        return -1, f"{text}\n(ended after {timeout:g} s)"
    return ended.returncode, ended.stdout
