"""One connection: frames in any pieces, answers in order, bounds."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from millstream.broker.net.buffers import FIRST
from millstream.broker.server import Server
from millstream.core.config import BrokerConfig
from millstream.log.producers import Producers
from tests.support.disk import SimulatedDisk
from tests.support.fake_peer import FakePeer, with_server
from tests.support.logs import a_transactional_batch
from tests.support.wire_client import (
    API_VERSIONS,
    CREATE_TOPICS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    answer,
    fetch,
    produce,
    records,
    request,
)

Connect = Callable[[], FakePeer]
INIT_PRODUCER_ID = 22
STORAGE_ERROR = 56


def ids(frames: list[bytes]) -> list[int]:
    return [int.from_bytes(frame[:4], "big") for frame in frames]


# A conversation in which each kind of handling follows each other.
CONVERSATION = [
    (API_VERSIONS, 3, request(API_VERSIONS, 3, 1, client_software_name="c", client_software_version="1")),
    (PRODUCE, 9, produce(2, "t")),
    (PRODUCE, 9, produce(3, "t")),
    (METADATA, 12, request(METADATA, 12, 4, topics=[{"name": "t"}])),
    (PRODUCE, 7, produce(5, "t", version=7)),
    (FETCH, 12, fetch(6, "t")),
    (PRODUCE, 9, produce(7, "t", 0, 1)),
    (FETCH, 4, fetch(8, "t", version=4)),
    (LIST_OFFSETS, 7, request(LIST_OFFSETS, 7, 9, topics=[
        {"name": "t", "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}]}
    ])),
    (PRODUCE, 9, produce(10, "t", acks=-1)),
    (API_VERSIONS, 0, request(API_VERSIONS, 0, 11)),
]  # fmt: skip


def check_conversation(received: list[bytes], first_offset: int = 0) -> None:
    assert ids(received) == list(range(1, len(CONVERSATION) + 1))
    offsets = []
    for (api_key, version, _), frame in zip(CONVERSATION, received, strict=True):
        _, parsed = answer(api_key, version, frame)
        if api_key == PRODUCE:
            for partition in parsed.responses[0].partition_responses:
                assert partition.error_code.value == 0
                if partition.index == 0:
                    offsets.append(partition.base_offset)
        if api_key == LIST_OFFSETS:
            assert parsed.topics[0].partitions[0].offset == first_offset + 4
    assert offsets == [first_offset + n for n in range(5)]


def test_requests_that_arrive_together_are_answered_in_order() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        peer = connect()
        peer.give(b"".join(data for _, _, data in CONVERSATION))
        check_conversation(await peer.answers(len(CONVERSATION)))

    with_server(steps)


def test_a_request_may_arrive_split_at_any_byte() -> None:
    stream = b"".join(data for _, _, data in CONVERSATION)

    async def steps(server: Server, connect: Connect) -> None:
        for number, cut in enumerate(range(1, len(stream))):
            peer = connect()
            peer.give(stream[:cut])
            await peer.send(stream[cut:])
            check_conversation(await peer.answers(len(CONVERSATION)), 5 * number)
            assert server.shared.buffers.used == 0
            peer.close()

    with_server(steps)


def test_a_request_may_arrive_byte_by_byte() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        peer = connect()
        for byte in b"".join(data for _, _, data in CONVERSATION):
            await peer.send(bytes([byte]))
        check_conversation(await peer.answers(len(CONVERSATION)))

    with_server(steps)


def test_an_answer_that_is_ready_waits_for_those_asked_for_before_it() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        reader, writer = connect(), connect()
        reader.give(fetch(1, "t", wait=20_000) + request(API_VERSIONS, 0, 2) + produce(3, "t", 1))
        await asyncio.sleep(0.05)
        reader.take()
        assert not reader.received
        writer.give(produce(9, "t"))
        assert ids(await reader.answers(3)) == [1, 2, 3]

    with_server(steps)


def test_a_request_takes_effect_before_the_next_one_is_looked_at() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        peer = connect()
        creation = request(
            CREATE_TOPICS,
            7,
            1,
            topics=[{"name": "new", "num_partitions": 1, "replication_factor": 1}],
            timeout=5000,
        )
        peer.give(creation + produce(2, "new") + produce(3, "new"))
        received = await peer.answers(3)
        assert ids(received) == [1, 2, 3]
        partition = answer(PRODUCE, 9, received[2])[1].responses[0].partition_responses[0]
        assert (partition.error_code.value, partition.base_offset) == (0, 1)

    with_server(steps)


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    config = BrokerConfig(connection_max_unsent_bytes=50_000)
    batch = records(b"v" * 20_000)
    count = 400

    async def steps(server: Server, connect: Connect) -> None:
        writer = connect()
        writer.give(produce(0, "t", batch=batch))
        await writer.answers(1)
        peer = connect()
        sent = 0
        while sent < count and peer.transport.is_reading_now:
            peer.give(fetch(sent, "t"))
            sent += 1
            await asyncio.sleep(0)
        assert sent < count, "the server took more requests than it can have sent answers for"
        assert peer.connection.outbox.unsent < 50_000 + 2 * len(batch)
        while sent < count:
            peer.take()
            if peer.transport.is_reading_now:
                peer.give(fetch(sent, "t"))
                sent += 1
            await asyncio.sleep(0)
        assert ids(await peer.answers(count)) == list(range(count))

    with_server(steps, config=config)


def test_requests_waiting_behind_a_full_socket_are_bounded_too() -> None:
    """All at once, in one read: those beyond the bound are kept as they came."""
    config = BrokerConfig(connection_max_unsent_bytes=50_000)

    async def steps(server: Server, connect: Connect) -> None:
        writer = connect()
        writer.give(produce(0, "t", batch=records(b"v" * 20_000)))
        await writer.answers(1)
        peer = connect()
        peer.give(b"".join(fetch(n, "t") for n in range(300)))
        await asyncio.sleep(0.01)
        assert peer.connection.outbox.unsent < 100_000
        assert not peer.transport.is_reading_now
        assert ids(await peer.answers(300)) == list(range(300))
        assert peer.transport.is_reading_now

    with_server(steps, config=config)


def test_a_connection_with_too_many_requests_in_flight_is_held() -> None:
    config = BrokerConfig(connection_max_in_flight=3)

    async def steps(server: Server, connect: Connect) -> None:
        peer, writer = connect(), connect()
        peer.give(b"".join(fetch(n, "t", wait=20_000) for n in range(5)))
        assert not peer.transport.is_reading_now
        assert len(server.node.deadlines) == 3
        writer.give(produce(9, "t"))
        assert ids(await peer.answers(5)) == [0, 1, 2, 3, 4]
        assert peer.transport.is_reading_now

    with_server(steps, config=config)


def test_a_large_request_gets_a_buffer_of_its_own_and_gives_it_back() -> None:
    batch = records(b"v" * 900_000)

    async def steps(server: Server, connect: Connect) -> None:
        peer = connect()
        data = produce(1, "t", batch=batch) + produce(2, "t") + produce(3, "t", batch=batch)[:70_000]
        await peer.send(data)
        received = await peer.answers(2)
        assert ids(received) == [1, 2]
        assert 0 < server.shared.buffers.used <= 2 << 20
        peer.close()
        assert server.shared.buffers.used == 0
        assert server.node.topics.partition("t", 0).log.end_offset == 2  # type: ignore[union-attr]

    with_server(steps)


def test_the_size_of_a_request_is_not_believed_before_its_bytes_come() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        peers = [connect() for _ in range(10)]
        for peer in peers:
            peer.give((100_000_000).to_bytes(4, "big") + bytes(100))
        assert server.shared.buffers.used <= 10 * FIRST

    with_server(steps)


def test_memory_for_requests_is_bounded_over_all_connections() -> None:
    config = dataclasses.replace(BrokerConfig(), queued_max_request_bytes=1 << 20)
    whole = produce(1, "t", batch=records(b"v" * 130_000))

    async def steps(server: Server, connect: Connect) -> None:
        peers = [connect() for _ in range(12)]
        for peer in peers:
            peer.give(whole[:100])
            await asyncio.sleep(0)
        reading = [peer for peer in peers if peer.transport.is_reading_now]
        assert 0 < len(reading) < 12
        await asyncio.gather(*(peer.send(whole[100:]) for peer in peers))  # each that ends makes room
        for peer in peers:
            assert ids(await peer.answers(1)) == [1]
        assert server.shared.buffers.used == 0

    with_server(steps, config=config)


def test_clients_that_claim_much_and_stop_are_dropped_when_a_producer_needs_the_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    config = dataclasses.replace(BrokerConfig(), queued_max_request_bytes=1 << 20)
    whole = produce(1, "t", batch=records(b"v" * 600_000))

    async def steps(server: Server, connect: Connect) -> None:
        stalled = [connect() for _ in range(20)]
        for peer in stalled:
            peer.give((100_000_000).to_bytes(4, "big") + bytes(1000))
        assert server.shared.buffers.used <= 1 << 20
        producer = connect()
        sending = asyncio.ensure_future(producer.send(whole))
        for _ in range(5):
            await asyncio.sleep(0.01)
            server.shared.buffers.relieve(server.connections)
        await sending
        assert ids(await producer.answers(1)) == [1]
        assert any(peer.transport.closed for peer in stalled)
        assert server.node.counters.bugs == 0

    with_server(steps, config=config)
    assert "of the 100000004 bytes of a request" in caplog.text


@pytest.mark.parametrize("size", [100, 20_000])
def test_records_that_could_not_be_written_are_not_acknowledged(size: int, tmp_path: Path) -> None:
    disk = SimulatedDisk()

    async def steps(server: Server, connect: Connect) -> None:
        peer = connect()
        peer.give(produce(1, "t"))
        await peer.answers(1)
        disk.room = 0
        peer.give(
            produce(2, "t", batch=records(b"v" * size)) + produce(3, "t", 0, 1) + produce(4, "t", acks=-1)
        )
        received = await peer.answers(4)
        assert ids(received) == [1, 2, 3, 4]
        for frame in received[1:]:
            for partition in answer(PRODUCE, 9, frame)[1].responses[0].partition_responses:
                assert partition.error_code.value == STORAGE_ERROR
                assert partition.base_offset == -1
                assert "space" in partition.error_message or "disk is full" in partition.error_message
        disk.room = None
        server.node.maintenance.look_for_room()
        peer.give(produce(5, "t"))
        _, last = answer(PRODUCE, 9, (await peer.answers(5))[4])
        assert last.responses[0].partition_responses[0].base_offset == 1

    with_server(steps, config=BrokerConfig(data=str(tmp_path)), files=disk)


def test_a_failed_sync_is_no_acknowledgement_either(tmp_path: Path) -> None:
    disk = SimulatedDisk()

    async def steps(server: Server, connect: Connect) -> None:
        peer = connect()
        disk.fail_sync = lambda path: path.endswith(".log")
        peer.give(produce(1, "t", acks=-1))
        partition = answer(PRODUCE, 9, (await peer.answers(1))[0])[1].responses[0].partition_responses[0]
        assert partition.error_code.value == STORAGE_ERROR
        peer.give(produce(2, "t"))
        partition = answer(PRODUCE, 9, (await peer.answers(2))[1])[1].responses[0].partition_responses[0]
        assert partition.error_code.value == STORAGE_ERROR

    with_server(steps, config=BrokerConfig(data=str(tmp_path)), files=disk)


def test_with_flush_messages_1_even_acks_1_waits_for_the_sync(tmp_path: Path) -> None:
    disk = SimulatedDisk()

    async def steps(server: Server, connect: Connect) -> None:
        await server.node.topic_admin.create("synced", 1, {"flush.messages": "1"})
        peer = connect()
        peer.give(produce(1, "synced"))
        partition = answer(PRODUCE, 9, (await peer.answers(1))[0])[1].responses[0].partition_responses[0]
        assert partition.error_code.value == 0
        assert server.node.topics.partition("synced", 0).log.synced_offset == 1
        disk.fail_sync = lambda path: path.endswith(".log")
        peer.give(produce(2, "synced"))
        partition = answer(PRODUCE, 9, (await peer.answers(2))[1])[1].responses[0].partition_responses[0]
        assert partition.error_code.value == STORAGE_ERROR

    with_server(steps, config=BrokerConfig(data=str(tmp_path)), files=disk)


def test_acks_0_gets_no_answer_and_a_refusal_closes_the_connection() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        peer = connect()
        peer.give(produce(1, "t", acks=0) + produce(2, "t", 0, 1, acks=0) + produce(3, "t"))
        received = await peer.answers(1)
        assert ids(received) == [3]
        assert answer(PRODUCE, 9, received[0])[1].responses[0].partition_responses[0].base_offset == 2
        assert not peer.transport.closed
        peer.give(produce(4, "missing", acks=0))
        assert peer.transport.closed

    with_server(steps)


def test_identical_long_polls_are_all_answered_by_one_append() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        readers = [connect() for _ in range(20)]
        for number, reader in enumerate(readers):
            reader.give(fetch(number, "t", wait=20_000, version=4 + number % 9))
        writer = connect()
        writer.give(produce(1, "t", batch=records(b"hello")))
        for number, reader in enumerate(readers):
            (frame,) = await reader.answers(1)
            correlation_id, parsed = answer(FETCH, 4 + number % 9, frame)
            assert correlation_id == number
            assert b"hello" in parsed.responses[0].partitions[0].records
        assert len(server.node.deadlines) == 0
        assert not server.node.topics.partition("t", 0).waiters  # type: ignore[union-attr]

    with_server(steps)


def test_a_readers_next_request_is_read_as_its_first_whatever_changed() -> None:
    """Requests that look alike are recognised; this has each follow each other on one connection."""
    shapes = [(0,), (1,), (0, 1), (1, 0), (0,), (0,)]

    def ask(number: int, version: int, partitions: tuple[int, ...], offset: int) -> bytes:
        wanted = [
            {
                "partition": p,
                "current_leader_epoch": -1,
                "fetch_offset": offset + p,
                "partition_max_bytes": 1 if number % 4 == 3 else 100_000,
            }
            for p in partitions
        ]
        return fetch(number, "t", version=version, topics=[{"topic": "t", "partitions": wanted}])

    async def steps(server: Server, connect: Connect) -> None:
        writer = connect()
        writer.give(b"".join(produce(n, "t", n % 2, batch=records(b"%d" % n)) for n in range(40)))
        await writer.answers(40)
        asked = [
            (version, partitions, offset)
            for version in (4, 5, 9, 11, 12)
            for offset in (0, 5, 12)
            for partitions in shapes
        ]
        one = connect()
        one.give(b"".join(ask(n, *each) for n, each in enumerate(asked)))
        together = await one.answers(len(asked))
        for number, each in enumerate(asked):
            alone = connect()
            alone.give(ask(number, *each))
            assert (await alone.answers(1))[0] == together[number], each
            partitions = answer(FETCH, each[0], together[number])[1].responses[0].partitions
            assert [p.partition_index for p in partitions] == list(each[1])

    with_server(steps)


def test_a_long_poll_waits_for_min_bytes() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        reader, writer = connect(), connect()
        size = len(records())
        reader.give(fetch(1, "t", wait=20_000, min_bytes=2 * size))
        writer.give(produce(1, "t"))
        await writer.answers(1)
        await asyncio.sleep(0.01)
        reader.take()
        assert not reader.received
        writer.give(produce(2, "t"))
        (frame,) = await reader.answers(1)
        assert len(answer(FETCH, 12, frame)[1].responses[0].partitions[0].records) == 2 * size

    with_server(steps)


@pytest.mark.parametrize("bounds", [{"max_bytes": 10}, {"max_bytes": 2**31 - 1, "min_bytes": 2**31 - 1}])
def test_a_long_poll_does_not_wait_for_more_than_it_may_get(bounds: dict[str, int]) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        server.node.config = dataclasses.replace(server.node.config, fetch_max_bytes=1024)
        reader, writer = connect(), connect()
        reader.give(fetch(1, "t", wait=20_000, **({"min_bytes": 10_000} | bounds)))
        for number in range(1 + 1024 // len(records())):
            writer.give(produce(number, "t"))
        (frame,) = await reader.answers(1)
        assert answer(FETCH, 12, frame)[1].responses[0].partitions[0].records

    with_server(steps)


def test_a_long_poll_ends_empty_when_its_time_is_up() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        reader = connect()
        reader.give(fetch(1, "t", wait=30))
        (frame,) = await reader.answers(1)
        assert answer(FETCH, 12, frame)[1].responses[0].partitions[0].records == b""

    with_server(steps)


def test_a_reader_that_leaves_is_not_waited_for() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        reader = connect()
        reader.give(fetch(1, "t", wait=20_000))
        assert len(server.node.deadlines) == 1
        reader.close()
        assert len(server.node.deadlines) == 0
        assert not server.node.topics.partition("t", 0).waiters  # type: ignore[union-attr]

    with_server(steps)


def test_a_long_poll_on_a_topic_that_is_deleted_is_told_so() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        reader = connect()
        reader.give(fetch(1, "t", wait=20_000))
        await server.node.topic_admin.delete("t")
        (frame,) = await reader.answers(1)
        assert answer(FETCH, 12, frame)[1].responses[0].partitions[0].error_code.value == 3

    with_server(steps)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\xff\xff\xff\xff",
        b"\0\0\0\1\0",
        b"\x7f\xff\xff\xff" + bytes(20),
        b"\0\0\0\x0a" + b"\x03\xe7\0\0\0\0\0\1\0\0",
        b"\0\0\0\x0a" + b"\0\3\0\x63\0\0\0\1\0\0",
        b"\0\0\0\x0a" + b"\0\0\0\2\0\0\0\1\0\0",
        b"\0\0\0\x0a" + b"\0\1\0\x13\0\0\0\1\0\0",
        b"\0\0\0\x0a" + b"\0\0\0\x09\0\0\0\1\x7f\xff",
        b"\0\0\0\x0c" + b"\0\3\0\4\0\0\0\1\0\0\xff\xfe",
    ],
)
def test_what_is_not_a_request_costs_its_connection_and_no_other(
    garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        good, bad = connect(), connect()
        bad.give(garbage)
        assert bad.transport.closed
        assert server.node.counters.protocol_errors == 1
        assert server.node.counters.bugs == 0
        good.give(produce(1, "t"))
        assert ids(await good.answers(1)) == [1]

    with_server(steps)
    assert len([r for r in caplog.records if "198.51.100.7:4242" in r.getMessage()]) == 1


@pytest.mark.parametrize(
    "whole",
    [
        produce(1, "t"),
        produce(1, "t", version=3),
        produce(1, "t", 0, 1, transactional_id="bank"),
        fetch(1, "t"),
        fetch(1, "t", version=4),
    ],
    ids=["produce", "produce version 3", "produce with two partitions", "fetch", "fetch version 4"],
)
@pytest.mark.parametrize("known", [False, True], ids=["first", "after one that was whole"])
@pytest.mark.parametrize("pieces", [1, 2])
def test_a_request_that_is_cut_off_anywhere_is_the_clients_fault(
    whole: bytes, known: bool, pieces: int
) -> None:
    """In one piece it lies in the receive buffer, with other bytes after it; in two it has a buffer of its
    own, which may end where it does."""

    async def steps(server: Server, connect: Connect) -> None:
        cuts = range(14, len(whole) - 4)
        for cut in cuts:
            peer = connect()
            if known:
                peer.give(whole)
            short = cut.to_bytes(4, "big") + whole[4 : 4 + cut]
            server.shared.receive_buffer[:] = b"\xff" * len(server.shared.receive_buffer)
            if pieces == 1:
                peer.give(short)
            else:
                exact = bytearray(short)
                peer.connection._hold()
                peer.connection._waiting = exact
                peer.connection.resume_if_possible()
            peer.close()
        assert server.node.counters.bugs == 0

    with_server(steps)


def test_a_produce_that_fails_unexpectedly_leaves_nothing_of_its_transaction_to_the_next_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        transactional, other = connect(), connect()
        transactional.give(
            request(INIT_PRODUCER_ID, 4, 1, transactional_id="bank", transaction_timeout=60_000,
                    producer_id=-1, producer_epoch=-1)
        )  # fmt: skip
        _, identity = answer(INIT_PRODUCER_ID, 4, (await transactional.answers(1))[0])

        def batch(sequence: int) -> bytes:
            producer, epoch = identity.producer_id, identity.producer_epoch
            return bytes(a_transactional_batch(sequence, b"v", producer=producer, epoch=epoch))

        def of_the_bank(sequence: int) -> bytes:
            named = {"version": 12, "transactional_id": "bank", "transaction_timeout": 60_000}
            return produce(2, "t", batch=batch(sequence), **named)

        # The second request of each client goes the short way.
        other.give(produce(3, "t", 1, version=12))
        for sequence in range(2):
            transactional.give(of_the_bank(sequence))
            await transactional.answers(2 + sequence)
        with monkeypatch.context() as patched:
            patched.setattr(Producers, "record", None)
            transactional.give(of_the_bank(2))
        assert transactional.transport.closed
        assert server.node.counters.bugs == 1

        other.give(produce(4, "t", 1, batch=batch(0), version=12))
        _, parsed = answer(PRODUCE, 12, (await other.answers(2))[1])
        assert parsed.responses[0].partition_responses[0].error_code.value == 53

    with_server(steps)
