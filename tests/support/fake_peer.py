"""A client connection without a network: the test passes bytes in any pieces, and sees what comes back."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from millstream.broker.api.serving import ServedConnection
from millstream.broker.server import Server
from millstream.core.config import BrokerConfig
from tests.support.wire_client import frames

T = TypeVar("T")


class FakeTransport(asyncio.Transport):
    """The parts of a transport that a connection uses, over one end of a real socket pair."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__({"socket": sock, "peername": ("198.51.100.7", 4242)})
        self.socket = sock
        self.is_reading_now = True
        self.closed = False

    def pause_reading(self) -> None:
        assert self.is_reading_now, "paused twice"
        self.is_reading_now = False

    def resume_reading(self) -> None:
        assert not self.is_reading_now, "resumed without a pause"
        self.is_reading_now = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class FakePeer:
    """One client of a server, byte by byte."""

    def __init__(self, server: Server) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        self.socket = ours
        self.transport = FakeTransport(theirs)
        self.connection = ServedConnection(server.shared, server, server.node)
        self.connection.connection_made(self.transport)
        self.received = bytearray()

    def give(self, data: bytes) -> None:
        """Let bytes arrive, as many at a time as the connection has room for."""
        while data:
            assert self.transport.is_reading_now, "the connection does not read"
            buffer = memoryview(self.connection.get_buffer(-1))
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]
            if self.transport.closed:
                return

    async def send(self, data: bytes) -> None:
        """Let bytes arrive whenever the connection reads."""
        while data:
            async with asyncio.timeout(20):
                while not self.transport.is_reading_now:  # noqa: ASYNC110
                    await asyncio.sleep(0)
            room = min(len(self.connection.get_buffer(-1)), len(data))
            self.give(data[:room])
            data = data[room:]

    def take(self, count: int = 1 << 20) -> None:
        """Read what the server sent, once."""
        try:
            self.received += self.socket.recv(count)
        except BlockingIOError:
            return

    async def answers(self, count: int) -> list[bytes]:
        """Wait for the first ``count`` responses, and return all that have arrived."""

        def whole() -> int:
            position = found = 0
            while position + 4 <= len(self.received):
                position += 4 + int.from_bytes(self.received[position : position + 4], "big")
                found += position <= len(self.received)
            return found

        async with asyncio.timeout(20):
            while whole() < count:
                await asyncio.sleep(0.001)
                self.take()
        return frames(bytes(self.received))

    def close(self) -> None:
        if self.socket.fileno() >= 0:
            self.connection.connection_lost(None)
            self.socket.close()
            self.transport.socket.close()


def with_server(
    steps: Callable[[Server, Callable[[], FakePeer]], Awaitable[T]],
    *,
    topics: dict[str, int] | None = None,
    config: BrokerConfig | None = None,
    **options: Any,
) -> T:
    """Run ``steps`` with a server that does not listen, and a function that connects to it."""

    async def main() -> T:
        server = Server(config or BrokerConfig(), **options)
        peers: list[FakePeer] = []

        def connect() -> FakePeer:
            peers.append(FakePeer(server))
            return peers[-1]

        try:
            for name, partitions in ({"t": 2} if topics is None else topics).items():
                await server.node.topic_admin.create(name, partitions, {})
            return await steps(server, connect)
        finally:
            for peer in peers:
                peer.close()
            await server.stop()

    return asyncio.run(main())
