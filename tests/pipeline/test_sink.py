"""``df.write`` and ``df.writeStream`` with ``format("millstream")``, read back by another client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException

from millstream.pipeline import register
from millstream.records.build import Record
from millstream.records.murmur2 import partition_of
from tests.support.topics import consume, create_topic, produce, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOW = 1_700_000_000_000


def write(frame: DataFrame, address: str, **options: Any) -> None:
    frame.write.format("millstream").option("bootstrap", address).options(**options).mode("append").save()


def test_every_column_becomes_a_part_of_the_record(spark: SparkSession, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    frame = spark.sql(
        f"""SELECT 'k' AS key, 'v' AS value, 1 AS partition, timestamp_millis({NOW}) AS timestamp,
                   array(named_struct('key', 'a', 'value', CAST('1' AS BINARY)),
                         named_struct('key', 'b', 'value', CAST(NULL AS BINARY))) AS headers,
                   '{topic}' AS topic, 9L AS offset"""
    )
    write(frame, kafka_address)
    expected = Record(b"k", b"v", (("a", b"1"), ("b", None)), NOW, 0)
    assert consume(kafka_address, topic) == [(1, expected)]


def test_keys_go_where_every_kafka_client_puts_them(spark: SparkSession, apache_address: str) -> None:
    topic = create_topic(apache_address, partitions=5)
    frame = spark.range(500).selectExpr("'key ' || id AS key", "CAST(id AS STRING) AS value")
    write(frame, apache_address, topic=topic)
    other = create_topic(apache_address, partitions=5)
    producer = Producer({"bootstrap.servers": apache_address, "partitioner": "murmur2_random"})
    for i in range(500):
        producer.produce(other, str(i).encode(), f"key {i}".encode())
    producer.flush(30)
    found = {record.key: partition for partition, record in consume(apache_address, topic, 5)}
    assert found == {record.key: partition for partition, record in consume(apache_address, other, 5)}
    assert all(partition == partition_of(key or b"", 5) for key, partition in found.items())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_apache_kafka_and_librdkafka_take_every_codec(
    spark: SparkSession, apache_address: str, codec: str
) -> None:
    topic = create_topic(apache_address)
    frame = spark.range(3000).selectExpr("CAST(id AS STRING) AS key", "repeat('x', 50) || id AS value")
    write(frame, apache_address, topic=topic, **{"kafka.compression.type": codec})
    found = sorted(int(record.key or b"") for _, record in consume(apache_address, topic))
    assert found == list(range(3000))


def test_rows_without_a_key_are_spread_and_keep_their_order(spark: SparkSession, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    frame = spark.range(20_000).selectExpr("lpad(id, 6, '0') AS value").coalesce(1)
    write(frame, kafka_address, topic=topic)
    found: dict[int, list[bytes]] = {0: [], 1: []}
    for partition, record in consume(kafka_address, topic):
        found[partition].append(record.value or b"")
    assert all(len(part) > 5000 for part in found.values())
    assert all(part == sorted(part) for part in found.values())
    assert len({value for part in found.values() for value in part}) == 20_000


def test_rows_name_their_own_topics(spark: SparkSession, kafka_address: str) -> None:
    topics = [create_topic(kafka_address, name) for name in ("even", "odd")]
    frame = spark.range(100).selectExpr(
        "CAST(id AS STRING) AS value", "if(id % 2 = 0, 'even', 'odd') AS topic"
    )
    write(frame, kafka_address)
    for parity, topic in enumerate(topics):
        found = sorted(int(record.value or b"") for _, record in consume(kafka_address, topic))
        assert found == list(range(parity, 100, 2))


def test_a_null_value_is_a_tombstone(spark: SparkSession, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    write(spark.sql("SELECT 'k' AS key, CAST(NULL AS STRING) AS value"), kafka_address, topic=topic)
    assert [(record.key, record.value) for _, record in consume(kafka_address, topic)] == [(b"k", None)]


def test_a_stream_is_written_and_goes_on_from_its_checkpoint(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    inbox, outbox = create_topic(kafka_address), create_topic(kafka_address)

    def run() -> None:
        frame = spark.readStream.format("millstream").options(
            bootstrap=kafka_address, topic=inbox, startingOffsets="earliest"
        )
        query = (
            frame.load()
            .selectExpr("key", "upper(string(value)) AS value", "timestamp")
            .writeStream.format("millstream")
            .options(bootstrap=kafka_address, topic=outbox, checkpointLocation=str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    produce(kafka_address, inbox, values("a", "b"), 0)
    run()
    produce(kafka_address, inbox, values("c"), 1)
    run()
    found = sorted(record.value or b"" for _, record in consume(kafka_address, outbox))
    assert found == [b"A", b"B", b"C"]


def test_the_format_can_be_registered_by_hand_too(spark: SparkSession, kafka_address: str) -> None:
    register(spark)
    topic = create_topic(kafka_address)
    write(spark.sql("SELECT 'v' AS value"), kafka_address, topic=topic)
    assert [record.value for _, record in consume(kafka_address, topic)] == [b"v"]


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("SELECT 'v' AS value", {}, "no topic to write to: give the option topic, or a column `topic`"),
        ("SELECT 1 AS amount", {"topic": "t"}, "needs a column `value`.*the columns are amount.*to_json"),
        ("SELECT 'v' AS value, 1 AS amount", {"topic": "t"}, "'amount' is not part of a record"),
        ("SELECT 1 AS value", {"topic": "t"}, "column 'value' is int; it must be string or binary"),
        ("SELECT 'v' AS value, 7 AS partition", {"topic": "t"}, "says 7, but topic t has 2 partitions"),
        ("SELECT 'v' AS value, CAST(NULL AS STRING) AS topic", {}, "`topic` is null in 1 rows"),
        ("SELECT 'v' AS value", {"topic": "t", "startingOffsets": "x"}, "'startingoffsets' is only for read"),
        ("SELECT 'v' AS value", {"topic": "t", "kafka.compression.type": "zip"}, "unknown codec 'zip'"),
        ("SELECT 'v' AS value", {"topic": "not/ok"}, "topic not/ok.*INVALID_TOPIC"),
        ("SELECT repeat('x', 5000) AS value", {"topic": "small"}, "larger than the topic takes"),
    ],
)
def test_a_mistake_is_said_as_such(
    spark: SparkSession, kafka_address: str, query: str, options: dict[str, str], message: str
) -> None:
    create_topic(kafka_address, "small", config={"max.message.bytes": "1000"})
    with pytest.raises(PySparkException, match=message):
        write(spark.sql(query), kafka_address, **options)


def test_a_topic_is_not_overwritten(spark: SparkSession, kafka_address: str) -> None:
    writer = spark.sql("SELECT 'v' AS value").write.format("millstream")
    with pytest.raises(PySparkException, match="can only be appended to"):
        writer.options(bootstrap=kafka_address, topic="t").mode("overwrite").save()
