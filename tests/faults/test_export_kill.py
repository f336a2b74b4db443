"""``millstream topic export`` is killed again and again while records come: each is in exactly one file."""

from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path

import pytest

from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.produce import RecordSender
from millstream.client.text.lines import Outgoing
from tests.support.command import CommandLine
from tests.support.killable import KINDS, killable
from tests.support.waiting import wait_for

TOPIC = "t"
PARTITIONS = 2
KILLS = 4


class Producer(threading.Thread):
    """Sends numbered records to all partitions until it is stopped."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(daemon=True)
        self.sent = 0
        self._sender = RecordSender(connection, TOPIC)
        self._stop_asked = threading.Event()

    def run(self) -> None:
        while not self._stop_asked.wait(0.005):
            self._sender.send(
                [Outgoing(b"%d" % (self.sent + at), partition=at % PARTITIONS) for at in range(20)]
            )
            self.sent += 20

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()
        assert self._sender.finish(60)
        assert self._sender.failed == 0


@pytest.mark.parametrize("kind", KINDS)
def test_no_record_is_lost_and_none_is_in_two_files(kind: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with killable(kind, tmp_path) as broker:
        connection = Connection.of(broker.address)
        millstream = CommandLine(broker.address)
        with Admin(connection) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        command = ("topic", "export", TOPIC, "--to", str(out), "--size", "8kB", "--quiet")

        def files() -> list[Path]:
            return sorted(out.glob("t.*.jsonl"))

        def more_than(number: int) -> bool:
            return len(files()) > number

        producer = Producer(connection)
        producer.start()
        try:
            for _ in range(KILLS):
                before = len(files())
                process = millstream.start(*command, "--follow")
                wait_for(partial(more_than, before + 3), timeout=60, what="complete files", every=0.001)
                process.kill()
                process.wait()
        finally:
            producer.stop()
        millstream.ok(*command)
    numbers: list[int] = []
    following = dict.fromkeys(map(str, range(PARTITIONS)), 0)
    for path in files():
        _, partition, first, last = path.stem.rsplit("-", 3)
        assert int(first) == following[partition], "files of a partition join"
        following[partition] = int(last) + 1
        numbers += [int(json.loads(line)["value"]) for line in path.read_text().splitlines()]
    assert sorted(numbers) == list(range(producer.sent))
    assert not list(out.glob(".*"))
