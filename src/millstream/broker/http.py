"""Metrics, health and readiness over HTTP, for monitoring systems.

    GET /metrics   Prometheus's text format
    GET /healthz   200 while the process works at all; on a standby, with its lag as JSON
    GET /readyz    200 while clients are served in full; 503 while starting and stopping, while another broker
                   leads, and while partitions take no writes (with their names)

Three fixed responses to requests without a body need no framework. The server listens on the address in
``http.listen``, and nowhere by default. Without a host it listens on the loopback interface only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable

from millstream.broker.metrics import Collector
from millstream.broker.node import Node
from millstream.broker.upkeep.stopped_logs import not_ready_because, stopped_partitions
from millstream.core.errors import ConfigError

_MAX_REQUEST = 16 * 1024
_TIMEOUT = 10.0
_TEXT = "text/plain; charset=utf-8"


class HttpServer:
    """See the module's description."""

    def __init__(self, node: Node, collector: Collector, is_ready: Callable[[], bool]) -> None:
        self._node = node
        self._collector = collector
        self._is_ready = is_ready
        self._listener: asyncio.Server | None = None
        self.address = ""

    async def start(self, host: str, port: int) -> None:
        try:
            self._listener = await asyncio.start_server(
                self._serve, host or "127.0.0.1", port, limit=_MAX_REQUEST
            )
        except OSError as error:
            raise ConfigError(
                f"http.listen: can't listen on {host}:{port}: {error.strerror or error}; give another port"
            ) from error
        name = self._listener.sockets[0].getsockname()
        self.address = f"{name[0]}:{name[1]}"
        self.port: int = name[1]

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
                method, _, rest = head.decode("latin-1").partition(" ")
                path = rest.partition(" ")[0].partition("?")[0]
                status, kind, body = self._answer(method, path)
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                    "Connection: close\r\n\r\n".encode()
                )
                if method != "HEAD":
                    writer.write(body)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client has gone, or does not speak HTTP
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _answer(self, method: str, path: str) -> tuple[str, str, bytes]:
        if method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", _TEXT, b"only GET\n"
        if path == "/metrics":
            from prometheus_client import CollectorRegistry
            from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

            registry = CollectorRegistry()
            registry.register(self._collector)
            return "200 OK", CONTENT_TYPE_LATEST, generate_latest(registry)
        if path == "/healthz":
            standby = self._node.standby
            if standby is None:
                return "200 OK", _TEXT, b"ok\n"
            body = json.dumps(standby.status()) + "\n"
            return "200 OK", "application/json", body.encode()
        if path == "/readyz":
            standby = self._node.standby
            if standby is not None:
                return "503 Service Unavailable", _TEXT, f"standby of {standby.leader}\n".encode()
            if self._node.role.fenced_by:
                return "503 Service Unavailable", _TEXT, b"replaced by another broker\n"
            if not self._is_ready():
                return "503 Service Unavailable", _TEXT, b"not ready\n"
            if stopped := stopped_partitions(self._node.topics.partitions()):
                return "503 Service Unavailable", _TEXT, not_ready_because(stopped).encode()
            return "200 OK", _TEXT, b"ready\n"
        return "404 Not Found", _TEXT, b"/metrics, /healthz or /readyz\n"
