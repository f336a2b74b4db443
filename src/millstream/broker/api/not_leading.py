"""NOT_COORDINATOR responses of a broker that does not lead, for requests that only a leader may serve.

What a standby or a replaced leader knows about groups and transactions is outdated. If it answered, a
client could conclude that its group has committed no offset. The error makes clients look for the coordinator
again, and the response to that, like Metadata, names the leader. (Records and topics are refused where they
are written. An idempotent producer's id is requested from the leader: see ``broker.api.producers``.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.core.kafka_errors import (
    NONE,
    NOT_COORDINATOR,
    NOT_LEADER_OR_FOLLOWER,
    SHARE_SESSION_NOT_FOUND,
)
from millstream.wire.api_keys import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    ALTER_SHARE_GROUP_OFFSETS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_GROUPS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_TRANSACTIONS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
    SYNC_GROUP,
    TXN_OFFSET_COMMIT,
)
from millstream.wire.codec.schema_codec import Answer

_ERROR = {"error_code": NOT_COORDINATOR}


def _of_all(request: Any, version: int) -> Answer:
    return _ERROR


def _of_offsets(request: Any, version: int) -> Answer:
    return {"topics": _topics(request.topics)}


def _topics(topics: Any) -> list[dict[str, Any]]:
    return [
        {
            **({"name": topic.name} if hasattr(topic, "name") else {"topic_id": topic.topic_id}),
            "partitions": [{"partition_index": each.partition_index, **_ERROR} for each in topic.partitions],
        }
        for topic in topics
    ]


def _of_offset_fetch(request: Any, version: int) -> Answer:
    if version >= 8:
        return {"groups": [{"group_id": group.group_id, **_ERROR} for group in request.groups]}
    if version >= 2:
        return {"topics": [], **_ERROR}
    topics = [(topic.name, topic.partition_indexes) for topic in request.topics or ()]
    none = {"committed_offset": -1, "metadata": "", **_ERROR}
    return {
        "topics": [
            {"name": name, "partitions": [{"partition_index": index, **none} for index in indexes]}
            for name, indexes in topics
        ]
    }


def _of_added_partitions(request: Any, version: int) -> Answer:
    if version >= 4:
        return {"results_by_transaction": [], **_ERROR}
    return {
        "results_by_topic_v3_and_below": [
            {
                "name": topic.name,
                "results_by_partition": [
                    {"partition_index": index, "partition_error_code": NOT_COORDINATOR}
                    for index in topic.partitions
                ],
            }
            for topic in request.v3_and_below_topics
        ]
    }


def _of_groups(request: Any, version: int) -> Answer:
    return {"groups": [{"group_id": name, **_ERROR} for name in request.groups]}


def _of_described_groups(request: Any, version: int) -> Answer:
    return {"groups": [{"group_id": name, **_ERROR} for name in request.group_ids]}


def _of_share_offsets(request: Any, version: int) -> Answer:
    return {"groups": [{"group_id": group.group_id, **_ERROR} for group in request.groups]}


def _of_deleted_groups(request: Any, version: int) -> Answer:
    return {"results": [{"group_id": name, **_ERROR} for name in request.groups_names]}


def _of_transactions(request: Any, version: int) -> Answer:
    states = [{"transactional_id": name, **_ERROR} for name in request.transactional_ids]
    return {"transaction_states": states}


def _of_share_session(request: Any, **more: Any) -> Answer:
    """The partitions that the request names. One that names none has a session of another life of this
    broker: the client opens a new one, and names them all."""
    error = {
        "error_code": NOT_LEADER_OR_FOLLOWER,
        "current_leader": {"leader_id": -1, "leader_epoch": -1},
        **more,
    }
    return {
        "error_code": NONE if request.topics else SHARE_SESSION_NOT_FOUND,
        "responses": [
            {
                "topic_id": topic.topic_id,
                "partitions": [
                    {"partition_index": each.partition_index, **error} for each in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def _of_share_fetch(request: Any, version: int) -> Answer:
    return _of_share_session(request, records=b"")


def _of_share_acknowledge(request: Any, version: int) -> Answer:
    return _of_share_session(request)


REFUSED: dict[int, Callable[[Any, int], Answer]] = {
    OFFSET_COMMIT: _of_offsets,
    OFFSET_FETCH: _of_offset_fetch,
    JOIN_GROUP: _of_all,
    HEARTBEAT: _of_all,
    LEAVE_GROUP: _of_all,
    SYNC_GROUP: _of_all,
    DESCRIBE_GROUPS: _of_groups,
    LIST_GROUPS: _of_all,
    ADD_PARTITIONS_TO_TXN: _of_added_partitions,
    ADD_OFFSETS_TO_TXN: _of_all,
    END_TXN: _of_all,
    TXN_OFFSET_COMMIT: _of_offsets,
    DELETE_GROUPS: _of_deleted_groups,
    OFFSET_DELETE: _of_all,
    DESCRIBE_TRANSACTIONS: _of_transactions,
    LIST_TRANSACTIONS: _of_all,
    SHARE_FETCH: _of_share_fetch,
    SHARE_ACKNOWLEDGE: _of_share_acknowledge,
    CONSUMER_GROUP_HEARTBEAT: _of_all,
    CONSUMER_GROUP_DESCRIBE: _of_described_groups,
    SHARE_GROUP_HEARTBEAT: _of_all,
    SHARE_GROUP_DESCRIBE: _of_described_groups,
    DESCRIBE_SHARE_GROUP_OFFSETS: _of_share_offsets,
    ALTER_SHARE_GROUP_OFFSETS: _of_all,
    DELETE_SHARE_GROUP_OFFSETS: _of_all,
}
