"""Run work that reads whole segments on separate threads: searches by time, rebuilding an index.

Both are rare and may take seconds. Steps that change a log still run on the loop, which owns the logs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from millstream.broker.topics.threads import Threads
from millstream.core.errors import LogError
from millstream.core.kafka_errors import KAFKA_STORAGE_ERROR
from millstream.log.segment.time_search import Search

_log = logging.getLogger(__name__)

_THREADS = 2
_GRACE = 2.0  # seconds that shutdown waits for work in progress

T = TypeVar("T")


class SegmentThreads:
    """The lookup threads of one broker. Lives on the server's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = Threads(_THREADS, "millstream-look")

    async def search(self, search: Search[T]) -> T:
        """Run a search, with its walks through segments on a thread. Raises LogError."""
        try:
            walk = next(search)
            while True:
                found = await asyncio.wrap_future(self._threads.submit(walk), loop=self._loop)
                walk = search.send(found)
        except StopIteration as ended:
            result: T = ended.value
            return result
        except RuntimeError:  # the threads are closed
            raise LogError(KAFKA_STORAGE_ERROR, "the broker is shutting down") from None
        except OSError as error:
            raise LogError(KAFKA_STORAGE_ERROR, f"the log can't be read: {error}") from error

    def aside(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Do ``work`` on a thread, then call ``done`` on the loop with its result (None if it failed)."""

        def finished(future: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for this any more
                self._loop.call_soon_threadsafe(self._finish, future, done)

        try:
            self._threads.submit(work).add_done_callback(finished)
        except RuntimeError:  # the threads are closed
            done(None)

    def _finish(self, future: Future[Any], done: Callable[[Any], None]) -> None:
        try:
            outcome = None if future.cancelled() else future.result()
        except Exception:
            _log.exception("an index could not be rebuilt; it is tried again when needed")
            outcome = None
        done(outcome)

    def close(self) -> None:
        self._threads.close(_GRACE)
