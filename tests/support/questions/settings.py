"""Settings of topics and brokers."""

from __future__ import annotations

from typing import Any

from tests.support.questions.asker import Questions

DESCRIBE_CONFIGS = 32
ALTER_CONFIGS = 33
INCREMENTAL = 44


def settings(q: Questions) -> None:
    topic = q.topic("set", retention_ms="60000")
    told = ["retention.ms", "cleanup.policy", "no.such.setting"]

    def describe(question: str, kind: int, name: str, keys: Any = (), version: int = 4, **more: Any) -> None:
        resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": keys}]
        fields = {"include_synonyms": False, "include_documentation": False, **more}
        q.ask(f"describe {version}: {question}", DESCRIBE_CONFIGS, version, resources=resources, **fields)

    for version in (1, 2, 3, 4):
        describe("some", 2, topic, told, version)
    describe("not there", 2, q.name("no"), told)
    describe("bad name", 2, "a b", told)
    describe("no name", 2, "", told)
    describe("a kind that is not there", 99, "x", told)
    describe("kind 0", 0, "x", told)
    describe("a broker that is not there", 4, "99", ["num.partitions"])
    describe("a broker with a name", 4, "abc", ["num.partitions"])
    describe("the broker", 4, "0", ["no.such.setting"])
    describe("all brokers", 4, "", ["num.partitions"])

    def change(question: str, kind: int, name: str, *changes: tuple[str, int, Any], **more: Any) -> None:
        configs = [{"name": n, "config_operation": op, "value": value} for n, op, value in changes]
        resources = [{"resource_type": kind, "resource_name": name, "configs": configs}] * more.pop(
            "times", 1
        )
        fields = {"resources": resources, "validate_only": False, **more}
        q.ask(f"change: {question}", INCREMENTAL, 1, **fields)

    change("set", 2, topic, ("retention.ms", 0, "70000"))
    change("set, only checked", 2, topic, ("retention.ms", 0, "80000"), validate_only=True)
    change("bad, only checked", 2, topic, ("retention.ms", 0, "soon"), validate_only=True)
    change("nothing", 2, topic)
    change("not there", 2, q.name("no"), ("retention.ms", 0, "1"))
    change("bad name", 2, "a b", ("retention.ms", 0, "1"))
    change("no name", 2, "", ("retention.ms", 0, "1"))
    change("unknown setting", 2, topic, ("no.such.setting", 0, "1"))
    change("unknown setting taken back", 2, topic, ("no.such.setting", 1, None))
    change("no value", 2, topic, ("retention.ms", 0, None))
    change("empty value", 2, topic, ("retention.ms", 0, ""))
    change("empty list", 2, topic, ("cleanup.policy", 0, ""))
    change("out of range", 2, topic, ("retention.ms", 0, "-7"))
    change("twice in one", 2, topic, ("retention.ms", 0, "1"), ("retention.ms", 0, "2"))
    change("named twice", 2, topic, ("retention.ms", 0, "1"), times=2)
    change("added to a list", 2, topic, ("cleanup.policy", 2, "compact"))
    change("added again", 2, topic, ("cleanup.policy", 2, "compact"))
    change("added, and bad", 2, topic, ("cleanup.policy", 2, "keep"))
    change("taken from a list", 2, topic, ("cleanup.policy", 3, "delete"))
    change("taken from what is no list", 2, topic, ("retention.ms", 3, "1"))
    change("added to what is no list", 2, topic, ("retention.ms", 2, "1"))
    change("taken back", 2, topic, ("retention.ms", 1, None))
    change("taken back again", 2, topic, ("retention.ms", 1, None))
    change("a kind that is not there", 99, "x", ("retention.ms", 0, "1"))
    change("a broker that is not there", 4, "99", ("num.partitions", 0, "1"))
    change("a broker's fixed setting", 4, "0", ("node.id", 0, "3"))
    q.ask("change: no resources", INCREMENTAL, 1, resources=[], validate_only=False)
    describe("after all this", 2, topic, ["retention.ms", "cleanup.policy"])

    def replace(question: str, name: str, *configs: tuple[str, Any], kind: int = 2, **more: Any) -> None:
        given = [{"name": n, "value": value} for n, value in configs]
        resources = [{"resource_type": kind, "resource_name": name, "configs": given}] * more.pop("times", 1)
        q.ask(
            f"replace: {question}", ALTER_CONFIGS, 2, resources=resources, **{"validate_only": False, **more}
        )

    replace("some", topic, ("segment.ms", "60000"))
    replace("bad", topic, ("segment.ms", "soon"))
    replace("no value", topic, ("segment.ms", None))
    replace("unknown", topic, ("no.such.setting", "1"))
    replace("not there", q.name("no"), ("segment.ms", "1"))
    describe("after it was replaced", 2, topic, ["retention.ms", "cleanup.policy", "segment.ms"])
