"""Keeps open pages up to date: sends HTML fragments as server-sent events.

A stream renders its fragments after each look at the broker, and sends those that differ from what it sent
last. It ends when the console stops or the client disconnects.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from litestar.exceptions import HTTPException, ServiceUnavailableException

from millstream.console.observing.sampler import Sampler
from millstream.console.observing.snapshot import Snapshot
from millstream.console.views.databases import Databases, ViewDatabase
from millstream.core.errors import MillstreamError

_log = logging.getLogger(__name__)
Fragments = Callable[[Snapshot], Mapping[str, str] | Awaitable[Mapping[str, str]]]
_SOONEST = 0.3  # seconds between two updates of a page of views
_SHARE = 3  # the pause before the next update, in multiples of the time that the last one took
_KEEP_ALIVE = 15.0  # seconds; a proxy between console and browser may close a silent connection


class StreamTurns:
    """Limits how many streams are open, and decides when each renders. A look at the broker wakes all of
    them at once. So they take turns, one stream for each turn of the loop: a request for a page waits for
    one of them, not for all.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0
        self._rendering = asyncio.Lock()

    def counted(self, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The same events, counted as one more stream. Raises ServiceUnavailableException if there are too
        many.
        """
        if self._open >= self._most:
            raise ServiceUnavailableException(
                f"this console keeps at most {self._most} pages up to date; close one, or reload this page to"
                " see what has changed"
            )
        return self._counted(events)

    async def _counted(self, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self._open += 1
        try:
            async for event in events:
                yield event
        finally:
            self._open -= 1

    async def render(self, fragments: Fragments, snapshot: Snapshot) -> Mapping[str, str]:
        async with self._rendering:
            made = fragments(snapshot)
            await asyncio.sleep(0)
        return await made if isinstance(made, Awaitable) else made


async def stream(
    sampler: Sampler, status: Callable[[str | None], str], fragments: Fragments, turns: StreamTurns
) -> AsyncIterator[bytes]:
    """Events named after the fragments, and an event ``status`` with the broker's problem, if it has one."""
    sent: dict[str, str] = {}
    yield b"retry: 1000\n\n"
    while not sampler.closed:
        now = {"status": status(sampler.problem)}
        if sampler.snapshot is not None and sampler.problem is None:
            try:
                now.update(await turns.render(fragments, sampler.snapshot))
            except MillstreamError as error:  # since the look, the broker or the shown object has gone away
                _log.debug("a page can't be updated: %s", error)
        for name, html in now.items():
            if sent.get(name) != html:
                sent[name] = html
                yield encoded(name, html)
        try:
            await asyncio.wait_for(sampler.next(), _KEEP_ALIVE)
        except TimeoutError:
            yield b": still here\n\n"


async def following(
    databases: Databases,
    places: Sequence[ViewDatabase],
    status: Callable[[str | None], str],
    fragments: Callable[[], Awaitable[Mapping[str, str]]],
) -> AsyncIterator[bytes]:
    """The same for databases of views: fragments are rendered when something was written there. The pause
    after a render is at least three times as long as the render, so that open pages take only a part of a
    database's time.
    """
    sent: dict[str, str] = {}
    seen: object = None
    yield b"retry: 1000\n\n"
    with databases.followed(places):
        while not databases.closed:
            versions = databases.seen(places)
            if versions == seen:
                if not await databases.next(_KEEP_ALIVE):
                    yield b": still here\n\n"
                continue
            seen, began = versions, time.monotonic()
            problem = next(filter(None, map(databases.problem, places)), None) if len(places) == 1 else None
            now: dict[str, str] = {}
            if problem is None:
                try:
                    now.update(await fragments())
                except MillstreamError as error:
                    problem = str(error)
                except HTTPException as error:
                    problem = error.detail
            now["status"] = status(problem)
            for name, html in now.items():
                if sent.get(name) != html:
                    sent[name] = html
                    yield encoded(name, html)
            await asyncio.sleep(max(_SOONEST, _SHARE * (time.monotonic() - began)))


def encoded(name: str, data: str) -> bytes:
    """One event in the format of server-sent events."""
    lines = "".join(f"data: {line}\n" for line in data.splitlines())
    return f"event: {name}\n{lines}\n".encode()
