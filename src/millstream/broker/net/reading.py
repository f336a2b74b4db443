"""The reading half of a connection: splits the byte stream into frames, and decides when to stop reading.

Bytes are read into the server's one receive buffer and processed in place. Only the rest is copied: an
incomplete frame to its own buffer (``broker.net.buffers``), and frames that have to wait before they are
processed as they are.

While a connection is **held**, it is not read from and its requests are not processed. It is held while

- a handler that it waits for is running: requests of one connection take effect in order, as in Kafka;
- ``connection.max.in.flight`` requests wait for their responses;
- more than ``connection.max.unsent.bytes`` of responses wait for the client to take them;
- consumers are too far behind for its records (``broker.overload.backpressure``);
- its client has used up a quota (``broker.net.throttling``);
- there is no memory for its requests.

A single busy client that sends its next request as soon as it gets a response is **waited for on the spot**,
briefly: sleeping until the kernel wakes the process takes longer than such a client takes to send. After
``TRIES`` attempts in vain the loop continues, and the client has to prove again that it is quick
(``broker.net.loop_turn``).
"""

from __future__ import annotations

import asyncio
import os
import socket

from millstream.broker.net.buffers import FIRST, GROWTH
from millstream.broker.net.shared_io import SharedIO
from millstream.core.errors import ProtocolError
from millstream.wire.frame import SIZE

FAIR_READ = 128 * 1024  # after a read of this size, other connections get their turn
SHORT_READ = 16 * 1024  # the size of reads while memory for requests is scarce
TRIES = 40  # attempts to read on the spot, about a microsecond each
IN_A_ROW = 32  # reads on the spot in a row; libuv has the same limit
SMALLEST_FRAME = 10  # api key, version, correlation id and the length of a client id


