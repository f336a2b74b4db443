"""Two-phase commit (KIP-939): write a transaction now and decide it later, together with another system.

    from millstream import client

    with client.TwoPhase("127.0.0.1:9092", "order-7") as txn:
        txn.send("orders", b"...")
        token = txn.prepare()       # its records are safe in the log, and nobody sees them
    ...                             # save str(token); prepare the other system; decide, and save the decision
    client.commit_prepared("127.0.0.1:9092", token)     # or abort_prepared: from any process, after any crash

A prepared transaction has no timeout. It waits for its decision across restarts of this program and of the
broker, and meanwhile holds back readers of committed records behind it. So a program saves the token before
it continues, and looks for undecided transactions when it starts (``list_prepared``). Deciding twice is
harmless; a second, different decision is an error.

Preparing is not a request: a transaction is prepared once its records are acknowledged. The broker can't
tell a prepared transaction from one whose program died while writing. Nobody has a token of the latter, so
it is aborted.

Theory of the token: records carry the producer id and the epoch they were written under. To decide, a
process takes over the transactional id while keeping the transaction (InitProducerId with KeepPreparedTxn),
and learns the id and epoch of what is open. Only if they are the token's is it the right transaction. The
logs are checked before that, because taking over the id fences any program that uses it for a later
transaction.

Theory of "decided before": taking over raises the epoch by one, and so does ending (transactions v2). A
process that finds the id already taken over ends the transaction as that producer, without taking over
again. So the transaction of a token has ended if the id is exactly two epochs further. At any other epoch,
the coordinator remembers a later transaction, which says nothing about this one.
"""

from __future__ import annotations

import contextlib
import enum
import random
import time
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple, Self

from millstream.client.connect import Connection
from millstream.client.insight.open_transactions import OpenTransactions, TransactionInfo
from millstream.client.protocol.cluster import Cluster
from millstream.client.protocol.sender import BatchSender
from millstream.client.protocol.transaction_requests import ProducerSession, TransactionClient
from millstream.client.text.position import TopicPartition
from millstream.client.transaction import Headers
from millstream.core.clock import SystemClock
from millstream.core.errors import ConfigError, ProducerFenced, RequestFailed, TransactionDecided
from millstream.core.kafka_errors import INVALID_TXN_STATE, TRANSACTIONAL_ID_NOT_FOUND
from millstream.records.build import Record, build_batch
from millstream.records.murmur2 import partition_of

_TIMEOUT_MS = 60_000  # every InitProducerId needs one; with two phases it has no meaning
_BATCH_BYTES = 256 * 1024
_OVERHEAD = 32  # of a record besides key, value and headers; approximate


