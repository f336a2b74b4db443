"""A TCP proxy in front of a broker that cuts connections on demand, and can speak TLS to clients."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress


class Proxy:
    """Forwards bytes both ways. The broker behind it must advertise the proxy's address.

    ``cut_after(n)`` lets n more responses through, then swallows the next one and closes its connection: the
    request has reached the broker, but the client gets no response.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts = 0
        self._target: tuple[str, int] | None = None
        self._answers_left: int | None = None
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def forward_to(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._target = (host, int(port))
        self._thread.start()

    def cut_after(self, answers: int) -> None:
        with self._lock:
            self._answers_left = answers

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._listener, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        assert self._target is not None
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with suppress(OSError):
                if self._tls is not None:
                    client = self._tls.wrap_socket(client, server_side=True)
                server = socket.create_connection(self._target)
                self._open += (client, server)
                for forward, source, sink in ((_copy, client, server), (self._answers, server, client)):
                    threading.Thread(target=forward, args=(source, sink), daemon=True).start()

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while head := _exactly(server, 4):
                body = _exactly(server, int.from_bytes(head, "big"))
                with self._lock:
                    if self._answers_left == 0:
                        self._answers_left = None
                        self.cuts += 1
                        break
                    if self._answers_left is not None:
                        self._answers_left -= 1
                client.sendall(head + body)
        _end(client, server)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    _end(source, sink)


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            return b""
        data += part
    return bytes(data)
