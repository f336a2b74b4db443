"""Makes batches and logs for tests, and reads what a log holds."""

from __future__ import annotations

import dataclasses
from typing import Any

from millstream.core.clock import ManualClock
from millstream.core.errors import LogError
from millstream.core.kafka_errors import CORRUPT_MESSAGE
from millstream.core.topic_config import TopicConfig
from millstream.log.directory import LogDirectory
from millstream.log.partition import PartitionLog
from millstream.log.storage.files import Files
from millstream.log.storage.memory import MemoryFiles
from millstream.records.batch import batches
from millstream.records.build import Record, build_batch, read_batches

NOW = 1_700_000_000_000
TOPIC = "t"


def a_batch(*values: bytes, at: int = NOW, keys: bool = True, **options: Any) -> bytearray:
    """A batch of records with these values; a single b"x" if none are given."""
    return build_batch(
        [Record(b"k" if keys else None, value, timestamp=at) for value in values or (b"x",)], **options
    )


def an_idempotent_batch(sequence: int, *values: bytes, producer: int = 7, epoch: int = 0) -> bytearray:
    return a_batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def a_transactional_batch(
    sequence: int, *values: bytes, producer: int = 7, epoch: int = 0, at: int = NOW
) -> bytearray:
    names = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
    return a_batch(*values, at=at, transactional=True, **names)


def settings(**changes: Any) -> TopicConfig:
    return dataclasses.replace(TopicConfig(), **changes)


def open_log(
    files: Files | None = None, clock: ManualClock | None = None, **changes: Any
) -> tuple[LogDirectory, PartitionLog]:
    """A log directory, and the log of its only partition."""
    directory = LogDirectory.open("/data", files=files or MemoryFiles(), clock=clock or ManualClock(NOW))
    return directory, directory.open_log(TOPIC, 0, settings(**changes))


def reopen(files: Files, *, clock: ManualClock | None = None, **changes: Any) -> PartitionLog:
    """The log that a new process finds after the last one was killed or closed."""
    return open_log(files, clock, **changes)[1]


def append(log: PartitionLog, *values: bytes, at: int = NOW, now: int | None = None) -> int:
    """Append a batch, write it to the file, and return its base offset."""
    offset = log.append(a_batch(*values, at=at), at if now is None else now).base_offset
    log.write_staged()
    return offset


def contents(log: PartitionLog, start: int | None = None) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every readable record, in order. Damaged batches are left out."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset if start is None else start
    while offset < log.written_offset:
        try:
            read = log.read(offset, 1 << 16)
        except LogError as error:
            if error.code != CORRUPT_MESSAGE:
                raise
            offset = next(d.next_offset for d in log.damage if d.first_offset <= offset < d.next_offset)
            continue
        data = read.bytes()
        found += [(record.offset, record.value) for record in read_batches(data) if record.offset >= offset]
        before, offset = offset, max((header.next_offset for _, header in batches(data)), default=offset)
        if offset == before:
            break
    return found
