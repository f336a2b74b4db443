"""A server that is told to end does, whatever its threads wait for."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import asyncio, contextlib, time
from millstream.core import serving

serving._LONGEST = 1.0

class Stuck(serving.ServedApplication):
    @contextlib.asynccontextmanager
    async def application(self):
        # A thread that Python waits for at the end of the process, in a call that never comes back.
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 3600)
        async def app(scope, receive, send): ...
        yield app

serving.run(Stuck("127.0.0.1:0"), on_ready=lambda url: print(url, flush=True))
"""


def test_it_ends_though_a_thread_never_does_and_says_where_that_was() -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("http://")
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Timeout" in said
    assert "Thread 0x" in said
