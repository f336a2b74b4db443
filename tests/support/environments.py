"""Wheels of this checkout, and fresh environments that they are installed in, as users install them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_LEFT_OUT = ("*.c", "*.so", "__pycache__", "*.egg-info")  # what a fresh clone does not have


@dataclass(frozen=True)
class Environment:
    """A virtual environment."""

    path: Path

    @property
    def python(self) -> str:
        return str(self.path / "bin/python")

    @property
    def millstream(self) -> str:
        return str(self.path / "bin/millstream")

    def run(self, *command: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """A program of this environment; ``command`` begins with its name."""
        program = [str(self.path / "bin" / command[0]), *command[1:]]
        return subprocess.run(
            program, capture_output=True, text=True, timeout=timeout, cwd=self.path, env=_plain()
        )

    def packages(self) -> set[str]:
        listed = _uv("pip", "freeze", "--python", self.python)
        return {line.partition("==")[0].partition(" @")[0].lower() for line in listed.splitlines()}

    def megabytes(self) -> float:
        files = (self.path / "lib").rglob("*")
        return sum(file.lstat().st_size for file in files if not file.is_dir()) / 1e6


def wheel(to: Path, *, compiler: bool) -> Path:
    """A wheel built from the sources alone, with a C compiler or as on a machine that has none."""
    sources = to / "sources"
    shutil.copytree(ROOT / "src", sources / "src", ignore=shutil.ignore_patterns(*_LEFT_OUT))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    settings = {} if compiler else {"CC": str(to / "no-compiler-here")}
    # Not isolated: what building needs is installed here, and need not be downloaded.
    _uv(
        *("build", "--wheel", "--no-build-isolation", "--python", sys.executable),
        *("--out-dir", str(to / "wheels"), str(sources)),
        **settings,
    )
    (built,) = (to / "wheels").glob("*.whl")
    return built


def environment(path: Path, wheel: Path, extra: str = "") -> Environment:
    """A new environment with the wheel, one of its extras, and what they need, from the package index."""
    _uv("venv", "--python", sys.executable, str(path))
    made = Environment(path)
    named = f"millstream[{extra}]" if extra else "millstream"
    _uv("pip", "install", "--python", made.python, f"{named} @ {wheel.as_uri()}")
    return made


def _uv(*arguments: str, **settings: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "uv", *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        env={**_plain(), **settings},
    )
    if "No module named uv" in done.stderr:
        pytest.skip("uv is not installed in this checkout: run make")
    if any(sign in done.stderr for sign in ("Failed to fetch", "error sending request", "dns error")):
        pytest.skip(f"the package index can't be reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, f"uv {' '.join(arguments)}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def _plain() -> dict[str, str]:
    """The environment variables of this process, without those that would let this checkout's packages in."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
