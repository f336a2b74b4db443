"""The queue of response bytes and file slices that a connection has yet to send.

Responses go to the socket directly, not through the transport. Large slices of records go from their file
with ``sendfile``, which uvloop's transports do not have, and nothing may come between the head of such a
response and its records. The transport remains responsible for reading and for closing.

The rules:

- Parts are sent in the order they were queued. While one is partly sent, no other is started.
- When the socket takes no more, the outbox waits for it on a second descriptor of the same socket, because
  the loop watches the first one for reading and does not allow a second watch on it.
- A part is either bytes or a slice of a log. A slice keeps its file open. The head of the response has
  already announced the slice's size, so a file that turns out to be shorter breaks the connection.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from itertools import islice
from typing import Protocol

from millstream.broker.net.counters import BrokerCounters
from millstream.wire.hot.fetch import LARGE, Part, StoredRecords, whole

JOINED = 128 * 1024  # small parts are joined up to this; beyond it, copying costs more than another call
_MORE = socket.MSG_MORE


class StreamSocket(Protocol):
    """The methods of a socket that the outbox uses."""

    def fileno(self) -> int: ...
    def send(self, data: bytes | bytearray | memoryview, flags: int = ..., /) -> int: ...


class FileSlice(StoredRecords, Protocol):
    """A slice that may be backed by a file of the operating system."""

    @property
    def position(self) -> int: ...

    def fileno(self) -> int:
        """The file's descriptor, or -1 if the records are in memory."""


class Outbox:
    """See the module's description. The caller that queues a response adds its size to ``unsent``."""

    __slots__ = (
        "_broken",
        "_counters",
        "_drained",
        "_loop",
        "_parts",
        "_sent_of_first",
        "_socket",
        "_watch",
        "unsent",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: StreamSocket,
        counters: BrokerCounters,
        *,
        drained: Callable[[], None],
        broken: Callable[[OSError], None],
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._counters = counters
        self._drained = drained  # called whenever bytes that had to wait were sent
        self._broken = broken  # called once, when the peer is gone
        self._parts: list[Part | memoryview] = []
        self._sent_of_first = 0  # bytes sent of the first part, if that is a slice
        self._watch = -1  # the second descriptor
        self.unsent = 0

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def send(self, parts: list[Part]) -> None:
        """Send these parts after all those that wait."""
        if not self._parts:
            # The common case: a few small responses, and a socket that takes them.
            data = parts[0] if len(parts) == 1 else None
            if data is None and self.unsent <= JOINED:
                try:
                    data = b"".join(parts)  # type: ignore[arg-type]
                except TypeError:
                    data = None  # one of them is a slice
            if type(data) is bytes or type(data) is bytearray:
                try:
                    sent = self._socket.send(data)
                except BlockingIOError:
                    sent = 0
                except OSError as error:
                    self._fail(error)
                    return
                self.unsent -= sent
                self._counters.bytes_out += sent
                if sent < len(data):
                    self._parts.append(memoryview(data)[sent:])
                    self._wait()
                return
            self._parts.extend(parts)
            self._pump()
        else:
            self._parts.extend(parts)

    def _pump(self) -> None:
        """Send until nothing is left or the socket takes no more."""
        parts = self._parts
        while parts:
            try:
                whole = self._send_first()
            except BlockingIOError:
                whole = False
            except OSError as error:
                self._fail(error)
                return
            if not whole:
                self._wait()
                return

    def _send_first(self) -> bool:
        """Send the first part, or several small ones joined. True if all of it was sent."""
        parts = self._parts
        first = parts[0]
        if not isinstance(first, (bytes, bytearray, memoryview)):
            return self._send_slice(first)
        size = len(first)
        count = 1
        for part in islice(parts, 1, None):
            if not isinstance(part, (bytes, bytearray, memoryview)) or size + len(part) > JOINED:
                break
            size += len(part)
            count += 1
        data = first if count == 1 else b"".join(islice(parts, count))  # type: ignore[arg-type]
        more = len(parts) > count
        sent = self._socket.send(data, _MORE) if more else self._socket.send(data)
        self._count(sent)
        if sent < size:
            parts[:count] = [memoryview(data)[sent:]]
            return False
        del parts[:count]
        return True

    def _send_slice(self, records: StoredRecords) -> bool:
        fd = records.fileno() if records.size > LARGE else -1  # type: ignore[attr-defined]
        if fd < 0:
            self._parts[0] = memoryview(whole(records))
            return self._send_first()
        done = self._sent_of_first
        start: int = records.position  # type: ignore[attr-defined]
        sent = os.sendfile(self._socket.fileno(), fd, start + done, records.size - done)
        if sent == 0:
            raise OSError(f"a log is shorter than it was: of {records.size} bytes, {done} are there")
        self._count(sent)
        done += sent
        if done < records.size:
            self._sent_of_first = done
            return False
        self._sent_of_first = 0
        del self._parts[0]
        return True

    def _count(self, sent: int) -> None:
        self.unsent -= sent
        self._counters.bytes_out += sent

    def _wait(self) -> None:
        if self._watch < 0:
            self._watch = os.dup(self._socket.fileno())
        self._loop.add_writer(self._watch, self._writable)

    def _writable(self) -> None:
        self._pump()
        if not self._parts and self._watch >= 0:
            self._loop.remove_writer(self._watch)
        self._drained()

    def _fail(self, error: OSError) -> None:
        self.close()
        self._broken(error)

    def close(self) -> None:
        """Drop what was not sent. A second call does nothing."""
        self._parts.clear()
        self.unsent = 0
        if self._watch >= 0:
            self._loop.remove_writer(self._watch)
            os.close(self._watch)
            self._watch = -1
