"""What screens show, made from snapshots by hand; no broker, no HTTP."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.insight.horizon import DiskHorizon, StoppedPartitions
from millstream.client.librdkafka.admin import BrokerNode, ClusterInfo, PartitionInfo
from millstream.client.text.position import TopicPartition
from millstream.console.observing.history import History
from millstream.console.observing.observer import Observer
from millstream.console.observing.snapshot import GroupState, Snapshot, TopicState
from millstream.console.overview.attention import needs_attention
from millstream.console.overview.overview import overview
from millstream.console.topics.listing import TopicQuery, topic_list
from millstream.core.clock import ManualClock

HOUR = 3_600_000


def topic(name: str, **more: object) -> TopicState:
    plain = TopicState(name, name.startswith("__"), 1, 1, 10, 1000, 0.0, 0.0, None, None)
    return replace(plain, **more)  # type: ignore[arg-type]


def snapshot(*topics: TopicState, **more: object) -> Snapshot:
    plain = Snapshot(0, "b:1", "id", 0, (BrokerNode(0, "b", 1),), {each.name: each for each in topics})
    return replace(plain, **more)  # type: ignore[arg-type]


def group(**more: object) -> GroupState:
    return replace(GroupState("billing", "Stable", "classic", ("t",), 5, 0, 0.0), **more)  # type: ignore[arg-type]


# Topics ----------------------------------------------------------------------------------------------


def names(found: Snapshot, **query: object) -> list[str]:
    return [each.name for each in topic_list(found, TopicQuery(**query)).topics]  # type: ignore[arg-type]


def test_every_word_of_a_search_must_be_in_the_name() -> None:
    found = snapshot(topic("Orders.EU"), topic("orders.us"), topic("clicks"))
    assert names(found, search="orders") == ["Orders.EU", "orders.us"]
    assert names(found, search="eu ORD") == ["Orders.EU"]


def test_internal_topics_are_counted_and_shown_if_asked_for() -> None:
    found = snapshot(topic("a"), topic("__consumer_offsets"))
    assert names(found) == ["a"]
    assert topic_list(found, TopicQuery()).hidden == 1
    assert names(found, internal=True) == ["__consumer_offsets", "a"]


def test_topics_of_equal_size_stay_in_the_order_of_their_names() -> None:
    found = snapshot(topic("b"), topic("c", bytes=5000), topic("a"), topic("unknown", bytes=None))
    assert names(found, sort="bytes", order="desc") == ["c", "a", "b", "unknown"]
    assert names(found, sort="bytes", order="asc") == ["unknown", "a", "b", "c"]


@given(st.integers(0, 120), st.integers(1, 20))
def test_pages_show_every_topic_once(count: int, per_page: int) -> None:
    found = snapshot(*(topic(f"t{n:03}") for n in range(count)))
    pages = topic_list(found, TopicQuery(per_page=per_page)).pages
    shown = [name for page in range(1, pages + 1) for name in names(found, page=page, per_page=per_page)]
    assert shown == sorted(found.topics)
    assert topic_list(found, TopicQuery(page=pages + 7, per_page=per_page)).query.page == pages


# Attention -------------------------------------------------------------------------------------------


def test_nothing_needs_attention_where_nothing_is_wrong() -> None:
    found = snapshot(topic("t"), groups={"billing": group(loss_ms=48 * HOUR)})
    assert needs_attention(found) == []


def test_the_worst_comes_first_and_links_to_what_is_wrong() -> None:
    found = snapshot(
        topic("copies", under_replicated=(1,)),
        topic("a/b", leaderless=(0, 2)),
        groups={"billing": group(loss_ms=HOUR // 2, loss_at=TopicPartition("t", 3)), "slow": group(lag=0)},
        disks=(DiskHorizon("b:1", "/data", 1000, 7200.0),),
    )
    told = needs_attention(found)
    assert [each.severity for each in told] == ["critical", "critical", "warning", "warning"]
    links = {each.link for each in told}
    assert links >= {"/topics/a%2Fb", "/groups/billing#t-3", "/topics/copies"}
    assert any("in 30 min" in each.what for each in told)
    assert overview(found).attention == told


def test_what_stopped_by_itself_is_named_with_its_partitions_and_why() -> None:
    stopped = StoppedPartitions.of("0,3: t-0: can't write: Input/output error")
    found = snapshot(
        topic("t", stopped=stopped), topic("u", uncompacted=StoppedPartitions.of("1: damaged: a: b"))
    )
    writes, compaction = needs_attention(found)
    assert (writes.severity, writes.what) == ("critical", "t accepts no writes in partitions 0, 3")
    assert (writes.why, writes.link) == ("t-0: can't write: Input/output error", "/topics/t/partitions")
    assert (compaction.severity, compaction.what) == (
        "warning",
        "u is no longer compacted in partition 1",
    )
    assert compaction.why == "damaged: a: b"


@pytest.mark.parametrize("told", [None, "", "nobody knows what this is"])
def test_nothing_is_taken_for_stopped_that_is_not_named(told: str | None) -> None:
    assert StoppedPartitions.of(told).partitions == ()


def test_records_that_were_lost_are_critical() -> None:
    (told,) = needs_attention(snapshot(groups={"billing": group(lost=12)}))
    assert told.severity == "critical"
    assert "12 records deleted" in told.why


# History ---------------------------------------------------------------------------------------------


@given(st.integers(1, 300), st.integers(1, 50), st.integers(1, 60))
def test_history_is_bounded_and_thinned(moments: int, points: int, most: int) -> None:
    history = History(points)
    for at in range(moments):
        history.add(at * 1000, {"in": float(at)})
    assert len(history) <= points + points // 10 + 1
    columns = history.columns("in", "never", most=most)
    assert len(columns.times) == len(columns.series["in"]) <= most
    assert columns.times == sorted(columns.times)
    assert columns.times[-1] == moments - 1
    assert set(columns.series["never"]) == {None}
    assert history.last("in") == [moments - 1, moments - 1]


def test_what_is_no_longer_told_is_forgotten_when_it_is_all_gaps() -> None:
    history = History(10)
    history.add(0, {"gone": 1.0})
    for at in range(1, 40):
        history.add(at, {"here": 1.0})
    assert history.columns("gone").series["gone"] == [None] * len(history)


# Observing -------------------------------------------------------------------------------------------


class Told:
    """What an administrator is told, without a broker: the numbers are the test's."""

    class connection:  # noqa: N801
        address = "b:1"

    def __init__(self) -> None:
        self.offsets = {TopicPartition("t", 0): 0}

    def cluster(self) -> ClusterInfo:
        parts: dict[str, list[PartitionInfo]] = {}
        for place in self.offsets:
            parts.setdefault(place.topic, []).append(PartitionInfo(place.partition, 0, (0,), (0,)))
        parts.setdefault("broken", []).append(PartitionInfo(0, None, (0, 1), (1,)))
        return ClusterInfo("id", 0, (BrokerNode(0, "b", 1),), {n: tuple(p) for n, p in parts.items()})

    def ends(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self.offsets[place] for place in partitions}


def test_rates_are_those_of_the_last_seconds_and_of_a_new_topic_since_it_is_there() -> None:
    clock, told = ManualClock(), Told()
    observer = Observer(clock)
    for second in range(20):
        told.offsets[TopicPartition("t", 0)] += 100 if second < 10 else 0
        if second >= 18:
            told.offsets[TopicPartition("new", 0)] = (second - 17) * 50
        seen = observer.look(told)  # type: ignore[arg-type]
        clock.advance(1)
        if second == 9:
            assert seen.topics["t"].records_per_second == 100
    assert seen.topics["t"].records_per_second == 0
    assert seen.topics["new"].records_per_second == 50
    assert seen.topics["broken"].leaderless == (0,)
    assert seen.topics["t"].records is None, "not known before the closer look"
    assert len(observer.history) == 19


def test_a_topic_made_anew_is_not_written_backwards() -> None:
    clock, told = ManualClock(), Told()
    observer = Observer(clock)
    for end in (500, 3):
        told.offsets[TopicPartition("t", 0)] = end
        seen = observer.look(told)  # type: ignore[arg-type]
        clock.advance(1)
    assert seen.topics["t"].records_per_second == 0
