"""The transactional side of the protocol, request by request, for callers that drive it themselves.

confluent-kafka does all of this inside one producer. If several processes write under one producer id, like
the tasks of a Spark job, something else has to begin and end the transaction: this module. It keeps no
state but the connections. The caller knows the producer (``ProducerSession``) and may pass it to other
processes.

    init             take over a transactional id: previous users are fenced, what they left open is aborted
    add_partitions   transactions v1 only; under v2 (KIP-890) a Produce adds its partitions itself
    commit_offsets   a group's offsets, as part of the transaction
    end              commit or abort; repeated after a lost response, it returns what was decided

Requests that fail because a broker is briefly away are retried until the cluster's patience runs out. Then
it is unknown whether an ``init`` or ``end`` has happened; ``init`` without ``expected`` always helps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from millstream.client.errors import refused
from millstream.client.protocol.cluster import GROUP, TRANSACTION, Cluster, Committed, by_topic
from millstream.client.protocol.link import VERSIONS, Link
from millstream.client.text.position import TopicPartition
from millstream.core.errors import ProducerFenced, RequestFailed
from millstream.core.kafka_errors import (
    INVALID_PRODUCER_EPOCH,
    PRODUCER_FENCED,
    UNSUPPORTED_VERSION,
)
from millstream.wire.api_keys import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)

_FENCED = (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)

T = TypeVar("T")

_FEATURE = "transaction.version"
_TWO_PHASE = 6  # the version of InitProducerId that supports KIP-939


@dataclass(frozen=True, slots=True)
class ProducerSession:
    """A transactional producer as its coordinator knows it. ``ongoing`` is the transaction that a two-phase
    producer found prepared: its producer id and epoch."""

    id: int
    epoch: int
    transactional_id: str
    version: int  # of the transaction protocol: 1, or 2 (KIP-890)
    ongoing: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class CommittingMember:
    """The member that commits a group's offsets. The default is none: the group has no members."""

    id: str = ""
    generation: int = -1
    instance: str | None = None


