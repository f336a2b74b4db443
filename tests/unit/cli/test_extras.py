"""What is not installed is named with the command that installs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SPARK = "pip install 'millstream[spark]'"
FLOW = """
from millstream import Topology
flow = Topology("small")
flow.source("payments", schema="card string, eur double").where("eur > 10").to_topic("large")
"""


def run(program: str, *missing: str) -> subprocess.CompletedProcess[str]:
    """A program where some modules are not installed, as Python sees it."""
    without = f"import sys; sys.modules.update(dict.fromkeys({missing!r}))\n"
    return subprocess.run([sys.executable, "-c", without + program], capture_output=True, text=True)


@pytest.mark.parametrize("missing", ["numpy", "pyspark"])
@pytest.mark.parametrize("command", [["graph"], ["run"]], ids=" ".join)
def test_a_pipeline_without_its_extra(command: list[str], missing: str, tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    arguments = [*command, str(tmp_path / "flow.py")]
    done = run(f"from millstream.cli import execute; sys.exit(execute({arguments!r}))", missing)
    if command == ["graph"] and missing == "pyspark":
        assert done.returncode == 0, done.stderr  # drawing needs no Spark
        return
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert missing in done.stderr
    assert SPARK in done.stderr


def test_the_demo_without_its_extra() -> None:
    done = run("from millstream.cli import execute; sys.exit(execute(['demo']))", "numpy", "pyspark")
    assert done.returncode in (1, 2)
    assert SPARK in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_imports_it_by_itself(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text("from pyspark.sql import functions\n" + FLOW)
    arguments = ["graph", str(tmp_path / "flow.py")]
    done = run(f"from millstream.cli import execute; sys.exit(execute({arguments!r}))", "pyspark")
    assert done.returncode == 1
    assert "flow.py:1" in done.stderr
    assert SPARK in done.stderr


def test_the_fixture_without_its_extra(tmp_path: Path) -> None:
    test = tmp_path / "test_flow.py"
    test.write_text("def test_it(millstream_driver):\n    pass\n")
    given = ["-q", "-p", "no:cacheprovider", "-p", "millstream.pytest_plugin", str(test)]
    program = (
        "import os, pytest; os.environ['PYTEST_DISABLE_PLUGIN_AUTOLOAD'] = '1'\n"
        f"sys.exit(pytest.main({given!r}))"
    )
    done = run(program, "numpy", "pyspark", "pyarrow", "pandas")
    assert "pip install 'millstream[testing]'" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("module", "others"),
    [
        ("millstream.console.app", ("numpy", "pandas", "pyarrow", "pyspark", "google.protobuf", "starlette")),
        ("millstream.registry.service.running", ("numpy", "pandas", "pyarrow", "pyspark", "litestar")),
        ("millstream.views.opening", ("psycopg", "pyarrow", "pyspark")),
    ],
)
def test_an_extra_needs_no_package_of_another(module: str, others: tuple[str, ...]) -> None:
    done = run(f"import {module}", *others)
    assert done.returncode == 0, done.stderr


def test_the_protocol_does_not_bring_hypothesis() -> None:
    program = """
from millstream.client.errors import is_retriable
from millstream.wire.codec.schema_codec import answer_reader, request_reader
request_reader(3, 12), answer_reader(35, 4)
assert is_retriable(5)
print(*[name for name in ("hypothesis", "numpy", "pyspark", "pytest") if name in sys.modules])
import hypothesis.strategies
"""
    done = run(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""
