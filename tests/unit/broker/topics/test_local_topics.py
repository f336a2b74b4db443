"""Topics are found by name and by id, and each of them once."""

from __future__ import annotations

import uuid

from millstream.broker.topics.local_topics import LocalTopics
from millstream.broker.topics.partition import LocalTopic


def a_topic(name: str) -> LocalTopic:
    return LocalTopic(name, uuid.uuid4())


def test_a_topic_is_found_under_its_name_and_its_id() -> None:
    topics, topic = LocalTopics(), a_topic("t")
    topics.add(topic)
    assert topics.by_key["t"] is topics.by_key[topic.id_bytes] is topic
    assert (len(topics), list(topics)) == (1, [topic])


def test_it_is_gone_under_both_once_it_is_removed() -> None:
    topics, topic = LocalTopics(), a_topic("t")
    topics.add(topic)
    assert topics.remove("t") is topic
    assert topics.remove("t") is None
    assert (topics.by_key, len(topics)) == ({}, 0)


def test_every_change_has_a_version() -> None:
    topics = LocalTopics()
    topics.add(a_topic("t"))
    first = topics.version
    topics.remove("t")
    assert topics.version > first


def test_topics_may_be_removed_while_they_are_gone_through() -> None:
    topics = LocalTopics()
    for name in "abc":
        topics.add(a_topic(name))
    assert [topics.remove(topic.name) is topic for topic in topics] == [True] * 3


def test_a_partition_that_is_not_there_is_none() -> None:
    topics = LocalTopics()
    topics.add(a_topic("t"))
    assert topics.partition("t", 0) is None
    assert topics.partition("t", -1) is None
    assert topics.partition("u", 0) is None
