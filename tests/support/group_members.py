"""Runs members of a group as processes with several client libraries, and collects what they processed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.apache_kafka import java
from tests.support.waiting import wait_for

_ROOT = Path(__file__).parents[2]


class Members:
    """Processes of ``tests.support.group_member`` and Java's ``VerifiableConsumer``, in the group ``g``."""

    def __init__(self, address: str, topic: str, directory: Path) -> None:
        self._address, self._topic, self._directory = address, topic, directory
        self._admin = AdminClient({"bootstrap.servers": address})
        self._started = 0
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, client: str, instance: str = "") -> None:
        """``client``: one that ``group_member`` knows, ``java``, or ``java-consumer`` (the new protocol)."""
        output = self._directory / f"member-{self._started}"
        self._started += 1
        errors = self._directory / f"errors-{output.name}"
        with output.open("wb") as file, errors.open("wb") as error_file:
            command = self._command(client, instance)
            process = subprocess.Popen(command, stdout=file, stderr=error_file, cwd=_ROOT)
        self.running.append(process)

    def _command(self, client: str, instance: str) -> list[str]:
        if not client.startswith("java"):
            command = [sys.executable, "-m", "tests.support.group_member"]
            return [*command, self._address, "g", self._topic, client, *([instance] if instance else [])]
        classic = ("--session-timeout", "6000") if client == "java" else ()
        return java(
            "org.apache.kafka.tools.VerifiableConsumer",
            *("--bootstrap-server", self._address, "--topic", self._topic, "--group-id", "g"),
            *("--group-protocol", "classic" if client == "java" else "consumer", *classic),
            *("--reset-policy", "earliest", "--verbose"),
            *(("--group-instance-id", instance) if instance else ()),
        )

    def end(self, number: int, how: signal.Signals) -> None:
        process = self.running.pop(number)
        process.send_signal(how)
        process.wait(400)

    def processed(self) -> Counter[str]:
        """The number of times that each value was processed."""
        counts: Counter[str] = Counter()
        for output in self._directory.glob("member-*"):
            for line in output.read_text().splitlines():
                if line.startswith("{"):
                    counts.update(_values_of(line))
                elif value := line.split(" ", 2)[2:]:
                    counts.update(value)
        return counts

    def described(self) -> Any:
        return self._admin.describe_consumer_groups(["g"])["g"].result(60)

    def wait_balanced(self, partitions: int) -> None:
        """Wait until every running member has its share, and no other member has any."""
        fewest, more = divmod(partitions, len(self.running))
        expected = [fewest] * (len(self.running) - more) + [fewest + 1] * more

        def balanced() -> bool:
            described = self.described()
            shares = sorted(len(m.assignment.topic_partitions) for m in described.members)
            return described.state.name == "STABLE" and shares == expected

        wait_for(balanced, timeout=60, what=f"members with {expected} partitions each", every=0.2)

    def wait_processed(self, sent: set[str], partitions: int, count: int) -> None:
        """Wait until every record is processed and every offset committed."""
        wait_for(lambda: sent <= set(self.processed()), timeout=60, what="all is processed", every=0.2)
        everything = [TopicPartition(self._topic, index) for index in range(partitions)]

        def all_committed() -> bool:
            asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g", everything)])
            return sum(each.offset for each in asked["g"].result(60).topic_partitions) == count

        wait_for(all_committed, timeout=90, what="every offset is committed", every=0.2)


def _values_of(line: str) -> list[str]:
    try:
        event = json.loads(line)
    except ValueError:  # the member was killed in the middle of a line
        return []
    return [event["value"]] if event["name"] == "record_data" else []


@contextmanager
def members(address: str, topic: str, directory: Path) -> Iterator[Members]:
    group = Members(address, topic, directory)
    try:
        yield group
    finally:
        for process in group.running:
            process.kill()
            process.wait()
