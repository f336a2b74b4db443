"""kill -9 while a log is compacted and written to: the newest acknowledged value of each key is there."""

from __future__ import annotations

import random
import threading
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from millstream.log.recovery.check import Finding, check_directory
from millstream.records.build import Record
from tests.support.serve import ServeProcess
from tests.support.topics import consume, create_topic
from tests.support.waiting import wait_for

KILLS = 5
KEYS = 50
IMPATIENT = {
    "message.timeout.ms": 120_000,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 50,
}
SETTINGS = {
    "log.cleaner.backoff.ms": "20",
    "topic.segment.bytes": "20000",
    "topic.cleanup.policy": "compact",
    "topic.min.cleanable.dirty.ratio": "0",
    "topic.file.delete.delay.ms": "0",
}


class Writer:
    """Counts up under every key, one after the other, and knows how far it was acknowledged."""

    def __init__(self, address: str, topic: str) -> None:
        self.acknowledged: dict[bytes, int] = {}
        self.failures: list[KafkaError] = []
        self.count = 0
        self._topic = topic
        self._stop = threading.Event()
        idempotent = {"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer({**idempotent, "linger.ms": 2, "batch.size": 10_000, **IMPATIENT})
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        chance = random.Random(1)
        while not self._stop.is_set():
            number += 1
            key = b"key-%d" % chance.randrange(KEYS)
            while True:
                try:
                    self._producer.produce(self._topic, b"%d" % number, key, on_delivery=self._delivered)
                    break
                except BufferError:
                    self._producer.poll(0.01)
            self._producer.poll(0 if number % 20 else 0.002)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
            return
        self.acknowledged[message.key()] = int(message.value())
        self.count += 1

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


def test_the_newest_value_of_each_key_survives_kills_and_compaction(tmp_path: Path) -> None:
    with ServeProcess(tmp_path / "data", settings=SETTINGS) as broker:
        topic = create_topic(broker.address, partitions=1)
        writer = Writer(broker.address, topic)
        try:
            for _ in range(KILLS):
                before, passes = writer.count, broker.logged().count("compacted up to")
                wait_for(
                    lambda before=before, passes=passes: (
                        writer.count > before + 2000 and broker.logged().count("compacted up to") > passes
                    ),
                    timeout=60,
                    what="more records and a compaction",
                )
                broker.kill()
                broker.start()
                assert not writer.failures, writer.failures[0]
        finally:
            writer.finish()

        def compacted() -> list[Record]:
            found = [record for _, record in consume(broker.address, topic, partitions=1)]
            return found if len(found) < writer.count / 2 else []

        # On a busy machine the writer may be far ahead of the compaction when it ends.
        records = wait_for(compacted, what="most records are compacted", every=0.5)
        logged = broker.logged()

    assert "damaged" not in logged
    assert "no longer compacted" not in logged
    table = {record.key: int(record.value or b"") for record in records}
    assert table == writer.acknowledged
    assert [record.offset for record in records] == sorted({record.offset for record in records})
    assert [f for f in check_directory(tmp_path / "data") if isinstance(f, Finding)] == []
