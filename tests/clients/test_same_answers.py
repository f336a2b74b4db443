"""The same requests to both brokers, byte by byte: one answer is expected of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.subscriptions import subscription
from tests.support.waiting import wait_for
from tests.support.wire_client import WireClient

NOT_YET = (14, 15, 16)  # Kafka's coordinator is still coming up


class Asking(WireClient):
    def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        """The answer as plain values: dictionaries, tuples, numbers."""
        return _plain(self.call(api_key, version, **fields))

    def beat(self, group: str, member: str, epoch: int, *, version: int = 1, **fields: Any) -> Any:
        """ConsumerGroupHeartbeat; an answer of a coordinator that is up."""
        said = {
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
            **fields,
        }

        def answered() -> Any:
            answer = self.ask(68, version, group_id=group, member_id=member, member_epoch=epoch, **said)
            if answer["error_code"] not in NOT_YET:
                return answer
            self.ask(10, 4, key_type=0, coordinator_keys=[group])  # Kafka makes the coordinators' topic now
            return None

        return wait_for(answered, what="a coordinator", every=0.2)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return getattr(value, "value", value)  # an error code's number


@pytest.fixture
def client(address: str) -> Iterator[Asking]:
    with Asking(address) as client:
        yield client


@pytest.fixture
def topic(client: Asking, name: str) -> str:
    client.create_topic(name, 2)

    def known() -> bool:
        asked = [{"topic_id": None, "name": name}]
        answer = client.ask(3, 12, topics=asked, allow_auto_topic_creation=False)
        return bool(answer["topics"][0]["partitions"])

    wait_for(known, what="the broker knows the topic")  # Kafka's controller does before its broker
    return name


def joining(topic: str, **fields: Any) -> dict[str, Any]:
    return {"rebalance_timeout": 30_000, "subscribed_topic_names": [topic], "topic_partitions": [], **fields}


# Groups of the consumer protocol


@pytest.mark.parametrize(
    ("member", "epoch", "changes", "code", "says"),
    [
        ("", 0, {}, 42, "MemberId can't be empty."),
        ("m", 0, {"rebalance_timeout": -1}, 42, "RebalanceTimeoutMs must be provided in first request."),
        ("m", 0, {"topic_partitions": None}, 42, "TopicPartitions must be empty when (re-)joining."),
        ("m", 0, {"subscribed_topic_names": None}, 42, "Either SubscribedTopicNames or"),
        ("m", 0, {"instance_id": ""}, 42, "InstanceId can't be empty."),
        ("m", 0, {"rack_id": ""}, 42, "RackId can't be empty."),
        ("m", 0, {"server_assignor": "best"}, 112, "ServerAssignor best is not supported."),
        ("m", 0, {"subscribed_topic_regex": "a("}, 128, "SubscribedTopicRegex `a(` is not a valid"),
        ("m", 0, {"subscribed_topic_regex": "(?=a)"}, 128, "SubscribedTopicRegex `(?=a)` is not a valid"),
        ("m", 1, {}, 69, "not found"),
        ("m", -1, {}, 69, "Group"),
        ("m", -2, {}, 42, "InstanceId can't be null."),
        ("m", -3, {}, 42, "MemberEpoch is invalid."),
    ],
)
def test_heartbeats_that_are_refused(
    client: Asking, topic: str, member: str, epoch: int, changes: dict[str, Any], code: int, says: str
) -> None:
    fields = {**joining(topic), **changes} if epoch == 0 else changes
    answer = client.beat(topic, member, epoch, **fields)
    assert (answer["error_code"], answer["member_id"], answer["member_epoch"]) == (code, None, 0)
    assert says in answer["error_message"]


def test_a_heartbeat_without_a_group_is_refused(client: Asking, topic: str) -> None:
    assert client.beat("", "m", 0, **joining(topic))["error_code"] == 42


def test_members_of_the_first_version_are_given_a_name(client: Asking, topic: str) -> None:
    answer = client.beat(topic, "", 0, version=0, **joining(topic))
    assert answer["error_code"] == 0
    assert answer["member_id"]


def test_the_life_of_a_member(client: Asking, topic: str) -> None:
    def join() -> Any:
        answer = client.beat(topic, "m", 0, **joining(topic, server_assignor="range", rack_id="r"))
        return answer if answer["assignment"]["topic_partitions"] else None

    joined = wait_for(join, what="the coordinator knows the topic")  # Kafka's does after its broker
    (assigned,) = joined["assignment"]["topic_partitions"]
    assert (joined["error_code"], joined["member_id"], assigned["partitions"]) == (0, "m", [0, 1])
    epoch = joined["member_epoch"]
    again = client.beat(topic, "m", epoch)
    assert (again["error_code"], again["member_epoch"], again["assignment"]) == (0, epoch, None)
    for wrong in (epoch + 5, epoch + 1):
        fenced = client.beat(topic, "m", wrong)
        assert fenced["error_code"] == 110
        assert "greater member epoch" in fenced["error_message"]
    assert client.beat(topic, "other", epoch)["error_code"] == 25
    whole = client.beat(topic, "m", 0, **joining(topic))  # it joins again, and is still the same
    assert (whole["member_epoch"], whole["assignment"]["topic_partitions"]) == (epoch, [assigned])

    (described,) = client.ask(69, 1, group_ids=[topic], include_authorized_operations=True)["groups"]
    (member,) = described.pop("members")
    assert (described["group_state"], described["assignor_name"]) == ("Stable", "range")
    assert described["group_epoch"] == described["assignment_epoch"] == epoch
    assert described["authorized_operations"] == 3400
    named = {"topic_id": assigned["topic_id"], "topic_name": topic, "partitions": [0, 1]}
    assert member == {
        "member_id": "m",
        "instance_id": None,
        "rack_id": "r",
        "member_epoch": epoch,
        "client_id": "test",
        "client_host": "/127.0.0.1",
        "subscribed_topic_names": [topic],
        "subscribed_topic_regex": "",
        "assignment": {"topic_partitions": [named]},
        "target_assignment": {"topic_partitions": [named]},
        "member_type": 1,
    }
    (classic,) = client.ask(15, 6, groups=[topic], include_authorized_operations=True)["groups"]
    assert (classic["error_code"], classic["group_state"]) == (69, "Dead")
    assert classic["error_message"] == f"Group {topic} is not a classic group."
    listed = client.ask(16, 5, states_filter=["STABLE"], types_filter=["consumer"])["groups"]
    assert {
        "group_id": topic,
        "protocol_type": "consumer",
        "group_state": "Stable",
        "group_type": "consumer",
    } in (listed)

    left = client.beat(topic, "m", -1)
    assert (left["error_code"], left["member_id"], left["member_epoch"]) == (0, "m", -1)
    (described,) = client.ask(69, 1, group_ids=[topic], include_authorized_operations=False)["groups"]
    assert (described["group_state"], described["group_epoch"]) == ("Empty", epoch + 1)


def test_the_life_of_a_static_member(client: Asking, topic: str) -> None:
    joined = client.beat(topic, "s1", 0, **joining(topic, instance_id="i"))
    taken = client.beat(topic, "s2", 0, **joining(topic, instance_id="i"))
    assert taken["error_code"] == 111
    assert "because the instance id is owned by s1 member" in taken["error_message"]
    assert client.beat(topic, "s2", 1, instance_id="i")["error_code"] == 82
    assert client.beat(topic, "s1", -2, instance_id="other")["error_code"] == 25
    gone = client.beat(topic, "s1", -2, instance_id="i")
    assert (gone["error_code"], gone["member_epoch"]) == (0, -2)
    assert client.beat(topic, "s1", joined["member_epoch"], instance_id="i")["error_code"] == 110
    back = client.beat(topic, "s2", 0, **joining(topic, instance_id="i"))
    assert back["member_epoch"] == joined["member_epoch"]
    assert back["assignment"] == joined["assignment"]


def test_offsets_under_member_epochs(client: Asking, topic: str) -> None:
    epoch = client.beat(topic, "m", 0, **joining(topic))["member_epoch"]

    def commit(member: str, epoch: int, version: int = 9) -> int:
        answer = client.ask(
            8,
            version,
            group_id=topic,
            generation_id_or_member_epoch=epoch,
            member_id=member,
            group_instance_id=None,
            topics=[
                {
                    "name": topic,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "committed_offset": 5,
                            "committed_leader_epoch": -1,
                            "committed_metadata": "",
                        }
                    ],
                }
            ],
        )
        return int(answer["topics"][0]["partitions"][0]["error_code"])

    def fetch(member: str | None, epoch: int) -> tuple[int, list[int]]:
        asked = [{"name": topic, "partition_indexes": [0]}]
        group = {"group_id": topic, "member_id": member, "member_epoch": epoch, "topics": asked}
        (answer,) = client.ask(9, 9, groups=[group], require_stable=False)["groups"]
        offsets = [p["committed_offset"] for t in answer["topics"] for p in t["partitions"]]
        return answer["error_code"], offsets

    assert commit("m", epoch) == 0
    assert commit("m", epoch + 1) == 113
    assert commit("other", epoch) == 25
    assert commit("", -1) == 25
    assert commit("m", epoch, version=8) == 35
    assert fetch("m", epoch) == (0, [5])
    assert fetch(None, -1) == (0, [5])
    assert fetch("m", epoch + 1) == (113, [])
    assert fetch("other", epoch) == (25, [])
    client.beat(topic, "m", -1)
    assert commit("", -1) == 0


def test_a_classic_consumer_in_a_group_of_the_consumer_protocol(client: Asking, topic: str) -> None:
    client.beat(topic, "m", 0, **joining(topic))

    def join(member: str, protocol_type: str = "consumer") -> Any:
        metadata = subscription(topic)
        return client.ask(
            11,
            9,
            group_id=topic,
            session_timeout=10_000,
            rebalance_timeout=30_000,
            member_id=member,
            group_instance_id=None,
            protocol_type=protocol_type,
            protocols=[{"name": "range", "metadata": metadata}, {"name": "roundrobin", "metadata": metadata}],
            reason=None,
        )

    assert join("", "connect")["error_code"] == 23
    named = join("")
    assert named["error_code"] == 79
    joined = join(named["member_id"])
    assert (joined["error_code"], joined["protocol_type"], joined["protocol_name"]) == (
        0,
        "consumer",
        "range",
    )
    assert (joined["leader"], joined["members"]) == ("", [])
    who = {"group_id": topic, "generation_id": joined["generation_id"], "member_id": named["member_id"]}
    assert client.ask(12, 4, **{**who, "generation_id": 99}, group_instance_id=None)["error_code"] == 22
    (described,) = client.ask(69, 1, group_ids=[topic], include_authorized_operations=False)["groups"]
    assert sorted(member["member_type"] for member in described["members"]) == [0, 1]


# Administration


def test_elections(client: Asking, topic: str) -> None:
    def elect(topic: str, partition: int, kind: int = 0) -> tuple[int, int, str]:
        asked = [{"topic": topic, "partitions": [partition]}]
        answer = client.ask(43, 2, election_type=kind, topic_partitions=asked, timeout=1000)
        ((result,),) = (each["partition_result"] for each in answer["replica_election_results"])
        return answer["error_code"], result["error_code"], result["error_message"]

    assert elect(topic, 0) == (0, 84, "Leader election not needed for topic partition.")
    assert elect(topic, 1, 1) == (0, 84, "Leader election not needed for topic partition.")
    assert elect(topic, 9) == (0, 3, f"No such partition as {topic}-9")
    assert elect("nope", 0) == (0, 3, "No such topic as nope")
    assert elect(topic, 0, 7) == (42, 42, "Unknown election type 7")
    everything = client.ask(43, 2, election_type=0, topic_partitions=None, timeout=1000)
    assert {"topic": topic, "partition_result": []} in everything["replica_election_results"]


@pytest.mark.parametrize(
    ("replicas", "code", "says"),
    [
        ([0], 0, None),
        (None, 85, None),
        ([1], 39, "includes broker 1, but no such broker is registered."),
        ([0, 1], 39, "includes broker 1, but no such broker is registered."),
        ([0, 0], 39, "includes the broker 0 more than once."),
        ([], 39, "includes an empty replica list."),
    ],
)
def test_reassignments(
    client: Asking, topic: str, replicas: list[int] | None, code: int, says: str | None
) -> None:
    def reassign(name: str, partition: int) -> dict[str, Any]:
        topics = [{"name": name, "partitions": [{"partition_index": partition, "replicas": replicas}]}]
        answer = client.ask(45, 1, timeout=1000, topics=topics, allow_replication_factor_change=True)
        assert (answer["error_code"], answer["error_message"]) == (0, None)
        found: dict[str, Any] = answer["responses"][0]["partitions"][0]
        return found

    found = reassign(topic, 0)
    assert found["error_code"] == code
    assert found["error_message"] == (says and f"The manual partition assignment {says}")
    assert reassign(topic, 9)["error_code"] == reassign("nope", 0)["error_code"] == 3
    assert client.ask(46, 0, timeout=1000, topics=None)["topics"] == []


def test_quotas(client: Asking, name: str) -> None:
    def alter(entity: dict[str, str | None], validate_only: bool = False, **quotas: float | None) -> int:
        changes = [{"key": k, "value": v or 0.0, "remove": v is None} for k, v in quotas.items()]
        named = [{"entity_type": kind, "entity_name": each} for kind, each in entity.items()]
        entries = [{"entity": named, "ops": changes}]
        return int(
            client.ask(49, 1, entries=entries, validate_only=validate_only)["entries"][0]["error_code"]
        )

    def describe(*filters: tuple[str, int, str | None], strict: bool = False) -> Any:
        asked = [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in filters]
        answer = client.ask(48, 1, components=asked, strict=strict)
        if answer["error_code"]:
            return answer["error_code"]
        return [
            (
                {e["entity_type"]: e["entity_name"] for e in entry["entity"]},
                {v["key"]: v["value"] for v in entry["values"]},
            )
            for entry in answer["entries"]
        ]

    both = {"user": name, "client-id": name}
    assert alter({"user": name}, producer_byte_rate=1000.0, request_percentage=50.5) == 0
    assert alter(both, consumer_byte_rate=2000.0) == 0
    assert alter({"user": name}, validate_only=True, producer_byte_rate=7.0) == 0
    for entity, quotas in (
        ({"user": name}, {"bogus": 1.0}),
        ({"user": name}, {"producer_byte_rate": 1.5}),
        ({"user": name}, {"producer_byte_rate": -1.0}),
        ({"user": name}, {"connection_creation_rate": 1.0}),
        ({"ip": "127.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"ip": "no address at all"}, {"connection_creation_rate": 1.0}),
        ({"ip": "127.0.0.1", "user": name}, {"producer_byte_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"planet": name}, {"producer_byte_rate": 1.0}),
        ({}, {"producer_byte_rate": 1.0}),
    ):
        assert alter(entity, **quotas) == 42, (entity, quotas)  # type: ignore[arg-type]

    own = ({"user": name}, {"producer_byte_rate": 1000.0, "request_percentage": 50.5})
    wait_for(lambda: describe(("user", 0, name), strict=True) == [own], what="the quota can be read")
    found = describe(("user", 0, name))
    assert len(found) == 2
    assert (both, {"consumer_byte_rate": 2000.0}) in found
    assert describe(("user", 1, None), ("client-id", 0, name)) == []
    assert describe(("planet", 0, "x")) == 35
    assert describe(("user", 3, "x")) == describe(("user", 0, None)) == describe(("user", 1, "x")) == 42
    assert describe(("user", 0, "x"), ("user", 0, "y")) == describe(("ip", 2, None), ("user", 2, None)) == 42
    assert alter({"user": name}, producer_byte_rate=None, request_percentage=None) == 0
    wait_for(lambda: describe(("user", 0, name), strict=True) == [], what="the quota is gone")


@pytest.mark.parametrize(
    ("feature", "level", "kind", "says"),
    [
        ("group.version", 1, 1, None),
        ("group.version", 2, 1, "only supports versions 0-1"),
        ("group.version", 0, 1, "Can't downgrade the version of this feature without"),
        ("group.version", -1, 1, "A feature version cannot be less than 0."),
        ("group.version", 1, 9, "The controller does not support the given upgrade type."),
        ("bogus", 1, 1, "does not support this feature."),
    ],
)
def test_features(client: Asking, feature: str, level: int, kind: int, says: str | None) -> None:
    updates = [{"feature": feature, "max_version_level": level, "upgrade_type": kind}]
    answer = client.ask(57, 2, timeout=1000, feature_updates=updates, validate_only=True)
    assert answer["error_code"] == (95 if says else 0)
    assert (says or "") in (answer["error_message"] or "")


def test_settings_of_a_group(client: Asking, name: str) -> None:
    def alter(setting: str, value: str | None, group: str = name, operation: int = 0) -> int:
        configs = [{"name": setting, "config_operation": operation, "value": value}]
        resources = [{"resource_type": 32, "resource_name": group, "configs": configs}]
        answer = client.ask(44, 1, resources=resources, validate_only=False)
        return int(answer["responses"][0]["error_code"])

    def describe() -> tuple[str, int, list[tuple[str, str, int]]]:
        keys = ["consumer.session.timeout.ms"]
        resources = [{"resource_type": 32, "resource_name": name, "configuration_keys": keys}]
        answer = client.ask(32, 4, resources=resources, include_synonyms=True, include_documentation=False)
        (entry,) = answer["results"][0]["configs"]
        synonyms = [(each["name"], each["value"], each["source"]) for each in entry["synonyms"]]
        return entry["value"], entry["config_source"], synonyms

    broker = ("group.consumer.session.timeout.ms", "45000", 5)
    assert describe() == ("45000", 5, [broker])
    assert alter("consumer.session.timeout.ms", "50000") == 0
    own = ("consumer.session.timeout.ms", "50000", 8)
    wait_for(lambda: describe() == ("50000", 8, [own, broker]), what="the setting can be read")
    groups = client.ask(74, 1, resource_types=[32])["config_resources"]
    assert {"resource_name": name, "resource_type": 32} in groups
    assert alter("consumer.session.timeout.ms", "100") == 40  # below what the broker allows
    assert alter("consumer.session.timeout.ms", "100000") == 40
    assert alter("consumer.session.timeout.ms", "soon") == 40
    assert alter("consumer.session.timeout.ms", "50000", operation=2) == 40  # it is not a list
    assert alter("bogus", "1") == 40
    assert alter("consumer.session.timeout.ms", "50000", group="") == 42
    assert alter("consumer.session.timeout.ms", None, operation=1) == 0
    wait_for(lambda: describe() == ("45000", 5, [broker]), what="the setting is gone")


def test_what_has_settings(client: Asking, topic: str) -> None:
    assert client.ask(74, 1, resource_types=[4])["config_resources"] == [
        {"resource_name": "0", "resource_type": 4}
    ]
    assert {"resource_name": topic, "resource_type": 2} in client.ask(74, 1, resource_types=[])[
        "config_resources"
    ]
    assert client.ask(74, 1, resource_types=[99])["error_code"] == 35
    assert client.ask(74, 0)["config_resources"] == []


def test_credentials(client: Asking, name: str) -> None:
    def alter(deleted: list[tuple[str, int]], put: list[tuple[str, int, int]]) -> dict[str, int]:
        answer = client.ask(
            51,
            0,
            deletions=[{"name": user, "mechanism": mechanism} for user, mechanism in deleted],
            upsertions=[
                {
                    "name": user,
                    "mechanism": mechanism,
                    "iterations": iterations,
                    "salt": b"salt",
                    "salted_password": b"x" * 32,
                }
                for user, mechanism, iterations in put
            ],
        )
        return {result["user"]: result["error_code"] for result in answer["results"]}

    def describe(*users: str) -> Any:
        answer = client.ask(50, 0, users=[{"name": user} for user in users])
        return {r["user"]: (r["error_code"], r["credential_infos"]) for r in answer["results"]}

    assert describe(name) == {name: (91, [])}
    assert alter([(name, 1)], []) == {name: 91}
    assert alter([], [(name, 9, 4096)]) == {name: 33}
    assert alter([], [(name, 1, 1)]) == {name: 93}
    assert alter([], [(name, 1, 4096)]) == {name: 0}
    kept = {name: (0, [{"mechanism": 1, "iterations": 4096}])}
    wait_for(lambda: describe(name) == kept, what="the credential is known")
    assert describe(name, name)[name][0] == 92
    assert alter([(name, 1)], []) == {name: 0}
    wait_for(lambda: describe(name) == {name: (91, [])}, what="the credential is gone")


def test_what_needs_an_authorizer_or_authentication(client: Asking) -> None:
    rule = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    anything = {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    of_all = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, **anything}
    assert client.ask(29, 3, **of_all)["error_code"] == 54
    assert client.ask(30, 3, creations=[rule])["results"][0]["error_code"] == 54
    assert client.ask(31, 3, filters=[of_all])["filter_results"][0]["error_code"] == 54
    assert client.ask(41, 3, owners=None)["error_code"] == 64


def test_replicas_stay_where_they_are(client: Asking, topic: str) -> None:
    asked = [{"topic": topic, "partitions": [0]}]
    (directory,) = client.ask(35, 4, topics=asked)["results"]

    def move(path: str, name: str, partition: int) -> int:
        dirs = [{"path": path, "topics": [{"name": name, "partitions": [partition]}]}]
        return int(client.ask(34, 2, dirs=dirs)["results"][0]["partitions"][0]["error_code"])

    assert move(directory["log_dir"], topic, 0) == 0
    assert move(directory["log_dir"], topic, 9) == move(directory["log_dir"], "nope", 0) == 3
    assert move("/nowhere", topic, 0) == 57


def test_brokers_that_are_not_there(client: Asking) -> None:
    answer = client.ask(64, 0, broker_id=4711)
    assert (answer["error_code"], answer["error_message"]) == (
        102,
        "Broker ID 4711 is not currently registered",
    )
    quorum = client.ask(55, 2, topics=[{"topic_name": "nope", "partitions": [{"partition_index": 0}]}])
    assert quorum["topics"][0]["partitions"][0]["error_code"] == 3
    metadata = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    (partition,) = client.ask(55, 2, topics=metadata)["topics"][0]["partitions"]
    assert (partition["error_code"], partition["leader_id"]) == (0, 0)
    assert [voter["replica_id"] for voter in partition["current_voters"]] == [0]


# Where a broker's setting comes from, after changes


def test_changes_of_a_brokers_settings_are_told_with_where_they_come_from(client: Asking) -> None:
    setting = "log.cleaner.backoff.ms"
    broker = str(client.ask(3, 12, topics=[], allow_auto_topic_creation=False)["brokers"][0]["node_id"])

    def change(name: str, value: str | None) -> None:
        configs = [{"name": setting, "config_operation": 1 if value is None else 0, "value": value}]
        resources = [{"resource_type": 4, "resource_name": name, "configs": configs}]
        (answer,) = client.ask(44, 1, resources=resources, validate_only=False)["responses"]
        assert answer["error_code"] == 0

    def told(name: str) -> Any:
        resources = [{"resource_type": 4, "resource_name": name, "configuration_keys": [setting]}]
        fields = {"include_synonyms": True, "include_documentation": False}
        (answer,) = client.ask(32, 4, resources=resources, **fields)["results"]
        found = [
            (
                entry["value"],
                entry["config_source"],
                [(each["value"], each["source"]) for each in entry["synonyms"]],
            )
            for entry in answer["configs"]
        ]
        return found[0] if found else None

    default = told(broker)
    assert default == (default[0], 5, [(default[0], 5)])
    kafkas = [(default[0], 5)]
    try:
        assert told("") is None
        change("", "20001")
        wait_for(lambda: told(broker) == ("20001", 3, [("20001", 3), *kafkas]), what="one for all brokers")
        assert told("") == ("20001", 3, [("20001", 3)])
        change(broker, "20002")
        wait_for(
            lambda: told(broker) == ("20002", 2, [("20002", 2), ("20001", 3), *kafkas]),
            what="its own over it",
        )
        assert told("") == ("20001", 3, [("20001", 3)])
        change("", None)
        wait_for(lambda: told(broker) == ("20002", 2, [("20002", 2), *kafkas]), what="its own alone")
        assert told("") is None
    finally:
        change("", None)
        change(broker, None)
    wait_for(lambda: told(broker) == default, what="the default again")
