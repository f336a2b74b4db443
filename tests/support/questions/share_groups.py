"""Share groups: their members, their settings, and where they are."""

from __future__ import annotations

from typing import Any

from tests.support.questions.asker import Questions
from tests.support.waiting import wait_for

OFFSET_COMMIT = 8
OFFSET_FETCH = 9
JOIN = 11
DESCRIBE_GROUPS = 15
LIST_GROUPS = 16
DESCRIBE_CONFIGS = 32
DELETE_GROUPS = 42
INCREMENTAL = 44
OFFSET_DELETE = 47
CONSUMER_HEARTBEAT = 68
CONSUMER_DESCRIBE = 69
HEARTBEAT = 76
DESCRIBE = 77
DESCRIBE_OFFSETS = 90
ALTER_OFFSETS = 91
DELETE_OFFSETS = 92

_MEMBER = "00000000-0000-4000-8000-000000000001"


def _heartbeat(group: str, epoch: int = 0, member: str = _MEMBER, **more: Any) -> dict[str, Any]:
    fields = {"rack_id": None, "subscribed_topic_names": None, **more}
    return {"group_id": group, "member_id": member, "member_epoch": epoch, **fields}


def _joined(q: Questions, group: str, topic: str) -> int:
    """Join, and wait until there is an assignment: Kafka makes it a little later. Returns the epoch."""
    said = q.client.call(HEARTBEAT, 1, **_heartbeat(group, subscribed_topic_names=[topic]))
    epoch, has = said.member_epoch, bool(said.assignment.topic_partitions)

    def is_assigned() -> bool:
        nonlocal epoch, has
        if not has:
            again = q.client.call(HEARTBEAT, 1, **_heartbeat(group, epoch, subscribed_topic_names=[topic]))
            assert not again.error_code.value, again
            epoch, has = again.member_epoch, bool(again.assignment.topic_partitions)
        return has

    wait_for(is_assigned, what="an assignment", every=0.2)
    return int(epoch)


def members_of_share_groups(q: Questions) -> None:
    topic, group = q.topic("read", 2), q.name("shared")

    def beat(question: str, *who: Any, **more: Any) -> None:
        q.ask(f"heartbeat: {question}", HEARTBEAT, 1, **_heartbeat(*who, **more))

    subscribed = {"subscribed_topic_names": [topic]}
    beat("no group", "", **subscribed)
    beat("a blank group", " ", **subscribed)
    beat("no member", group, 0, "", **subscribed)
    beat("a blank member", group, 0, " ", **subscribed)
    beat("a long member", group, 0, "m" * 37, **subscribed)
    beat("a blank rack", group, rack_id=" ", **subscribed)
    beat("no topics", group)
    beat("an empty list of topics", group, subscribed_topic_names=[])
    beat("epoch -2", group, -2)
    beat("a group nobody knows", group, 1)
    beat("leaving a group nobody knows", group, -1)

    epoch = _joined(q, group, topic)
    beat("an epoch to come", group, epoch + 3)
    beat("a member nobody knows", group, epoch, "nobody")
    beat("leaving as a member nobody knows", group, -1, "nobody")
    _of_other_kinds(q, group, topic, "with a member")
    _asked_of_share_group(q, group, topic, "with a member")
    beat("leaving", group, -1)
    beat("leaving again", group, -1)
    _of_other_kinds(q, group, topic, "without members")
    _asked_of_share_group(q, group, topic, "without members")
    q.ask("deleted again", DELETE_GROUPS, 2, groups_names=[group])

    simple, modern = q.name("simple"), q.name("modern")
    _commit(q, "in a new group", simple, topic)
    consumer = {
        "instance_id": None, "rack_id": None, "rebalance_timeout": 30_000, "subscribed_topic_regex": None,
        "server_assignor": None, "topic_partitions": [], **subscribed,
    }  # fmt: skip
    assert not q.client.call(CONSUMER_HEARTBEAT, 1, **_heartbeat(modern) | consumer).error_code.value
    for kind, other in (("classic", simple), ("consumer", modern)):
        beat(f"joining a {kind} group", other, **subscribed)
        beat(f"in a {kind} group", other, 1)
        beat(f"leaving a {kind} group", other, -1)
        fields = {"group_ids": [other], "include_authorized_operations": False}
        q.ask(f"described as a share group: {kind}", DESCRIBE, 1, **fields)
        q.ask(f"moved as a share group: {kind}", ALTER_OFFSETS, 0, **_offsets(other, topic, {0: 0}))


