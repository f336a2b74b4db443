"""Transactions: committed, aborted, abandoned; copied exactly once; read by committed and by all records.

The clients, the journals and the rules are those of ``tests/faults/test_transactions_checker.py``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

from tests.campaign.findings import Finding
from tests.campaign.parts import Part, World, make_topic, remove_topic
from tests.campaign.processes import Client
from tests.support.apache_kafka import jars
from tests.support.checked_log import committed_count, ends, read_end
from tests.support.checker_client import INPUT, PARTITIONS, STUCK, TARGETS
from tests.support.history import Copying, check
from tests.support.java_program import compiled
from tests.support.journal import read_journals
from tests.support.maven import JarsUnavailable

T = TypeVar("T")

WRITERS = {
    "plain": ("plain",),
    "librdkafka": ("transactional", "confluent", "librdkafka", "20000"),
    "java": ("transactional", "java", "java", "20000"),
    # Nobody takes over the id of a life that was killed: its transaction ends by its timeout.
    "abandoner": ("transactional", "confluent", "abandoner-{life}", "4000"),
}
COPIERS = {
    "copier": ("copier", "java", "copier", TARGETS[0]),
    "member-1": ("group-copier", "member-1", TARGETS[1]),
    "member-2": ("group-copier", "member-2", TARGETS[1]),
}
OBSERVERS = {
    "committed": ("reader", "read_committed"),
    "uncommitted": ("reader", "read_uncommitted"),
    "watcher": ("watcher", *TARGETS),
}
OPEN_AT_MOST = 120.0  # seconds until the last abandoned transaction is aborted
COPYING = 300.0


@cache
def _java_is_here() -> bool:
    try:
        compiled("TransactionalPeer", jars())
    except JarsUnavailable:
        return False
    return True


class TransactionsPart(Part):
    name = "transactions"

    def __init__(self) -> None:
        super().__init__()
        self._exist = False

    def prepare(self, world: World) -> None:
        # Readers are checked from offset 0 on, so every round has new topics, under the old names.
        for topic in (INPUT, *TARGETS):
            if self._exist:
                remove_topic(world.address, topic)
            make_topic(world, topic, PARTITIONS, {"segment.bytes": "131072"})
        self._exist = True

    def writers(self, world: World) -> list[Client]:
        return self._clients(world, WRITERS)

    def others(self, world: World) -> list[Client]:
        return self._clients(world, COPIERS | OBSERVERS)

    def _clients(self, world: World, roles: dict[str, tuple[str, ...]]) -> list[Client]:
        wanted = {name: role for name, role in roles.items() if "java" not in role or self._has_java(world)}
        return [self._client(world, name, role) for name, role in wanted.items()]

    @staticmethod
    def _has_java(world: World) -> bool:
        return not world.quick and _java_is_here()

    def _targets(self, world: World) -> list[str]:
        """The topics that are copied to: by Java's client alone, and by a group of librdkafka's."""
        return TARGETS if self._has_java(world) else TARGETS[1:]

    def _client(self, world: World, name: str, role: tuple[str, ...]) -> Client:
        def command(journal: Path) -> list[str]:
            life = journal.stem.rpartition("-")[2]
            arguments = [argument.format(life=f"{world.number}-{life}") for argument in role]
            program = [sys.executable, "-m", "tests.support.checker_client"]
            return [*program, world.address, str(journal), *arguments]

        # The watcher's numbers are in order only within one life.
        mortal = name != "watcher"
        return Client(name, world.journals(self.name), command, mortal=mortal, may_end_with=(STUCK,))

    def settle(self, world: World, others: list[Client]) -> Iterator[Finding]:
        still_open = self._within(OPEN_AT_MOST, lambda: self._open(world), others)
        if still_open:
            yield Finding(self.name, "stuck", f"transactions are still open: {still_open}")
            return
        wanted = committed_count(world.address, INPUT)

        def not_copied() -> dict[str, int]:
            copied = {topic: committed_count(world.address, topic) for topic in self._targets(world)}
            return {topic: count for topic, count in copied.items() if count < wanted}

        if behind := self._within(COPYING, not_copied, others):
            yield Finding(self.name, "stuck", f"{wanted} records were to be copied, and {behind} were")

    @staticmethod
    def _open(world: World) -> dict[str, tuple[int, int]]:
        """Last stable offset and end of the partitions where they differ."""
        found = {f"{INPUT}-{number}": ends(world.address, INPUT, number) for number in range(PARTITIONS)}
        return {where: (stable, end) for where, (stable, end) in found.items() if stable != end}

    @staticmethod
    def _within(seconds: float, left: Callable[[], dict[str, T]], others: list[Client]) -> dict[str, T]:
        """What is left after at most this time."""
        deadline = time.monotonic() + seconds
        while (still := left()) and time.monotonic() < deadline:
            for each in others:
                each.revive()
            time.sleep(0.5)
        return still

    def check(self, world: World) -> Iterator[Finding]:
        history = read_journals(world.journals(self.name))
        history.copying = [Copying(INPUT, target) for target in self._targets(world)]
        read_end(world.address, history)
        for transaction in history.transactions:
            self.tallies[transaction.outcome] += 1
        self.tallies["checked"] += sum(map(len, history.everything.values()))
        for anomaly in check(history):
            yield Finding(self.name, anomaly.kind, anomaly.detail)
