"""The process that runs a compaction pass: ``python -m millstream.log.compaction.child``.

A job is one line of JSON on standard input. The pass reports on standard output, one line of JSON each:
``{"group": [...]}``, at the end ``{"finished": [...]}``, or ``{"damaged": "..."}`` or ``{"error": "...",
"errno": N}``. The process always ends with its parent, however that ends: the next broker opens the same
log, and nothing else may write beside it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from millstream.log.compaction.single_pass import DamagedLog, PassInput, PassResult, SegmentGroup, compact
from millstream.log.storage.files import OsFiles

_NICE = 10
_PR_SET_PDEATHSIG = 1


class Child:
    """A pass in a separate process, seen from the process that started it."""

    def __init__(self, job: PassInput, max_bytes_per_second: float) -> None:
        """May raise OSError."""
        command = [sys.executable, "-m", __name__, str(os.getpid())]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._request = json.dumps({"job": asdict(job), "max_bytes_per_second": max_bytes_per_second}) + "\n"

    def events(self) -> Generator[SegmentGroup | PassResult, None, None]:
        """Yield what ``compact`` would. Raises DamagedLog, or OSError."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            try:
                with suppress(BrokenPipeError):  # it has ended already; its exit code is reported below
                    process.stdin.write(self._request)
                    process.stdin.close()
                for line in process.stdout:
                    event = _event(json.loads(line))
                    yield event
                    if isinstance(event, PassResult):
                        return
            finally:
                process.kill()
        raise OSError(f"the process that compacts ended with code {process.returncode}")

    def kill(self) -> None:
        self._process.kill()


def _event(said: dict[str, Any]) -> SegmentGroup | PassResult:
    if "group" in said:
        return SegmentGroup(*said["group"])
    if "finished" in said:
        return PassResult(*said["finished"])
    if "damaged" in said:
        raise DamagedLog(said["damaged"])
    raise OSError(said["errno"], said["error"])


class _Pace:
    """Sleeps so that no more than the given bytes pass per second."""

    def __init__(self, bytes_per_second: float) -> None:
        self._rate = bytes_per_second
        self._started = time.monotonic()
        self._passed = 0

    def __call__(self, size: int) -> None:
        self._passed += size
        ahead = self._passed / self._rate - (time.monotonic() - self._started)
        if ahead > 0.01:
            time.sleep(ahead)


def _end_with_parent(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def _job(said: dict[str, Any]) -> PassInput:
    producers = {int(producer_id): tuple(known) for producer_id, known in said["producers"].items()}
    return PassInput(**{**said, "producers": producers})


def main() -> None:
    _end_with_parent(int(sys.argv[1]))
    os.nice(_NICE)
    said = json.loads(sys.stdin.readline())
    pace = _Pace(said["max_bytes_per_second"])
    try:
        for event in compact(OsFiles(), _job(said["job"]), pace):
            name = "group" if isinstance(event, SegmentGroup) else "finished"
            _say({name: list(event)})
    except DamagedLog as problem:
        _say({"damaged": str(problem)})
    except OSError as error:
        _say({"error": f"{error.strerror or error}", "errno": error.errno or 0})


def _say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    main()
