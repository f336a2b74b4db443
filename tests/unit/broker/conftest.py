"""A node in memory, and a loop to run it on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest

from millstream.broker.net.loop_turn import LoopTurn
from millstream.broker.node import Node
from millstream.broker.topics.syncing import Syncer
from millstream.core.clock import ManualClock
from millstream.core.config import BrokerConfig
from tests.support.asking import Run


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def node(loop: asyncio.AbstractEventLoop, clock: ManualClock) -> Iterator[Node]:
    node = Node(BrokerConfig(node_id=7), clock, loop)
    node.role.host, node.role.port = "broker.example", 9092
    syncer = Syncer(loop, clock, threads=1)
    node.transactions.start(LoopTurn(loop, clock, syncer, node.counters), syncer)
    yield node
    node.coordinator.close()
    syncer.close()
    node.close()
    loop.run_until_complete(asyncio.sleep(0))


@pytest.fixture
def run(loop: asyncio.AbstractEventLoop) -> Run:
    def run(steps: Awaitable[Any]) -> Any:
        return loop.run_until_complete(asyncio.wait_for(_as_coroutine(steps), 20))

    return run


async def _as_coroutine(steps: Awaitable[Any]) -> Any:
    return await steps
