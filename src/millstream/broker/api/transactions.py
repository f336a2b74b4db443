"""AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, and administrators' requests.

The administrators' requests are DescribeTransactions, ListTransactions and WriteTxnMarkers.

Errors are Kafka's for the version of the request: a fenced producer gets PRODUCER_FENCED if its client
knows that error, and INVALID_PRODUCER_EPOCH otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from millstream.broker.api.groups.committed_offsets import offsets_to_commit, without_stale
from millstream.broker.api.handlers import serves
from millstream.broker.handler_types import Client
from millstream.broker.node import Node
from millstream.broker.topics.partition import Partition
from millstream.broker.transactions.transaction import ProducerIdentity, TxnState
from millstream.core.errors import CatalogueFailed, LogError, RequestRefused
from millstream.core.kafka_errors import (
    CONCURRENT_TRANSACTIONS,
    COORDINATOR_LOAD_IN_PROGRESS,
    COORDINATOR_NOT_AVAILABLE,
    INVALID_PRODUCER_EPOCH,
    INVALID_REGULAR_EXPRESSION,
    INVALID_REQUEST,
    INVALID_TXN_STATE,
    NONE,
    OPERATION_NOT_ATTEMPTED,
    PRODUCER_FENCED,
    TRANSACTION_ABORTABLE,
    TRANSACTIONAL_ID_NOT_FOUND,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from millstream.core.loop_slices import sliced
from millstream.core.user_regex import BadPattern, compile_pattern
from millstream.wire.api_keys import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    LIST_TRANSACTIONS,
    TXN_OFFSET_COMMIT,
    WRITE_TXN_MARKERS,
)
from millstream.wire.codec.schema_codec import Answer, Lazily

_BATCHED_FROM = 4  # AddPartitionsToTxn: many transactions at once, from other brokers
_FENCED_FROM = 2  # these requests know PRODUCER_FENCED from this version on
_SECOND_PROTOCOL_FROM = 5  # EndTxn and TxnOffsetCommit
_ABORTABLE_FROM = 4  # TxnOffsetCommit knows TRANSACTION_ABORTABLE
_STATES = {state.value: state for state in TxnState} | {"PrepareEpochFence": None}


def told(refused: RequestRefused, version: int, fenced_from: int = _FENCED_FROM) -> int:
    """The error code for a request of this version."""
    if isinstance(refused, CatalogueFailed):
        return COORDINATOR_NOT_AVAILABLE  # clients retry
    if refused.code == PRODUCER_FENCED and version < fenced_from:
        return INVALID_PRODUCER_EPOCH
    return refused.code


# Adding to a transaction


@serves(ADD_PARTITIONS_TO_TXN, versions=(0, 5))
async def add_partitions_to_txn(node: Node, request: Any, client: Client) -> Answer:
    if client.version < _BATCHED_FROM:
        results = await _add_partitions(
            node,
            request.v3_and_below_transactional_id,
            ProducerIdentity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            request.v3_and_below_topics,
            client.version,
        )
        return {"results_by_topic_v3_and_below": results}
    return {
        "error_code": NONE,
        "results_by_transaction": [
            {
                "transactional_id": each.transactional_id,
                "topic_results": await _add_partitions(
                    node,
                    each.transactional_id,
                    ProducerIdentity(each.producer_id, each.producer_epoch),
                    each.topics,
                    client.version,
                    verify_only=each.verify_only,
                ),
            }
            for each in request.transactions
        ],
    }


async def _add_partitions(
    node: Node, name: str, producer: ProducerIdentity, topics: Any, version: int, *, verify_only: bool = False
) -> list[dict[str, Any]]:
    """Add all partitions, or none."""
    found = [node.topics.partition(topic.name, index) for topic in topics for index in topic.partitions]
    partitions = [partition for partition in found if partition is not None]
    if len(partitions) < len(found):
        codes = [
            UNKNOWN_TOPIC_OR_PARTITION if partition is None else OPERATION_NOT_ATTEMPTED
            for partition in found
        ]
    else:
        codes = await _add_known(node, name, producer, partitions, version, verify_only)
    errors = iter(codes)
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": next(errors)} for index in topic.partitions
            ],
        }
        for topic in topics
    ]


async def _add_known(
    node: Node,
    name: str,
    producer: ProducerIdentity,
    partitions: Sequence[Partition],
    version: int,
    verify_only: bool,
) -> list[int]:
    try:
        if not name:
            raise RequestRefused(INVALID_REQUEST, "no transactional id")
        if verify_only:
            return node.transactions.verify(name, producer, partitions)
        await node.transactions.add_partitions(name, producer, partitions)
    except RequestRefused as refused:
        return [told(refused, version)] * len(partitions)
    return [NONE] * len(partitions)


@serves(ADD_OFFSETS_TO_TXN, versions=(0, 4))
async def add_offsets_to_txn(node: Node, request: Any, client: Client) -> Answer:
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        if not request.transactional_id:
            raise RequestRefused(INVALID_REQUEST, "no transactional id")
        await node.transactions.add_group(request.transactional_id, producer, request.group_id)
    except RequestRefused as refused:
        return {"error_code": told(refused, client.version)}
    return {"error_code": NONE}


@serves(TXN_OFFSET_COMMIT, versions=(0, 5))
async def txn_offset_commit(node: Node, request: Any, client: Client) -> Answer:
    """Add offsets that are committed if the transaction is.

    The group is checked first: a member that it has removed must not move its offsets, whatever becomes
    of the transaction.
    """
    commits, topics, good = offsets_to_commit(node, request.topics, expire_ms=-1)
    error = node.coordinator.offsets.check_commit(
        request.group_id,
        getattr(request, "member_id", ""),
        getattr(request, "group_instance_id", None),
        getattr(request, "generation_id", -1),
        transactional=True,
    )
    if not error:
        commits, good = without_stale(node, request, getattr(request, "generation_id", -1), commits, good)
        try:
            await node.transactions.add_offsets(
                request.transactional_id,
                ProducerIdentity(request.producer_id, request.producer_epoch),
                request.group_id,
                commits,
                implicit=client.version >= _SECOND_PROTOCOL_FROM,
            )
        except RequestRefused as refused:
            error = _told_of_offsets(refused, client.version)
    if error:
        for answer in sliced(good):
            answer["error_code"] = error
    return {"topics": topics}


def _told_of_offsets(refused: RequestRefused, version: int) -> int:
    code = told(refused, version)
    if code == PRODUCER_FENCED:
        return INVALID_PRODUCER_EPOCH  # group coordinators send no other, in any version
    if code == TRANSACTION_ABORTABLE and version < _ABORTABLE_FROM:
        return INVALID_TXN_STATE
    if code == CONCURRENT_TRANSACTIONS and version < _SECOND_PROTOCOL_FROM:
        return COORDINATOR_LOAD_IN_PROGRESS  # old clients retry this one
    return code


# Ending transactions


@serves(END_TXN, versions=(0, 5))
async def end_txn(node: Node, request: Any, client: Client) -> Answer:
    second_protocol = client.version >= _SECOND_PROTOCOL_FROM
    try:
        if not request.transactional_id:
            raise RequestRefused(INVALID_REQUEST, "no transactional id")
        copies = node.transactions.copies(request.transactional_id) if request.committed else 1
        node.in_sync.check_catalogue(copies)
        producer = await node.transactions.end(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            commit=request.committed,
            second_protocol=second_protocol,
        )
        await node.in_sync.have_catalogue(copies)
    except RequestRefused as refused:
        return {"error_code": told(refused, client.version), "producer_id": -1, "producer_epoch": -1}
    return {"error_code": NONE, "producer_id": producer.producer_id, "producer_epoch": producer.epoch}


@serves(WRITE_TXN_MARKERS, versions=(1, 2))
async def write_txn_markers(node: Node, request: Any, client: Client) -> Answer:
    """Write markers for a transaction that hangs in a partition and belongs to no transactional id.

    The response is sent when they are synced.
    """
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {
                                "partition_index": index,
                                "error_code": await _write_marker(node, marker, topic.name, index),
                            }
                            for index in topic.partition_indexes
                        ],
                    }
                    for topic in marker.topics
                ],
            }
            for marker in request.markers
        ]
    }


async def _write_marker(node: Node, marker: Any, topic: str, index: int) -> int:
    partition = node.topics.partition(topic, index)
    if partition is None:
        return UNKNOWN_TOPIC_OR_PARTITION
    try:
        await node.transactions.write_marker(
            partition,
            ProducerIdentity(marker.producer_id, marker.producer_epoch),
            commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
        )
    except LogError as error:
        return error.code
    return NONE


# For administrators


@serves(DESCRIBE_TRANSACTIONS, versions=(0, 0))
def describe_transactions(node: Node, request: Any, client: Client) -> Answer:
    asked = tuple(dict.fromkeys(request.transactional_ids))
    return {"transaction_states": Lazily(asked, partial(_described, node))}


def _described(node: Node, name: str) -> dict[str, Any]:
    found = node.transactions.describe(name) if name else None
    if found is None:
        error = TRANSACTIONAL_ID_NOT_FOUND if name else INVALID_REQUEST
        return {"error_code": error, "transactional_id": name, "producer_id": 0, "producer_epoch": 0}
    transaction = found.transaction
    topics: dict[str, list[int]] = {}
    for topic, index in found.partitions:
        topics.setdefault(topic, []).append(index)
    return {
        "error_code": NONE,
        "transactional_id": name,
        "transaction_state": transaction.state.value,
        "transaction_timeout": transaction.timeout_ms,
        "transaction_start_time": transaction.start_ms,
        "producer_id": transaction.producer.producer_id,
        "producer_epoch": transaction.producer.epoch,
        "topics": [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()],
    }


@serves(LIST_TRANSACTIONS, versions=(0, 2))
def list_transactions(node: Node, request: Any, client: Client) -> Answer:
    """A transaction must match every given filter. The duration matches those that are open for longer."""
    states = {_STATES.get(name) for name in request.state_filters}
    unknown = [name for name in request.state_filters if name not in _STATES]
    producer_ids = set(request.producer_id_filters)
    at_least_ms = getattr(request, "duration_filter", -1)
    pattern = getattr(request, "transactional_id_pattern", None)
    try:
        matches = compile_pattern(pattern) if pattern else None
    except BadPattern:
        return {"error_code": INVALID_REGULAR_EXPRESSION}
    now_ms = node.clock.now_ms()
    return {
        "error_code": NONE,
        "unknown_state_filters": unknown,
        "transaction_states": [
            {
                "transactional_id": transaction.name,
                "producer_id": transaction.producer.producer_id,
                "transaction_state": transaction.state.value,
            }
            for transaction in sliced(node.transactions.transactions())
            if (not request.state_filters or transaction.state in states)
            and (not producer_ids or transaction.producer.producer_id in producer_ids)
            and (
                at_least_ms < 0 or (transaction.is_unfinished and now_ms - transaction.start_ms > at_least_ms)
            )
            and (matches is None or matches(transaction.name))
        ],
    }
