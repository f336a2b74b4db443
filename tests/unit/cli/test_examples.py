"""``millstream example`` and ``millstream new``, as far as they need neither a broker nor Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.cli import execute
from millstream.examples.catalogue import NAMES, all_examples, find
from millstream.pipeline.dsl.load import load_topology
from millstream.pipeline.planning.plan import plan


def test_the_list_says_what_each_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["example", "list"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if not line.startswith(" ")] == list(NAMES)
    assert execute(["example", "list", "--output", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["operators"]) for one in listed] == [
        (example.name, list(example.operators)) for example in all_examples()
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_pipeline_is_shown_as_it_stands(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["example", "show", name]) == 0
    assert capsys.readouterr().out == find(name).pipeline.read_text()
    assert execute(["example", "show", name, "--file", "generate", "--path"]) == 0
    assert capsys.readouterr().out.strip() == str(find(name).directory / "generate.py")


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_what_it_says(name: str) -> None:
    """Its topics and its view are those of its pipeline, and short enough to be read."""
    example = find(name)
    flow = load_topology(example.pipeline)
    planned = plan(flow)
    assert flow.check() == []
    assert set(example.results) <= set(planned.writes)
    assert example.view in planned.views
    assert len(example.pipeline.read_text().splitlines()) <= 150
    assert set(example.change) == {"pipeline.py", "generate.py", "check.py"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["example", "show", "frud"], "did you mean 'fraud'?"),
        (["example", "show", "fraud", "--file", "x"], "an example has pipeline, generate and check"),
        (["example", "run", "nothing"], "there are: fraud"),
        (["example", "run", "fraud", "--for", "soon"], "--for: "),
        (["example", "run", "fraud", "--for", "3s"], "nothing to find"),
        (["new", "x", "--from", "frud"], "did you mean 'fraud'?"),
    ],
)
def test_a_mistake_is_told_in_a_line(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(arguments) == 2
    err = capsys.readouterr().err
    assert problem in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_new_project_says_what_to_change_first_and_how_to_run_it(name: str, tmp_path: Path) -> None:
    directory = tmp_path / "mine"
    assert execute(["new", str(directory), "--from", name]) == 0
    for file in directory.glob("*.py"):
        text = file.read_text()
        assert "Change first: " in text
        assert f"millstream.examples.{name}" not in text
        assert f"src/millstream/examples/{name}" not in text
    readme = (directory / "README.md").read_text()
    assert readme.startswith("# mine\n")
    for command in ("pytest", "millstream run pipeline.py", "python generate.py", "millstream serve"):
        assert command in readme
    assert load_topology(directory / "pipeline.py").name == name


def test_the_test_of_a_new_project_passes_at_once(tmp_path: Path) -> None:
    assert execute(["new", str(tmp_path / "mine"), "--from", "trading"]) == 0
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "mine",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert execute(["new", str(tmp_path)]) == 0
    (tmp_path / "pipeline.py").write_text("mine too")
    capsys.readouterr()
    assert execute(["new", str(tmp_path)]) == 2
    assert "pipeline.py" in capsys.readouterr().err
    assert (tmp_path / "pipeline.py").read_text() == "mine too"
    assert execute(["new", str(tmp_path / "notes.txt")]) == 2
    assert "is a file" in capsys.readouterr().err
