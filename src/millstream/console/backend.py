"""The object that every handler of the console uses: the broker, its snapshots, and the templates."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import MediaType, Request, Response
from litestar.response import Stream

from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.console import units
from millstream.console.links import (
    group_link,
    partition_anchor,
    pipeline_link,
    row_link,
    sql_link,
    topic_link,
    view_link,
)
from millstream.console.live import updates as live
from millstream.console.live.leaving import HasEnded, leaving
from millstream.console.live.tails import Tails, TailSlot
from millstream.console.messages.schemas import Schemas
from millstream.console.observing.request_pool import RequestPool
from millstream.console.observing.sampler import Sampler
from millstream.console.observing.snapshot import Snapshot
from millstream.console.problems import Problem
from millstream.console.settings import ConsoleSettings
from millstream.console.views import cells
from millstream.console.views.databases import Databases, ViewDatabase, places_of

T = TypeVar("T")
_HERE = Path(__file__).parent
_SEARCHES = 4  # at once; further searches wait
_STREAMS = 200  # open pages that are kept up to date


@dataclass(frozen=True, slots=True)
class Screen:
    """An entry of the navigation, with its handlers. ``shortcut`` is the key to press after ``g``."""

    key: str
    title: str
    path: str
    shortcut: str = ""
    handlers: tuple[Any, ...] = field(default=(), repr=False)


class Backend:
    """The backend of one console. ``sampler`` has the latest snapshot, and ``ask`` queries the broker."""

    def __init__(self, settings: ConsoleSettings, screens: tuple[Screen, ...]) -> None:
        self.settings = settings
        self.screens = screens
        self._requests = RequestPool(settings.connection)
        self._searches = ThreadPoolExecutor(_SEARCHES, thread_name_prefix="search")
        self.tails = Tails()
        self._turns = live.StreamTurns(_STREAMS)
        self.sampler = Sampler(self._requests)
        self.views = Databases(settings.views, self._told_by_jobs)
        self.schemas = None if settings.registry is None else Schemas(settings.registry)
        self._templates = Environment(
            loader=FileSystemLoader(sorted(_HERE.rglob("templates"))),  # each noun has its own
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        units.add_filters(self._templates)
        cells.add_filters(self._templates)
        self._templates.globals.update(
            address=settings.connection.address,
            read_only=settings.read_only,
            screens=screens,
            topic_link=topic_link,
            group_link=group_link,
            partition_anchor=partition_anchor,
            pipeline_link=pipeline_link,
            view_link=view_link,
            row_link=row_link,
            sql_link=sql_link,
        )

    @property
    def asking(self) -> Connection:
        """The connection, with a time-out that is short enough for a page."""
        return self._requests.connection

    def start(self) -> None:
        self.sampler.start()

    def close(self) -> None:
        """End the streams of all open pages, which would otherwise delay the shutdown."""
        self.sampler.close()
        self.views.close()

    async def stop(self) -> None:
        await self.sampler.stop()
        await self.views.stop()
        self._searches.shutdown(wait=True, cancel_futures=True)
        self.tails.close()
        self._requests.close()

    def _told_by_jobs(self) -> list[ViewDatabase]:
        seen = self.sampler.snapshot
        return [] if seen is None else places_of(job.status for job in seen.jobs.values())

    # Asking ------------------------------------------------------------------------------------------

    async def ask(self, question: Callable[[Admin], T]) -> T:
        """Call ``question`` with the broker's admin client, on another thread, and return its result."""
        return await self._requests.ask(question)

    async def run(self, work: Callable[[], T]) -> T:
        """Do other blocking work on the same threads."""
        return await self._requests.run(work)

    async def look_for(self, request: Request[Any, Any, Any], work: Callable[[HasEnded], T]) -> T:
        """Do work that may take seconds on separate threads, so that it delays no other page. ``work`` is
        given a function that is true once the client has disconnected, or the console stops.
        """
        async with leaving(request) as gone:

            def ended() -> bool:
                return gone.is_set() or self.sampler.closed

            return await asyncio.get_running_loop().run_in_executor(self._searches, work, ended)

    # Showing -----------------------------------------------------------------------------------------

    def screen(self, key: str) -> Screen:
        """A screen by its key, for pages that belong to it."""
        return next(screen for screen in self.screens if screen.key == key)

    def page(
        self,
        request: Request[Any, Any, Any],
        screen: Screen,
        template: str,
        *,
        status: int = 200,
        follow: Mapping[str, str] | None = None,
        **values: Any,
    ) -> Response[str]:
        """A whole page of a screen. It listens to ``/live`` + its own path and query string, with the
        parameters in ``follow`` added. A page without live updates passes ``live=""`` in ``values``.
        """
        queries = [part for part in (request.url.query, urlencode(follow or {})) if part]
        live = f"/live{quote(request.url.path.rstrip('/'))}" + (f"?{'&'.join(queries)}" if queries else "")
        html = self.fragment(template, screen=screen, **{"live": live, **values})
        return Response(
            html, status_code=status, media_type=MediaType.HTML, headers={"Cache-Control": "no-store"}
        )

    def fragment(self, template: str, **values: Any) -> str:
        """A rendered template: part of a page, or all of one."""
        return self._templates.get_template(template).render(**values)

    def live(self, fragments: live.Fragments) -> Stream:
        """A stream of the fragments of a page, rendered after each look at the broker."""
        return self._streamed(live.stream(self.sampler, self._status, fragments, self._turns))

    def tail(self, fragments: Callable[[TailSlot, Snapshot], Awaitable[Mapping[str, str]]]) -> Stream:
        """The same for a page that follows a topic. ``fragments`` is also given the page's seat."""

        async def events() -> AsyncIterator[bytes]:
            with self.tails.seat() as seat:
                following = partial(fragments, seat)
                async for event in live.stream(self.sampler, self._status, following, self._turns):
                    yield event

        return self._streamed(events())

    def _status(self, problem: str | None) -> str:
        return self.fragment("status.html", problem=problem)

    def follow(
        self, places: Sequence[ViewDatabase], fragments: Callable[[], Awaitable[Mapping[str, str]]]
    ) -> Stream:
        """A stream of the fragments of a page of views, rendered whenever something was written there."""

        def status(problem: str | None) -> str:
            return self.fragment("view_status.html", problem=problem)

        return self._streamed(live.following(self.views, places, status, fragments))

    def _streamed(self, events: AsyncIterator[bytes]) -> Stream:
        return Stream(
            self._turns.counted(events),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    def problem_page(self, request: Request[Any, Any, Any], problem: Problem) -> Response[str]:
        """An error as a page. While the broker is away, the page waits, and reloads once it is back."""
        away = problem.status == 503
        here = "/" + request.url.path.strip("/").split("/")[0]
        screen = next((each for each in self.screens if each.path == here), None)
        live = "/live/status" if away else ""
        html = self.fragment("problem.html", screen=screen, live=live, problem=problem)
        return Response(html, status_code=problem.status, media_type=MediaType.HTML)
