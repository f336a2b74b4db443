"""What the parts of a campaign have in common, and what a round gives them.

A part has topics, clients and checks that belong together. It lives as long as the campaign: a topic that
is kept from one round to the next begins the next round at its ``base``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.campaign.broker import BrokerUnderTest
from tests.campaign.clients_common import IMPATIENT
from tests.campaign.coverage import Sighting
from tests.campaign.findings import Finding
from tests.campaign.ledger import Place
from tests.campaign.processes import Client
from tests.support.topics import delete_records


@dataclass
class World:
    """One round, as its parts see it."""

    number: int
    seed: int
    broker: BrokerUnderTest
    data: Path
    archive: Path
    directory: Path
    """For the files of this round: journals, exports."""
    quick: bool = False
    """Leave out whatever takes a minute by its nature."""
    sightings: dict[Place, list[Sighting]] = field(default_factory=dict)
    """Filled in before the checks: starts, ends and groups' offsets, as the watcher saw them."""

    @property
    def address(self) -> str:
        return self.broker.address

    def chance(self, name: str) -> Random:
        return Random(f"{self.seed}/{self.number}/{name}")

    def journals(self, part: str) -> Path:
        directory = self.directory / part
        directory.mkdir(exist_ok=True)
        return directory


class Part(ABC):
    name: str

    def __init__(self) -> None:
        self.tallies: Counter[str] = Counter()

    @abstractmethod
    def prepare(self, world: World) -> None:
        """Create or reset the topics."""

    @abstractmethod
    def writers(self, world: World) -> list[Client]:
        """The clients that finish first."""

    @abstractmethod
    def others(self, world: World) -> list[Client]:
        """The clients that finish when what was written has reached them: ``settle`` waits for that."""

    def watched(self) -> tuple[dict[str, int], list[str]]:
        """Topics with their number of partitions, and groups: their offsets are watched as they grow."""
        return {}, []

    def sample(self, world: World) -> Iterator[Finding]:
        """Called again and again while faults strike, for bounds that hold at every moment."""
        return iter(())

    @abstractmethod
    def settle(self, world: World, others: list[Client]) -> Iterator[Finding]:
        """The writers have finished: wait until the others have caught up."""

    @abstractmethod
    def check(self, world: World) -> Iterator[Finding]:
        """All clients have finished: compare the log with what they noted."""


def make_topic(world: World, name: str, partitions: int, config: Mapping[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": world.address, **IMPATIENT})
    admin.create_topics([NewTopic(name, partitions, 1, config=dict(config))], request_timeout=60)[
        name
    ].result(90)


def remove_topic(address: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": address, **IMPATIENT})
    try:
        admin.delete_topics([name], request_timeout=60)[name].result(90)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise


def trim_topic(world: World, name: str, ends: list[int]) -> None:
    for number, end in enumerate(ends):
        delete_records(world.address, name, number, end)
