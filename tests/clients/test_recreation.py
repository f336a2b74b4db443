"""Readers that stay attached while their topic is deleted and created again under the same name: what they
get afterwards is the new topic, from its start, with every client and on every broker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from tests.support.readers import LIBRARIES, Reader
from tests.support.topics import create_topic, delete_topic, produce, values
from tests.support.waiting import wait_for

OLD, NEW = 20, 5  # records; more before than after, so that the old position is beyond the new end


def topic_id(address: str, topic: str) -> str | None:
    admin = AdminClient({"bootstrap.servers": address})
    try:
        return str(admin.describe_topics(TopicCollection([topic]))[topic].result(60).topic_id)
    except KafkaException:
        return None


@pytest.mark.parametrize("attach", LIBRARIES)
def test_a_reader_goes_on_with_the_new_topic(
    address: str, name: str, attach: Callable[[str, str, str], Reader]
) -> None:
    create_topic(address, name, 1)
    old_id = topic_id(address, name)
    produce(address, name, values(*(f"old {n}" for n in range(OLD))))
    reader = attach(address, name, f"{name}-group")
    try:
        wait_for(lambda: len(reader.seen) == OLD, timeout=90, what="it has read the old ones")
        delete_topic(address, name)

        def created() -> bool:
            with contextlib.suppress(KafkaException):  # some readers create what they miss
                create_topic(address, name, 1)
            return topic_id(address, name) not in (None, old_id)

        wait_for(created, what="it is there again")
        produce(address, name, values(*(f"new {n}" for n in range(NEW))))
        wait_for(lambda: reader.seen[-1] == f"new {NEW - 1}", timeout=90, what="it has read the new ones")
    finally:
        reader.stop()
    assert reader.seen == [f"old {n}" for n in range(OLD)] + [f"new {n}" for n in range(NEW)]
