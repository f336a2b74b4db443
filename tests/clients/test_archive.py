"""Archived topics on a real object storage, read by clients that know nothing of it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from millstream import Broker
from millstream.log.archive.store import ArchiveStore
from millstream.records.build import Record
from tests.support.apache_kafka import free_port
from tests.support.archives import keeps_its_promises, local_start
from tests.support.command import CommandLine
from tests.support.readers import LIBRARIES, Reader
from tests.support.serve import ServeProcess
from tests.support.topics import consume, create_topic, delete_topic, produce, set_group_settings
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


def test_an_object_storage_keeps_its_promises(s3: S3) -> None:
    options = {name: value for name, value in s3.options().items() if name != "skip_instance_cache"}
    keeps_its_promises(ArchiveStore("s3://archive/promises", json.dumps(options)))


def filled(address: str, topic: str, first: int = 0) -> None:
    records = [Record(None, b"%0200d" % number, timestamp=START + number) for number in range(first, COUNT)]
    produce(address, topic, records, **{"batch.num.messages": 50})


def wait_until_archived(address: str, topic: str) -> None:
    """Until most of it is in the archive only, and nothing more has gone there for a while."""
    seen, since = 0, time.monotonic()

    def is_at_rest() -> bool:
        nonlocal seen, since
        start = local_start(address, topic)
        if start != seen:
            seen, since = start, time.monotonic()
        return start > COUNT // 2 and time.monotonic() > since + 1.5

    wait_for(is_at_rest, what="most of it is archived only")


@pytest.fixture(scope="module")
def topic(broker: ServeProcess) -> str:
    name = create_topic(broker.address, "archived", 1, ARCHIVED)
    filled(broker.address, name)
    wait_until_archived(broker.address, name)
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
        assert found.result(60).offset == number


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
    at = f'{{partition="0",topic="{topic}"}}'
    # Segments are sealed and copied a little after one another.
    wait_for(
        lambda: metrics(http)["millstream_partition_unarchived_bytes" + at] == 0,
        what="all that is sealed is archived",
    )
    values = metrics(http)
    assert values["millstream_archive_copied_bytes_total"] > 100_000
    assert values["millstream_archive_away"] == 0
    assert values["millstream_partition_archived_bytes" + at] > 100_000
    assert values["millstream_partition_local_start_offset" + at] == partition["local_start"]


def fetched(address: str, topic: str, offset: int) -> Any:
    with WireClient(address) as client:
        client.send(fetch(1, topic, offset, wait=100))
        return answer(FETCH, 12, client.receive())[1].responses[0].partitions[0]


def test_while_the_object_storage_is_away_only_what_is_there_can_not_be_read(
    broker: ServeProcess, s3: S3, topic: str
) -> None:
    other = create_topic(broker.address, "", 1, ARCHIVED)
    filled(broker.address, other)
    wait_until_archived(broker.address, other)
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
    message = wait_for(lambda: consumer.poll(0.5), timeout=90, what="it goes on when the storage is back")
    assert (message.error(), message.offset()) == (None, 0)
    consumer.close()
    assert "try again" in broker.logged()


def test_a_deleted_topic_leaves_the_object_storage(broker: ServeProcess, s3: S3) -> None:
    name = create_topic(broker.address, "", 1, ARCHIVED)
    filled(broker.address, name)
    wait_for(lambda: [each for each in s3.objects() if f"/{name}-" in each], what="it is archived")
    delete_topic(broker.address, name)
    wait_for(lambda: not [each for each in s3.objects() if f"/{name}-" in each], what="it is gone")


@pytest.mark.parametrize("attach", LIBRARIES)
def test_readers_of_every_library_wait_for_the_archive_and_go_on(
    tmp_path: Path, attach: Callable[[str, str, str], Reader]
) -> None:
    place, away = tmp_path / "archive", tmp_path / "away"
    broker = Broker(
        tmp_path / "data",
        millstream_archive_url=str(place),
        remote_log_manager_task_interval_ms=50,
        log_retention_check_interval_ms=50,
    )
    with broker:
        name = create_topic(broker.address, "", 1, ARCHIVED)
        filled(broker.address, name)
        wait_until_archived(broker.address, name)
        place.rename(away)
        reader = attach(broker.address, name, "g")
        try:
            wait_for(lambda: fetched(broker.address, name, 0).error_code == 56, what="the archive is away")
            assert reader.seen == []
            away.rename(place)
            wait_for(lambda: len(reader.seen) >= COUNT, timeout=90, what="it has read everything")
        finally:
            reader.stop()
        assert [int(value) for value in reader.seen] == list(range(COUNT))


def test_while_the_archive_is_away_topics_and_groups_are_described_all_the_same(tmp_path: Path) -> None:
    place, away = tmp_path / "archive", tmp_path / "away"
    broker = Broker(
        tmp_path / "data",
        millstream_archive_url=str(place),
        remote_log_manager_task_interval_ms=50,
        log_retention_check_interval_ms=50,
    )
    with broker:
        name = create_topic(broker.address, "", 1, ARCHIVED)
        filled(broker.address, name)
        wait_until_archived(broker.address, name)
        plain = create_topic(broker.address, "", 1)
        produce(broker.address, plain, [Record(None, b"v", timestamp=int(time.time() * 1000))])
        consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition(name, 0, 0), TopicPartition(plain, 0, 0)], asynchronous=False)
        consumer.close()
        place.rename(away)
        wait_for(lambda: fetched(broker.address, name, 0).error_code == 56, what="the archive is away")
        shell = CommandLine(broker.address)
        archived, other = json.loads(shell.ok("topic", "describe", name, plain, "--output", "json"))
        (partition,) = archived["partitions"]
        assert (partition["start"], partition["end"]) == (0, COUNT)
        assert "can't look up the offsets of" in partition["problem"]
        assert archived["horizon"]["oldest"] is None
        assert other["partitions"][0]["problem"] is None
        assert other["horizon"]["oldest"] is not None
        lags = {row["topic"]: row for row in json.loads(shell.ok("group", "lag", "g", "--output", "json"))}
        assert lags[name]["records"] == COUNT
        assert lags[name]["oldest_unread"] is None
        assert "can't read offset 0: " in lags[name]["problem"]
        assert (lags[plain]["records"], lags[plain]["problem"]) == (1, None)
        assert lags[plain]["oldest_unread"] is not None
        assert name in shell.ok("topic", "list")
        assert "not fully known" in shell.run("topic", "describe", name).stderr.decode()


def test_a_share_group_reads_what_is_only_in_the_archive(broker: ServeProcess, topic: str) -> None:
    set_group_settings(broker.address, "sharing", {"share.auto.offset.reset": "earliest"})
    consumer = ShareConsumer({"bootstrap.servers": broker.address, "group.id": "sharing", "log_level": 0})
    consumer.subscribe([topic])
    seen: Counter[int] = Counter()

    def has_all() -> bool:
        seen.update(message.offset() for message in consumer.poll(timeout=0.5))
        return len(seen) == COUNT

    try:
        wait_for(has_all, timeout=120, what="every record is delivered")
    finally:
        consumer.close()
    assert set(seen) == set(range(COUNT))
    assert set(seen.values()) == {1}
