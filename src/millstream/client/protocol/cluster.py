"""The brokers of a cluster: which one leads a partition, where partitions start and end, groups' offsets.

There is one link per broker, opened on first use. Requests that fail because a broker is briefly away, or
is no longer the leader, are retried until ``patience`` runs out.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from millstream.client.connect import Connection
from millstream.client.errors import is_retriable, refused
from millstream.client.protocol.link import VERSIONS, Link
from millstream.client.text.position import TopicPartition
from millstream.core.errors import RequestFailed
from millstream.core.kafka_errors import LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION
from millstream.wire.api_keys import (
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
)

EARLIEST = -2
LATEST = -1

GROUP, TRANSACTION = 0, 1  # kinds of coordinators

NEW_TOPIC_S = 10.0  # within which every broker of a cluster learns of a new topic

_COORDINATORS_OF_MANY = 4  # the first version of FindCoordinator that takes several keys
_TOPIC_IDS = 10  # the first version of Metadata with topic ids; Apache Kafka has it since 2.8

T = TypeVar("T")


class TimeOffset(NamedTuple):
    """An offset found by time, and the time of the record there."""

    offset: int
    timestamp: int


class Committed(NamedTuple):
    """What a group has committed for a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Cluster:
    """Access to the brokers behind an address. Not for two threads at once."""

    def __init__(self, connection: Connection, *, patience: float = 30.0) -> None:
        self.connection = connection
        self.patience = patience
        self._links: dict[tuple[str, int], Link] = {}
        self.losses = 0  # how often a response may have been lost on the way
        self._spare: Link | None = None  # for requests while all others are busy
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}
        self._topic_ids: dict[str, str] = {}

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()
        if self._spare is not None:
            self._spare.close()
            self._spare = None

    def patiently(self, what: str, action: Callable[[], T], patience: float | None = None) -> T:
        """The result of ``action``. It is retried, with leaders looked up again, while brokers are away or
        report a retriable error. A broker that rejects the login is not asked twice."""
        began = time.monotonic()
        deadline = began + (self.patience if patience is None else patience)
        pause = 0.02
        while True:
            try:
                return action()
            except OSError as problem:
                self.losses += 1
                self.close()
                if time.monotonic() > deadline:
                    reason = problem.strerror or str(problem) or type(problem).__name__
                    raise self.connection.unavailable(f"{what}: {reason}") from None
            except RequestFailed as problem:
                limit = (
                    min(deadline, began + NEW_TOPIC_S)
                    if problem.code == UNKNOWN_TOPIC_OR_PARTITION
                    else deadline
                )
                if not is_retriable(problem.code) or time.monotonic() > limit:
                    raise
            self._leaders.clear()
            self._coordinators.clear()
            time.sleep(pause)
            pause = min(2 * pause, 1.0)

    # Links and leaders -------------------------------------------------------------------------------

    def any_link(self) -> Link:
        """A link with nothing in flight: an open one, or one to the first bootstrap server that answers."""
        for link in self._links.values():
            if not link.in_flight:
                return link
        if self._spare is not None and self._spare.in_flight:
            self._spare.close()  # its last request was never answered
            self._spare = None
        if self._spare is None:
            problem: OSError | None = None
            for address in self.connection.servers():
                try:
                    self._spare = self._open(address)
                    break
                except OSError as error:
                    problem = problem or error
            if self._spare is None:
                assert problem is not None
                raise problem
        return self._spare

    def every_link(self) -> list[Link]:
        """A link to each broker, for requests that only the broker concerned can answer."""
        self._metadata([])
        return [self._link(address) for address in self._brokers.values()]

    def _link(self, address: tuple[str, int]) -> Link:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = self._open(address)
        return link

    def _open(self, address: tuple[str, int]) -> Link:
        options = self.connection.options
        client_id = options.get("client.id", "millstream")
        return Link(*address, options, timeout=self.connection.patience, client_id=client_id)

    def drop(self, link: Link) -> None:
        """Close a link that failed. The next use of its broker opens another."""
        link.close()
        self._links = {address: other for address, other in self._links.items() if other is not link}

    def leader(self, partition: TopicPartition) -> Link:
        """A link to the broker that leads a partition."""
        node = self._leaders.get(partition)
        if node is None:
            self._metadata([partition.topic])
            node = self._leaders.get(partition)
        if node is None:
            raise refused(UNKNOWN_TOPIC_OR_PARTITION, f"{partition}", f"there is no partition {partition}")
        if node not in self._brokers:
            raise refused(LEADER_NOT_AVAILABLE, f"{partition}")
        return self._link(self._brokers[node])

    def forget_leader(self, partition: TopicPartition) -> None:
        """Have the leader of a partition looked up again before the next request to it."""
        self._leaders.pop(partition, None)

    def topics(self, names: Collection[str] | None = None, *, create: bool = False) -> dict[str, int]:
        """Topics with their number of partitions. Topics that do not exist are left out. Without ``names``:
        all topics but the internal ones."""
        return self.patiently("looking up topics", lambda: self._metadata(names, create=create))

    def topic_id(self, name: str) -> str | None:
        """The id of a topic, looked up now. None if there is no such topic; empty if the broker is too old
        to report ids."""
        return self._topic_ids.get(name, "") if self.topics([name]) else None

    def known_topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        """The ids of topics as of the last lookup. A topic that was deleted and created again has another
        id. Left out if the broker is too old to report ids."""
        return {name: self._topic_ids[name] for name in names if name in self._topic_ids}

    def _metadata(self, names: Collection[str] | None, *, create: bool = False) -> dict[str, int]:
        link = self.any_link()
        version = _TOPIC_IDS if link.newest(METADATA) >= _TOPIC_IDS else VERSIONS[METADATA]
        by_id: dict[str, Any] = {"topic_id": None} if version >= _TOPIC_IDS else {}
        wanted = None if names is None else [{"name": name, **by_id} for name in names]
        answer = link.request(METADATA, {"topics": wanted, "allow_auto_topic_creation": create}, version)
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        found = {}
        for topic in answer.topics:
            if topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
                self._topic_ids.pop(str(topic.name), None)
                continue
            if topic.error_code:
                raise refused(int(topic.error_code), f"topic {topic.name}")
            if version >= _TOPIC_IDS and topic.topic_id is not None:
                self._topic_ids[str(topic.name)] = topic_id_text(topic.topic_id.bytes)
            for partition in topic.partitions:
                self._leaders[TopicPartition(topic.name, partition.partition_index)] = partition.leader_id
            if names is not None or not topic.is_internal:
                found[str(topic.name)] = len(topic.partitions)
        return found

    def by_leader(self, partitions: Collection[TopicPartition]) -> dict[Link, list[TopicPartition]]:
        missing = {partition.topic for partition in partitions if partition not in self._leaders}
        if missing:
            self._metadata(missing)
        grouped: dict[Link, list[TopicPartition]] = {}
        for partition in partitions:
            grouped.setdefault(self.leader(partition), []).append(partition)
        return grouped

    # Offsets -----------------------------------------------------------------------------------------

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, TimeOffset | None]:
        """Offsets by time in milliseconds, ``EARLIEST`` or ``LATEST``; None if all records are older."""

        def ask() -> dict[TopicPartition, TimeOffset | None]:
            found: dict[TopicPartition, TimeOffset | None] = {}
            for link, partitions in self.by_leader(wanted).items():
                topics = by_topic(
                    (p, {"partition_index": p.partition, "timestamp": wanted[p]}) for p in partitions
                )
                answer = link.request(
                    LIST_OFFSETS,
                    {"replica_id": -1, "isolation_level": int(read_committed), "topics": topics},
                )
                for topic in answer.topics:
                    for entry in topic.partitions:
                        partition = TopicPartition(topic.name, entry.partition_index)
                        if entry.error_code:
                            raise refused(int(entry.error_code), f"offsets of {partition}")
                        known = entry.offset >= 0
                        found[partition] = TimeOffset(entry.offset, entry.timestamp) if known else None
            return found

        return self.patiently("looking up offsets", ask)

    def ends(
        self, partitions: Iterable[TopicPartition], which: int, *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Where partitions start (``EARLIEST``) or end (``LATEST``)."""
        found = self.offsets(dict.fromkeys(partitions, which), read_committed=read_committed)
        return {partition: offset.offset for partition, offset in found.items() if offset is not None}

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """A group's committed offsets. Partitions without one are left out."""
        return {p: found.offset for p, found in self.commits(group, partitions).items()}

    def commits(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = True,
    ) -> dict[TopicPartition, Committed]:
        """What a group has committed, with its metadata; for all partitions if none are named.

        With ``require_stable`` the call waits for transactions that are about to commit other offsets.
        Without it, the result is what was committed last.
        """
        topics = None
        if partitions is not None:
            grouped = _grouped((p.topic, p.partition) for p in partitions)
            topics = [{"name": name, "partition_indexes": indexes} for name, indexes in grouped.items()]

        def ask() -> dict[TopicPartition, Committed]:
            answer = self.coordinator(group).request(
                OFFSET_FETCH, {"group_id": group, "topics": topics, "require_stable": require_stable}
            )
            return commits_in(answer, group)

        return self.patiently(f"reading the offsets of group {group}", ask)

    def commit(self, group: str, offsets: Mapping[TopicPartition, int], metadata: str = "") -> None:
        """Commit offsets for a group that has no members."""
        topics = by_topic(
            (p, {"partition_index": p.partition, "committed_offset": offset, "committed_metadata": metadata})
            for p, offset in offsets.items()
        )

        def ask() -> None:
            answer = self.coordinator(group).request(
                OFFSET_COMMIT,
                {
                    "group_id": group,
                    "generation_id_or_member_epoch": -1,
                    "member_id": "",
                    "topics": topics,
                },
            )
            for topic in answer.topics:
                for entry in topic.partitions:
                    if entry.error_code:
                        raise refused(int(entry.error_code), f"committing offsets of group {group}")

        if topics:
            self.patiently(f"committing the offsets of group {group}", ask)

    def forget(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete offsets of a group. Refused for topics that its members read."""
        topics = by_topic((p, {"partition_index": p.partition}) for p in partitions)

        def ask() -> None:
            what = f"deleting offsets of group {group}"
            answer = self.coordinator(group).request(OFFSET_DELETE, {"group_id": group, "topics": topics})
            if answer.error_code:
                raise refused(int(answer.error_code), what)
            for topic in answer.topics:
                for entry in topic.partitions:
                    if entry.error_code:
                        raise refused(int(entry.error_code), f"{what} in {topic.name}")

        if topics:
            self.patiently(f"deleting the offsets of group {group}", ask)

    def by_coordinator(self, groups: Collection[str]) -> dict[Link, list[str]]:
        """Groups by their coordinator; groups that have none at the moment are left out. One request covers
        all of them if the broker supports that: Kafka does since 3.0."""
        unknown = [name for name in groups if (GROUP, name) not in self._coordinators]
        if unknown and (link := self.any_link()).newest(FIND_COORDINATOR) >= _COORDINATORS_OF_MANY:
            fields = {"key_type": GROUP, "coordinator_keys": unknown}
            answer = link.request(FIND_COORDINATOR, fields, _COORDINATORS_OF_MANY)
            for entry in answer.coordinators:
                if not entry.error_code:
                    self._coordinators[GROUP, entry.key] = (entry.host, entry.port)
        elif unknown:
            for name in unknown:
                self.coordinator(name)
        grouped: dict[Link, list[str]] = {}
        for name in groups:
            if (GROUP, name) in self._coordinators:
                grouped.setdefault(self.coordinator(name), []).append(name)
        return grouped

    def coordinator(self, name: str, kind: int = GROUP) -> Link:
        """A link to the coordinator of a group, or of a transactional id."""
        address = self._coordinators.get((kind, name))
        if address is None:
            answer = self.any_link().request(FIND_COORDINATOR, {"key": name, "key_type": kind})
            if answer.error_code:
                what = "group" if kind == GROUP else "transactional id"
                raise refused(int(answer.error_code), f"finding the coordinator of {what} {name}")
            address = self._coordinators[kind, name] = (answer.host, answer.port)
        return self._link(address)

    # Producing ---------------------------------------------------------------------------------------

    def new_producer(self) -> tuple[int, int]:
        """The id and epoch of a new idempotent producer."""

        def ask() -> tuple[int, int]:
            answer = self.any_link().request(
                INIT_PRODUCER_ID, {"transactional_id": None, "transaction_timeout": 60_000}
            )
            if answer.error_code:
                raise refused(int(answer.error_code), "asking for a producer id")
            return answer.producer_id, answer.producer_epoch

        return self.patiently("asking for a producer id", ask)

    def partitions_of(self, topic: str, *, create: bool = False) -> int:
        """How many partitions a topic has. ``create``: create a missing topic, if the broker allows it."""

        def ask() -> int:
            count = self._metadata([topic], create=create).get(topic)
            if count is None:
                raise refused(UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic}", f"there is no topic {topic!r}")
            return count

        # A broker that is creating a topic answers that there is none until it is done.
        return self.patiently(f"looking up topic {topic}", ask, min(3.0, self.patience) if create else 0.0)


def topic_id_text(id: bytes) -> str:
    """A topic's id as Kafka's tools write it: 22 characters."""
    return base64.urlsafe_b64encode(id).decode("ascii").rstrip("=")


def commits_in(answer: Any, group: str) -> dict[TopicPartition, Committed]:
    """What a group has committed, from a response about one group or from its part of one about many."""
    if answer.error_code:
        raise refused(int(answer.error_code), f"offsets of group {group}")
    found = {}
    for topic in answer.topics:
        for entry in topic.partitions:
            if entry.error_code:
                raise refused(int(entry.error_code), f"offsets of group {group} in {topic.name}")
            if entry.committed_offset >= 0:
                found[TopicPartition(topic.name, entry.partition_index)] = Committed(
                    int(entry.committed_offset), int(entry.committed_leader_epoch), entry.metadata or ""
                )
    return found


def by_topic(entries: Iterable[tuple[TopicPartition, Any]]) -> list[dict[str, Any]]:
    """Entries of partitions, grouped by topic as requests need them."""
    grouped = _grouped((partition.topic, entry) for partition, entry in entries)
    return [{"name": name, "partitions": partitions} for name, partitions in grouped.items()]


def _grouped(pairs: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    grouped: dict[str, list[T]] = {}
    for name, item in pairs:
        grouped.setdefault(name, []).append(item)
    return grouped
