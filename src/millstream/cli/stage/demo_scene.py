"""The threads of the demo that produce payments and read alerts, and count both."""

from __future__ import annotations

import json
import threading
from collections import deque
from dataclasses import dataclass
from datetime import datetime

from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.consume import PartitionReader
from millstream.client.text.position import TopicPartition
from millstream.examples.example import Event
from millstream.examples.feed import Feed, now_ms
from millstream.examples.fraud.check import Alert
from millstream.examples.fraud.generate import PAYMENTS, Generator

ALERTS, TRUTH, REJECTED = "alerts", "payments.truth", "payments.rejected"


class Payments(Feed):
    """Sends payments as they happen, after their history, which is sent at once. Sends each planted fraud
    to a topic of its own.
    """

    generator: Generator

    def __init__(self, connection: Connection, *, seed: int, rate: float) -> None:
        super().__init__(connection, Generator(seed=seed, rate=rate, start_ms=now_ms()))
        self._told = 0

    @property
    def payments(self) -> int:
        return self.sent_to(PAYMENTS)

    def _produce(self, event: Event) -> None:
        super()._produce(event)
        for fraud in self.generator.planted[self._told :]:
            self._send(TRUTH, fraud.value(), fraud.card, fraud.start_ms)
            self._told += 1


@dataclass(frozen=True, slots=True)
class Seen:
    """An alert, and when it arrived in this process."""

    alert: Alert
    at_ms: int
    spent: float

    @property
    def latency_ms(self) -> int:
        return self.at_ms - self.alert.last_paid_ms


class Alerts(threading.Thread):
    """Reads the alerts as any consumer would, on its own thread."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(name="alerts", daemon=True)
        with Admin(connection) as admin:
            partitions = admin.topics()[ALERTS]
        self._reader = PartitionReader(
            connection, {TopicPartition(ALERTS, number): 0 for number in range(partitions)}
        )
        self._ended = threading.Event()
        self.seen: list[Seen] = []
        self.recent: deque[Seen] = deque(maxlen=8)  # the first alert of each card and rule
        self.cards: set[tuple[str, str]] = set()
        self.error: Exception | None = None

    def end(self) -> None:
        self._ended.set()
        self.join(5)

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                for message in self._reader.read(500, 0.1):
                    self._take(json.loads(message.value()))
            self._reader.close()
        except Exception as error:
            self.error = error

    def _take(self, row: dict[str, object]) -> None:
        paid = datetime.fromisoformat(str(row["last_paid"]).replace("Z", "+00:00"))
        alert = Alert(str(row["card"]), str(row["rule"]), round(paid.timestamp() * 1000))
        seen = Seen(alert, now_ms(), float(str(row["spent"])))
        self.seen.append(seen)
        if (alert.card, alert.rule) not in self.cards:
            self.cards.add((alert.card, alert.rule))
            self.recent.appendleft(seen)

    def latencies(self, since_ms: int) -> list[int]:
        """Sorted latencies of alerts on payments made since ``since_ms``, so without the backlog."""
        return sorted(seen.latency_ms for seen in list(self.seen) if seen.alert.last_paid_ms >= since_ms)


def percentile(ordered: list[int], share: float) -> int | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None
