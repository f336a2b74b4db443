"""The databases of views that a console knows: those of its command line, and those that jobs report.

They are queried on separate threads, so that slow SQL delays nothing else. A database is followed, on a
thread of its own, only while a page shows it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from litestar.exceptions import NotFoundException, TooManyRequestsException

from millstream.console.views.tables import Database, Jobs, ViewList, ViewState, views_of
from millstream.core.errors import MillstreamError
from millstream.jobs.report import JobStatus
from millstream.views.address import shown
from millstream.views.opening import open_reader
from millstream.views.views import ViewReader

T = TypeVar("T")
_log = logging.getLogger(__name__)
_THREADS = 4
_WAITING = 20  # queries running or queued; more are refused
_LOOK = 0.5  # seconds after which a follower checks whether it is still needed
_AGAIN = 1.0  # seconds until an unreachable database is tried again


@dataclass(frozen=True, slots=True)
class ViewDatabase:
    """A database of views. ``where`` opens it, and ``name`` is the same for people, without a password.
    ``reason`` says why it can't be opened. ``jobs`` maps each view to the job that writes it.
    """

    where: str
    name: str
    reason: str | None = None
    jobs: Jobs = field(default_factory=dict)


def places_of(jobs: Iterable[JobStatus]) -> list[ViewDatabase]:
    """The databases in which jobs say that they keep views. Jobs report no passwords, so one on a server
    can't be opened from this alone. Files on another machine are shown only by a console there.
    """
    found: dict[str, ViewDatabase] = {}
    for job in sorted(jobs, key=lambda each: each.at_ms):
        if job.views_at is None or not job.views:
            continue
        reason = None
        if "://" in job.views_at:
            reason = f"start the console with --views {job.views_at}, and the credentials for it"
        elif not os.access(job.views_at, os.R_OK):
            if job.state in ("failed", "stopped"):
                continue  # the file was deleted after the job ended
            reason = f"job {job.job} runs on {job.host}, and keeps them in a file that can't be read here"
        before = found[job.views_at].jobs if job.views_at in found else {}
        found[job.views_at] = ViewDatabase(
            job.views_at, job.views_at, reason, {**before, **dict.fromkeys(job.views, job.job)}
        )
    return list(found.values())


class Databases:
    """The databases of one console. ``told`` are those of its command line; ``by_jobs`` gives the others."""

    def __init__(
        self, told: Sequence[str], by_jobs: Callable[[], Sequence[ViewDatabase]] = lambda: ()
    ) -> None:
        self._told = told
        self._by_jobs = by_jobs
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="views")
        self._under_way = 0
        self._followers: dict[str, _Follower] = {}
        self._changed = asyncio.Event()
        self.closed = False

    def close(self) -> None:
        """Wake everything that waits in ``next``. Nothing more will come."""
        self.closed = True
        self._publish()

    async def stop(self) -> None:
        self.close()
        for follower in self._followers.values():
            follower.end()
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)

    # Known databases ---------------------------------------------------------------------------------

    def places(self) -> list[ViewDatabase]:
        """All known databases, those of the command line first."""
        found = {shown(where): ViewDatabase(where, shown(where)) for where in self._told}
        files = {os.path.realpath(place.where): place for place in found.values() if "://" not in place.where}
        for place in self._by_jobs():
            known = found.get(place.name) or files.get(os.path.realpath(place.where))
            if known is not None:  # keep the user's own address: it has the credentials
                found[known.name] = ViewDatabase(known.where, known.name, None, {**known.jobs, **place.jobs})
            else:
                found[place.name] = place
        return list(found.values())

    def place(self, name: str) -> ViewDatabase:
        """A database by its name; without a name, the only one."""
        places = self.places()
        for place in places:
            if place.name == name or (not name and len(places) == 1):
                return place
        if not places:
            raise NotFoundException(
                "no database of views is known; start the console with --views PATH_OR_URL"
            )
        names = ", ".join(place.name for place in places)
        raise NotFoundException(
            f"there is no database {name!r} here; there are: {names}"
            if name
            else f"say which database: {names}"
        )

    async def holding(self, view: str, database: str = "") -> ViewDatabase:
        """The named database, or the first one that has the view."""
        if database:
            return self.place(database)
        places = self.places()
        if len(places) == 1:
            return places[0]
        for place in places:
            try:
                if view in await self.ask(place, lambda reader: reader.versions()):
                    return place
            except MillstreamError:
                continue  # an unreachable database must not hide the others
        raise NotFoundException(f"there is no view {view!r} in any database that this console knows")

    # Asking ------------------------------------------------------------------------------------------

    async def ask(self, place: ViewDatabase, question: Callable[[ViewReader], T]) -> T:
        """Call ``question`` with a reader of the database, on another thread. Returns its result, and raises
        what it raises.
        """
        if self._under_way >= _WAITING:
            raise TooManyRequestsException("too many queries of views are in progress; try again in a moment")
        self._under_way += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, _asked, place, question)
        finally:
            self._under_way -= 1

    async def listed(self, *, counted: bool = True) -> ViewList:
        """Every view of every database, with its number of rows if ``counted``. A database that can't be
        read says why.
        """
        places = self.places()
        answers = await asyncio.gather(*(self._views(place, counted) for place in places))
        return ViewList(
            [view for views, _ in answers for view in views],
            [Database(place.name, problem) for place, (_, problem) in zip(places, answers, strict=True)],
        )

    async def _views(self, place: ViewDatabase, counted: bool) -> tuple[list[ViewState], str | None]:
        try:
            found = await self.ask(place, lambda reader: views_of(reader, place.jobs, counted=counted))
            return found, None
        except MillstreamError as error:
            return [], str(error)

    # Following ---------------------------------------------------------------------------------------

    @contextmanager
    def followed(self, places: Sequence[ViewDatabase]) -> Iterator[None]:
        """Follow ``places`` within this context: ``next`` returns when something changes in one of them."""
        for place in places:
            follower = self._followers.get(place.name)
            if follower is None:
                follower = _Follower(place, asyncio.get_running_loop(), self._publish)
                self._followers[place.name] = follower
            follower.viewers += 1
        try:
            yield
        finally:
            for place in places:
                follower = self._followers[place.name]
                follower.viewers -= 1
                if not follower.viewers:
                    del self._followers[place.name]
                    follower.end()

    def seen(self, places: Sequence[ViewDatabase]) -> object:
        """The state of followed databases. It is equal to an earlier one if nothing has changed."""
        return [(each.versions, each.problem) for each in (self._followers[place.name] for place in places)]

    def problem(self, place: ViewDatabase) -> str | None:
        """Why a followed database can't be read; None if it can."""
        return self._followers[place.name].problem

    async def next(self, seconds: float) -> bool:
        """Wait for the next change in any followed database. False if there was none within ``seconds``."""
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _publish(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _asked(place: ViewDatabase, question: Callable[[ViewReader], T]) -> T:
    if place.reason is not None:
        raise MillstreamError(place.reason)
    reader = open_reader(place.where)
    try:
        return question(reader)
    finally:
        reader.close()


class _Follower:
    """Follows one database for all viewers. It has its own thread, because waiting for a change blocks."""

    def __init__(
        self, place: ViewDatabase, loop: asyncio.AbstractEventLoop, tell: Callable[[], None]
    ) -> None:
        self.viewers = 0
        self.versions: dict[str, int] = {}
        self.problem: str | None = place.reason
        self._place = place
        self._loop = loop
        self._tell = tell
        self._ended = threading.Event()
        if place.reason is None:
            threading.Thread(target=self._follow, name=f"views {place.name}", daemon=True).start()

    def end(self) -> None:
        self._ended.set()

    def _follow(self) -> None:
        while not self._ended.is_set():
            try:
                self._look()
            except MillstreamError as error:
                self._seen({}, str(error))
            except Exception as error:  # a bug in millstream; pages show the error and continue
                _log.exception("following %s failed; please report this", self._place.name)
                self._seen({}, f"{type(error).__name__}; the console's log says more")
            self._ended.wait(_AGAIN)

    def _look(self) -> None:
        reader = open_reader(self._place.where)
        try:
            reader.wait(0)  # starts listening: every write from here on ends a later wait
            opened = _identity(self._place.where)
            while not self._ended.is_set() and _identity(self._place.where) == opened:
                self._seen(reader.versions(), None)
                reader.wait(_LOOK)
        finally:
            reader.close()

    def _seen(self, versions: dict[str, int], problem: str | None) -> None:
        if (versions, problem) != (self.versions, self.problem) and not self._ended.is_set():
            self.versions, self.problem = versions, problem
            try:
                self._loop.call_soon_threadsafe(self._tell)
            except RuntimeError:
                self._ended.set()  # the loop is closed: the console has ended


def _identity(where: str) -> object:
    """Identifies the file, to notice when it was deleted and created again."""
    if "://" in where:
        return where
    try:
        there = Path(where).stat()
    except OSError:
        return None
    return there.st_dev, there.st_ino
