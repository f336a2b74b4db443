"""``millstream tail`` is killed again and again while its file is written and rotated: every line, once."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import threading
from functools import partial
from pathlib import Path

import pytest

from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.consume import PartitionReader
from millstream.client.text.position import TopicPartition
from tests.support.command import CommandLine
from tests.support.killable import KINDS, killable
from tests.support.waiting import wait_for

TOPIC = "web"
PLACE = TopicPartition(TOPIC, 0)
KILLS = 4
PACE = 0.002  # seconds between two lines


class Writer(threading.Thread):
    """Writes numbered lines, and every so often rotates: by renaming, by copying and truncating, with and
    without compression."""

    def __init__(self, log: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self.log = log
        self.count = 0
        self._random = random.Random(seed)
        self._stop_asked = threading.Event()

    def run(self) -> None:
        while not self._stop_asked.wait(PACE):
            with self.log.open("ab") as file:
                file.write(b"%d %s\n" % (self.count, b"x" * self._random.randrange(300)))
            self.count += 1
            if self.count % 150 == 0:
                self._rotate()

    def stop(self) -> None:
        self._stop_asked.set()
        self.join()

    def _rotate(self) -> None:
        directory = self.log.parent
        rotated = sorted(directory.glob("web.log.*"), key=lambda path: -int(path.name.split(".")[2]))
        for path in rotated:
            _, _, number, *packed = path.name.split(".")
            path.rename(directory / ".".join(["web.log", str(int(number) + 1), *packed]))
        newest = directory / "web.log.1"
        if self._random.random() < 0.5:
            self.log.rename(newest)
        else:
            shutil.copy2(self.log, newest)
            os.truncate(self.log, 0)
        if self._random.random() < 0.5:
            half = directory / "web.log.1.gz"
            with gzip.open(half, "wb") as packed_file:
                packed_file.write(newest.read_bytes())
            newest.unlink()


@pytest.mark.parametrize("kind", KINDS)
def test_no_line_is_lost_and_none_comes_twice(kind: str, tmp_path: Path) -> None:
    seed = 20261116
    logs = tmp_path / "logs"
    logs.mkdir()
    with killable(kind, tmp_path) as broker:
        millstream = CommandLine(broker.address)
        connection = Connection.of(broker.address)
        command = ("tail", str(logs / "web.log*"), "--to", TOPIC, "--from-start", "--quiet")
        writer = Writer(logs / "web.log", seed)
        with Admin(connection) as admin:
            admin.create_topic(TOPIC, partitions=1)

            def end() -> int:
                return admin.bounds([PLACE])[PLACE].end

            def grown(beyond: int) -> bool:
                return end() > beyond

            writer.start()
            try:
                for _ in range(KILLS):
                    before = end()
                    process = millstream.start(*command)
                    wait_for(partial(grown, before + 20), timeout=60, what="lines are sent", every=0.01)
                    process.kill()
                    process.wait()
            finally:
                writer.stop()
            millstream.ok(*command, "--once")
            bounds = admin.bounds([PLACE], committed_only=True)[PLACE]
        lines = committed_lines(connection, bounds.end)
    assert sorted(lines) == list(range(writer.count)), f"seed {seed}"


def committed_lines(connection: Connection, stop: int) -> list[int]:
    """The numbers of the lines that a reader of committed records sees."""
    numbers: list[int] = []
    with PartitionReader(connection, {PLACE: 0}, {PLACE: stop}) as reader:
        while not reader.finished:
            numbers += [int(record.value().split()[0]) for record in reader.read(1000, 0.5)]
    return numbers
