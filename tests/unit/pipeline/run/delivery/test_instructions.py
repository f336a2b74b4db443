"""What the driver orders and what tasks understand, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from millstream.client.connect import Connection
from millstream.client.text.position import TopicPartition
from millstream.pipeline.connector.options import WriteOptions
from millstream.pipeline.run.delivery.handover import ReceiverAddress
from millstream.pipeline.run.delivery.instructions import PROPERTY, FollowInstruction, Instruction
from millstream.pipeline.run.delivery.sending import ROWS, SHUFFLED, Targets

TARGETS = Targets((TopicPartition("a", 0), TopicPartition("a", 1)), first={0: 0}, count={0: 2})
SCHEMA = pa.schema(
    [("sink", pa.int32()), ("key", pa.binary()), ("value", pa.binary()), ("view_1_0", pa.string())]
)
ROWS_OF_BOTH = [
    {"sink": 0, "key": b"k", "value": b"1"},
    {"sink": 1, "view_1_0": "seen"},
    {"sink": 0, "key": None, "value": b"2"},
]


@pytest.mark.parametrize(
    "order",
    [
        Instruction("drop"),
        Instruction("send"),
        Instruction("send", repeatable=True),
        Instruction("encode", targets=TARGETS, to=3),
        Instruction("encode", targets=TARGETS, to=ReceiverAddress("/tmp/driver", 7)),
    ],
)
def test_tasks_understand_what_the_driver_ordered(order: Instruction) -> None:
    assert Instruction.of(order.text()) == order


def test_an_order_has_nothing_secret_in_it() -> None:
    """Spark shows the properties of jobs to everyone with access to its pages."""
    assert set(Instruction.__slots__) == {"do", "repeatable", "targets", "to"}


def ordered(
    monkeypatch: pytest.MonkeyPatch, order: Instruction | None, columns: list[str]
) -> list[dict[str, Any]]:
    from pyspark import TaskContext

    monkeypatch.setattr(TaskContext, "_taskContext", None)  # which a new one is from the start
    context = TaskContext()
    context._partitionId = 0
    context._localProperties = {} if order is None else {PROPERTY: order.text()}
    monkeypatch.setattr(TaskContext, "_taskContext", context)
    batch = pa.RecordBatch.from_pylist(ROWS_OF_BOTH, schema=SCHEMA)
    given = list(FollowInstruction(WriteOptions(Connection()), {0: "a"}, columns)(iter([batch])))
    assert all(batch.schema.names == columns for batch in given)
    return [row for batch in given for row in batch.to_pylist()]


def test_every_order_gives_back_the_columns_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = ["sink", "view_1_0", *SHUFFLED]
    narrow = ["sink", "view_1_0", ROWS]
    dropped = ordered(monkeypatch, Instruction("drop"), narrow)
    assert dropped == [
        {"sink": 1, "view_1_0": "seen", ROWS: 1},
        {"sink": 0, "view_1_0": None, ROWS: 2},
    ]
    nothing = dict.fromkeys(name for name in SHUFFLED if name != ROWS)
    assert ordered(monkeypatch, Instruction("drop"), wide) == [{**row, **nothing} for row in dropped]
    encoded = ordered(monkeypatch, Instruction("encode", targets=TARGETS, to=1), wide)
    told = sorted((row["sink"], row[ROWS], row["data"] is None) for row in encoded)
    assert told == [(0, 2, False), (1, 1, True)]


def test_a_task_without_an_order_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="has not set"):
        ordered(monkeypatch, None, ["sink", "view_1_0", ROWS])
