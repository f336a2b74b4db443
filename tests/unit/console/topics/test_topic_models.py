"""What a topic's pages show and do, from snapshots and settings by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.client.connect import Connection
from millstream.client.insight.horizon import StoppedPartitions
from millstream.client.insight.peek import PeekedBatch, Record
from millstream.client.librdkafka.admin import BrokerNode, PartitionInfo
from millstream.client.protocol.topic_settings import TopicSetting
from millstream.client.text.position import TopicPartition
from millstream.console.messages.decoding import Decoding
from millstream.console.messages.message import MessageQuery, message
from millstream.console.observing.history import History
from millstream.console.observing.job_topic import LastReport
from millstream.console.observing.snapshot import GroupPartition, GroupState, Snapshot, TopicState
from millstream.console.topics.changes import NewHeader, NewRecord, parse_headers, produce
from millstream.console.topics.settings import in_words, settings_shown
from millstream.console.topics.topic import consumers_of, loss_of, partitions_of, rate_of
from millstream.core.errors import ConfigError
from millstream.jobs.report import JobStatus, QueryStatus, State

PLACES = [TopicPartition("t", index) for index in range(3)]
TOPIC = TopicState("t", False, 3, 2, 30, 3000, 5.0, 500.0, None, 1000)


def group(name: str, *partitions: tuple[int, int, int | None, str | None], topic: str = "t") -> GroupState:
    """Of partitions with lag, records lost, time to loss and member."""
    mine = tuple(
        GroupPartition(topic, index, 5, 0, 10, lag, lost, None, None, 1.0, loss, member, "")
        for index, (lag, lost, loss, member) in enumerate(partitions)
    )
    lag = sum(partition.lag or 0 for partition in mine)
    return GroupState(name, "Stable", "classic", (topic,), lag, 0, 2.0, partitions=mine)


SNAPSHOT = Snapshot(
    5000,
    "b:1",
    "id",
    0,
    (BrokerNode(0, "b", 1),),
    {"t": TOPIC},
    groups={
        each.name: each
        for each in (
            group("idle", (7, 0, None, None)),
            group("losing", (1, 0, 9000, "app"), (2, 4, 3000, "app")),
            group("elsewhere", (3, 0, None, "x"), topic="other"),
        )
    },
    detailed=True,
    ends={PLACES[0]: 15, PLACES[1]: 20},
    places={
        "t": tuple(PartitionInfo(i, None if i == 2 else 0, (0, 1), (0,) if i else (0, 1)) for i in range(3))
    },
    starts={PLACES[0]: 5, PLACES[1]: 0},
    sizes={PLACES[0]: 1500},
    oldest_ms={PLACES[0]: 1000},
)


def test_partitions_with_what_is_wrong_with_them() -> None:
    healthy, behind, leaderless = partitions_of(SNAPSHOT, "t")
    assert (healthy.start, healthy.end, healthy.records, healthy.bytes) == (5, 15, 10, 1500)
    assert (healthy.address, healthy.problem) == ("b:1", "")
    assert behind.problem == "out of sync: broker 1"
    assert leaderless.problem.startswith("no leader")
    assert (leaderless.end, leaderless.records) == (None, None)


def test_a_partition_that_stopped_by_itself_has_a_problem() -> None:
    state = replace(
        TOPIC, stopped=StoppedPartitions((1,), "EIO"), uncompacted=StoppedPartitions((0, 1), "damaged")
    )
    problems = [each.problem for each in partitions_of(replace(SNAPSHOT, topics={"t": state}), "t")]
    assert problems[:2] == ["no longer compacted", "stopped: it accepts no writes"]
    assert problems[2].startswith("no leader")


def test_consumers_of_this_topic_those_that_lose_soonest_first() -> None:
    losing, idle = consumers_of(SNAPSHOT, "t")
    assert (losing.group, losing.lag, losing.lost, losing.loss_ms, losing.members) == (
        "losing",
        3,
        4,
        3000,
        1,
    )
    assert (idle.group, idle.lag, idle.loss_ms, idle.members) == ("idle", 7, None, 0)


def test_what_is_lost_with_a_topic() -> None:
    loss = loss_of(SNAPSHOT, "t")
    assert loss.records == 30
    assert [reader.group for reader in loss.readers] == ["losing", "idle"], "who is reading comes first"
    assert loss.pipelines == []


def test_what_is_lost_with_a_topic_names_the_pipelines_that_use_it() -> None:
    jobs = [
        job("over", "stopped", reads=["t"]),
        job("writer", "running", writes=["x", "t"]),
        job("both", "waiting", reads=["t"], writes=["t"]),
        job("elsewhere", "running", reads=["other"]),
    ]
    heard = {each.job: LastReport(each, SNAPSHOT.at_ms) for each in jobs}
    loss = loss_of(replace(SNAPSHOT, jobs=heard), "t")
    assert [(use.name, use.runs, use.reads, use.writes) for use in loss.pipelines] == [
        ("both", True, True, True),
        ("writer", True, False, True),
        ("over", False, True, False),
    ], "those that run come first"


def job(
    name: str, state: State, *, reads: list[str] | None = None, writes: list[str] | None = None
) -> JobStatus:
    queries = [QueryStatus("q", name, reads or [], writes or [])]
    return JobStatus(1, name, "r", "h", 1, 0, 0, state, 0, "exactly-once", queries=queries)


def test_a_topic_that_was_not_written_has_a_rate_of_nothing() -> None:
    history = History()
    history.add(1000, {"other": 5.0})
    history.add(2000, {"t": 3.0})
    assert rate_of(history, "t").series == {"in": [0.0, 3.0]}
    assert rate_of(history, "unknown").series == {"in": [0.0, 0.0]}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("retention.ms", "604800000", "7 d"),
        ("retention.ms", "-1", "no limit"),
        ("segment.bytes", "1073741824", "1.07 GB"),
        ("flush.messages", str(2**63 - 1), "no limit"),
        ("local.retention.ms", "-2", "as retention.ms"),
        ("segment.jitter.ms", "0", ""),
        ("min.insync.replicas", "1", ""),
        ("cleanup.policy", "delete", ""),
        ("cleanup.policy", None, ""),
    ],
)
def test_settings_in_words(name: str, value: str | None, words: str) -> None:
    assert in_words(name, value) == words


def test_settings_are_found_by_meaning_and_its_own_come_first() -> None:
    plain = TopicSetting("flush.ms", "1", "1", "default", "number", False, "Sync to disk.")
    own = replace(plain, name="segment.ms", value="2", source="topic", meaning="A new segment.")
    ours = replace(plain, name="millstream.storage", value="disk", kind="text", meaning="Where records are.")
    state = replace(plain, name="millstream.overload.state", value="3 producers are held")
    shown = settings_shown([plain, ours, own, state])
    assert [setting.name for setting in shown.settings] == ["segment.ms", "flush.ms", "millstream.storage"]
    assert (shown.own, shown.states) == (1, {"millstream.overload.state": "3 producers are held"})
    assert [s.name for s in settings_shown([plain, ours, own], "SYNC disk").settings] == ["flush.ms"]
    assert [s.name for s in settings_shown([plain, ours, own], own_only=True).settings] == ["segment.ms"]


def test_only_what_is_not_as_always_stands_in_an_address() -> None:
    assert MessageQuery().parameters() == {}
    query = MessageQuery(seek="oldest", offset=7, partition=0, committed=False, cursor="0:1", key="a&b")
    assert query.parameters(cursor="0:5") == {
        "seek": "oldest",
        "partition": 0,
        "committed": "false",
        "cursor": "0:5",
        "key": "a&b",
    }


def test_a_marker_says_what_it_is_and_not_what_is_in_it() -> None:
    batch = PeekedBatch("abort marker", 3, False, [])
    shown = message(1, batch, Record(b"\0\0\0\0", b"\0\0", (), 5, 9), Decoding())
    assert (shown.offset, shown.state, shown.value.format, shown.bytes) == (9, "abort marker", "null", 0)


def test_headers_are_lines() -> None:
    assert parse_headers("a: 1\n\n b :x:y \nnone") == [
        NewHeader("a", "1"),
        NewHeader("b", "x:y"),
        NewHeader("none", None),
    ]
    with pytest.raises(ConfigError, match="line 2 has no name"):
        parse_headers("a: 1\n: 2")


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (NewRecord(), "a tombstone needs one"),
        (NewRecord(value="xyz", format="hex"), "value: not hex"),
        (NewRecord(value="{", format="json"), "value: not JSON"),
        (NewRecord(value="[" * 100_000, format="json"), "value: nested too deeply"),
        (NewRecord(value="1", key="{", key_format="json"), "key: not JSON"),
        (NewRecord(value="\ud800"), "lone surrogate"),
    ],
)
def test_what_can_not_be_produced_is_said_before_anything_is_sent(record: NewRecord, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        produce(Connection.of("127.0.0.1:1"), "t", record)
