"""A registry that runs: in a process of its own, or on a thread of this one."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

import uvicorn

from millstream.client.connect import Connection
from millstream.errors import ConfigError, MillstreamError
from millstream.registry.keeper import TOPIC, Keeper
from millstream.registry.registrar import DEFAULT_LEVEL, LEVELS, Registrar
from millstream.registry.server import application

_log = logging.getLogger(__name__)
_GRACE = 5  # seconds for requests that are under way when it is told to stop
_CONNECTIONS = 2000


class _Server(uvicorn.Server):
    """One that leaves signals to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Registry:
    """A schema registry for the broker at an address, on a thread of this process.

        with millstream.Broker() as broker, Registry(broker.address) as registry:
            client = SchemaRegistryClient({"url": registry.url})

    ``listen`` is where it is served, ``HOST:PORT``; port 0 takes a free one.
    """

    def __init__(
        self,
        broker: str | Connection,
        *,
        listen: str = "127.0.0.1:0",
        topic: str = TOPIC,
        level: str = DEFAULT_LEVEL,
    ) -> None:
        if level.upper() not in LEVELS:
            raise ConfigError(f"{level!r} is not a level of compatibility; there are {', '.join(LEVELS)}")
        connection = Connection.of(broker) if isinstance(broker, str) else broker
        self._keeper = Keeper(connection, topic)
        self._registrar = Registrar(self._keeper.store, level=level.upper())
        self._listen = listen
        self._connection = connection
        self._thread: threading.Thread | None = None
        self._server: _Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.url = ""  # once started

    async def serve(self, on_ready: Callable[[str], None], stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set; ``on_ready`` is told the address once requests are answered."""
        listening = _listening(self._listen)
        try:
            self._connection.check()
            await asyncio.to_thread(self._keeper.start)
        except BaseException:
            listening.close()
            raise
        host, port = listening.getsockname()[:2]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        config = uvicorn.Config(
            application(self._keeper, self._registrar),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_GRACE,
        )
        server = self._server = _Server(config)
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        try:
            while not server.started and not serving.done():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            _log.info("schema registry ready at %s", self.url)
            on_ready(self.url)
            stopped = asyncio.ensure_future(stop.wait())
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            server.should_exit = True
            await serving
        finally:
            await asyncio.to_thread(self._keeper.stop)
            listening.close()

    def hurry(self) -> None:
        """Do not wait for requests that are under way."""
        if self._server is not None:
            self._server.force_exit = True

    # On a thread -------------------------------------------------------------------------------------

    def start(self) -> Self:
        ready = threading.Event()
        failure: list[BaseException] = []

        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._stop = asyncio.Event()
            await self.serve(lambda url: ready.set(), self._stop)

        def run() -> None:
            try:
                asyncio.run(main())
            except BaseException as error:
                failure.append(error)
            finally:
                ready.set()

        self._thread = threading.Thread(target=run, name="millstream-registry", daemon=True)
        self._thread.start()
        ready.wait()
        if failure:
            self._thread.join()
            raise failure[0]
        return self

    def stop(self) -> None:
        """End it in order. Called twice, it does nothing."""
        if self._loop is not None and self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def set_up_logging() -> None:
    """Send the package's log lines to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%Y-%m-%d %H:%M:%S")
    )
    logger = logging.getLogger("millstream")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False


def run(registry: Registry, on_ready: Callable[[str], None]) -> int:
    """Serve until SIGTERM or SIGINT, in this process; the exit code."""

    async def main() -> None:
        stop = asyncio.Event()

        def signalled() -> None:
            if stop.is_set():
                registry.hurry()
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, signalled)
        await registry.serve(on_ready, stop)

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    return 0


def _listening(address: str) -> socket.socket:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{address!r} is not HOST:PORT")
    host = host.removeprefix("[").removesuffix("]")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, int(port)), family=family, backlog=1024)
        # Those that are accepted have it from here; an answer in two parts would wait for the first's
        # receipt.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise MillstreamError(
                f"port {port} on {host or 'all addresses'} is in use; stop what uses it, or give another one"
                " (0 takes a free one)"
            ) from None
        raise MillstreamError(f"can't listen on {address}: {error.strerror or error}") from None
