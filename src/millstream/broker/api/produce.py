"""Produce: append records to the log, and give the guarantee that ``acks`` asks for.

- ``acks=0``: no response. On an error the connection is closed, as in Kafka, so that the producer finds
  out.
- ``acks=1``: acknowledged when the records are written, that is, handed to the operating system.
- ``acks=all``: acknowledged when they are synced to disk (``broker.topics.syncing``). If the topic has
  ``min.insync.replicas`` above 1, standbys must have them too (``broker.standby.in_sync``).

The requests of one producer look alike up to the number of the partition, including any transactional id.
So that part of the last request is kept and compared. Only a request that differs is parsed in full.
"""

from __future__ import annotations

import math
from concurrent.futures import Future
from struct import Struct

from millstream.broker.api.handlers import serves_directly
from millstream.broker.api.node_connection import NodeConnection
from millstream.broker.api.repeated_requests import ProduceShape
from millstream.broker.net.connection import Slot
from millstream.broker.topics.batch_preparation import (
    BatchToPrepare,
    PreparedBatch,
    PreparedBatches,
    prepare_here,
    wanted_of,
)
from millstream.broker.topics.partition import LocalTopic, Partition
from millstream.broker.transactions.coordinator import IMPLICIT_FROM
from millstream.core.errors import AppendRefused, LogError, ProtocolError
from millstream.core.kafka_errors import (
    CONCURRENT_TRANSACTIONS,
    INVALID_REQUIRED_ACKS,
    KAFKA_STORAGE_ERROR,
    NOT_ENOUGH_REPLICAS,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from millstream.core.loop_slices import MANY, sliced
from millstream.log.transactions import RequestTransaction
from millstream.log.validation import CheckOnThread, Verdict
from millstream.wire.api_keys import PRODUCE
from millstream.wire.frame import HEAD_SIZE, INT, frame, skip_client_id
from millstream.wire.hot.produce import (
    FIRST,
    FLEXIBLE,
    LAST,
    MOST_PARTITIONS,
    PartitionRecords,
    PartitionResult,
    ProduceRequest,
    TooManyPartitions,
    produce_answer,
    read_produce,
)

# Advertised from 0: librdkafka silently stops compressing if the lowest version is higher.
serves_directly(PRODUCE, versions=(FIRST, LAST), advertised_from=0)

_AS_IT_IS = PreparedBatch()
MANY_PARTITIONS = 250  # partitions of one request from which it is processed in slices

_unpack_int = INT.unpack_from
_INDEX_AND_SIZE = Struct(">ii").unpack_from


def produce(
    connection: NodeConnection,
    buffer: bytearray,
    view: memoryview,
    position: int,
    stop: int,
    version: int,
    correlation_id: int,
) -> None:
    """Handle the request in ``buffer[position:stop]``."""
    position += HEAD_SIZE
    shape = connection.produce_shape
    if shape is not None and shape.version == version and buffer.startswith(shape.prefix, position):
        at = position + shape.size
        if at + 8 > stop:
            raise ProtocolError("sent a Produce request that is cut off")
        if version >= FLEXIBLE:
            (index,) = _unpack_int(buffer, at)
            # The size takes one to three bytes. Three empty tag sections follow the records.
            byte = buffer[at + 4]
            if byte < 0x80:
                size, start = byte - 1, at + 5
            else:
                size = byte & 0x7F
                byte = buffer[at + 5]
                if byte < 0x80:
                    size, start = (size | byte << 7) - 1, at + 6
                else:
                    size, start = (size | (byte & 0x7F) << 7 | buffer[at + 6] << 14) - 1, at + 7
            end = start + size
            usual = end + 3 == stop and buffer[end:stop] == b"\0\0\0"
        else:
            index, size = _INDEX_AND_SIZE(buffer, at)
            start = at + 8
            end = start + size
            usual = end == stop
        partitions = shape.topic.direct
        if usual and 0 <= index < len(partitions):
            partition = partitions[index]
            acks, transaction = shape.acks, shape.transaction
            try:
                _append_one(
                    connection, partition, view[start:end], version, correlation_id, acks, transaction
                )
                return
            except CheckOnThread:
                pass  # nothing has changed yet; threads check the records first
    _produce_any(connection, buffer, view, position, stop, version, correlation_id)


def _append_one(
    connection: NodeConnection,
    partition: Partition,
    records: bytearray | memoryview,
    version: int,
    correlation_id: int,
    acks: int,
    transaction: RequestTransaction | None,
    verdict: Verdict | None = None,
) -> None:
    """Handle the usual request: one batch for one partition."""
    turn = connection.turn
    if not turn.scheduled:
        turn.schedule()
    try:
        base_offset, append_time, start_offset, _ = partition.log.append(
            records, turn.now_ms, transaction, verdict
        )
    except LogError as error:
        refused = _refused(connection, partition.index, error, version)
        _answer(connection, version, correlation_id, acks, [(partition.topic, [refused])])
        return
    if not partition.is_staged:
        partition.is_staged = True
        turn.partitions.append(partition)
    connection.appended_in = turn.number
    partition.turn_bytes += len(records)
    if acks == 1 and not connection.pending and version >= 5 and not partition.log.syncs_every_append:
        out = connection.out
        partition.unwritten.append((connection, len(out), correlation_id, version))
        pack, size, before, after = partition.acks.get(version) or partition.ack(version)
        out.append(pack(size, correlation_id, before, 0, base_offset, append_time, start_offset, after))
        # Inlines connection.answer: this path is most of what a busy broker does.
        connection.outbox.unsent += size + 4
        if not connection.queued:
            connection.queued = True
            turn.connections.append(connection)
    elif acks == 0:
        partition.unwritten.append((connection, -1, correlation_id, version))
    else:
        slot = ProduceSlot(connection, version, correlation_id, acks)
        result = PartitionResult(partition.index, 0, base_offset, append_time, start_offset)
        slot.results = [(partition.topic, [result])]
        slot.places = [(0, 0)]
        slot.left = 1
        connection.place(slot)
        partition.unsettled.append((slot, 0))


class ProduceSlot(Slot):
    """A Produce whose response waits until its records are as safe as ``acks`` asks for."""

    __slots__ = (
        "acks",
        "correlation_id",
        "left",
        "needs_sync",
        "places",
        "results",
        "throttle_ms",
        "timeout_ms",
        "version",
    )

    def __init__(
        self, connection: NodeConnection, version: int, correlation_id: int, acks: int, timeout_ms: int = -1
    ) -> None:
        super().__init__(connection)
        self.version = version
        self.correlation_id = correlation_id
        self.acks = acks
        self.needs_sync = acks == -1
        self.results: list[tuple[LocalTopic | str | bytes, list[PartitionResult]]] = []
        self.places: list[tuple[int, int]] = []  # where the records are in the results
        self.left = 0  # waits for: each partition's outcome, the appends, its release if held
        self.throttle_ms = 0
        self.timeout_ms = timeout_ms

    def released(self, throttle_ms: int) -> None:
        """Consumers were behind and have caught up, or its time to be held is over."""
        self.throttle_ms = max(self.throttle_ms, throttle_ms)
        self._one_less()

    def appended(self) -> None:
        """All of its records were passed to their logs."""
        self._one_less()

    def settled(self, place: int, failure: LogError | None) -> None:
        if failure is not None:
            topic, partition = self.places[place]
            results = self.results[topic][1]
            results[partition] = PartitionResult(
                results[partition].partition, failure.code, message=str(failure)
            )
        self._one_less()

    def _one_less(self) -> None:
        self.left -= 1
        if self.left == 0:
            if self.acks == 0:
                if any(result.error for _, results in self.results for result in results):
                    self.connection.close_when_answered()
                return
            if len(self.places) > MANY_PARTITIONS:
                self.connection.in_slices(self._acknowledge)
            else:
                self._acknowledge()

    def _acknowledge(self) -> None:
        data = _encode(self.version, self.correlation_id, self.results, self.throttle_ms)
        self.resolve([data], len(data))


def _produce_any(
    connection: NodeConnection,
    buffer: bytearray,
    view: memoryview,
    position: int,
    stop: int,
    version: int,
    correlation_id: int,
) -> None:
    """Handle a request with any number of topics and partitions."""
    if not FIRST <= version <= LAST:
        raise ProtocolError(f"asks for Produce version {version}, which is not served here")
    header_at = position
    position = skip_client_id(buffer, position, stop, version >= FLEXIBLE)
    try:
        request = read_produce(buffer, position, stop, version, most=MANY_PARTITIONS)
    except TooManyPartitions:
        copy = bytearray(view[header_at:stop])
        body_at = position - header_at

        def work() -> None:
            whole = read_produce(copy, body_at, len(copy), version, most=MOST_PARTITIONS)
            _handle(connection, whole, memoryview(copy), 0, len(copy), version, correlation_id)

        connection.in_slices(work)
    else:
        _handle(connection, request, view, header_at, stop, version, correlation_id)


def _handle(
    connection: NodeConnection,
    request: ProduceRequest,
    view: memoryview,
    header_at: int,
    stop: int,
    version: int,
    correlation_id: int,
) -> None:
    if request.acks not in (0, 1, -1):
        _refuse_all(connection, request, version, correlation_id)
        return
    wants = wanted_of(request, connection.node.hosted, view)
    prepared = prepare_here(view, wants, connection.shared.clock.now_ms())
    if prepared is None:
        _prepare_apart(connection, request, wants, view[header_at:stop], header_at, version, correlation_id)
    else:
        _append_all(connection, request, prepared, view, header_at, stop, version, correlation_id)


def _prepare_apart(
    connection: NodeConnection,
    request: ProduceRequest,
    wants: list[BatchToPrepare],
    received: memoryview,
    shift: int,
    version: int,
    correlation_id: int,
) -> None:
    """Have threads prepare the request's batches, then continue with it.

    Until then the connection is held, because requests of one connection take effect in order. This is
    done even for clients that have left: with acks=0 they do not wait.
    """
    shared, preparer = connection.shared, connection.node.preparer
    size = len(received)
    frame = shared.buffers.take(size)
    frame[:size] = received
    view = memoryview(frame)

    def ended(found: Future[tuple[ProduceRequest, PreparedBatches]]) -> None:
        def append() -> None:
            copied, prepared = found.result()
            _append_all(connection, copied, prepared, view, 0, size, version, correlation_id)

        connection.proceed(append, "Produce", version, then=give_back)

    def give_back() -> None:
        view.release()
        shared.buffers.give_back(frame)

    connection.occupy()
    preparer.prepare(frame, request, shift, wants, shared.clock.now_ms(), ended)


def _append_all(
    connection: NodeConnection,
    request: ProduceRequest,
    prepared: PreparedBatches,
    view: memoryview,
    header_at: int,
    stop: int,
    version: int,
    correlation_id: int,
) -> None:
    """Append every batch of the request. The shape of a request with one batch is kept for the next one."""
    transaction = None if request.transactional_id is None else (request.transactional_id, version)
    meter = connection.produce_meter
    throttle_ms = 0
    if meter is not None:
        seconds = meter.count(stop - header_at, connection.shared.clock.monotonic())
        if seconds > 0:
            throttle_ms = math.ceil(seconds * 1000)
            connection.mute(seconds)
    acks = request.acks
    topics = request.topics
    hosted = connection.node.hosted
    if len(topics) == 1 and len(topics[0][1]) == 1:
        topic = hosted.get(topics[0][0])
        (records,) = topics[0][1]
        if (
            topic is not None
            and 0 <= records.partition < len(topic.direct)
            and connection.produce_meter is None
        ):
            partition = topic.direct[records.partition]
            end = max(records.start, records.end)  # null counts as empty, and is refused as empty
            ready = prepared.get(records.start, _AS_IT_IS)
            batch = view[records.start : end] if ready.records is None else ready.records
            _append_one(
                connection, partition, batch, version, correlation_id, acks, transaction, ready.verdict
            )
            prefix = bytes(view[header_at : records.partition_at])
            connection.produce_shape = ProduceShape(version, prefix, acks, topic, transaction)
            return
    turn = connection.turn
    slot = ProduceSlot(connection, version, correlation_id, acks, max(0, request.timeout_ms))
    slot.throttle_ms = throttle_ms
    slot.left = 1  # for the appends themselves, which may take several turns
    told: list[Partition] = []
    guarded = False
    for key, wanted in topics if len(topics) < MANY else sliced(topics):
        topic = hosted.get(key)
        gate = None if topic is None else topic.gate
        results: list[PartitionResult] = []
        slot.results.append((topic if topic is not None else key, results))
        for records in wanted if len(wanted) < MANY else sliced(wanted):
            if not turn.scheduled:
                turn.schedule()
            ready = prepared.get(records.start, _AS_IT_IS)
            result, taken_by = _append(
                connection, turn.now_ms, topic, key, records, view, version, acks, transaction, ready
            )
            results.append(result)
            if taken_by is None:
                continue
            if gate is not None:
                guarded = True
                gate.lags[taken_by.index].took(records.end - records.start)
            # The end of the turn settles what was appended in it, so each partition has to be registered
            # at once.
            if not taken_by.is_staged:
                taken_by.is_staged = True
                turn.partitions.append(taken_by)
            taken_by.unsettled.append((slot, len(told)))
            slot.left += 1
            slot.places.append((len(slot.results) - 1, len(results) - 1))
            told.append(taken_by)
            connection.appended_in = turn.number
    if not told:
        _answer(connection, version, correlation_id, acks, slot.results, throttle_ms)
        return
    if acks != 0:
        connection.place(slot)
    if guarded and connection.node.backpressure.hold_if_behind(
        slot, told, transactional=request.transactional_id is not None, timeout_ms=request.timeout_ms
    ):
        slot.left += 1
    slot.appended()


def _append(
    connection: NodeConnection,
    now_ms: int,
    topic: LocalTopic | None,
    key: str | bytes,
    records: PartitionRecords,
    view: memoryview,
    version: int,
    acks: int,
    transaction: RequestTransaction | None,
    ready: PreparedBatch,
) -> tuple[PartitionResult, Partition | None]:
    """Append one partition's records. If they were taken, also returns the partition, which settles them."""
    index, _, start, end = records
    end = max(start, end)  # null counts as empty, and is refused as empty
    if topic is None:
        if isinstance(key, bytes):
            return PartitionResult(index, UNKNOWN_TOPIC_ID, message="no topic has this id"), None
        return PartitionResult(index, UNKNOWN_TOPIC_OR_PARTITION, message=f"there is no topic {key}"), None
    if not 0 <= index < len(topic.partitions):
        message = f"topic {topic.name} has no partition {index}"
        return PartitionResult(index, UNKNOWN_TOPIC_OR_PARTITION, message=message), None
    partition = topic.partitions[index]
    if acks == -1 and partition.in_sync is not None and partition.log.refusal is None:
        too_few = partition.in_sync.too_few(partition)
        if too_few is not None:
            return PartitionResult(index, too_few.code, message=str(too_few)), None
    try:
        batch = view[start:end] if ready.records is None else ready.records
        appended = partition.log.append(batch, now_ms, transaction, ready.verdict)
    except LogError as error:
        return _refused(connection, index, error, version), None
    partition.turn_bytes += end - start
    return (
        PartitionResult(index, 0, appended.base_offset, appended.log_append_time, appended.log_start_offset),
        partition,
    )


def _refused(connection: NodeConnection, index: int, error: LogError, version: int) -> PartitionResult:
    """The error in the form that this version expects.

    Clients that add partitions to their transactions themselves do not expect to wait here for the end of
    the previous transaction. But they do retry NOT_ENOUGH_REPLICAS.
    """
    code = error.code
    if code == KAFKA_STORAGE_ERROR:
        connection.shared.counters.storage_errors += 1
    elif code == CONCURRENT_TRANSACTIONS and version < IMPLICIT_FROM:
        code = NOT_ENOUGH_REPLICAS
    records = error.records if isinstance(error, AppendRefused) else ()
    return PartitionResult(index, code, message=str(error), records=records)


def _refuse_all(
    connection: NodeConnection, request: ProduceRequest, version: int, correlation_id: int
) -> None:
    message = f"acks is 0, 1 or -1 (all), not {request.acks}"
    hosted = connection.node.hosted
    _answer(
        connection,
        version,
        correlation_id,
        request.acks,
        [
            (
                hosted.get(key, key),
                [
                    PartitionResult(records.partition, INVALID_REQUIRED_ACKS, message=message)
                    for records in wanted
                ],
            )
            for key, wanted in request.topics
        ],
    )


def _answer(
    connection: NodeConnection,
    version: int,
    correlation_id: int,
    acks: int,
    results: list[tuple[LocalTopic | str | bytes, list[PartitionResult]]],
    throttle_ms: int = 0,
) -> None:
    if acks == 0:
        if any(result.error for _, of_topic in results for result in of_topic):
            connection.close_when_answered()
        return
    connection.answer(_encode(version, correlation_id, results, throttle_ms))


def _encode(
    version: int,
    correlation_id: int,
    results: list[tuple[LocalTopic | str | bytes, list[PartitionResult]]],
    throttle_ms: int = 0,
) -> bytes:
    named = [(*_names(topic), of_topic) for topic, of_topic in sliced(results)]
    body = produce_answer(version, named, throttle_ms)
    return frame(correlation_id, body, tags=version >= FLEXIBLE)


def _names(topic: LocalTopic | str | bytes) -> tuple[str, bytes]:
    if isinstance(topic, LocalTopic):
        return topic.name, topic.id_bytes
    return ("", topic) if isinstance(topic, bytes) else (topic, bytes(16))
