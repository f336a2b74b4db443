"""The page on jobs from Python: its program runs as a program, its other examples as cells of IPython."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
from IPython.core.interactiveshell import InteractiveShell

from millstream import Broker
from tests.pipeline.test_job import payment, produce, records
from tests.support.topics import create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "jobs-from-python.md"


def blocks() -> list[tuple[str, str]]:
    """Each example with its title."""
    found = re.findall(
        r'^```python(?: title="([^"]+)")?\n(.*?)^```$', PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return [(str(title), str(code)) for title, code in found]


@pytest.fixture
def home(tmp_path: Path, millstream_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the page's program, a broker where it looks for one, and three payments."""
    ((title, code),) = [block for block in blocks() if block[0]]
    (tmp_path / title).write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILLSTREAM_BROKER", millstream_broker.address)
    create_topic(millstream_broker.address, "payments", partitions=1)
    produce(millstream_broker, [payment("a", 500, 1), payment("a", 7, 2), payment("b", 1, 3)])
    return tmp_path


@pytest.fixture
def shell(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.syspath_prepend(str(home))
    made = InteractiveShell.instance()
    yield made
    InteractiveShell.clear_instance()
    sys.modules.pop("spending", None)


def shown(shell: InteractiveShell, code: str) -> dict[str, Any]:
    """What a notebook shows for a cell, by media type."""
    done = shell.run_cell(code)
    done.raise_error()
    return {} if done.result is None else shell.display_formatter.format(done.result)[0]


def test_the_program_prints_what_the_page_says(home: Path, millstream_broker: Broker) -> None:
    done = subprocess.run(
        [sys.executable, "spending.py"], cwd=home, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    assert f"```\n{done.stdout}```" in PAGE.read_text()
    assert len(records(millstream_broker, "payments.large")) == 1


def test_the_cells_of_the_page_run_and_show_the_topology_and_the_job(
    spark: SparkSession, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    background, draw, start, stop, mistake = [code for title, code in blocks() if not title]
    shown(shell, background)
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line] == re.findall(r"  # (.+)", background.replace("# until", ""))

    drawn = ElementTree.fromstring(shown(shell, draw)["image/svg+xml"])
    texts = {text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")}
    assert {"payments", "payments.large", "spending"} <= texts

    job = shown(shell, start)
    assert "<b>spending</b> running" in job["text/html"]
    assert "<job 'spending': running" in job["text/plain"]
    ended = shown(shell, f"{stop}\njob")
    assert "<b>spending</b> stopped" in ended["text/html"]

    shown(shell, mistake)
    assert "no broker answers at 127.0.0.1:1" in capsys.readouterr().out
    assert spark.streams.active == []


def test_a_topology_in_the_making_is_shown_as_text(shell: InteractiveShell) -> None:
    unfinished = shown(shell, 'import millstream\nother = millstream.Topology("other")\nother')
    assert unfinished == {"text/plain": "<topology 'other': 0 sources, 0 sinks>"}
    shell.run_cell('numbers = other.source("numbers", schema="n int")\nodd = numbers.where("n % 2 = 1")')
    shell.run_cell('odd.to_topic("odd")')
    assert ">odd</text>" in shown(shell, "other")["image/svg+xml"], "a stream is named after its variable"
