"""One turn of the loop: what its requests have in common is done once, at its end.

In this order, because each step is what the next one's promise rests on:

1. Records staged by this turn's Produce requests are written, one write a partition.
2. Answers leave, one send a connection. (``acks=all`` still waits: its sync starts here.)
3. Readers that wait for those records are answered, and their answers leave.
4. Connections that were held and may go on do so.

A partition whose write fails has its staged records taken back by the log; the answers that would have
acknowledged them are replaced by the error before any leaves.

A turn ends once the loop has handled whatever else was there to be read: with many clients, that is what
their requests share a write and a sync through. With a single busy client nothing else comes, and to go
through the loop's queue would be a fifth of the cost of a request: its turns end where its requests do. If
its next one follows at once, ``is_of_a_quick_client`` says so, and it pays to wait for the one after that.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from millstream.clock import Clock
from millstream.errors import LogFailed

if TYPE_CHECKING:
    from millstream.broker.connection import Connection
    from millstream.broker.metrics import Metrics
    from millstream.broker.partition import Partition
    from millstream.broker.syncing import Syncer

_log = logging.getLogger(__name__)
_ALONE = 8  # reads of one connection, and of no other, after which it counts as the only busy one
_QUICK = 100e-6  # seconds from a turn to the next, sleep and waking included


class Turn:
    """Gathers the work of a turn; ``flush`` ends it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, syncer: Syncer, metrics: Metrics
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._syncer = syncer
        self._metrics = metrics
        self._started = 0.0
        self._ended = 0.0
        self.scheduled = False
        self._ends_with_read = False
        self._is_reading_alone = False
        self._reader: object = None  # the connection that was read from last
        self._reads = 0  # how often in a row
        self.is_of_a_quick_client = False
        self.number = 0
        self.now_ms = 0  # of the turn, once scheduled
        self.partitions: list[Partition] = []  # with records written or staged in this turn
        self.connections: list[Connection] = []  # with answers to send
        self._written: list[Partition] = []  # whose readers are told at the end of the turn
        self._resuming: dict[Connection, None] = {}  # each once a turn

    def schedule(self) -> None:
        """Have the turn ended after the requests that are at hand."""
        self.scheduled = True
        self._started = self._clock.monotonic()
        self.now_ms = self._clock.now_ms()
        if self._is_reading_alone:
            self._ends_with_read = True
        else:
            self._loop.call_soon(self.flush)

    def begin_read(self, connection: object) -> None:
        """The requests of one read follow."""
        if connection is self._reader:
            self._reads += 1
            self._is_reading_alone = self._reads >= _ALONE
        else:
            self._reader = connection
            self._reads = 0

    def end_read(self) -> None:
        self._is_reading_alone = False
        if self._ends_with_read:
            self._ends_with_read = False
            self.is_of_a_quick_client = self._started - self._ended < _QUICK
            self.flush()
        else:
            self.is_of_a_quick_client = False

    def not_so_quick(self) -> None:
        """The client was waited for in vain: it has to show again that it is quick."""
        self.is_of_a_quick_client = False
        self._reads = 0

    def resume(self, connection: Connection) -> None:
        """Let a held connection go on after this turn, if it can."""
        self._resuming[connection] = None
        if not self.scheduled:
            self.schedule()

    def write(self) -> None:
        """Write what is staged: at the end of the turn, or before a request that has to see it."""
        partitions, self.partitions = self.partitions, []
        self._written += partitions
        for partition in partitions:
            partition.is_staged = False
            try:
                partition.log.write_staged()
            except LogFailed as error:
                self._metrics.storage_errors += 1
                partition.write_failed(error)
            except Exception as error:
                _log.exception("writing to %s failed in a way nobody expected", partition)
                partition.write_failed(LogFailed(f"{partition}: {error}"))
            else:
                if partition.unsettled:
                    partition.settle_written()
                partition.unwritten.clear()
                if partition.awaiting_sync or (partition.log.wants_sync and not partition.in_memory):
                    self._syncer.sync(partition)

    def flush(self) -> None:
        """End the turn."""
        if self.partitions:
            self.write()
        self.number += 1
        if self.connections:
            self._send()
        if self._written:
            written, self._written = self._written, []
            for partition in written:
                count, partition.turn_bytes = partition.turn_bytes, 0
                partition.topic.bytes_in += count
                if count and partition.waiters:
                    partition.wake(count, self._send)
        if self.connections:
            self._send()
        self.scheduled = False
        self._ended = self._clock.monotonic()
        self._metrics.turn_seconds.observe(self._ended - self._started)
        if self._resuming:
            resuming, self._resuming = self._resuming, {}
            for connection in resuming:
                connection.resume_if_possible()

    def _send(self) -> None:
        connections, self.connections = self.connections, []
        for connection in connections:
            try:
                connection.send()
            except Exception:
                _log.exception("sending to %s failed in a way nobody expected", connection.peer)
                connection.close()
