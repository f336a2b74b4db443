"""Simulates consumers of both protocols around one group of the consumer protocol, from a seed.

Consumers join, stall, lose responses, restart, leave and die. Topics are created, grow and are deleted. The
broker restarts from its snapshots. The clients behave like real ones: they own an assignment once they have
taken it over, give partitions up before they say so, and drop everything when they are fenced. The invariants
are checked after every step.
"""

from __future__ import annotations

import contextlib
import json
import random
import uuid
from typing import NamedTuple

from millstream.broker.groups.classic.member import JoinRequest
from millstream.broker.groups.consumer import classic_members, snapshot
from millstream.broker.groups.consumer.group import ConsumerGroup, ConsumerState, Heartbeat
from millstream.broker.groups.topics import Partition
from millstream.core.clock import ManualClock
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID
from millstream.wire.consumer_protocol import read_assignment
from tests.support.subscriptions import subscription

SESSION, REBALANCE = 45.0, 60.0


class Shape(NamedTuple):
    id: uuid.UUID
    partitions: int


class World:
    """Topics, a clock and a group."""

    def __init__(self, topics: dict[str, int]) -> None:
        self.topics_version = 0
        self.topics: dict[str, Shape] = {}
        self.clock = ManualClock()
        self.group = ConsumerGroup("g", self)
        for name, partitions in topics.items():
            self.create(name, partitions)

    @property
    def now(self) -> float:
        return self.clock.monotonic()

    def create(self, name: str, partitions: int) -> None:
        self.topics[name] = Shape(uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}{self.topics_version}"), partitions)
        self.topics_version += 1

    def grow(self, name: str, more: int) -> None:
        topic = self.topics[name]
        self.topics[name] = Shape(topic.id, topic.partitions + more)
        self.topics_version += 1

    def delete(self, name: str) -> None:
        del self.topics[name]
        self.topics_version += 1

    def partitions(self, *names: str) -> set[Partition]:
        return {
            (topic.id.bytes, index)
            for name, topic in self.topics.items()
            if name in names
            for index in range(topic.partitions)
        }

    def restart(self) -> None:
        """Restart the broker from its snapshot. Sessions start again."""
        fields = json.loads(snapshot.to_text(self.group))
        self.group = snapshot.restored("g", fields, self, self.now)
        self.group.start_sessions(self.now)

    def beat(self, member_id: str, epoch: int, **fields: object) -> tuple[int, set[Partition] | None]:
        """Send a heartbeat, and return the epoch and the assignment of the response."""
        answer = self.group.heartbeat(Heartbeat(member_id, epoch, **fields), self.now)  # type: ignore[arg-type]
        return answer.epoch, None if answer.assignment is None else set(answer.assignment)

    def join(self, member_id: str, *names: str, **fields: object) -> tuple[int, set[Partition]]:
        epoch, assignment = self.beat(
            member_id, 0, rebalance_timeout=REBALANCE, names=frozenset(names), owned=(), **fields
        )
        assert assignment is not None
        return epoch, assignment


class Client:
    """A consumer of the consumer protocol."""

    def __init__(self, world: World, name: str, topics: frozenset[str], instance: str | None) -> None:
        self.world, self.name, self.topics, self.instance = world, name, topics, instance
        self.epoch = 0
        self.owned: set[Partition] = set()
        self.told: set[Partition] | None = None  # an assignment not taken over yet
        self.unsure = True  # True if the last response may be lost: the next heartbeat sends all fields
        self.last = world.now

    def step(self, chance: random.Random) -> None:
        world = self.world
        if world.now - self.last >= SESSION:
            self.fenced()  # a real client notices by itself that its session has expired
        if self.told is not None and chance.random() < 0.7:
            self.owned, self.told = self.told, None
            self.unsure = True
        full = self.unsure or self.epoch == 0
        try:
            epoch, assignment = world.beat(
                self.name,
                self.epoch,
                instance_id=self.instance,
                rebalance_timeout=REBALANCE if full else None,
                names=self.topics if full else None,
                owned=frozenset(self.owned) if full else None,
            )
        except RequestRefused:
            self.fenced()
            return
        if chance.random() < 0.1:
            self.unsure = True  # the response is lost
            return
        assert epoch >= self.epoch, "a member's epoch went back"
        self.last = world.now
        self.epoch, self.unsure = epoch, False
        if assignment is not None:
            self.told = assignment

    def fenced(self) -> None:
        self.epoch, self.owned, self.told, self.unsure = 0, set(), None, True

    def leave(self, *, for_good: bool) -> None:
        self.owned = set()
        if self.epoch > 0:
            epoch = -1 if for_good or not self.instance else -2
            with contextlib.suppress(RequestRefused):  # it was already removed from the group
                self.world.beat(self.name, epoch, instance_id=self.instance)

    @property
    def is_settled(self) -> bool:
        return self.told is None and not self.unsure


