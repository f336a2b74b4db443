"""Members of a share group under a seed: they come, go, fall silent, lose responses, and subscribe to topics
that come and grow, while the broker is restarted. Once all is quiet, everything is read, and evenly."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from millstream.broker.groups.share import snapshot
from millstream.broker.groups.share.group import JOIN, LEAVE, ShareGroup, ShareHeartbeat
from millstream.broker.groups.topics import Partition
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID
from tests.support.group_world import World

STEPS = 120


class Client:
    """What a member of the group believes."""

    def __init__(self, name: str, topics: frozenset[str]) -> None:
        self.name, self.topics = name, topics
        self.epoch = JOIN
        self.reads: frozenset[Partition] = frozenset()

    def beat(self, group: ShareGroup, now: float, *, whole: bool = False, lost: bool = False) -> None:
        """One heartbeat. A member that lost a response states its subscription with the next one."""
        names = self.topics if whole or self.epoch == JOIN else None
        try:
            answer = group.heartbeat(ShareHeartbeat(self.name, self.epoch, names), now)
        except RequestRefused as refused:
            if refused.code not in (FENCED_MEMBER_EPOCH, UNKNOWN_MEMBER_ID):
                raise
            self.epoch, self.reads = JOIN, frozenset()
            return
        assert answer.epoch >= self.epoch
        if not lost:
            self.epoch = answer.epoch
            self.reads = self.reads if answer.assignment is None else answer.assignment


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_everything_is_read_in_the_end(seed: int) -> None:
    chance = random.Random(seed)
    world = World({"a": 3, "b": 1})
    group = ShareGroup("g", world)
    clients: list[Client] = []
    unsure: set[str] = set()  # lost a response
    for number in range(STEPS):
        match chance.randrange(9):
            case 0 | 1 if len(clients) < 9:
                clients.append(Client(f"m{number}", frozenset(chance.sample(["a", "b", "c"], 2))))
            case 2 if clients:
                gone = clients.pop(chance.randrange(len(clients)))
                if gone.name in group.members and chance.random() < 0.5:
                    group.heartbeat(ShareHeartbeat(gone.name, LEAVE), world.now)  # the others fall silent
            case 3:
                fields = json.loads(snapshot.to_text(group))
                group = snapshot.restored("g", fields, world)
                group.start_sessions(world.now)
            case 4 if chance.random() < 0.3:
                world.create("c", 2) if "c" not in world.topics else world.grow("c", 1)
            case 5 if clients:
                client = chance.choice(clients)
                client.topics = frozenset(chance.sample(["a", "b", "c"], 2))
                unsure.add(client.name)
            case _ if clients:
                client = chance.choice(clients)
                lost = chance.random() < 0.2
                client.beat(group, world.now, whole=client.name in unsure, lost=lost)
                (unsure.add if lost else unsure.discard)(client.name)
        world.clock.advance(chance.random() * 5)
        group.tick(world.now)
        for member in group.members.values():
            assert (
                member.assigned <= {p for name in world.topics for p in world.partitions(name)} or not clients
            )

    for _ in range(12):  # ten heartbeats more than a session, so that silent members are gone
        for client in clients:
            client.beat(group, world.now, whole=True)
        world.clock.advance(5)
        group.tick(world.now)
    assert set(group.members) == {client.name for client in clients}
    assert {client.epoch for client in clients} <= {group.epoch}
    readers = Counter(partition for client in clients for partition in client.reads)
    for name in world.topics:
        subscribers = sum(name in client.topics for client in clients)
        shared = {readers[partition] for partition in world.partitions(name)}
        assert len(shared) == 1
        assert (subscribers > 0) == (shared != {0})
