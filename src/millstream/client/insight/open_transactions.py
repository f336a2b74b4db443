"""Inspect and end open transactions: who opened them, since when, where, and which hold readers back.

A reader of committed records stops before the first record of the oldest open transaction (the last stable
offset). So a transaction that nobody ends holds back every reader of its partitions. The logs know its
producer by producer id (DescribeProducers), the coordinators by transactional id (ListTransactions,
DescribeTransactions). A transaction that only a log knows *hangs*: no coordinator will ever end it.

All requests here are Kafka's own (KIP-664), so this works on any cluster since Kafka 3.0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from millstream.client.errors import refused
from millstream.client.protocol.cluster import LATEST, TRANSACTION, Cluster
from millstream.client.protocol.link import Link
from millstream.client.protocol.transaction_requests import TransactionClient
from millstream.client.text.position import TopicPartition
from millstream.core.errors import ConfigError, RequestFailed
from millstream.core.kafka_errors import TRANSACTIONAL_ID_NOT_FOUND, UNSUPPORTED_VERSION
from millstream.core.units import did_you_mean
from millstream.wire.api_keys import (
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
)

NO_TIMEOUT_MS = 2**31 - 1  # the timeout of a two-phase producer's transactions (KIP-939)
UNFINISHED = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")

_MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class TransactionPartition:
    """A transaction in one partition. ``start`` is the offset of its first record there, None if it has not
    written one. ``stable`` and ``end`` are how far readers of committed records and other readers get."""

    partition: TopicPartition
    start: int | None
    epoch: int | None
    stable: int
    end: int

    @property
    def held_back(self) -> int:
        """How many records this transaction, as the oldest one, hides from readers of committed records."""
        return self.end - self.stable if self.start == self.stable else 0


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """A transaction. ``transactional_id`` is None if no coordinator knows it: the transaction hangs."""

    transactional_id: str | None
    producer_id: int
    epoch: int
    state: str
    timeout_ms: int | None
    started_ms: int | None
    stakes: tuple[TransactionPartition, ...]

    @property
    def hangs(self) -> bool:
        return self.transactional_id is None

    @property
    def unfinished(self) -> bool:
        return self.hangs or self.state in UNFINISHED

    @property
    def two_phase(self) -> bool:
        """True if it waits for an external decision, without a timeout."""
        return self.timeout_ms == NO_TIMEOUT_MS

    @property
    def held_back(self) -> int:
        return sum(stake.held_back for stake in self.stakes)

    @property
    def records(self) -> int:
        """At most this many records are its own: everything since its first, in all its partitions."""
        return sum(stake.end - stake.start for stake in self.stakes if stake.start is not None)


@dataclass(frozen=True, slots=True)
class _Writer:
    """A producer with an open transaction in a partition, as the log reports it."""

    partition: TopicPartition
    producer_id: int
    epoch: int
    coordinator_epoch: int
    start: int
    last_ms: int


class OpenTransactions:
    """Finds transactions, and ends those that nobody else ends. For one thread at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def transactions(self, *, ended: bool = False) -> list[TransactionInfo]:
        """Every open transaction, including those that hang. With ``ended``, all other ids too."""
        writers = self._writers(self._held_back())
        known = self._described(None if ended else UNFINISHED)
        missing = _unclaimed(writers, known)
        if missing:
            # One may have ended in the meantime. A writer that is still there, unchanged, hangs.
            still = self._writers({writer.partition for writer in missing})
            missing = [writer for writer in missing if writer in still]
        places = {place for state in known for place in _places(state)} | {w.partition for w in writers}
        starts = {(w.partition, w.producer_id): w for w in (*writers, *self._writers(places))}
        bounds = self._bounds(places)
        found = [_info(state, starts, bounds) for state in known]
        found += [_hanging(writer, bounds) for writer in missing]
        return sorted(found, key=lambda info: (-info.held_back, info.started_ms or 0, info.producer_id))

    def describe(self, transactional_id: str) -> TransactionInfo:
        """One transactional id. An unknown one is an error that suggests ids that exist."""
        what = f"transactional id {transactional_id!r}"

        def ask() -> Any:
            link = self._cluster.coordinator(transactional_id, TRANSACTION)
            (state,) = self._ask_describe(link, [transactional_id])
            if state.error_code and state.error_code != TRANSACTIONAL_ID_NOT_FOUND:
                raise refused(int(state.error_code), what)
            return state

        state = self._cluster.patiently(f"describing {what}", ask)
        if state.error_code:
            raise self._unknown(transactional_id)
        places = set(_places(state))
        starts = {(w.partition, w.producer_id): w for w in self._writers(places)}
        return _info(state, starts, self._bounds(places))

    def abort(self, transactional_id: str) -> TransactionInfo:
        """End the open transaction of an id by taking the id over, which fences its producer if that is
        still alive. Returns the state before."""
        before = self.describe(transactional_id)
        timeout = before.timeout_ms or 60_000
        TransactionClient(self._cluster).init(
            transactional_id, 60_000 if timeout == NO_TIMEOUT_MS else timeout
        )
        return before

    def hanging(self, partition: TopicPartition, start: int) -> TransactionInfo:
        """The transaction that hangs at an offset. If a coordinator knows it, the error names its id."""
        by_start = {writer.start: writer for writer in self._writers([partition])}
        if start not in by_start:
            open_at = ", ".join(map(str, sorted(by_start))) or "none"
            raise ConfigError(
                f"no transaction that is open in {partition} began at offset {start}; those open: {open_at}"
            )
        writer = by_start[start]
        for state in self._described(UNFINISHED):
            if state.producer_id == writer.producer_id and partition in _places(state):
                raise ConfigError(
                    f"the transaction at offset {start} of {partition} does not hang: it belongs to"
                    f" {state.transactional_id!r}; `millstream txn abort {state.transactional_id}` ends it"
                )
        return _hanging(writer, self._bounds([partition]))

    def abort_hanging(self, partition: TopicPartition, start: int) -> TransactionInfo:
        """End a transaction that hangs in a partition, by writing its marker. Returns the state before."""
        before = self.hanging(partition, start)
        (writer,) = [writer for writer in self._writers([partition]) if writer.start == start]
        what = f"aborting the transaction at offset {start} of {partition}"
        marker = {
            "producer_id": writer.producer_id,
            "producer_epoch": writer.epoch,
            "transaction_result": False,
            "coordinator_epoch": max(0, writer.coordinator_epoch),
            "topics": [{"name": partition.topic, "partition_indexes": [partition.partition]}],
        }

        def ask() -> None:
            answer = self._cluster.leader(partition).request(WRITE_TXN_MARKERS, {"markers": [marker]})
            for one in answer.markers:
                for topic in one.topics:
                    for entry in topic.partitions:
                        if entry.error_code:
                            raise refused(int(entry.error_code), what)

        self._cluster.patiently(what, ask)
        return before

    # The logs ----------------------------------------------------------------------------------------

    def _held_back(self) -> list[TopicPartition]:
        """Partitions whose last stable offset is behind their end: a transaction is open there."""
        places = [
            TopicPartition(name, index)
            for name, count in self._cluster.topics().items()
            for index in range(count)
        ]
        bounds = self._bounds(places)
        return [place for place, (stable, end) in bounds.items() if stable < end]

    def _bounds(self, places: Collection[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        ends = self._cluster.ends(places, LATEST)
        stable = self._cluster.ends(places, LATEST, read_committed=True)
        return {place: (stable[place], ends[place]) for place in places}

    def _writers(self, places: Collection[TopicPartition]) -> list[_Writer]:
        """The producers that have a transaction open in any of the partitions."""

        def ask() -> list[_Writer]:
            found = []
            for link, partitions in self._cluster.by_leader(list(places)).items():
                topics: dict[str, list[int]] = {}
                for place in partitions:
                    topics.setdefault(place.topic, []).append(place.partition)
                wanted = [{"name": name, "partition_indexes": indexes} for name, indexes in topics.items()]
                answer = link.request(DESCRIBE_PRODUCERS, {"topics": wanted})
                for topic in answer.topics:
                    for entry in topic.partitions:
                        place = TopicPartition(topic.name, entry.partition_index)
                        if entry.error_code:
                            raise refused(
                                int(entry.error_code), f"producers of {place}", entry.error_message or ""
                            )
                        found += [
                            _Writer(
                                place,
                                int(producer.producer_id),
                                int(producer.producer_epoch),
                                int(producer.coordinator_epoch),
                                int(producer.current_txn_start_offset),
                                int(producer.last_timestamp),
                            )
                            for producer in entry.active_producers
                            if producer.current_txn_start_offset >= 0
                        ]
            return found

        return self._cluster.patiently("asking who writes", ask) if places else []

    # The coordinators --------------------------------------------------------------------------------

    def _described(self, states: Iterable[str] | None) -> list[Any]:
        """Every transactional id in one of the states, or in any, as its coordinator describes it."""

        def ask() -> list[Any]:
            found = []
            for link in self._cluster.every_link():
                if link.newest(LIST_TRANSACTIONS) < 0:
                    reason = f"the broker at {link.address} can't; Apache Kafka can since 3.0"
                    raise refused(UNSUPPORTED_VERSION, "listing transactions", reason)
                answer = link.request(
                    LIST_TRANSACTIONS,
                    {"state_filters": list(states or ()), "producer_id_filters": []},
                )
                if answer.error_code:
                    raise refused(int(answer.error_code), "listing transactions")
                names = [entry.transactional_id for entry in answer.transaction_states]
                found += [state for state in self._ask_describe(link, names) if not state.error_code]
            return found

        return self._cluster.patiently("listing transactions", ask)

    def _ask_describe(self, link: Link, names: list[str]) -> list[Any]:
        if not names:
            return []
        answer = link.request(DESCRIBE_TRANSACTIONS, {"transactional_ids": names})
        return list(answer.transaction_states)

    def _unknown(self, transactional_id: str) -> RequestFailed:
        names = [state.transactional_id for state in self._described(None)]
        hint = did_you_mean(transactional_id, names, most=3)
        return refused(
            TRANSACTIONAL_ID_NOT_FOUND,
            f"transactional id {transactional_id!r}",
            f"there is none at {self._cluster.connection.address}{hint and f'; {hint}'}",
        )


def _unclaimed(writers: list[_Writer], known: list[Any]) -> list[_Writer]:
    claimed = {(int(state.producer_id), place) for state in known for place in _places(state)}
    return [writer for writer in writers if (writer.producer_id, writer.partition) not in claimed]


def _places(state: Any) -> list[TopicPartition]:
    return [TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions]


def _info(
    state: Any,
    writers: dict[tuple[TopicPartition, int], _Writer],
    bounds: dict[TopicPartition, tuple[int, int]],
) -> TransactionInfo:
    stakes = []
    for place in sorted(_places(state)):
        writer = writers.get((place, int(state.producer_id)))
        start, epoch = (None, None) if writer is None else (writer.start, writer.epoch)
        stakes.append(TransactionPartition(place, start, epoch, *bounds[place]))
    began = state.transaction_start_time if state.transaction_state in UNFINISHED else None
    return TransactionInfo(
        str(state.transactional_id),
        int(state.producer_id),
        int(state.producer_epoch),
        str(state.transaction_state),
        int(state.transaction_timeout / _MS),
        None if began is None else round(began.timestamp() * 1000),
        tuple(stakes),
    )


def _hanging(writer: _Writer, bounds: dict[TopicPartition, tuple[int, int]]) -> TransactionInfo:
    stake = TransactionPartition(writer.partition, writer.start, writer.epoch, *bounds[writer.partition])
    # Its start is not known, but it began no later than its last write.
    return TransactionInfo(None, writer.producer_id, writer.epoch, "Hanging", None, writer.last_ms, (stake,))
