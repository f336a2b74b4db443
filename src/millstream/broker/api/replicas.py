"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments, AlterReplicaLogDirs on one node.

Every partition has one replica here, and it leads. So no election is ever needed, and the only possible
reassignment is the present one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from millstream.broker.api.handlers import serves
from millstream.broker.handler_types import Client
from millstream.broker.node import Node
from millstream.core.kafka_errors import (
    ELECTION_NOT_NEEDED,
    INVALID_REPLICA_ASSIGNMENT,
    INVALID_REQUEST,
    LOG_DIR_NOT_FOUND,
    NO_REASSIGNMENT_IN_PROGRESS,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from millstream.wire.api_keys import (
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_REPLICA_LOG_DIRS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
)
from millstream.wire.codec.schema_codec import Answer

_ELECTIONS = (0, 1)  # of the preferred replica, of any replica

_Outcome = tuple[int, str | None]  # an error code and its message


@serves(ELECT_LEADERS, versions=(0, 2))
def elect_leaders(node: Node, request: Any, client: Client) -> Answer:
    """Elects nothing: every partition has its leader.

    The response to a request for all partitions names only those that were elected, so it names none.
    """
    kind = getattr(request, "election_type", 0)
    if request.topic_partitions is None:
        return {
            "error_code": NONE,
            "replica_election_results": [
                {"topic": topic.name, "partition_result": []} for topic in node.topics
            ],
        }
    results = []
    for topic in request.topic_partitions:
        partitions = []
        for index in topic.partitions:
            error, message = _elected(node, topic.topic, index)
            if kind not in _ELECTIONS:
                error, message = INVALID_REQUEST, f"Unknown election type {kind}"
            partitions.append({"partition_id": index, "error_code": error, "error_message": message})
        results.append({"topic": topic.topic, "partition_result": partitions})
    return {
        "error_code": NONE if kind in _ELECTIONS else INVALID_REQUEST,
        "replica_election_results": results,
    }


def _elected(node: Node, name: str, index: int) -> _Outcome:
    if name not in node.hosted:
        return UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
    if node.topics.partition(name, index) is None:
        return UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
    return ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."


@serves(ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1))
def alter_partition_reassignments(node: Node, request: Any, client: Client) -> Answer:
    responses = []
    for topic in request.topics:
        partitions = []
        for partition in topic.partitions:
            error, message = _reassigned(node, topic.name, partition.partition_index, partition.replicas)
            partitions.append(
                {
                    "partition_index": partition.partition_index,
                    "error_code": error,
                    "error_message": message,
                }
            )
        responses.append({"name": topic.name, "partitions": partitions})
    return {
        "allow_replication_factor_change": getattr(request, "allow_replication_factor_change", True),
        "error_code": NONE,
        "error_message": None,
        "responses": responses,
    }


def _reassigned(node: Node, name: str, index: int, replicas: Sequence[int] | None) -> _Outcome:
    if name not in node.hosted:
        return UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
    if node.topics.partition(name, index) is None:
        return UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}."
    if replicas is None:
        return NO_REASSIGNMENT_IN_PROGRESS, None
    here = node.role.leader_id
    wrong = None
    if not replicas:
        wrong = "an empty replica list."
    elif strangers := [broker for broker in replicas if broker != here]:
        wrong = f"broker {strangers[0]}, but no such broker is registered."
    elif len(replicas) > 1:
        wrong = f"the broker {here} more than once."
    if wrong is not None:
        return INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {wrong}"
    return NONE, None


@serves(LIST_PARTITION_REASSIGNMENTS, versions=(0, 0))
def list_partition_reassignments(node: Node, request: Any, client: Client) -> Answer:
    """There is never a reassignment in progress."""
    return {"error_code": NONE, "error_message": None, "topics": []}


@serves(ALTER_REPLICA_LOG_DIRS, versions=(1, 2))
def alter_replica_log_dirs(node: Node, request: Any, client: Client) -> Answer:
    """There is one directory. Partitions that are in it stay there, and any other directory is not found."""
    outcomes: dict[str, dict[int, int]] = {}
    here = str(Path(node.logs.data_path).absolute()) if node.logs.data_path else None
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                error = NONE
                if directory.path != here:
                    error = LOG_DIR_NOT_FOUND
                elif node.topics.partition(topic.name, index) is None:
                    error = UNKNOWN_TOPIC_OR_PARTITION
                outcomes.setdefault(topic.name, {})[index] = error
    return {
        "results": [
            {
                "topic_name": name,
                "partitions": [
                    {"partition_index": index, "error_code": error} for index, error in indexes.items()
                ],
            }
            for name, indexes in outcomes.items()
        ]
    }
