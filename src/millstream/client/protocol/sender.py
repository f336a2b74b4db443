"""Send encoded batches to the leaders of their partitions: several in flight, each appended once.

Theory: an idempotent producer's batches carry sequence numbers, and a broker accepts them only in order and
only once. So whatever goes wrong on the way (a lost connection, another leader, a response that never
came), everything that is not acknowledged is sent again in its old order, and a batch that had arrived
after all is recognised as a duplicate. A broker remembers the last five batches of a producer in a
partition, so no more than that are in flight.

Under a given ``producer``, batches are part of its transaction, which its owner begins and ends. The broker
must then never have seen batches of this producer and epoch in these partitions before, and no one else may
send to them: sequence numbers start at 0, and a batch with a known number is taken for a duplicate and
dropped. Such a producer is never replaced by another: if the broker no longer knows it, that is an error
for the owner of the transaction.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from typing import Any

from millstream.client.errors import is_retriable, refused
from millstream.client.protocol.cluster import Cluster
from millstream.client.protocol.link import Link, ProducedPartition
from millstream.client.protocol.transaction_requests import ProducerSession, TransactionClient, fenced
from millstream.client.text.position import TopicPartition
from millstream.core.errors import ProtocolError, RequestFailed
from millstream.core.kafka_errors import (
    DUPLICATE_SEQUENCE_NUMBER,
    INVALID_PRODUCER_EPOCH,
    MESSAGE_TOO_LARGE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    UNKNOWN_PRODUCER_ID,
)
from millstream.records import batch

log = logging.getLogger(__name__)

MAX_IN_FLIGHT = 5

_PRODUCER_FORGOTTEN = (OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, UNKNOWN_PRODUCER_ID)

_PRODUCER_AT = 43  # producer id, epoch and sequence number in a batch's header
_PRODUCER_END = 57

Batch = tuple[TopicPartition, bytearray]


class BatchSender:
    """Sends batches under one producer id, which it stamps into them. It can't be used after an error.

    Without idempotence a batch that is sent again may be appended twice, or after later ones. ``producer``
    is the one to send under, in its transaction; batches must then be marked as transactional.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        acks: int = -1,
        timeout_ms: int = 30_000,
        idempotent: bool = True,
        producer: ProducerSession | None = None,
    ) -> None:
        if acks not in (1, -1) or (idempotent and acks != -1):
            raise ValueError("acks is all (-1) for an idempotent producer, and 1 or all for another")
        if producer is not None and not idempotent:
            raise ValueError("a transactional producer is idempotent")
        self._cluster = cluster
        self._idempotent = idempotent
        self._given = producer
        self._produce: dict[str, Any] = {"acks": acks, "timeout_ms": timeout_ms}
        self._producer: tuple[int, int] | None = None
        if producer is not None:
            self._producer = producer.id, producer.epoch
            self._produce["transactional_id"] = producer.transactional_id
            self._produce["adds"] = producer.version >= 2
        elif idempotent:
            self._producer = cluster.new_producer()
        self._sequences: dict[TopicPartition, int] = {}
        self._in_flight: dict[Link, deque[dict[TopicPartition, bytearray]]] = {}
        self.failed = False

    def send(self, batches: Iterable[Batch]) -> None:
        """Send batches; a partition may have several, which keep their order. Returns when they are on
        their way: ``flush`` waits until they are acknowledged. From here on the sender owns the buffers."""
        try:
            if self._given is not None and self._given.version < 2:
                batches = list(batches)
                self._add({partition for partition, _ in batches})
            waiting: dict[TopicPartition, bytearray] = {}
            for partition, data in batches:
                if partition in waiting:
                    self._send(waiting)
                    waiting = {}
                self._stamp(partition, data)
                waiting[partition] = data
            if waiting:
                self._send(waiting)
        except BaseException:
            self.failed = True
            raise

    def close(self) -> None:
        """Drop the connections, with everything in flight on them."""
        self.failed = True
        self._cluster.close()

    def flush(self) -> None:
        """Wait until everything sent is acknowledged."""
        try:
            for link in list(self._in_flight):
                while self._in_flight.get(link):
                    self._receive(link)
        except BaseException:
            self.failed = True
            raise

    def _add(self, partitions: set[TopicPartition]) -> None:
        """Transactions v1: the coordinator must know of a partition before the first batch for it."""
        assert self._given is not None
        new = partitions - self._sequences.keys()
        if new:
            self.flush()  # the coordinator may be a leader that still owes responses
            TransactionClient(self._cluster).add_partitions(self._given, new)

    def _stamp(self, partition: TopicPartition, data: bytearray) -> None:
        if self._producer is None:
            return
        count = batch.read_header(data).record_count
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = (sequence + count) & 0x7FFF_FFFF
        producer, epoch = self._producer
        data[_PRODUCER_AT:_PRODUCER_END] = (
            producer.to_bytes(8, "big", signed=True)
            + epoch.to_bytes(2, "big", signed=True)
            + sequence.to_bytes(4, "big")
        )
        batch.seal(data, 0, len(data))

    def _send(self, batches: dict[TopicPartition, bytearray]) -> None:
        try:
            grouped = self._cluster.by_leader(list(batches))
        except (OSError, RequestFailed) as problem:
            return self._recover(problem, list(batches.items()))
        for link, partitions in grouped.items():
            part = {partition: batches.pop(partition) for partition in partitions}
            window = self._in_flight.setdefault(link, deque())
            while len(window) >= MAX_IN_FLIGHT:
                self._receive(link)
                window = self._in_flight.setdefault(link, deque())
            try:
                link.send_produce(part, **self._produce)
            except OSError as problem:
                return self._recover(problem, [*part.items(), *batches.items()])
            window.append(part)
        return None

    def _receive(self, link: Link) -> None:
        window = self._in_flight[link]
        try:
            answers = link.receive_produce()
        except OSError as problem:
            return self._recover(problem, [])
        part = window.popleft()
        left, problem_seen = self._settle(part, answers)
        if left and problem_seen is None:
            raise ProtocolError(f"{link.address} did not report the outcome of all batches")
        if problem_seen is not None:
            window.appendleft(left)
            self._recover(problem_seen, [])
        elif not window:
            del self._in_flight[link]
        return None

    def _settle(
        self, part: dict[TopicPartition, bytearray], answers: list[ProducedPartition]
    ) -> tuple[dict[TopicPartition, bytearray], RequestFailed | None]:
        """What a response leaves to be sent again, and why. Raises if sending again can't help."""
        left = dict(part)
        seen: RequestFailed | None = None
        for answer in answers:
            partition = TopicPartition(answer.topic, answer.partition)
            if answer.code in (0, DUPLICATE_SEQUENCE_NUMBER):
                left.pop(partition, None)
                continue
            problem = _refusal(answer, len(part.get(partition, b"")))
            if not is_retriable(answer.code) and answer.code not in _PRODUCER_FORGOTTEN:
                raise problem
            seen = seen or problem
        return left, seen

    def _recover(self, problem: OSError | RequestFailed, unsent: list[Batch]) -> None:
        """Send everything that is not acknowledged again, one by one, and then what was not yet sent."""
        log.info("sending again after: %s", problem)
        pending = self._take_back() + unsent
        renewed = False
        while pending:
            partition, data = pending[0]

            def once(partition: TopicPartition = partition, data: bytearray = data) -> int:
                link = self._cluster.leader(partition)
                link.send_produce({partition: data}, **self._produce)
                left, refusal = self._settle({partition: data}, link.receive_produce())
                if refusal is not None and refusal.code in _PRODUCER_FORGOTTEN:
                    return refusal.code
                if refusal is not None:
                    raise refusal
                if left:
                    raise ProtocolError(
                        f"{link.address} did not report the outcome of a batch for {partition}"
                    )
                return 0

            code = self._cluster.patiently(f"sending to {partition}", once)
            if code == 0:
                pending.pop(0)
                continue
            # Refused for good under this producer id, so it is not in the log: the broker has forgotten the
            # producer (expired, or data was lost). So it is safe to send it under a new id.
            if renewed or not self._idempotent or self._given is not None:
                raise fenced(code, f"sending to {partition}")
            renewed = True
            self._renew(pending)

    def _take_back(self) -> list[Batch]:
        """Everything in flight, oldest first in each partition. Closes the links to drop late responses."""
        pending: list[Batch] = []
        for link, window in self._in_flight.items():
            self._cluster.drop(link)
            for part in window:
                pending += part.items()
        self._in_flight.clear()
        return pending

    def _renew(self, pending: list[Batch]) -> None:
        self._producer = self._cluster.new_producer()
        self._sequences.clear()
        for partition, data in pending:
            self._stamp(partition, data)


def _refusal(answer: ProducedPartition, size: int) -> RequestFailed:
    what = f"sending to {answer.topic}[{answer.partition}]"
    if answer.code == MESSAGE_TOO_LARGE:
        return refused(
            answer.code,
            what,
            f"a batch of {size} bytes is larger than the topic takes: raise the topic's max.message.bytes; if"
            " the batch holds several records, smaller batches help too (Spark: option kafka.batch.size)",
        )
    return fenced(answer.code, what, answer.message)
