"""Runs a real PostgreSQL (Debian's): a new cluster in a temporary directory, on a free port of loopback."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Self

from tests.support.apache_kafka import free_port
from tests.support.waiting import wait_for


class PostgresUnavailable(Exception):
    """PostgreSQL can't run on this machine; the message says why."""


@cache
def programs() -> Path:
    """The directory of PostgreSQL's programs, which Debian does not put on the path."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]), reverse=True
    )
    on_path = shutil.which("initdb")
    if not found and on_path is None:
        raise PostgresUnavailable("PostgreSQL is not installed; on Debian: apt install postgresql")
    return found[0].parent if found else Path(str(on_path)).parent


def _user() -> dict[str, Any]:
    """The user to run the server as, because it refuses root. Empty if that is the current user."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            who = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}
    raise PostgresUnavailable("PostgreSQL refuses to run as root, and there is no user to run it as")


class Postgres:
    """A server whose directory and port stay the same over restarts."""

    def __init__(self, root: Path, *, prepared: int = 16) -> None:
        """``prepared`` is the largest number of prepared transactions."""
        self.port = free_port()
        self._data = root / "data"
        self._log = root / "server.log"
        self._who = _user()
        self._process: subprocess.Popen[bytes] | None = None
        if self._who:
            os.chown(root, self._who["user"], self._who["group"])
        self._run("initdb", "-D", str(self._data), "-U", "millstream", "-A", "trust", "-E", "UTF8", "-N")
        settings = {
            "port": str(self.port),
            "listen_addresses": "'127.0.0.1'",
            "unix_socket_directories": "''",
            "max_prepared_transactions": str(prepared),
            "max_connections": "40",
            "shared_buffers": "16MB",
            # Tests kill processes, not the machine, so what the kernel has is safe.
            "fsync": "off",
        }
        with (self._data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())

    @property
    def url(self) -> str:
        return self.database("postgres")

    def database(self, name: str) -> str:
        return f"postgresql://millstream@127.0.0.1:{self.port}/{name}"

    def create_database(self, name: str) -> str:
        """Create a new, empty database, and return its URL."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.database(name)

    def start(self) -> Self:
        """Start the server, and wait until it accepts connections. After a crash it recovers first."""
        command = [str(programs() / "postgres"), "-D", str(self._data)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd="/", **self._who
            )
        wait_for(self._answers, timeout=60, what="PostgreSQL takes connections", every=0.05)
        return self

    def stop(self) -> None:
        """Shut down in order, and close open connections (PostgreSQL's fast shutdown)."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """kill -9 the server. Its children notice, and end."""
        self._end(signal.SIGKILL)
        # The children hold its shared memory for a moment. Until then, a new server refuses to start.
        wait_for(self._alone, timeout=90, what="the killed server's children have ended")

    def _end(self, number: int) -> None:
        assert self._process is not None, "not started"
        self._process.send_signal(number)
        self._process.wait(30)

    def _alone(self) -> bool:
        return not any(_works_in(process, self._data) for process in Path("/proc").glob("[0-9]*"))

    def _answers(self) -> bool:
        import psycopg

        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"PostgreSQL ended: {self._log.read_text()[-2000:]}")
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(programs() / program), *arguments], capture_output=True, text=True, cwd="/", **self._who
        )
        assert done.returncode == 0, f"{program}: {done.stderr}"


def _works_in(process: Path, directory: Path) -> bool:
    try:
        return (process / "cwd").readlink() == directory
    except OSError:
        return False  # the process has ended, or belongs to another user


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A running server, stopped and removed at exit."""
    programs()
    root = Path(tempfile.mkdtemp(prefix="millstream-postgres-"))  # root's pytest directories are closed to it
    try:
        server = Postgres(root).start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)
