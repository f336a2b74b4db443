"""Share groups, as people look at them and change them: Kafka's own tools, ``millstream group``, the survey
of the console, and the admin clients below them; on our broker and on Kafka itself.

Where a group is on Kafka: how much it has not finished is right at once, its start offset comes later.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import ConsumerGroupType, ShareConsumer
from confluent_kafka.admin import AdminClient

from millstream.client.insight.group_survey import survey
from millstream.client.librdkafka.admin import Admin
from millstream.client.text.position import TopicPartition
from tests.support.command import CommandLine
from tests.support.kafka_tools import KafkaTools
from tests.support.maven import JarsUnavailable
from tests.support.topics import create_topic, produce, set_group_settings, values
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def tools(address: str) -> Iterator[KafkaTools]:
    try:
        with KafkaTools(address) as tools:
            yield tools
    except JarsUnavailable as error:
        pytest.skip(str(error))


class Member:
    """A share consumer on a thread, which accepts what it gets."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        self.read = 0
        self._stopping = threading.Event()
        self._consumer = ShareConsumer(
            {"bootstrap.servers": address, "group.id": group, "client.id": "worker", "log_level": 0}
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.read += sum(message.error() is None for message in self._consumer.poll(timeout=0.2))
        self._consumer.close()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(60)


@pytest.fixture
def group(address: str, name: str) -> str:
    """A share group that has read ten records of a topic of its name, and has no members now."""
    create_topic(address, name, 2)
    set_group_settings(address, name, {"share.auto.offset.reset": "earliest"})
    for partition in range(2):
        produce(address, name, values(*range(5)), partition)
    member = Member(address, name, name)
    try:
        wait_for(lambda: member.read == 10, what="all records are read", timeout=120)
    finally:
        member.stop()
    return name


@pytest.fixture
def worked(address: str, admin: Admin, group: str) -> Iterator[str]:
    """The same with a member, once it is there."""
    member = Member(address, group, group)
    try:
        reads = {TopicPartition(group, 0), TopicPartition(group, 1)}

        def is_there() -> bool:
            return [set(member.assigned) for member in admin.group(group).members] == [reads]

        wait_for(is_there, what="the member reads both partitions", timeout=120)
        yield group
    finally:
        member.stop()


def lines(said: str) -> list[list[str]]:
    return [line.split() for line in said.splitlines() if line.strip()]


def test_kafka_share_groups_shows_a_group_with_a_member(tools: KafkaTools, worked: str) -> None:
    def share(*arguments: str) -> str:
        return tools.ok("ShareGroupCommand", *arguments)

    assert worked in share("--list").split()
    assert [worked, "Stable"] in lines(share("--list", "--state"))
    assert worked in share("--list", "--state", "stable")
    assert worked not in share("--list", "--state", "empty")
    of = ("--describe", "--group", worked)
    (row,) = [row for row in lines(share(*of, "--members")) if worked in row]
    assert "worker" in row
    assert f"{worked}:0,1" in row
    (row,) = [row for row in lines(share(*of, "--state", "--verbose")) if worked in row]
    assert (row[3], row[-1]) == ("Stable", "1")  # one member
    rows = [row for row in lines(share(*of, "--offsets")) if worked in row]
    assert [(row[2], row[4]) for row in rows] == [("0", "0"), ("1", "0")]
    for refused in (
        ("--reset-offsets", "--group", worked, "--to-earliest", "--topic", worked, "--execute"),
        ("--delete-offsets", "--group", worked, "--topic", worked),
        ("--delete", "--group", worked),
    ):
        code, said = tools.run("ShareGroupCommand", *refused)
        assert code != 0 or "Error" in said or "not empty" in said, said


def test_kafka_share_groups_moves_and_deletes_an_empty_group(tools: KafkaTools, group: str) -> None:
    def share(*arguments: str) -> str:
        return tools.ok("ShareGroupCommand", *arguments)

    def lags() -> list[str]:
        said = share("--describe", "--group", group, "--offsets")
        return [row[4] for row in lines(said) if row[:2] == [group, group]]

    assert lags() == ["0", "0"]
    move = ("--reset-offsets", "--group", group, "--topic", group)
    share(*move, "--to-earliest", "--dry-run")
    assert lags() == ["0", "0"]
    share(*move, "--to-earliest", "--execute")
    assert lags() == ["5", "5"]
    share("--delete-offsets", "--group", group, "--topic", group)
    assert lags() == []
    share("--delete", "--group", group)
    assert group not in share("--list").split()


def test_kafkas_tools_list_groups_by_type(tools: KafkaTools, group: str) -> None:
    assert group in tools.ok("GroupsCommand", "--list", "--share").split()
    assert group not in tools.ok("GroupsCommand", "--list", "--consumer").split()
    settings = ("--entity-type", "groups", "--entity-name", group)
    change = ("--add-config", "share.record.lock.duration.ms=15000")
    tools.ok("ConfigCommand", "--alter", *settings, *change)
    assert "share.record.lock.duration.ms=15000" in tools.ok("ConfigCommand", "--describe", *settings)
    wrong = ("--add-config", "share.record.lock.duration.ms=1000")
    assert tools.run("ConfigCommand", "--alter", *settings, *wrong)[0] != 0


def test_librdkafkas_admin_client_lists_no_share_groups_as_consumer_groups(address: str, group: str) -> None:
    client = AdminClient({"bootstrap.servers": address, "log_level": 0})
    consumers = {ConsumerGroupType.CLASSIC, ConsumerGroupType.CONSUMER}
    found = client.list_consumer_groups(types=consumers, request_timeout=30).result(30)
    assert not found.errors
    assert group not in [each.group_id for each in found.valid]


def test_group_list_and_describe_show_a_share_group(millstream: CommandLine, worked: str) -> None:
    (listed,) = [each for each in millstream.json("group", "list") if each["group"] == worked]
    assert (listed["state"], listed["type"]) == ("Stable", "share")
    shown = millstream.ok("group", "describe", worked)
    assert f"{worked}: Stable, share, 1 member, assignor simple" in shown
    assert f"{worked} 0-1" in shown
    told = millstream.json("group", "describe", worked)
    assert [member["client"] for member in told["members"]] == ["worker"]
    assert [(each["partition"], each["unfinished"]) for each in told["start_offsets"]] == [(0, 0), (1, 0)]
    assert [row["records"] for row in millstream.json("group", "lag", worked)] == [0, 0]
    refused = millstream.run("group", "seek", worked, "--to", "start")
    assert refused.returncode != 0
    assert b"a share group is only moved while it has none" in refused.stderr


def test_a_share_group_is_moved_measured_and_deleted(millstream: CommandLine, group: str) -> None:
    moved = millstream.json("group", "seek", group, "--to", "2")
    assert [(row["new"], row["unread"]) for row in moved] == [(2, 3), (2, 3)]
    assert [row["records"] for row in millstream.json("group", "lag", group)] == [3, 3]
    assert "6 records behind" in millstream.ok("group", "lag", group)
    assert millstream.ok("group", "delete", group, "--yes") == f"deleted {group} with 2 start offsets\n"
    assert group not in [each["group"] for each in millstream.json("group", "list")]


def test_the_survey_of_the_console_has_share_groups(admin: Admin, group: str) -> None:
    admin.move_share_group(group, {TopicPartition(group, 0): 1})
    found = survey(admin.connection, admin.groups())[group]
    assert (found.info.kind, found.info.state, found.topics) == ("share", "Empty", {group})
    assert found.commits[TopicPartition(group, 0)].offset == 1
    assert {place.partition: left for place, left in found.unfinished.items()} == {0: 4, 1: 0}


def test_a_share_group_forgets_a_topic(admin: Admin, group: str) -> None:
    admin.forget_share_topic(group, group)
    assert admin.share_offsets(group) == {}
    assert admin.group(group).kind == "share"


def test_kafka_console_share_consumer_reads_a_topic(tools: KafkaTools, name: str) -> None:
    create_topic(tools.address, name, 2)
    set_group_settings(tools.address, name, {"share.auto.offset.reset": "earliest"})
    for partition in range(2):
        produce(tools.address, name, values(*range(partition, 10, 2)), partition)
    said = tools.ok(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        *("--topic", name, "--group", name, "--max-messages", 10, "--timeout-ms", 60_000),
    )
    assert sorted(line for line in said.splitlines() if line.isdigit()) == [str(n) for n in range(10)]
