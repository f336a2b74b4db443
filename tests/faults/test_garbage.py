"""Bytes that are no requests, thrown at the port: the broker goes on, and its memory stays bounded."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable, Iterator

import pytest

from millstream.broker.api.handlers import HANDLERS
from millstream.wire.codec.schema_codec import request_writer
from tests.support.serve import ServeProcess
from tests.support.wire_client import METADATA, PRODUCE, WireClient, answer, fetch, produce, request

SEEDS = range(4)
CONNECTIONS = 60  # for each seed and kind
SMALL = {"socket.request.max.bytes": "20000000", "queued.max.request.bytes": "30000000"}


@pytest.fixture(scope="module")
def server() -> Iterator[ServeProcess]:
    with ServeProcess(settings=SMALL) as server:
        with WireClient(server.address) as client:
            client.create_topic("t", 2)
        yield server


def still_serves(server: ServeProcess) -> int:
    """Produce a record; its offset."""
    with WireClient(server.address) as client:
        client.send(produce(1, "t", 1))
        partition = answer(PRODUCE, 9, client.receive())[1].responses[0].partition_responses[0]
        assert partition.error_code.value == 0
        offset: int = partition.base_offset
        return offset


def throw(server: ServeProcess, data: bytes) -> None:
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            while connection.recv(1 << 16):
                pass


def requests_of_every_kind() -> list[bytes]:
    """A smallest request of every kind and version served."""
    import millstream.broker.api  # noqa: F401

    found = [produce(n, "t", 0, 1, version=v) for n, v in enumerate(range(3, 13))]
    found += [fetch(n, "t", version=v) for n, v in enumerate(range(4, 13))]
    for key, served in HANDLERS.items():
        for version in range(served.first, served.last + 1):
            with contextlib.suppress(Exception):
                request_writer(key, version)(bytearray(), {})
                found.append(request(key, version, 1))
    return found


def random_bytes(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice([1, 3, 4, 11, 50, 5000, 300_000]))


def random_body(chance: random.Random) -> bytes:
    """A good frame and header of a request that is served, and anything after it."""
    key = chance.choice(list(HANDLERS))
    served = HANDLERS[key]
    version = chance.randint(served.first, served.last)
    body = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\0\1c\0"
    body += chance.randbytes(chance.choice([0, 1, 10, 200, 70_000]))
    return len(body).to_bytes(4, "big") + body


def mutated(chance: random.Random) -> bytes:
    stream = bytearray()
    for _ in range(chance.randint(1, 4)):
        one = bytearray(chance.choice(EVERY_KIND))
        for _ in range(chance.randint(0, 3)):
            at = chance.randrange(len(one))
            change = chance.randrange(4)
            if change == 0:
                one[at] ^= 1 << chance.randrange(8)
            elif change == 1:
                one[at] = chance.choice([0, 0x7F, 0x80, 0xFF])
            elif change == 2:
                del one[at : at + chance.randint(1, 8)]
            else:
                one[at:at] = chance.randbytes(chance.randint(1, 8))
            if not one:
                break
        if chance.random() < 0.7 and len(one) > 4:
            one[:4] = (len(one) - 4).to_bytes(4, "big")
        stream += one
    return bytes(stream)


EVERY_KIND = requests_of_every_kind()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", [random_bytes, random_body, mutated])
def test_the_broker_goes_on(server: ServeProcess, make: Callable[[random.Random], bytes], seed: int) -> None:
    chance = random.Random(f"{make.__name__} {seed}")
    before = still_serves(server)
    for _ in range(CONNECTIONS):
        throw(server, make(chance))
    assert still_serves(server) > before


def test_clients_that_never_finish_a_request_take_no_memory_from_the_others(server: ServeProcess) -> None:
    still_serves(server)
    before = server.resident_kb()
    host, port = server.address.split(":")
    stuck = []
    for _ in range(200):
        connection = socket.create_connection((host, int(port)), timeout=10)
        connection.sendall((19_000_000).to_bytes(4, "big") + b"\0\0\0\x09" + bytes(3000))
        stuck.append(connection)
    still_serves(server)
    assert server.resident_kb() - before < 60_000
    for connection in stuck:
        connection.close()


def test_clients_that_never_read_their_answers_take_no_memory_from_the_others(server: ServeProcess) -> None:
    still_serves(server)
    before = server.resident_kb()
    host, port = server.address.split(":")
    flood = request(METADATA, 12, 1, topics=None) * 2000
    stuck = []
    for _ in range(10):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(10)
        connection.connect((host, int(port)))
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                connection.send(flood)
        stuck.append(connection)
    still_serves(server)
    assert server.resident_kb() - before < 10 * 2_500
    for connection in stuck:
        connection.close()


def test_nothing_of_it_was_a_bug_of_ours_and_the_log_stays_readable() -> None:
    with ServeProcess() as server:
        with WireClient(server.address) as client:
            client.create_topic("t", 2)
        chance = random.Random("log")
        for _ in range(150):
            throw(server, chance.choice([random_bytes, random_body, mutated])(chance))
        code, log = server.stop(), server.logged()
    assert code == 0
    assert "Traceback" not in log
    assert "please report" not in log
    assert len(log.splitlines()) < 60
    assert "closed: it" in log
