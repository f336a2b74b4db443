"""The ledger's rules: due, done, or a stop that says why."""

from __future__ import annotations

import pytest

from millstream.client.protocol.cluster import Committed
from millstream.client.text.position import TopicPartition
from millstream.pipeline.run.delivery.ledger import LedgerEntry, LedgerProblem, check_owner, entry_of, is_done

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def entry(batch: int, query: str = "q", **offsets: int) -> LedgerEntry:
    places = {"a": A, "b": B}
    return LedgerEntry(query, batch, {places[name]: offset for name, offset in (offsets or {"a": 7}).items()})


def test_an_entry_is_read_as_it_was_written() -> None:
    written = entry(12, a=7, b=0)
    assert entry_of("g", written.commits()) == written
    assert written.commits()[A] == Committed(7, metadata="millstream batch 12 of q")
    assert entry_of("g", {}) is None


@pytest.mark.parametrize(
    ("last", "this", "done"),
    [
        (None, entry(0), False),
        (entry(0), entry(1), False),
        (entry(4), entry(5), False),
        (entry(0), entry(0), True),
        (entry(5, a=7, b=2), entry(5, a=7, b=2), True),
    ],
)
def test_a_batch_is_due_after_the_one_before_it_and_done_if_it_is_the_last(
    last: LedgerEntry | None, this: LedgerEntry, done: bool
) -> None:
    assert is_done(last, this, "g") is done


def test_the_first_batch_with_something_to_read_is_due_without_an_entry() -> None:
    """Before it, no topic matched the pattern of a source."""
    assert is_done(None, entry(3), "g", nothing_before=True) is False
    assert is_done(entry(3), entry(3), "g", nothing_before=True) is True


@pytest.mark.parametrize(
    ("last", "this", "says"),
    [
        (None, entry(3), "at batch 3, but group 'g' has no offsets: they have expired"),
        (entry(3, "other"), entry(3), "belongs to another checkpoint, at batch 3"),
        (entry(3, "other"), entry(0), "belongs to another checkpoint"),
        (entry(5), entry(5, a=8), r"with other records .* t\[0\] up to 7, not 8"),
        (entry(5, a=7, b=2), entry(5, a=7), r"t\[1\] up to 2, not nothing"),
        (entry(9), entry(5), "at batch 9, ahead of the checkpoint, which is at 5"),
        (entry(3), entry(5), "at batch 3, but the checkpoint is at 5"),
    ],
)
def test_what_can_not_be_told_stops_the_job_and_says_what_to_do(
    last: LedgerEntry | None, this: LedgerEntry, says: str
) -> None:
    with pytest.raises(LedgerProblem, match=says) as caught:
        is_done(last, this, "g")
    assert "--new-ledger" in str(caught.value)


def test_offsets_that_others_wrote_are_no_ledger() -> None:
    with pytest.raises(LedgerProblem, match=r"was not written by this job.*reset"):
        entry_of("g", {**entry(3).commits(), B: Committed(5)})
    with pytest.raises(LedgerProblem, match="belong to different batches"):
        entry_of("g", {**entry(3, a=7).commits(), **entry(2, b=7).commits()})


def test_a_new_checkpoint_does_not_take_over_the_group_of_another() -> None:
    check_owner(entry(3), "q", "g")
    with pytest.raises(LedgerProblem, match="another checkpoint"):
        check_owner(entry(3), None, "g")
