"""Many groups at once, moving them and forgetting their offsets, on our broker and on Apache Kafka."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from millstream.client.insight.group_survey import survey
from millstream.client.insight.reset import carry_out, planned, refuse_to_move, with_times
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.groups import GroupListing
from millstream.client.protocol.cluster import Cluster
from millstream.client.text.position import Position, TopicPartition
from millstream.core.errors import ConfigError, RequestFailed
from tests.support.waiting import wait_for

MINUTE = 60_000


def test_a_survey_tells_of_every_group_what_one_question_each_would(admin: Admin, group: str) -> None:
    others = [f"{group}-{n:03}" for n in range(250)]  # more than go into one request
    for n, other in enumerate(others):
        admin.commit(other, {TopicPartition(group, 0): n % 10})
    found = survey(admin.connection, [each for each in admin.groups() if each.name.startswith(group)])
    assert sorted(found) == [group, *others]
    for name in (group, others[7], others[-1]):
        commits = {place: commit.offset for place, commit in found[name].commits.items()}
        assert commits == admin.committed(name)
        assert found[name].info == admin.group(name)
    admin.delete_groups(others)


def test_what_is_gone_or_without_a_name_is_left_out(admin: Admin, group: str) -> None:
    listed = [GroupListing(name, "Empty", "classic") for name in (group, f"{group}-gone", "")]
    assert sorted(survey(admin.connection, listed)) == [group]
    assert survey(admin.connection, []) == {}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_are_told_with_what_they_read(admin: Admin, address: str, group: str, protocol: str) -> None:
    admin.delete_groups([group])
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "reader-1",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([group])
        wait_for(lambda: consumer.consume(1, 0.2), what="a record")
        consumer.commit(asynchronous=False)
        (listed,) = [each for each in admin.groups() if each.name == group]
        told = survey(admin.connection, [listed])[group].info
        assert told == admin.group(group)
        assert (told.kind, told.state) == (protocol, "Stable")
        (member,) = told.members
        assert member.client == "reader-1"
        assert member.assigned == (TopicPartition(group, 0), TopicPartition(group, 1))
        assert (told.epoch is not None) == (protocol == "consumer")

        with pytest.raises(RequestFailed, match="1 active member"):
            refuse_to_move(admin, group, new=False)
        with pytest.raises(RequestFailed, match="1 active member"):
            carry_out(admin, group, planned(admin, group, Position("start")))
        cluster = Cluster(admin.connection)
        try:
            with pytest.raises(RequestFailed, match="GROUP_SUBSCRIBED_TO_TOPIC"):
                cluster.forget(group, [TopicPartition(group, 0)])
        finally:
            cluster.close()
    finally:
        consumer.close()


def test_a_plan_says_what_is_read_again_and_what_is_skipped_with_its_times(admin: Admin, group: str) -> None:
    again, nothing = with_times(admin, planned(admin, group, Position("start")))
    assert (again.read_again, again.skipped, again.unread) == (4, 0, 10)
    assert again.first_ms is not None
    assert again.first_ms == again.last_ms, "all four were written at one time"
    assert (nothing.read_again, nothing.skipped, nothing.first_ms) == (0, 0, None)
    ahead, other = with_times(admin, planned(admin, group, Position("end")))
    assert (ahead.skipped, other.skipped) == (6, 3)
    assert ahead.first_ms == again.first_ms + 30 * MINUTE
    assert admin.committed(group)[TopicPartition(group, 0)] == 4, "a plan changes nothing"

    (move,) = planned(admin, group, Position("after", 2), partitions=[0])
    carry_out(admin, group, [move])
    carry_out(admin, group, [move])
    assert admin.committed(group) == {TopicPartition(group, 0): 6, TopicPartition(group, 1): 0}
    with pytest.raises(ConfigError, match="has no such partition: 7"):
        planned(admin, group, Position("end"), topics=[group], partitions=[7])


def test_the_offsets_of_a_topic_are_forgotten_and_the_others_stay(admin: Admin, group: str) -> None:
    cluster = Cluster(admin.connection)
    try:
        cluster.forget(group, [TopicPartition(group, 1)])
        cluster.forget(group, [TopicPartition(group, 1)])
        cluster.forget(group, [])
    finally:
        cluster.close()
    assert admin.committed(group) == {TopicPartition(group, 0): 4}
