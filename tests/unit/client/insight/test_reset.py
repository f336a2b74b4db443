"""What moving a group means for it: read again, skipped, unread."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.client.insight.reset import OffsetMove
from millstream.client.text.position import Bounds, TopicPartition

PLACE = TopicPartition("t", 0)


def test_what_was_deleted_meanwhile_is_neither_read_again_nor_skipped() -> None:
    assert OffsetMove(PLACE, 3, 50, Bounds(10, 100)).skipped == 40
    assert OffsetMove(PLACE, 3, 10, Bounds(10, 100)).skipped == 0


def test_an_offset_beyond_the_end_reads_again_what_there_is() -> None:
    """As of a topic that was created again under its name."""
    assert OffsetMove(PLACE, 500, 20, Bounds(10, 100)).read_again == 80


def test_a_group_that_had_no_offset_neither_reads_again_nor_skips() -> None:
    move = OffsetMove(PLACE, None, 20, Bounds(10, 100))
    assert (move.read_again, move.skipped, move.unread) == (0, 0, 80)


@given(st.integers(0, 200), st.integers(0, 100), st.integers(0, 100), st.data())
def test_a_group_reads_again_or_skips_and_never_both(
    old: int, start: int, size: int, data: st.DataObject
) -> None:
    bounds = Bounds(start, start + size)
    move = OffsetMove(PLACE, old, data.draw(st.integers(*bounds)), bounds)
    assert 0 in (move.read_again, move.skipped)
    unread_before = bounds.end - max(start, min(old, bounds.end))
    assert move.unread == unread_before + move.read_again - move.skipped
