"""Compacted topics by clients that are not ours, and Kafka's own verdict on what compaction leaves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

import millstream
from millstream.records.build import Record
from tests.support.apache_kafka import jars, run_tool
from tests.support.maven import JarsUnavailable
from tests.support.topics import consume, create_topic, produce
from tests.support.waiting import wait_for

COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "6000", "min.cleanable.dirty.ratio": "0.01"}

SMALL = {"batch.num.messages": 40}  # batches that fit into the segments


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[millstream.Broker]:
    with millstream.Broker(tmp_path / "data", log_cleaner_backoff_ms=50) as broker:
        yield broker


def compacted(broker: millstream.Broker, topic: str, partitions: int = 1) -> list[Record]:
    """What is left once there are few records more than keys."""

    def is_done() -> list[Record]:
        found = [record for _, record in consume(broker.address, topic, partitions)]
        return found if len(found) < 600 else []

    return wait_for(is_done, timeout=90, what="compaction")


def test_a_reader_gets_the_newest_value_of_each_key_where_it_was(broker: millstream.Broker) -> None:
    topic = create_topic(broker.address, partitions=1, config=COMPACTED)
    records = [Record(b"k%d" % (n % 100), b"v%d" % n if n % 100 or n < 4900 else None) for n in range(5000)]
    for start in range(0, 5000, 250):
        codec = ("none", "gzip", "snappy", "lz4", "zstd")[start // 250 % 5]
        settings = {"compression.type": codec, "enable.idempotence": start % 500 == 0, **SMALL}
        produce(broker.address, topic, records[start : start + 250], **settings)
    found = compacted(broker, topic)
    assert {record.key: record.value for record in found} == {r.key: r.value for r in records[4900:]}
    assert all(records[record.offset][:2] == (record.key, record.value) for record in found)


def test_a_reader_of_committed_records_gets_the_newest_committed_one(broker: millstream.Broker) -> None:
    topic = create_topic(broker.address, partitions=1, config=COMPACTED)
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": "t", **SMALL})
    producer.init_transactions(30)
    for round_number in range(40):
        producer.begin_transaction()
        for number in range(50):
            producer.produce(topic, b"%d-%d" % (round_number, number) * 8, b"k%d" % number)
        if round_number % 3 == 2:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    found = compacted(broker, topic)
    newest = {record.key: record.value for record in found}
    assert newest == {b"k%d" % number: b"39-%d" % number * 8 for number in range(50)}


def test_the_records_of_a_compacted_topic_need_a_key(broker: millstream.Broker) -> None:
    topic = create_topic(broker.address, partitions=1, config=COMPACTED)
    with pytest.raises(AssertionError, match="INVALID_RECORD"):
        produce(broker.address, topic, [Record(None, b"v")])


def test_a_topic_in_memory_is_compacted_too() -> None:
    with millstream.Broker(log_cleaner_backoff_ms=50) as broker:
        topic = create_topic(broker.address, partitions=1, config=COMPACTED)
        produce(broker.address, topic, [Record(b"k%d" % (n % 10), b"v" * 50) for n in range(5000)], **SMALL)
        produce(broker.address, topic, [Record(b"last", b"v")])
        assert len({record.key for record in compacted(broker, topic)}) == 11


class TestKafkasOwnTools:
    @pytest.fixture(autouse=True)
    def _tools(self) -> None:
        try:
            jars()
        except JarsUnavailable as error:
            pytest.skip(str(error))

    def test_its_tester_of_compaction_is_content(self, tmp_path: Path) -> None:
        topic = {"segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.01"}
        with millstream.Broker(tmp_path / "data", log_cleaner_backoff_ms=100, topic=topic) as broker:
            words = ["--messages", "10000", "--sleep", "2", "--percent-deletes", "10", "--duplicates", "5"]
            done = run_tool("LogCompactionTester", "--bootstrap-server", broker.address, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.search(r"Validated \d+ values, 0 mismatches", done.stdout)
        reduction = re.search(r"\(([\d.]+)% reduction\)", done.stdout)
        assert reduction is not None
        assert float(reduction[1]) > 30

    def test_it_reads_the_files(self, broker: millstream.Broker, tmp_path: Path) -> None:
        topic = create_topic(broker.address, partitions=1, config=COMPACTED)
        records = [Record(b"k%d" % (n % 200), b"v%d" % n * 5 if n % 7 else None) for n in range(8000)]
        for start in range(0, 8000, 1000):
            codec = ("none", "lz4", "zstd")[start // 1000 % 3]
            produce(
                broker.address,
                topic,
                records[start : start + 1000],
                **{"compression.type": codec, "enable.idempotence": start == 0, **SMALL},
            )
        compacted(broker, topic)
        broker.stop()
        files = sorted((tmp_path / "data" / f"{topic}-0").glob("0*"))
        logs = [str(file) for file in files if file.suffix == ".log"]
        dumped = run_tool(
            "DumpLogSegments", "--deep-iteration", "--print-data-log", "--files", ",".join(logs)
        )
        indexes = [str(file) for file in files if file.suffix in (".index", ".timeindex")]
        checked = run_tool("DumpLogSegments", "--verify-index-only", "--files", ",".join(indexes))
        for done in (dumped, checked):
            output = done.stdout + done.stderr
            assert done.returncode == 0, output
            assert not re.search("Exception|ismatch|isvalid: false|out of order|not found", output), output
        assert "deleteHorizonMs: OptionalLong[1" in dumped.stdout
        assert re.search(r"baseOffset: \d+ lastOffset: \d+ count: 0 ", dumped.stdout), "an emptied batch"
