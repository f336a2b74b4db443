"""The server: listens, accepts connections, and shuts the broker down cleanly.

An orderly shutdown takes no more connections and requests, answers long polls with the records there are,
finishes the work in progress, syncs, and leaves the mark that makes the next start fast. A second signal
skips the wait for clients, but not the sync.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from millstream.broker.api.serving import ServedConnection
from millstream.broker.housekeeping import Housekeeping
from millstream.broker.http import HttpServer
from millstream.broker.metrics import Collector
from millstream.broker.net.connection import ClientConnection
from millstream.broker.net.loop_turn import LoopTurn
from millstream.broker.net.shared_io import SharedIO
from millstream.broker.node import Node
from millstream.broker.topics.syncing import Syncer
from millstream.broker.upkeep.compacting import Cleaner
from millstream.core.address import host_and_port
from millstream.core.clock import Clock, SystemClock
from millstream.core.config import BrokerConfig, with_changes
from millstream.core.errors import ConfigError, MillstreamError, ProtocolError
from millstream.core.log_output import RateLimited, set_up_logging
from millstream.log.storage.files import Files

_log = logging.getLogger(__name__)

GRACE = 10.0  # seconds to finish work in progress when the broker is told to stop


class Server:
    """A broker that listens. Call ``start`` and ``stop`` once each, on the running loop."""

    def __init__(
        self, config: BrokerConfig, clock: Clock | None = None, *, files: Files | None = None
    ) -> None:
        _check_addresses(config)
        self.config = config
        self.clock = clock or SystemClock()
        self.loop = asyncio.get_running_loop()
        self.connections: set[ClientConnection] = set()
        self.is_ready = False
        self._complaints = RateLimited(_log)
        self.node = Node(config, self.clock, self.loop, files=files)
        counters = self._counters = self.node.counters
        self.syncer = Syncer(
            self.loop, self.clock, threads=config.log_flush_threads, measured=counters.synced
        )
        self.turn = LoopTurn(self.loop, self.clock, self.syncer, counters)
        self.shared = SharedIO(config, self.loop, self.clock, self.turn, self.node.throttling, counters)
        if config.follow:
            self.node.follow(config.follow, *_host_and_port("follow", config.follow))
        else:
            self.node.transactions.start(self.turn, self.syncer)
        self.following: asyncio.Task[None] | None = None
        if self.node.archiving is not None:
            self.node.archiving.start(self.syncer)
        self.node.on_quotas = self._quotas_changed
        self.housekeeping = Housekeeping(self.node, self.shared, self.connections, self.syncer)
        self.cleaner = Cleaner(self.node.topics.partitions, lambda: self.node.config, self.clock, self.syncer)
        self.collector = Collector(self.node, self.shared, self.connections, self.cleaner)
        self._listener: asyncio.Server | None = None
        self._http: HttpServer | None = None
        self._stopping = False

    async def start(self) -> str:
        """Listen. Returns the address that clients are told."""
        try:
            host, port = _host_and_port("listen", self.config.listen)
            self._listener = await self._listen(host, port)
            port = self._listener.sockets[0].getsockname()[1]
            if self.config.advertised_listener:
                host, port = _host_and_port("advertised.listener", self.config.advertised_listener)
            elif host in ("0.0.0.0", "::", ""):  # noqa: S104
                host = socket.gethostname()  # a wildcard address is no address that a client could use
            self.node.role.listens_at(host, port, leads=self.node.standby is None)
            if self.config.http_listen:
                self._http = HttpServer(self.node, self.collector, lambda: self.is_ready)
                await self._http.start(*_host_and_port("http.listen", self.config.http_listen))
        except BaseException:
            await self.stop()
            raise
        self.housekeeping.start()
        self.cleaner.start()
        self.is_ready = True
        if self.node.standby is not None:
            self.following = self.node.standby.start()
        threading.Thread(target=_load_schemas, name="millstream-load", daemon=True).start()
        return f"{host}:{port}" if ":" not in host else f"[{host}]:{port}"

    @property
    def listening(self) -> dict[str, str]:
        """The settings that make another server listen at the same addresses."""
        assert self._listener is not None
        name = self._listener.sockets[0].getsockname()
        host, _, _ = self.config.listen.rpartition(":")
        found = {"listen": f"{host}:{name[1]}"}
        if self._http is not None:
            found["http.listen"] = f"{self.config.http_listen.rpartition(':')[0]}:{self._http.port}"
        return found

    @property
    def http_address(self) -> str:
        return self._http.address if self._http is not None else ""

    async def _listen(self, host: str, port: int) -> asyncio.Server:
        try:
            return await self.loop.create_server(self._accept, host or None, port, backlog=1024)
        except OSError as error:
            raise _cannot_listen("listen", host, port, error) from error

    def _accept(self) -> ServedConnection:
        return ServedConnection(self.shared, self, self.node)

    # Called by connections

    def connected(self, connection: ClientConnection) -> None:
        self.connections.add(connection)
        self._counters.connections_opened += 1
        if self._stopping:
            connection.close()
        elif len(self.connections) > self.config.max_connections:
            self._refuse(connection, f"max.connections is {self.config.max_connections}")
        elif connection.fileno > (limit := _file_limit()) - min(max(limit // 4, 16), 256):
            # The lowest free descriptor is given out first, so a high one means that many files are open.
            # With none left, libuv would close new connections silently, and logs could not be opened.
            self._refuse(
                connection,
                f"the process has nearly all of its {limit} files open, and the rest is for logs. "
                "Raise the limit of open files (ulimit -n, or LimitNOFILE= in systemd)",
            )

    def _refuse(self, connection: ClientConnection, reason: str) -> None:
        self._counters.connections_refused += 1
        self._complaints.warning("refused", "connection from %s refused: %s", connection.peer, reason)
        connection.close()

    def _quotas_changed(self) -> None:
        for connection in self.connections:
            connection.look_up_quotas()

    def disconnected(self, connection: ClientConnection) -> None:
        self.connections.discard(connection)

    def refused(self, connection: ClientConnection, error: ProtocolError) -> None:
        self._counters.protocol_errors += 1
        self._complaints.warning(
            "protocol", "connection from %s%s closed: it %s",
            connection.peer, f" ({connection.client_id!r})" if connection.client_id else "", error,
        )  # fmt: skip

    def report_bug(self, connection: ClientConnection, request: str, version: int, error: Exception) -> None:
        self._counters.bugs += 1
        self._complaints.error(
            "bug", "%s version %d from %s failed; please report this", request, version, connection.peer,
            exc_info=error,
        )  # fmt: skip

    # Stopping

    async def stop(self, *, hurry: asyncio.Event | None = None) -> None:
        """Shut down cleanly. ``hurry`` ends the wait for clients. A second call does nothing."""
        if self._stopping:
            return
        self._stopping = True
        was_ready, self.is_ready = self.is_ready, False
        started = time.monotonic()
        if self._listener is not None:
            self._listener.close()
        await self.housekeeping.stop()
        if self.node.standby is not None:
            await self.node.standby.stop()
        await self._let_standbys_finish(started)
        self.node.followers.close()
        await self.cleaner.stop()
        self.node.deadlines.expire_all()
        self.node.backpressure.close()
        self.node.coordinator.close()
        self.node.share_delivery.close()
        await self.node.transactions.close()
        for connection in list(self.connections):
            connection.close_when_answered()
        while self.connections and time.monotonic() - started < GRACE:
            if hurry is not None and hurry.is_set():
                break
            await asyncio.sleep(0.005)
        for connection in list(self.connections):
            connection.close()
        for task in self.shared.tasks:
            task.cancel()
        if self.shared.tasks:
            await asyncio.wait(self.shared.tasks, timeout=1)
        while (  # noqa: ASYNC110
            self.connections
            or not self.node.preparer.is_idle
            or self.turn.scheduled
            or not self.syncer.is_idle
        ):
            await asyncio.sleep(0.001)
        if self._http is not None:
            await self._http.stop()
        self.node.preparer.close()
        await self.node.topic_admin.removal.finish()
        self.syncer.close()
        self.node.close()
        if was_ready:
            _log.info("shut down cleanly in %.2f s", time.monotonic() - started)

    async def _let_standbys_finish(self, started: float) -> None:
        """Take no more writes, wait for syncs in progress, and let the standbys copy everything."""
        if not len(self.node.followers):
            return
        self.node.role.stop_leading("this broker is being stopped")
        while not self.syncer.is_idle:
            if time.monotonic() - started > GRACE:
                return
            await asyncio.sleep(0.001)
        await self.node.followers.finish()


def _load_schemas() -> None:
    """Load the schemas that the first unusual request would otherwise wait for."""
    from millstream.wire.codec.schema_codec import request_reader

    request_reader(3, 12)


def _host_and_port(setting: str, address: str) -> tuple[str, int]:
    try:
        return host_and_port(address, listening=setting != "follow")
    except ConfigError as error:
        raise ConfigError(f"{setting}: {error}") from None


def _check_addresses(config: BrokerConfig) -> None:
    """Refuse addresses that can't be used, before anything is written: a broker that did not start must not
    leave a data directory behind."""
    if config.follow:
        _host_and_port("follow", config.follow)
    if config.advertised_listener:
        _host_and_port("advertised.listener", config.advertised_listener)
    for setting, address in (("listen", config.listen), ("http.listen", config.http_listen)):
        if not address:
            continue
        host, port = _host_and_port(setting, address)
        try:
            found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            for family, kind, protocol, _, place in found:
                _try_to_bind(family, kind, protocol, place)
        except OSError as error:
            raise _cannot_listen(setting, host, port, error) from None


def _try_to_bind(family: int, kind: int, protocol: int, place: Any) -> None:
    try:
        trial = socket.socket(family, kind, protocol)
    except OSError:
        return  # this machine does not have the address family, and asyncio skips it too
    with trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        trial.bind(place)


def _cannot_listen(setting: str, host: str, port: int, error: OSError) -> MillstreamError:
    reason = error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"{setting}: port {port} on {host or 'all addresses'} is in use; stop what uses it, "
            "or give another one (0 takes a free one)"
        )
    if error.errno == errno.EACCES:
        return ConfigError(f"{setting}: this user may not listen on port {port}; give one above 1023")
    return ConfigError(f"{setting}: can't listen on {host}:{port}: {reason}")


def _file_limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _allow_many_files() -> None:
    """Raise the limit of open files as far as allowed: connections and segments are open files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def serve(
    config: BrokerConfig,
    *,
    on_ready: Callable[[str], None] | None,
    stop: asyncio.Event,
    hurry: asyncio.Event,
) -> None:
    """Serve until ``stop`` is set. A standby that is promoted continues as a leader at the same address."""
    while True:
        server = Server(config)
        address = await server.start()
        _log.info("ready at %s", address)
        if server.http_address:
            _log.info("metrics and health at http://%s", server.http_address)
        if on_ready is not None:
            on_ready(address)
            on_ready = None
        listening = server.listening
        try:
            await _until_any(stop, server)
        finally:
            await server.stop(hurry=hurry)
        if stop.is_set():
            return
        config = with_changes(config, {"follow": "", **listening})


