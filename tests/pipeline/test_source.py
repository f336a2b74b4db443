"""``spark.read`` and ``spark.readStream`` with ``format("millstream")``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import PySparkException

from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.records.build import Record
from tests.support.topics import create_topic, delete_records, delete_topic, produce, values
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

NOW = 1_700_000_000_000


def read(spark: SparkSession, address: str, **options: Any) -> DataFrame:
    return spark.read.format("millstream").option("bootstrap", address).options(**options).load()


def texts(frame: DataFrame) -> list[str]:
    return sorted(row.text for row in frame.selectExpr("string(value) AS text").collect())


class Stream:
    """A streaming query from a topic into memory, run to the end of what is there with every ``run``."""

    def __init__(self, spark: SparkSession, address: str, checkpoint: Path, **options: Any) -> None:
        self.spark = spark
        self.checkpoint = str(checkpoint)
        self.options = {"bootstrap": address, "startingOffsets": "earliest", **options}
        self.batches: list[list[str]] = []

    def start(self, **trigger: Any) -> StreamingQuery:
        frame = self.spark.readStream.format("millstream").options(**self.options).load()
        return (
            frame.selectExpr("string(value) AS text")
            .writeStream.foreachBatch(lambda batch, _: self.batches.append(texts_of(batch)))
            .option("checkpointLocation", self.checkpoint)
            .trigger(**trigger)
            .start()
        )

    def run(self) -> StreamingQuery:
        query = self.start(availableNow=True)
        query.awaitTermination()
        return query

    @property
    def all(self) -> list[str]:
        return sorted(text for batch in self.batches for text in batch)


def texts_of(batch: DataFrame) -> list[str]:
    return sorted(row.text for row in batch.collect())


# A batch ------------------------------------------------------------------------------------------------


def test_every_part_of_a_record_is_a_column(spark: SparkSession, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    sent = [
        Record(b"k", b"v", (("a", b"1"), ("b", None)), NOW),
        Record(None, None, (), NOW + 1),
        Record(b"", b"", (), NOW + 2),
    ]
    produce(kafka_address, topic, sent, partition=1)
    frame = read(spark, kafka_address, topic=topic)
    assert frame.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    rows = frame.selectExpr("*", "unix_millis(timestamp) AS ms").orderBy("offset").collect()
    assert [(r.key, r.value, r.topic, r.partition, r.offset, r.ms, r.timestampType) for r in rows] == [
        (b"k", b"v", topic, 1, 0, NOW, 0),
        (None, None, topic, 1, 1, NOW + 1, 0),
        (b"", b"", topic, 1, 2, NOW + 2, 0),
    ]
    assert [None if r.headers is None else [tuple(h) for h in r.headers] for r in rows] == [
        [("a", b"1"), ("b", None)],
        None,
        None,
    ]


def test_a_schema_picks_columns(spark: SparkSession, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    produce(kafka_address, topic, values("a", "b"))
    frame = (
        spark.read.format("millstream")
        .schema("offset bigint, value binary")
        .options(bootstrap=kafka_address, topic=topic)
        .load()
    )
    assert [tuple(row) for row in frame.collect()] == [(0, b"a"), (1, b"b")]


def test_topics_are_chosen_by_name_list_pattern_and_partition(
    spark: SparkSession, kafka_address: str
) -> None:
    for name in ("pay.eu", "pay.us", "other"):
        create_topic(kafka_address, name)
        produce(kafka_address, name, values(f"{name} 0"), 0)
        produce(kafka_address, name, values(f"{name} 1"), 1)
    eu, us = ["pay.eu 0", "pay.eu 1"], ["pay.us 0", "pay.us 1"]
    assert texts(read(spark, kafka_address, topic="pay.eu")) == eu
    assert texts(read(spark, kafka_address, subscribe="pay.eu, pay.us")) == eu + us
    assert texts(read(spark, kafka_address, pattern=r"pay\..*")) == eu + us
    assert texts(read(spark, kafka_address, assign='{"pay.us": [1]}')) == ["pay.us 1"]
    frame = spark.read.format("millstream").option("bootstrap", kafka_address).load("other")
    assert texts(frame) == ["other 0", "other 1"]


def test_start_and_end_are_offsets_times_or_a_group(spark: SparkSession, kafka_address: str) -> None:
    topic = create_topic(kafka_address, partitions=1)
    produce(kafka_address, topic, [Record(None, b"%d" % i, (), NOW + 1000 * i) for i in range(6)])
    consumer = Consumer({"bootstrap.servers": kafka_address, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
    consumer.close()

    def between(start: str, end: str = "latest", **more: str) -> str:
        frame = read(spark, kafka_address, topic=topic, startingOffsets=start, endingOffsets=end, **more)
        return "".join(texts(frame))

    assert between("earliest") == "012345"
    assert between("latest") == ""
    assert between(json.dumps({topic: {"0": 2}}), json.dumps({topic: {"0": 4}})) == "23"
    assert between(json.dumps({topic: {"0": -2}}), json.dumps({topic: {"0": -1}})) == "012345"
    assert between(f"@{NOW + 2500}", f"@{NOW + 4000}") == "3"
    assert between(json.dumps({topic: {"0": f"@{NOW + 1000}"}})) == "12345"
    assert between("group", groupId="readers") == "45"
    assert between("group:earliest", groupId="nobody") == "012345"
    frame = read(spark, kafka_address, topic=topic, startingTimestamp=NOW + 5000)
    assert texts(frame) == ["5"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_of_every_codec_are_read(spark: SparkSession, kafka_address: str, codec: str) -> None:
    topic = create_topic(kafka_address)
    sent = [f"{i:04} " + "x" * 50 for i in range(2000)]
    produce(kafka_address, topic, values(*sent), **{"compression.type": codec})
    assert texts(read(spark, kafka_address, topic=topic)) == sent


def test_large_partitions_are_split_among_tasks(spark: SparkSession, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    produce(kafka_address, topic, values(*range(1000)))
    split = read(spark, kafka_address, topic=topic, minPartitions=5)
    assert split.rdd.getNumPartitions() == 5
    assert texts(split) == sorted(map(str, range(1000)))
    assert read(spark, kafka_address, topic=topic, maxRecordsPerPartition=300).rdd.getNumPartitions() == 4


def test_a_topic_without_records_is_an_empty_frame(spark: SparkSession, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    assert read(spark, kafka_address, topic=topic).collect() == []


def test_records_larger_than_a_fetch_are_read(spark: SparkSession, kafka_address: str) -> None:
    topic = create_topic(kafka_address)
    produce(kafka_address, topic, [Record(None, b"x" * 500_000)] * 3)
    options = {"topic": topic, "kafka.max.partition.fetch.bytes": "1024"}
    assert [len(text) for text in texts(read(spark, kafka_address, **options))] == [500_000] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topic": "absent"}, "there is no topic 'absent' at .*millstream topic create absent"),
        ({}, "one of topic, pattern or assign.*none of them"),
        ({"topic": "a", "pattern": "b"}, "given: topic and pattern"),
        ({"topic": "a", "startingOfsets": "x"}, "no option 'startingofsets'; did you mean 'startingOffsets'"),
        ({"topic": "here", "startingOffsets": "soon"}, "'soon' is not earliest, latest, group, a time"),
        ({"topic": "here", "startingOffsets": '{"here": {"0": 9}}'}, "it does not mention here.1"),
        (
            {"topic": "here", "startingOffsets": '{"here": {"0": 9, "1": 0}}'},
            r"here\[0\] has offsets 0 to 0, not 9",
        ),
        ({"pattern": "("}, "is not a regular expression"),
        ({"topic": "here", "minPartitions": "many"}, "'many' is not a whole number of at least 1"),
        ({"topic": "here", "kafka.sasl.mechanism": "GSSAPI", "kafka.security.protocol": "SASL_PLAINTEXT"},
         "'GSSAPI' is not one of PLAIN, SCRAM"),
    ],
)  # fmt: skip
def test_a_mistake_is_said_as_such(
    spark: SparkSession, kafka_address: str, options: dict[str, str], message: str
) -> None:
    create_topic(kafka_address, "here")
    with pytest.raises(PySparkException, match=message):
        read(spark, kafka_address, **options).collect()


def test_nobody_at_the_address_is_said_at_once(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"no broker answers at 127\.0\.0\.1:1 "):
        read(spark, "127.0.0.1:1", topic="t").collect()


# A stream -----------------------------------------------------------------------------------------------


def test_a_stream_goes_on_from_its_checkpoint(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    topic = create_topic(kafka_address)
    stream = Stream(spark, kafka_address, tmp_path, topic=topic)
    produce(kafka_address, topic, values("a", "b"), 0)
    stream.run()
    produce(kafka_address, topic, values("c"), 1)
    stream.run()
    stream.run()
    assert stream.batches == [["a", "b"], ["c"]]


@pytest.mark.parametrize("later", ["latest", "@-1ms"])
def test_a_first_batch_that_failed_is_read_whole_by_the_next_run(
    spark: SparkSession, kafka_address: str, tmp_path: Path, later: str
) -> None:
    topic = create_topic(kafka_address)
    produce(kafka_address, topic, values(*range(50)), 0)
    produce(kafka_address, topic, values(*range(50, 100)), 1)
    stream = Stream(spark, kafka_address, tmp_path, topic=topic)

    def fail(batch: DataFrame, number: int) -> None:
        raise RuntimeError(f"no room for batch {number}")

    rows = spark.readStream.format("millstream").options(**stream.options).load()
    query = rows.writeStream.foreachBatch(fail).option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(PySparkException, match="no room for batch 0"):
        query.awaitTermination()
    stream.options["startingOffsets"] = later
    stream.run()
    assert stream.all == sorted(map(str, range(100)))


def test_micro_batches_are_limited_in_records_and_end(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    topic = create_topic(kafka_address)
    produce(kafka_address, topic, values(*range(30)), 0)
    produce(kafka_address, topic, values(*range(100, 110)), 1)
    stream = Stream(spark, kafka_address, tmp_path, topic=topic, maxOffsetsPerTrigger=16)
    stream.run()
    assert [len(batch) for batch in stream.batches] == [16, 16, 8]
    assert stream.all == sorted(map(str, [*range(30), *range(100, 110)]))


def test_micro_batches_are_limited_in_bytes(spark: SparkSession, kafka_address: str, tmp_path: Path) -> None:
    topic = create_topic(kafka_address, partitions=1)
    for _ in range(10):
        produce(kafka_address, topic, [Record(None, b"x" * 10_000)] * 10)
    stream = Stream(spark, kafka_address, tmp_path, topic=topic, maxBytesPerTrigger=300_000)
    stream.run()
    sizes = [len(batch) for batch in stream.batches]
    assert sum(sizes) == 100
    assert max(sizes) <= 30
    assert len(sizes) < 7


def test_what_is_waiting_and_what_is_done_can_be_watched(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    topic = create_topic(kafka_address)
    produce(kafka_address, topic, values(*range(10)), 0)
    stream = Stream(spark, kafka_address, tmp_path, topic=topic, maxOffsetsPerTrigger=6, groupId="watched")
    query = stream.run()
    seen = [progress.sources[0] for progress in query.recentProgress if progress.numInputRows]
    assert [json.loads(source.endOffset)[topic] for source in seen] == [{"0": 6, "1": 0}, {"0": 10, "1": 0}]
    assert json.loads(seen[0].latestOffset) == {topic: {"0": 10, "1": 0}}
    consumer = Consumer({"bootstrap.servers": kafka_address, "group.id": "watched"})
    try:
        (committed,) = consumer.committed([TopicPartition(topic, 0)], 10)
    finally:
        consumer.close()
    assert committed.offset == 10


def test_partitions_and_topics_that_appear_are_read_from_their_start(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    create_topic(kafka_address, "grow.a")
    stream = Stream(spark, kafka_address, tmp_path, pattern="grow.*", startingOffsets="latest")
    query = stream.start(processingTime="0 seconds")
    try:
        wait_for(lambda: query.lastProgress, timeout=60, what="the first trigger")
        admin = AdminClient({"bootstrap.servers": kafka_address})
        admin.create_partitions([NewPartitions("grow.a", 3)])["grow.a"].result(60)
        produce(kafka_address, "grow.a", values("new partition"), 2)
        create_topic(kafka_address, "grow.b")
        produce(kafka_address, "grow.b", values("new topic"), 0)
        wait_for(lambda: stream.all == ["new partition", "new topic"], timeout=60, what="both records")
    finally:
        query.stop()


def test_records_deleted_before_they_were_read_stop_the_query_and_are_named(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    topic = create_topic(kafka_address, partitions=1)
    stream = Stream(spark, kafka_address, tmp_path, topic=topic)
    produce(kafka_address, topic, values("a", "b"))
    stream.run()
    produce(kafka_address, topic, values("c", "d", "e", "f"))
    delete_records(kafka_address, topic, 0, 5)
    with pytest.raises(PySparkException, match=rf"{topic}\[0\]: offsets 2 to 4 \(3 records\) are gone"):
        stream.run()
    stream.options["failOnDataLoss"] = "false"
    stream.run()
    assert stream.all == ["a", "b", "f"]


def test_a_deleted_topic_stops_the_query_and_is_named(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    kept, gone = (create_topic(kafka_address, name, partitions=1) for name in ("kept", "gone"))
    stream = Stream(spark, kafka_address, tmp_path, topic=f"{kept},{gone}")
    produce(kafka_address, gone, values("a"))
    stream.run()
    delete_topic(kafka_address, gone)
    with pytest.raises(PySparkException, match=r"gone\[0\] from offset 1: deleted"):
        stream.run()
    stream.options["failOnDataLoss"] = "false"
    produce(kafka_address, kept, values("b"))
    stream.run()
    assert stream.all == ["a", "b"]


def test_a_topic_that_was_created_again_stops_the_query_and_is_read_from_its_start_if_told_so(
    spark: SparkSession, kafka_address: str, tmp_path: Path
) -> None:
    topic = create_topic(kafka_address, partitions=1)
    stream = Stream(spark, kafka_address, tmp_path, topic=topic)
    produce(kafka_address, topic, values("a", "b"))
    stream.run()
    delete_topic(kafka_address, topic)
    wait_for(lambda: create_again(kafka_address, topic), what="the name is free again")
    produce(kafka_address, topic, values("c", "d", "e"))
    told = rf"{topic}: deleted and created again.* Read before: {topic}\[0\] up to offset 1"
    with pytest.raises(PySparkException, match=told):
        stream.run()
    stream.options["failOnDataLoss"] = "false"
    stream.run()
    assert stream.all == ["a", "b", "c", "d", "e"]
    del stream.options["failOnDataLoss"]
    produce(kafka_address, topic, values("f"))
    stream.run()
    assert stream.all == ["a", "b", "c", "d", "e", "f"]


def create_again(address: str, topic: str) -> bool:
    with Admin(Connection.of(address)) as admin:
        return admin.create_topic(topic, partitions=1, if_not_exists=True)


# Apache Kafka -------------------------------------------------------------------------------------------


def test_aborted_records_never_reach_a_reader_of_committed_ones(
    spark: SparkSession, apache_address: str, tmp_path: Path
) -> None:
    topic = create_topic(apache_address, partitions=1)
    producer = Producer({"bootstrap.servers": apache_address, "transactional.id": topic})
    producer.init_transactions()
    for number, ends in enumerate(("commit", "abort", "commit", "abort")):
        producer.begin_transaction()
        for i in range(50):
            producer.produce(topic, f"{number} {ends} {i}".encode(), partition=0)
        producer.flush()
        if ends == "commit":
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    committed = sorted(f"{number} commit {i}" for number in (0, 2) for i in range(50))
    assert texts(read(spark, apache_address, topic=topic)) == committed
    everything = read(spark, apache_address, topic=topic, **{"kafka.isolation.level": "read_uncommitted"})
    assert everything.count() == 200
    stream = Stream(spark, apache_address, tmp_path, topic=topic, maxOffsetsPerTrigger=30, minPartitions=3)
    stream.run()
    assert stream.all == committed