class Token(NamedTuple):
    """Identifies a prepared transaction. ``str(token)`` is the form to save."""

    transactional_id: str
    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.transactional_id}:{self.producer_id}:{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> Token:
        parts = text.strip().rsplit(":", 2)
        if len(parts) != 3 or not parts[0] or not (parts[1].isdecimal() and parts[2].isdecimal()):
            raise ConfigError(f"{text!r} is not a token of a prepared transaction, such as 'order-7:4711:3'")
        return cls(parts[0], int(parts[1]), int(parts[2]))


class Outcome(enum.Enum):
    """The result of a decision."""

    COMMITTED = "committed the transaction of {}"
    ABORTED = "aborted the transaction of {}"
    COMMITTED_BEFORE = "the transaction of {} was committed before; there is nothing to do"
    ABORTED_BEFORE = "the transaction of {} was aborted before; there is nothing to do"

    def sentence(self, token: Token) -> str:
        return self.value.format(token.transactional_id)


class TwoPhase:
    """One transaction to prepare. Its block writes the records; a block that ends unprepared aborts them."""

    def __init__(self, address: str | Connection, transactional_id: str) -> None:
        if not transactional_id:
            raise ConfigError("a transaction needs a transactional id, such as 'order-7'")
        self.connection = Connection.of(address) if isinstance(address, str) else address
        self.transactional_id = transactional_id
        self._cluster = Cluster(self.connection)
        self._coordinator = TransactionClient(self._cluster)
        self._producer: ProducerSession | None = None
        self._sender: BatchSender | None = None
        self._partitions: dict[str, int] = {}
        self._waiting: dict[TopicPartition, list[Record]] = {}
        self._waiting_bytes: dict[TopicPartition, int] = {}
        self._token: Token | None = None

    def __enter__(self) -> Self:
        self.connection.check()
        info = _described(self._cluster, self.transactional_id)
        token = None if info is None or not (info.unfinished and info.two_phase) else token_of(info)
        if token is None:
            producer = self._coordinator.init(
                self.transactional_id, _TIMEOUT_MS, enable_2pc=True, keep_prepared=True
            )
            token = None if producer.ongoing is None else Token(self.transactional_id, *producer.ongoing)
        if token is not None:
            self._cluster.close()
            raise ConfigError(
                f"{self.transactional_id!r} has a transaction open that was prepared, or whose program died:"
                f" decide it first, with commit_prepared or abort_prepared and the token {token}"
            )
        self._producer = producer
        self._sender = BatchSender(self._cluster, producer=producer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._token is None and self._producer is not None:
                self._end(commit=False)
        except Exception:
            if kind is None:
                raise
        finally:
            self._cluster.close()

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
        """Write a record. Partition -1 lets the key decide; timestamp 0 is the current time."""
        if self._sender is None or self._token is not None:
            raise ConfigError("records are written within the block, and before prepare()")
        record = Record(
            _bytes(key),
            _bytes(value),
            tuple((name, _bytes(content)) for name, content in headers or ()),
            timestamp_ms or SystemClock().now_ms(),
        )
        place = TopicPartition(topic, self._choose(topic, record.key, partition))
        self._waiting.setdefault(place, []).append(record)
        size = len(record.key or b"") + len(record.value or b"") + _OVERHEAD
        size += sum(len(name) + len(content or b"") for name, content in record.headers)
        self._waiting_bytes[place] = self._waiting_bytes.get(place, 0) + size
        if self._waiting_bytes[place] >= _BATCH_BYTES:
            self._send_batch(place)

    def prepare(self) -> Token:
        """Wait until every record is safe in the log. Returns the token that decides about them; a second
        call returns the same token."""
        if self._sender is None or self._producer is None:
            raise ConfigError("there is nothing to prepare outside the block")
        if self._token is None:
            for place in list(self._waiting):
                self._send_batch(place)
            self._sender.flush()
            self._token = Token(self.transactional_id, self._producer.id, self._producer.epoch)
        return self._token

    def _choose(self, topic: str, key: bytes | None, partition: int) -> int:
        if topic not in self._partitions:
            self._partitions[topic] = self._cluster.partitions_of(topic)
        total = self._partitions[topic]
        if partition >= total:
            raise ConfigError(f"topic {topic!r} has no partition {partition}")
        if partition >= 0:
            return partition
        if key is not None:
            return partition_of(key, total)
        waiting = [place.partition for place in self._waiting if place.topic == topic]
        return waiting[0] if waiting else random.randrange(total)

    def _send_batch(self, place: TopicPartition) -> None:
        assert self._sender is not None
        self._waiting_bytes.pop(place)
        self._sender.send([(place, build_batch(self._waiting.pop(place), transactional=True))])

    def _end(self, *, commit: bool) -> None:
        assert self._producer is not None
        producer, self._producer, self._sender = self._producer, None, None
        self._coordinator.end(producer, commit=commit)


def commit_prepared(address: str | Connection, token: Token | str) -> Outcome:
    """Commit a prepared transaction. A second call reports that it was committed before. Raises
    TransactionDecided if it was aborted, or if it is gone and the outcome is unknown."""
    return _decide(address, token, commit=True)


def abort_prepared(address: str | Connection, token: Token | str) -> Outcome:
    """Abort a prepared transaction. A second call reports that it was aborted before. Raises
    TransactionDecided if it was committed, or if it is gone and the outcome is unknown."""
    return _decide(address, token, commit=False)


def list_prepared(address: str | Connection) -> list[tuple[Token, TransactionInfo]]:
    """Every open transaction without a timeout, oldest first: prepared ones, and those of programs that are
    still writing or died while writing."""
    with _cluster(address) as cluster:
        found = [
            (token, info)
            for info in OpenTransactions(cluster).transactions()
            if info.two_phase and (token := token_of(info)) is not None
        ]
    return sorted(found, key=lambda entry: entry[1].started_ms or 0)


def token_of(info: TransactionInfo) -> Token | None:
    """The token of an open transaction, from its records in the logs; None if there are none yet."""
    for stake in info.stakes:
        if stake.epoch is not None and info.transactional_id is not None:
            return Token(info.transactional_id, info.producer_id, stake.epoch)
    return None


@contextlib.contextmanager
def _cluster(address: str | Connection) -> Iterator[Cluster]:
    connection = Connection.of(address) if isinstance(address, str) else address
    connection.check()
    cluster = Cluster(connection)
    try:
        yield cluster
    finally:
        cluster.close()


def _decide(address: str | Connection, token: Token | str, *, commit: bool) -> Outcome:
    token = Token.parse(token) if isinstance(token, str) else token
    with _cluster(address) as cluster:
        deadline = time.monotonic() + cluster.patience
        while True:
            state = _state_of(cluster, token)
            if isinstance(state, TransactionInfo):
                if _end(cluster, token, state, commit=commit):
                    return Outcome.COMMITTED if commit else Outcome.ABORTED
                # Another process decides at the same time. Either way the transaction ends: look again.
                if time.monotonic() > deadline:
                    return _as_decided(token, "another", commit=commit)
            elif not state.startswith("Prepare"):
                return _as_decided(token, state, commit=commit)
            elif time.monotonic() > deadline:
                raise RequestFailed(
                    51,
                    "CONCURRENT_TRANSACTIONS",
                    f"{token}: it is decided, and the transaction is still being ended",
                )
            time.sleep(0.02)


def _described(cluster: Cluster, transactional_id: str) -> TransactionInfo | None:
    try:
        return OpenTransactions(cluster).describe(transactional_id)
    except RequestFailed as error:
        if error.code != TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return None


def _state_of(cluster: Cluster, token: Token) -> TransactionInfo | str:
    """The transaction of the token if it is open; otherwise its state, or ``another`` if that is unknown."""
    info = _described(cluster, token.transactional_id)
    if info is None or info.producer_id != token.producer_id:
        return "another"
    later = info.epoch - token.epoch
    if info.state == "Ongoing":
        return info if later <= 1 and token_of(info) in (token, None) else "another"
    ended = 2 if TransactionClient(cluster).version() >= 2 else 1
    return info.state if later == ended else "another"


def _end(cluster: Cluster, token: Token, found: TransactionInfo, *, commit: bool) -> bool:
    """End the transaction. False if something has happened to it since it was found."""
    coordinator = TransactionClient(cluster)
    producer = ProducerSession(found.producer_id, found.epoch, token.transactional_id, coordinator.version())
    try:
        if found.epoch == token.epoch:
            # Only from the producer found above: else this would erase how the transaction has ended since.
            producer = coordinator.init(
                token.transactional_id, _TIMEOUT_MS, expected=producer, enable_2pc=True, keep_prepared=True
            )
            if producer.ongoing != (token.producer_id, token.epoch):
                return False
        coordinator.end(producer, commit=commit)
    except ProducerFenced:
        return False
    except RequestFailed as error:
        if error.code != INVALID_TXN_STATE:  # another process decided otherwise
            raise
        return False
    return True


def _as_decided(token: Token, state: str, *, commit: bool) -> Outcome:
    if state == "CompleteCommit":
        if commit:
            return Outcome.COMMITTED_BEFORE
        raise TransactionDecided(f"{token}: the transaction was committed; it can't be aborted")
    if state == "CompleteAbort":
        if not commit:
            return Outcome.ABORTED_BEFORE
        raise TransactionDecided(f"{token}: the transaction was aborted; its records are gone")
    raise TransactionDecided(
        f"{token}: it is not open, and the broker no longer knows how it ended: the id was used again, was"
        " forgotten, or never had this transaction; decide a prepared transaction before using its id again"
    )


def _bytes(text: bytes | str | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text
