"""Compiles the small Java programs in ``tests/clients/java`` with the machine's ``javac``, and runs them."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.support.maven import REPOSITORY, JarsUnavailable
from tests.support.shared_classes import QUICK_JAVA, sharing

SOURCES = REPOSITORY / "tests" / "clients" / "java"
# Packages that Java 17 closes by default, and that Flink and RocksDB need.
_OPENED = ("java.base/java.lang", "java.base/java.util", "java.base/java.nio")


_QUIET = (
    '<Configuration status="OFF"><Appenders><Console name="err" target="SYSTEM_ERR">'
    '<PatternLayout pattern="%d{HH:mm:ss.SSS} %-5p %c{1} %m%n%xEx{short}"/></Console></Appenders>'
    '<Loggers><Root level="WARN"><AppenderRef ref="err"/></Root></Loggers></Configuration>'
)


def compiled(name: str, jars: Path) -> Path:
    """The directory with the classes of ``name``.java, compiled unless this version of the source already is.

    Many processes may call this at once. Each compiles in a temporary directory and moves the whole result
    into place; the first one wins.
    """
    source = SOURCES / f"{name}.java"
    digest = hashlib.sha256(source.read_bytes() + str(jars).encode()).hexdigest()[:16]
    classes = REPOSITORY / "build" / "classes" / f"{name}-{digest}"
    if classes.exists():
        return classes
    compiler = shutil.which("javac")
    if compiler is None:
        raise JarsUnavailable(f"{name} needs javac, which is not installed")
    classes.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=classes.parent) as aside:
        made = Path(aside) / "classes"
        made.mkdir()
        command = [compiler, "-nowarn", "-cp", f"{jars}/*", "-d", str(made), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=400)
        assert done.returncode == 0, done.stderr
        (made / "log4j2.xml").write_text(_QUIET)
        with suppress(OSError):  # another process was faster
            made.rename(classes)
    return classes


def java_program(name: str, jars: Path, *arguments: str, heap: str = "256m") -> list[str]:
    """The command line that runs one of these programs with the given jars."""
    classes = compiled(name, jars)
    return [
        "java",
        f"-Xmx{heap}",
        *QUICK_JAVA.split(),
        *sharing("clients", jars),
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
        f"-Dlog4j2.configurationFile={classes}/log4j2.xml",
        "-cp",
        f"{jars}/*:{classes}",  # the jars come first: an archive of classes fits the start of a class path
        name,
        *arguments,
    ]
