"""Writers, copiers and readers of transactions while the broker and they themselves are killed: Jepsen's way.

The clients are processes (``tests.support.checker_client``) that write journals; at the end the journals
and the whole log are held against what a log may do (``tests.support.history``). ``CHECKER_SEED`` repeats the
faults of a run, as far as processes can be repeated.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.apache_kafka import jars
from tests.support.checked_log import committed_count, read_end, stable_count
from tests.support.checker_client import INPUT, PARTITIONS, STUCK, TARGETS
from tests.support.history import Copying, check
from tests.support.java_program import compiled
from tests.support.journal import read_journals
from tests.support.killable import KINDS, killable
from tests.support.maven import REPOSITORY, JarsUnavailable
from tests.support.topics import create_topic
from tests.support.waiting import wait_for

# How often the broker is killed, and the seconds it gets in between: Apache Kafka needs some to be of use.
FAULTS = {"ours": (20, (0.4, 2.2)), "Apache Kafka": (6, (8.0, 14.0))}
TOPICS = [INPUT, *TARGETS]


@dataclass
class Client:
    """A client in all its lives. ``{life}`` in an argument is the number of the life."""

    address: str
    journals: Path
    name: str
    arguments: tuple[str, ...]
    life: int = 0
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        journal = self.journals / f"{self.name}-{self.life:03}.jsonl"
        arguments = [argument.format(life=self.life) for argument in self.arguments]
        program = [sys.executable, "-m", "tests.support.checker_client"]
        with (self.journals / f"{self.name}.err").open("ab") as errors:
            self.process = subprocess.Popen(
                [*program, self.address, str(journal), *arguments],
                cwd=REPOSITORY,
                stderr=errors,
            )
        self.life += 1

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def restart(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()
        self.start()

    def revive(self) -> None:
        """Start it again if it got stuck and ended; anything else it should not end by."""
        assert self.process is not None
        code = self.process.poll()
        if code is not None:
            said = (self.journals / f"{self.name}.err").read_text()
            assert code == STUCK, f"{self.name} ended with {code}: {said[-2000:]}"
            self.start()

    def finish(self) -> None:
        """Ask it to finish what is under way, and wait for that."""
        assert self.process is not None
        self.signal(signal.SIGTERM)
        code = self.process.wait(400)
        said = (self.journals / f"{self.name}.err").read_text()
        assert code == 0, f"{self.name} ended with {code}: {said[-2000:]}"


WRITERS = {
    "plain": ("plain",),
    "librdkafka": ("transactional", "confluent", "librdkafka", "60000"),
    "java": ("transactional", "java", "java", "60000"),
    # Nobody comes back under the id of a life that was killed: its transaction ends by its timeout.
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


@pytest.mark.parametrize("kind", KINDS)
def test_transactions_are_whole_and_once_however_often_all_are_killed(kind: str, tmp_path: Path) -> None:
    try:
        compiled("TransactionalPeer", jars())
    except JarsUnavailable as reason:
        pytest.skip(str(reason))
    chance = random.Random(int(os.environ.get("CHECKER_SEED", "4")))
    journals = tmp_path / "journals"
    journals.mkdir()
    with killable(kind, tmp_path) as broker:
        for topic in TOPICS:
            create_topic(broker.address, topic, PARTITIONS)

        def clients(group: dict[str, tuple[str, ...]]) -> list[Client]:
            return [Client(broker.address, journals, name, arguments) for name, arguments in group.items()]

        writers, copiers, observers = clients(WRITERS), clients(COPIERS), clients(OBSERVERS)
        everyone = [*writers, *copiers, *observers]

        def revive() -> None:
            for client in everyone:
                client.revive()

        try:
            for client in everyone:
                client.start()
            # The watcher's numbers are in order only while it lives; the others may be killed at any time.
            mortal = [client for client in everyone if client.name != "watcher"]
            kills, pause = FAULTS[kind]
            for _ in range(kills):
                time.sleep(chance.uniform(*pause))  # the faults have a pace: the scenario, not a wait
                revive()
                if chance.random() < 0.7:
                    chance.choice(mortal).restart()
                broker.kill()
                broker.start()
            time.sleep(pause[1])  # what was killed last gets to show what it left
            for client in writers:
                client.finish()
            wanted = wait_for(
                lambda: stable_count(broker.address), timeout=60, what="no open input", every=0.5
            )

            def copied() -> bool:
                for client in copiers:
                    client.revive()
                return min(committed_count(broker.address, topic) for topic in TARGETS) >= wanted

            wait_for(copied, timeout=400, what=f"{wanted} records are copied", every=0.5)
            for client in [*copiers, *observers]:
                client.finish()
        finally:
            for client in everyone:
                if client.process is not None and client.process.poll() is None:
                    client.process.kill()
                    client.process.wait()
        history = read_journals(journals)
        history.copying = [Copying(INPUT, target) for target in TARGETS]
        read_end(broker.address, history)

    outcomes = Counter(transaction.outcome for transaction in history.transactions)
    print(f"{dict(outcomes)}, {sum(len(poll.records) for poll in history.polls):,} records polled")
    anomalies = check(history)
    assert anomalies == [], Counter(anomaly.kind for anomaly in anomalies)
    # The history was worth checking: everything that can come of a transaction came of some.
    assert min(outcomes["committed"], outcomes["aborted"]) > 50
    assert outcomes["unknown"] > 0
    assert {poll.committed_only for poll in history.polls} == {True, False}
    assert {mark.name for mark in history.marks} >= {
        "end",
        "last stable offset",
        *(f"offset of {t}" for t in TARGETS),
    }
