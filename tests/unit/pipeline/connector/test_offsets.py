from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.text.position import END, START, Position, TopicPartition
from millstream.core.errors import ConfigError
from millstream.pipeline.connector.offsets import (
    SMALL_RANGE,
    Span,
    at_most,
    divide,
    from_json,
    parse_assign,
    parse_positions,
    to_json,
)

NOW = 1_700_000_000_000
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)

partitions = st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 3))
offsets = st.dictionaries(partitions, st.integers(0, 10**6), min_size=1)


@given(offsets)
def test_offsets_survive_the_checkpoint(some: dict[TopicPartition, int]) -> None:
    assert from_json(to_json(some)) == some


def test_the_checkpoint_is_that_of_sparks_kafka_source() -> None:
    assert to_json({A1: 2, A0: 1, B0: 3}) == {"a": {"0": 1, "1": 2}, "b": {"0": 3}}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("earliest", START),
        ("latest", END),
        ("@1700000000000", Position("time", NOW)),
        ("@-1h", Position("time", NOW - 3_600_000)),
    ],
)
def test_one_place_for_all_partitions(text: str, place: Position) -> None:
    assert parse_positions(text, "startingOffsets", NOW).everywhere == place


def test_a_place_for_each_partition() -> None:
    places = parse_positions('{"a": {"0": 23, "1": -2}, "b": {"0": "@-1h"}}', "startingOffsets", NOW)
    assert places.each == {A0: Position("offset", 23), A1: START, B0: Position("time", NOW - 3_600_000)}
    times = parse_positions('times:{"a": {"0": 5}}', "startingOffsetsByTimestamp", NOW)
    assert times.each == {A0: Position("time", 5)}


def test_a_group_may_say_what_to_do_without_an_offset() -> None:
    assert parse_positions("group", "startingOffsets", NOW).everywhere is None
    assert parse_positions("group:latest", "startingOffsets", NOW).everywhere == END


@pytest.mark.parametrize(
    "text",
    ["soon", "group:now", "{", '{"a": 1}', '{"a": {"x": 1}}', '{"a": {"0": -3}}', '{"a": {"0": true}}'],
)
def test_what_is_no_place_is_refused_with_the_options_name(text: str) -> None:
    with pytest.raises(ConfigError, match="option startingOffsets: "):
        parse_positions(text, "startingOffsets", NOW)


def test_assign_is_checked() -> None:
    assert parse_assign('{"a": [0, 2]}') == {"a": [0, 2]}
    for text in ("x", "[]", '{"a": "b"}', '{"a": 1}'):
        with pytest.raises(ConfigError, match="option assign"):
            parse_assign(text)


@given(
    start=offsets,
    sizes=st.lists(st.integers(0, 10**6), min_size=12, max_size=12),
    records=st.integers(1, 10**6),
)
def test_a_limit_is_kept_used_and_shared(
    start: dict[TopicPartition, int], sizes: list[int], records: int
) -> None:
    end = {p: offset + size for (p, offset), size in zip(start.items(), sizes, strict=False)}
    found = at_most(start, end, records)
    taken = {p: found[p] - start[p] for p in end}
    assert all(0 <= taken[p] <= end[p] - start[p] for p in end)
    waiting = sum(end[p] - start[p] for p in end)
    assert min(records, waiting) - len(end) <= sum(taken.values()) <= min(records, waiting)
    if waiting:
        assert sum(taken.values()) > 0


spans = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 3 * SMALL_RANGE)), max_size=8).map(
    lambda pairs: [Span(TopicPartition("t", i), first, first + size) for i, (first, size) in enumerate(pairs)]
)


@given(some=spans, tasks=st.none() | st.integers(1, 12), records=st.none() | st.integers(500, 20_000))
def test_tasks_cover_every_offset_once(some: list[Span], tasks: int | None, records: int | None) -> None:
    divided = divide(some, min_tasks=tasks, max_records=records)
    covered = sorted((s.partition, s.first, s.end) for task in divided for s in task)
    for span in some:
        mine = [(first, end) for partition, first, end in covered if partition == span.partition]
        assert [first for first, _ in mine] == sorted({first for first, _ in mine})
        at = span.first
        for first, end in mine:
            assert first == at
            at = end
        assert at == (span.end if mine else span.first)
        assert bool(mine) == (span.size > 0)
    if records is not None:
        assert all(sum(span.size for span in task) <= records for task in divided)


def test_many_small_partitions_are_read_by_few_tasks_and_large_ones_apart() -> None:
    small = [Span(TopicPartition("t", i), 0, 100) for i in range(50)]
    large = [Span(TopicPartition("u", i), 0, 10 * SMALL_RANGE) for i in range(2)]
    assert sorted(len(task) for task in divide(small + large)) == [1, 1, 50]


def test_a_large_partition_is_split_in_proportion() -> None:
    divided = divide([Span(A0, 0, 900), Span(A1, 0, 100)], min_tasks=10)
    assert [(s.partition, s.size) for (s,) in divided] == [(A0, 100)] * 9 + [(A1, 100)]
