"""Compacted topics, which have to keep the newest value of each key."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import KafkaException

from tests.campaign import keyed
from tests.campaign.findings import Finding
from tests.campaign.journal import Notes
from tests.campaign.keyed import Table
from tests.campaign.parts import Part, World, make_topic, remove_topic
from tests.campaign.processes import Client, client
from tests.campaign.reading import CantRead, read_keys

PARTITIONS = 2


class TablesPart(Part):
    name = "compaction"

    def __init__(self) -> None:
        super().__init__()
        self._tables: dict[str, Table] = {}

    def prepare(self, world: World) -> None:
        chance = world.chance(self.name)
        for name, delay in (("table", 0), ("table-slow", 3000 if world.quick else 60_000)):
            if name in self._tables and chance.random() < 0.5:
                remove_topic(world.address, name)
                del self._tables[name]
            if name in self._tables:
                continue
            self._tables[name] = Table()
            config = {
                "cleanup.policy": "compact",
                "segment.bytes": str(chance.choice((131_072, 500_000))),
                "min.cleanable.dirty.ratio": str(chance.choice((0, 0.3))),
                "delete.retention.ms": str(chance.choice((0, 2000))),
                "file.delete.delay.ms": str(delay),
            }
            make_topic(world, name, PARTITIONS, config)

    def writers(self, world: World) -> list[Client]:
        chance = world.chance("keys")
        journals, found = world.journals(self.name), []
        for name in self._tables:
            options = {"topic": name, "keys": chance.choice((20, 300, 5000)), "seed": world.seed}
            found.append(client(f"r{world.number}-{name}", journals, world.address, "write-keys", **options))
        return found

    def others(self, world: World) -> list[Client]:
        return []

    def settle(self, world: World, others: list[Client]) -> Iterator[Finding]:
        return iter(())

    def check(self, world: World) -> Iterator[Finding]:
        for name, table in self._tables.items():
            notes = Notes.of(world.journals(self.name).glob(f"r{world.number}-{name}-[0-9]*.jsonl"))
            self.tallies.update(notes.tallies)
            for wrong in notes.wrong:
                yield Finding(self.name, "client", wrong)
            notes.fold_table(table)
            try:
                records = read_keys(world.address, name, PARTITIONS)
            except (CantRead, KafkaException) as error:
                yield Finding(self.name, "unreadable", str(error))
                continue
            self.tallies["checked"] += len(table.acknowledged)
            yield from keyed.check(self.name, records, table)
            table.settle(keyed.newest(records)[0])
