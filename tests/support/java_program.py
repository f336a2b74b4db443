"""Small Java programs of ours in ``tests/clients/java``, compiled by the machine's ``javac`` against jars."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.support.maven import REPOSITORY, JarsUnavailable

SOURCES = REPOSITORY / "tests" / "clients" / "java"
# Flink and RocksDB reach into packages that Java 17 keeps closed.
_OPENED = ("java.base/java.lang", "java.base/java.util", "java.base/java.nio")


@cache
def compiled(name: str, jars: Path) -> Path:
    """The directory with the classes of ``name``.java, compiled anew for each run of the tests."""
    compiler = shutil.which("javac")
    if compiler is None:
        raise JarsUnavailable(f"{name} needs javac, which is not installed")
    classes = REPOSITORY / "build" / "classes" / name
    shutil.rmtree(classes, ignore_errors=True)
    classes.mkdir(parents=True)
    command = [compiler, "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(SOURCES / f"{name}.java")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return classes


def java_program(name: str, jars: Path, *arguments: str, heap: str = "256m") -> list[str]:
    """The command line that runs a program of ours against these jars."""
    classes = compiled(name, jars)
    (classes / "log4j2.xml").write_text(
        '<Configuration status="OFF"><Appenders><Console name="err" target="SYSTEM_ERR">'
        '<PatternLayout pattern="%d{HH:mm:ss.SSS} %-5p %c{1} %m%n%xEx{short}"/></Console></Appenders>'
        '<Loggers><Root level="WARN"><AppenderRef ref="err"/></Root></Loggers></Configuration>'
    )
    return [
        "java",
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
        f"-Dlog4j2.configurationFile={classes}/log4j2.xml",
        "-cp",
        f"{classes}:{jars}/*",
        name,
        *arguments,
    ]