class FrameReader(asyncio.BufferedProtocol):
    """The reading half of a connection. The subclass decides what to do with frames, and whether anything
    other than memory holds the connection."""

    __slots__ = (
        "_filled",
        "_frame_size",
        "_held",
        "_looked_at",
        "_out_of_memory",
        "_partial",
        "_reading",
        "_receive",
        "_receive_view",
        "_transport",
        "_waiting",
        "is_closed",
        "last_active",
        "shared",
    )

    _transport: asyncio.Transport
    _socket: socket.socket | None

    def __init__(self, shared: SharedIO) -> None:
        self.shared = shared
        self.last_active = shared.ticks
        self.is_closed = False
        self._receive = shared.receive_buffer
        self._receive_view = shared.receive_view
        self._partial: bytearray | None = None  # an incomplete frame
        self._filled = 0
        self._frame_size = 0  # of the partial frame with its size field; 4 until the size is known
        self._waiting: bytearray | None = None  # bytes that arrived and are not processed yet
        self._held = False
        self._out_of_memory = False
        self._looked_at = -1  # bytes of the partial frame when last checked; -1: not checked yet
        self._reading = True

    def _work(self, buffer: bytearray, view: memoryview, end: int) -> None:
        """Handle the complete frames in ``buffer[:end]`` and ``_keep`` the rest."""
        raise NotImplementedError

    def _may_work(self) -> bool:
        """True if nothing that the subclass knows of holds the connection."""
        raise NotImplementedError

    def _failed(self, error: Exception) -> None:
        """Handle an error of ``_work``: a ProtocolError, which is the client's fault, or a bug."""
        raise NotImplementedError

    # Reading

    def get_buffer(self, sizehint: int) -> bytearray | memoryview:
        partial = self._partial
        if partial is None:
            return self._receive if not self.shared.buffers.is_scarce else self._receive_view[:SHORT_READ]
        return memoryview(partial)[self._filled : min(self._frame_size, len(partial))]

    def buffer_updated(self, count: int) -> None:
        self._received(count)
        if self.shared.turn.is_of_a_quick_client:
            self._wait_on_the_spot()

    def _wait_on_the_spot(self) -> None:
        turn = self.shared.turn
        for _ in range(IN_A_ROW):
            for _ in range(TRIES):
                if not self._reading or self.is_closed or self._socket is None:
                    return
                try:
                    count = self._socket.recv_into(self.get_buffer(-1))
                    break
                except BlockingIOError:
                    os.sched_yield()  # the client may share this core
                except OSError:
                    return  # the loop gets the same error, and closes the connection
            else:
                turn.not_so_quick()
                return
            if not count:
                return
            self._received(count)
            if not turn.is_of_a_quick_client:
                return

    def _received(self, count: int) -> None:
        shared = self.shared
        self.last_active = shared.ticks
        shared.counters.bytes_in += count
        turn = shared.turn
        turn.begin_read(self)
        try:
            if self._partial is None:
                self._work(self._receive, self._receive_view, count)
            else:
                self._filled += count
                if self._filled == self._frame_size and self._frame_size > 4:
                    self._finish_partial()
                elif self._filled == min(self._frame_size, len(self._partial)):
                    self._grow_partial()
        except Exception as error:
            self._failed(error)
        turn.end_read()
        if count >= FAIR_READ and self._reading and not self._held:
            # libuv reads a socket up to 32 times in a row. A bulk producer would keep all others waiting.
            self._pause()
            shared.loop.call_soon(self._unpause)

    def _keep(self, buffer: bytearray, position: int, end: int) -> None:
        """Copy the bytes that are not processed now out of ``buffer``."""
        if self._held:
            self._waiting = buffer[position:end]
            return
        filled = end - position
        self._frame_size = 4
        if filled >= 4:
            (size,) = SIZE.unpack_from(buffer, position)
            self._check_size(size, buffer, position)
            self._frame_size = size + 4
        buffers = self.shared.buffers
        wanted = min(self._frame_size, max(FIRST, GROWTH * filled))
        if not buffers.has_room_for(wanted, self):
            self._waiting = buffer[position:end]
            self._wait_for_memory(wanted)
            return
        partial = buffers.take(wanted)
        partial[:filled] = memoryview(buffer)[position:end]
        self._partial = partial
        self._filled = filled
        self._looked_at = -1

    def _grow_partial(self) -> None:
        """Enlarge the partial frame's buffer: its size is now known, or the buffer is full and the frame
        incomplete."""
        partial = self._partial
        assert partial is not None
        if self._frame_size == 4:
            (size,) = SIZE.unpack_from(partial)
            self._check_size(size, partial, 0)
            self._frame_size = size + 4
        wanted = min(self._frame_size, max(FIRST, GROWTH * self._filled))
        if wanted > len(partial):
            buffers = self.shared.buffers
            if not buffers.has_room_for(wanted, self):
                self._wait_for_memory(wanted)
                return
            larger = buffers.take(wanted)
            larger[: self._filled] = memoryview(partial)[: self._filled]
            self._partial = larger
            buffers.give_back(partial)

    def _finish_partial(self) -> None:
        partial = self._partial
        assert partial is not None
        self._partial = None
        self.shared.buffers.forget(self)
        try:
            self._work(partial, memoryview(partial), self._frame_size)
        finally:
            self.shared.buffers.give_back(partial)

    def _check_size(self, size: int, buffer: bytearray, position: int) -> None:
        if SMALLEST_FRAME <= size <= self.shared.max_request_bytes:
            return
        start = bytes(buffer[position : position + 4])
        if start[:3] == b"\x16\x03\x01":
            raise ProtocolError("uses TLS; this listener is plain text")
        if start in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PRI "):
            raise ProtocolError("uses HTTP; this is the Kafka port (metrics have their own: http.listen)")
        if size > 0:
            raise ProtocolError(
                f"sent a request of {size} bytes; socket.request.max.bytes allows "
                f"{self.shared.max_request_bytes}"
            )
        raise ProtocolError(f"sent {start!r} where the size of a request belongs")

    def _forget_input(self) -> None:
        """Free the buffers: the connection is gone, or takes no more requests."""
        buffers = self.shared.buffers
        buffers.forget(self)
        if self._partial is not None:
            buffers.give_back(self._partial)
            self._partial = None
        self._waiting = None

    # Holding

    def _hold(self) -> None:
        self._held = True
        self._pause()

    def resume_if_possible(self) -> None:
        """Continue, if nothing holds the connection any more."""
        if not self._held or self.is_closed or self._out_of_memory or not self._may_work():
            return
        self._held = False
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            try:
                self._work(waiting, memoryview(waiting), len(waiting))
            except Exception as error:
                self._failed(error)
                return
        if not self._held:
            self._unpause()

    def _wait_for_memory(self, size: int) -> None:
        self._out_of_memory = True
        self._hold()
        self.shared.buffers.wait(size, self)

    # Called by ``RequestBuffers``

    @property
    def held(self) -> int:
        return 0 if self._partial is None else len(self._partial)

    @property
    def missing(self) -> int:
        return self._frame_size - self._filled

    def arrived(self) -> int | None:
        before, self._looked_at = self._looked_at, self._filled
        return None if before < 0 else self._filled - before

    def drop(self) -> None:
        self._failed(
            ProtocolError(
                f"stopped after {self._filled} of the {self._frame_size} bytes of a request, while others "
                "wait for memory (queued.max.request.bytes)"
            )
        )
        self._forget_input()

    def memory_returned(self) -> None:
        self._out_of_memory = False
        if self._partial is not None:
            self._grow_partial()
        self.resume_if_possible()

    def _pause(self) -> None:
        if self._reading and not self.is_closed:
            self._reading = False
            self._transport.pause_reading()

    def _unpause(self) -> None:
        if not self._reading and not self._held and not self.is_closed:
            self._reading = True
            self._transport.resume_reading()