class ClassicClient:
    """A consumer of the classic protocol. If ``cooperative``, it keeps its partitions while it joins."""

    def __init__(self, world: World, name: str, topics: frozenset[str], *, cooperative: bool) -> None:
        self.world, self.name, self.topics = world, name, topics
        self.protocol = "cooperative-sticky" if cooperative else "range"
        self.cooperative = cooperative
        self.generation = -1
        self.owned: set[Partition] = set()
        self.must_join, self.must_sync = True, False
        self.last = world.now

    def step(self, chance: random.Random) -> None:
        if self.world.now - self.last >= SESSION:
            self.fenced()
        if self.must_join:
            self._join()
        elif self.must_sync:
            self._sync()
        else:
            error = classic_members.heartbeat(
                self.world.group, self.name, None, self.generation, self.world.now
            )
            self._heard(error)
        self.last = self.world.now

    def _join(self) -> None:
        world = self.world
        if not self.cooperative:
            self.owned = set()
        names = {shape.id.bytes: name for name, shape in world.topics.items()}
        owned: dict[str, list[int]] = {}
        for topic, index in self.owned:
            if topic in names:
                owned.setdefault(names[topic], []).append(index)
        metadata = subscription(*self.topics, owned=owned)
        protocols = ((self.protocol, metadata), ("both", metadata))
        join = JoinRequest(self.name, None, "c", "h", SESSION, REBALANCE, "consumer", protocols)
        joined = classic_members.join(world.group, world, join, world.now)
        assert joined.error == 0, joined
        assert joined.generation >= self.generation, "a member's generation went back"
        self.generation, self.must_join, self.must_sync = joined.generation, False, True

    def _sync(self) -> None:
        world = self.world
        synced = classic_members.sync(
            world.group, world, self.name, None, self.generation, "consumer", self.protocol, world.now
        )
        self._heard(synced.error)
        if synced.error:
            return
        assignment = read_assignment(synced.assignment)
        assert assignment is not None
        told = {(world.topics[name].id.bytes, index) for name, of in assignment.items() for index in of}
        if self.owned - told and self.cooperative:
            self.must_join = True  # it has given partitions up, and joins again to say so
        self.owned, self.must_sync = told, False

    def _heard(self, error: int) -> None:
        if error == REBALANCE_IN_PROGRESS:
            self.must_join, self.must_sync = True, False
        elif error in (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION):
            self.fenced()

    def fenced(self) -> None:
        self.owned, self.generation, self.must_join, self.must_sync = set(), -1, True, False

    def leave(self, *, for_good: bool) -> None:
        self.owned = set()
        classic_members.leave(self.world.group, [(self.name, None)])

    @property
    def is_settled(self) -> bool:
        return not self.must_join and not self.must_sync


class Simulation:
    """Lets random events happen in a world, and checks it."""

    def __init__(self, seed: int, *, alike: bool, classic: bool) -> None:
        self.chance = random.Random(seed)
        self.alike, self.classic = alike, classic
        self.world = World({"a": 5, "b": 3, "c": 1})
        self.clients: list[Client | ClassicClient] = []
        self._names = iter(f"m{number}" for number in range(10_000))
        self._epochs = (0, 0)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._happen()
            self.check()

    def _happen(self) -> None:
        chance, world = self.chance, self.world
        event = chance.random()
        if event < 0.10 and len(self.clients) < 8:
            self._new()
        elif event < 0.14 and self.clients:
            self.clients.pop(chance.randrange(len(self.clients))).leave(for_good=True)
        elif event < 0.17 and self.clients:
            del self.clients[chance.randrange(len(self.clients))]  # killed, without leaving the group
        elif event < 0.20 and self.clients:
            self._restart_static(chance.choice(self.clients))
        elif event < 0.22:
            world.grow(chance.choice(list(world.topics)), 1)
        elif event < 0.23 and "c" in world.topics:
            world.delete("c")
            for client in self.clients:  # nobody owns partitions of a deleted topic
                client.owned = {p for p in client.owned if p in world.partitions("a", "b")}
        elif event < 0.24 and "c" not in world.topics:
            world.create("c", 2)
        elif event < 0.26:
            world.restart()
        elif event < 0.32:
            world.clock.advance(chance.choice([1.0, 10.0, 50.0]))
        elif self.clients:
            chance.choice(self.clients).step(chance)
        world.clock.advance(0.1)
        world.group.tick(world.now)

    def _new(self) -> None:
        topics = frozenset("abc")
        if not self.alike:
            topics = frozenset(self.chance.sample("abc", self.chance.randint(1, 3)))
        name = next(self._names)
        if self.classic and self.chance.random() < 0.5:
            cooperative = self.chance.random() < 0.5
            self.clients.append(ClassicClient(self.world, name, topics, cooperative=cooperative))
        else:
            instance = f"i-{name}" if self.chance.random() < 0.3 else None
            self.clients.append(Client(self.world, name, topics, instance))

    def _restart_static(self, client: Client | ClassicClient) -> None:
        if isinstance(client, Client) and client.instance is not None:
            client.leave(for_good=False)
            client.fenced()
            client.name = next(self._names)

    def check(self) -> None:
        """Check the invariants."""
        group = self.world.group
        owners: dict[Partition, str] = {}
        for client in self.clients:
            if self.world.now - client.last >= SESSION:
                continue  # its session has expired, and it notices as soon as it wakes
            for partition in client.owned:
                assert owners.setdefault(partition, client.name) == client.name, "owned by two"
        held: dict[Partition, str] = {}
        for member in group.members.values():
            for partition in (*member.assigned, *member.revoking):
                assert held.setdefault(partition, member.member_id) == member.member_id
        assert held == group.owners
        assert (group.epoch, group.target_epoch) >= self._epochs
        assert group.target_epoch <= group.epoch
        self._epochs = (group.epoch, group.target_epoch)

    def settle(self) -> None:
        """Let only heartbeats happen, until dead members have timed out and the group is stable."""
        calm = random.Random(0)
        world = self.world
        for beat in range(60):
            for client in self.clients:
                client.step(calm)
                self.check()
            world.clock.advance(3.0)
            world.group.tick(world.now)
            calm_now = world.group.state in (ConsumerState.STABLE, ConsumerState.EMPTY)
            if 3.0 * beat > SESSION and calm_now and all(client.is_settled for client in self.clients):
                break
