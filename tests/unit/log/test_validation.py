"""What is asked of the records in a batch before it is appended, compressed or not."""

from __future__ import annotations

import pytest

from millstream.core.config import settings_of
from millstream.core.errors import AppendRefused
from millstream.core.topic_config import TopicConfig
from millstream.log.partition import PartitionLog
from millstream.log.validation import SMALL_RECORDS, CheckOnThread, verdict_of
from millstream.records.batch import read_header, verify
from millstream.records.build import Record, build_batch
from millstream.records.compression import GZIP, LZ4, MAX_DECOMPRESSED, NAMES, NONE, SNAPPY, ZSTD
from tests.support import poison
from tests.support.logs import NOW, contents, open_log

CODECS = pytest.mark.parametrize("codec", range(5), ids=NAMES)
COMPRESSED = pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD], ids=NAMES[1:])
MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, INVALID_RECORD = 10, 32, 87
BOMB = Record(None, bytes(8_000_000), timestamp=NOW)  # a few kilobytes, compressed


@pytest.fixture
def log() -> PartitionLog:
    return open_log()[1]


def refused(log: PartitionLog, batch: bytes | bytearray) -> AppendRefused:
    with pytest.raises(AppendRefused) as raised:
        log.append(bytearray(batch), NOW)
    assert log.end_offset == 0
    return raised.value


@CODECS
@pytest.mark.parametrize("about", poison.BODIES)
def test_records_that_cant_be_read_are_refused(log: PartitionLog, codec: int, about: str) -> None:
    body, count = poison.BODIES[about]
    assert refused(log, poison.batch_of(body, count, codec)).code == INVALID_RECORD


@CODECS
def test_offsets_other_than_those_in_order_are_refused(log: PartitionLog, codec: int) -> None:
    error = refused(log, poison.offsets(0, 2, 1, codec=codec))
    assert error.code == INVALID_RECORD
    assert "record 1 of the batch's 3" in str(error)


@COMPRESSED
def test_what_does_not_decompress_is_refused(log: PartitionLog, codec: int) -> None:
    error = refused(log, poison.with_codec_but_not_compressed(codec))
    assert error.code == INVALID_RECORD
    assert f"{NAMES[codec]} can't be decompressed" in str(error)


@CODECS
def test_a_compacted_topic_names_the_records_without_a_key(codec: int) -> None:
    _, log = open_log(cleanup_policy=("compact",))
    records = [Record(b"k" if n % 2 else None, b"v", timestamp=NOW) for n in range(5)]
    error = refused(log, build_batch(records, codec=codec))
    assert (error.code, error.records) == (INVALID_RECORD, (0, 2, 4))
    assert "0, 2, 4" in str(error)
    log.append(build_batch(records[1:2], codec=codec), NOW)


@CODECS
def test_every_record_has_to_be_in_time_not_only_the_header(log: PartitionLog, codec: int) -> None:
    late = [Record(None, b"v", timestamp=NOW + t) for t in (0, 3_600_001, 3)]
    batch = bytearray(build_batch(late, codec=codec))
    error = refused(log, batch)
    assert (error.code, error.records) == (INVALID_TIMESTAMP, (1,))
    assert "ahead of the broker's clock" in str(error)


@CODECS
def test_with_log_append_time_the_producers_times_do_not_count(codec: int) -> None:
    _, log = open_log(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=1)
    log.append(build_batch([Record(None, b"v", timestamp=NOW + 10**10)], codec=codec), NOW)
    log.append(build_batch([Record(None, b"v", timestamp=5)], codec=codec), NOW)
    log.write_staged()
    assert log.max_timestamp_offset()[1] == NOW


@CODECS
def test_a_wrong_largest_timestamp_is_put_right(log: PartitionLog, codec: int) -> None:
    batch = bytearray(poison.batch_of(poison.PLAIN, codec=codec, max_timestamp=poison.NOW + 99))
    log.append(batch, NOW)
    log.write_staged()
    header = read_header(log.read(0, 1 << 16).bytes())
    assert header.max_timestamp == poison.NOW + 2
    verify(batch, 0, header)
    assert [value for _, value in contents(log)] == [record.value for record in poison.RECORDS]


@COMPRESSED
def test_large_records_are_left_to_a_thread_whose_verdict_counts(log: PartitionLog, codec: int) -> None:
    records = [Record(None, bytes(SMALL_RECORDS), timestamp=NOW), Record(None, b"x", timestamp=NOW)]
    batch = build_batch(records, codec=codec)
    with pytest.raises(CheckOnThread):
        log.append(batch, NOW)
    assert log.end_offset == 0
    verdict = verdict_of(batch, log.rules, NOW)
    assert log.append(batch, NOW, verdict=verdict).base_offset == 0
    assert log.end_offset == 2


@COMPRESSED
def test_a_bomb_is_refused_at_the_topics_limit(codec: int) -> None:
    _, log = open_log(millstream_max_decompressed_bytes=1_048_576, cleanup_policy=("compact",))
    batch = build_batch([BOMB], codec=codec)
    with pytest.raises(CheckOnThread):
        log.append(batch, NOW)
    error = verdict_of(batch, log.rules, NOW).refused
    assert error is not None
    assert error.code == MESSAGE_TOO_LARGE
    assert "millstream.max.decompressed.bytes" in str(error)
    with pytest.raises(AppendRefused):
        log.append(batch, NOW, verdict=verdict_of(batch, log.rules, NOW))


def test_uncompressed_batches_never_need_a_thread(log: PartitionLog) -> None:
    log.append(build_batch([Record(None, bytes(1_000_000), timestamp=NOW)], codec=NONE), NOW)
    assert log.end_offset == 1


def test_no_topic_takes_what_readers_refuse() -> None:
    assert settings_of(TopicConfig)["millstream.max.decompressed.bytes"].at_most == MAX_DECOMPRESSED
