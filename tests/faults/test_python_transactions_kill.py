"""kill -9 of a program that reads, processes and writes in transactions, and of its broker: every record
comes out once."""

from __future__ import annotations

import random
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from millstream.client.connect import Connection
from millstream.client.librdkafka.consume import PartitionReader
from millstream.client.text.position import TopicPartition
from tests.support.serve import ServeProcess
from tests.support.topics import create_topic, produce, values
from tests.support.waiting import wait_for

PLACES = [TopicPartition("out", index) for index in range(2)]

COPIER = textwrap.dedent("""
    import os, signal, sys
    from millstream import client

    address, gap, after = sys.argv[1:]
    done = 0

    def die(this):
        if this == gap and done >= int(after):
            os.kill(os.getpid(), signal.SIGKILL)

    class Dying(client.Transactions):
        def _patiently(self, call, what=""):
            if getattr(call, "__name__", "") == "commit_transaction":
                die("before the commit")
                super()._patiently(call, what)
                die("after the commit")
            else:
                super()._patiently(call, what)
                if "send_offsets" in str(getattr(call, "__code__", "") and call.__code__.co_names):
                    die("after the offsets")

    with Dying(address, "copier", topics=["in"], group="copiers", most=15,
               consumer={"group.instance.id": "copier", "session.timeout.ms": 6000}) as batches:
        for txn in batches:
            for record in txn.records:
                txn.send("out", record.value(), partition=record.partition())
            die("after sending")
            done += 1
""")


class Output:
    """What readers of committed records have seen, followed through every restart."""

    def __init__(self, address: str) -> None:
        self._reader = PartitionReader(Connection.of(address), dict.fromkeys(PLACES, 0))
        self.seen: list[int] = []

    def poll(self) -> int:
        self.seen += [int(message.value()) for message in self._reader.read(1000, 0.1)]
        return len(self.seen)

    def close(self) -> None:
        self._reader.close()


class Input:
    """Numbered records, of which each partition has its own."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.count = 0
        self.of_partition: list[list[int]] = [[], []]

    def add(self, count: int = 300) -> None:
        """More than the copier takes in one transaction, to each partition."""
        for partition, numbers in enumerate(self.of_partition):
            new = range(self.count, self.count + count)
            produce(self._address, "in", values(*new), partition=partition)
            numbers += new
            self.count += count


def test_killed_in_every_gap_and_with_its_broker_each_record_comes_out_once(tmp_path: Path) -> None:
    program = tmp_path / "copier.py"
    program.write_text(COPIER)
    with ServeProcess(tmp_path / "data") as broker:
        for name in ("in", "out"):
            create_topic(broker.address, name)
        given, output = Input(broker.address), Output(broker.address)
        given.add()

        def start(gap: str = "nowhere", after: int = 0) -> subprocess.Popen[bytes]:
            command = [sys.executable, str(program), broker.address, gap, str(after)]
            return subprocess.Popen(command, stderr=subprocess.DEVNULL)

        for gap in ("after sending", "after the offsets", "before the commit", "after the commit"):
            process = start(gap, after=2)
            assert process.wait(400) == -9, f"it killed itself {gap}"
        chance = random.Random(7)
        for round_number in range(4):
            given.add()  # the copier may have reached the end before it was killed
            before, process = output.poll(), start()
            wait_for(lambda before=before: output.poll() > before, timeout=90, what="records come out")
            time.sleep(chance.uniform(0, 0.05))  # not a wait: anywhere in a transaction
            if round_number % 2:
                broker.kill()
                broker.start()
            process.kill()
            process.wait()
        process = start()
        try:
            wait_for(lambda: output.poll() >= given.count, timeout=90, what="every record came out")
            given.add(1)
            wait_for(lambda: output.poll() >= given.count, timeout=60, what="the copier is at the end")
        finally:
            process.kill()
            process.wait()
            output.close()
    for numbers in given.of_partition:
        own = set(numbers)
        assert [number for number in output.seen if number in own] == numbers, "once, in their order"
    assert len(output.seen) == given.count
