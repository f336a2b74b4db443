"""The databases of views that a console knows: those it was told of, and those that running jobs name.

They are read on threads of their own, so that SQL which takes its time holds up nothing else; and followed,
one thread each, only while somebody looks.
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

from millstream.console.model.views import Database, Jobs, ViewList, ViewState, views_of
from millstream.errors import MillstreamError
from millstream.pipeline.status import JobStatus
from millstream.pipeline.views import ViewReader, open_reader, shown

T = TypeVar("T")
_log = logging.getLogger(__name__)
_THREADS = 4
_WAITING = 20  # questions under way or in line; more are refused
_LOOK = 0.5  # seconds after which a follower looks whether it is still wanted
_AGAIN = 1.0  # seconds until a database that is away is tried again


@dataclass(frozen=True, slots=True)
class Place:
    """A database: ``where`` opens it, ``name`` is the same for people, without a password. ``reason`` is why
    it is not opened. ``jobs`` says which job writes which view."""

    where: str
    name: str
    reason: str | None = None
    jobs: Jobs = field(default_factory=dict)


def places_of(jobs: Iterable[JobStatus]) -> list[Place]:
    """Where jobs say that they keep views. They tell no passwords, and of another machine's files only its
    own console can tell more."""
    found: dict[str, Place] = {}
    for job in sorted(jobs, key=lambda each: each.at_ms):
        if job.views_at is None or not job.views:
            continue
        reason = None
        if "://" in job.views_at:
            reason = f"start the console with --views {job.views_at}, and with what it takes to log in there"
        elif not os.access(job.views_at, os.R_OK):
            if job.state in ("failed", "stopped"):
                continue  # tidied away
            reason = f"job {job.job} runs on {job.host}, and keeps them in a file that can't be read here"
        before = found[job.views_at].jobs if job.views_at in found else {}
        found[job.views_at] = Place(
            job.views_at, job.views_at, reason, {**before, **dict.fromkeys(job.views, job.job)}
        )
    return list(found.values())


class Databases:
    """One console's. ``told`` are those of the command line, ``by_jobs`` the others."""

    def __init__(self, told: Sequence[str], by_jobs: Callable[[], Sequence[Place]] = lambda: ()) -> None:
        self._told = told
        self._by_jobs = by_jobs
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="views")
        self._under_way = 0
        self._followers: dict[str, _Follower] = {}
        self._changed = asyncio.Event()
        self.closed = False

    def close(self) -> None:
        """Tell all who wait that nothing more comes."""
        self.closed = True
        self._publish()

    async def stop(self) -> None:
        self.close()
        for follower in self._followers.values():
            follower.end()
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)

    # Which there are ---------------------------------------------------------------------------------

    def places(self) -> list[Place]:
        """All of them, those of the command line first."""
        found = {shown(where): Place(where, shown(where)) for where in self._told}
        files = {os.path.realpath(place.where): place for place in found.values() if "://" not in place.where}
        for place in self._by_jobs():
            known = found.get(place.name) or files.get(os.path.realpath(place.where))
            if known is not None:  # with the user's own credentials
                found[known.name] = Place(known.where, known.name, None, {**known.jobs, **place.jobs})
            else:
                found[place.name] = place
        return list(found.values())

    def place(self, name: str) -> Place:
        """One of them; the only one if no name is given."""
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

    async def holding(self, view: str, database: str = "") -> Place:
        """The database that has a view: the one that is named, or the first that has it."""
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
                continue  # one that is away does not hide the others
        raise NotFoundException(f"there is no view {view!r} in any database that this console knows")

    # Asking ------------------------------------------------------------------------------------------

    async def ask(self, place: Place, question: Callable[[ViewReader], T]) -> T:
        """The answer to a question, asked on another thread; raises what it raises."""
        if self._under_way >= _WAITING:
            raise TooManyRequestsException("too many questions to views are under way; try again in a moment")
        self._under_way += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, _asked, place, question)
        finally:
            self._under_way -= 1

    async def listed(self, *, counted: bool = True) -> ViewList:
        """Every view of every database, with its number of rows if that is asked for; a database that can't
        be read says why."""
        places = self.places()
        answers = await asyncio.gather(*(self._views(place, counted) for place in places))
        return ViewList(
            [view for views, _ in answers for view in views],
            [Database(place.name, problem) for place, (_, problem) in zip(places, answers, strict=True)],
        )

    async def _views(self, place: Place, counted: bool) -> tuple[list[ViewState], str | None]:
        try:
            found = await self.ask(place, lambda reader: views_of(reader, place.jobs, counted=counted))
            return found, None
        except MillstreamError as error:
            return [], str(error)

    # Following ---------------------------------------------------------------------------------------

    @contextmanager
    def followed(self, places: Sequence[Place]) -> Iterator[None]:
        """While it lasts, ``next`` ends when something changes in one of these."""
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

    def seen(self, places: Sequence[Place]) -> object:
        """What these have come to; equal to what it was if nothing changed."""
        return [(each.versions, each.problem) for each in (self._followers[place.name] for place in places)]

    def problem(self, place: Place) -> str | None:
        """Why a followed database is not seen."""
        return self._followers[place.name].problem

    async def next(self, seconds: float) -> bool:
        """Wait for the next change of anything followed, so long at most; whether there was one."""
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _publish(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _asked(place: Place, question: Callable[[ViewReader], T]) -> T:
    if place.reason is not None:
        raise MillstreamError(place.reason)
    reader = open_reader(place.where)
    try:
        return question(reader)
    finally:
        reader.close()


class _Follower:
    """Looks at one database for all viewers, on a thread: waiting for it blocks."""

    def __init__(self, place: Place, loop: asyncio.AbstractEventLoop, tell: Callable[[], None]) -> None:
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
            except Exception as error:  # a bug of ours; pages say so and go on
                _log.exception("following %s failed; please report this", self._place.name)
                self._seen({}, f"{type(error).__name__}; the console's log says more")
            self._ended.wait(_AGAIN)

    def _look(self) -> None:
        reader = open_reader(self._place.where)
        try:
            reader.wait(0)  # from here on nothing is written without our being woken
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
                self._ended.set()  # the console is gone


def _identity(where: str) -> object:
    """Which file it is: one that was removed and made again is another."""
    if "://" in where:
        return where
    try:
        there = Path(where).stat()
    except OSError:
        return None
    return there.st_dev, there.st_ino
