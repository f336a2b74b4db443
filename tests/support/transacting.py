"""Sends transactional requests for the topic "t" to a node's handlers, as a producer does."""

from __future__ import annotations

import asyncio
from typing import Any

from millstream.broker.node import Node
from millstream.broker.transactions.transaction import ProducerIdentity
from millstream.core.errors import AppendRefused
from tests.support.asking import ask
from tests.support.logs import a_transactional_batch

NAME = "payments-writer"
TIMEOUT_MS = 30_000


async def init(node: Node, version: int = 5, name: str = NAME, **fields: Any) -> Any:
    return await ask(
        node, 22, version, **{"transactional_id": name, "transaction_timeout": TIMEOUT_MS, **fields}
    )


async def producer(node: Node, version: int = 5, name: str = NAME, **fields: Any) -> ProducerIdentity:
    answer = await init(node, version, name, **fields)
    assert answer.error_code == 0
    return ProducerIdentity(answer.producer_id, answer.producer_epoch)


async def produce(
    node: Node,
    who: ProducerIdentity,
    index: int = 0,
    sequence: int = 0,
    *,
    version: int = 12,
    name: str = NAME,
) -> int:
    """Append as the Produce handler does, write and sync, and return an error code."""
    partition = node.topics.partition("t", index)
    assert partition is not None
    batch = a_transactional_batch(sequence, b"value", producer=who.producer_id, epoch=who.epoch)
    try:
        partition.log.append(batch, node.clock.now_ms(), (name, version))
    except AppendRefused as refused:
        return refused.code
    partition.log.write_staged()
    partition.log.sync()
    return 0


async def add(
    node: Node, who: ProducerIdentity, indexes: list[int], version: int = 3, topic: str = "t"
) -> list[int]:
    """Send AddPartitionsToTxn, and return the error codes."""
    topics = [{"name": topic, "partitions": indexes}]
    if version < 4:
        answer = await ask(
            node,
            24,
            version,
            v3_and_below_transactional_id=NAME,
            v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.epoch,
            v3_and_below_topics=topics,
        )
        results = answer.results_by_topic_v3_and_below
    else:
        answer = await ask(node, 24, version, transactions=[batched(who, topics, verify_only=False)])
        results = answer.results_by_transaction[0].topic_results
    return [int(each.partition_error_code) for result in results for each in result.results_by_partition]


def batched(who: ProducerIdentity, topics: list[dict[str, Any]], *, verify_only: bool) -> dict[str, Any]:
    return {
        "transactional_id": NAME,
        "producer_id": who.producer_id,
        "producer_epoch": who.epoch,
        "verify_only": verify_only,
        "topics": topics,
    }


async def add_group(node: Node, who: ProducerIdentity, version: int = 3, group: str = "g") -> int:
    answer = await ask(
        node, 25, version, transactional_id=NAME, producer_id=who.producer_id, producer_epoch=who.epoch,
        group_id=group,
    )  # fmt: skip
    return int(answer.error_code)


async def commit_offset(
    node: Node, who: ProducerIdentity, offset: int, version: int = 5, index: int = 0, **fields: Any
) -> int:
    answer = await ask(
        node,
        28,
        version,
        **{
            "transactional_id": NAME,
            "group_id": "g",
            "producer_id": who.producer_id,
            "producer_epoch": who.epoch,
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": "t", "partitions": [offset_of(index, offset)]}],
            **fields,
        },
    )
    return int(answer.topics[0].partitions[0].error_code)


def offset_of(index: int, offset: int) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": "m",
    }


async def end(node: Node, who: ProducerIdentity, *, commit: bool = True, version: int = 5) -> Any:
    return await ask(
        node, 26, version, transactional_id=NAME, producer_id=who.producer_id, producer_epoch=who.epoch,
        committed=commit,
    )  # fmt: skip


async def stable_offset(node: Node, version: int = 7, *, stable: bool = True) -> tuple[int, int]:
    """Send OffsetFetch for partition 0, and return the error code and the offset."""
    name = {"topic_id": node.catalogue.topics["t"].id} if version >= 10 else {"name": "t"}
    topics = [{**name, "partition_indexes": [0]}]
    if version < 8:
        answer = await ask(node, 9, version, group_id="g", topics=topics, require_stable=stable)
        (found,) = answer.topics[0].partitions
    else:
        answer = await ask(
            node, 9, version, groups=[{"group_id": "g", "topics": topics}], require_stable=stable
        )
        (found,) = answer.groups[0].topics[0].partitions
    return int(found.error_code), found.committed_offset


async def time_has_its_effect(node: Node) -> None:
    node.transactions.tick()
    await asyncio.gather(*node.transactions._tasks)
    await asyncio.sleep(0)


def held_back(node: Node) -> list[int]:
    """The partitions in which an open transaction holds readers of committed records back."""
    return [p.index for p in node.topics.partitions() if p.log.last_stable_offset < p.log.written_offset]
