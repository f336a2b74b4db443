"""Connects the Python process of a source or processor to the JVM before it loads Spark's program.

Spark starts one such process for each streaming source, and one for each processor before its query's first
batch. It gives the process ten seconds from its start to connect (``PythonWorkerFactory``: not a setting).
Spark's own program first imports PySpark, pandas and pyarrow. That takes a second of CPU, and a machine with
other work does not give as much to six processes in ten seconds: the job dies with "Python worker failed to
connect back". So this program connects with what a bare interpreter has, and only then becomes Spark's
program, which has no deadline. ``session.py`` makes Spark start it.
"""

import os
import signal
import socket
import struct
import sys

SOURCE = "pyspark.sql.streaming.python_streaming_source_runner"
PROCESSOR = "pyspark.sql.streaming.transform_with_state_driver_worker"
PROGRAMS = (SOURCE, PROCESSOR)  # Spark's programs, each with a main() that talks over one connection
_LENGTH = struct.Struct(">i")


def connect() -> socket.socket:
    """A connection to the JVM, which has been told this process's id over it."""
    path = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
    if path is not None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(path)
    else:
        host = "::1" if os.environ.get("SPARK_PREFER_IPV6", "").lower() == "true" else "127.0.0.1"
        connection = socket.create_connection((host, int(os.environ["PYTHON_WORKER_FACTORY_PORT"])))
        secret = os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode()
        connection.sendall(_LENGTH.pack(len(secret)) + secret)
        (size,) = _LENGTH.unpack(_received(connection, _LENGTH.size))
        if _received(connection, size) != b"ok":
            raise ConnectionRefusedError("the JVM does not know this process")
    connection.sendall(_LENGTH.pack(os.getpid()))
    return connection


def _received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionResetError("the JVM has hung up")
        data += more
    return data


def main(program: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the JVM ignores SIGTERM, but ends this process with it
    connection = connect()
    from importlib import import_module

    runner = import_module(program)
    with connection.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", 65536))) as stream:
        runner.main(stream, stream)


if __name__ == "__main__":
    main(sys.argv[1])
