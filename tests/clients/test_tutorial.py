"""The ten-minute tutorial, line by line: its files are written, its commands run in a real shell against a
real broker, and what they print is compared with what the page shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.apache_kafka import free_port

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
_BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block: of commands and what they print (``console``), or a file by its title."""

    language: str
    title: str
    text: str

    def commands(self) -> Iterator[tuple[str, str]]:
        """Each command, and what the page shows below it."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield command, shown


class Reader:
    """Somebody who does what the page says, in an empty directory, with a shell and one more terminal."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = f"127.0.0.1:{free_port()}"
        ours = {name: value for name, value in os.environ.items() if not name.startswith("MILLSTREAM_")}
        self.environment = {
            **ours,
            "MILLSTREAM_BROKER": self.address,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": "120",
            "PYTEST_ADDOPTS": "-p no:cacheprovider",
        }
        self.terminal: subprocess.Popen[str] | None = None

    def do(self, block: Block) -> None:
        if block.language != "console":
            (self.directory / block.title).write_text(self._here(block.text))
        elif block.title == "in a terminal of its own":
            ((command, shown),) = block.commands()
            self.terminal = self._start(command)
            assert self.terminal.stdout is not None
            assert self.terminal.stdout.readline() == self._here(shown)
        else:
            if block.title == "after stopping the broker with Ctrl-C":
                self.stop()
            for command, shown in block.commands():
                self.run(command, shown)

    def stop(self) -> None:
        """Ctrl-C in the other terminal."""
        if self.terminal is not None and self.terminal.poll() is None:
            os.killpg(self.terminal.pid, signal.SIGINT)
            self.terminal.wait(90)
        if self.terminal is not None and self.terminal.stdout is not None:
            self.terminal.stdout.close()

    def _here(self, text: str) -> str:
        return text.replace("127.0.0.1:9092", self.address)

    def _start(self, command: str) -> subprocess.Popen[str]:
        with (self.directory / "terminal.log").open("w") as log:
            return subprocess.Popen(
                ["bash", "-c", f"exec {self._here(command)}"],
                cwd=self.directory,
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def run(self, command: str, shown: str) -> None:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", self._here(command)],
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=400,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        assert _as_shown(done.stdout, self._here(shown)), f"{command}\n{done.stdout}\nbut the page:\n{shown}"


def _as_shown(printed: str, shown: str) -> bool:
    """``...`` on the page stands for anything, over lines if it has a line of its own."""
    pattern = "".join(
        ".*" if part == "..." else r"(?s:.*)" if part == "...\n" else re.escape(part)
        for part in re.split(r"(^\.\.\.\n|\.\.\.)", shown, flags=re.MULTILINE)
    )
    return re.fullmatch(pattern, printed) is not None


def blocks() -> list[Block]:
    return [Block(*found) for found in _BLOCK.findall(PAGE.read_text())]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path)
    yield reader
    reader.stop()


def test_the_page_holds_without_spark(reader: Reader) -> None:
    for block in blocks():
        if block.title != "with Spark":
            reader.do(block)


def test_the_page_holds_on_spark(reader: Reader) -> None:
    """What the part on Spark needs of the rest (files, the broker, what is written to it), and that part."""
    pytest.importorskip("pyspark")
    for block in blocks():
        if block.language != "console" or block.title:
            reader.do(block)
            continue
        for command, shown in block.commands():
            if "topic create" in command or "millstream produce" in command:
                reader.run(command, shown)


def test_what_differs_each_time_is_not_taken_for_what_is_shown() -> None:
    assert _as_shown("a 1 s b\n", "a ... b\n")
    assert _as_shown("x\ny\nend\n", "...\nend\n")
    assert _as_shown("end\n", "...\nend\n")
    assert not _as_shown("a 1 s c\n", "a ... b\n")
    assert not _as_shown("a 1\ns b\n", "a ... b\n")
    assert not _as_shown("end\nmore\n", "...\nend\n")
