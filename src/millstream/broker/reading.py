"""Frames out of a stream of bytes, and when not to read on.

Bytes are read into the server's one receive buffer and worked on where they lie. Only what is left over is
copied: a frame that has not arrived whole to a buffer of its own (``broker.buffers``), frames that must wait
to be worked on as they are.

A connection is **held**, that is, neither read from nor worked for, while

- a handler it is waiting for runs: requests of one connection take effect in order, as Kafka's do;
- as many requests as ``connection.max.in.flight`` wait for their answers;
- more answers than ``connection.max.unsent.bytes`` wait for the client to take them;
- consumers that its records wait for are behind (``broker.backpressure``);
- its client has used up a quota (``broker.throttling``);
- there is no memory for what it sends.

A lone client that sends its next request as soon as it is answered is **waited for on the spot**, for a
moment: to sleep until the kernel wakes the process takes longer than such a client takes to send. After
``TRIES`` in vain it is the loop's turn, and the client has to show anew that it is quick (``broker.turn``).
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING

from millstream.broker.buffers import FIRST, GROWTH
from millstream.errors import ProtocolError
from millstream.wire.frame import SIZE

if TYPE_CHECKING:
    from millstream.broker.server import Server

FAIR_READ = 128 * 1024  # after a read of this much, others have their turn
SHORT_READ = 16 * 1024  # while memory for requests is scarce
TRIES = 40  # at reading on the spot, about a microsecond each
IN_A_ROW = 32  # reads on the spot, as libuv has it
SMALLEST_FRAME = 10  # api key, version, correlation id and the length of a client id


class FrameReader(asyncio.BufferedProtocol):
    """The reading half of a connection. What to do with frames, and whether anything but memory holds the
    connection, is up to the subclass."""

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
        "server",
    )

    _transport: asyncio.Transport
    _socket: socket.socket | None

    def __init__(self, server: Server) -> None:
        self.server = server
        self.last_active = server.ticks
        self.is_closed = False
        self._receive = server.receive_buffer
        self._receive_view = server.receive_view
        self._partial: bytearray | None = None  # a frame that has not arrived whole
        self._filled = 0
        self._frame_size = 0  # of the partial frame with its size field; 4 while that is all we wait for
        self._waiting: bytearray | None = None  # frames that arrived and are not worked on yet
        self._held = False
        self._out_of_memory = False
        self._looked_at = -1  # bytes of the partial frame at the last look; -1: it is new since
        self._reading = True

    def _work(self, buffer: bytearray, view: memoryview, end: int) -> None:
        """Handle the whole frames in ``buffer[:end]`` and ``_keep`` the rest."""
        raise NotImplementedError

    def _may_work(self) -> bool:
        """Whether nothing holds the connection, as far as the subclass knows."""
        raise NotImplementedError

    def _failed(self, error: Exception) -> None:
        """Work ended with an error: a ProtocolError, which is the client's fault, or a bug."""
        raise NotImplementedError

    # Reading

    def get_buffer(self, sizehint: int) -> bytearray | memoryview:
        partial = self._partial
        if partial is None:
            return self._receive if not self.server.buffers.is_scarce else self._receive_view[:SHORT_READ]
        return memoryview(partial)[self._filled : min(self._frame_size, len(partial))]

    def buffer_updated(self, count: int) -> None:
        self._received(count)
        if self.server.turn.is_of_a_quick_client:
            self._wait_on_the_spot()

    def _wait_on_the_spot(self) -> None:
        turn = self.server.turn
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
                    return  # the loop finds the same, and ends the connection
            else:
                turn.not_so_quick()
                return
            if not count:
                return
            self._received(count)
            if not turn.is_of_a_quick_client:
                return

    def _received(self, count: int) -> None:
        server = self.server
        self.last_active = server.ticks
        server.metrics.bytes_in += count
        turn = server.turn
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
            # libuv reads one socket up to 32 times in a row; a bulk producer would keep all others waiting.
            self._pause()
            server.loop.call_soon(self._unpause)

    def _keep(self, buffer: bytearray, position: int, end: int) -> None:
        """Copy what is not worked on now out of the receive buffer."""
        if self._held:
            self._waiting = buffer[position:end]
            return
        filled = end - position
        self._frame_size = 4
        if filled >= 4:
            (size,) = SIZE.unpack_from(buffer, position)
            self._check_size(size, buffer, position)
            self._frame_size = size + 4
        buffers = self.server.buffers
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
        """The size of the frame became known, or the buffer is full and the frame is not."""
        partial = self._partial
        assert partial is not None
        if self._frame_size == 4:
            (size,) = SIZE.unpack_from(partial)
            self._check_size(size, partial, 0)
            self._frame_size = size + 4
        wanted = min(self._frame_size, max(FIRST, GROWTH * self._filled))
        if wanted > len(partial):
            buffers = self.server.buffers
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
        self.server.buffers.forget(self)
        try:
            self._work(partial, memoryview(partial), self._frame_size)
        finally:
            self.server.buffers.give_back(partial)

    def _check_size(self, size: int, buffer: bytearray, position: int) -> None:
        if SMALLEST_FRAME <= size <= self.server.config.socket_request_max_bytes:
            return
        start = bytes(buffer[position : position + 4])
        if start[:3] == b"\x16\x03\x01":
            raise ProtocolError("speaks TLS; this listener is plain text")
        if start in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PRI "):
            raise ProtocolError("speaks HTTP; this is the Kafka port (metrics have their own: http.listen)")
        if size > 0:
            raise ProtocolError(
                f"sent a request of {size} bytes; socket.request.max.bytes allows "
                f"{self.server.config.socket_request_max_bytes}"
            )
        raise ProtocolError(f"sent {start!r} where the size of a request belongs")

    def _forget_input(self) -> None:
        """The connection is gone, or takes no more requests."""
        buffers = self.server.buffers
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
        """Go on working, once nothing holds the connection any more."""
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
        self.server.buffers.wait(size, self)

    # What ``RequestBuffers`` asks

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
