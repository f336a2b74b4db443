"""What ``import millstream`` offers: few names, each of them kept."""

from __future__ import annotations

import subprocess
import sys

import pytest

import millstream
from millstream.core import errors


def test_the_public_names_are_these() -> None:
    assert sorted(millstream.__all__) == ["Broker", "Processor", "Topology", "aggregate", "no", "step"]
    assert all(getattr(millstream, name).__name__ == name for name in millstream.__all__)


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
