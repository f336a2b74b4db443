"""InitProducerId: the identity of an idempotent producer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from millstream.broker.codes import INVALID_REQUEST, NONE, TRANSACTIONAL_ID_AUTHORIZATION_FAILED
from millstream.broker.dispatch import Client, serves
from millstream.errors import RequestRefused
from millstream.wire.codec import Answer

if TYPE_CHECKING:
    from millstream.broker.node import Node

_log = logging.getLogger(__name__)


@serves(22, versions=(0, 5))
async def init_producer_id(node: Node, request: Any, client: Client) -> Answer:
    """A new id with epoch 0, always, as Kafka does for producers without a transactional id: one that asks to
    go on from its current id and epoch starts its sequences anew either way.

    Transactions are not served yet. Of the errors that could say so, clients retry most for ever; this one
    every client reports at once and gives up.
    """
    if request.transactional_id is not None:
        _log.warning(
            "client %s at %s asked for transactions (transactional.id %s), which are not served yet",
            client.client_id,
            client.host,
            request.transactional_id,
        )
        return _refused(TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    current_id, current_epoch = getattr(request, "producer_id", -1), getattr(request, "producer_epoch", -1)
    if (current_id < 0) != (current_epoch < 0):
        return _refused(INVALID_REQUEST)
    try:
        producer_id = await node.catalogue.new_producer_id()
    except RequestRefused as refused:
        return _refused(refused.code)
    return {"error_code": NONE, "producer_id": producer_id, "producer_epoch": 0}


def _refused(code: int) -> Answer:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
