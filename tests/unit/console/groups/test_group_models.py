"""What the screens of groups show, from snapshots by hand; and how groups are watched, without a broker."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.insight.group_survey import SurveyedGroup
from millstream.client.insight.horizon import Horizon, WriteRate
from millstream.client.insight.lag import GroupLoss
from millstream.client.insight.times import PartitionOffset
from millstream.client.librdkafka.groups import GroupInfo, GroupListing, GroupMember
from millstream.client.protocol.cluster import Committed
from millstream.client.text.position import Bounds, TopicPartition, parse_position
from millstream.console import units
from millstream.console.groups.changes import (
    Choice,
    Target,
    deletion,
    parse_partitions,
    position_text,
)
from millstream.console.groups.group import group_detail, lag_over_time
from millstream.console.groups.listing import GroupQuery, group_list
from millstream.console.links import group_link, group_named
from millstream.console.observing import group_watch
from millstream.console.observing.group_watch import GroupWatch
from millstream.console.observing.history import History
from millstream.console.observing.snapshot import GroupState, Snapshot
from millstream.core.clock import ManualClock
from millstream.core.errors import ConfigError
from millstream.core.horizon import TopicRetention
from millstream.core.units import runs

HOUR = 3_600_000
PLACE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


class World:
    """A cluster of one topic, as ``GroupWatch`` asks for it: the numbers are the test's."""

    connection = None

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.watch = GroupWatch(self.clock)
        self.bounds = {PLACE: Bounds(0, 1000), OTHER: Bounds(0, 500)}
        self.committed: dict[str, dict[TopicPartition, int]] = {}
        self.members: tuple[GroupMember, ...] = ()
        self.asked: list[PartitionOffset] = []
        self.away: set[str] = set()
        monkeypatch.setattr(group_watch, "survey", self._survey)
        monkeypatch.setattr(group_watch, "times_at", self._times_at)

    def groups(self) -> list[GroupListing]:
        return [GroupListing(name, "Stable", "classic") for name in self.committed]

    def ends(self, places: list[TopicPartition], *, committed_only: bool) -> dict[TopicPartition, int]:
        assert committed_only, "as `group lag` and pipelines count"
        return {place: self.bounds[place].end for place in places}

    def newest_if_told(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self.clock.now_ms() for place in places}

    def _survey(self, connection: object, listed: list[GroupListing]) -> dict[str, SurveyedGroup]:
        return {
            each.name: SurveyedGroup(
                GroupInfo(each.name, each.state, each.kind, "range", "b:1", self.members),
                {place: Committed(at) for place, at in self.committed[each.name].items()},
            )
            for each in listed
            if each.name not in self.away
        }

    def _times_at(self, connection: object, spots: list[PartitionOffset]) -> dict[PartitionOffset, int]:
        self.asked += spots
        return {spot: self.clock.now_ms() - 60_000 for spot in spots}

    def look(self, seconds: float = 5) -> dict[str, GroupState]:
        self.clock.advance(seconds)
        writing = dict.fromkeys(self.bounds, WriteRate(10.0, 100.0))
        horizon = Horizon({}, [], {}, self.bounds, writing, {"t": TopicRetention(retention_ms=HOUR)})
        self.watch.look(self, horizon, dict.fromkeys(self.bounds, 0))  # type: ignore[arg-type]
        return self.watch.states


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_lag_and_rates_are_told_by_partition(world: World) -> None:
    world.committed["g"] = {PLACE: 400}
    world.look()
    world.committed["g"] = {PLACE: 500}
    state = world.look(10)["g"]
    assert (state.lag, state.read_per_second) == (500, 10.0)
    assert [part.lag for part in state.partitions] == [500, None], "nothing is committed of the other"
    assert state.behind_ms == 60_000
    assert state.loss_at is None, "it reads as fast as it is written"
    for _ in range(10):
        state = world.look()["g"]
    assert state.loss_at == PLACE


def test_a_rate_is_that_of_the_last_half_minute(world: World) -> None:
    for second in range(0, 100, 5):
        world.committed["g"] = {PLACE: min(second, 50) * 10}
        state = world.look()["g"]
    assert state.read_per_second == 0


def test_when_a_record_was_written_is_asked_once_while_the_group_stands(world: World) -> None:
    world.committed["g"] = {PLACE: 400, OTHER: 500}
    world.look()
    world.look()
    assert world.asked == [PartitionOffset(PLACE, 400)], "nor is it where nothing is unread"
    world.committed["g"] = {PLACE: 401, OTHER: 500}
    world.look()
    assert world.asked == [PartitionOffset(PLACE, 400), PartitionOffset(PLACE, 401)]


def test_a_group_that_cannot_be_told_of_stays_as_it_was_and_one_that_is_gone_goes(world: World) -> None:
    world.committed = {"g": {PLACE: 400}, "h": {PLACE: 1}}
    world.look()
    world.away = {"g"}
    assert world.look()["g"].lag == 600
    del world.committed["g"]
    assert list(world.look()) == ["h"]
    assert list(world.watch.partitions) == ["h"]


def test_what_is_remembered_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_watch, "MOST_SERIES", 4)
    world.committed = {name: {PLACE: 0} for name in ("a", "b", "c")}
    for _ in range(1000):
        world.look()
    assert list(world.watch.partitions) == ["a", "b"]
    assert len(world.watch.partitions["a"]) <= 360 + 36


