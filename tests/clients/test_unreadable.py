"""Records that are in the log and can't be read: every reader of ours names them, and goes on if told to.

The broker takes no such batch any more, so they are put into its file while it is stopped: a batch with a
right checksum over records that are none, as an older broker took it, and one that a disk has damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from millstream.client.connect import Connection
from millstream.client.insight.peek import Peek
from millstream.client.librdkafka.admin import Admin
from millstream.client.protocol.cluster import Cluster
from millstream.client.text.position import TopicPartition
from millstream.console.messages.decoding import Decoding
from millstream.console.messages.message import MessageQuery
from millstream.console.messages.search import search
from millstream.core.errors import DataLoss
from millstream.pipeline.connector.fetching import SpanReader
from millstream.pipeline.connector.offsets import Span
from millstream.records.batch import HEADER_SIZE, batches, seal
from tests.support.command import CommandLine
from tests.support.serve import ServeProcess
from tests.support.wire_client import WireClient, produce, records

POISONED, DAMAGED, SPOILED_FIRST = "poisoned", "damaged", "first"
FIRST, LAST = 3, 5  # what can't be read
READABLE = [0, 1, 2, 6, 7, 8]
TOPICS = pytest.mark.parametrize("topic", [POISONED, DAMAGED])


def spoil(log: Path, number: int, *, checksum: bool) -> None:
    """Put garbage where the records of a batch are, under a right checksum or not."""
    data = bytearray(log.read_bytes())
    position, header = list(batches(data))[number]
    body = slice(position + HEADER_SIZE, position + header.size)
    data[body] = bytes([7]) * (header.size - HEADER_SIZE)
    if checksum:
        seal(memoryview(data)[position : position + header.size], 0, header.size)
    log.write_bytes(data)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("unreadable") / "data"
    with ServeProcess(data) as broker:
        with Admin(Connection.of(broker.address)) as admin:
            for topic in (POISONED, DAMAGED, SPOILED_FIRST):
                admin.create_topic(topic, partitions=1)
        with WireClient(broker.address) as client:
            for topic in (POISONED, DAMAGED, SPOILED_FIRST):
                for first in range(0, 9, 3):
                    values = [b"value %d" % number for number in range(first, first + 3)]
                    client.send(produce(1, topic, batch=records(*values)))
                    client.receive()
    for topic, number, checksum in ((POISONED, 1, True), (DAMAGED, 1, False), (SPOILED_FIRST, 0, True)):
        spoil(data / f"{topic}-0" / "00000000000000000000.log", number, checksum=checksum)
    with ServeProcess(data) as broker:
        yield broker.address


def lines(numbers: list[int]) -> str:
    return "".join(f"value {number}\n" for number in numbers)


@TOPICS
def test_consume_names_them_and_ends(address: str, topic: str) -> None:
    done = CommandLine(address).run("consume", topic, "-o", "start:end")
    assert done.returncode == 1
    assert done.stdout.decode() == lines(READABLE[:3])
    assert f"{topic}[0]: offsets 3 to 5 can't be read: " in done.stderr.decode()
    assert "--skip-unreadable" in done.stderr.decode()


@TOPICS
def test_consume_goes_on_after_them_if_told_to(address: str, topic: str) -> None:
    done = CommandLine(address).run("consume", topic, "-o", "start:end", "--skip-unreadable")
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == lines(READABLE)
    assert f"{topic}[0]: offsets 3 to 5 can't be read: " in done.stderr.decode()


@TOPICS
def test_so_does_a_member_of_a_group(address: str, topic: str) -> None:
    ours = CommandLine(address)
    options = ("--group", f"readers of {topic}", "-o", "start", "-n", "6", "--skip-unreadable")
    done = ours.run("consume", topic, *options)
    assert done.stdout.decode() == lines(READABLE)
    assert f"{topic}[0]: offsets 3 to 5 can't be read: " in done.stderr.decode()


def test_a_member_whose_first_batch_it_is_names_it(address: str) -> None:
    """It has neither read nor committed anything yet."""
    ours = CommandLine(address)
    done = ours.run("consume", SPOILED_FIRST, "--group", "beginners", "-o", "start", "-n", "1")
    assert done.returncode == 1
    assert f"{SPOILED_FIRST}[0]: offsets 0 to 2 can't be read: " in done.stderr.decode()


@TOPICS
def test_a_look_at_the_log_tells_them(address: str, topic: str) -> None:
    place = TopicPartition(topic, 0)
    found, at, unreadable = [], 0, []
    with Peek(Connection.of(address)) as peek:
        while at < 9:
            stretch = peek.stretch(place, at, 9)
            found += [record.offset for batch in stretch.batches for record in batch.records]
            if stretch.unreadable is not None:
                unreadable.append(stretch.unreadable)
            assert stretch.next_offset > at
            at = stretch.next_offset
    assert found == READABLE
    assert [(each.first, each.until) for each in unreadable] == [(FIRST, LAST + 1)]


def test_a_look_that_begins_inside_names_the_rest(address: str) -> None:
    with Peek(Connection.of(address)) as peek:
        stretch = peek.stretch(TopicPartition(POISONED, 0), 4, 9)
    assert stretch.unreadable is not None
    assert (stretch.unreadable.first, stretch.unreadable.until) == (4, LAST + 1)


@TOPICS
@pytest.mark.parametrize("seek", ["newest", "oldest"])
def test_the_consoles_messages_are_those_around_them(
    address: str, topic: str, seek: Literal["newest", "oldest"]
) -> None:
    with Peek(Connection.of(address)) as peek:
        page = search(peek, topic, MessageQuery(seek=seek), Decoding("text"), now_ms=0)
    assert sorted(message.offset for message in page.messages) == READABLE
    assert len(page.unreadable) == 1
    assert page.unreadable[0].startswith(f"{topic}[0]: offsets 3 to 5 can't be read: ")


def span_of(address: str, topic: str, *, strict: bool) -> tuple[Cluster, SpanReader]:
    cluster = Cluster(Connection.of(address), patience=10)
    reader = SpanReader(
        cluster,
        Span(TopicPartition(topic, 0), 0, 9),
        names=("value", "offset"),
        read_committed=True,
        fetch_bytes=1 << 20,
        fail_on_data_loss=strict,
    )
    return cluster, reader


@TOPICS
def test_a_pipelines_source_names_them(address: str, topic: str) -> None:
    cluster, reader = span_of(address, topic, strict=True)
    with pytest.raises(DataLoss, match=r"offsets 3 to 5 can't be read: .*--skip-lost"):
        list(reader.batches())
    cluster.close()


@TOPICS
def test_a_pipelines_source_goes_on_after_them_if_told_to(address: str, topic: str) -> None:
    cluster, reader = span_of(address, topic, strict=False)
    offsets = [offset for batch in reader.batches() for offset in batch.column("offset").to_pylist()]
    assert offsets == READABLE
    cluster.close()
