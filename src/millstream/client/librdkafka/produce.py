"""Send records with bounded memory and in order, and count which were delivered and which failed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from millstream.client.connect import Connection
from millstream.client.errors import Complaints, failure
from millstream.client.librdkafka.admin import Admin
from millstream.client.text.lines import Outgoing
from millstream.core.errors import InputError, MillstreamError, RequestFailed

Acks = Literal["0", "1", "all"]

# The most that waits in memory; a producer faster than the broker has to wait.
_QUEUE_KBYTES = 32 * 1024
_QUEUE_RECORDS = 100_000
# A record must fit into that queue. Otherwise the topic sets the limit: librdkafka by itself would refuse
# more than 1,000,000 bytes.
_LARGEST_RECORD = _QUEUE_KBYTES * 1024 - 64 * 1024
BATCH_BYTES = 1_000_000  # of several records; a larger record is sent alone


def batch_bytes(admin: Admin, topic: str) -> int:
    """The largest batch to send to a topic. It must not exceed its ``max.message.bytes``, or the broker
    would refuse batches of records that are small enough one by one."""
    try:
        settings = {setting.name: setting.value for setting in admin.topic_config(topic)}
    except RequestFailed:
        return BATCH_BYTES  # the user may be allowed to write, but not to read settings
    largest = int(settings.get("max.message.bytes") or BATCH_BYTES)
    return max(1, min(BATCH_BYTES, largest - 100))  # leaves room for the batch's header


def send_one(connection: Connection, topic: str, record: Outgoing, timeout: float = 10.0) -> tuple[int, int]:
    """Send a record, synced to disk before this returns. Returns its partition and offset.

    After an error the record was not written, with one exception: a broker that went away may have it.
    """
    sender = RecordSender(connection, topic, timeout=timeout, reports=True)
    sender.send([record])
    if not sender.finish(timeout + 1):
        sender.abandon()
    if sender.first_failure is not None:
        raise sender.first_failure
    assert sender.last_place is not None, "every record is answered for"
    return sender.last_place


class RecordSender:
    """Sends records to one topic. ``send`` waits while the queue is full; ``finish`` waits for the responses.

    With ``acks=all`` (the default) it is an idempotent producer: retries neither duplicate nor reorder.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        *,
        acks: Acks = "all",
        compression: str = "none",
        timeout: float = 30.0,
        batch_bytes: int = BATCH_BYTES,
        reports: bool = False,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """``timeout``: seconds after which an undelivered record counts as failed. ``batch_bytes``: the
        most that is sent as one batch; a topic with a smaller ``max.message.bytes`` refuses it.
        ``reports``: track where the last record is, which costs a call for each record."""
        from confluent_kafka import Producer as Client

        self.connection = connection
        self.topic = topic
        self.sent = 0
        self.failed = 0
        self.first_failure: MillstreamError | None = None
        self.last_place: tuple[int, int] | None = None  # partition and offset; see ``reports``
        self._complaints = Complaints()
        self._batch_bytes = batch_bytes
        self._producer: Any = connection.open(
            Client,
            connection.properties(
                {
                    "acks": acks,
                    "enable.idempotence": acks == "all",
                    "compression.type": compression,
                    # Keys go to the same partitions as with Java's client and millstream's own sinks.
                    "partitioner": "murmur2_random",
                    "linger.ms": 5,
                    "batch.size": batch_bytes,
                    "message.max.bytes": _LARGEST_RECORD,
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
        """Records that the broker has not acknowledged yet."""
        return len(self._producer)

    @property
    def delivered(self) -> int:
        return self.sent - self.failed - self.unanswered

    def send(
        self,
        records: Sequence[Outgoing],
        ended: Callable[[], bool] = bool,
        *,
        lines: Sequence[int] | None = None,
    ) -> None:
        """Queue records, waiting for room. Raises if one can't be sent: too large, no such partition.
        ``lines`` are the input lines that the records come from; errors name them.

        While there is no room, it gives up on the rest once a record has failed (the rest count as failed
        too) or ``ended`` returns True (they don't: the caller wants to stop here).
        """
        from confluent_kafka import KafkaException

        produce, topic, answered = self._producer.produce, self.topic, self._answered
        for at, (value, key, headers, partition, timestamp) in enumerate(records):
            on_delivery: Any = answered
            if lines is not None and _size(value, key, headers) > self._batch_bytes // 2:
                on_delivery = partial(answered, line=lines[at])  # the broker may find it too large
            while True:
                try:
                    produce(
                        topic,
                        value,
                        key,
                        partition,
                        on_delivery=on_delivery,
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
                    line = 0 if lines is None else lines[at]
                    size = _size(value, key, headers)
                    raise self._refused(error.args[0], size, partition, line, here=True) from None
            self.sent += 1
        self._producer.poll(0)

    def failing(self) -> bool:
        """True if a record has failed. Also notices failures while nothing is being sent."""
        self._producer.poll(0)
        return self.first_failure is not None

    def finish(self, wait: float) -> bool:
        """Wait for responses, at most ``wait`` seconds. True if none is outstanding."""
        return bool(self._producer.flush(wait) == 0)

    def abandon(self) -> None:
        """Give up on unacknowledged records. They count as failed, though some may still have arrived."""
        self._producer.purge()
        self._producer.flush(5)

    def _answered(self, error: Any, message: Any, line: int = 0) -> None:
        if error is None:
            self.last_place = (message.partition(), message.offset())
            return
        self.failed += 1
        if self.first_failure is None:
            size = _size(message.value(), message.key(), message.headers())
            self.first_failure = self._refused(error, size, message.partition(), line)

    def _refused(
        self, error: Any, size: int, partition: int, line: int, *, here: bool = False
    ) -> MillstreamError:
        """A record's error, with what to do about it. ``here``: librdkafka refused the record and no broker
        has seen it; it uses the broker's error names even so."""
        match error.name():
            case "MSG_SIZE_TOO_LARGE" if not here:
                reason = (
                    f"a record of {size:,} bytes is larger than topic {self.topic!r} accepts;"
                    " raise the limit with"
                    f" `millstream topic alter {self.topic} -c max.message.bytes={_room_for(size)}`"
                )
            case "MSG_SIZE_TOO_LARGE":
                reason = (
                    f"a record of {size:,} bytes is larger than this client sends; raise the limit with"
                    f" -X message.max.bytes={_room_for(size)}"
                    f" -X queue.buffering.max.kbytes={2 * _room_for(size) // 1000}"
                )
            case "_UNKNOWN_PARTITION":
                reason = f"topic {self.topic!r} has no partition {partition}"
            case _:
                return failure(error, self.connection, f"topic {self.topic!r}", complaints=self._complaints)
        return InputError(line, reason) if line else RequestFailed(error.code(), error.name(), reason)


def send_all(
    sender: RecordSender,
    batches: Iterable[tuple[Sequence[Outgoing], Sequence[int] | None]],
    stopping: Callable[[], bool],
    sent: Callable[[], None] = lambda: None,
) -> MillstreamError | None:
    """Send batches of records, each with the input lines of its records. Ends early if ``stopping`` or if a
    record fails. ``sent`` is called after each batch. Returns the error that ended the input, if one did."""
    try:
        for records, lines in batches:
            sender.send(records, stopping, lines=lines)
            sent()
            if stopping() or sender.failing():
                break
    except MillstreamError as error:
        return error
    return None


def _size(value: bytes | None, key: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None) -> int:
    size = len(value or b"") + len(key or b"")
    if headers:
        size += sum(len(name.encode()) + len(content or b"") for name, content in headers)
    return size


def _room_for(size: int) -> int:
    """A round limit that a record of this size fits into, with its overhead."""
    step = int(10 ** max(3, len(str(size)) - 2))
    return (size + 1000) // step * step + step
