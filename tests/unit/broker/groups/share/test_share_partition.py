"""The delivery of one share partition's records."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.groups.share.in_flight import ACQUIRED, AVAILABLE, FINISHED
from millstream.broker.groups.share.saved_state import restored, to_bytes
from millstream.broker.groups.share.share_partition import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Acknowledgement,
    Acquired,
    LogBatch,
    SharePartition,
)
from millstream.core.errors import RequestRefused
from millstream.core.group_config import GroupConfig
from millstream.core.kafka_errors import INVALID_RECORD_STATE, INVALID_REQUEST
from tests.support.share_world import ShareWorld

LOCK = 30.0


def partition(**changes: object) -> SharePartition:
    return SharePartition(0, GroupConfig(**{f"share_{name}": value for name, value in changes.items()}))  # type: ignore[arg-type]


def ack(first: int, last: int, *types: int) -> Acknowledgement:
    return Acknowledgement(first, last, bytes(types))


def fetch(
    share: SharePartition, *batches: LogBatch, member: str = "m", now: float = 0.0, **how: object
) -> list[Acquired]:
    offset = share.next_offset()
    assert offset is not None
    return share.acquire(member, offset, batches, now, **{"max_records": 500, **how})  # type: ignore[arg-type]


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), limit=st.sampled_from((2, 3, 5, 10)))
def test_it_agrees_with_a_model_of_single_records_and_finishes_each(seed: int, limit: int) -> None:
    world = ShareWorld(
        seed, GroupConfig(share_partition_max_record_locks=40, share_delivery_count_limit=limit)
    )
    world.run(120)  # checks every record after each step
    world.settle()

    assert world.partition.start_offset == world.partition.end == world.log_end
    assert not world.partition.runs
    for batch in world.log:
        for offset in range(max(batch.first, world.log_start), batch.last + 1):
            if batch.is_offered:
                fate = world.fates[offset]
                assert fate.accepted or fate.given_up, offset


def test_batches_are_given_out_whole_and_finished_whole() -> None:
    share = partition()
    assert fetch(share, LogBatch(0, 9), LogBatch(10, 19), max_records=5) == [Acquired(0, 9, 1)]
    assert fetch(share, LogBatch(10, 19)) == [Acquired(10, 19, 1)]
    share.acknowledge("m", [ack(10, 19, ACCEPT)], 1.0)
    assert (share.start_offset, share.end, share.unfinished) == (0, 20, 10)
    share.acknowledge("m", [ack(0, 9, ACCEPT)], 1.0)
    assert (share.start_offset, share.end, share.unfinished) == (20, 20, 0)
    assert share.lag(25) == 5


def test_a_record_limit_cuts_a_batch_and_the_next_member_gets_the_rest() -> None:
    share = partition()
    assert fetch(share, LogBatch(0, 9), max_records=4, by_record=True) == [Acquired(0, 3, 1)]
    assert fetch(share, LogBatch(0, 9), member="n", max_records=4, by_record=True) == [Acquired(4, 7, 1)]
    with pytest.raises(RequestRefused) as refused:
        share.acknowledge("n", [ack(2, 5, ACCEPT)], 0.0)
    assert refused.value.code == INVALID_RECORD_STATE
    share.acknowledge("m", [ack(0, 3, ACCEPT, RELEASE, REJECT, GAP)], 0.0)
    assert (share.start_offset, share.runs[0].last) == (1, 3)
    assert fetch(share, LogBatch(0, 9)) == [Acquired(1, 1, 2), Acquired(8, 9, 1)]


def test_small_batches_are_put_together_to_one_run() -> None:
    share = partition()
    batches = [LogBatch(number, number) for number in range(1200)]
    assert fetch(share, *batches, max_records=1200, batch_size=500) == [
        Acquired(0, 499, 1),
        Acquired(500, 999, 1),
        Acquired(1000, 1199, 1),
    ]
    assert len(share.runs) == 3


def test_what_is_in_no_batch_or_is_not_offered_is_finished() -> None:
    share = partition()
    taken = fetch(share, LogBatch(2, 4), LogBatch(5, 5, is_offered=False), LogBatch(6, 9), LogBatch(12, 12))
    assert taken == [Acquired(2, 4, 1), Acquired(6, 9, 1), Acquired(12, 12, 1)]
    assert share.start_offset == 2
    assert share.count_of(FINISHED) == 3


def test_a_lock_that_runs_out_gives_the_record_to_another_until_the_limit() -> None:
    share = partition(delivery_count_limit=2)
    assert fetch(share, LogBatch(0, 0)) == [Acquired(0, 0, 1)]
    assert share.wake_at == LOCK
    assert not share.expire(LOCK - 1)
    assert share.expire(LOCK)
    assert fetch(share, LogBatch(0, 0), member="n", now=LOCK) == [Acquired(0, 0, 2)]
    with pytest.raises(RequestRefused):
        share.acknowledge("m", [ack(0, 0, ACCEPT)], LOCK)
    assert share.expire(2 * LOCK)
    assert share.start_offset == share.end == 1, "given up after the second delivery"


def test_a_renewed_lock_holds_longer_for_these_records_alone() -> None:
    share = partition()
    fetch(share, LogBatch(0, 9))
    share.acknowledge("m", [ack(2, 5, RENEW)], 20.0)
    assert share.expire(LOCK)
    assert share.count_of(ACQUIRED) == 4
    assert share.expire(20.0 + LOCK)
    assert share.count_of(AVAILABLE) == 10

    strict = partition(renew_acknowledge_enable=False)
    fetch(strict, LogBatch(0, 9))
    with pytest.raises(RequestRefused) as refused:
        strict.acknowledge("m", [ack(0, 9, RENEW)], 0.0)
    assert refused.value.code == INVALID_RECORD_STATE


def test_a_poison_record_ends_up_alone() -> None:
    """With 5 deliveries: batches are halved from the third on, and the last delivery is of one record."""
    share = partition()
    sizes = []
    now = 0.0
    batch = LogBatch(0, 99)
    while share.start_offset == 0:
        taken = fetch(share, batch, now=now)
        assert len(taken) == 1 or taken[0].deliveries <= 3
        if taken[0].first == 0:
            sizes.append(taken[0].last + 1)
            now += LOCK
            share.expire(now)  # record 0 kills its consumer
        else:
            share.acknowledge("m", [ack(first, last, ACCEPT) for first, last, _ in taken], now)
    assert sizes == [100, 100, 100, 50, 1]
    while share.unfinished:
        taken = fetch(share, batch, now=now)
        share.acknowledge("m", [ack(first, last, ACCEPT) for first, last, _ in taken], now)
    assert share.start_offset == 100


def test_unfinished_records_are_limited_but_those_given_back_always_go_out() -> None:
    share = partition(partition_max_record_locks=100)
    fetch(share, LogBatch(0, 59))
    fetch(share, LogBatch(60, 119))
    assert share.next_offset() is None
    share.acknowledge("m", [ack(10, 10, RELEASE)], 0.0)
    assert fetch(share, LogBatch(0, 59), LogBatch(60, 119), LogBatch(120, 130)) == [Acquired(10, 10, 2)]
    assert share.next_offset() is None
    share.acknowledge("m", [ack(60, 119, ACCEPT)], 0.0)
    assert share.next_offset() == 120, "what is finished behind an older record does not count"


def test_the_log_passes_records_in_flight_and_a_late_acknowledgement_is_ignored() -> None:
    share = partition()
    fetch(share, LogBatch(0, 9))
    assert share.on_log_start(4)
    share.acknowledge("m", [ack(0, 5, ACCEPT, ACCEPT, ACCEPT, ACCEPT, ACCEPT, REJECT)], 0.0)
    assert (share.start_offset, share.unfinished) == (6, 4)
    assert share.on_log_start(50)
    share.acknowledge("m", [ack(6, 9, ACCEPT)], 0.0)
    assert (share.start_offset, share.end, share.unfinished, share.next_offset()) == (50, 50, 0, 50)


def test_what_was_never_delivered_can_not_be_acknowledged() -> None:
    share = partition()
    fetch(share, LogBatch(0, 9))
    with pytest.raises(RequestRefused) as refused:
        share.acknowledge("m", [ack(0, 10, ACCEPT)], 0.0)
    assert refused.value.code == INVALID_REQUEST
    assert share.unfinished == 10


def test_a_member_that_leaves_gives_its_records_back_and_nobody_elses() -> None:
    share = partition()
    fetch(share, LogBatch(0, 9), max_records=5, by_record=True)
    fetch(share, LogBatch(0, 9), member="n")
    assert share.release("m")
    assert not share.release("m")
    assert (share.count_of(AVAILABLE), share.count_of(ACQUIRED)) == (5, 5)


def test_a_restart_offers_what_was_acquired_as_it_was_before() -> None:
    share = partition()
    fetch(share, LogBatch(0, 9), LogBatch(10, 19), LogBatch(20, 29))
    share.acknowledge("m", [ack(3, 4, ACCEPT), ack(10, 19, ACCEPT), ack(20, 20, RELEASE)], 0.0)
    fetch(share, LogBatch(20, 29))
    state = to_bytes(share)
    again = restored(0, state, share.settings, log_start=0, log_end=1000)
    assert again.start_offset == 0
    assert again.end == 21, "records that were never delivered before may be read again as new ones"
    assert fetch(again, LogBatch(0, 9), LogBatch(10, 19), LogBatch(20, 29)) == [
        Acquired(0, 2, 1),
        Acquired(5, 9, 1),
        Acquired(20, 20, 2),
        Acquired(21, 29, 1),
    ]
    assert again.count_of(FINISHED) == 12


def test_a_restart_without_the_end_of_the_log_gives_new_records_to_somebody() -> None:
    share = partition()
    fetch(share, LogBatch(0, 9), LogBatch(10, 19))
    share.acknowledge("m", [ack(10, 19, ACCEPT)], 0.0)
    shorter = restored(0, to_bytes(share), share.settings, log_start=0, log_end=15)
    assert shorter.end == 15
    lost = restored(40, b"", share.settings, log_start=0, log_end=15)
    assert (lost.start_offset, lost.end, lost.next_offset()) == (15, 15, 15)


def test_saved_state_is_small() -> None:
    """Ten thousand records in whole batches, every other one acknowledged."""
    share = partition(partition_max_record_locks=10_000)
    batches = [LogBatch(start, start + 99) for start in range(0, 10_000, 100)]
    fetch(share, *batches, max_records=10_000)
    share.acknowledge("m", [ack(b.first, b.last, ACCEPT) for b in batches[::2]], 0.0)
    assert share.start_offset == 100
    assert len(to_bytes(share)) < 100 * 6
