"""What ``import millstream`` offers: few names, each of them kept."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import pytest

import millstream
from millstream.core import errors

ROOT = Path(__file__).resolve().parents[2]

PIPELINES = "Processor Source Step Stream Table Topology Window absent aggregate step"
HANDED = "Context Event Timer ViewChange Watcher watch"
SERVERS = "Broker Registry"
ERRORS = """
    BrokerUnavailable ConfigError DataDirectoryError DataLoss InputError InvalidSchema MillstreamError
    OperatorFailed ProducerFenced RegistryRefused RegistryUnavailable RequestFailed StateConnectionError
    StateError TopologyError TransactionAborted TransactionDecided UndecodableRecord
"""


def test_the_public_names_are_these() -> None:
    names = f"{PIPELINES} {HANDED} {SERVERS} {ERRORS} __version__".split()
    assert sorted(millstream.__all__) == sorted(names)
    assert sorted(dir(millstream)) == sorted(names)
    things = {name: getattr(millstream, name) for name in names if name != "__version__"}
    assert all(thing.__name__ == name for name, thing in things.items())
    assert millstream.__version__ == importlib.metadata.version("millstream")


def test_the_exceptions_are_those_of_the_tree() -> None:
    for name in ERRORS.split():
        assert getattr(millstream, name) is getattr(errors, name)


def test_what_users_are_told_to_import_is_public() -> None:
    """Documentation and examples import from packages that the reference lists, and from examples."""
    public = re.compile(r"millstream(\.(client|testing|pipeline|examples(\.\w+)*))?")
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for block in re.findall(r"```(?:python|py)\n(.*?)```", page.read_text(), re.DOTALL):
            for module in re.findall(r"from (millstream[\w.]*) import", block):
                assert public.fullmatch(module), f"{page.name} imports from {module}"
    for pipeline in (ROOT / "src/millstream/examples").rglob("pipeline.py"):
        for module in re.findall(r"from (millstream[\w.]*) import", pipeline.read_text()):
            assert public.fullmatch(module), f"{pipeline} imports from {module}"


def test_the_names_for_tests_of_pipelines_are_these() -> None:
    from millstream import testing

    assert sorted(testing.__all__) == ["Driver", "Record"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Brocker"):
        millstream.Brocker  # noqa: B018


def test_importing_it_loads_neither_spark_nor_a_client() -> None:
    program = "import sys, millstream; print([m for m in sys.modules if m.split('.')[0] in %r])"
    heavy = ("pyspark", "pyarrow", "numpy", "kio", "confluent_kafka", "uvloop", "rich")
    done = subprocess.run([sys.executable, "-c", program % (heavy,)], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_every_error_stands_in_the_tree_that_is_drawn() -> None:
    drawn = errors.__doc__ or ""
    raised = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.MillstreamError)
    ]
    assert [name for name in raised if name not in drawn] == []
