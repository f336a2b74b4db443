"""What the connections of one broker share: its loop, its turn, memory for requests, counters and limits."""

from __future__ import annotations

import asyncio
from typing import Any

from millstream.broker.net.buffers import RequestBuffers
from millstream.broker.net.counters import BrokerCounters
from millstream.broker.net.loop_turn import LoopTurn
from millstream.broker.net.slice_queue import SliceQueue
from millstream.broker.net.throttling import Throttling
from millstream.core.clock import Clock
from millstream.core.config import BrokerConfig

RECEIVE_BUFFER = 256 * 1024


class SharedIO:
    """See the module's description. The settings are those that need a restart to change."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        turn: LoopTurn,
        throttling: Throttling,
        counters: BrokerCounters,
    ) -> None:
        self.loop = loop
        self.clock = clock
        self.turn = turn
        self.throttling = throttling
        self.counters = counters
        self.ticks = 0  # roughly seconds; measures how long connections are idle
        self.slices = SliceQueue(loop)
        self.tasks: set[asyncio.Future[Any]] = set()  # handlers in progress
        self.buffers = RequestBuffers(config.queued_max_request_bytes)
        self.receive_buffer = bytearray(RECEIVE_BUFFER)
        self.receive_view = memoryview(self.receive_buffer)
        self.max_request_bytes = config.socket_request_max_bytes
        self.max_in_flight = config.connection_max_in_flight
        self.max_unsent_bytes = config.connection_max_unsent_bytes
