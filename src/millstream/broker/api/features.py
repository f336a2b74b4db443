"""UpdateFeatures: the levels of Kafka's features, as shown by ApiVersions, can't be changed here.

This broker serves its features at fixed levels from the start. A request for the level in force succeeds.
Any other is refused with the reason.
"""

from __future__ import annotations

from typing import Any

from millstream.broker.api.handlers import serves
from millstream.broker.api.versions import FEATURES
from millstream.broker.handler_types import Client
from millstream.broker.node import Node
from millstream.core.kafka_errors import INVALID_UPDATE_VERSION, NONE
from millstream.wire.api_keys import UPDATE_FEATURES
from millstream.wire.codec.schema_codec import Answer

_UPGRADE, _UNSAFE_DOWNGRADE = 1, 3  # the safe downgrade is in between
_RESULTS_UNTIL = 1  # from version 2 on there is only one result for all


@serves(UPDATE_FEATURES, versions=(0, 2))
def update_features(node: Node, request: Any, client: Client) -> Answer:
    """All or nothing: the first wrong update is the error for all of them."""
    for update in request.feature_updates:
        wrong = _wrong(node, update)
        if wrong is not None:
            message = (
                "The update failed for all features since the following feature had an error: Invalid update "
                f"version {update.max_version_level} for feature {update.feature}. {wrong}"
            )
            return {"error_code": INVALID_UPDATE_VERSION, "error_message": message, "results": []}
    results = [
        {"feature": update.feature, "error_code": NONE, "error_message": None}
        for update in request.feature_updates
    ]
    return {
        "error_code": NONE,
        "error_message": None,
        "results": results if client.version <= _RESULTS_UNTIL else [],
    }


def _wrong(node: Node, update: Any) -> str | None:
    level = update.max_version_level
    kind = getattr(update, "upgrade_type", _UPGRADE)
    known = FEATURES.get(update.feature)
    here = f"Local controller {node.role.leader_id}"
    if not _UPGRADE <= kind <= _UNSAFE_DOWNGRADE:
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if known is None:
        return f"{here} does not support this feature."
    lowest, highest, in_force = known
    if not lowest <= level <= highest:
        return f"{here} only supports versions {lowest}-{highest}"
    if level == in_force:
        return None
    if kind == _UPGRADE and not getattr(update, "allow_downgrade", False):
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    return f"{here} serves it at level {in_force} for good; clients choose what they speak themselves."
