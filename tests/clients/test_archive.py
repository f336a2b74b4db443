"""Archived topics on a real object storage, read by clients that know nothing of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from millstream.records.build import Record
from tests.support.apache_kafka import free_port
from tests.support.command import CommandLine
from tests.support.serve import ServeProcess
from tests.support.topics import consume, create_topic, delete_topic, produce
from tests.support.waiting import wait_for
from tests.support.wire_client import FETCH, WireClient, answer, fetch

START = 1_700_000_000_000
COUNT = 4000
ARCHIVED = {
    "segment.bytes": "100000",
    "remote.storage.enable": "true",
    "local.retention.bytes": "150000",
    "retention.ms": "-1",
    "file.delete.delay.ms": "100",
    "segment.ms": str(10**15),
}
SETTINGS = {
    "remote.log.manager.task.interval.ms": "100",
    "log.retention.check.interval.ms": "100",
    "topic.message.timestamp.before.max.ms": str(2**62),
}


class S3:
    """An S3 server of moto's, that can be stopped and come back with what it had."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._server: Any = None

    def start(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server = ThreadedMotoServer("127.0.0.1", self.port, verbose=False)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def options(self) -> dict[str, Any]:
        return {"key": "test", "secret": "test", "endpoint_url": self.url, "skip_instance_cache": True}

    def objects(self) -> list[str]:
        import s3fs

        found = s3fs.S3FileSystem(**self.options()).find("archive")
        return [name for name in found if name.endswith(".segment")]


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    import boto3

    server = S3()
    server.start()
    try:
        boto3.client(
            "s3",
            endpoint_url=server.url,
            aws_access_key_id="test",
            aws_secret_access_key="test",
            region_name="us-east-1",
        ).create_bucket(Bucket="archive")
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def http() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def broker(s3: S3, http: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    options = {name: value for name, value in s3.options().items() if name != "skip_instance_cache"}
    options["config_kwargs"] = {"connect_timeout": 1, "read_timeout": 2, "retries": {"max_attempts": 0}}
    settings = {
        **SETTINGS,
        "millstream.archive.url": "s3://archive/streams",
        "millstream.archive.options": json.dumps(options),
        "http.listen": http,
    }
    with ServeProcess(tmp_path_factory.mktemp("broker") / "data", settings=settings) as broker:
        yield broker


def local_start(address: str, topic: str) -> int:
    """The oldest offset that is on the broker's disk."""
    with WireClient(address) as client:
        wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -4}
        topics = [{"name": topic, "partitions": [wanted]}]
        found = client.call(2, 9, replica_id=-1, isolation_level=0, topics=topics)
        return int(found.topics[0].partitions[0].offset)


def filled(address: str, topic: str, first: int = 0) -> None:
    records = [Record(None, b"%0200d" % number, timestamp=START + number) for number in range(first, COUNT)]
    produce(address, topic, records, **{"batch.num.messages": 50})


@pytest.fixture(scope="module")
def topic(broker: ServeProcess) -> str:
    name = create_topic(broker.address, "archived", 1, ARCHIVED)
    filled(broker.address, name)
    wait_for(lambda: local_start(broker.address, name) > COUNT // 2, what="most of it is archived only")
    return name


def test_a_client_reads_the_whole_topic_from_the_object_storage_and_the_disk(
    broker: ServeProcess, s3: S3, topic: str
) -> None:
    found = consume(broker.address, topic, 1)
    assert [int(record.value or b"") for _, record in found] == list(range(COUNT))
    assert len(s3.objects()) > 4


def test_a_client_finds_an_offset_by_time_in_the_object_storage(broker: ServeProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    for number in (0, 1234, COUNT - 1):
        place = TopicPartition(topic, 0)
        (found,) = admin.list_offsets({place: OffsetSpec.for_timestamp(START + number)}).values()
        assert found.result(15).offset == number


def metrics(http: str) -> dict[str, float]:
    with urlopen(f"http://{http}/metrics", timeout=10) as answered:
        lines = answered.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}


def test_describe_shows_what_is_where_and_metrics_count_it(
    broker: ServeProcess, http: str, topic: str
) -> None:
    millstream = CommandLine(broker.address)
    (described,) = millstream.json("topic", "describe", topic)
    (partition,) = described["partitions"]
    assert partition["start"] == 0
    assert partition["local_start"] == local_start(broker.address, topic)
    assert partition["local_start"] <= partition["archived_end"] < COUNT
    assert "archived to" in millstream.ok("topic", "describe", topic)
    values = metrics(http)
    assert values["millstream_archive_copied_bytes_total"] > 100_000
    assert values["millstream_archive_away"] == 0
    at = f'{{partition="0",topic="{topic}"}}'
    assert values["millstream_partition_archived_bytes" + at] > 100_000
    assert values["millstream_partition_local_start_offset" + at] == partition["local_start"]
    assert values["millstream_partition_unarchived_bytes" + at] == 0


def fetched(address: str, topic: str, offset: int) -> Any:
    with WireClient(address) as client:
        client.send(fetch(1, topic, offset, wait=100))
        return answer(FETCH, 12, client.receive())[1].responses[0].partitions[0]


def test_while_the_object_storage_is_away_only_what_is_there_can_not_be_read(
    broker: ServeProcess, s3: S3, topic: str
) -> None:
    other = create_topic(broker.address, "", 1, ARCHIVED)
    filled(broker.address, other)
    wait_for(lambda: local_start(broker.address, other) > COUNT // 2, what="most of it is archived only")
    here = local_start(broker.address, other)
    s3.stop()
    try:
        wait_for(lambda: fetched(broker.address, other, 0).error_code == 56, what="an error for what is away")
        assert fetched(broker.address, other, here).error_code == 0
        assert fetched(broker.address, other, here).records
        produce(broker.address, other, [Record(None, b"still taken")])
        consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "waits"})
        consumer.assign([TopicPartition(other, 0, 0)])
        assert consumer.poll(1.0) is None, "it tries again, and the program hears of nothing"
    finally:
        s3.start()
    message = wait_for(lambda: consumer.poll(0.5), timeout=30, what="it goes on when the storage is back")
    assert (message.error(), message.offset()) == (None, 0)
    consumer.close()
    assert "try again" in broker.logged()


def test_a_deleted_topic_leaves_the_object_storage(broker: ServeProcess, s3: S3) -> None:
    name = create_topic(broker.address, "", 1, ARCHIVED)
    filled(broker.address, name)
    wait_for(lambda: [each for each in s3.objects() if f"/{name}-" in each], what="it is archived")
    delete_topic(broker.address, name)
    wait_for(lambda: not [each for each in s3.objects() if f"/{name}-" in each], what="it is gone")


def test_segments_of_a_killed_broker_are_read_on(tmp_path: Path) -> None:
    """On a directory; the broker is killed while it archives, again and again."""
    place = tmp_path / "archive"
    settings = {**SETTINGS, "millstream.archive.url": str(place)}
    settings["remote.log.manager.task.interval.ms"] = settings["log.retention.check.interval.ms"] = "20"
    with ServeProcess(tmp_path / "data", settings=settings) as broker:
        name = create_topic(broker.address, "", 1, ARCHIVED)
        for round_ in range(4):
            first = round_ * COUNT // 4
            records = [
                Record(None, b"%0200d" % n, timestamp=START + n) for n in range(first, first + COUNT // 4)
            ]
            produce(broker.address, name, records, **{"batch.num.messages": 50})
            wait_for(lambda: len(list(place.rglob("*.segment"))) > round_, what="a copy is under way")  # noqa: B023
            broker.kill()
            broker.start()
        wait_for(lambda: local_start(broker.address, name) > COUNT * 3 // 4, what="most of it is archived")
        found = consume(broker.address, name, 1)
        assert [int(record.value or b"") for _, record in found] == list(range(COUNT))
        here = local_start(broker.address, name)
        wait_for(lambda: contiguous(place, here), what="each record is there once, and nothing else")


def contiguous(place: Path, here: int) -> bool:
    """The objects follow one another, up to what is on the disk or beyond."""
    from millstream.log.archive_object import read_manifest
    from millstream.log.archive_store import ArchiveStore

    store = ArchiveStore(str(place))
    found = [read_manifest(store, str(each.relative_to(place))) for each in place.rglob("*.segment")]
    if None in found:
        return False
    segments = sorted(each[0].base_offset for each in found if each)
    ends = sorted(each[0].end_offset for each in found if each)
    return segments[1:] == ends[:-1] and segments[0] == 0 and ends[-1] >= here