class TransactionClient:
    """Drives the transactions of a cluster. Like ``Cluster``, for one thread at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def version(self) -> int:
        """The transaction protocol of the cluster: 2, 1, or 0 if it has no transactions."""

        def ask() -> int:
            link = self._cluster.any_link()
            if link.newest(END_TXN) < VERSIONS[END_TXN]:
                return 0
            return 2 if link.feature(_FEATURE) >= 2 else 1

        return self._cluster.patiently("asking for transactions", ask)

    def init(
        self,
        transactional_id: str,
        timeout_ms: int,
        *,
        expected: ProducerSession | None = None,
        version: int | None = None,
        enable_2pc: bool = False,
        keep_prepared: bool = False,
    ) -> ProducerSession:
        """A new epoch of a transactional id. What was open under it is aborted, unless ``keep_prepared``.

        ``expected``: take over only from this producer, otherwise ProducerFenced; without it, from any.
        ``version`` can keep to protocol 1 on a cluster that has 2. ``enable_2pc``: the transactions of this
        producer never time out; an external decision ends them (KIP-939).
        """
        protocol = self.version() if version is None else version
        if protocol == 0:
            address = self._cluster.connection.address
            raise refused(UNSUPPORTED_VERSION, "transactions", f"the cluster at {address} has none")
        two_phase = enable_2pc or keep_prepared

        def ask(link: Link) -> ProducerSession:
            newest = link.newest(INIT_PRODUCER_ID)
            if two_phase and newest < _TWO_PHASE:
                raise refused(
                    UNSUPPORTED_VERSION,
                    f"preparing transactions of {transactional_id}",
                    f"the broker at {link.address} does not offer two-phase commit (KIP-939)",
                )
            answer = link.request(
                INIT_PRODUCER_ID,
                {
                    "transactional_id": transactional_id,
                    "transaction_timeout": timeout_ms,
                    "producer_id": -1 if expected is None else expected.id,
                    "producer_epoch": -1 if expected is None else expected.epoch,
                    "enable2_pc": enable_2pc,
                    "keep_prepared_txn": keep_prepared,
                },
                _TWO_PHASE if two_phase else min(newest, 5 if protocol >= 2 else 4),
            )
            _check(answer.error_code, f"taking over transactional id {transactional_id}")
            ongoing = None
            if two_phase and answer.ongoing_txn_producer_id >= 0:
                ongoing = (int(answer.ongoing_txn_producer_id), int(answer.ongoing_txn_producer_epoch))
            return ProducerSession(
                int(answer.producer_id), int(answer.producer_epoch), transactional_id, protocol, ongoing
            )

        return self._ask(transactional_id, f"taking over transactional id {transactional_id}", ask)

    def add_partitions(self, producer: ProducerSession, partitions: Collection[TopicPartition]) -> None:
        """Announce partitions that the transaction is about to write. Does nothing if Produce does that."""
        if producer.version >= 2 or not partitions:
            return
        topics = by_topic((p, p.partition) for p in partitions)
        what = f"adding partitions to the transaction of {producer.transactional_id}"

        def ask(link: Link) -> None:
            answer = link.request(
                ADD_PARTITIONS_TO_TXN,
                {
                    "v3_and_below_transactional_id": producer.transactional_id,
                    "v3_and_below_producer_id": producer.id,
                    "v3_and_below_producer_epoch": producer.epoch,
                    "v3_and_below_topics": topics,
                },
            )
            codes = [
                (int(entry.partition_error_code), f"{what}: {topic.name}[{entry.partition_index}]")
                for topic in answer.results_by_topic_v3_and_below
                for entry in topic.results_by_partition
            ]
            # A partition that was not tried because of another one reports 55. The other has the reason.
            for code, where in sorted(codes, key=lambda entry: entry[0] == 55):
                _check(code, where)

        self._ask(producer.transactional_id, what, ask)

    def commit_offsets(
        self,
        producer: ProducerSession,
        group: str,
        offsets: Mapping[TopicPartition, Committed],
        member: CommittingMember = CommittingMember(),  # noqa: B008 - immutable
    ) -> None:
        """Add a group's offsets, which become its committed ones if and when the transaction commits."""
        what = f"committing the offsets of group {group} in a transaction"
        if producer.version < 2:
            self._ask(producer.transactional_id, what, lambda link: self._add_offsets(link, producer, group))
        topics = by_topic(
            (
                partition,
                {
                    "partition_index": partition.partition,
                    "committed_offset": entry.offset,
                    "committed_leader_epoch": entry.leader_epoch,
                    "committed_metadata": entry.metadata,
                },
            )
            for partition, entry in offsets.items()
        )
        fields = {
            "transactional_id": producer.transactional_id,
            "group_id": group,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "generation_id": member.generation,
            "member_id": member.id,
            "group_instance_id": member.instance,
            "topics": topics,
        }

        def ask() -> None:
            link = self._cluster.coordinator(group, GROUP)
            answer = link.request(TXN_OFFSET_COMMIT, fields, 5 if producer.version >= 2 else 3)
            for topic in answer.topics:
                for entry in topic.partitions:
                    _check(entry.error_code, f"{what}: {topic.name}[{entry.partition_index}]")

        self._cluster.patiently(what, ask)

    def _add_offsets(self, link: Link, producer: ProducerSession, group: str) -> None:
        answer = link.request(
            ADD_OFFSETS_TO_TXN,
            {
                "transactional_id": producer.transactional_id,
                "producer_id": producer.id,
                "producer_epoch": producer.epoch,
                "group_id": group,
            },
        )
        _check(answer.error_code, f"adding group {group} to the transaction of {producer.transactional_id}")

    def end(self, producer: ProducerSession, *, commit: bool) -> ProducerSession:
        """Commit or abort. Returns the producer to continue with. Under v2 it has a new epoch, so that late
        requests of the same producer are refused."""
        what = f"{'committing' if commit else 'aborting'} the transaction of {producer.transactional_id}"

        def ask(link: Link) -> ProducerSession:
            answer = link.request(
                END_TXN,
                {
                    "transactional_id": producer.transactional_id,
                    "producer_id": producer.id,
                    "producer_epoch": producer.epoch,
                    "committed": commit,
                },
                5 if producer.version >= 2 else 3,
            )
            _check(answer.error_code, what)
            if producer.version < 2:
                return producer
            return ProducerSession(
                int(answer.producer_id), int(answer.producer_epoch), producer.transactional_id, 2
            )

        return self._ask(producer.transactional_id, what, ask)

    def fetch_offsets(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = True,
    ) -> dict[TopicPartition, Committed]:
        """A group's committed offsets with their metadata. With ``require_stable`` it waits while a
        transaction is about to change them."""
        return self._cluster.commits(group, partitions, require_stable=require_stable)

    def _ask(self, transactional_id: str, what: str, ask: Callable[[Link], T]) -> T:
        return self._cluster.patiently(
            what, lambda: ask(self._cluster.coordinator(transactional_id, TRANSACTION))
        )


def _check(code: int, what: str) -> None:
    """Raise a broker's error code, if it is one; as ProducerFenced if it is about fencing."""
    if code:
        raise fenced(int(code), what)


def fenced(code: int, what: str, message: str = "") -> RequestFailed:
    """A broker's error code as an exception; ProducerFenced if another producer has taken over."""
    problem = refused(code, what, message)
    return ProducerFenced(code, problem.name, str(problem)) if code in _FENCED else problem
