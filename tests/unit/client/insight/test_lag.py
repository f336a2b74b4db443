from __future__ import annotations

from millstream.client.insight.lag import Lag
from millstream.client.text.position import Bounds, TopicPartition

PLACE = TopicPartition("t", 0)


def test_lag_counts_unread_records_and_the_age_of_the_oldest() -> None:
    lag = Lag(PLACE, 30, Bounds(0, 80), None, oldest_ms=1000)
    assert (lag.records, lag.lost, lag.age_ms(61_000)) == (50, 0, 60_000)


def test_a_group_that_has_read_everything_is_not_behind() -> None:
    lag = Lag(PLACE, 80, Bounds(0, 80), None, oldest_ms=None)
    assert (lag.records, lag.age_ms(5)) == (0, 0)


def test_records_deleted_unread_are_lost_not_lag() -> None:
    lag = Lag(PLACE, 10, Bounds(40, 80), None, oldest_ms=None)
    assert (lag.records, lag.lost, lag.age_ms(5)) == (40, 30, None)


def test_without_a_committed_offset_the_lag_is_unknown() -> None:
    lag = Lag(PLACE, None, Bounds(40, 80), None, oldest_ms=None)
    assert (lag.records, lag.lost, lag.age_ms(5)) == (None, 0, None)


def test_a_record_from_the_future_has_no_negative_age() -> None:
    assert Lag(PLACE, 1, Bounds(0, 2), None, oldest_ms=100).age_ms(50) == 0