def test_a_topic_that_a_member_reads_shows_before_anything_is_committed(world: World) -> None:
    world.members = (GroupMember("m-1", None, "m", "10.0.0.1", (PLACE, OTHER)),)
    world.committed["g"] = {}
    state = world.look()["g"]
    assert (state.topics, state.lag, state.members) == (("t",), 0, 1)
    assert [part.member for part in state.partitions] == ["m", "m"]
    (member,) = group_detail(state).members
    assert [(reads.topic, reads.partitions) for reads in member.reads] == [("t", [0, 1])]


# The list --------------------------------------------------------------------------------------------


def group(name: str, **more: object) -> GroupState:
    return replace(GroupState(name, "Empty", "classic", ("t",), 5, 0, 0.0), **more)  # type: ignore[arg-type]


def names(*groups: GroupState, **query: object) -> list[str]:
    found = Snapshot(0, "b:1", "id", 0, (), {}, {each.name: each for each in groups}, (), True)
    return [each.name for each in group_list(found, History(), GroupQuery(**query)).groups]  # type: ignore[arg-type]


def test_groups_are_searched_chosen_and_sorted() -> None:
    some = [group("b", lag=9, loss_ms=HOUR), group("A", lag=0), group("c", lag=9, lost=3, loss_ms=5)]
    assert names(*some) == ["A", "b", "c"]
    assert names(*some, sort="lag", order="desc") == ["b", "c", "A"]
    assert names(*some, sort="loss") == ["c", "b", "A"]
    assert names(*some, only="behind") == ["b", "c"]
    assert names(*some, only="losing", search="C") == ["c"]
    assert names(*some, only="active") == []


def test_a_trend_is_a_line_and_a_single_point_is_none() -> None:
    assert units.spark([5.0, None]) == ""
    assert 'points="0.0,19.0 88.0,1.0"' in units.spark([0.0, 8.0])
    assert 'points="0.0,19.0 88.0,19.0"' in units.spark([0.0, 0.0])


@given(st.text(min_size=1))
def test_a_link_leads_back_to_the_group_whatever_its_name(name: str) -> None:
    path = group_link(name, "reset")
    assert path.count("/") == 3
    served = unquote(path).split("/")  # as a server does
    assert served[:2] == ["", "groups"]
    assert group_named(served[2]) == name


def test_the_chart_shows_those_furthest_behind_in_their_order(world: World) -> None:
    world.bounds = {TopicPartition("t", n): Bounds(0, n * 10) for n in range(12)}
    world.committed["g"] = dict.fromkeys(world.bounds, 0)
    state = world.look()["g"]
    columns = lag_over_time(state, world.watch.partitions["g"], most=3)
    assert {name: values[-1] for name, values in columns.series.items()} == {
        "t[9]": 90, "t[10]": 100, "t[11]": 110,
    }  # fmt: skip
    assert lag_over_time(state, None, most=1).series == {"t[11]": []}


def test_what_was_missed_has_no_time_where_none_is_known() -> None:
    missed = GroupLoss(PLACE, 3, 10, -1, 5000, 6000, 7)
    (told,) = group_detail(group("g"), [missed]).missed
    assert (told.records, told.first_ms, told.last_ms, told.in_all) == (7, None, 5000, 7)


# Changes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "value", "text"),
    [
        ("start", "", "start"),
        ("end", "ignored", "end"),
        ("offset", " 47 ", "47"),
        ("shift", "100", "+100"),
        ("shift", "-100", "-100"),
        ("time", "1h", "@-1h"),
        ("time", "-1d12h", "@-1d12h"),
        ("time", "2026-01-31T10:30:00.000Z", "@2026-01-31T10:30:00.000Z"),
    ],
)
def test_a_choice_is_a_position_of_the_command_line(to: Target, value: str, text: str) -> None:
    assert position_text(Choice(to, value)) == text
    parse_position(text, 0)


@pytest.mark.parametrize(
    ("to", "value"), [("offset", ""), ("offset", "-1"), ("shift", "1h"), ("shift", ""), ("offset", "9" * 99)]
)
def test_a_value_that_does_not_fit_is_refused(to: Target, value: str) -> None:
    with pytest.raises(ConfigError):
        position_text(Choice(to, value))


@given(st.sets(st.integers(0, 500)))
def test_partitions_are_read_as_they_are_written(numbers: set[int]) -> None:
    assert parse_partitions(runs(numbers)) == sorted(numbers)


@pytest.mark.parametrize("text", ["a", "1-", "3-1", "0-999999999", "1;2"])
def test_what_are_no_partitions_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write partitions as 0,2-4"):
        parse_partitions(text)


def test_a_deletion_counts_what_is_read_again_or_skipped(world: World) -> None:
    world.bounds = {PLACE: Bounds(10, 100), TopicPartition("u", 0): Bounds(0, 50)}
    world.committed["g"] = {PLACE: 30, TopicPartition("u", 0): 50}
    state = world.look()["g"]
    lost = deletion(state)
    assert (lost.offsets, lost.topics, lost.read_again, lost.skipped) == (2, ["t", "u"], 70, 70)
    assert deletion(state, "u").read_again == 50
    busy = replace(state.info, members=(GroupMember("m-1", None, "m", "h", (PLACE,)),))  # type: ignore[type-var]
    assert "m at h" in deletion(replace(state, info=busy)).refused
    assert not deletion(replace(state, info=busy), "u").refused
