"""Kafka Streams, exactly once: a word count that is killed, on a broker that is killed, counts right."""

from __future__ import annotations

import random
import struct
import subprocess
import threading
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from tests.support.java_program import java_program
from tests.support.killable import KINDS, killable
from tests.support.maven import REPOSITORY, JarsUnavailable, fetch_jars
from tests.support.topics import create_topic
from tests.support.transactional import read_messages
from tests.support.waiting import wait_for

POM = REPOSITORY / "tests" / "support" / "kafka_streams" / "pom.xml"
WORDS = [f"word{number}" for number in range(20)]
PARTITIONS = 2
KILLS = 3


class Lines:
    """Lines of words, sent at a steady pace by an idempotent producer until it is told to stop."""

    def __init__(self, address: str, topic: str) -> None:
        self.words: Counter[str] = Counter()
        self._topic = topic
        self._failures: list[object] = []
        self._stop = threading.Event()
        settings = {"bootstrap.servers": address, "enable.idempotence": True, "message.timeout.ms": 120_000}
        self._producer = Producer({**settings, "linger.ms": 5, "log_level": 0})
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self._failures.append(error)

    def _run(self) -> None:
        chance = random.Random(1)
        while not self._stop.wait(0.01):
            line = chance.choices(WORDS, k=5)
            self.words.update(line)
            self._producer.produce(self._topic, " ".join(line), line[0], on_delivery=self._delivered)
            self._producer.poll(0)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert self._failures == []


def committed_counts(address: str, topic: str) -> dict[str, list[int]]:
    """All counts of each word in a topic, in order, as read_committed shows them."""
    counts: dict[str, list[int]] = defaultdict(list)
    for message in read_messages(address, topic, PARTITIONS, "read_committed"):
        counts[message.key().decode()].append(struct.unpack(">q", message.value()[-8:])[0])
    return counts


@pytest.mark.parametrize("kind", KINDS)
def test_a_word_count_that_is_killed_counts_every_word_once(kind: str, tmp_path: Path) -> None:
    try:
        jars = fetch_jars(POM)
        java_program("WordCount", jars)
    except JarsUnavailable as reason:
        pytest.skip(str(reason))
    with killable(kind, tmp_path) as broker:
        for topic in ("lines", "counts"):
            create_topic(broker.address, topic, PARTITIONS)
        program = java_program("WordCount", jars, broker.address, str(tmp_path / "state"), "lines", "counts")
        errors = (tmp_path / "errors").open("wb")
        running: list[subprocess.Popen[bytes]] = []

        def total() -> int:
            return sum(len(counts) for counts in committed_counts(broker.address, "counts").values())

        def counted_more_than(before: int) -> bool:
            assert running[-1].poll() is None, (tmp_path / "errors").read_text()[-3000:]
            return total() > before

        lines = Lines(broker.address, "lines")
        try:
            for number in range(KILLS + 1):
                running.append(subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=errors))
                before = total()
                wait_for(
                    lambda before=before: counted_more_than(before + 50),
                    timeout=90,
                    what=f"words are counted after {number} kills",
                    every=0.3,
                )
                before = total()
                broker.kill()
                broker.start()
                wait_for(
                    lambda before=before: counted_more_than(before + 50),
                    timeout=90,
                    what=f"words are counted after the broker's kill {number + 1}",
                    every=0.3,
                )
                if number < KILLS:
                    running[-1].kill()
                    running[-1].wait()
            lines.finish()
            wait_for(
                lambda: total() >= lines.words.total(), timeout=90, what="all words are counted", every=0.3
            )
            running[-1].terminate()
            running[-1].wait(60)
        finally:
            lines.finish()
            for process in running:
                process.kill()
                process.wait()
            errors.close()
        counts = committed_counts(broker.address, "counts")
        changelog = committed_counts(broker.address, "wordcount-counts-changelog")

    assert counts == {word: list(range(1, count + 1)) for word, count in lines.words.items()}
    assert {word: history[-1] for word, history in changelog.items()} == dict(lines.words)