async def _until_any(stop: asyncio.Event, server: Server) -> None:
    """Wait for ``stop``, or for a standby's promotion. Raises the error that ends a standby's following."""
    standby = server.node.standby
    if standby is None or server.following is None:
        await stop.wait()
        return
    stopped, promoted = asyncio.create_task(stop.wait()), asyncio.create_task(standby.promoted.wait())
    try:
        ended = {server.following}
        while True:
            done, _ = await asyncio.wait({stopped, promoted, *ended}, return_when=asyncio.FIRST_COMPLETED)
            if stopped in done or promoted in done:
                return
            if not server.following.cancelled():
                server.following.result()
            ended = set()  # it was cancelled by a promotion in progress
    finally:
        stopped.cancel()
        promoted.cancel()


def run(config: BrokerConfig, *, on_ready: Callable[[str], None] | None = None) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code. A second signal skips the wait for clients.

    ``on_ready`` is called with the address once clients can connect. Raises MillstreamError if the broker
    can't start.
    """
    set_up_logging(config.log_level, config.log_format)
    _allow_many_files()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        stop, hurry = asyncio.Event(), asyncio.Event()

        def signalled() -> None:
            if stop.is_set():
                hurry.set()
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, signalled)
        await serve(config, on_ready=ready, stop=stop, hurry=hurry)

    def ready(address: str) -> None:
        # Objects that exist now will stay. Scanning thousands of partitions for garbage would stall the loop.
        gc.collect()
        gc.freeze()
        if on_ready is not None:
            on_ready(address)

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    return 0
