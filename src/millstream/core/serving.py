"""Serve an HTTP application: in its own process, or on a thread of another program.

The schema registry and the console have this in common. It needs uvicorn, which comes with their extras.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import faulthandler
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self

import uvicorn

from millstream.core.address import host_and_port
from millstream.core.errors import MillstreamError

_log = logging.getLogger(__name__)
_GRACE = 5  # seconds for requests in progress when it is told to stop
_LONGEST = 15.0  # seconds within which it has to end, whatever it waits for
_CONNECTIONS = 2000
# Bytes of a URL with its headers: every parameter as long as it may be, with every character escaped. Beyond
# it the connection is closed while the rest still arrives, which a client sees as broken, not as refused.
_LONGEST_HEAD = 512 * 1024


class _Server(uvicorn.Server):
    """A server that leaves signals to its caller."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ServedApplication:
    """Serves an application at ``listen``, ``HOST:PORT``; port 0 takes a free one. ``url`` is known once it
    has started. A subclass provides the ``application``."""

    name = "http"

    def __init__(self, listen: str) -> None:
        self._listen = listen
        self._thread: threading.Thread | None = None
        self._server: _Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.url = ""

    def application(self) -> AbstractAsyncContextManager[Any]:
        """The ASGI application, with whatever must run while it is served."""
        raise NotImplementedError

    def ending(self) -> None:
        """Called on the loop when it is told to stop: responses that never end by themselves must end now."""

    async def serve(self, on_ready: Callable[[str], None], stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set. ``on_ready`` gets the address once requests are answered."""
        listening = _listening(self._listen)
        try:
            async with self.application() as application:
                await self._serve(application, listening, on_ready, stop)
        finally:
            listening.close()

    async def _serve(
        self, application: Any, listening: socket.socket, on_ready: Callable[[str], None], stop: asyncio.Event
    ) -> None:
        host, port = listening.getsockname()[:2]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        config = uvicorn.Config(
            application,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_GRACE,
            h11_max_incomplete_event_size=_LONGEST_HEAD,
        )
        server = self._server = _Server(config)
        serving = asyncio.ensure_future(server.serve(sockets=[listening]))
        while not server.started and not serving.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        _log.info("%s ready at %s", self.name, self.url)
        on_ready(self.url)
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        self.ending()
        server.should_exit = True
        await serving

    def hurry(self) -> None:
        """Stop waiting for requests in progress."""
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

        self._thread = threading.Thread(target=run, name=f"millstream-{self.name}", daemon=True)
        self._thread.start()
        ready.wait()
        if failure:
            self._thread.join()
            raise failure[0]
        return self

    def stop(self) -> None:
        """Stop cleanly. A second call does nothing."""
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


def run(served: ServedApplication, on_ready: Callable[[str], None]) -> int:
    """Serve in this process until SIGTERM or SIGINT. Returns the exit code.

    It ends within ``_LONGEST`` seconds of the signal. Client libraries have their own threads, and stopping
    those can block forever (librdkafka's ``rd_kafka_destroy``, with requests in flight to a broker that is
    gone). Then the process ends all the same, and prints where each thread was."""

    async def main() -> None:
        stop = asyncio.Event()

        def signalled() -> None:
            if stop.is_set():
                served.hurry()
            else:
                faulthandler.dump_traceback_later(_LONGEST, exit=True)  # needs no interpreter
            stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, signalled)
        await served.serve(on_ready, stop)

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
    return 0


def run_beside(served: ServedApplication) -> int:
    """Like ``run``, next to the process that started this one. It ends when standard input does, so that it
    never outlives its parent, however the parent ends."""

    def end_with_parent() -> None:
        sys.stdin.buffer.read()
        os.kill(os.getpid(), signal.SIGTERM)

    set_up_logging()
    threading.Thread(target=end_with_parent, name="parent", daemon=True).start()
    try:
        return run(served, on_ready=lambda url: None)
    except MillstreamError as error:
        print(f"millstream: the {served.name} did not start: {error}", file=sys.stderr)
        return 1


def _listening(address: str) -> socket.socket:
    host, port = host_and_port(address, listening=True)
    host = host or "127.0.0.1"  # without a host, for this machine only; 0.0.0.0 is for all
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=1024)
        # Accepted connections inherit it. Without it, the second part of a response would wait until the
        # first is acknowledged.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise MillstreamError(
                f"port {port} on {host} is in use; stop what uses it, or give another one"
                " (0 takes a free one)"
            ) from None
        raise MillstreamError(f"can't listen on {address}: {error.strerror or error}") from None
