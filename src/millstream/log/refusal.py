"""Finds out why a batch is refused, with Kafka's error code and a message that says what is wrong.

An append checks everything in one condition. Only if it fails are the checks made one by one, here.
"""

from __future__ import annotations

from millstream.core.errors import AppendRefused
from millstream.core.kafka_errors import (
    INVALID_PRODUCER_EPOCH,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    MESSAGE_TOO_LARGE,
    RECORD_LIST_TOO_LARGE,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from millstream.core.topic_config import TopicConfig
from millstream.records.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_AT,
    NO_PRODUCER_ID,
    TRANSACTIONAL,
    read_header,
)

HIGHEST_CODEC = 4
# The attributes that a producer may send: plain batches, up to HIGHEST_CODEC, and transactional ones.
FROM_PRODUCERS = frozenset(codec | bit for codec in range(HIGHEST_CODEC + 1) for bit in (0, TRANSACTIONAL))
_FROM_CLIENTS = CODEC_MASK | TRANSACTIONAL | CONTROL | LOG_APPEND_TIME


def refusal(records: bytearray | memoryview, config: TopicConfig) -> AppendRefused:
    """What is wrong with the header of these records. Their checksum and contents are checked later
    (``log.validation``)."""
    size = len(records)
    if size < HEADER_SIZE:
        return AppendRefused(
            INVALID_RECORD, f"{size} bytes are not a record batch, which has at least {HEADER_SIZE}"
        )
    magic = records[MAGIC_AT]
    if magic != MAGIC:
        return AppendRefused(
            INVALID_RECORD, f"record format {magic} is not supported, only {MAGIC} is; use a newer client"
        )
    header = read_header(records)
    if HEADER_SIZE <= header.size < size:
        return AppendRefused(
            INVALID_RECORD,
            f"{size} bytes were sent, but the batch has {header.size}: send one batch per partition",
        )
    if header.size != size:
        return AppendRefused(
            INVALID_RECORD, f"the batch should have {header.size} bytes, but {size} were sent"
        )
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
            INVALID_RECORD, f"the batch's base offset is {header.base_offset}, but 0 is expected"
        )
    if header.record_count <= 0 or header.last_offset_delta < 0:
        return AppendRefused(INVALID_RECORD, f"the batch counts {header.record_count} records")
    if header.record_count != header.last_offset_delta + 1:
        return AppendRefused(
            INVALID_RECORD,
            f"the batch counts {header.record_count} records, but its offsets {header.last_offset_delta + 1}",
        )
    if header.codec > HIGHEST_CODEC:
        return AppendRefused(UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {header.codec} is unknown")
    if header.is_control:
        return AppendRefused(INVALID_RECORD, "clients may not write control batches")
    if header.is_transactional and header.producer_id == NO_PRODUCER_ID:
        return AppendRefused(INVALID_RECORD, "a transactional batch has to name its producer")
    if header.attributes & ~_FROM_CLIENTS:
        return AppendRefused(
            INVALID_RECORD, f"the batch's attributes are {header.attributes:#06x}, which are not allowed"
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
    return AppendRefused(
        INVALID_TIMESTAMP, f"timestamps {header.base_timestamp} and {header.max_timestamp} are before 1970"
    )
