"""One client's connection: frames in, answers out, in order.

How it works:

- Requests are read into the server's one receive buffer and handled where they lie. Only what is left over
  (a frame that has not arrived whole, or frames that must wait) is copied to a buffer of the connection's.
- Produce and Fetch are handled as they stand in the buffer; everything else is parsed by kio and given to
  its handler. Nothing that can be answered at once makes a task or a future.
- Answers leave in the order of the requests. One that must wait takes a ``Slot``, and whatever is answered
  after it queues behind it.
- Answers of one turn of the loop leave together at its end (``broker.turn``), after the records they
  acknowledge were written.

A connection is **held**, that is, neither read from nor worked for, while

- a handler it is waiting for runs: requests of one connection take effect in order, as Kafka's do;
- as many requests as ``connection.max.in.flight`` wait for their answers;
- more answers than ``connection.max.unsent.bytes`` wait for the client to take them;
- the memory for requests is used up (``broker.buffers``).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from millstream.broker.api.fetch import fetch
from millstream.broker.api.produce import ProduceShape, failed_ack, produce
from millstream.broker.api.versions import unsupported_version
from millstream.broker.buffers import LARGEST_FIRST
from millstream.broker.dispatch import HANDLERS, Client, Reply, encode_answer, read_request
from millstream.broker.outbox import Outbox
from millstream.broker.slot import Slot
from millstream.errors import LogError, ProtocolError
from millstream.wire.apis import name_of
from millstream.wire.fetch import Part
from millstream.wire.frame import API_VERSIONS, HEAD, HEAD_SIZE, SIZE

if TYPE_CHECKING:
    from millstream.broker.partition import Partition
    from millstream.broker.server import Server

FAIR_READ = 128 * 1024  # after a read of this much, others have their turn
SEND_BUFFER = 100 * 1024
_SMALLEST_FRAME = 10  # api key, version, correlation id and the length of a client id
_PRODUCE, _FETCH = 0, 1

_unpack_head = HEAD.unpack_from


class Connection(asyncio.BufferedProtocol):
    """See the module's description."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.node = server.node
        self.turn = server.turn
        self.out: list[Part] = []  # answers of this turn
        self.queued = False  # in the turn's list of those with answers
        self.pending: deque[Slot] = deque()
        self.host = self.peer = ""
        self.client_id = ""
        self.last_active = server.ticks
        self.produce_shape: ProduceShape | None = None
        self.is_closed = False
        self.outbox: Outbox
        self._transport: asyncio.Transport
        self._socket: socket.socket | None = None
        self._receive = server.receive_buffer
        self._receive_view = server.receive_view
        self._max_in_flight = server.config.connection_max_in_flight
        self._max_unsent = server.config.connection_max_unsent_bytes
        self._partial: bytearray | None = None  # a frame that has not arrived whole
        self._filled = 0
        self._frame_size = 0  # of the partial frame with its size field; 4 while that is all we wait for
        self._waiting: bytearray | None = None  # frames that arrived and are not worked on yet
        self._held = False
        self._busy = False  # a handler runs
        self._out_of_memory = False
        self._reading = True
        self._closing = False

    # Life

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no subclass of asyncio's
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if peer else ""
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        borrowed = transport.get_extra_info("socket")
        # The descriptor stays the transport's; connection_lost lets go of it.
        sock = socket.socket(borrowed.family, borrowed.type, borrowed.proto, fileno=borrowed.fileno())
        self._socket = sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self.outbox = Outbox(self.server.loop, sock, drained=self._drained, broken=self._broken)
        self.server.connected(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        if self._socket is not None:
            self.outbox.close()
            self._socket.detach()
            self._socket = None
        if self._partial is not None:
            self.server.buffers.give_back(self._partial)
            self._partial = None
        self.server.buffers.forget(self._memory_returned)
        self._waiting = None
        self.out.clear()
        for slot in self.pending:
            slot.abandon()
        self.pending.clear()
        self.server.disconnected(self)

    def is_gone(self) -> bool:
        """Whether the client hung up, also where that was not read yet."""
        if self.is_closed or self._socket is None:
            return True
        try:
            return self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def eof_received(self) -> bool:
        return False

    def close(self) -> None:
        """Close at once; what was not sent is lost."""
        if not self.is_closed:
            self.is_closed = True
            self._transport.abort()

    def close_when_answered(self) -> None:
        """Take no more requests, send what is owed, then close."""
        self._closing = True
        self._hold()
        self._waiting = None
        self._close_if_done()

    @property
    def is_idle(self) -> bool:
        return not self.pending and not self.out and self.outbox.is_empty

    def _close_if_done(self) -> None:
        if self._closing and self.is_idle and not self.is_closed:
            self.is_closed = True
            self._transport.close()

    # Reading

    def get_buffer(self, sizehint: int) -> bytearray | memoryview:
        partial = self._partial
        if partial is None:
            return self._receive
        return memoryview(partial)[self._filled : min(self._frame_size, len(partial))]

    def buffer_updated(self, count: int) -> None:
        server = self.server
        self.last_active = server.ticks
        server.metrics.bytes_in += count
        try:
            if self._partial is None:
                self._work(self._receive, self._receive_view, count)
            else:
                self._filled += count
                if self._filled == self._frame_size and self._frame_size > 4:
                    self._finish_partial()
                elif self._filled == min(self._frame_size, len(self._partial)):
                    self._grow_partial()
        except ProtocolError as error:
            self._refuse(error)
            return
        except Exception as error:
            self._give_up(error, -1, -1)
            return
        if count >= FAIR_READ and self._reading and not self._held:
            # libuv reads one socket up to 32 times in a row; a bulk producer would keep all others waiting.
            self._pause()
            server.loop.call_soon(self._unpause)

    def _work(self, buffer: bytearray, view: memoryview, end: int) -> None:
        """Handle the whole frames in ``buffer[:end]`` and keep the rest."""
        position = 0
        while end - position >= HEAD_SIZE:
            size, api_key, version, correlation_id = _unpack_head(buffer, position)
            stop = position + 4 + size
            if stop > end or size < _SMALLEST_FRAME:
                break
            if api_key == _PRODUCE:
                produce(self, buffer, view, position, stop, version, correlation_id)
            elif api_key == _FETCH:
                fetch(self, buffer, position, stop, version, correlation_id)
            else:
                self._handle(view, position, stop, api_key, version, correlation_id)
            position = stop
            if self._held:
                break
        if position < end:
            self._keep(buffer, position, end)

    def _keep(self, buffer: bytearray, position: int, end: int) -> None:
        """Copy what is not worked on now out of the receive buffer."""
        if self._held:
            if not self._closing:
                self._waiting = buffer[position:end]
            return
        filled = end - position
        self._frame_size = 4
        if filled >= 4:
            (size,) = SIZE.unpack_from(buffer, position)
            self._check_size(size, buffer, position)
            self._frame_size = size + 4
        partial = self.server.buffers.take(min(self._frame_size, LARGEST_FIRST))
        partial[:filled] = memoryview(buffer)[position:end]
        self._partial = partial
        self._filled = filled
        if self.server.buffers.is_full:
            self._wait_for_memory()

    def _grow_partial(self) -> None:
        """The size of the frame became known, or more of it came than was believed at first."""
        partial = self._partial
        assert partial is not None
        if self._frame_size == 4:
            (size,) = SIZE.unpack_from(partial)
            self._check_size(size, partial, 0)
            self._frame_size = size + 4
            wanted = min(self._frame_size, LARGEST_FIRST)
        else:
            wanted = min(self._frame_size, len(partial) * 2)
        if wanted > len(partial):
            buffers = self.server.buffers
            larger = buffers.take(wanted)
            larger[: self._filled] = memoryview(partial)[: self._filled]
            buffers.give_back(partial)
            self._partial = larger
            if buffers.is_full:
                self._wait_for_memory()

    def _finish_partial(self) -> None:
        partial = self._partial
        assert partial is not None
        self._partial = None
        try:
            self._work(partial, memoryview(partial), self._frame_size)
        finally:
            self.server.buffers.give_back(partial)

    def _check_size(self, size: int, buffer: bytearray, position: int) -> None:
        if _SMALLEST_FRAME <= size <= self.server.config.socket_request_max_bytes:
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

    # Requests

    def _handle(
        self,
        view: memoryview,
        position: int,
        stop: int,
        api_key: int,
        version: int,
        correlation_id: int,
    ) -> None:
        """Any request but Produce and Fetch."""
        served = HANDLERS.get(api_key)
        if served is None or not served.first <= version <= served.last:
            if api_key == API_VERSIONS:
                # Asked by a client newer than us: it learns from this what we do speak.
                self.answer(unsupported_version(correlation_id))
                return
            raise ProtocolError(f"asks for {name_of(api_key)} version {version}, which is not served here")
        self.server.metrics.requests[api_key] += 1
        request, client_id = read_request(bytes(view[position:stop]), api_key, version)
        self.client_id = client_id
        try:
            answer = served.handler(self.node, request, Client(client_id, self.host, version, self.is_gone))
        except Exception as error:
            self._give_up(error, api_key, version)
            return
        if isinstance(answer, Awaitable):
            slot = self.reserve()
            self._busy = True
            self._hold()
            task = asyncio.ensure_future(answer)
            self.server.tasks.add(task)
            task.add_done_callback(
                lambda done: self._handler_ended(done, slot, api_key, version, correlation_id)
            )
        else:
            self.answer(encode_answer(api_key, version, correlation_id, answer))

    def _handler_ended(
        self, task: asyncio.Future[Reply], slot: Slot, api_key: int, version: int, correlation_id: int
    ) -> None:
        self.server.tasks.discard(task)
        self._busy = False
        if self.is_closed:
            if not task.cancelled():
                task.exception()
            return
        try:
            data = encode_answer(api_key, version, correlation_id, task.result())
        except asyncio.CancelledError:
            self.close()
            return
        except Exception as error:
            self._give_up(error, api_key, version)
            return
        slot.resolve([data], len(data))

    def _give_up(self, error: Exception, api_key: int, version: int) -> None:
        """A bug in a handler costs its connection, not the server."""
        self.server.report_bug(self, name_of(api_key), version, error)
        self.close()

    def _refuse(self, error: ProtocolError) -> None:
        self.server.refused(self, error)
        self.close()

    # Answering

    def answer(self, data: bytes | bytearray) -> None:
        """Answer a request now: it leaves at the end of the turn, or behind what is still pending."""
        if self.pending:
            slot = self.reserve()
            slot.answer = [data]
            slot.size = len(data)
        else:
            self.queue(data, len(data))

    def answer_parts(self, parts: list[Part], size: int) -> None:
        if self.pending:
            slot = self.reserve()
            slot.answer = parts
            slot.size = size
        else:
            self.out += parts
            self._queued(size)

    def queue(self, data: bytes | bytearray, size: int) -> None:
        self.out.append(data)
        self._queued(size)

    def _queued(self, size: int) -> None:
        outbox = self.outbox
        outbox.unsent += size
        if not self.queued:
            self.queued = True
            self.turn.connections.append(self)
            if not self.turn.scheduled:
                self.turn.schedule()
        if outbox.unsent > self._max_unsent:
            self._hold()

    def replace_ack(
        self, place: int, partition: Partition, correlation_id: int, version: int, failure: LogError
    ) -> None:
        """Records that an answer of this turn acknowledges could not be written."""
        if place < 0:
            self.close_when_answered()  # acks=0: this is how the producer learns of it
            return
        answer = failed_ack(partition, version, correlation_id, failure)
        self.outbox.unsent += len(answer) - len(self.out[place])  # type: ignore[arg-type]
        self.out[place] = answer

    def reserve(self) -> Slot:
        return self.place(Slot(self))

    def place(self, slot: Slot) -> Slot:
        """Queue an answer that is not there yet."""
        self.pending.append(slot)
        if len(self.pending) >= self._max_in_flight:
            self._hold()
        return slot

    def advance(self) -> None:
        """Queue every answer that is there and has no unanswered one before it."""
        if self.is_closed:
            return
        pending = self.pending
        while pending:
            slot = pending[0]
            if slot.answer is None:
                break
            pending.popleft()
            self.out += slot.answer
            self._queued(slot.size)
        if self._held:
            self.turn.resume(self)

    def send(self) -> None:
        """At the end of a turn: everything that is queued leaves, or waits in the outbox."""
        self.queued = False
        if self.is_closed:
            return
        out = self.out
        if out:
            self.server.metrics.bytes_out += self.outbox.unsent
            self.out = []
            self.outbox.send(out)
            self.server.metrics.bytes_out -= self.outbox.unsent
            if self._held:
                self.turn.resume(self)
            if self._closing:
                self._close_if_done()

    def _drained(self) -> None:
        if self._closing:
            self._close_if_done()
        elif self._held:
            self.turn.resume(self)

    def _broken(self, error: OSError) -> None:
        self.close()

    # Holding

    def _hold(self) -> None:
        self._held = True
        self._pause()

    def resume_if_possible(self) -> None:
        """Go on working, once nothing holds the connection any more."""
        if (
            not self._held
            or self.is_closed
            or self._closing
            or self._busy
            or self._out_of_memory
            or len(self.pending) >= self._max_in_flight
            or self.outbox.unsent > self._max_unsent
        ):
            return
        self._held = False
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            try:
                self._work(waiting, memoryview(waiting), len(waiting))
            except ProtocolError as error:
                self._refuse(error)
                return
            except Exception as error:
                self._give_up(error, -1, -1)
                return
        if not self._held:
            self._unpause()

    def _wait_for_memory(self) -> None:
        self._out_of_memory = True
        self._hold()
        self.server.buffers.wait(self._memory_returned)

    def _memory_returned(self) -> None:
        self._out_of_memory = False
        self.resume_if_possible()

    def _pause(self) -> None:
        if self._reading and not self.is_closed:
            self._reading = False
            self._transport.pause_reading()

    def _unpause(self) -> None:
        if not self._reading and not self._held and not self.is_closed:
            self._reading = True
            self._transport.resume_reading()
