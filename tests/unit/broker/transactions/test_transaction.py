"""The life of a transactional id: who may end what, who is fenced, and how epochs run out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.transactions.transaction import (
    LAST_EPOCH,
    NO_TIMEOUT,
    NOBODY,
    SECOND_PROTOCOL,
    TRANSITIONS,
    ProducerIdentity,
    TransactionalIdState,
    TxnState,
    first_state,
    marker_epoch,
)
from millstream.core.errors import RequestRefused

CONCURRENT, WRONG_STATE, WRONG_ID, FENCED = 51, 48, 49, 90
NOW = 1_000_000
ME = ProducerIdentity(5, 3)
SPARE = 99


def id_state(state: TxnState = TxnState.EMPTY, **changes: Any) -> TransactionalIdState:
    fields = {"producer": ME, "timeout_ms": 60_000, "updated_ms": NOW, "state": state, **changes}
    return TransactionalIdState("t", **fields)


def end(
    transaction: TransactionalIdState,
    producer: ProducerIdentity = ME,
    *,
    commit: bool = True,
    second: bool = True,
) -> TransactionalIdState:
    return transaction.end(producer, commit=commit, second_protocol=second, spare=SPARE, now_ms=NOW + 1)


def refused(call: Any) -> int:
    with pytest.raises(RequestRefused) as caught:
        call()
    return caught.value.code


def test_the_second_protocol_ends_in_the_next_epoch() -> None:
    after = end(id_state(TxnState.ONGOING))
    assert (after.state, after.producer, after.previous) == (
        TxnState.PREPARE_COMMIT,
        ProducerIdentity(5, 4),
        ME,
    )
    assert marker_epoch(id_state(TxnState.ONGOING), after) == 4
    assert after.completed().state is TxnState.COMPLETE_COMMIT


def test_the_first_protocol_keeps_its_epoch() -> None:
    after = end(id_state(TxnState.ONGOING), commit=False, second=False)
    assert (after.state, after.producer, after.previous) == (TxnState.PREPARE_ABORT, ME, NOBODY)
    assert marker_epoch(id_state(TxnState.ONGOING), after) == 3


# What EndTxn does in Kafka, for the second protocol. The retry has the epoch before; "bump" is a success with
# the next epoch, "same" one with the epoch of the first answer.
BUMP, SAME = "bump", "same"


@pytest.mark.parametrize(
    ("state", "commit", "is_retry", "expected"),
    [
        (TxnState.EMPTY, False, True, FENCED),
        (TxnState.EMPTY, False, False, BUMP),
        (TxnState.EMPTY, True, True, FENCED),
        (TxnState.EMPTY, True, False, WRONG_STATE),
        (TxnState.COMPLETE_ABORT, False, True, SAME),
        (TxnState.COMPLETE_ABORT, False, False, BUMP),
        (TxnState.COMPLETE_ABORT, True, True, WRONG_STATE),
        (TxnState.COMPLETE_ABORT, True, False, WRONG_STATE),
        (TxnState.COMPLETE_COMMIT, False, True, WRONG_STATE),
        (TxnState.COMPLETE_COMMIT, False, False, BUMP),
        (TxnState.COMPLETE_COMMIT, True, True, SAME),
        (TxnState.COMPLETE_COMMIT, True, False, WRONG_STATE),
        (TxnState.PREPARE_COMMIT, True, True, CONCURRENT),
        (TxnState.PREPARE_COMMIT, False, True, WRONG_STATE),
        (TxnState.PREPARE_ABORT, False, True, CONCURRENT),
        (TxnState.PREPARE_ABORT, True, True, WRONG_STATE),
        (TxnState.PREPARE_COMMIT, True, False, FENCED),
        (TxnState.PREPARE_ABORT, False, False, FENCED),
        (TxnState.ONGOING, True, True, FENCED),
    ],
)
def test_an_end_that_comes_late_or_twice(
    state: TxnState, commit: bool, is_retry: bool, expected: Any
) -> None:
    before = id_state(state, previous=ProducerIdentity(5, 2))
    producer = before.previous if is_retry else before.producer
    if expected == BUMP:
        assert end(before, producer, commit=commit).producer == ProducerIdentity(5, 4)
    elif expected == SAME:
        assert end(before, producer, commit=commit) is before
    else:
        assert refused(lambda: end(before, producer, commit=commit)) == expected


@pytest.mark.parametrize(
    ("state", "commit", "expected"),
    [
        (TxnState.EMPTY, True, WRONG_STATE),
        (TxnState.EMPTY, False, WRONG_STATE),
        (TxnState.COMPLETE_COMMIT, True, SAME),
        (TxnState.COMPLETE_COMMIT, False, WRONG_STATE),
        (TxnState.COMPLETE_ABORT, False, SAME),
        (TxnState.COMPLETE_ABORT, True, WRONG_STATE),
        (TxnState.PREPARE_COMMIT, True, CONCURRENT),
        (TxnState.PREPARE_COMMIT, False, WRONG_STATE),
    ],
)
def test_an_end_of_the_first_protocol_that_comes_twice(state: TxnState, commit: bool, expected: Any) -> None:
    before = id_state(state)
    if expected == SAME:
        assert end(before, commit=commit, second=False) is before
    else:
        assert refused(lambda: end(before, commit=commit, second=False)) == expected
    assert refused(lambda: end(before, ProducerIdentity(5, 2), commit=commit, second=False)) == FENCED


def test_strangers_are_told_what_is_wrong_with_them() -> None:
    open_one = id_state(TxnState.ONGOING)
    for second in (True, False):
        assert refused(lambda second=second: end(open_one, ProducerIdentity(6, 3), second=second)) == WRONG_ID
        assert refused(lambda second=second: end(open_one, ProducerIdentity(5, 4), second=second)) == FENCED
    assert refused(lambda: open_one.check(ProducerIdentity(6, 3))) == WRONG_ID
    assert refused(lambda: open_one.check(ProducerIdentity(5, 2))) == FENCED
    open_one.check(ME)


def test_a_time_out_leaves_no_epoch_that_looks_like_a_retry() -> None:
    before = id_state(TxnState.ONGOING)
    after = before.fence(spare=-1, now_ms=NOW)
    assert (after.producer, after.previous) == (ProducerIdentity(5, 5), NOBODY)
    assert marker_epoch(before, after) == 5
    done = after.completed()
    for commit in (True, False):
        assert refused(lambda commit=commit: end(done, ME, commit=commit)) == FENCED
        assert refused(lambda commit=commit: end(done, ME, commit=commit, second=False)) == FENCED


def test_init_gives_the_next_epoch_and_knows_its_own_retry() -> None:
    before = id_state(TxnState.COMPLETE_COMMIT)
    assert before.check_init(None) is False
    after = before.init(None, timeout_ms=1, spare=-1, now_ms=NOW)
    assert (after.producer, after.previous, after.timeout_ms) == (ProducerIdentity(5, 4), NOBODY, 1)
    assert refused(lambda: after.check_init(ME)) == FENCED  # another producer came in between

    assert before.check_init(ME) is False
    mine = before.init(ME, timeout_ms=1, spare=-1, now_ms=NOW)
    assert mine.check_init(ME) is True  # the answer got lost, and it asks again
    assert refused(lambda: mine.check_init(ProducerIdentity(5, 2))) == FENCED
    assert refused(lambda: mine.begin(NOW).check_init(ME)) == FENCED  # so late that it does harm
    assert refused(lambda: mine.check_init(ProducerIdentity(9, 3))) == FENCED


def test_init_waits_for_an_end() -> None:
    for state in (TxnState.PREPARE_ABORT, TxnState.PREPARE_COMMIT):
        waiting = id_state(state)
        assert refused(lambda w=waiting: w.init(None, timeout_ms=1, spare=-1, now_ms=NOW)) == CONCURRENT
        assert refused(lambda w=waiting: w.check(ME)) == CONCURRENT


@pytest.mark.parametrize("epoch", [LAST_EPOCH - 1, LAST_EPOCH])
def test_epochs_run_out(epoch: int) -> None:
    last = ProducerIdentity(5, epoch)
    before = id_state(TxnState.ONGOING, producer=last)
    assert before.needs_spare
    after = end(before, last)
    if epoch == LAST_EPOCH:
        assert after.producer == ProducerIdentity(SPARE, 0)
        assert marker_epoch(before, after) == 32767
    else:
        assert after.producer == ProducerIdentity(5, LAST_EPOCH)
        assert marker_epoch(before, after) == LAST_EPOCH
    assert end(after.completed(), last).producer == after.producer  # the retry names the old one
    fenced = before.fence(spare=SPARE, now_ms=NOW)
    assert fenced.producer == ProducerIdentity(SPARE, 0)
    assert marker_epoch(before, fenced) == epoch + 1
    assert refused(lambda: end(fenced.completed(), last)) == WRONG_ID
    idle = id_state(TxnState.EMPTY, producer=last)
    assert idle.init(None, timeout_ms=1, spare=SPARE, now_ms=NOW).producer == (
        ProducerIdentity(SPARE, 0) if epoch == LAST_EPOCH else ProducerIdentity(5, LAST_EPOCH)
    )


def test_far_from_the_last_epoch_no_spare_is_needed() -> None:
    assert not id_state(TxnState.ONGOING).needs_spare
    assert not first_state("t", 7, 1000, NOW).needs_spare


def test_a_kept_transaction_is_ended_by_its_next_producer_and_written_to_by_nobody() -> None:
    prepared = id_state(TxnState.ONGOING, timeout_ms=NO_TIMEOUT)
    kept = prepared.keep(None, spare=-1, now_ms=NOW)
    assert (kept.producer, kept.writer, kept.state) == (ProducerIdentity(5, 4), ME, TxnState.ONGOING)
    assert refused(lambda: kept.check(ME)) == FENCED
    assert refused(lambda: kept.check(kept.producer)) == WRONG_STATE
    assert refused(lambda: end(kept, ME)) == FENCED
    again = kept.keep(None, spare=-1, now_ms=NOW)
    assert (again.producer, again.writer) == (ProducerIdentity(5, 5), ME)
    for second, epoch in ((True, 6), (False, 5)):
        ended = end(again, again.producer, second=second)
        assert (ended.state, marker_epoch(again, ended)) == (TxnState.PREPARE_COMMIT, epoch)
        assert ended.completed().writer == ended.producer


def test_a_kept_transaction_survives_the_last_epoch() -> None:
    prepared = id_state(TxnState.ONGOING, timeout_ms=NO_TIMEOUT, producer=ProducerIdentity(5, LAST_EPOCH))
    kept = prepared.keep(None, spare=SPARE, now_ms=NOW)
    assert (kept.producer, kept.writer) == (ProducerIdentity(SPARE, 0), ProducerIdentity(5, LAST_EPOCH))
    ended = end(kept, kept.producer, commit=False)
    assert (ended.producer, marker_epoch(kept, ended)) == (ProducerIdentity(SPARE, 1), 32767)


def test_a_transaction_with_a_time_out_is_not_kept() -> None:
    assert refused(lambda: id_state(TxnState.ONGOING).keep(None, spare=-1, now_ms=NOW)) == WRONG_STATE


def test_the_tables_speak_of_states_that_are_there() -> None:
    assert set(TRANSITIONS) == set(TxnState)
    assert {state for state, _, _ in SECOND_PROTOCOL} == set(TxnState) - {TxnState.DEAD}
    assert id_state(TxnState.EMPTY).died().state is TxnState.DEAD
    with pytest.raises(AssertionError):
        id_state(TxnState.ONGOING).died()


@given(st.lists(st.sampled_from(["begin", "commit", "abort", "first", "init", "fence", "keep"]), max_size=60))
def test_an_identity_never_comes_back(steps: list[str]) -> None:
    transaction = first_state("t", 0, NO_TIMEOUT, NOW)
    transaction = transaction.init(None, timeout_ms=NO_TIMEOUT, spare=-1, now_ms=NOW)
    seen = [transaction.producer]
    spares = iter(range(1, 1000))
    for step in steps:
        spare = next(spares) if transaction.needs_spare else -1
        if step == "begin" and transaction.kept == NOBODY:
            transaction = transaction.begin(NOW)
        elif step == "init" and not transaction.is_open:
            transaction = transaction.init(None, timeout_ms=NO_TIMEOUT, spare=spare, now_ms=NOW)
        elif not transaction.is_open:
            continue
        elif step == "fence":
            transaction = transaction.fence(spare=spare, now_ms=NOW).completed()
        elif step == "keep":
            transaction = transaction.keep(None, spare=spare, now_ms=NOW)
        elif step in ("commit", "abort", "first"):
            before = transaction
            after = transaction.end(
                transaction.producer,
                commit=step != "abort",
                second_protocol=step != "first",
                spare=spare,
                now_ms=NOW,
            )
            assert marker_epoch(before, after) >= before.writer.epoch
            transaction = after.completed()
        if transaction.producer != seen[-1]:
            assert transaction.producer not in seen
            seen.append(transaction.producer)
