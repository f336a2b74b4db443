"""Topics: made, grown, described and deleted."""

from __future__ import annotations

import uuid
from typing import Any

from tests.support.questions.asker import Questions

METADATA = 3
CREATE_TOPICS = 19
DELETE_TOPICS = 20
CREATE_PARTITIONS = 37
DESCRIBE_PARTITIONS = 75


def _new(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [],
        "configs": [],
        **more,
    }


def creating_topics(q: Questions) -> None:
    def create(question: str, *topics: dict[str, Any], version: int = 7, **more: Any) -> None:
        q.ask(
            f"create: {question}", CREATE_TOPICS, version, topics=list(topics), **{"timeout": 10_000, **more}
        )

    def config(name: str, value: str | None) -> dict[str, Any]:
        return {"configs": [{"name": name, "value": value}]}

    here = q.name("here")
    create("nothing")
    create("one", _new(here, 2))
    create("it is there", _new(here, 2))
    create("it is there, only checked", _new(here, 2), validate_only=True)
    create("one twice", _new(q.name("twice")), _new(q.name("twice")))
    create("one twice and another", _new(q.name("two")), _new(q.name("two")), _new(q.name("other")))
    for bad in ("", ".", "..", "a b", "ä", "x" * 250, "a/b"):
        create(f"name {bad[:9]!r}", _new(bad))
    create("with a dot", _new(q.name("a.b")))
    create("an underscore where there is a dot", _new(q.name("a_b")))
    create("no partitions", _new(q.name("none"), 0))
    create("-2 partitions", _new(q.name("none"), -2))
    create("default partitions and replicas", _new(q.name("default"), -1, -1))
    create("no replicas", _new(q.name("none"), 1, 0))
    create("-2 replicas", _new(q.name("none"), 1, -2))
    create("3 replicas", _new(q.name("none"), 1, 3))
    create("unknown setting", _new(q.name("odd"), **config("no.such.setting", "1")))
    create("bad value", _new(q.name("odd"), **config("retention.ms", "soon")))
    create("value out of range", _new(q.name("odd"), **config("max.message.bytes", "-1")))
    create("no value", _new(q.name("odd"), **config("retention.ms", None)))
    create("empty value", _new(q.name("odd"), **config("retention.ms", "")))
    create("bad policy", _new(q.name("odd"), **config("cleanup.policy", "keep")))
    create("only checked", _new(q.name("planned"), 3), validate_only=True)
    create("only checked, and bad", _new(q.name("planned"), 1, 3), validate_only=True)

    def assigned(*partitions: tuple[int, list[int]]) -> dict[str, Any]:
        return {"assignments": [{"partition_index": p, "broker_ids": ids} for p, ids in partitions]}

    by_hand = q.name("by-hand")
    create("assigned", _new(by_hand, -1, -1, **assigned((0, [0]), (1, [0]))))
    create("assigned and counted", _new(q.name("odd"), 1, 1, **assigned((0, [0]))))
    create("assigned and partitions counted", _new(q.name("odd"), 1, -1, **assigned((0, [0]))))
    create("assigned to nobody", _new(q.name("odd"), -1, -1, **assigned((0, []))))
    create("assigned to one who is not there", _new(q.name("odd"), -1, -1, **assigned((0, [9]))))
    create("assigned with a gap", _new(q.name("odd"), -1, -1, **assigned((0, [0]), (2, [0]))))
    create("assigned not from 0", _new(q.name("odd"), -1, -1, **assigned((1, [0]))))
    create("assigned twice", _new(q.name("odd"), -1, -1, **assigned((0, [0]), (0, [0]))))
    create("assigned to one twice", _new(q.name("odd"), -1, -1, **assigned((0, [0, 0]))))
    for version in range(2, 7):
        create(f"version {version}", _new(q.name(f"v{version}")), _new("a b"), version=version)
    create(
        "a setting twice",
        _new(
            q.name("setting-twice"),
            configs=[{"name": "retention.ms", "value": "1000"}, {"name": "retention.ms", "value": "2000"}],
        ),
    )


