"""Small Java programs of ours in ``tests/clients/java``, compiled by the machine's ``javac`` against jars."""

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
# Flink and RocksDB reach into packages that Java 17 keeps closed.
_OPENED = ("java.base/java.lang", "java.base/java.util", "java.base/java.nio")


_QUIET = (
    '<Configuration status="OFF"><Appenders><Console name="err" target="SYSTEM_ERR">'
    '<PatternLayout pattern="%d{HH:mm:ss.SSS} %-5p %c{1} %m%n%xEx{short}"/></Console></Appenders>'
    '<Loggers><Root level="WARN"><AppenderRef ref="err"/></Root></Loggers></Configuration>'
)


def compiled(name: str, jars: Path) -> Path:
    """The directory with the classes of ``name``.java, compiled if there are none of this very source yet.

    Many processes may ask at once: each compiles aside and puts the whole in place, the fastest first.
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
    """The command line that runs a program of ours against these jars."""
    classes = compiled(name, jars)
    return [
        "java",
        f"-Xmx{heap}",
        *QUICK_JAVA.split(),
        *sharing("clients", jars),
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
        f"-Dlog4j2.configurationFile={classes}/log4j2.xml",
        "-cp",
        f"{jars}/*:{classes}",  # an archive of classes is of a class path's beginning
        name,
        *arguments,
    ]
