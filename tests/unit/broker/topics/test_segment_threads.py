"""What reads whole segments does not do so on the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from millstream.broker.node import Node
from millstream.core.errors import LogError
from millstream.log.segment import segments
from millstream.log.segment.time_search import Walk
from tests.support.asking import ask
from tests.support.logs import NOW, a_batch

Run = Callable[[Awaitable[Any]], Any]
LIST_OFFSETS, NEWEST = 2, -3


@pytest.fixture
def walked_by(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that walked over a segment."""
    names: list[str] = []
    batches = Walk.batches

    def noted(walk: Walk, *arguments: Any) -> Any:
        names.append(threading.current_thread().name)
        return batches(walk, *arguments)

    monkeypatch.setattr(Walk, "batches", noted)
    return names


def test_a_time_is_looked_for_by_another_thread(node: Node, run: Run, walked_by: list[str]) -> None:
    run(node.topic_admin.create("t", 2, {}))
    for index in range(2):
        partition = node.topics.partition("t", index)
        assert partition is not None
        for number in range(10):
            partition.log.append(a_batch(at=NOW + number), NOW)
        partition.log.write_staged()
        partition.log.append(a_batch(at=NOW + 99), NOW)  # staged: not there yet

    def found(timestamp: int) -> list[tuple[int, int, int]]:
        wanted = [
            {"partition_index": i, "current_leader_epoch": -1, "timestamp": timestamp} for i in range(2)
        ]
        topics = [{"name": "t", "partitions": wanted}]
        answer = run(ask(node, LIST_OFFSETS, 8, replica_id=-1, isolation_level=0, topics=topics))
        return [(p.error_code, p.offset, p.timestamp) for p in answer.topics[0].partitions]

    def told(*expected: int) -> list[tuple[int, ...]]:
        return [expected, expected]

    assert [(code, offset) for code, offset, _ in found(NOW + 4)] == told(0, 4)
    assert [(code, offset) for code, offset, _ in found(NEWEST)] == told(0, 9)
    assert [(code, offset) for code, offset, _ in found(NOW + 50)] == told(0, -1)
    assert len(walked_by) == 4
    assert all(name.startswith("millstream-look") for name in walked_by)


def test_an_index_is_rebuilt_by_another_thread(node: Node, run: Run) -> None:
    threads: list[str] = []

    async def steps() -> list[Any]:
        outcomes: list[Any] = []
        node.segment_threads.aside(
            lambda: threads.append(threading.current_thread().name) or 7, outcomes.append
        )
        node.segment_threads.aside(lambda: 1 // 0, outcomes.append)
        while len(outcomes) < 2:
            await node.segment_threads.search(segments.Segments().newest(0, end=0))
            await asyncio.sleep(0.001)
        return outcomes

    assert sorted(run(steps()), key=str) == [7, None]
    assert threads[0].startswith("millstream-look")


def test_a_search_after_the_end_is_refused(node: Node, run: Run) -> None:
    run(node.topic_admin.create("t", 1, {}))
    partition = node.topics.partition("t", 0)
    assert partition is not None
    partition.log.append(a_batch(at=NOW), NOW)
    partition.log.write_staged()
    node.segment_threads.close()
    with pytest.raises(LogError, match="shutting down"):
        run(node.segment_threads.search(partition.log.search_time(NOW)))
