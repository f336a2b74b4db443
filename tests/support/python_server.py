"""A Python with Spark's and millstream's modules loaded, which forks for each Python process of Spark.

A forked process does not spend one to three seconds of CPU on imports, and every query starts one or two.

    python -m tests.support.python_server SOCKET

SOCKET takes the same messages as ``command_server``, with the arguments of a ``python``. Spark's Python is
set to a program of a few lines, which sends its arguments there and ends as the forked process does.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.command_server import serve
from tests.support.waiting import wait_for

_ROOT = Path(__file__).parents[2]
_ASKING = """\
#!{python} -IS
import json, os, socket, sys

status, theirs = os.pipe()
request = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "directory": os.getcwd()}}
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
    server.connect({socket!r})
    socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2, theirs])
os.close(theirs)
with open(status) as ended:
    code = int(ended.read().split()[1])
sys.exit(code if code >= 0 else 128 - code)
"""


@contextmanager
def quick_python() -> Iterator[str]:
    """The path of a program that Spark can use as its ``python`` for as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="python-") as home:
        path, program = f"{home}/socket", Path(home) / "python"
        program.write_text(_ASKING.format(python=sys.executable, socket=path))
        program.chmod(0o755)
        # The hash seed is fixed, so that a string has the same hash in all of Spark's processes. The other
        # settings keep numpy and pyarrow from starting threads on import: a process that forks must have one
        # thread.
        environment = {
            **os.environ,
            "PYTHONHASHSEED": "0",
            "OPENBLAS_NUM_THREADS": "1",
            "JE_ARROW_MALLOC_CONF": "background_thread:false",
        }
        command = [sys.executable, "-m", "tests.support.python_server", path]
        process = subprocess.Popen(command, cwd=_ROOT, env=environment, stdin=subprocess.DEVNULL)
        try:
            wait_for(
                lambda: Path(path).exists() or process.poll() is not None,
                timeout=120,
                what="a Python with Spark's modules listens",
            )
            assert process.poll() is None, "a Python with Spark's modules has ended"
            yield str(program)
        finally:
            process.kill()
            process.wait()


def preload() -> None:
    import millstream.pipeline

    for module in ("pandas", "pyarrow.compute", "pyspark.daemon", "pyspark.worker"):
        importlib.import_module(module)
    importlib.import_module("pyspark.sql.streaming.python_streaming_source_runner")
    for found in pkgutil.walk_packages(millstream.pipeline.__path__, "millstream.pipeline."):
        importlib.import_module(found.name)
    assert len(os.listdir("/proc/self/task")) == 1, "a thread that was started by an import would be lost"
    gc.collect()
    gc.freeze()  # the collector of each forked process need not examine loaded modules again


def execute(request: dict[str, Any]) -> None:
    """Do what ``python -m MODULE ARGUMENTS`` or ``python -c CODE ARGUMENTS`` does. Spark uses only these."""
    option, what, *arguments = request["arguments"]
    added = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [request["directory"], *(path for path in added if path)]
    sys.argv = [option, *arguments]
    ended = 0
    try:
        if option == "-m":
            sys.modules.pop(what, None)  # it runs as the main module
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            assert option == "-c", request["arguments"]
            exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as error:
        ended = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        ended = 1
    sys.exit(ended)


if __name__ == "__main__":
    preload()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(sys.argv[1])
        serve(channel, execute)
