"""DescribeClientQuotas and AlterClientQuotas: keep and show quotas; ``broker.net.throttling`` enforces
them."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import Any

from millstream.broker.api.handlers import serves
from millstream.broker.catalogue.quotas import changed, check_entity, check_filters, matches
from millstream.broker.handler_types import Client
from millstream.broker.node import Node
from millstream.core.errors import RequestRefused
from millstream.core.kafka_errors import INVALID_REQUEST, NONE
from millstream.wire.api_keys import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from millstream.wire.codec.schema_codec import Answer


@serves(DESCRIBE_CLIENT_QUOTAS, versions=(0, 1))
def describe_client_quotas(node: Node, request: Any, client: Client) -> Answer:
    filters = [(each.entity_type, each.match_type, each.match) for each in request.components]
    try:
        check_filters(filters)
    except RequestRefused as refused:
        return {"error_code": refused.code, "error_message": str(refused), "entries": None}
    return {
        "error_code": NONE,
        "error_message": None,
        "entries": [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in sorted(entity)],
                "values": [{"key": key, "value": value} for key, value in quotas.items()],
            }
            for entity, quotas in node.catalogue.quotas.items()
            if matches(entity, filters, strict=request.strict)
        ],
    }


@serves(ALTER_CLIENT_QUOTAS, versions=(0, 1))
async def alter_client_quotas(node: Node, request: Any, client: Client) -> Answer:
    """Entities are independent: an error in one does not keep the others from being changed."""
    results = []
    async with node.catalogue.altering:
        for entry in request.entries:
            # If an entity type is named twice, the last one counts.
            entity = frozenset({each.entity_type: each.entity_name for each in entry.entity}.items())
            error, message = NONE, None
            try:
                await _alter(node, entity, entry, request.validate_only)
            except RequestRefused as refused:
                error, message = refused.code, str(refused)
            results.append(
                {
                    "error_code": error,
                    "error_message": message,
                    "entity": [{"entity_type": kind, "entity_name": name} for kind, name in sorted(entity)],
                }
            )
    return {"entries": results}


async def _alter(
    node: Node, entity: frozenset[tuple[str, str | None]], entry: Any, validate_only: bool
) -> None:
    check_entity(sorted(entity, key=itemgetter(0)))
    for key, count in Counter(change.key for change in entry.ops).items():
        if count > 1:
            raise RequestRefused(INVALID_REQUEST, f"the request changes {key} {count} times")
    changes = [(change.key, None if change.remove else change.value) for change in entry.ops]
    quotas = changed(node.catalogue.quotas.get(entity, {}), entity, changes)
    if not validate_only:
        await node.set_quotas(entity, quotas)
