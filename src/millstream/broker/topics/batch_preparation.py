"""Prepare batches before the append: check compressed records, and recompress with the topic's codec.

A topic's codec is its ``compression.type``. Both steps have to decompress. Small batches are checked on the
event loop. Everything else goes to a thread, on a copy of the request. The connection is not read from in
the meantime, so a client's batches keep their order. The memory that this takes is bounded: the size of a
decompressed batch is limited (``millstream.max.decompressed.bytes``), and at most ``THREADS`` batches are
decompressed at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import NamedTuple

from millstream.broker.topics.partition import LocalTopic
from millstream.broker.topics.threads import Threads
from millstream.core.errors import CorruptBatch
from millstream.core.loop_slices import MANY, sliced
from millstream.core.topic_config import TopicConfig
from millstream.log.validation import (
    CheckOnThread,
    RecordRules,
    Verdict,
    check_here,
    verdict_of,
    verdict_of_plain,
)
from millstream.records.batch import CHECKED_FROM, CODEC_MASK, HEADER_SIZE, MAGIC, read_header
from millstream.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from millstream.records.recompress import Target, recompressed
from millstream.wire.frame import TopicKey
from millstream.wire.hot.produce import PartitionRecords, ProduceRequest

THREADS = 2
_PATIENCE = 1.0  # seconds that work in progress gets when the broker stops
_CODEC_AT = CHECKED_FROM + 1  # the low byte of the attributes


class BatchToPrepare(NamedTuple):
    """A batch in a request's buffer, its topic's rules, and the codec to convert it to, if another."""

    start: int
    end: int
    rules: RecordRules
    target: Target | None


class PreparedBatch(NamedTuple):
    """The verdict on a batch, and the batch recompressed if its topic has another codec."""

    verdict: Verdict | None = None
    records: bytearray | None = None


PreparedBatches = Mapping[int, PreparedBatch]  # by the position at which a batch starts


def target_of(config: TopicConfig) -> Target | None:
    """The codec in which a topic's batches are stored; None to keep the producer's."""
    match config.compression_type:
        case "gzip":
            return Target(GZIP, config.compression_gzip_level)
        case "lz4":
            return Target(LZ4, config.compression_lz4_level)
        case "zstd":
            return Target(ZSTD, config.compression_zstd_level)
        case "snappy":
            return Target(SNAPPY)
        case "uncompressed":
            return Target(NONE)
    return None


def wanted_of(
    request: ProduceRequest, hosted: Mapping[TopicKey, LocalTopic], view: memoryview
) -> list[BatchToPrepare]:
    """The batches of a request that have to be decompressed or compressed."""
    found = []
    for key, wanted in request.topics if len(request.topics) < MANY else sliced(request.topics):
        topic = hosted.get(key)
        if topic is None:
            continue
        for index, _, start, end in wanted if len(wanted) < MANY else sliced(wanted):
            if end - start < HEADER_SIZE or not 0 <= index < len(topic.partitions):
                continue  # the append refuses it
            codec = view[start + _CODEC_AT] & CODEC_MASK
            target = topic.kept_as
            if target is not None and target.codec == codec:
                target = None
            if codec or target is not None:
                found.append(BatchToPrepare(start, end, topic.partitions[index].log.rules, target))
    return found


def prepare_here(view: memoryview, wants: list[BatchToPrepare], now_ms: int) -> PreparedBatches | None:
    """Prepare the batches at once; None if they need a thread."""
    if any(want.target is not None for want in wants):
        return None
    try:
        return {
            start: PreparedBatch(check_here(view[start:end], rules, now_ms))
            for start, end, rules, _ in sliced(wants)
        }
    except CheckOnThread:
        return None


class BatchPreparer:
    """Runs preparation on threads. Its methods are called on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = Threads(THREADS, "millstream-prepare")
        self._under_way = 0

    @property
    def is_idle(self) -> bool:
        return self._under_way == 0

    def prepare(
        self,
        frame: bytearray,
        request: ProduceRequest,
        shift: int,
        wants: list[BatchToPrepare],
        now_ms: int,
        done: Callable[[Future[tuple[ProduceRequest, PreparedBatches]]], None],
    ) -> None:
        """Prepare a request's batches on a thread.

        ``frame`` is a copy of the buffer that the request was read into, from position ``shift`` on.
        ``done`` is called with the request as positioned in ``frame`` and its prepared batches, or with
        the exception.
        """
        self._under_way += 1

        def found(future: Future[tuple[ProduceRequest, PreparedBatches]]) -> None:
            self._loop.call_soon_threadsafe(ended, future)

        def ended(future: Future[tuple[ProduceRequest, PreparedBatches]]) -> None:
            self._under_way -= 1
            done(future)

        self._threads.submit(_prepare, frame, request, shift, wants, now_ms).add_done_callback(found)

    def close(self) -> None:
        self._threads.close(_PATIENCE)


def _prepare(
    frame: bytearray, request: ProduceRequest, shift: int, wants: list[BatchToPrepare], now_ms: int
) -> tuple[ProduceRequest, PreparedBatches]:
    with memoryview(frame) as view:
        prepared = {
            want.start - shift: _ready(view[want.start - shift : want.end - shift], want, now_ms)
            for want in wants
        }
    topics = [
        (
            key,
            [
                PartitionRecords(index, at - shift, start - shift, end - shift)
                for index, at, start, end in wanted
            ],
        )
        for key, wanted in request.topics
    ]
    return request._replace(topics=topics), prepared


def _ready(batch: memoryview, want: BatchToPrepare, now_ms: int) -> PreparedBatch:
    header = read_header(batch)
    if header.magic != MAGIC or header.size != len(batch):
        return PreparedBatch()  # it is not a batch, and the append refuses it
    verdict = (verdict_of if header.codec else verdict_of_plain)(batch, want.rules, now_ms)
    if want.target is None or verdict.refused is not None:
        return PreparedBatch(verdict)
    try:
        records = recompressed(batch, header, want.target, want.rules.max_decompressed)
    except CorruptBatch:
        return PreparedBatch(verdict)  # its checksum is wrong, and the append reports it
    return PreparedBatch(verdict, records)
