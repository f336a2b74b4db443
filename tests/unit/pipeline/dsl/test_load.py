"""The user's file: loaded, or its mistake reported with its line."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from millstream.core.errors import TopologyError
from millstream.pipeline.dsl.load import load_topology, name_streams, user_modules

GOOD = """\
from millstream import Topology
flow = Topology("t")
lines = flow.source("lines", format="text", time="log")
@lines.operator
def shout(df):
    return df
counts = shout.window(by="value", size="1 minute").agg(n="count(*)").where("n > 5")
counts.to_topic("out")
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "pipeline.py"
    path.write_text(text)
    return path


def test_streams_are_called_by_their_variables(tmp_path: Path) -> None:
    flow = load_topology(write(tmp_path, GOOD))
    assert [stream.name for stream in flow.streams] == ["lines", "shout", "window 1", "counts"]


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("x = (\n", 1, "was never closed"),
        ("import nothing_like_this\n", 1, "ModuleNotFoundError"),
        ("a = 1\nb = a / 0\n", 2, "ZeroDivisionError: division by zero"),
        (GOOD + "flow.surce('x')\n", 9, "AttributeError"),
        (GOOD + "lines.where('valeu = 1')\n", 9, "did you mean 'value'"),
    ],
)
def test_a_mistake_in_the_file_is_reported_at_its_line(
    tmp_path: Path, text: str, line: int, says: str
) -> None:
    with pytest.raises(TopologyError) as caught:
        load_topology(write(tmp_path, text))
    assert says in str(caught.value)
    assert str(caught.value.where).endswith(f"pipeline.py:{line}")


def test_a_file_without_a_topology_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="defines no topology"):
        load_topology(write(tmp_path, "x = 1\n"))
    with pytest.raises(TopologyError, match="there is no file"):
        load_topology(tmp_path / "missing.py")
    with pytest.raises(TopologyError, match="the file exits"):
        load_topology(write(tmp_path, "import sys; sys.exit(3)\n"))


def test_of_several_topologies_one_is_chosen_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + 'other = Topology("u")\n')
    with pytest.raises(TopologyError, match="several topologies"):
        load_topology(path)
    assert load_topology(path, "u").name == "u"


def test_a_pipeline_imports_what_stands_beside_it(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_a_pipeline.py").write_text("TOPIC = 'lines'\n")
    path = write(tmp_path, "from neighbour_of_a_pipeline import TOPIC\n" + GOOD.replace('"lines"', "TOPIC"))
    assert load_topology(path).sources[0].topic == "lines"


def test_a_file_that_hides_a_module_of_pythons_own_is_named(tmp_path: Path) -> None:
    (tmp_path / "types.py").touch()
    job = tmp_path / "job.py"
    job.write_text('from millstream import Topology\nflow = Topology("t")\n')
    with pytest.raises(TopologyError, match=r"types\.py has the name of a standard Python module"):
        load_topology(job)


def test_the_code_of_a_program_travels_and_what_is_installed_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topology that a program made in a module of its own, which imports one that lies beside it."""
    (tmp_path / "rates_beside.py").write_text("EUR = 0.92\n")
    (tmp_path / "flows_of_a_program.py").write_text(
        "import rates_beside\nfrom millstream import Topology\nflow = Topology('program')\n"
        "payments = flow.source('payments', schema='n int')\nlarge = payments.where('n > 5')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("flows_of_a_program")
    assert user_modules(module.flow).keys() >= {"flows_of_a_program", "rates_beside"}
    shipped = user_modules(module.flow)
    assert not {name.partition(".")[0] for name in shipped} & {"millstream", "pyspark", "json", "pytest"}
    name_streams(module.flow, vars(module))
    assert [stream.name for stream in module.flow.streams] == ["payments", "large"]


def test_the_cells_of_a_notebook_are_in_no_file_and_have_the_modules_of_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "helper_of_a_notebook.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    helper = importlib.import_module("helper_of_a_notebook")
    cell: dict[str, Any] = {"__name__": "__cells__"}
    exec("from millstream import Topology\nflow = Topology('cells')", cell)
    assert user_modules(cell["flow"])["helper_of_a_notebook"] is helper
    monkeypatch.chdir("/")
    assert not {"json", "pytest", "millstream"} & user_modules(cell["flow"]).keys(), "not all that there is"
