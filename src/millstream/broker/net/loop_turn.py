"""One turn of the loop: the work that its requests share is done once, at the end of the turn.

The steps are in this order, because each promises something that the step before it has done:

1. Records staged by this turn's Produce requests are written, with one write per partition.
2. Responses are sent, with one send per connection. (``acks=all`` still waits: its sync starts here.)
3. Readers that wait for those records are answered, and their responses are sent.
4. Held connections that may continue do so.

If the write to a partition fails, its log takes the staged records back. The responses that would have
acknowledged them are replaced by the error before any of them is sent.

A turn ends once the loop has handled everything else that was ready to be read. That is how the requests of
many clients share a write and a sync. With a single busy client nothing else comes, and going through the
loop's queue would be a fifth of the cost of a request, so its turns end where its requests do. If its next
request follows at once, ``is_of_a_quick_client`` is set, and it pays to wait for the one after that.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from millstream.broker.net.counters import BrokerCounters
from millstream.broker.topics.partition import Partition
from millstream.broker.topics.syncing import Syncer
from millstream.core.clock import Clock
from millstream.core.errors import LogFailed

_log = logging.getLogger(__name__)
_ALONE = 8  # reads in a row from one connection, after which it counts as the only busy one
_QUICK = 100e-6  # seconds from one turn to the next, including sleep and wake-up


class RespondingConnection(Protocol):
    """A connection with responses to send at the end of the turn."""

    peer: str

    def send(self) -> None: ...
    def close(self) -> None: ...
    def resume_if_possible(self) -> None: ...
    def __hash__(self) -> int: ...


class LoopTurn:
    """Gathers the work of a turn; ``flush`` ends it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, syncer: Syncer, counters: BrokerCounters
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._syncer = syncer
        self._counters = counters
        self._started = 0.0
        self._ended = 0.0
        self.scheduled = False
        self._ends_with_read = False
        self._is_reading_alone = False
        self._reader: object = None  # the connection that was read from last
        self._reads = 0  # how often it was read from in a row
        self.is_of_a_quick_client = False
        self.number = 0
        self.now_ms = 0  # the time of the turn, once it is scheduled
        self.partitions: list[Partition] = []  # those with staged records
        self.connections: list[RespondingConnection] = []  # those with responses to send
        self._written: list[Partition] = []  # those whose readers are told at the end of the turn
        self._resuming: dict[RespondingConnection, None] = {}  # each resumes once per turn

    def schedule(self) -> None:
        """Begin a turn, and have it end after the requests that are ready now."""
        self.scheduled = True
        self._started = self._clock.monotonic()
        self.now_ms = self._clock.now_ms()
        if self._is_reading_alone:
            self._ends_with_read = True
        else:
            self._loop.call_soon(self.flush)

    def begin_read(self, connection: object) -> None:
        """The requests of one read from this connection follow."""
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
        """The wait for the client was in vain: it has to prove again that it is quick."""
        self.is_of_a_quick_client = False
        self._reads = 0

    def resume(self, connection: RespondingConnection) -> None:
        """Let a held connection continue after this turn, if nothing holds it any more."""
        self._resuming[connection] = None
        if not self.scheduled:
            self.schedule()

    def write(self) -> None:
        """Write staged records: at the end of the turn, or before a request that has to see them."""
        partitions, self.partitions = self.partitions, []
        self._written += partitions
        for partition in partitions:
            partition.is_staged = False
            try:
                partition.log.write_staged()
            except LogFailed as error:
                self._counters.storage_errors += 1
                partition.write_failed(error)
            except Exception as error:
                _log.exception("writing to %s failed unexpectedly", partition)
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
        self._counters.turn_seconds.observe(self._ended - self._started)
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
                _log.exception("sending to %s failed unexpectedly", connection.peer)
                connection.close()
