"""One client's connection: frames in, responses out, in order.

How it works:

- A subclass handles the frames, in place in the receive buffer (``broker.api.serving``).
- Responses leave in the order of the requests. A response that has to wait takes a ``Slot``, and every
  later response queues behind it.
- The responses of one turn of the loop leave together at its end (``net.loop_turn``), after the records
  that they acknowledge were written.

Reading, and when it stops, is in ``broker.net.reading``.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import termios
from collections.abc import Callable
from typing import Protocol

from millstream.broker.net.outbox import Outbox
from millstream.broker.net.reading import FrameReader
from millstream.broker.net.shared_io import SharedIO
from millstream.broker.net.throttling import FETCH_RATE, PRODUCE_RATE, Meter
from millstream.core.errors import ProtocolError
from millstream.core.loop_slices import SLICE, SlicedWork, monotonic
from millstream.wire.hot.fetch import Part

SEND_BUFFER = 100 * 1024


class ConnectionHost(Protocol):
    """What connections report to: the server that accepted them."""

    def connected(self, connection: ClientConnection) -> None: ...
    def disconnected(self, connection: ClientConnection) -> None: ...

    def refused(self, connection: ClientConnection, error: ProtocolError) -> None:
        """The connection is closed, because its client broke the protocol."""

    def report_bug(
        self, connection: ClientConnection, request: str, version: int, error: Exception
    ) -> None: ...


class ClientConnection(FrameReader):
    """See the module's description. A subclass implements ``_work``."""

    __slots__ = (
        "_busy",
        "_closing",
        "_left_while_stalled",
        "_max_in_flight",
        "_max_unsent",
        "_muted",
        "_server",
        "_socket",
        "appended_in",
        "client_id",
        "fetch_meter",
        "host",
        "out",
        "outbox",
        "peer",
        "pending",
        "produce_meter",
        "queued",
        "turn",
        "waiting_since",
    )

    def __init__(self, shared: SharedIO, server: ConnectionHost) -> None:
        super().__init__(shared)
        self._server = server
        self.turn = shared.turn
        self.out: list[Part] = []  # responses of this turn
        self.queued = False  # in the turn's list of connections with responses
        self.pending: list[Slot] = []
        self.appended_in = -1  # the last turn in which this client's records were appended
        self.host = self.peer = ""
        self.client_id = ""
        self.outbox: Outbox
        self._socket: socket.socket | None = None
        self._max_in_flight = shared.max_in_flight
        self._max_unsent = shared.max_unsent_bytes
        self._busy = 0  # requests in progress: handlers, slices, threads
        # While it is stalled (consumers are behind: broker.overload), what to call if the client leaves.
        self._left_while_stalled: Callable[[], None] | None = None
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
            self.shared.loop, sock, self.shared.counters, drained=self._drained, broken=self._broken
        )
        self._server.connected(self)

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
        if self._left_while_stalled is not None:
            self._left_while_stalled()
        self._server.disconnected(self)

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

    # Long requests

    def in_slices(self, work: Callable[[], None], until: float = 0.0) -> None:
        """Process a request in slices.

        If it takes long, other connections get turns in between. The next request of this connection
        waits until it is done.
        """
        piece = SlicedWork(work)
        if not piece.run(until or monotonic() + SLICE):
            self._busy += 1
            self._hold()
            self.shared.slices.ask(lambda: self._next_slice(piece))

    def _next_slice(self, piece: SlicedWork) -> None:
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
            self.shared.slices.ask(lambda: self._next_slice(piece))

    def give_up(self, error: Exception, request: str, version: int) -> None:
        """Close the connection after a malformed request or a bug in a handler. The server continues."""
        if isinstance(error, ProtocolError):
            self._server.refused(self, error)
        else:
            self._server.report_bug(self, request, version, error)
        self.close()

    def _failed(self, error: Exception) -> None:
        self.give_up(error, "a request", -1)

    def _may_work(self) -> bool:
        return not (
            self._closing
            or self._busy
            or self._left_while_stalled is not None
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

    def stall(self, left: Callable[[], None]) -> None:
        """Read nothing more until ``unstall``. ``left`` is called if the client leaves before that."""
        self._left_while_stalled = left
        self._hold()

    def unstall(self) -> None:
        self._left_while_stalled = None
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
        throttling = self.shared.throttling
        self.produce_meter = throttling.meter(PRODUCE_RATE, self.client_id)
        self.fetch_meter = throttling.meter(FETCH_RATE, self.client_id)

    def mute(self, seconds: float) -> None:
        """Read nothing more for this many seconds."""
        self.shared.counters.throttled += 1
        self.shared.counters.throttled_seconds += seconds
        self._muted = True
        self._hold()
        self.shared.loop.call_later(seconds, self._unmute)

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

    def replace_ack(self, place: int, failed: Callable[[], bytes]) -> None:
        """Replace a response of this turn: the records that it acknowledges could not be written."""
        if place < 0:
            self.close_when_answered()  # acks=0: closing is how the producer learns of it
            return
        answer = failed()
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
        """A response is ready that may have held the connection: let it continue."""
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


class Slot:
    """The place of a response that is not ready yet, among those of its connection."""

    __slots__ = ("answer", "connection")

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.answer: list[Part] | None = None

    def resolve(self, answer: list[Part], size: int) -> None:
        """Set the response. It is sent once all responses before it are sent."""
        connection = self.connection
        if connection.is_closed:
            return
        if len(connection.pending) == 1:  # no other response is pending
            connection.pending.clear()
            connection.answer_parts(answer, size)
            connection.answered()
        else:
            self.answer = answer
            connection.owe(size)
            connection.advance()

    def abandon(self) -> None:
        """The connection is gone. Subclasses clean up here."""
