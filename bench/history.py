"""What a log's length costs: start, memory, append, read and look-up by time, with one, ten and a hundred
gigabytes kept; and the same in many small segments. None of it may grow with the length."""

from __future__ import annotations

import statistics
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import raw
from bench.rounds import Figure
from bench.servers import Server, millstream, settle
from bench.sparse import BATCH, write_history
from bench.topics import fresh_topic
from millstream.wire.codec.schema_codec import answer_reader

SEGMENT = 1_048_576
LIST_OFFSETS = 2
DAY_MS = 86_400_000


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


def in_segments(segments: int, times: int) -> dict[str, float]:
    """Microseconds of each kind of request, on a log of so many small segments."""
    with millstream() as server:
        topic = fresh_topic(server, segment_bytes=str(SEGMENT), index_interval_bytes="4096")
        count = fill(server, topic, segments)
        end = offset_at(server, topic, -1)
        assert end >= count, f"{end} records where {count} were sent"
        reads = [raw.fetch_frame(topic, number * 7919 % count, max_bytes=16_384) for number in range(times)]
        now = time.time_ns() // 1_000_000
        looks = [time_lookup(topic, now - number * 13 % 2000) for number in range(times)]
        return {
            "append": per_request(server, [raw.produce_frame(topic, acks=1)] * times),
            "read": per_request(server, reads),
            "look-up by time": per_request(server, looks),
        }


def with_gigabytes(gigabytes: int, times: int) -> dict[str, float]:
    """Start, memory, rates and microseconds of a broker that keeps so much in one partition."""
    now = time.time_ns() // 1_000_000
    with tempfile.TemporaryDirectory(prefix="millstream-bench-") as scratch:
        data = Path(scratch) / "data"
        with millstream(data=data) as server:
            topic = fresh_topic(
                server, retention_ms="-1", segment_ms=str(1 << 62), segment_bytes=str(1 << 30)
            )
        records = write_history(data / f"{topic}-0", gigabytes, newest_ms=now)
        start = time.perf_counter()
        with millstream(data=data) as server:
            seen = {"start": time.perf_counter() - start}
            settle(server)
            end = offset_at(server, topic, -1)
            assert end == records, f"{end} records where {records} were written"
            seen["memory"] = server.resident_mb()
            append = raw.produce_frame(topic, acks=1)
            seconds = raw.pump(server, append, count=times * 5, connections=1, in_flight=5)
            seen["produce"] = times * 5 / seconds
            tail = raw.fetch_frame(topic, records, max_bytes=16_384)
            seconds = raw.pump(server, tail, count=times * 5, connections=1, in_flight=5)
            seen["fetch"] = times * 5 / seconds
            reads = [raw.fetch_frame(topic, n * 7919 % records, max_bytes=BATCH) for n in range(times // 4)]
            seen["read"] = per_request(server, reads)
            looks = [time_lookup(topic, now - n % gigabytes * DAY_MS) for n in range(times)]
            seen["look-up by time"] = per_request(server, looks)
        return seen


GIGABYTES = {
    "start": ("ready after a clean shutdown", "s"),
    "memory": ("resident when idle", "MB"),
    "produce": ("one-record appends", "requests/s"),
    "fetch": ("reads of the newest", "requests/s"),
    "read": ("a read of one batch of 1 MB anywhere", "µs"),
    "look-up by time": ("a look-up by time", "µs"),
}


def run(*, quick: bool) -> Iterator[Figure]:
    times = 400 if quick else 2000
    sizes = (1, 4) if quick else (1, 10, 100)
    by_size = {size: with_gigabytes(size, times) for size in sizes}
    for key, (what, unit) in GIGABYTES.items():
        values = [by_size[size][key] for size in sizes]
        faster = "/s" in unit
        ratio = values[-1] / values[0]
        yield Figure(
            "history", f"{what}: {sizes[-1]} GB kept (ours) against {sizes[0]} GB", unit,
            values[-1], values[0], faster,
            "≥ 0.8x" if faster else "≤ 1.3x", ratio >= 0.8 if faster else ratio <= 1.3,
            rounds={f"{size} GB": [value] for size, value in zip(sizes, values, strict=True)},
            note="gigabytes: valid segments of 1 GB whose records are holes in their files",
        )  # fmt: skip
    lengths = (1, 10, 30) if quick else (1, 10, 100)
    seen = {segments: in_segments(segments, times) for segments in lengths}
    for what in seen[lengths[0]]:
        values = [seen[segments][what] for segments in lengths]
        ratio = values[-1] / values[0]
        yield Figure(
            "history", f"{what}: {lengths[-1]} segments of 1 MB (ours) against {lengths[0]}", "µs",
            values[-1], values[0], False, "≤ 1.3x", ratio <= 1.3,
            rounds={str(length): [value] for length, value in zip(lengths, values, strict=True)},
        )  # fmt: skip
