"""Read as a member of a group, in batches that can be read again, for callers that keep the offsets.

The caller commits the offsets together with the results (in a transaction of the log, in a database). So
nothing is committed here by itself, and a batch whose results were undone is read again: ``rewind``.

A rebalance is only noticed while reading. If a call reads records of a partition and the partition is
revoked in the same call, the records are dropped: another member processes them now.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millstream.client.connect import Connection, from_librdkafka, to_librdkafka
from millstream.client.errors import Complaints, failure
from millstream.client.text.position import TopicPartition
from millstream.core.errors import ConfigError, DataLoss

if TYPE_CHECKING:
    from confluent_kafka import Message

log = logging.getLogger(__name__)

# How long a call into librdkafka may keep Python from noticing Ctrl-C.
BLINK = 0.2

# Not failures: a topic may be created later, and a rebalance is handled when it happens.
PASSING = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_MAX_POLL_EXCEEDED", "_PARTITION_EOF")


class GroupReader:
    """A member of a consumer group that reads batches and commits nothing by itself."""

    def __init__(
        self,
        connection: Connection,
        group: str,
        topics: Sequence[str],
        *,
        from_start: bool = True,
        most: int = 1000,
        linger: float = 0.05,
        positions: Callable[[], Mapping[TopicPartition, int]] | None = None,
        repair: str = "",
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """``topics`` are names, or patterns that begin with ``^``. A batch has at most ``most`` records,
        gathered for ``linger`` seconds after the first one. ``from_start`` says where to begin in a
        partition that the group has not read yet. ``positions`` returns offsets that override the group's
        own, and ``repair`` tells the user how to move them."""
        from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer

        if isinstance(topics, str) or not topics:
            raise ConfigError("topics is a list of names, such as ['payments']")
        if most < 1 or linger < 0:
            raise ConfigError("a batch has at least one record, and is gathered for 0 seconds or more")
        self.connection = connection
        self._most = most
        self._linger = linger
        self._positions = positions
        self._begin_at = OFFSET_BEGINNING if from_start else OFFSET_END
        self._repair = repair or f"move it: millstream group seek {group} --to start"
        self._taken_away: set[TopicPartition] = set()
        self._undone: list[Message] = []
        self._complaints = Complaints()
        given = {
            "group.id": group,
            "enable.auto.commit": False,
            # ``_assigned`` sets where to begin. From then on, an offset that is gone means lost records.
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "topic.metadata.refresh.interval.ms": 10_000,
            "fetch.queue.backoff.ms": 10,
            "fetch.error.backoff.ms": 50,
            "error_cb": self._complaints,
            **(properties or {}),
        }
        if given.get("group.protocol") != "consumer":
            given["partition.assignment.strategy"] = "cooperative-sticky"
        self._consumer: Any = connection.open(Consumer, connection.properties(given))
        try:
            connection.check()
            self._consumer.subscribe(
                list(topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
            )
        except BaseException:
            self._consumer.close()
            raise

    def close(self) -> None:
        """Leave the group. Its other members take over at once."""
        self._consumer.close()

    def read(self, *, ended: Callable[[], bool] = bool, wait: float | None = None) -> list[Message]:
        """The next batch, in order within each partition. Waits at most ``wait`` seconds for a first
        record. Empty if none came, or once ``ended`` returns True."""
        deadline = None if wait is None else time.monotonic() + wait
        if self._undone:
            self._rewind(self._undone)
            self._undone = []
        while not ended():
            blink = BLINK if deadline is None else max(0.0, min(BLINK, deadline - time.monotonic()))
            self._taken_away.clear()
            first = self._consumer.poll(blink)
            if first is not None:
                rest = self._consumer.consume(self._most - 1, self._linger) if self._most > 1 else []
                records = self._still_ours(self._good([first, *rest]))
                if records:
                    return records
            if deadline is not None and time.monotonic() >= deadline:
                return []
        return []

    def rewind(self, records: Iterable[Message]) -> None:
        """Call when the results of these records were undone: the next ``read`` resumes from the position
        that is committed, or from the first of these records if there is none."""
        self._undone += records

    def _rewind(self, records: Iterable[Message]) -> None:
        from confluent_kafka import KafkaException

        first: dict[TopicPartition, int] = {}
        for record in records:
            place = TopicPartition(record.topic(), record.partition())
            first[place] = min(record.offset(), first.get(place, record.offset()))
        try:
            held = {from_librdkafka(partition) for partition in self._consumer.assignment()} & first.keys()
            stand = self._stand(held)
            for place in held:
                self._consumer.seek(to_librdkafka(place, stand.get(place, first[place])))
        except KafkaException as error:
            raise failure(
                error.args[0], self.connection, "can't read a batch again", complaints=self._complaints
            ) from None

    def metadata(self) -> Any:
        """The identity of this member in its group and generation. Offset commits by another are refused."""
        return self._consumer.consumer_group_metadata()

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit to the group's coordinator without waiting for it: only tools that show lag need it."""
        if offsets:
            self._consumer.commit(
                offsets=[to_librdkafka(place, offset) for place, offset in offsets.items()], asynchronous=True
            )

    def _stand(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if self._positions is not None:
            return dict(self._positions())
        asked = [to_librdkafka(place) for place in places]
        if not asked:
            return {}
        found = self._consumer.committed(asked, timeout=self.connection.patience)
        return {from_librdkafka(partition): partition.offset for partition in found if partition.offset >= 0}

    def _good(self, messages: Iterable[Message]) -> list[Message]:
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append(message)
            elif error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
                raise self._gone(TopicPartition(message.topic(), message.partition()))
            elif not (error.retriable() or error.name() in PASSING):
                raise failure(error, self.connection, "can't read", complaints=self._complaints)
        return records

    def _gone(self, place: TopicPartition) -> DataLoss:
        stand = self._stand([place]).get(place)
        start, end = self._consumer.get_watermark_offsets(
            to_librdkafka(place), timeout=self.connection.patience
        )
        return DataLoss(
            f"{place}: the next record to be read is {stand}, but the log holds {start} to {end}: records"
            f" were deleted unread, or the topic was created again. To continue, {self._repair}"
        )

    def _still_ours(self, records: list[Message]) -> list[Message]:
        if not self._taken_away:
            return records
        kept: list[Message] = []
        lost: list[Message] = []
        for record in records:
            place = TopicPartition(record.topic(), record.partition())
            (lost if place in self._taken_away else kept).append(record)
        self._rewind(lost)  # a partition may have been revoked and assigned again
        return kept

    # librdkafka calls these from within poll and consume. With an incremental protocol (cooperative, KIP-848)
    # they receive only changes. A callback that changes offsets must apply the assignment itself.

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        stand = self._stand(from_librdkafka(partition) for partition in partitions)
        for partition in partitions:
            partition.offset = stand.get(from_librdkafka(partition), self._begin_at)
        consumer.incremental_assign(partitions)
        log.debug("given: %s", ", ".join(str(from_librdkafka(partition)) for partition in partitions))

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        self._taken_away.update(from_librdkafka(partition) for partition in partitions)
        log.debug("taken away: %s", ", ".join(str(from_librdkafka(partition)) for partition in partitions))
