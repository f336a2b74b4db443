"""Looking through a topic, page by page; over a log in memory."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.client.insight.peek import FETCH_BYTES, PeekedBatch, PeekedRange, Record
from millstream.client.text.position import Bounds, TopicPartition
from millstream.console.messages.decoding import Decoding
from millstream.console.messages.message import MessageQuery
from millstream.console.messages.search import (
    ClientGone,
    MessagePage,
    SearchLimits,
    follow,
    parse_cursor,
    search,
)
from millstream.core.errors import ConfigError, RequestFailed


class Memory:
    """Partitions as lists of (offset, time); a stretch has at most three records, and may have gaps."""

    def __init__(self, *partitions: list[tuple[int, int]], starts: tuple[int, ...] = ()) -> None:
        self.logs = partitions
        self.starts = starts or tuple(log[0][0] if log else 0 for log in partitions)
        self.fetches = 0

    def partitions(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, index) for index in range(len(self.logs))]

    def bounds(self, places: list[TopicPartition]) -> dict[TopicPartition, Bounds]:
        ends = [log[-1][0] + 1 if log else 0 for log in self.logs]
        return {place: Bounds(self.starts[place.partition], ends[place.partition]) for place in places}

    def since(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return {
            place: next((at for at, ms in self.logs[place.partition] if ms >= moment), None)
            for place, moment in times_ms.items()
        }

    def stretch(
        self, place: TopicPartition, first: int, until: int, most_bytes: int = FETCH_BYTES
    ) -> PeekedRange:
        self.fetches += 1
        inside = [(at, ms) for at, ms in self.logs[place.partition] if first <= at < until]
        some = inside[:3]
        records = [Record(b"k%d" % (at % 5), b'{"n": %d}' % at, (), ms, at) for at, ms in some]
        following = until if len(inside) <= 3 else some[-1][0] + 1
        return PeekedRange(
            [PeekedBatch("plain", 0, False, records)] if records else [], following, 100 * len(records)
        )


def page(log: Memory, limits: SearchLimits | None = None, **query: object) -> MessagePage:
    asked = MessageQuery(**query)  # type: ignore[arg-type]
    return search(log, "t", asked, Decoding(), now_ms=10_000, limits=limits)


def places(found: MessagePage) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in found.messages]


def all_pages(log: Memory, limits: SearchLimits | None = None, **query: object) -> list[tuple[int, int]]:
    got: list[tuple[int, int]] = []
    cursor = ""
    for _ in range(1000):
        found = page(log, limits, cursor=cursor, **query)
        got += places(found)
        cursor = found.next
        if not cursor:
            return got
    raise AssertionError("it never ends")


TWO = Memory([(0, 10), (1, 30), (2, 50), (4, 70)], [(5, 20), (6, 40), (7, 60)])


def test_the_newest_come_first_across_partitions() -> None:
    found = page(TWO, limit=3)
    assert places(found) == [(0, 4), (1, 7), (0, 2)]
    assert places(page(TWO, limit=3, cursor=found.next)) == [(1, 6), (0, 1), (1, 5)]
    assert all_pages(TWO, limit=3)[-1] == (0, 0)


def test_forwards_from_the_oldest_an_offset_and_a_time() -> None:
    assert places(page(TWO, seek="oldest", limit=4)) == [(0, 0), (1, 5), (0, 1), (1, 6)]
    assert places(page(TWO, seek="offset", offset=2, partition=0)) == [(0, 2), (0, 4)]
    assert places(page(TWO, seek="offset", offset=3, partition=0)) == [(0, 4)], "a gap is passed over"
    assert places(page(TWO, seek="time", time="1970-01-01T00:00:00.045Z")) == [(0, 2), (1, 7), (0, 4)]
    assert places(page(TWO, seek="time", time="-1s")) == []


def test_filters() -> None:
    assert places(page(TWO, key="k1")) == [(1, 6), (0, 1)]
    assert places(page(TWO, value='"n": 4')) == [(0, 4)]
    assert places(page(TWO, where="$.n >= 5 and partition = 1")) == [(1, 7), (1, 6), (1, 5)]
    assert places(page(TWO, header="nothing")) == []


def test_a_bounded_look_says_how_far_it_got_and_goes_on_from_there() -> None:
    log = Memory([(at, at) for at in range(1000)])
    found = page(log, SearchLimits(records=100), where="$.n = 3")
    assert found.messages == []
    assert found.stopped == "records"
    assert 100 <= found.looked < 250
    assert found.left == 1000 - found.looked
    assert found.reached_ms == 1000 - found.looked
    assert all_pages(log, SearchLimits(records=100), where="$.n = 3") == [(0, 3)]
    assert page(log, SearchLimits(bytes=1000), seek="oldest", where="$.n = 999").stopped == "bytes"
    assert page(log, SearchLimits(seconds=0), seek="oldest").stopped == "time"


def test_a_page_costs_about_what_it_shows() -> None:
    log = Memory([(at, at) for at in range(100_000)])
    assert page(log, limit=10).looked <= 20
    assert page(log, limit=10, seek="oldest").looked <= 20


def test_who_leaves_ends_it() -> None:
    log = Memory([(at, at) for at in range(1000)])
    with pytest.raises(ClientGone):
        search(
            log,
            "t",
            MessageQuery(key="nothing"),
            Decoding(),
            now_ms=0,
            ended=lambda: log.fetches >= 5,
        )
    assert log.fetches == 5


@pytest.mark.parametrize("cursor", ["x", "1", "1:", "1:2,", "1:2;3:4", "-1:2", "1:-2"])
def test_a_cursor_that_is_none_is_refused(cursor: str) -> None:
    with pytest.raises(ConfigError):
        parse_cursor(cursor)


def test_a_partition_that_is_not_there_is_named() -> None:
    with pytest.raises(RequestFailed, match="no partition 2; the topic has 0 to 1"):
        page(TWO, partition=2)


logs = st.lists(
    st.lists(st.tuples(st.integers(1, 4), st.integers(-3, 9)), max_size=25).map(
        lambda steps: [
            (sum(gap for gap, _ in steps[: at + 1]), max(0, 5 * at + wobble))
            for at, (_, wobble) in enumerate(steps)
        ]
    ),
    min_size=1,
    max_size=4,
)


@given(logs, st.integers(1, 6), st.sampled_from(["newest", "oldest"]), st.integers(1, 40), st.booleans())
@settings(max_examples=60)
def test_pages_together_are_everything_once_and_in_order(
    partitions: list[list[tuple[int, int]]], limit: int, seek: str, bound: int, filtered: bool
) -> None:
    log = Memory(*partitions)
    more = {"key": "k3"} if filtered else {}
    got = all_pages(log, SearchLimits(records=bound), seek=seek, limit=limit, **more)
    for partition, records in enumerate(partitions):
        expected = [at for at, _ in records if not filtered or at % 5 == 3]
        mine = [at for index, at in got if index == partition]
        assert mine == (expected[::-1] if seek == "newest" else expected)


def test_following_gives_what_came_and_counts_what_was_too_fast() -> None:
    log = Memory([(at, at) for at in range(100)], [(at, at) for at in range(5)])
    arrived = follow(log, "t", MessageQuery(limit=20), Decoding(), {0: 95, 1: 5}, {0: 100, 1: 5})
    assert [each.offset for each in arrived.messages] == [99, 98, 97, 96, 95]
    assert (arrived.skipped, arrived.offsets) == (0, {0: 100, 1: 5})
    arrived = follow(log, "t", MessageQuery(limit=20), Decoding(), {0: 0}, {0: 100})
    assert [each.offset for each in arrived.messages] == list(range(99, 79, -1))
    assert arrived.skipped == 80
    arrived = follow(log, "t", MessageQuery(limit=20, key="k3"), Decoding(), {0: 0}, {0: 100})
    assert [each.offset for each in arrived.messages][:2] == [98, 93]
    assert arrived.skipped == 0
