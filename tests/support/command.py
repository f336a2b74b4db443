"""Running the real ``millstream`` executable."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from tests.support.serve import MILLSTREAM

# Settings of whoever runs the tests: other brokers, and modules compiled anew by every process.
_NOT_OURS = ("MILLSTREAM_", "PYTHONDONTWRITEBYTECODE")


class CommandLine:
    """``millstream`` with a broker's address in its environment, as a user's shell would have it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)},
            "MILLSTREAM_BROKER": address,
            "COLUMNS": "80",
        }

    def run(
        self, *arguments: str, stdin: str | bytes = b"", timeout: float = 60
    ) -> subprocess.CompletedProcess[bytes]:
        """Run to the end, whatever it is. A traceback is never an answer to a user."""
        done = subprocess.run(
            [MILLSTREAM, *arguments],
            input=stdin.encode() if isinstance(stdin, str) else stdin,
            capture_output=True,
            env=self.environment,
            timeout=timeout,
        )
        assert b"Traceback" not in done.stderr, done.stderr.decode()
        return done

    def ok(self, *arguments: str, stdin: str | bytes = b"") -> str:
        """Run; it must succeed. What it printed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"{arguments}: {done.stderr.decode()}"
        return done.stdout.decode()

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--output", "json"))

    def refused(self, *arguments: str, stdin: str | bytes = b"", code: int = 1) -> str:
        """Run; it must fail with one line, which is returned."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        lines = done.stderr.decode().splitlines()
        assert len(lines) == 1, lines
        assert lines[0].startswith("millstream: ")
        return lines[0]

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen([MILLSTREAM, *arguments], env=self.environment, **options)
