"""Requests prepared as bytes, sent over plain sockets: a client light enough to see the server behind it."""

from __future__ import annotations

import select
import socket
import struct
import time

from bench.servers import Server
from millstream.records.build import Record, build_batch
from millstream.wire.codec.schema_codec import request_writer

PRODUCE, FETCH = 0, 1
PRODUCE_VERSION, FETCH_VERSION = 10, 12  # what librdkafka and the Java clients of today speak, flexible both


def frame(api_key: int, version: int, fields: dict[str, object], correlation_id: int = 7) -> bytes:
    body = bytearray()
    request_writer(api_key, version)(body, fields)
    head = struct.pack(">hhih", api_key, version, correlation_id, 5) + b"bench" + b"\0"
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce_frame(topic: str, *, acks: int, size: int = 100, partition: int = 0) -> bytes:
    """A Produce of one record."""
    now = time.time_ns() // 1_000_000
    batch = build_batch([Record(key=None, value=bytes(size), timestamp=now)])
    data = {"index": partition, "records": bytes(batch)}
    return frame(
        PRODUCE,
        PRODUCE_VERSION,
        {"acks": acks, "timeout": 30_000, "topic_data": [{"name": topic, "partition_data": [data]}]},
    )


def fetch_frame(topic: str, offset: int, *, max_wait_ms: int = 500, max_bytes: int = 1_048_576) -> bytes:
    wanted = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": max_bytes,
        "current_leader_epoch": -1,
    }
    return frame(
        FETCH,
        FETCH_VERSION,
        {
            "replica_id": -1,
            "max_wait": max_wait_ms,
            "min_bytes": 1,
            "max_bytes": max_bytes,
            "session_epoch": -1,
            "topics": [{"topic": topic, "partitions": [wanted]}],
            "rack_id": "",
        },
    )


def connect(server: Server) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def receive_answer(connection: socket.socket) -> bytes:
    """One whole answer, its length prefix included."""
    data = bytearray()
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        part = connection.recv(65536)
        if not part:
            raise ConnectionError("the server closed the connection")
        data += part
    return bytes(data)


def error_code_of(answer: bytes) -> int:
    """The error code in a (flexible) Produce answer of one partition."""
    at = 4 + 4 + 1 + 1  # length, correlation id, header tags, topics
    at += 1 + answer[at] - 1 + 1 + 4  # name, partitions, index
    return int.from_bytes(answer[at : at + 2], "big", signed=True)


def pump(server: Server, request: bytes, *, count: int, connections: int, in_flight: int) -> float:
    """Send ``count`` equal requests, each connection with ``in_flight`` unanswered at most; seconds taken.

    Answers to equal requests have equal sizes, so they are counted by bytes.
    """
    sockets = [connect(server) for _ in range(connections)]
    try:
        answer = b""
        for connection in sockets:  # warms each connection up, and learns the answer's size
            connection.sendall(request)
            answer = receive_answer(connection)
        if error_code := error_code_of(answer) if request[4:6] == b"\0\0" else 0:
            raise RuntimeError(f"{server.name} answers with error {error_code}")
        size = len(answer)
        if connections == 1:
            return _pump_one(sockets[0], request, size, count, in_flight)
        poll = select.epoll()
        state: dict[int, list[int]] = {}  # fd: [bytes of a partial answer, requests still to send]
        by_fd = {connection.fileno(): connection for connection in sockets}
        share = count // connections
        received = bytearray(65536)  # one for all: a client that allocates is what gets measured
        burst = [request * number for number in range(in_flight * 2 + 1)]
        start = time.perf_counter()
        for fd, connection in by_fd.items():
            poll.register(fd, select.EPOLLIN)
            first = min(in_flight, share)
            state[fd] = [0, share - first]
            connection.sendall(burst[first])
        answered, total = 0, share * connections
        while answered < total:
            for fd, _ in poll.poll(30):
                connection, mine = by_fd[fd], state[fd]
                got = connection.recv_into(received)
                if not got:
                    raise ConnectionError("the server closed the connection")
                whole, mine[0] = divmod(mine[0] + got, size)
                answered += whole
                more = min(whole, mine[1])
                if more:
                    mine[1] -= more
                    connection.sendall(burst[more])
        return time.perf_counter() - start
    finally:
        for connection in sockets:
            connection.close()


def _pump_one(connection: socket.socket, request: bytes, size: int, count: int, in_flight: int) -> float:
    """The same over one connection, which needs no poll: what the client does not do, it does not hide."""
    received = bytearray(65536)
    burst = [request * number for number in range(in_flight + 1)]
    connection.settimeout(None)
    start = time.perf_counter()
    connection.sendall(burst[min(in_flight, count)])
    unsent, unanswered, partial = count - min(in_flight, count), count, 0
    while unanswered:
        got = connection.recv_into(received)
        if not got:
            raise ConnectionError("the server closed the connection")
        whole, partial = divmod(partial + got, size)
        unanswered -= whole
        more = whole if whole < unsent else unsent
        if more:
            unsent -= more
            connection.sendall(burst[more])
    return time.perf_counter() - start
