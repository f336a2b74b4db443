"""Idempotent producers of numbers (Java's and librdkafka's) that survive every interruption.

They record which numbers were acknowledged, and when. ``account`` compares that with the topic.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.support.apache_kafka import jars
from tests.support.java_program import java_program

PARTITIONS = 2


class Load:
    """A producer that sends number n to partition n % PARTITIONS of its topic."""

    client = ""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.acknowledged: set[int] = set()
        self.acknowledged_at: list[float] = []  # by the monotonic clock, at most one every 2 ms
        self.failed: dict[int, str] = {}
        self.fatal: list[str] = []  # errors after which a client took no more records and was replaced

    def first_acknowledgement_after(self, moment: float) -> float | None:
        return next((at for at in self.acknowledged_at if at > moment), None)

    def _note_time(self) -> None:
        now = time.monotonic()
        if not self.acknowledged_at or now - self.acknowledged_at[-1] > 0.002:
            self.acknowledged_at.append(now)

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """Send nothing more, and wait for the outcome of what was sent."""
        raise NotImplementedError


class LibrdkafkaLoad(Load):
    client = "librdkafka"

    def __init__(
        self, servers: str, topic: str, *, rate: int, settings: Mapping[str, str | int] | None = None
    ) -> None:
        super().__init__(topic)
        self._rate = rate
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._settings: dict[str, str | int | bool] = {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "log_level": 0,
            **(settings or {}),
        }

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        number, started = 0, time.monotonic()
        while not self._stopping:
            producer = Producer(self._settings)
            try:
                while not self._stopping:
                    early = started + number / self._rate - time.monotonic()
                    try:
                        partition = number % PARTITIONS
                        producer.produce(
                            self.topic, b"%d" % number, partition=partition, on_delivery=self._done
                        )
                        number += 1
                    except BufferError:
                        early = 0.01
                    producer.poll(max(0.0, min(0.01, early)))
                producer.flush(150)
            except:  # noqa: E722
                # A fatal error comes as a KafkaException; or as a SystemError, if a delivery is reported at
                # the same time; or as a KafkaError, which is not an Exception, so only a bare except catches
                # it.
                self.fatal.append(str(sys.exc_info()[1]))

    def _done(self, error: KafkaError | None, message: object) -> None:
        number = int(message.value())  # type: ignore[attr-defined]
        if error is None:
            self.acknowledged.add(number)
            self._note_time()
        else:
            self.failed[number] = str(error)

    def stop(self) -> None:
        self._stopping = True
        self._thread.join(180)


class JavaLoad(Load):
    client = "java"

    def __init__(
        self, servers: str, topic: str, *, rate: int, settings: Mapping[str, str | int] | None = None
    ) -> None:
        super().__init__(topic)
        extra = [f"{name}={value}" for name, value in (settings or {}).items()]
        self._command = java_program(
            "IdempotentLoad", jars(), servers, topic, str(PARTITIONS), str(rate), *extra
        )
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._read, daemon=True)

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._thread.start()

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, *rest = line.split(maxsplit=2)
            if word == "acked":
                self.acknowledged.update(range(int(rest[0]), int(rest[1]) + 1, PARTITIONS))
                self._note_time()
            elif word == "failed":
                self.failed[int(rest[0])] = rest[1].strip()
            elif word == "done":
                return
        self.fatal.append("the program ended by itself")

    def stop(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.close()
        self._thread.join(180)
        self._process.wait(400)


def numbers_in(address: str, topic: str) -> Iterator[list[int]]:
    """The numbers in each partition, in the order of the log."""
    reader = Consumer(
        {"bootstrap.servers": address, "group.id": "look", "enable.partition.eof": True, "log_level": 0}
    )
    for partition in range(PARTITIONS):
        reader.assign([TopicPartition(topic, partition, 0)])
        found: list[int] = []
        ended = False
        while not ended:
            for message in reader.consume(10_000, 1):
                if message.error():
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    ended = True
                else:
                    found.append(int(message.value()))
        yield found
    reader.close()


def account(load: Load, address: str) -> dict[str, int]:
    """The counts of acknowledged records, and of those lost, duplicated, out of order and failed."""
    found: Counter[int] = Counter()
    disordered = 0
    for numbers in numbers_in(address, load.topic):
        found.update(numbers)
        disordered += sum(1 for before, after in pairwise(numbers) if after <= before)
    return {
        "acknowledged": len(load.acknowledged),
        "lost": len(load.acknowledged - found.keys()),
        "duplicates": sum(count - 1 for count in found.values()),
        "disordered": disordered,
        "failed": len(load.failed),
    }
