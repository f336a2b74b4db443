"""One client's connection: frames in, responses out, in order.

How it works:

- Produce and Fetch are handled in place, in the receive buffer. Other requests are parsed by kio and
  passed to their handler. A request that can be answered at once creates no task and no future.
- Responses leave in the order of the requests. A response that has to wait takes a ``Slot``, and every
  later response queues behind it.
- The responses of one turn of the loop leave together at its end (``broker.net.turn``), after the records
  that they acknowledge were written.

Reading, and when it stops, is in ``broker.net.reading``.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import termios
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING

from millstream.broker.api.fetch import FetchShape, fetch
from millstream.broker.api.not_leading import REFUSED
from millstream.broker.api.produce import ProduceShape, failed_ack, produce
from millstream.broker.api.versions import unsupported_version
from millstream.broker.dispatch import HANDLERS, Client, Reply, Served, encode_answer, read_request
from millstream.broker.net.outbox import Outbox
from millstream.broker.net.reading import SMALLEST_FRAME, FrameReader
from millstream.broker.net.slot import Slot
from millstream.broker.net.throttling import FETCH_RATE, PRODUCE_RATE, Meter
from millstream.core.errors import LogError, ProtocolError
from millstream.core.slices import SLICE, Slice, in_slices, monotonic
from millstream.wire.api_keys import name_of
from millstream.wire.frame import API_VERSIONS, HEAD, HEAD_SIZE
from millstream.wire.hot.fetch import Part

if TYPE_CHECKING:
    from millstream.broker.overload.backpressure import HeldRequest
    from millstream.broker.server import Server
    from millstream.broker.topics.partition import Partition

SEND_BUFFER = 100 * 1024
SHARE = 100  # requests of one connection before other connections get a turn
LONG_FETCH = 8 * 1024  # bytes of a Fetch (some hundreds of partitions) from which it is processed in slices
_PRODUCE, _FETCH = 0, 1

_unpack_head = HEAD.unpack_from


class Connection(FrameReader):
    """See the module's description."""

    __slots__ = (
        "_busy",
        "_closing",
        "_max_in_flight",
        "_max_unsent",
        "_muted",
        "_socket",
        "_stalled_by",
        "appended_in",
        "client_id",
        "fetch_meter",
        "fetch_shape",
        "host",
        "node",
        "out",
        "outbox",
        "peer",
        "pending",
        "produce_meter",
        "produce_shape",
        "queued",
        "turn",
        "waiting_since",
    )

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.node = server.node
        self.turn = server.turn
        self.out: list[Part] = []  # responses of this turn
        self.queued = False  # in the turn's list of connections with responses
        self.pending: list[Slot] = []
        self.appended_in = -1  # the last turn in which this client's records were appended
        self.host = self.peer = ""
        self.client_id = ""
        self.produce_shape: ProduceShape | None = None
        self.fetch_shape: FetchShape | None = None
        self.outbox: Outbox
        self._socket: socket.socket | None = None
        self._max_in_flight = server.config.connection_max_in_flight
        self._max_unsent = server.config.connection_max_unsent_bytes
        self._busy = 0  # requests in progress: handlers, slices, threads
        self._stalled_by: HeldRequest | None = None  # consumers are behind: see broker.backpressure
        self.waiting_since: float | None = None
        self.produce_meter: Meter | None = None  # counts against its client's quotas
        self.fetch_meter: Meter | None = None
        self._muted = False  # a quota is used up for now
        self._closing = False

    # Opening and closing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is no subclass of asyncio's
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if peer else ""
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        borrowed = transport.get_extra_info("socket")
        # The transport keeps owning the descriptor; connection_lost detaches from it.
        sock = socket.socket(borrowed.family, borrowed.type, borrowed.proto, fileno=borrowed.fileno())
        self._socket = sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self.outbox = Outbox(
            self.server.loop, sock, self.server.metrics, drained=self._drained, broken=self._broken
        )
        self.server.connected(self)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        if self._socket is not None:
            self.outbox.close()
            self._socket.detach()
            self._socket = None
        self._forget_input()
        self.out.clear()
        for slot in self.pending:
            slot.abandon()
        self.pending.clear()
        if self._stalled_by is not None:
            self.node.backpressure.forget(self._stalled_by)
        self.server.disconnected(self)

    @property
    def fileno(self) -> int:
        return -1 if self._socket is None else self._socket.fileno()

    def is_gone(self) -> bool:
        """True if the client has hung up, even if the connection has not read that yet."""
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
        """Close at once. What was not sent is lost."""
        if not self.is_closed:
            self.is_closed = True
            self._transport.abort()

    def close_when_answered(self) -> None:
        """Take no more requests, send the outstanding responses, then close."""
        self._closing = True
        self._hold()
        self._forget_input()
        if self.is_gone():  # not noticed yet: nothing is read while a long request holds the connection
            self.close()
        else:
            self._close_if_done()

    @property
    def is_idle(self) -> bool:
        return not (self.pending or self._busy or self.out) and self.outbox.is_empty

    def _close_if_done(self) -> None:
        if self._closing and self.is_idle and not self.is_closed:
            self.is_closed = True
            self._transport.close()

    # Requests

    def _work(self, buffer: bytearray, view: memoryview, end: int) -> None:
        """Handle the complete frames in ``buffer[:end]`` and keep the rest."""
        position = 0
        left = SHARE
        until = 0.0
        requests = self.server.metrics.requests
        while end - position >= HEAD_SIZE:
            size, api_key, version, correlation_id = _unpack_head(buffer, position)
            stop = position + 4 + size
            if stop > end or size < SMALLEST_FRAME:
                break
            if api_key == _PRODUCE:
                requests[_PRODUCE] += 1
                produce(self, buffer, view, position, stop, version, correlation_id)
            elif api_key == _FETCH:
                requests[_FETCH] += 1
                if self.appended_in == self.turn.number:
                    self.turn.write()  # a client may read what it has just written
                if size < LONG_FETCH:
                    fetch(self, buffer, view, position, stop, version, correlation_id)
                else:
                    copy = bytearray(view[position:stop])
                    self.in_slices(
                        lambda copy=copy, version=version, correlation_id=correlation_id: fetch(  # type: ignore[misc]
                            self, copy, memoryview(copy), 0, len(copy), version, correlation_id
                        )
                    )
            else:
                until = until or monotonic() + SLICE
                self._handle(view, position, stop, api_key, version, correlation_id, until)
                if monotonic() >= until:
                    left = 1
            position = stop
            left -= 1
            if left == 0 and not self._held:
                self._hold()
                self.turn.resume(self)
            if self._held:
                break
        if self.outbox.unsent > self._max_unsent:
            self._hold()
        if position < end:
            self._keep(buffer, position, end)

    def _handle(
        self,
        view: memoryview,
        position: int,
        stop: int,
        api_key: int,
        version: int,
        correlation_id: int,
        until: float,
    ) -> None:
        """Handle any request but Produce and Fetch."""
        served = HANDLERS.get(api_key)
        if served is None or not served.first <= version <= served.last:
            if api_key == API_VERSIONS:
                # The client is newer than this broker. The response tells it which versions are served.
                self.answer(unsupported_version(correlation_id))
                return
            raise ProtocolError(f"asks for {name_of(api_key)} version {version}, which is not served here")
        if self.appended_in == self.turn.number:
            self.turn.write()
        self.server.metrics.requests[api_key] += 1
        data = bytes(view[position:stop])
        self.in_slices(lambda: self._serve(data, served, version, correlation_id), until)

    def _serve(self, data: bytes, served: Served, version: int, correlation_id: int) -> None:
        api_key = served.api_key
        request, client_id = read_request(data, api_key, version)
        if client_id != self.client_id:
            self.client_id = client_id
            self.look_up_quotas()
        if self.node.is_aside and api_key in REFUSED:
            refusal = REFUSED[api_key](request, version)
            self._answer_all(encode_answer(api_key, version, correlation_id, refusal))
            return
        try:
            answer = served.handler(self.node, request, Client(client_id, self.host, version, self.is_gone))
        except Exception as error:
            self.give_up(error, name_of(api_key), version)
            return
        if isinstance(answer, Awaitable):
            slot = self.reserve()
            self._busy += 1
            self._hold()
            if isinstance(answer, Coroutine):
                answer = in_slices(answer, self.server.turns.next)
            task = asyncio.ensure_future(answer)
            self.server.tasks.add(task)
            started = self.server.clock.monotonic()

            def ended(task: asyncio.Future[Reply]) -> None:
                self.server.metrics.handler_seconds.observe(self.server.clock.monotonic() - started)
                self._handler_ended(task, slot, api_key, version, correlation_id)

            task.add_done_callback(ended)
        else:
            self._answer_all(encode_answer(api_key, version, correlation_id, answer))

    def in_slices(self, work: Callable[[], None], until: float = 0.0) -> None:
        """Process a request in slices.

        If it takes long, other connections get turns in between. The next request of this connection
        waits until it is done.
        """
        piece = Slice(work)
        if not piece.run(until or monotonic() + SLICE):
            self._busy += 1
            self._hold()
            self.server.turns.ask(lambda: self._next_slice(piece))

    def _next_slice(self, piece: Slice) -> None:
        if self.is_closed:
            piece.stop()
            return
        try:
            is_done = piece.run(monotonic() + SLICE)
        except Exception as error:
            self._busy -= 1
            self._failed(error)
            return
        if is_done:
            self._busy -= 1
            self.answered()
        else:
            self.server.turns.ask(lambda: self._next_slice(piece))

    def _answer_all(self, parts: list[Part]) -> None:
        if len(parts) == 1:
            self.answer(parts[0])  # type: ignore[arg-type]
        else:
            self.answer_parts(parts, sum(map(len, parts)))  # type: ignore[arg-type]

    def _handler_ended(
        self, task: asyncio.Future[Reply], slot: Slot, api_key: int, version: int, correlation_id: int
    ) -> None:
        self.server.tasks.discard(task)
        self._busy -= 1
        if self.is_closed:
            if not task.cancelled():
                task.exception()
            return
        try:
            answer = task.result()
        except asyncio.CancelledError:
            self.close()
            return
        except Exception as error:
            self.give_up(error, name_of(api_key), version)
            return

        def encode() -> None:
            parts = encode_answer(api_key, version, correlation_id, answer)
            slot.resolve(parts, sum(map(len, parts)))  # type: ignore[arg-type]

        try:
            self.in_slices(encode)
        except Exception as error:
            self.give_up(error, name_of(api_key), version)

    def give_up(self, error: Exception, request: str, version: int) -> None:
        """Close the connection after a malformed request or a bug in a handler. The server goes on."""
        if isinstance(error, ProtocolError):
            self.server.refused(self, error)
        else:
            self.server.report_bug(self, request, version, error)
        self.close()

    def _failed(self, error: Exception) -> None:
        self.give_up(error, "a request", -1)

    def _may_work(self) -> bool:
        return not (
            self._closing
            or self._busy
            or self._stalled_by is not None
            or self._muted
            or len(self.pending) >= self._max_in_flight
            or self.outbox.unsent > self._max_unsent
        )

    # Waiting for threads

    def occupy(self) -> None:
        """Stop reading and working until ``proceed``: threads are processing a request."""
        self._busy += 1
        self._hold()

    def proceed(
        self, work: Callable[[], None], request: str, version: int, *, then: Callable[[], None]
    ) -> None:
        """Continue with the request, even if the client has left. In any case call ``then`` afterwards."""

        def rest() -> None:
            try:
                work()
            except Exception as error:
                self.give_up(error, request, version)
            finally:
                then()

        self.in_slices(rest)
        self._busy -= 1
        self.answered()

    # Waiting for consumers

    def stall(self, held: HeldRequest) -> None:
        """Read nothing more until ``go_on``."""
        self._stalled_by = held
        self._hold()

    def go_on(self) -> None:
        self._stalled_by = None
        self.resume_if_possible()

    def is_drained(self) -> bool:
        """True if there is nothing more to read from it for now."""
        if self._socket is None:
            return True
        waiting = fcntl.ioctl(self._socket.fileno(), termios.FIONREAD, bytes(4))
        return waiting == bytes(4)

    # Quotas

    def look_up_quotas(self) -> None:
        """Called when quotas were changed, or when the client's id became known."""
        throttling = self.node.throttling
        self.produce_meter = throttling.meter(PRODUCE_RATE, self.client_id)
        self.fetch_meter = throttling.meter(FETCH_RATE, self.client_id)
        if self.produce_meter is not None:
            self.produce_shape = None  # its requests are counted on the slow path

    def mute(self, seconds: float) -> None:
        """Read nothing more for this many seconds."""
        self.server.metrics.throttled += 1
        self.server.metrics.throttled_seconds += seconds
        self._muted = True
        self._hold()
        self.server.loop.call_later(seconds, self._unmute)

    def _unmute(self) -> None:
        self._muted = False
        self.resume_if_possible()

    # Responses

    def answer(self, data: bytes | bytearray) -> None:
        """Send a response: it leaves at the end of the turn, or after the pending ones before it."""
        if self.pending:
            self.reserve().answer = [data]
        else:
            self.out.append(data)
            self._queued()
        self.owe(len(data))

    def answer_parts(self, parts: list[Part], size: int) -> None:
        if self.pending:
            self.reserve().answer = parts
        else:
            self.out += parts
            self._queued()
        self.owe(size)

    def owe(self, size: int) -> None:
        """Account for a response of ``size`` bytes, whether it can leave yet or not."""
        self.outbox.unsent += size
        if self.outbox.unsent > self._max_unsent:
            self._hold()

    def _queued(self) -> None:
        if not self.queued:
            self.queued = True
            self.turn.connections.append(self)
            if not self.turn.scheduled:
                self.turn.schedule()

    def replace_ack(
        self, place: int, partition: Partition, correlation_id: int, version: int, failure: LogError
    ) -> None:
        """Replace a response of this turn: the records that it acknowledges could not be written."""
        if place < 0:
            self.close_when_answered()  # acks=0: closing is how the producer learns of it
            return
        answer = failed_ack(partition, version, correlation_id, failure)
        self.outbox.unsent += len(answer) - len(self.out[place])  # type: ignore[arg-type]
        self.out[place] = answer

    def reserve(self) -> Slot:
        return self.place(Slot(self))

    def place(self, slot: Slot) -> Slot:
        """Queue a response that is not ready yet."""
        self.pending.append(slot)
        if len(self.pending) >= self._max_in_flight:
            self._hold()
        return slot

    def advance(self) -> None:
        """Queue every response that is ready and has none before it that is not."""
        if self.is_closed:
            return
        ready = 0
        for slot in self.pending:
            if slot.answer is None:
                break
            self.out += slot.answer
            ready += 1
        if ready:
            del self.pending[:ready]
            self._queued()
        self.answered()

    def answered(self) -> None:
        """A response is ready that may have held the connection: let it go on."""
        if self._held:
            self.turn.resume(self)

    def send(self) -> None:
        """At the end of a turn: send everything queued. What the socket does not take waits in the outbox."""
        self.queued = False
        if self.is_closed:
            return
        out = self.out
        if out:
            self.out = []
            self.outbox.send(out)
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
