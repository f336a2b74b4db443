"""How a stream reader plans micro-batches, asked as Spark asks it; no Spark session needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows
from pyspark.sql.types import BinaryType, StringType, StructType

from millstream.client.protocol import cluster
from millstream.client.text.position import TopicPartition
from millstream.core.errors import ConfigError, DataLoss
from millstream.pipeline.connector.offsets import from_json
from millstream.pipeline.connector.options import ReadOptions
from millstream.pipeline.connector.source import Task
from millstream.pipeline.connector.stream_reader import StreamReader
from tests.support.topics import create_topic, delete_records, delete_topic, produce, values

VALUE = StructType().add("value", BinaryType())


def stream(address: str, **options: Any) -> StreamReader:
    given = {"bootstrap": address, "startingOffsets": "earliest", **options}
    return StreamReader(ReadOptions.of({name: str(value) for name, value in given.items()}), VALUE)


def test_a_batch_waits_for_enough_records_but_not_for_ever(kafka_address: str) -> None:
    topic = create_topic(kafka_address, partitions=1)
    produce(kafka_address, topic, values(1, 2, 3))
    waiting = stream(kafka_address, topic=topic, minOffsetsPerTrigger=5, maxTriggerDelay="1h")
    start = {topic: {"0": 0}}
    assert waiting.getDefaultReadLimit() == ReadMinRows(5)
    assert waiting.latestOffset(start, ReadMinRows(5)) == start
    assert waiting.latestOffset(start, ReadAllAvailable())[topic] == {"0": 3}
    produce(kafka_address, topic, values(4, 5))
    assert waiting.latestOffset(start, ReadMinRows(5))[topic] == {"0": 5}
    impatient = stream(kafka_address, topic=topic, minOffsetsPerTrigger=50, maxTriggerDelay="0s")
    assert impatient.latestOffset(start, ReadMinRows(50))[topic] == {"0": 5}


def test_available_now_reads_nothing_that_came_later(kafka_address: str) -> None:
    topic = create_topic(kafka_address, partitions=1)
    produce(kafka_address, topic, values(1, 2))
    reader = stream(kafka_address, topic=topic)
    reader.prepareForTriggerAvailableNow()
    produce(kafka_address, topic, values(3))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert (end[topic], end[f"start {topic}"]) == ({"0": 2}, {"0": 0})
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_topic_created_anew_under_its_old_name_is_noticed(kafka_address: str) -> None:
    topic = create_topic(kafka_address, "again", partitions=1)
    produce(kafka_address, topic, values(1, 2, 3))
    reader = stream(kafka_address, topic=topic)
    delete_topic(kafka_address, topic)
    create_topic(kafka_address, "again", partitions=1)
    with pytest.raises(DataLoss, match=r"again\[0\]: read up to offset 3, but the log ends at 0"):
        reader.latestOffset({topic: {"0": 3}}, ReadAllAvailable())


def test_a_topic_deleted_between_two_requests_is_named(
    kafka_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create_topic(kafka_address, "going", partitions=1)
    produce(kafka_address, topic, values(1, 2, 3))
    reader = stream(kafka_address, topic=topic)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    look = reader.topic_partitions

    def looked() -> list[TopicPartition]:
        found = look()
        if found:
            delete_topic(kafka_address, topic)
        return found

    monkeypatch.setattr(cluster, "NEW_TOPIC_S", 0.1)
    monkeypatch.setattr(reader, "topic_partitions", looked)
    with pytest.raises(DataLoss, match=r"going\[0\] from offset 3: deleted while they were being read"):
        reader.latestOffset(end, ReadAllAvailable())
    with pytest.raises(DataLoss, match="going: deleted after a batch of it was planned"):
        reader.partitions(start, end)


def test_an_empty_range_is_no_task(kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    reader = stream(kafka_address, topic=topic)
    start = reader.initialOffset()
    assert reader.partitions(start, start) == []


def test_an_end_is_for_a_stream_that_ends(kafka_address: str) -> None:
    topic = create_topic(kafka_address, partitions=1)
    produce(kafka_address, topic, values(1, 2, 3, 4, 5))
    reader = stream(kafka_address, topic=topic, endingOffsets=f'{{"{topic}": {{"0": 3}}}}')
    start = reader.initialOffset()
    with pytest.raises(ConfigError, match="availableNow"):
        reader.latestOffset(start, ReadAllAvailable())
    reader.prepareForTriggerAvailableNow()
    assert from_json(reader.latestOffset(start, ReadAllAvailable())) == {TopicPartition(topic, 0): 3}


def spans(tasks: Sequence[InputPartition]) -> list[tuple[int, int]]:
    return sorted((span.first, span.end) for task in tasks if isinstance(task, Task) for span in task.spans)


@pytest.mark.parametrize("later", ["latest", "@-1ms", '{"first": {"0": 4}}'])
def test_a_first_batch_that_is_run_again_starts_where_it_was_planned_to_start(
    kafka_address: str, later: str
) -> None:
    topic = create_topic(kafka_address, "first", partitions=1)
    produce(kafka_address, topic, values(1, 2, 3, 4, 5))
    planned = stream(kafka_address, topic=topic)
    end = planned.latestOffset(planned.initialOffset(), ReadAllAvailable())
    restarted = stream(kafka_address, topic=topic, startingOffsets=later)
    assert spans(restarted.partitions(restarted.initialOffset(), end)) == [(0, 5)]


def test_what_is_trimmed_before_a_first_batch_is_run_again_is_told(kafka_address: str) -> None:
    topic = create_topic(kafka_address, partitions=1)
    produce(kafka_address, topic, values(1, 2, 3, 4, 5))
    planned = stream(kafka_address, topic=topic)
    end = planned.latestOffset(planned.initialOffset(), ReadAllAvailable())
    delete_records(kafka_address, topic, 0, 3)
    restarted = stream(kafka_address, topic=topic)
    with pytest.raises(DataLoss, match="the log starts at 3"):
        restarted.partitions(restarted.initialOffset(), end)
    careless = stream(kafka_address, topic=topic, failOnDataLoss="false")
    assert spans(careless.partitions(careless.initialOffset(), end)) == [(3, 5)]


def test_a_new_partition_keeps_the_start_of_its_first_batch(kafka_address: str) -> None:
    topic = create_topic(kafka_address, partitions=2)
    produce(kafka_address, topic, values(1, 2, 3), 1)
    reader = stream(kafka_address, topic=topic)
    before = {topic: {"0": 0}}
    end = reader.latestOffset(before, ReadAllAvailable())
    assert (end[topic], end[f"start {topic}"]) == ({"0": 0, "1": 3}, {"1": 0})
    delete_records(kafka_address, topic, 1, 2)
    with pytest.raises(DataLoss, match="the log starts at 2"):
        reader.partitions(before, end)


def test_a_column_that_is_not_there_is_refused(kafka_address: str) -> None:
    options = ReadOptions.of({"bootstrap": kafka_address, "topic": "t"})
    with pytest.raises(ConfigError, match="no column 'amount' to read; the columns are key, value"):
        StreamReader(options, StructType().add("amount", StringType()))
    with pytest.raises(ConfigError, match="column 'value' is binary, not string"):
        StreamReader(options, StructType().add("value", StringType()))
