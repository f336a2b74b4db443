"""Read records in batches: chosen partitions from chosen offsets, or as a member of a consumer group.

Both readers return whatever has arrived, as a list, and wait only if nothing has. So a tail is shown at
once, and a long history is read by thousands.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from millstream.client.connect import Connection, to_librdkafka
from millstream.client.errors import Complaints, failure
from millstream.client.librdkafka.batches import PASSING
from millstream.client.protocol.cluster import LATEST, Cluster
from millstream.client.protocol.unreadable import Unreadable, find_unreadable
from millstream.client.text.position import TopicPartition
from millstream.core.errors import DataLoss

# The most that one reader buffers in memory, besides the current batch.
_BUFFER_KBYTES = 32 * 1024
_SILENCE = 2.0  # seconds without a record from a partition that has more: then check why
_NO_BATCH = (
    "_BAD_MSG",
    "_BAD_COMPRESSION",
    "INVALID_MSG",
)  # records can't be read; the error does not say up to where


class Gap(NamedTuple):
    """Records that were to be read and no longer exist: from ``first`` up to, not including, ``until``.

    If ``until`` is before ``first``, the log ends before the position to read from: the topic was created
    again or its log was cut. Reading then continues at the start of the log, ``until``."""

    partition: TopicPartition
    first: int
    until: int


class BatchConsumer:
    """What both readers share: a librdkafka consumer that is read in batches."""

    def __init__(
        self,
        connection: Connection,
        properties: Mapping[str, Any],
        on_unreadable: Callable[[Unreadable], None] | None = None,
    ) -> None:
        from confluent_kafka import Consumer, KafkaError

        self._on_unreadable = on_unreadable
        self._look_at = time.monotonic() + _SILENCE
        self._were: dict[TopicPartition, int] = {}  # positions at the last check
        self._suspects: set[TopicPartition] = set()  # for which librdkafka reported that something is wrong

        self.connection = connection
        self._complaints = Complaints()
        self._partition_end: int = KafkaError._PARTITION_EOF
        self._consumer: Any = connection.open(
            Consumer,
            connection.properties(
                {
                    "error_cb": self._complaints,
                    "queued.max.messages.kbytes": _BUFFER_KBYTES,
                    # With the default, a reader slower than the broker stalls for a second at a time.
                    "fetch.queue.backoff.ms": 10,
                    "fetch.error.backoff.ms": 50,
                    **properties,
                }
            ),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def finished(self) -> bool:
        """True once everything that was to be read has been read."""
        return False

    def done(self, records: Iterable[Any]) -> None:
        """Mark records as processed. A group member commits them; nobody else needs to know."""

    def close(self) -> None:
        """Leave. A group member first commits what was marked as done."""
        self._consumer.close()

    def read(self, most: int, wait: float) -> list[Any]:
        """Up to ``most`` records, in order within each partition; empty if none came in ``wait`` seconds."""
        raise NotImplementedError

    def _arrived(self, most: int, wait: float) -> list[Any]:
        if time.monotonic() > self._look_at:
            self._look_for_unreadable()
            self._look_at = time.monotonic() + _SILENCE
        first = self._consumer.poll(wait)
        if first is None:
            return []
        return [first, *self._consumer.consume(most - 1, 0)] if most > 1 else [first]

    def _look_for_unreadable(self) -> None:
        """If nothing has come for a while, check whether that is because records can't be read."""
        before, self._were = self._were, self._positions()
        behind = {
            place: at
            for place, at in self._were.items()
            if place in self._suspects or (before.get(place) == at < self._end_heard_of(place))
        }
        if not behind:
            return
        self._suspects.clear()
        cluster = Cluster(self.connection, patience=self.connection.patience)
        try:
            ends = cluster.ends(list(behind), LATEST)
            for place, at in behind.items():
                found = find_unreadable(cluster, place, at, ends[place])
                if found is None:
                    continue
                if self._on_unreadable is None:
                    raise DataLoss(str(found))
                self._on_unreadable(found)
                self._move(place, found.until)
        finally:
            cluster.close()

    def _end_heard_of(self, place: TopicPartition) -> int:
        """The end of the partition as of the last response; negative if there was none."""
        end: int = self._consumer.get_watermark_offsets(to_librdkafka(place), cached=True)[1]
        return end

    def _positions(self) -> dict[TopicPartition, int]:
        """The next offset in each partition that is still being read."""
        raise NotImplementedError

    def _move(self, place: TopicPartition, offset: int) -> None:
        """Continue at an offset."""
        raise NotImplementedError


