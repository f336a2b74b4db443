"""Append, read and look-up by time do not get slower as a log grows longer."""

from __future__ import annotations

import statistics
import struct
import time
from collections.abc import Iterator

from bench import raw
from bench.rounds import Figure
from bench.servers import Server, millstream
from bench.topics import fresh_topic
from millstream.wire.codec import answer_reader

SEGMENT = 1_048_576
LIST_OFFSETS = 2


def fill(server: Server, topic: str, segments: int) -> int:
    """Append until the log has about so many segments; the number of batches."""
    request = raw.produce_frame(topic, acks=1, size=16_000)
    count = segments * SEGMENT // 16_100
    raw.pump(server, request, count=count, connections=1, in_flight=5)
    return count


def per_request(server: Server, requests: list[bytes]) -> float:
    """Median microseconds of a request, one at a time."""
    connection = raw.connect(server)
    times = []
    for request in requests:
        start = time.perf_counter()
        connection.sendall(request)
        raw.receive_answer(connection)
        times.append(time.perf_counter() - start)
    connection.close()
    return statistics.median(times) * 1e6


def time_lookup(topic: str, timestamp: int) -> bytes:
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    return raw.frame(
        LIST_OFFSETS,
        7,
        {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [wanted]}]},
    )


def offset_at(server: Server, topic: str, timestamp: int) -> int:
    connection = raw.connect(server)
    connection.sendall(time_lookup(topic, timestamp))
    answer = raw.receive_answer(connection)
    connection.close()
    at = 4 + struct.calcsize(">i") + 1
    return int(answer_reader(LIST_OFFSETS, 7)(answer, at)[0].topics[0].partitions[0].offset)


def run(*, quick: bool) -> Iterator[Figure]:
    lengths = (1, 10, 30) if quick else (1, 10, 100)
    seen: dict[str, list[float]] = {"append": [], "read": [], "look-up by time": []}
    with millstream() as server:
        for segments in lengths:
            topic = fresh_topic(server, segment_bytes=str(SEGMENT), index_interval_bytes="4096")
            count = fill(server, topic, segments)
            end = offset_at(server, topic, -1)
            assert end >= count, f"{end} records where {count} were sent"
            times = 2000
            seen["append"].append(per_request(server, [raw.produce_frame(topic, acks=1)] * times))
            reads = [
                raw.fetch_frame(topic, number * 7919 % count, max_bytes=16_384) for number in range(times)
            ]
            seen["read"].append(per_request(server, reads))
            now = time.time_ns() // 1_000_000
            looks = [time_lookup(topic, now - number * 13 % 2000) for number in range(times)]
            seen["look-up by time"].append(per_request(server, looks))
    for what, values in seen.items():
        shape = f"{what}: {lengths[-1]} segments (ours) against {lengths[0]}"
        ratio = values[-1] / values[0]
        yield Figure(
            "history", shape, "µs", values[-1], values[0], False, "≤ 1.3x", ratio <= 1.3,
            rounds={str(length): [value] for length, value in zip(lengths, values, strict=True)},
            note="second column: the same broker with one segment",
        )  # fmt: skip
