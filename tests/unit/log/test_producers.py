"""Rules of idempotent producers: see the module's description for the numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.core.errors import AppendRefused
from millstream.core.kafka_errors import INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER
from millstream.log.producers import Duplicate, Producers
from millstream.log.snapshots import load_snapshot, snapshot_of
from millstream.log.transactions import PartitionTransactions

LAST = 2**31 - 1


def refused(producers: Producers, *batch: int) -> int:
    with pytest.raises(AppendRefused) as raised:
        producers.check(*batch)
    return raised.value.code


def test_an_unknown_producer_may_start_with_any_sequence_number() -> None:
    assert Producers().check(7, 3, 500, 0) is None


def test_a_batch_goes_on_where_the_last_one_ended() -> None:
    producers = Producers()
    producers.record(7, 0, 0, 2, 100, 1)
    assert producers.check(7, 0, 3, 0) is None
    assert refused(producers, 7, 0, 4, 0) == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(producers, 7, 0, 2, 0) == OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_last_five_batches_are_known_as_duplicates_and_no_more() -> None:
    producers = Producers()
    for number in range(6):
        producers.record(7, 0, 10 * number, 9, 1000 + 10 * number, number)
    for number in range(1, 6):
        assert producers.check(7, 0, 10 * number, 9) == Duplicate(1000 + 10 * number, number)
    assert refused(producers, 7, 0, 0, 9) == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(producers, 7, 0, 50, 8) == OUT_OF_ORDER_SEQUENCE_NUMBER, "same start, other length"


def test_sequence_numbers_start_at_zero_again_after_the_largest() -> None:
    producers = Producers()
    producers.record(7, 0, LAST - 1, 3, 0, 0)  # ends at 1
    assert producers.check(7, 0, 2, 0) is None
    assert producers.check(7, 0, LAST - 1, 3) == Duplicate(0, 0)
    producers.record(7, 0, LAST, 0, 4, 0)
    assert producers.check(7, 0, 0, 0) is None


def test_a_newer_epoch_starts_at_sequence_zero_and_ends_the_older_one() -> None:
    producers = Producers()
    producers.record(7, 0, 0, 0, 0, 0)
    assert refused(producers, 7, 1, 1, 0) == OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(7, 1, 0, 0) is None
    producers.record(7, 1, 0, 0, 1, 0)
    assert refused(producers, 7, 0, 1, 0) == INVALID_PRODUCER_EPOCH
    assert producers.check(7, 1, 0, 0) == Duplicate(1, 0)


def test_undo_goes_back_to_the_last_commit() -> None:
    producers = Producers()
    producers.record(7, 0, 0, 0, 0, 0)
    producers.commit()
    before = dict(producers.states)
    producers.record(7, 0, 1, 0, 1, 0)
    producers.record(7, 0, 2, 0, 2, 0)
    producers.record(8, 0, 0, 0, 3, 0)
    producers.undo()
    assert producers.states == before


def test_idle_producers_are_forgotten() -> None:
    producers = Producers()
    producers.record(7, 0, 0, 0, 0, 1000)
    producers.record(8, 0, 0, 0, 0, 2000)
    producers.commit()
    assert producers.expire(older_than_ms=1500) == [7]
    assert set(producers.states) == {8}


BATCHES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 2**40)), max_size=30)


def some_producers(batches: list[tuple[int, int, int]]) -> Producers:
    producers = Producers()
    sequences: dict[int, int] = {}
    for offset, (producer, delta, time_ms) in enumerate(batches):
        sequence = sequences.get(producer, LAST - 5)
        producers.record(producer, producer % 2, sequence, delta, 10 * offset, time_ms)
        sequences[producer] = (sequence + delta + 1) & LAST
    producers.commit()
    return producers


@given(BATCHES)
def test_a_snapshot_brings_everything_back(batches: list[tuple[int, int, int]]) -> None:
    producers = some_producers(batches)
    restored = Producers()
    assert load_snapshot(snapshot_of(producers, PartitionTransactions()), restored, PartitionTransactions())
    assert restored.states == producers.states


@given(BATCHES, st.data())
def test_a_damaged_snapshot_is_not_believed(batches: list[tuple[int, int, int]], data: st.DataObject) -> None:
    snapshot = bytearray(snapshot_of(some_producers(batches), PartitionTransactions()))
    at = data.draw(st.integers(0, len(snapshot) - 1))
    snapshot[at] ^= 1 << data.draw(st.integers(0, 7))
    restored = Producers()
    assert not load_snapshot(bytes(snapshot), restored, PartitionTransactions())
    assert not load_snapshot(bytes(snapshot[:at]), restored, PartitionTransactions())
    assert restored.states == {}
