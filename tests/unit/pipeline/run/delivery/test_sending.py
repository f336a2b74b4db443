"""What tasks make of rows, without Spark: every record once, in its partition, with one task for each."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.client.connect import Connection
from millstream.client.text.position import TopicPartition
from millstream.pipeline.connector.options import WriteOptions
from millstream.pipeline.planning.sink_columns import RECORD
from millstream.pipeline.run.delivery import sending
from millstream.pipeline.run.delivery.sending import (
    ROWS,
    TASK,
    Drop,
    Encode,
    Targets,
    TaskRepeated,
    first_attempt_only,
)
from millstream.records.batch import read_header
from millstream.records.columns import arrow
from millstream.records.murmur2 import partition_of

SCHEMA = pa.schema(
    [
        ("sink", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.string()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("view_2_0", pa.string()),
    ]
)
# Sinks 0 and 1 write the same topic, sink 3 another; sink 2 is a view.
TARGETS = Targets(
    tuple(TopicPartition(topic, number) for topic, count in (("a", 3), ("b", 2)) for number in range(count)),
    first={0: 0, 1: 0, 3: 3},
    count={0: 3, 1: 3, 3: 2},
)
TOPICS = {0: "a", 1: "a", 3: "b"}

row = st.tuples(st.sampled_from([0, 1, 2, 3]), st.none() | st.binary(max_size=4))


def batches_of(rows: list[tuple[int, bytes | None]], size: int) -> list[pa.RecordBatch]:
    made: list[dict[str, Any]] = [
        {"sink": 2, "view_2_0": str(number)}
        if sink == 2
        else {
            "sink": sink,
            "key": key,
            "value": str(number).encode(),
            "headers": json.dumps({"why": "ä"}) if number % 7 == 0 else None,
        }
        for number, (sink, key) in enumerate(rows)
    ]
    parts = [made[at : at + size] for at in range(0, len(made), size)]
    return [pa.RecordBatch.from_pylist(part, schema=SCHEMA) for part in parts]


@given(st.lists(row, max_size=60), st.integers(1, 25), st.integers(1, 4))
@settings(max_examples=60)
def test_every_record_is_encoded_once_for_the_one_task_of_its_partition(
    rows: list[tuple[int, bytes | None]], size: int, tasks: int
) -> None:
    encode = Encode(WriteOptions(Connection(), batch_bytes=150), TARGETS, tasks)
    found: dict[TopicPartition, list[int]] = defaultdict(list)
    viewed = []
    order: list[tuple[int, int]] = []
    for batch in encode(iter(batches_of(rows, size))):
        for entry in batch.to_pylist():
            assert set(entry) == {"sink", "view_2_0", *sending.SHUFFLED}
            if entry["data"] is None:
                viewed.append(int(entry["view_2_0"]))
                continue
            order.append((entry["origin"], entry["number"]))
            assert entry[TASK] == entry["target"] % tasks
            assert read_header(entry["data"]).is_transactional
            (decoded,) = arrow.decode(entry["data"], first=0)
            assert decoded.num_rows == entry[ROWS]
            place = TARGETS.partitions[entry["target"]]
            for record in decoded.to_pylist():
                number = int(record["value"])
                assert rows[number] == (entry["sink"], record["key"])
                why = [{"key": "why", "value": "ä".encode()}]
                assert (record["headers"] or []) == (why if number % 7 == 0 else [])
                if record["key"] is not None:
                    count = TARGETS.count[entry["sink"]]
                    assert place == (TOPICS[entry["sink"]], partition_of(record["key"], count))
                found[place].append(number)
    assert viewed == [number for number, (sink, _) in enumerate(rows) if sink == 2]
    sent = sorted(number for numbers in found.values() for number in numbers)
    assert sent == [number for number, (sink, _) in enumerate(rows) if sink != 2]
    assert order == sorted(order)  # so that sorting by it keeps the order of records
    for numbers in found.values():
        for sink in TOPICS:
            own = [number for number in numbers if rows[number][0] == sink]
            assert own == sorted(own)


@given(st.lists(row, min_size=1, max_size=60), st.integers(1, 25))
@settings(max_examples=30)
def test_a_batch_that_is_in_the_log_gives_its_views_their_rows_and_counts_the_rest(
    rows: list[tuple[int, bytes | None]], size: int
) -> None:
    back = [entry for batch in Drop(TOPICS)(iter(batches_of(rows, size))) for entry in batch.to_pylist()]
    assert all(not entry.keys() & RECORD.keys() for entry in back)
    viewed = [int(entry["view_2_0"]) for entry in back if entry["sink"] == 2]
    assert viewed == [number for number, (sink, _) in enumerate(rows) if sink == 2]
    for wanted in (0, 1, 3):
        counted = sum(entry[ROWS] for entry in back if entry["sink"] == wanted)
        assert counted == sum(1 for sink, _ in rows if sink == wanted)


def test_a_task_that_is_not_the_first_attempt_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import TaskContext

    first_attempt_only()  # outside of a task
    monkeypatch.setattr(TaskContext, "_taskContext", TaskContext.from_json(_task(attempt=0)))
    first_attempt_only()
    monkeypatch.setattr(TaskContext, "_taskContext", TaskContext.from_json(_task(attempt=1)))
    with pytest.raises(TaskRepeated, match=r"task 3 was started again \(attempt 2\)"):
        first_attempt_only()


def _task(attempt: int) -> dict[str, Any]:
    return {
        "isBarrier": False,
        "stageId": 1,
        "partitionId": 3,
        "attemptNumber": attempt,
        "taskAttemptId": 9,
        "cpus": 1,
        "cpuAmount": "1",
        "resources": {},
        "localProperties": {},
    }
