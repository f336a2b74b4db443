"""Transactions for plain Python: records read, records written and the reader's offsets, all or nothing.

    from millstream import client

    with client.transaction("127.0.0.1:9092", "billing-1") as txn:      # one transaction
        txn.send("invoices", b"...", key=b"42")
        txn.send("audit", b"...")

    with client.Transactions(                                           # one for every batch that is read
        "127.0.0.1:9092", "enricher-1", topics=["payments"], group="enricher"
    ) as batches:
        for txn in batches:
            for record in txn.records:
                txn.send("enriched", enrich(record.value()), key=record.key())

The block of a transaction commits at its end. An exception aborts it, and what was read is read again. In
the loop, asking for the next batch commits the previous one. Leaving the loop in any other way, by an
exception or a break, aborts; ``stop`` ends the loop cleanly. A batch may have its own block, to continue
after a failure:

        for txn in batches:
            try:
                with txn:
                    ...
            except TransactionAborted as error:
                log.warning("%s; reading it again", error)

The name (``billing-1``) is the transactional id. Each running process has its own and keeps it across
restarts, so that a predecessor that hangs is fenced instead of finishing later. Readers that ask for
read_committed (librdkafka's default; Java's client must be told) never see a record of an aborted
transaction.

It uses confluent-kafka, so it works with any Kafka. One thread uses one ``Transactions``.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from millstream.client.connect import Connection, to_librdkafka
from millstream.client.errors import Complaints, failure
from millstream.client.librdkafka.batches import BLINK, GroupReader
from millstream.client.text.position import TopicPartition
from millstream.core.errors import (
    BrokerUnavailable,
    ConfigError,
    MillstreamError,
    ProducerFenced,
    TransactionAborted,
)

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

log = logging.getLogger(__name__)

Headers = Sequence[tuple[str, bytes | str | None]]
State = Literal["open", "committed", "aborted", "in doubt"]

# The group has moved on without this member: its partitions, and these records, now belong to another.
_REBALANCED = (
    "ILLEGAL_GENERATION",
    "UNKNOWN_MEMBER_ID",
    "REBALANCE_IN_PROGRESS",
    "FENCED_MEMBER_EPOCH",
    "STALE_MEMBER_EPOCH",
)


class Transactions:
    """One transactional producer, and the group that it reads as, if it reads. Connected within its block."""

    def __init__(
        self,
        address: str | Connection,
        transactional_id: str,
        *,
        topics: Sequence[str] = (),
        group: str | None = None,
        from_start: bool = True,
        most: int = 1000,
        linger: float = 0.05,
        wait: float | None = None,
        timeout: float = 60.0,
        consumer: Mapping[str, Any] | None = None,
        producer: Mapping[str, Any] | None = None,
    ) -> None:
        """
        ``topics``, ``group``: what to read (names, or patterns that begin with ``^``), and as which group.
        ``from_start``: begin partitions that the group has not read yet at their start, not at their end.
        ``most``, ``linger``: a batch has at most so many records, gathered for so many seconds.
        ``wait``: end the loop after so many seconds without a record; None waits forever.
        ``timeout``: seconds after which the broker aborts a transaction that was not ended.
        ``consumer``, ``producer``: further librdkafka properties.
        """
        if not transactional_id:
            raise ConfigError("a transaction needs a transactional id, such as 'billing-1'")
        if bool(topics) != bool(group):
            raise ConfigError("to read, give both topics and group; to write only, neither")
        self.connection = Connection.of(address) if isinstance(address, str) else address
        self.transactional_id = transactional_id
        self.timeout = timeout
        self._wait = wait
        self._stopped = False
        self._current: Transaction | None = None
        self._who: Any = None
        self._complaints = Complaints()
        self._refused: list[tuple[KafkaError, str]] = []
        self._producer: Any = None
        self._reader: GroupReader | None = None
        self._producing = {
            "transactional.id": transactional_id,
            "transaction.timeout.ms": round(timeout * 1000),
            # Keys go to the same partitions as with Java's client and millstream's own sinks.
            "partitioner": "murmur2_random",
            "delivery.report.only.error": True,
            "error_cb": self._complaints,
            **(producer or {}),
        }
        self._open_reader: Callable[[], GroupReader] | None = None
        if group:
            self._open_reader = partial(
                GroupReader,
                self.connection,
                group,
                topics,
                from_start=from_start,
                most=most,
                linger=linger,
                properties=consumer,
            )

    def __enter__(self) -> Self:
        from confluent_kafka import Producer

        self.connection.check()
        self._producer = self.connection.open(Producer, self.connection.properties(self._producing))
        self._patiently(self._producer.init_transactions, "can't begin")
        if self._open_reader is not None:
            self._reader = self._open_reader()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._abort_current()
        except MillstreamError as problem:
            log.warning("while stopping: %s", problem)  # the broker aborts it after its timeout
        finally:
            if self._reader is not None:
                self._reader.close()
            self._reader = self._producer = None

    def stop(self) -> None:
        """End the loop once the current transaction is committed. May be called from a signal handler."""
        self._stopped = True

    def begin(self) -> Transaction:
        """A transaction that reads nothing: ``with transactions.begin() as txn``."""
        return self._begin([])

    def __iter__(self) -> Iterator[Transaction]:
        if self._reader is None:
            raise ConfigError(
                "there is nothing to read: give topics and group, and use it in a with statement"
            )
        self._abort_current()
        while records := self._reader.read(ended=lambda: self._stopped, wait=self._wait):
            txn = self._begin(records)
            yield txn
            if txn.state == "open":
                try:
                    txn.commit()
                except TransactionAborted as aborted:
                    if not aborted.rebalanced:
                        raise
                    log.info("%s; continuing with the partitions that are assigned now", aborted)

    # What a transaction needs from its producer ------------------------------------------------------

    def _begin(self, records: list[Message]) -> Transaction:
        from confluent_kafka import KafkaException

        if self._producer is None:
            raise ConfigError("not connected: use it in a with statement")
        if self._current is not None and self._current.state == "open":
            raise ConfigError("the previous transaction is still open: end it before the next one begins")
        self._refused.clear()
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise self._failure(error.args[0], "can't begin a transaction") from None
        # The identity of the member that read, as of now. At commit time, a member that was removed from its
        # group in the meantime would have none, and brokers accept offsets from a client without one.
        self._who = self._reader.metadata() if self._reader is not None and records else None
        self._current = Transaction(self, records)
        return self._current

    def _abort_current(self) -> None:
        if self._current is not None and self._current.state == "open":
            self._current.abort()

    def _send(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        partition: int,
        timestamp: int,
        headers: Headers | None,
    ) -> None:
        from confluent_kafka import KafkaException

        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=self._not_delivered,
                    timestamp=timestamp,
                    headers=headers,
                )
                self._poll(0)
                return
            except BufferError:
                self._poll(BLINK)
            except KafkaException as error:
                raise self._failure(error.args[0], f"can't send to {topic!r}") from None

    def _poll(self, seconds: float) -> None:
        """Collect delivery reports and librdkafka's complaints. A fatal error is raised here too, but the
        next call that matters raises it again and handles it."""
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException):
            self._producer.poll(seconds)

    def _not_delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and error.name() not in ("_PURGE_QUEUE", "_PURGE_INFLIGHT"):
            self._refused.append((error, f"{message.topic()}[{message.partition()}]"))

    def _commit(self, records: list[Message]) -> None:
        """Commit, with the offsets of what was read. Raises TransactionAborted once it is rolled back."""
        from confluent_kafka import KafkaException

        try:
            if records:
                offsets = _offsets_after(records)
                self._patiently(
                    lambda seconds: self._producer.send_offsets_to_transaction(offsets, self._who, seconds)
                )
            self._patiently(self._producer.commit_transaction)
        except KafkaException as error:
            problem = error.args[0]
            if not problem.txn_requires_abort():
                raise self._failure(problem, "can't commit") from None
            reason, where = self._refused[0] if self._refused else (problem, "")
            self._abort(records)
            raise TransactionAborted(
                f"the transaction of {self.transactional_id!r} was rolled back:"
                f" {failure(reason, self.connection, where)}",
                rebalanced=problem.name() in _REBALANCED,
            ) from None

    def _abort(self, records: list[Message]) -> None:
        self._patiently(self._producer.abort_transaction, "can't abort")
        if self._reader is not None and records:
            self._reader.rewind(records)

    def _patiently(self, call: Callable[[float], None], what: str = "") -> None:
        """Call until it succeeds, as long as librdkafka says that it may and the broker would wait.

        The steps are short, so that Ctrl-C is noticed between them. Without ``what``, the caller handles
        other errors."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + self.timeout
        while True:
            try:
                return call(1.0)
            except KafkaException as error:
                problem = error.args[0]
                self._poll(0)
                late = time.monotonic() > deadline or self._complaints.final
                if problem.retriable() and not late:
                    continue
                if what:
                    raise self._failure(problem, what) from None
                if problem.retriable():
                    raise BrokerUnavailable(
                        f"no answer to the commit of {self.transactional_id!r} within {self.timeout:g} s: it"
                        " is committed or rolled back, as a whole; starting again with that id settles it"
                    ) from None
                raise

    def _failure(self, error: KafkaError, what: str) -> MillstreamError:
        if error.name() in _FENCED:
            return ProducerFenced(
                90,
                "PRODUCER_FENCED",
                f"{what}: another producer has taken over the transactional id {self.transactional_id!r}, or"
                f" the transaction was open for longer than its timeout ({self.timeout:g} s) and was aborted",
            )
        return failure(error, self.connection, what, complaints=self._complaints)


