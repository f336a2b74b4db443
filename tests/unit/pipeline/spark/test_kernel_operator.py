"""The kernel as Spark calls it, with its state variables played by dictionaries."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql import Row

from millstream.core.errors import StateError
from millstream.pipeline.kernel.bucket import KeyedOperator
from millstream.pipeline.kernel.clock import BatchTime, TimeRules
from millstream.pipeline.kernel.packing import IN_FRONT, Pack
from millstream.pipeline.kernel.program import TIMESTAMP
from millstream.pipeline.kernel.state.containers import from_bytes
from millstream.pipeline.spark import kernel_operator
from millstream.pipeline.spark.kernel_operator import STATUS, KernelProcessor, StateLocation
from tests.support.counting_plan import Count
from tests.support.spark_state import FakeMap, FakeValue, Variables

SCHEMA = pa.schema([("key", pa.string())])
OPERATOR = KeyedOperator("cards", Count(), (SCHEMA,), {(0, 0): TimeRules()})


class Handle:
    """What Spark gives a processor: the bucket's variables, by name."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables

    def getValueState(self, name: str, schema: str) -> FakeValue:
        assert name == "head"
        return self._variables.head

    def getMapState(self, name: str, key: str, value: str) -> FakeMap:
        found: FakeMap = getattr(self._variables, name)
        return found


def blobs(keys: list[str], first: int) -> Iterator[Row]:
    """A bucket's batch as it comes out of the shuffle."""
    many = len(keys)
    columns = [
        pa.array([0] * many, pa.int32()),
        pa.array([first + at for at in range(many)], TIMESTAMP),
        pa.array([0] * many, pa.int32()),
        pa.array([0] * many, pa.int32()),
        pa.array([first + at for at in range(many)], pa.int64()),
        pa.array([False] * many),
        pa.array(keys),
    ]
    batch = pa.RecordBatch.from_arrays(columns, names=[*IN_FRONT, "key"])
    for packed in Pack(0, 1, {}, lambda: BatchTime(0))(iter([batch])):
        yield from (Row(bucket=0, blob=blob) for blob in packed["blob"].to_pylist())


def called(
    variables: Variables, keys: list[str], first: int, keeping: StateLocation, run: str
) -> tuple[list[pa.Table], dict[str, Any]]:
    """A task: the tables it gives, and what it tells of itself."""
    processor = KernelProcessor(OPERATOR, run, keeping)
    processor.init(Handle(variables))
    given = list(processor.handleInputRows((0,), blobs(keys, first), None))
    *rows, status = given
    assert status["channel"] == STATUS
    return [from_bytes(row["blob"]) for row in rows], json.loads(status["blob"])


@pytest.mark.parametrize("state", ["memory", "disk"])
def test_a_task_that_failed_leaves_nothing_behind(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    run, keeping = uuid.uuid4().hex, StateLocation(state, "job/0")
    committed = Variables()
    called(committed, ["a", "b", "a"], 0, keeping, run)
    called(committed.copy(), ["a", "x"], 3, keeping, run)  # Spark throws this away
    (table,), told = called(committed, ["a", "c"], 3, keeping, run)
    assert table.to_pylist() == [{"key": "a", "n": 3}, {"key": "c", "n": 1}]
    assert told["entries"] == 3
    (again,), told = called(committed, ["x"], 5, keeping, uuid.uuid4().hex)  # another run of the job
    assert again.to_pylist() == [{"key": "x", "n": 1}]
    assert told["entries"] == 4
    assert told["bytes"] > 0


def test_state_that_explodes_within_one_batch_ends_it() -> None:
    keeping = StateLocation(most_bytes=50_000)
    variables, run = Variables(), uuid.uuid4().hex
    called(variables, [f"key {n}" for n in range(100)], 0, keeping, run)
    with pytest.raises(StateError, match=r"the state of 'cards' has grown to .* more than max_state allows"):
        called(variables, [f"other {n}" for n in range(10_000)], 100, keeping, run)


def test_results_come_in_parts_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_operator, "_RESULT_BYTES", 10_000)
    tables, _ = called(Variables(), ["hot"] * 5000, 0, StateLocation(), uuid.uuid4().hex)
    assert len(tables) > 5
    assert [n for table in tables for n in table["n"].to_pylist()] == list(range(1, 5001))


def test_copies_that_nobody_has_used_for_long_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = uuid.uuid4().hex, uuid.uuid4().hex
    called(Variables(), ["a"], 0, StateLocation(), old)
    assert any(name[0] == old for name in kernel_operator._copies)
    monkeypatch.setattr(kernel_operator, "_UNUSED_S", -1.0)
    called(Variables(), ["a"], 0, StateLocation(), new)
    assert not any(name[0] == old for name in kernel_operator._copies)
