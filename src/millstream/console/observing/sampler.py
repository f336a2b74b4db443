"""Queries the broker repeatedly, once for all viewers, and notifies them after each look.

A look at a large cluster takes longer than one at a small cluster. So the pause after a look is up to three
times as long as the look itself: the console never takes more than a part of the broker's time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from millstream.client.librdkafka.admin import Admin
from millstream.console.observing.history import Columns
from millstream.console.observing.observer import Observer
from millstream.console.observing.request_pool import RequestPool
from millstream.console.observing.snapshot import Snapshot
from millstream.core.clock import Clock, SystemClock
from millstream.core.errors import BrokerUnavailable, MillstreamError, RequestFailed

_log = logging.getLogger(__name__)
_EVERY = 1.0  # seconds
_CLOSER_EVERY = 5.0
_SHARE = 3  # the pause after a slow look, in multiples of its duration
_LONGEST = 15.0  # seconds, the longest such pause
_DELETED_MEANWHILE = 4  # times that a look is repeated because a topic was deleted during it
_PAUSE = 0.05  # seconds before each repetition


class Sampler:
    """Takes the snapshots. ``snapshot`` is the last one, and ``problem`` says why there is no newer one."""

    def __init__(self, requests: RequestPool, clock: Clock | None = None) -> None:
        self._requests = requests
        self._clock = clock or SystemClock()
        self._changed = asyncio.Event()
        self._looking = asyncio.Lock()  # one look at a time, because each builds on the one before
        self._looking_closer = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self.observer = Observer(self._clock)
        self.snapshot: Snapshot | None = None
        self.problem: str | None = None
        self.closed = False

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._repeat(self._look, _EVERY)),
            asyncio.create_task(self._repeat(self._look_closer, _CLOSER_EVERY)),
        ]

    async def stop(self) -> None:
        self.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._requests.run(self.observer.close)

    def close(self) -> None:
        """Wake everything that waits in ``next``. Nothing more will come."""
        self.closed = True
        self._publish()

    # For viewers -------------------------------------------------------------------------------------

    async def first(self) -> Snapshot:
        """The last snapshot. Waits for the first one. Raises BrokerUnavailable while no broker answers."""
        while self.snapshot is None and self.problem is None and not self.closed:
            await self.next()
        if self.problem is not None:
            raise BrokerUnavailable(self.problem)
        if self.snapshot is None:
            raise BrokerUnavailable("the console is being stopped")
        return self.snapshot

    async def next(self) -> None:
        """Wait until the next look has ended, whether it succeeds or fails."""
        await self._changed.wait()

    async def look_now(self) -> Snapshot:
        """A snapshot of this moment: used after a change, or when something is not in the last snapshot."""
        await self._look()
        return await self.first()

    async def look_closer_now(self) -> Snapshot:
        """The same, with current sizes and groups."""
        self.observer.expire()
        await self._look_closer()
        return await self.look_now()

    def rates(self) -> Columns:
        """Records in and out per second, over the last hour."""
        return self.observer.history.columns("in", "out")

    # Looking -----------------------------------------------------------------------------------------

    async def _repeat(self, look: Callable[[], Any], every: float) -> None:
        first = True
        while True:
            began = self._clock.monotonic()
            await look()
            took = self._clock.monotonic() - began
            # The first look takes longer, because it opens the connection. Its duration does not count.
            await asyncio.sleep(_EVERY if first else max(every, min(_SHARE * took, _LONGEST)))
            first = False

    async def _look(self) -> None:
        try:
            async with self._looking:
                self.snapshot = await self._asked(self.observer.look)
        except MillstreamError as error:
            if self.problem is None:
                _log.warning("%s", error)
            self.problem = str(error)
        else:
            if self.problem is not None:
                _log.info("%s answers again", self._requests.connection.address)
            self.problem = None
        self._publish()

    async def _look_closer(self) -> None:
        try:
            async with self._looking_closer:
                await self._asked(self.observer.look_closer)
        except MillstreamError as error:
            if self.problem is None:  # otherwise the problem is already known
                _log.warning("sizes and groups are unknown: %s", error)

    async def _asked(self, look: Callable[[Admin], Any]) -> Any:
        try:
            for _ in range(_DELETED_MEANWHILE):
                try:
                    return await self._requests.ask(look)
                except RequestFailed:
                    # The broker answers. A topic may have been deleted after the topics were listed, and
                    # won't be on the next list. Which error that causes differs between clients and brokers.
                    await asyncio.sleep(_PAUSE)
            return await self._requests.ask(look)
        except MillstreamError:
            raise
        except Exception as error:
            # A bug in millstream. Pages show the error, and continue with the last snapshot.
            _log.exception("querying the broker failed; please report this")
            raise MillstreamError(f"the console failed: {type(error).__name__}: {error}") from None

    def _publish(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
