"""Why a batch is refused, with Kafka's error code and a message that says what was wrong.

An append asks all of it in one condition; only when that failed are the questions asked one by one, here.
"""

from __future__ import annotations

from millstream.config import TopicConfig
from millstream.errors import AppendRefused, CorruptBatch
from millstream.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    read_header,
)
from millstream.records.keys import first_without_key

CORRUPT_MESSAGE = 2
MESSAGE_TOO_LARGE = 10
RECORD_LIST_TOO_LARGE = 18
INVALID_TIMESTAMP = 32
INVALID_PRODUCER_EPOCH = 47
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87

HIGHEST_CODEC = 4
# What a producer may send: plain batches, with attributes up to HIGHEST_CODEC, and transactional ones.
FROM_PRODUCERS = frozenset(codec | bit for codec in range(HIGHEST_CODEC + 1) for bit in (0, TRANSACTIONAL))
_FROM_CLIENTS = CODEC_MASK | TRANSACTIONAL | CONTROL | LOG_APPEND_TIME


def refusal(records: bytearray | memoryview, config: TopicConfig, now_ms: int) -> AppendRefused:
    """What is wrong with these records, whose checksum is not looked at."""
    size = len(records)
    if size < HEADER_SIZE:
        return AppendRefused(
            INVALID_RECORD, f"{size} bytes are no record batch, which has {HEADER_SIZE} at least"
        )
    magic = records[MAGIC_AT]
    if magic != MAGIC:
        return AppendRefused(
            INVALID_RECORD, f"record format {magic} is not served, only {MAGIC}; use a newer client"
        )
    header = read_header(records)
    if HEADER_SIZE <= header.size < size:
        return AppendRefused(
            INVALID_RECORD,
            f"{size} bytes were sent, the batch has {header.size}: send one batch for a partition",
        )
    if header.size != size:
        return AppendRefused(INVALID_RECORD, f"the batch says it has {header.size} bytes, {size} were sent")
    if size > config.max_message_bytes:
        return AppendRefused(
            MESSAGE_TOO_LARGE, f"the batch has {size} bytes, max.message.bytes is {config.max_message_bytes}"
        )
    if size > config.segment_bytes:
        return AppendRefused(
            RECORD_LIST_TOO_LARGE, f"the batch has {size} bytes, segment.bytes is {config.segment_bytes}"
        )
    if config.millstream_overload == "drop" and size > config.millstream_overload_bytes:
        return AppendRefused(
            RECORD_LIST_TOO_LARGE,
            f"the batch has {size} bytes, millstream.overload.bytes is {config.millstream_overload_bytes}",
        )
    if header.base_offset != 0:
        return AppendRefused(
            INVALID_RECORD, f"the batch's base offset is {header.base_offset}, 0 is expected"
        )
    if header.record_count <= 0 or header.last_offset_delta < 0:
        return AppendRefused(INVALID_RECORD, f"the batch counts {header.record_count} records")
    if header.record_count != header.last_offset_delta + 1:
        return AppendRefused(
            INVALID_RECORD,
            f"the batch counts {header.record_count} records, its offsets {header.last_offset_delta + 1}",
        )
    if header.codec > HIGHEST_CODEC:
        return AppendRefused(UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {header.codec} is not known")
    if header.is_control:
        return AppendRefused(INVALID_RECORD, "clients may not write control batches")
    if header.is_transactional and header.producer_id == NO_PRODUCER_ID:
        return AppendRefused(INVALID_RECORD, "a transactional batch has to name its producer")
    if header.attributes & ~_FROM_CLIENTS:
        return AppendRefused(
            INVALID_RECORD, f"the batch's attributes are {header.attributes:#06x}, which none may have"
        )
    if header.attributes & LOG_APPEND_TIME:
        return AppendRefused(INVALID_TIMESTAMP, "a producer may not set the timestamp type to LogAppendTime")
    if (
        header.producer_id != NO_PRODUCER_ID
        and min(header.producer_id, header.producer_epoch, header.base_sequence) < 0
    ):
        return AppendRefused(
            INVALID_PRODUCER_EPOCH if header.producer_epoch < 0 else INVALID_RECORD,
            f"producer {header.producer_id} sent epoch {header.producer_epoch}, "
            f"sequence {header.base_sequence}: none may be negative",
        )
    return _bad_time(header.base_timestamp, header.max_timestamp, config, now_ms)


def require_keys(records: bytearray | memoryview) -> None:
    """Every record of a compacted topic needs a key. The one check that looks at records."""
    try:
        keyless = first_without_key(records)
    except CorruptBatch as problem:
        raise AppendRefused(CORRUPT_MESSAGE, str(problem)) from None
    if keyless >= 0:
        raise AppendRefused(
            INVALID_RECORD,
            f"record {keyless} of the batch has no key: a compacted topic takes records with keys only",
        )


def _bad_time(first: int, largest: int, config: TopicConfig, now_ms: int) -> AppendRefused:
    if largest < NO_TIMESTAMP or first < NO_TIMESTAMP:
        return AppendRefused(INVALID_TIMESTAMP, f"timestamps {first} and {largest} are before 1970")
    if largest - now_ms > config.message_timestamp_after_max_ms:
        return AppendRefused(
            INVALID_TIMESTAMP,
            f"timestamp {largest} is {largest - now_ms} ms ahead of the broker's clock; "
            f"message.timestamp.after.max.ms is {config.message_timestamp_after_max_ms}",
        )
    return AppendRefused(
        INVALID_TIMESTAMP,
        f"timestamp {first} is {now_ms - first} ms behind the broker's clock; "
        f"message.timestamp.before.max.ms is {config.message_timestamp_before_max_ms}",
    )