def _commit(q: Questions, question: str, group: str, topic: str) -> None:
    partition = {
        "partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": "",
    }  # fmt: skip
    q.ask(
        f"commit: {question}",
        OFFSET_COMMIT,
        9,
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": topic, "partitions": [partition]}],
    )


def _of_other_kinds(q: Questions, group: str, topic: str, when: str) -> None:
    """Requests of groups of other kinds."""
    q.ask(
        f"consumer heartbeat: {when}",
        CONSUMER_HEARTBEAT,
        1,
        **_heartbeat(group, subscribed_topic_names=[topic]),
        instance_id=None,
        rebalance_timeout=30_000,
        subscribed_topic_regex=None,
        server_assignor=None,
        topic_partitions=[],
    )
    q.ask(
        f"join: {when}",
        JOIN,
        5,
        group_id=group,
        session_timeout=10_000,
        rebalance_timeout=10_000,
        member_id="",
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
        reason=None,
    )
    fields = {"group_ids": [group], "include_authorized_operations": False}
    q.ask(f"described as a consumer group: {when}", CONSUMER_DESCRIBE, 1, **fields)
    for version in (5, 6):
        fields = {"groups": [group], "include_authorized_operations": False}
        q.ask(f"described {version}: {when}", DESCRIBE_GROUPS, version, **fields)
    _commit(q, when, group, topic)
    for named, topics in (("some", [{"name": topic, "partition_indexes": [0, 7]}]), ("all", None)):
        groups = [{"group_id": group, "topics": topics, "member_id": None, "member_epoch": -1}]
        q.ask(f"fetch {named} offsets: {when}", OFFSET_FETCH, 9, groups=groups, require_stable=False)
    topics = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    q.ask(f"delete offsets: {when}", OFFSET_DELETE, 0, group_id=group, topics=topics)


def _asked_of_share_group(q: Questions, group: str, topic: str, when: str) -> None:
    """Requests that say whether there are members."""
    for states in ([], ["stable"]):
        listed = q.client.call(LIST_GROUPS, 5, states_filter=states, types_filter=["Share"]).groups
        ours = [each for each in listed if each.group_id == group]  # others may have share groups too
        q.answers[f"listed {states}: {when}"] = q.plain(ours)
    q.ask(f"move: {when}", ALTER_OFFSETS, 0, **_offsets(group, topic, {0: 0}))
    topics = [{"topic_name": topic}]
    q.ask(f"forget a topic: {when}", DELETE_OFFSETS, 0, group_id=group, topics=topics)
    q.ask(f"delete: {when}", DELETE_GROUPS, 2, groups_names=[group])


def _offsets(group: str, topic: str, offsets: dict[int, int]) -> dict[str, Any]:
    partitions = [{"partition_index": index, "start_offset": at} for index, at in offsets.items()]
    return {"group_id": group, "topics": [{"topic_name": topic, "partitions": partitions}]}


