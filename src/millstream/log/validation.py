"""Checks whether the records of a client's batch may be appended, as Kafka's LogValidator does.

A batch whose records can't be read would stop every reader at its offset for good, so it is refused:

- Records, fields and headers must end where they say. There must be as many records as the header counts,
  with offsets 0, 1, 2 and so on (INVALID_RECORD).
- In a compacted topic every record must have a key (INVALID_RECORD, with the numbers of those that have
  none).
- With CreateTime, timestamps must be within ``message.timestamp.before.max.ms`` and ``.after.max.ms``
  (INVALID_TIMESTAMP, likewise).
- Compressed records must decompress to at most ``millstream.max.decompressed.bytes`` (MESSAGE_TOO_LARGE:
  producers that can do so send the records again in smaller batches).

If a header's largest timestamp is not that of its records, it is corrected, as Kafka does: some clients
write the last record's.

Uncompressed batches are checked where they are appended. So are small compressed ones. For larger ones
``check_here`` raises CheckOnThread, and ``verdict_of`` is called on a thread (``topics.batch_preparation``).
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from crc32c import crc32c

from millstream.core.errors import AppendRefused, BatchTooLarge, CorruptBatch
from millstream.core.kafka_errors import INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE
from millstream.core.topic_config import TopicConfig
from millstream.records.batch import (
    CHECKED_FROM,
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    read_header,
    stamp_max_time,
)
from millstream.records.check import FINE, MAX_TIME, NO_KEY, OUT_OF_TIME, REASONS, check
from millstream.records.compression import decompress

# Compressed batches up to this size, with up to this many bytes of records, are checked on the spot. That
# takes about as long as passing them to a thread and back.
SMALL = 16 * 1024
SMALL_RECORDS = 96 * 1024
_TOLD = 100  # refused records of a batch that the response lists
_NAMED = 10  # the ones that its message names
_ANY = 2**62  # milliseconds; the sum with a clock's still fits in 64 bits


class CheckOnThread(Exception):
    """The batch is too large to be decompressed on the server's loop."""


class RecordRules(NamedTuple):
    """What a topic's settings require of records."""

    needs_keys: bool
    before_ms: int
    after_ms: int
    max_decompressed: int


def rules_of(config: TopicConfig) -> RecordRules:
    stamps_time = config.message_timestamp_type == "LogAppendTime"  # then the producer's do not count
    return RecordRules(
        "compact" in config.cleanup_policy,
        _ANY if stamps_time else min(config.message_timestamp_before_max_ms, _ANY),
        _ANY if stamps_time else min(config.message_timestamp_after_max_ms, _ANY),
        config.millstream_max_decompressed_bytes,
    )


class Verdict(NamedTuple):
    """The result of a check: the batch's largest timestamp, or why it is refused."""

    max_timestamp: int = NO_TIMESTAMP
    refused: AppendRefused | None = None


def abide_by(verdict: Verdict, records: bytearray | memoryview) -> int:
    """The largest timestamp of a batch, corrected in its header if needed. Raises AppendRefused."""
    if verdict.refused is not None:
        raise verdict.refused
    if verdict.max_timestamp != read_header(records).max_timestamp:
        stamp_max_time(records, 0, len(records), verdict.max_timestamp)
    return verdict.max_timestamp


def check_here(records: Buffer, rules: RecordRules, now_ms: int) -> Verdict:
    """The verdict on a compressed batch. Raises CheckOnThread if a thread should check it."""
    if len(records) > SMALL:
        raise CheckOnThread
    try:
        return _decompressed(records, rules, now_ms, min(SMALL_RECORDS, rules.max_decompressed))
    except BatchTooLarge:
        raise CheckOnThread from None


def verdict_of(records: Buffer, rules: RecordRules, now_ms: int) -> Verdict:
    """The verdict on any compressed batch, for a thread."""
    try:
        return _decompressed(records, rules, now_ms, rules.max_decompressed)
    except BatchTooLarge:
        return Verdict(
            refused=AppendRefused(
                MESSAGE_TOO_LARGE,
                f"the batch has more than {rules.max_decompressed} bytes of records when decompressed; send "
                "smaller batches, or raise millstream.max.decompressed.bytes",
            )
        )


def _decompressed(records: Buffer, rules: RecordRules, now_ms: int, max_size: int) -> Verdict:
    """Check a compressed batch. Faults of its header or checksum are not reported here: an append checks
    those itself."""
    if len(records) < HEADER_SIZE:
        return Verdict()
    header = read_header(records)
    if crc32c(memoryview(records)[CHECKED_FROM:]) != header.crc:
        return Verdict()
    try:
        body = decompress(header.codec, memoryview(records)[HEADER_SIZE:], max_size)
    except BatchTooLarge:
        raise
    except CorruptBatch as problem:
        return Verdict(refused=AppendRefused(INVALID_RECORD, problem.reason))
    return _verdict(body, 0, header, rules, now_ms)


def verdict_of_plain(records: Buffer, rules: RecordRules, now_ms: int) -> Verdict:
    """The verdict on an uncompressed batch in which ``check`` found a fault."""
    return _verdict(records, HEADER_SIZE, read_header(records), rules, now_ms)


def _verdict(body: Buffer, start: int, header: BatchHeader, rules: RecordRules, now_ms: int) -> Verdict:
    asked = (
        header.record_count,
        header.base_timestamp,
        header.max_timestamp,
        now_ms - rules.before_ms,
        now_ms + rules.after_ms,
        rules.needs_keys,
    )
    if check(body, start, *asked) == FINE:
        return Verdict(header.max_timestamp)
    details = array("q", bytes(8 * (2 + _TOLD)))
    fault = check(body, start, *asked, details)
    if fault == MAX_TIME:
        return Verdict(details[1])
    rows = tuple(details[2 : 2 + details[0]]) if fault in (NO_KEY, OUT_OF_TIME) else ()
    if fault == NO_KEY:
        message = f"a compacted topic accepts only records with keys; without a key: {_numbers(rows)}"
        return Verdict(refused=AppendRefused(INVALID_RECORD, message, rows))
    if fault == OUT_OF_TIME:
        message = f"{_out_of_time(details[1], rules, now_ms)}; out of time: {_numbers(rows)}"
        return Verdict(refused=AppendRefused(INVALID_TIMESTAMP, message, rows))
    message = f"record {details[0]} of the batch's {header.record_count}: {REASONS[fault]}"
    return Verdict(refused=AppendRefused(INVALID_RECORD, message))


def _numbers(rows: tuple[int, ...]) -> str:
    more = ", ..." if len(rows) > _NAMED else ""
    return f"{', '.join(map(str, rows[:_NAMED]))}{more} (counted from 0 in the batch)"


def _out_of_time(latest: int, rules: RecordRules, now_ms: int) -> str:
    if latest - now_ms > rules.after_ms:
        return (
            f"timestamp {latest} is {latest - now_ms} ms ahead of the broker's clock, "
            f"message.timestamp.after.max.ms is {rules.after_ms}"
        )
    return (
        f"timestamps before {now_ms - rules.before_ms} are too far behind the broker's clock, "
        f"message.timestamp.before.max.ms is {rules.before_ms}"
    )
