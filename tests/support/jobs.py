"""Records into a broker for a job, and out of it again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream import Broker
from millstream.client.admin import Admin
from millstream.client.connect import Connection
from millstream.client.consume import Reader
from millstream.client.lines import Outgoing
from millstream.client.position import TopicPartition
from millstream.client.produce import Sender


def produce(broker: Broker, values: Iterable[bytes], topic: str = "payments") -> None:
    sender = Sender(Connection(broker.address), topic)
    sender.send(Outgoing(value, b"key") for value in values)
    assert sender.finish(20)


def records(broker: Broker, topic: str) -> list[Any]:
    """All records of a topic now."""
    connection = Connection(broker.address)
    with Admin(connection) as admin:
        places = [TopicPartition(topic, number) for number in range(admin.topics()[topic])]
        bounds = admin.bounds(places)
    starts = {place: bounds[place].start for place in places}
    found: list[Any] = []
    with Reader(connection, starts, {place: bounds[place].end for place in places}) as reader:
        while not reader.finished:
            found += reader.read(1000, 0.5)
    return found
