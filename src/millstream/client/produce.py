"""Sending records: bounded memory, order kept, and a count of what arrived and what did not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from millstream.client.connect import Complaints, Connection, failure
from millstream.client.lines import Outgoing
from millstream.errors import MillstreamError, RequestFailed

Acks = Literal["0", "1", "all"]

# What waits in memory at most; a producer faster than the broker is made to wait.
_QUEUE_KBYTES = 32 * 1024
_QUEUE_RECORDS = 100_000


def send_one(connection: Connection, topic: str, record: Outgoing, timeout: float = 10.0) -> tuple[int, int]:
    """Send a record, synced to disk before this returns; the partition and the offset that it has now.

    After an error it is not there, but for one: a broker that went away may have it.
    """
    sender = Sender(connection, topic, timeout=timeout, reports=True)
    sender.send([record])
    if not sender.finish(timeout + 1):
        sender.abandon()
    if sender.first_failure is not None:
        raise sender.first_failure
    assert sender.last_place is not None, "every record is answered for"
    return sender.last_place


class Sender:
    """Records to one topic. ``send`` waits while the queue is full; ``finish`` waits for the answers.

    With ``acks=all`` (the default) it is an idempotent producer: retries neither double nor reorder.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        *,
        acks: Acks = "all",
        compression: str = "none",
        timeout: float = 30.0,
        reports: bool = False,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """``timeout``: seconds after which a record that could not be delivered has failed. With ``reports``
        it says where the last record is; that costs a call for each."""
        from confluent_kafka import Producer as Client

        self.connection = connection
        self.topic = topic
        self.sent = 0
        self.failed = 0
        self.first_failure: MillstreamError | None = None
        self.last_place: tuple[int, int] | None = None  # partition and offset; see ``reports``
        self._complaints = Complaints()
        self._producer: Any = connection.open(
            Client,
            connection.properties(
                {
                    "acks": acks,
                    "enable.idempotence": acks == "all",
                    "compression.type": compression,
                    # Keys go where Java's client and our own sinks send them.
                    "partitioner": "murmur2_random",
                    "linger.ms": 5,
                    "message.timeout.ms": round(timeout * 1000),
                    "queue.buffering.max.kbytes": _QUEUE_KBYTES,
                    "queue.buffering.max.messages": _QUEUE_RECORDS,
                    "delivery.report.only.error": not reports,
                    "error_cb": self._complaints,
                    **(properties or {}),
                }
            ),
        )

    @property
    def unanswered(self) -> int:
        """Records the broker has not answered for yet."""
        return len(self._producer)

    @property
    def delivered(self) -> int:
        return self.sent - self.failed - self.unanswered

    def send(self, records: Sequence[Outgoing], ended: Callable[[], bool] = bool) -> None:
        """Queue records, waiting for room. Raises if one can't be sent: too large, no such partition.

        While there is no room it gives up on the rest once a record has failed (they count as failed too) or
        ``ended`` says so (they don't: somebody wants to stop here).
        """
        from confluent_kafka import KafkaException

        produce, topic, answered = self._producer.produce, self.topic, self._answered
        for at, (value, key, headers, partition, timestamp) in enumerate(records):
            while True:
                try:
                    produce(
                        topic,
                        value,
                        key,
                        partition,
                        on_delivery=answered,
                        timestamp=timestamp,
                        headers=headers,
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
                    if self.first_failure is not None:
                        self.sent += len(records) - at
                        self.failed += len(records) - at
                        return
                    if ended():
                        return
                except KafkaException as error:
                    size = len(value or b"") + len(key or b"")
                    raise self._refused(error.args[0], size, partition) from None
            self.sent += 1
        self._producer.poll(0)

    def failing(self) -> bool:
        """Whether a record has failed; also where failures are noticed while nothing is being sent."""
        self._producer.poll(0)
        return self.first_failure is not None

    def finish(self, wait: float) -> bool:
        """Wait for answers, at most ``wait`` seconds; True when none is outstanding."""
        return bool(self._producer.flush(wait) == 0)

    def abandon(self) -> None:
        """Give up on what is unanswered; it counts as failed (though some of it may still have arrived)."""
        self._producer.purge()
        self._producer.flush(5)

    def _answered(self, error: Any, message: Any) -> None:
        if error is None:
            self.last_place = (message.partition(), message.offset())
            return
        self.failed += 1
        if self.first_failure is None:
            size = len(message.value() or b"") + len(message.key() or b"")
            self.first_failure = self._refused(error, size, message.partition())

    def _refused(self, error: Any, size: int, partition: int) -> MillstreamError:
        """A record's error, whether librdkafka or the broker had it: with what to do about it."""
        match error.name():
            case "MSG_SIZE_TOO_LARGE" | "_MSG_SIZE_TOO_LARGE":
                reason = (
                    f"a record of {size:,} bytes is too large; allow it at the topic with max.message.bytes, "
                    "and here with -X message.max.bytes=..."
                )
            case "_UNKNOWN_PARTITION":
                reason = f"topic {self.topic!r} has no partition {partition}"
            case _:
                return failure(error, self.connection, f"topic {self.topic!r}", complaints=self._complaints)
        return RequestFailed(error.code(), error.name(), reason)
