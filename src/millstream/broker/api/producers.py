"""InitProducerId: the identity of an idempotent or transactional producer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from millstream.broker.api.handlers import serves
from millstream.broker.api.transactions import told
from millstream.broker.handler_types import Client
from millstream.broker.node import Node
from millstream.broker.transactions.transaction import NOBODY, ProducerIdentity
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import INVALID_REQUEST, NONE, NOT_COORDINATOR
from millstream.wire.api_keys import INIT_PRODUCER_ID
from millstream.wire.codec.schema_codec import Answer

_FENCED_FROM = 4  # from this version on the request knows PRODUCER_FENCED
_MILLISECOND = timedelta(milliseconds=1)


@serves(INIT_PRODUCER_ID, versions=(0, 6))
async def init_producer_id(node: Node, request: Any, client: Client) -> Answer:
    """Give out a producer id and epoch.

    Without a transactional id this is always a new id with epoch 0, as in Kafka: a producer that asks to
    continue from its current id and epoch starts its sequences at 0 either way. Any broker gives out such
    ids, even one that does not lead: librdkafka asks whichever broker it is connected to, and no other
    while that one responds.

    Version 6 is KIP-939's. Apache Kafka 4.3 has it and does not announce it. Clients that know it send it
    without its two flags unless they are told to use them, and then it means the same as version 5.
    """
    current = ProducerIdentity(getattr(request, "producer_id", -1), getattr(request, "producer_epoch", -1))
    if (current.producer_id < 0) != (current.epoch < 0):
        return _refused(INVALID_REQUEST)
    try:
        if request.transactional_id is None:
            producer, ongoing = ProducerIdentity(await node.new_producer_id(), 0), NOBODY
        elif node.role.is_follower:
            return _refused(NOT_COORDINATOR)
        else:
            producer, ongoing = await node.transactions.init(
                request.transactional_id,
                request.transaction_timeout // _MILLISECOND,
                current if current.producer_id >= 0 else None,
                two_phase=getattr(request, "enable2_pc", False),
                keep=getattr(request, "keep_prepared_txn", False),
            )
    except RequestRefused as refused:
        return _refused(told(refused, client.version, _FENCED_FROM))
    return {
        "error_code": NONE,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "ongoing_txn_producer_id": ongoing.producer_id,
        "ongoing_txn_producer_epoch": ongoing.epoch,
    }


def _refused(code: int) -> Answer:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
