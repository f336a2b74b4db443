"""Fetches the jars for tests and benchmarks with Maven, once per checkout, and keeps them in ``build/``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


class JarsUnavailable(Exception):
    """These jars are not available here; the message says why. Tests turn it into a skip."""


def fetch_jars(pom: Path) -> Path:
    """The directory with the dependencies of ``pom``, named after the pom's directory."""
    name = pom.parent.name
    directory = REPOSITORY / "build" / name
    marker = directory / ".complete"
    if marker.exists() and marker.read_text() == pom.read_text():
        return directory
    for program in ("mvn", "java"):
        if shutil.which(program) is None:
            raise JarsUnavailable(f"{name} needs {program}, which is not installed")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    command = [
        "mvn",
        "-q",
        "-B",
        "-f",
        str(pom),
        "dependency:copy-dependencies",
        f"-DoutputDirectory={directory}",
    ]
    fetched = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if fetched.returncode != 0:
        raise JarsUnavailable(f"Maven could not fetch {name}: {fetched.stdout[-400:]}")
    marker.write_text(pom.read_text())
    return directory
