"""DescribeCluster, DescribeQuorum, UnregisterBroker, DescribeLogDirs: the node and its disk."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from millstream.broker.api.handlers import serves
from millstream.broker.handler_types import Client
from millstream.broker.node import Node
from millstream.core.kafka_errors import (
    BROKER_ID_NOT_REGISTERED,
    INVALID_REQUEST,
    KAFKA_STORAGE_ERROR,
    NONE,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_ENDPOINT_TYPE,
)
from millstream.core.loop_slices import sliced
from millstream.wire.api_keys import DESCRIBE_CLUSTER, DESCRIBE_LOG_DIRS, DESCRIBE_QUORUM, UNREGISTER_BROKER
from millstream.wire.codec.schema_codec import Answer

# What a client may do with the cluster when there are no access rules, one bit each: create, alter,
# describe, cluster action, describe and alter settings, idempotent write.
_ALL_OPERATIONS = 1 << 5 | 1 << 7 | 1 << 8 | 1 << 9 | 1 << 10 | 1 << 11 | 1 << 12
_NOT_ASKED = -(2**31)
_BROKERS, _CONTROLLERS = 1, 2
_METADATA = "__cluster_metadata"
_MISMATCHED_ENDPOINT_TYPE = 114


@serves(DESCRIBE_CLUSTER, versions=(0, 2))
def describe_cluster(node: Node, request: Any, client: Client) -> Answer:
    endpoint = getattr(request, "endpoint_type", _BROKERS)
    answer = {
        "error_code": NONE,
        "endpoint_type": endpoint,
        "cluster_id": node.catalogue.cluster_id,
        "controller_id": node.role.leader_id,
        "cluster_authorized_operations": _ALL_OPERATIONS
        if request.include_cluster_authorized_operations
        else _NOT_ASKED,
    }
    if endpoint == _BROKERS:
        brokers = [
            {"broker_id": node_id, "host": host, "port": port, "is_fenced": False}
            for node_id, host, port in node.brokers
        ]
        return {**answer, "brokers": brokers}
    if endpoint == _CONTROLLERS:
        error, message = _MISMATCHED_ENDPOINT_TYPE, "this is the address of a broker, not of a controller"
    else:
        error, message = UNSUPPORTED_ENDPOINT_TYPE, f"there is no endpoint type {endpoint}"
    return {**answer, "error_code": error, "error_message": message}


@serves(DESCRIBE_QUORUM, versions=(0, 2))
def describe_quorum(node: Node, request: Any, client: Client) -> Answer:
    """The metadata quorum is this node alone. There is no metadata log, so its offsets are all 0."""
    now_ms = node.clock.now_ms()
    voter = {
        "replica_id": node.role.leader_id,
        "log_end_offset": 0,
        "last_fetch_timestamp": now_ms,
        "last_caught_up_timestamp": now_ms,
    }
    quorum = {"leader_id": node.role.leader_id, "high_watermark": 0, "current_voters": [voter]}
    topics = []
    for topic in request.topics:
        partitions: list[dict[str, Any]] = []
        for each in topic.partitions:
            found = topic.topic_name == _METADATA and each.partition_index == 0
            error = NONE if found else UNKNOWN_TOPIC_OR_PARTITION
            partitions.append(
                {"partition_index": each.partition_index, "error_code": error, **(quorum if found else {})}
            )
        topics.append({"topic_name": topic.topic_name, "partitions": partitions})
    listener = {"name": "PLAINTEXT", "host": node.role.host, "port": node.role.port}
    return {
        "error_code": NONE,
        "topics": topics,
        "nodes": [{"node_id": node.role.leader_id, "listeners": [listener]}],
    }


@serves(UNREGISTER_BROKER, versions=(0, 0))
def unregister_broker(node: Node, request: Any, client: Client) -> Answer:
    """Always refused: other brokers are not registered, and this one is needed."""
    if request.broker_id != node.role.leader_id:
        message = f"Broker ID {request.broker_id} is not currently registered"
        return {"error_code": BROKER_ID_NOT_REGISTERED, "error_message": message}
    return {"error_code": INVALID_REQUEST, "error_message": "this is the only broker; stop it instead"}


@serves(DESCRIBE_LOG_DIRS, versions=(1, 5))
def describe_log_dirs(node: Node, request: Any, client: Client) -> Answer:
    """The data directory. Partitions that are only in memory are shown as a separate directory."""
    asked: dict[str, dict[int, None]] = {}
    if request.topics is None:
        asked = {
            topic.name: dict.fromkeys(range(topic.partitions)) for topic in node.catalogue.topics.values()
        }
    else:
        for topic in request.topics:
            asked.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    on_disk: list[dict[str, Any]] = []
    in_memory: list[dict[str, Any]] = []
    for name, indexes in sliced(asked.items()):
        known = node.catalogue.topics.get(name)
        if known is None:
            continue
        partitions = [
            {
                "partition_index": index,
                "partition_size": partition.log.size_bytes,
                "offset_lag": 0,
                "is_future_key": False,
            }
            for index in sliced(indexes)
            if (partition := node.topics.partition(name, index)) is not None
        ]
        memory = not node.config.data or known.config.millstream_storage == "memory"
        (in_memory if memory else on_disk).append({"name": name, "partitions": partitions})
    results = []
    if node.config.data:
        results.append(_directory(Path(node.config.data), on_disk))
    if in_memory or not node.config.data:
        results.append({"error_code": NONE, "log_dir": "(memory)", "topics": in_memory})
    return {"error_code": NONE, "results": results}


def _directory(path: Path, topics: list[dict[str, Any]]) -> dict[str, Any]:
    try:
        space = shutil.disk_usage(path)
    except OSError:
        return {"error_code": KAFKA_STORAGE_ERROR, "log_dir": str(path.absolute()), "topics": []}
    return {
        "error_code": NONE,
        "log_dir": str(path.absolute()),
        "topics": topics,
        "total_bytes": space.total,
        "usable_bytes": space.free,
    }
