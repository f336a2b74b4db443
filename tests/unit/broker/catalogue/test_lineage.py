"""How far two copies of a log are the same, found by who led when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.catalogue.lineage import NO_LIMIT, Promotion, common_end, descends, first_foreign_epoch

ROOT = Promotion("cluster", 0)
A, B = Promotion("a", 3), Promotion("b", 3)


def test_a_broker_descends_from_those_whose_lineage_its_own_begins_with() -> None:
    assert descends([ROOT], [ROOT])
    assert descends([ROOT, A], [ROOT])
    assert not descends([ROOT], [ROOT, A]), "the other one was promoted since"
    assert not descends([ROOT, A], [ROOT, B]), "both were"


def test_epochs_are_foreign_from_the_first_promotion_on_that_one_of_them_does_not_know() -> None:
    assert first_foreign_epoch([ROOT], [ROOT]) == NO_LIMIT
    assert first_foreign_epoch([ROOT, A], [ROOT]) == 3


def test_a_copy_that_is_behind_is_the_same_up_to_its_end() -> None:
    assert common_end([(0, 0)], 10, [(0, 0), (1, 8)], 20, NO_LIMIT) == 8
    assert common_end([(0, 0)], 5, [(0, 0), (1, 8)], 20, NO_LIMIT) == 5


def test_a_leader_that_lost_its_tail_and_went_on_shows_by_its_epoch() -> None:
    assert common_end([(0, 0)], 100, [(0, 0), (1, 90)], 95, NO_LIMIT) == 90


def test_the_same_number_of_an_epoch_means_nothing_after_a_promotion() -> None:
    # Both began epoch 1 at offset 50: the old leader after a crash, the new one when it was promoted.
    assert common_end([(0, 0), (1, 50)], 80, [(0, 0), (1, 50)], 70, 1) == 50


def test_logs_that_begin_at_different_offsets_are_compared_where_both_are() -> None:
    assert common_end([(0, 0), (2, 40)], 60, [(2, 45)], 100, NO_LIMIT) == 60
    assert common_end([(0, 0)], 30, [(2, 45)], 100, NO_LIMIT) == 30, "nothing in common, nothing to take back"


@given(st.data())
def test_the_common_end_is_where_the_first_record_differs(data: st.DataObject) -> None:
    """Two histories as lists of (epoch, who wrote it), of which the first part is one."""
    common = sorted(data.draw(st.lists(st.integers(0, 3), max_size=12)))
    low = common[-1] if common else 0
    ours = common + sorted(data.draw(st.lists(st.integers(low, low + 3), max_size=8)))
    theirs = common + sorted(data.draw(st.lists(st.integers(4, 6), max_size=8)))
    limit = 4  # the promotion of the one that leads now; the old leader may have used the same numbers
    expected = next(
        (at for at, (x, y) in enumerate(zip(ours, theirs, strict=False)) if x != y or y >= limit),
        min(len(ours), len(theirs)),
    )
    assert common_end(_epochs(ours), len(ours), _epochs(theirs), len(theirs), limit) == expected


def _epochs(records: list[int]) -> list[tuple[int, int]]:
    return [(epoch, at) for at, epoch in enumerate(records) if at == 0 or records[at - 1] != epoch]
