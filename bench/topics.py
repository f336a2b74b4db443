"""Fresh topics for every measurement, so that no round reads another's records."""

from __future__ import annotations

import itertools

from confluent_kafka.admin import AdminClient, NewTopic

from bench.servers import Server
from tests.support.waiting import wait_for

_numbers = itertools.count()


def fresh_topic(server: Server, partitions: int = 1, **config: str) -> str:
    """Create a topic and wait until it can be used. ``flush_messages="1"`` means ``flush.messages``."""
    name = f"bench-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(30)

    def led() -> bool:
        topic = admin.list_topics(name, timeout=10).topics[name]
        return len(topic.partitions) == partitions and all(p.leader >= 0 for p in topic.partitions.values())

    wait_for(led, timeout=30, what=f"{name} has leaders")
    return name


def drop_topic(server: Server, name: str) -> None:
    """Give its disk space back: a full run writes tens of gigabytes."""
    admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
    admin.delete_topics([name])[name].result(30)
