"""How long a log is, when a disk is full, when a reader loses records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.core.horizon import LogGrowth, ReaderPace, TopicRetention, seconds_to_loss, seconds_until_full
from millstream.core.topic_config import TopicConfig

HOUR = 3600.0
MB = 1_000_000


def test_a_log_reaches_back_as_far_as_the_tighter_of_its_two_limits() -> None:
    both = TopicRetention(retention_ms=7_200_000, retention_bytes=100 * MB)
    assert both.kept_seconds(bytes_per_second=0) == 2 * HOUR
    assert both.kept_seconds(bytes_per_second=10_000) == 2 * HOUR
    assert both.kept_seconds(bytes_per_second=MB) == 100
    assert TopicRetention(retention_bytes=MB).kept_seconds(0) is None
    assert TopicRetention().kept_seconds(MB) is None


def test_what_is_only_compacted_has_no_limits() -> None:
    config = TopicConfig(cleanup_policy=("compact",), retention_bytes=1)
    assert TopicRetention.by(config).kept_seconds(1) is None
    assert TopicRetention.of({"cleanup.policy": "compact", "retention.ms": "1"}).kept_seconds(1) is None
    assert (
        TopicRetention.of({"cleanup.policy": "compact,delete", "retention.ms": "1000"}).kept_seconds(1) == 1
    )


def test_a_brokers_own_settings_and_those_it_tells_mean_the_same() -> None:
    config = TopicConfig(retention_ms=5000, retention_bytes=7, segment_bytes=2048, segment_ms=9)
    told = {
        "cleanup.policy": "delete",
        "retention.ms": "5000",
        "retention.bytes": "7",
        "segment.bytes": "2048",
        "segment.ms": "9",
    }
    assert TopicRetention.by(config) == TopicRetention.of(told)


def test_a_ring_is_a_limit_by_size_whatever_retention_says() -> None:
    config = TopicConfig(millstream_overload="drop", millstream_overload_bytes=1_600_000)
    told = {"millstream.overload": "drop", "millstream.overload.bytes": "1600000"}
    kept = {"retention.ms": str(config.retention_ms), "segment.bytes": str(config.segment_bytes)}
    kept |= {"segment.ms": str(config.segment_ms), "retention.bytes": "-1"}
    ring = TopicRetention.by(config)
    assert TopicRetention.of({**told, **kept}) == ring
    # Sixteen segments, of which fourteen are there at any moment; the disk has room for all of them.
    assert ring.kept_seconds(bytes_per_second=100_000) == 14
    assert ring.room(600_000, bytes_per_second=100_000) == 1_000_000
    still = ReaderPace(unread=1000, unread_bytes=1_000_000, age=10.0, behind=10.0, written_per_second=100.0)
    assert seconds_to_loss(ring, still) == pytest.approx(4)
    overtaken = still._replace(unread=1600, unread_bytes=1_600_000)
    assert seconds_to_loss(ring, overtaken) == 0
    buffer = TopicConfig(millstream_overload="buffer", millstream_overload_bytes=1_600_000)
    assert TopicRetention.by(buffer).kept_bytes == -1


def test_of_a_topic_that_is_archived_the_disk_keeps_what_local_retention_says() -> None:
    archived = TopicConfig(
        retention_ms=9000, retention_bytes=90, remote_storage_enable=True, local_retention_ms=1000
    )
    assert TopicRetention.by(archived).kept_seconds(1) == 9
    assert (
        TopicRetention.on_disk(archived).retention_ms,
        TopicRetention.on_disk(archived).retention_bytes,
    ) == (1000, 90)
    plain = TopicConfig(retention_ms=9000, local_retention_ms=1000)
    assert TopicRetention.on_disk(plain) == TopicRetention.by(plain)


def test_a_disk_fills_at_the_sum_of_its_logs_until_their_retention_holds_them() -> None:
    assert seconds_until_full(100, [LogGrowth(1, float("inf")), LogGrowth(4, float("inf"))]) == 20
    # The second grows for 5 s only and takes 20 of the 100; the rest is the first one's alone.
    assert seconds_until_full(100, [LogGrowth(1, float("inf")), LogGrowth(4, 20)]) == 80
    assert seconds_until_full(100, [LogGrowth(1, 50), LogGrowth(4, 20)]) is None
    assert seconds_until_full(100, []) is None
    assert seconds_until_full(0, [LogGrowth(1, 50)]) == 0


@given(
    st.integers(0, 1000),
    st.lists(st.tuples(st.integers(1, 50), st.integers(0, 500)), max_size=6),
)
def test_at_the_time_told_the_logs_have_taken_exactly_what_was_free(
    free: int, logs: list[tuple[int, int]]
) -> None:
    full = seconds_until_full(free, [LogGrowth(rate, room) for rate, room in logs])
    if full is None:
        assert sum(room for _, room in logs) <= free + 1e-6
    else:
        assert sum(min(rate * full, room) for rate, room in logs) == pytest.approx(free)


def reader(**known: float) -> ReaderPace:
    usual = {
        "unread": 100,
        "unread_bytes": 1000,
        "age": 100.0,
        "behind": 100.0,
        "written_per_second": 1.0,
        "read_per_second": 0.0,
    }
    return ReaderPace(**{**usual, **known})  # type: ignore[arg-type]


def test_a_reader_that_stands_still_loses_its_oldest_record_when_that_is_too_old() -> None:
    assert seconds_to_loss(TopicRetention(retention_ms=250_000), reader()) == 150
    assert seconds_to_loss(TopicRetention(retention_ms=50_000), reader()) == 0
    assert seconds_to_loss(TopicRetention(), reader()) is None


def test_a_reader_that_stands_still_loses_its_oldest_record_when_as_much_was_written_after_it() -> None:
    # 10 bytes a record, one a second: 500 bytes more are there in 50 s.
    assert seconds_to_loss(TopicRetention(retention_bytes=1500), reader()) == 50
    assert seconds_to_loss(TopicRetention(retention_bytes=1500), reader(written_per_second=0)) is None
    assert seconds_to_loss(TopicRetention(retention_bytes=1500, retention_ms=120_000), reader()) == 20


def test_a_reader_slower_than_its_writers_is_overtaken_later() -> None:
    assert seconds_to_loss(TopicRetention(retention_ms=250_000), reader(read_per_second=0.5)) == 300
    assert seconds_to_loss(TopicRetention(retention_bytes=1500), reader(read_per_second=0.5)) == 100


def test_a_reader_that_gains_or_has_read_everything_is_not_overtaken() -> None:
    for keeping in (TopicRetention(retention_ms=250_000), TopicRetention(retention_bytes=1500)):
        assert seconds_to_loss(keeping, reader(read_per_second=2.0)) is None
        assert seconds_to_loss(keeping, reader(unread=0)) is None


def test_a_reader_that_gains_too_slowly_is_overtaken_all_the_same() -> None:
    # It reads 1.1 a second of what came at 10 a second, long ago; retention is 5 s away.
    slow = reader(unread=1000, behind=100.0, written_per_second=1.0, read_per_second=1.1)
    assert seconds_to_loss(TopicRetention(retention_ms=105_000), slow) == pytest.approx(5 / 0.89)


def test_records_without_a_time_are_lost_by_size_only() -> None:
    timeless = reader(age=None, behind=None)  # type: ignore[arg-type]
    assert seconds_to_loss(TopicRetention(retention_ms=1), timeless) is None
    assert seconds_to_loss(TopicRetention(retention_ms=1, retention_bytes=1500), timeless) == 50
