"""InitProducerId, DescribeCluster and DescribeLogDirs, in every version served."""

from __future__ import annotations

import asyncio

import pytest

from millstream.broker.node import Node
from tests.support.asking import Run, ask, versions


@pytest.mark.parametrize("version", versions(22))
def test_every_producer_gets_an_id_of_its_own(node: Node, run: Run, version: int) -> None:
    async def many() -> list[tuple[int, int, int]]:
        answers = await asyncio.gather(
            *[ask(node, 22, version, transactional_id=None, transaction_timeout=1000) for _ in range(20)]
        )
        return [(int(a.error_code), a.producer_id, a.producer_epoch) for a in answers]

    answers = run(many())
    assert {(error, epoch) for error, _, epoch in answers} == {(0, 0)}
    assert len({producer_id for _, producer_id, _ in answers}) == 20


@pytest.mark.parametrize("version", versions(22, 3))
def test_a_producer_that_asks_to_go_on_gets_a_new_id(node: Node, run: Run, version: int) -> None:
    fields = {"transactional_id": None, "transaction_timeout": 1000}
    first = run(ask(node, 22, version, **fields))
    again = run(ask(node, 22, version, producer_id=first.producer_id, producer_epoch=0, **fields))
    assert again.error_code == 0
    assert again.producer_id != first.producer_id
    for odd in ({"producer_id": 5}, {"producer_epoch": 5}):
        assert run(ask(node, 22, version, **fields, **odd)).error_code == 42


@pytest.mark.parametrize("version", versions(60))
def test_the_cluster_is_this_node(node: Node, run: Run, version: int) -> None:
    answer = run(ask(node, 60, version, include_cluster_authorized_operations=True, endpoint_type=1))
    assert (answer.error_code, answer.cluster_id) == (0, node.catalogue.cluster_id)
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port) == (7, "broker.example", 9092)
    assert answer.controller_id == 7
    assert answer.cluster_authorized_operations > 0
    if version >= 1:
        for endpoint, code in ((2, 114), (3, 115)):
            answer = run(
                ask(node, 60, version, include_cluster_authorized_operations=False, endpoint_type=endpoint)
            )
            assert answer.error_code == code
            assert answer.error_message


@pytest.mark.parametrize("version", versions(35))
def test_log_directories_tell_sizes(node: Node, run: Run, version: int) -> None:
    run(node.topic_admin.create("t", 2, {}))
    answer = run(ask(node, 35, version, topics=None))
    (directory,) = answer.results
    assert (directory.error_code, directory.log_dir) == (0, "(memory)")
    (topic,) = directory.topics
    assert topic.name == "t"
    assert [(p.partition_index, p.partition_size, p.offset_lag) for p in topic.partitions] == [
        (0, 0, 0),
        (1, 0, 0),
    ]
    asked = [{"topic": "t", "partitions": [1, 9]}, {"topic": "nowhere", "partitions": [0]}]
    answer = run(ask(node, 35, version, topics=asked))
    (topic,) = answer.results[0].topics
    assert [p.partition_index for p in topic.partitions] == [1]