class PartitionReader(BatchConsumer):
    """Reads given partitions from given offsets. Joins no group, commits nothing, leaves nothing behind.

    With ``stops`` it reads each partition up to that offset, and is ``finished`` when it has reached them
    all. Without, it follows the log. If records were deleted before they were read, or the log now ends
    before the position to read from, ``on_gap`` is called and reading continues with the oldest record
    there is. If records can't be read, ``on_unreadable`` is called and reading continues after them;
    without it, DataLoss is raised.
    """

    def __init__(
        self,
        connection: Connection,
        starts: Mapping[TopicPartition, int],
        stops: Mapping[TopicPartition, int] | None = None,
        *,
        on_gap: Callable[[Gap], None] | None = None,
        on_unreadable: Callable[[Unreadable], None] | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            connection,
            {
                "group.id": "millstream-reader",  # librdkafka needs one; without subscribing none is joined
                "enable.auto.commit": False,
                "enable.partition.eof": stops is not None,
                "auto.offset.reset": "error",
                **(properties or {}),
            },
            on_unreadable,
        )
        self._on_gap = on_gap
        self._next = dict(starts)
        self._stops = None if stops is None else dict(stops)
        if self._stops is not None:
            self._stops = {
                partition: stop for partition, stop in self._stops.items() if starts[partition] < stop
            }
        reading = starts if self._stops is None else self._stops
        self._consumer.assign([to_librdkafka(partition, starts[partition]) for partition in reading])

    @property
    def finished(self) -> bool:
        return self._stops is not None and not self._stops

    def partitions(self) -> Iterable[TopicPartition]:
        return self._next.keys()

    def add(self, starts: Mapping[TopicPartition, int]) -> None:
        """Follow further partitions, such as those of a newly created topic."""
        self._next.update(starts)
        self._consumer.incremental_assign([to_librdkafka(partition, at) for partition, at in starts.items()])

    def topics(self, timeout: float) -> dict[str, int]:
        """Topics with their current number of partitions; empty if the broker is briefly away."""
        from confluent_kafka import KafkaException

        try:
            metadata = self._consumer.list_topics(timeout=timeout)
        except KafkaException:
            return {}
        return {name: len(topic.partitions) for name, topic in metadata.topics.items()}

    def read(self, most: int, wait: float) -> list[Any]:
        """Up to ``most`` records, in order within each partition; empty if none came in ``wait`` seconds."""
        records = []
        following, stops = self._next, self._stops
        for message in self._arrived(most, wait):
            place = (message.topic(), message.partition())  # equal to a TopicPartition, and much cheaper
            error = message.error()
            if error is not None:
                self._event(TopicPartition(*place), message, error)
                continue
            offset = message.offset()
            following[place] = offset + 1  # type: ignore[index]
            if stops is not None:
                stop = stops.get(place)  # type: ignore[call-overload]
                if stop is None:
                    continue  # the rest of a batch after its partition has reached its stop
                if offset >= stop - 1:
                    self.leave(TopicPartition(*place))
                    if offset >= stop:
                        continue
            records.append(message)
        return records

    def _event(self, partition: TopicPartition, message: Any, error: Any) -> None:
        if error.code() == self._partition_end:
            # The last offsets before a stop may belong to no record that a reader sees (transaction markers,
            # compaction). Then only this event shows that the stop is reached.
            if self._stops is not None and message.offset() >= self._stops.get(partition, 0):
                self.leave(partition)
        elif error.name() in ("_AUTO_OFFSET_RESET", "OFFSET_OUT_OF_RANGE"):
            self._skip_gap(partition)
        elif error.name() in _NO_BATCH:
            self._suspects.add(partition)
        elif not error.retriable():
            raise failure(error, self.connection, f"can't read {partition}", complaints=self._complaints)

    def _skip_gap(self, partition: TopicPartition) -> None:
        from confluent_kafka import KafkaException

        there = to_librdkafka(partition)
        try:
            start, end = self._consumer.get_watermark_offsets(there, timeout=self.connection.patience)
        except KafkaException as error:
            raise failure(error.args[0], self.connection, complaints=self._complaints) from None
        wanted = self._next[partition]
        at = start if wanted > end else max(start, wanted)
        if at != wanted and self._on_gap is not None:
            self._on_gap(Gap(partition, wanted, at))
        self._move(partition, at)

    def _positions(self) -> dict[TopicPartition, int]:
        return {place: at for place, at in self._next.items() if self._stops is None or place in self._stops}

    def _move(self, place: TopicPartition, offset: int) -> None:
        self._next[place] = offset
        if self._stops is not None and offset >= self._stops[place]:
            self.leave(place)
            return
        self._consumer.incremental_unassign([to_librdkafka(place)])
        self._consumer.incremental_assign([to_librdkafka(place, offset)])

    def leave(self, partition: TopicPartition) -> None:
        """Stop reading a partition, as if its stop were reached."""
        if self._stops is not None and self._stops.pop(partition, None) is not None:
            self._consumer.incremental_unassign([to_librdkafka(partition)])