def deleting_topics(q: Questions) -> None:
    one, two = q.topic("one"), q.topic("two")
    q.ask("delete: nothing", DELETE_TOPICS, 6, topics=[], timeout=10_000)
    q.ask(
        "delete: not there",
        DELETE_TOPICS,
        6,
        topics=[{"name": q.name("no"), "topic_id": None}],
        timeout=10_000,
    )
    q.ask("delete: bad name", DELETE_TOPICS, 5, topic_names=["a b"], timeout=10_000)
    unknown = [{"name": None, "topic_id": uuid.uuid4()}]
    q.ask("delete: unknown id", DELETE_TOPICS, 6, topics=unknown, timeout=10_000)
    both = [{"name": one, "topic_id": uuid.uuid4()}]
    q.ask("delete: by name and id", DELETE_TOPICS, 6, topics=both, timeout=10_000)
    neither = [{"name": None, "topic_id": None}]
    q.ask("delete: by neither", DELETE_TOPICS, 6, topics=neither, timeout=10_000)
    twice = [{"name": one, "topic_id": None}] * 2
    q.ask("delete: one twice", DELETE_TOPICS, 6, topics=twice, timeout=10_000)
    q.ask("delete: one twice, by names", DELETE_TOPICS, 5, topic_names=[one, one, two], timeout=10_000)
    q.ask("delete: one", DELETE_TOPICS, 6, topics=[{"name": one, "topic_id": None}], timeout=10_000)
    q.ask("delete: again", DELETE_TOPICS, 1, topic_names=[one], timeout=10_000)


def growing_topics(q: Questions) -> None:
    grown = q.topic("grown", 2)

    def grow(question: str, name: str, count: int, assigned: Any = None, **more: Any) -> None:
        assignments = None if assigned is None else [{"broker_ids": ids} for ids in assigned]
        topics = [{"name": name, "count": count, "assignments": assignments}] * more.pop("times", 1)
        fields = {"topics": topics, "timeout": 10_000, "validate_only": False, **more}
        q.ask(f"grow: {question}", CREATE_PARTITIONS, 3, **fields)

    q.ask("grow: nothing", CREATE_PARTITIONS, 3, topics=[], timeout=10_000, validate_only=False)
    grow("not there", q.name("no"), 3)
    grow("bad name", "a b", 3)
    for count in (2, 1, 0, -1, -3):
        grow(f"to {count}", grown, count)
    grow("named twice", grown, 3, times=2)
    grow("only checked", grown, 5, validate_only=True)
    grow("assigned too few", grown, 4, [[0]])
    grow("assigned too many", grown, 3, [[0], [0]])
    grow("assigned to one not there", grown, 3, [[9]])
    grow("assigned to nobody", grown, 3, [[]])
    grow("assigned to one twice", grown, 3, [[0, 0]])
    grow("assigned none", grown, 3, [])
    grow("it grows", grown, 3, [[0]])


def metadata_of_topics(q: Questions) -> None:
    topic = q.topic("described", 2)

    def ask(question: str, version: int, topics: Any, **more: Any) -> None:
        fields = {"topics": topics, "allow_auto_topic_creation": False, **more}
        q.ask(f"metadata {version}: {question}", METADATA, version, **fields)

    for version in range(4, 14):  # before, a topic that is not there is created whether it is wanted or not
        ask(
            "a topic, one that is not there, a bad name",
            version,
            [{"name": topic}, {"name": q.name("no")}, {"name": "a b"}, {"name": ""}],
        )
    ask("of nothing", 12, [])
    ask("twice", 12, [{"name": topic}, {"name": topic}])
    ask("unknown id", 12, [{"name": None, "topic_id": uuid.uuid4()}])
    ask("name and unknown id", 12, [{"name": topic, "topic_id": uuid.uuid4()}])
    operations = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    ask("what is allowed", 10, [{"name": topic}], **operations)
    ask("what is allowed", 8, [{"name": topic}, {"name": q.name("no")}], **operations)

    def partitions(question: str, topics: list[str], **more: Any) -> None:
        fields = {"topics": [{"name": name} for name in topics], "response_partition_limit": 10, **more}
        q.ask(f"partitions: {question}", DESCRIBE_PARTITIONS, 0, **fields)

    partitions("a topic", [topic])
    partitions("a limit", [topic], response_partition_limit=1)
    partitions("no limit", [topic], response_partition_limit=0)
    partitions("a negative limit", [topic], response_partition_limit=-1)
    partitions("from a cursor", [topic], cursor={"topic_name": topic, "partition_index": 1})
    partitions("from a cursor behind", [topic], cursor={"topic_name": topic, "partition_index": 9})
    partitions("from a negative cursor", [topic], cursor={"topic_name": topic, "partition_index": -1})
    partitions(
        "from a cursor of no topic", [topic], cursor={"topic_name": q.name("aaa"), "partition_index": 0}
    )
