"""What a suite is: a name, where it comes from, and how it is run against an address."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.maven import REPOSITORY

BUILD = REPOSITORY / "build" / "conformance"

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class SuiteUnavailable(Exception):
    """This suite can't be had here; the message says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one test."""

    verdict: str
    detail: str = ""  # the end of what it printed, where it did not pass


@dataclass(frozen=True, slots=True)
class Target:
    """A running broker that a suite is pointed at."""

    name: str  # millstream, kafka
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests that someone else wrote, and the broker that they count on."""

    name: str
    origin: str
    run: Callable[[Target], Mapping[str, Outcome]]
    settings: Mapping[str, str] = field(default_factory=dict)
    node_id: int = 0
    host: str = "127.0.0.1"  # by which the broker calls itself


def run_quietly(
    command: list[str], *, cwd: Path | None = None, timeout: float = 600, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """The exit code and everything it printed; one that takes too long is ended, and has failed."""
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