_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")


class Transaction:
    """Records read and written together. ``records`` are confluent-kafka messages, none if nothing is read.

    A ``with txn`` block ends it: with ``commit``, or with ``abort`` if there is an exception. Without one,
    the surrounding loop or block ends it.
    """

    def __init__(self, owner: Transactions, records: list[Message]) -> None:
        self._owner = owner
        self.records = records
        self.state: State = "open"

    def send(
        self,
        topic: str,
        value: bytes | str | None = None,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        partition: int = -1,
        timestamp_ms: int = 0,
    ) -> None:
        """Write a record. Partition -1 lets the key decide; timestamp 0 is the current time. Waits while
        the queue is full. A record that the broker refuses fails the commit."""
        self._check_open()
        self._owner._send(topic, value, key, partition, timestamp_ms, headers)

    def commit(self) -> None:
        """Make everything visible, and count what was read as read. Raises TransactionAborted if that was
        not possible and it was rolled back instead; what was read is then read again."""
        self._check_open()
        self.state = "in doubt"
        try:
            self._owner._commit(self.records)
        except TransactionAborted:
            self.state = "aborted"
            raise
        self.state = "committed"

    def abort(self) -> None:
        """Roll back: nobody sees what was written, and what was read is read again."""
        self._check_open()
        self.state = "aborted"
        self._owner._abort(self.records)

    def _check_open(self) -> None:
        if self.state != "open":
            raise ConfigError(f"this transaction has ended already: {self.state}")

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.state != "open":
            return
        if kind is None:
            self.commit()
            return
        try:
            self.abort()
        except MillstreamError as problem:
            # The broker aborts it after its timeout. The exception that led here is the one to report.
            log.warning("while aborting: %s", problem)


@contextlib.contextmanager
def transaction(
    address: str | Connection,
    transactional_id: str,
    *,
    topics: Sequence[str] = (),
    group: str | None = None,
    most: int = 1000,
    wait: float | None = 10.0,
    timeout: float = 60.0,
) -> Iterator[Transaction]:
    """One transaction, as long as the block. With ``topics`` and ``group`` it has one batch of records to
    process, or none if nothing comes for ``wait`` seconds. It connects every time: for many transactions
    use ``Transactions``, which also explains the options."""
    with Transactions(
        address, transactional_id, topics=topics, group=group, most=most, wait=wait, timeout=timeout
    ) as owner:
        read = next(iter(owner), None) if topics else None
        with owner.begin() if read is None else read as txn:
            yield txn


def _offsets_after(records: list[Message]) -> list[Any]:
    last = {TopicPartition(record.topic(), record.partition()): record.offset() for record in records}
    return [to_librdkafka(place, offset + 1) for place, offset in last.items()]