class GroupConsumer(BatchConsumer):
    """A member of a consumer group. Records count as read once they are marked ``done``."""

    def __init__(
        self,
        connection: Connection,
        group: str,
        topics: Sequence[str],
        *,
        from_start: bool = False,
        on_unreadable: Callable[[Unreadable], None] | None = None,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        """``topics`` are names, or patterns that begin with ``^``. ``on_unreadable``: see PartitionReader."""
        super().__init__(
            connection,
            {
                "group.id": group,
                "enable.auto.commit": True,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest" if from_start else "latest",
                "partition.assignment.strategy": "cooperative-sticky",
                "topic.metadata.refresh.interval.ms": 10_000,
                **(properties or {}),
            },
            on_unreadable,
        )
        self._from_start = from_start
        self._consumer.subscribe(list(topics))

    def read(self, most: int, wait: float) -> list[Any]:
        """Up to ``most`` records of this member's partitions; empty if none came in ``wait`` seconds."""
        records = []
        for message in self._arrived(most, wait):
            error = message.error()
            if error is None:
                records.append(message)
            elif error.name() in _NO_BATCH:
                self._suspects.add(TopicPartition(message.topic(), message.partition()))
            elif not (error.retriable() or error.name() in PASSING):
                raise failure(error, self.connection, "can't read", complaints=self._complaints)
        return records

    def _positions(self) -> dict[TopicPartition, int]:
        from confluent_kafka import KafkaException

        assigned = self._consumer.assignment()
        try:
            found = self._consumer.position(assigned)
            begun = [each for each in found if each.offset < 0]  # nothing came yet: use the committed offset
            if begun:
                found += self._consumer.committed(begun, timeout=self.connection.patience)
        except KafkaException:
            return {}  # the broker is briefly away
        known = {
            TopicPartition(each.topic, each.partition): each.offset for each in found if each.offset >= 0
        }
        if self._from_start:
            for each in assigned:
                start = self._consumer.get_watermark_offsets(each, cached=True)[0]
                known.setdefault(TopicPartition(each.topic, each.partition), max(0, start))
        return known

    def _move(self, place: TopicPartition, offset: int) -> None:
        self._consumer.seek(to_librdkafka(place, offset))

    def done(self, records: Iterable[Any]) -> None:
        """Mark records as processed. Their offsets go out with the next commit, at the latest on close."""
        from confluent_kafka import KafkaException

        last = {(record.topic(), record.partition()): record.offset() for record in records}
        try:
            self._consumer.store_offsets(
                offsets=[to_librdkafka(TopicPartition(*key), offset + 1) for key, offset in last.items()]
            )
        except KafkaException:
            # The partition has moved to another member, which reads these records again: at least once.
            return