def offsets_of_share_groups(q: Questions) -> None:
    topic, group = q.topic("moved", 2), q.name("moving")
    other = q.topic("other", 1)

    def describe(question: str, topics: Any, version: int = 1) -> None:
        groups = [{"group_id": group, "topics": topics}]
        q.ask(f"describe {version}: {question}", DESCRIBE_OFFSETS, version, groups=groups)

    def forget(question: str, *topics: str, name: str = group) -> None:
        named = [{"topic_name": each} for each in topics]
        q.ask(f"forget: {question}", DELETE_OFFSETS, 0, group_id=name, topics=named)

    some = [
        {"topic_name": topic, "partitions": [0, 1]},
        {"topic_name": q.name("nowhere"), "partitions": [0]},
    ]
    describe("a group nobody knows", some)
    describe("all of a group nobody knows", None)
    describe("nothing", [])
    q.ask("describe 1: no groups", DESCRIBE_OFFSETS, 1, groups=[])
    forget("of a group nobody knows", topic)
    forget("of no group", topic, name="")
    q.ask("move: no group", ALTER_OFFSETS, 0, **_offsets("", topic, {0: 0}))
    q.ask("move: a topic that is not there", ALTER_OFFSETS, 0, **_offsets(group, q.name("nowhere"), {0: 0}))
    q.ask(
        "move: partitions that are there, and not", ALTER_OFFSETS, 0, **_offsets(group, topic, {0: 0, 7: 0})
    )
    for version in (0, 1):
        describe("once it was moved", some, version)
        describe("all, once it was moved", None, version)
    fields = {"group_ids": [group], "include_authorized_operations": True}
    q.ask("a group that was only moved", DESCRIBE, 1, **fields)
    q.ask("move: it again", ALTER_OFFSETS, 0, **_offsets(group, topic, {1: 0}))
    describe("once it was moved again", some)
    forget("a topic it has not read", other)
    forget("a topic that is not there", q.name("nowhere"))
    forget("no topic")
    forget("a topic", topic)
    forget("a topic again", topic)
    describe("forgotten", some)
    q.ask("delete", DELETE_GROUPS, 2, groups_names=[group])


def settings_of_share_groups(q: Questions) -> None:
    group = q.name("set")

    def change(question: str, name: str, value: str | None, operation: int = 0) -> None:
        configs = [{"name": name, "config_operation": operation, "value": value}]
        resources = [{"resource_type": 32, "resource_name": group, "configs": configs}]
        q.ask(f"change: {question}", INCREMENTAL, 1, resources=resources, validate_only=False)

    for name, allowed, too_low, too_high in (
        ("share.session.timeout.ms", "50000", "44999", "60001"),
        ("share.heartbeat.interval.ms", "6000", "4999", "15001"),
        ("share.record.lock.duration.ms", "15000", "14999", "60001"),
        ("share.delivery.count.limit", "10", "1", "11"),
        ("share.partition.max.record.locks", "100", "99", "4001"),
        ("share.assignment.interval.ms", "15000", "-1", "15001"),
    ):
        change(f"{name} too low", name, too_low)
        change(f"{name} too high", name, too_high)
        change(f"{name}", name, allowed)
    for value in (
        "earliest", "latest", "Earliest", "none", "", "by_duration:PT1H30M", "by_duration:P2DT0.5S",
        "by_duration:-PT1H", "by_duration:", "by_duration:1h", "by_duration:P1Y", "by_duration:PT",
    ):  # fmt: skip
        change(f"begin at {value!r}", "share.auto.offset.reset", value)
    for value in ("read_committed", "READ_COMMITTED", "none"):
        change(f"isolation level {value}", "share.isolation.level", value)
    for value in ("false", "maybe"):
        change(f"renewal {value}", "share.renew.acknowledge.enable", value)
    change("an unknown one", "share.bogus", "1")
    names = [
        "share.session.timeout.ms", "share.heartbeat.interval.ms", "share.record.lock.duration.ms",
        "share.delivery.count.limit", "share.partition.max.record.locks", "share.auto.offset.reset",
        "share.isolation.level", "share.renew.acknowledge.enable",
    ]  # fmt: skip

    def describe(question: str, name: str) -> None:
        resources = [{"resource_type": 32, "resource_name": name, "configuration_keys": names}]
        fields = {"resources": resources, "include_synonyms": True, "include_documentation": False}
        q.ask(f"describe: {question}", DESCRIBE_CONFIGS, 4, **fields)

    describe("a group without settings", q.name("plain"))
    for name in names:
        change(f"{name} taken back", name, None, 1)
