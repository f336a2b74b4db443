"""A topic is deleted, and created again under the same name, with readers and producers attached."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.server import Server
from millstream.core.config import BrokerConfig
from millstream.core.kafka_errors import (
    NONE,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from millstream.records.build import read_batches
from tests.support.asking import ask
from tests.support.fake_peer import FakePeer, with_server
from tests.support.logs import an_idempotent_batch
from tests.support.wire_client import FETCH, PRODUCE, answer, fetch, produce, records, request

Connect = Callable[[], FakePeer]
LONG = 60_000
BY_NAME, BY_ID = 12, 13


def fetch_by_id(correlation_id: int, topic_id: uuid.UUID, offset: int, *, wait: int = 0) -> bytes:
    wanted = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
    }
    topics = [{"topic_id": topic_id, "partitions": [wanted]}]
    return fetch(correlation_id, "", version=BY_ID, wait=wait, topics=topics)


async def answered(peer: FakePeer, version: int) -> Any:
    (frame,) = await peer.answers(1)
    peer.received.clear()
    return answer(FETCH, version, frame)[1].responses[0].partitions[0]


async def write(connect: Connect, topic: str, *values: bytes) -> None:
    peer = connect()
    peer.give(produce(1, topic, batch=records(*values)))
    await peer.answers(1)


async def create_again(server: Server) -> uuid.UUID:
    await server.node.topic_admin.delete("t")
    return (await server.node.topic_admin.create("t", 1, {})).id


def test_long_polls_are_told_at_once_by_name_and_by_id() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        topic_id = server.node.catalogue.topics["t"].id
        by_name, by_id = connect(), connect()
        by_name.give(fetch(1, "t", wait=LONG))
        by_id.give(fetch_by_id(1, topic_id, 0, wait=LONG))
        await server.node.topic_admin.delete("t")
        assert (await answered(by_name, BY_NAME)).error_code == UNKNOWN_TOPIC_OR_PARTITION
        assert (await answered(by_id, BY_ID)).error_code == UNKNOWN_TOPIC_ID
        assert len(server.node.deadlines) == 0

    with_server(steps)


def test_a_reader_by_id_never_gets_the_records_of_the_successor() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        old = server.node.catalogue.topics["t"].id
        await write(connect, "t", b"old")
        new = await create_again(server)
        assert new != old
        await write(connect, "t", b"new")
        peer = connect()
        peer.give(fetch_by_id(1, old, 0))
        assert (await answered(peer, BY_ID)).error_code == UNKNOWN_TOPIC_ID
        peer.give(fetch_by_id(1, new, 0))
        assert [r.value for r in read_batches((await answered(peer, BY_ID)).records)] == [b"new"]

    with_server(steps)


def test_a_reader_by_name_with_an_old_offset_is_out_of_range_and_starts_over() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await write(connect, "t", *[b"old"] * 5)
        await create_again(server)
        await write(connect, "t", b"new")
        peer = connect()
        peer.give(fetch(1, "t", 5))
        assert (await answered(peer, BY_NAME)).error_code == OFFSET_OUT_OF_RANGE
        peer.give(fetch(1, "t", 0))
        assert [r.value for r in read_batches((await answered(peer, BY_NAME)).records)] == [b"new"]

    with_server(steps)


@pytest.mark.parametrize("by_id", [False, True])
def test_a_session_of_the_old_topic_tells_that_it_is_gone(by_id: bool) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        topic_id = server.node.catalogue.topics["t"].id
        version = BY_ID if by_id else BY_NAME
        named = {"topic_id": topic_id} if by_id else {"topic": "t"}
        wanted = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1000}
        topics = [{**named, "partitions": [wanted]}]
        peer = connect()
        peer.give(fetch(1, "", version=version, session_epoch=0, topics=topics))
        (frame,) = await peer.answers(1)
        session = answer(FETCH, version, frame)[1].session_id
        assert session
        peer.received.clear()
        await server.node.topic_admin.delete("t")
        peer.give(fetch(2, "", version=version, session_id=session, session_epoch=1, topics=[]))
        gone = await answered(peer, version)
        assert gone.error_code == (UNKNOWN_TOPIC_ID if by_id else UNKNOWN_TOPIC_OR_PARTITION)
        await server.node.topic_admin.create("t", 1, {})
        await write(connect, "t", b"new")
        peer.give(fetch(3, "", version=version, session_id=session, session_epoch=2, topics=[]))
        again = await answered(peer, version)
        if by_id:
            assert again.error_code == UNKNOWN_TOPIC_ID
        else:
            assert [r.value for r in read_batches(again.records)] == [b"new"]

    with_server(steps)


def test_a_producer_by_id_is_told_and_an_idempotent_one_by_name_goes_on() -> None:
    """As with Kafka, a log that knows nothing of a producer takes whichever sequence it is at."""

    async def steps(server: Server, connect: Connect) -> None:
        old = server.node.catalogue.topics["t"].id
        peer = connect()

        def give(sequence: int) -> None:
            peer.give(produce(1, "t", batch=bytes(an_idempotent_batch(sequence))))

        for sequence in range(3):
            give(sequence)
        await peer.answers(3)
        peer.received.clear()
        await create_again(server)
        give(3)
        (frame,) = await peer.answers(1)
        told = answer(PRODUCE, 9, frame)[1].responses[0].partition_responses[0]
        assert (told.error_code, told.base_offset) == (NONE, 0)
        peer.received.clear()
        data = [{"topic_id": old, "partition_data": [{"index": 0, "records": records()}]}]
        peer.give(request(PRODUCE, 13, 1, acks=1, timeout=1000, topic_data=data))
        (frame,) = await peer.answers(1)
        told = answer(PRODUCE, 13, frame)[1].responses[0].partition_responses[0]
        assert told.error_code == UNKNOWN_TOPIC_ID

    with_server(steps)


def test_records_on_their_way_to_the_disk_are_told_that_their_topic_is_gone(tmp_path: Path) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        peer = connect()
        peer.give(produce(1, "t", acks=-1))
        await server.node.topic_admin.delete("t")
        (frame,) = await peer.answers(1)
        told = answer(PRODUCE, 9, frame)[1].responses[0].partition_responses[0]
        assert told.error_code in (NONE, UNKNOWN_TOPIC_OR_PARTITION)

    with_server(steps, config=BrokerConfig(data=str(tmp_path)))


def test_no_group_stands_anywhere_in_the_successor() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
        fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
        committed = await ask(server.node, 8, 8, **fields, topics=[{"name": "t", "partitions": partitions}])
        assert committed.topics[0].partitions[0].error_code == NONE
        await create_again(server)
        found = await ask(server.node, 9, 7, group_id="g", topics=[{"name": "t", "partition_indexes": [0]}])
        assert found.topics[0].partitions[0].committed_offset == -1

    with_server(steps)


def test_who_holds_a_slice_of_the_old_log_reads_it_to_the_end(tmp_path: Path) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await write(connect, "t", b"v" * 200_000)
        partition = server.node.topics.partition("t", 0)
        assert partition is not None
        part = partition.log.read(0, 1 << 20)
        await create_again(server)
        await asyncio.sleep(0)
        assert [r.value for r in read_batches(part.bytes())] == [b"v" * 200_000]

    with_server(steps, config=BrokerConfig(data=str(tmp_path)))


def test_after_a_restart_only_the_successor_is_there(tmp_path: Path) -> None:
    config = BrokerConfig(data=str(tmp_path))

    async def first(server: Server, connect: Connect) -> None:
        await write(connect, "t", *[b"old"] * 5)
        await create_again(server)
        await write(connect, "t", b"new")

    async def second(server: Server, connect: Connect) -> None:
        peer = connect()
        peer.give(fetch(1, "t", 0))
        found = await answered(peer, BY_NAME)
        assert ([r.value for r in read_batches(found.records)], found.high_watermark) == ([b"new"], 1)

    with_server(first, config=config)
    with_server(second, config=config, topics={})
