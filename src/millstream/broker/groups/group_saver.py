"""Save a group whose members send heartbeats, and hold back responses until what they depend on is saved.

A group of a hundred members changes a hundred times while they join. At most one write is in progress at
a time. Changes made meanwhile share the next write. Each response waits for the write that covers what it
depends on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from millstream.broker.groups.directory import GroupDirectory
from millstream.broker.groups.group import Group
from millstream.core.errors import CatalogueFailed, RequestRefused
from millstream.core.kafka_errors import COORDINATOR_NOT_AVAILABLE

_log = logging.getLogger(__name__)

T = TypeVar("T")


class SavedGroup(Group, Protocol):
    """A group whose members send heartbeats. Each change increments ``agreement``."""

    epoch: int
    agreement: int
    is_dead: bool

    def kill(self) -> None:
        """Stop: the group is deleted or converted, or its broker stops."""


K = TypeVar("K", bound=SavedGroup)


class GroupSaver:
    """Saves one group. ``write`` saves its state at that moment."""

    def __init__(self, group: SavedGroup, write: Callable[[], asyncio.Future[None]], *, kept: int) -> None:
        self._group = group
        self._write = write
        self._kept = kept  # the agreement up to which the group is saved
        self._is_writing = False
        self._waiting: list[tuple[int, asyncio.Future[Any], Any]] = []

    def keep(self) -> None:
        """Save the group if it has changed."""
        group = self._group
        if self._is_writing or group.agreement == self._kept or group.is_dead:
            return
        agreement = group.agreement
        try:
            writing = self._write()
        except CatalogueFailed:
            self._done(agreement)
            return
        self._is_writing = True

        def written(future: asyncio.Future[None]) -> None:
            if not future.cancelled() and (error := future.exception()) is not None:
                # The group continues from memory. Its next change is written again.
                _log.warning("group %s: epoch %d is not kept: %s", group.name, group.epoch, error)
            self._is_writing = False
            self._done(agreement)
            self.keep()

        writing.add_done_callback(written)

    def covers(self, revision: int) -> bool:
        """True if the group is saved up to this revision."""
        return revision <= self._kept

    def answer(self, answer: T, revision: int) -> asyncio.Future[T]:
        """A future of ``answer``, done once the group is saved up to ``revision``."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self.covers(revision) or self._group.is_dead:
            future.set_result(answer)
        else:
            self._waiting.append((revision, future, answer))
        return future

    def settle(self) -> None:
        """Release all responses: the group is deleted or converted, and that is written after it."""
        self._done(self._group.agreement)

    def close(self) -> None:
        """Shut down: waiting clients are told to look for a coordinator again."""
        waiting, self._waiting = self._waiting, []
        for _, future, _ in waiting:
            if not future.done():
                future.set_exception(RequestRefused(COORDINATOR_NOT_AVAILABLE, "the broker is shutting down"))

    def _done(self, agreement: int) -> None:
        self._kept = agreement
        waiting, self._waiting = self._waiting, []
        for revision, future, answer in waiting:
            if revision > agreement and not self._group.is_dead:
                self._waiting.append((revision, future, answer))
            elif not future.done():
                future.set_result(answer)


class SavedGroups(Generic[K]):
    """The groups of one kind that members send heartbeats to, with a keeper for each."""

    def __init__(self, directory: GroupDirectory, to_text: Callable[[K], str]) -> None:
        self.by_name: dict[str, K] = {}  # only read from outside
        self._directory = directory
        self._to_text = to_text
        self._savers: dict[str, GroupSaver] = {}
        self._closed = False

    def check_open(self) -> None:
        """Raise RequestRefused if the broker is shutting down."""
        if self._closed:
            raise RequestRefused(COORDINATOR_NOT_AVAILABLE, "the broker is shutting down")

    def add(self, group: K, *, kept: int = -1) -> None:
        """Put in a group that is saved up to this agreement."""
        self._directory.add(group)
        self.by_name[group.name] = group
        self._savers[group.name] = GroupSaver(
            group, lambda: self._directory.save(group, self._to_text), kept=kept
        )

    def covers(self, name: str, revision: int) -> bool:
        """True if the group is saved up to this revision. Hot."""
        return self._savers[name].covers(revision)

    def answer(self, name: str, answer: T, revision: int) -> asyncio.Future[T]:
        """A future of ``answer``, done once the group is saved up to ``revision``."""
        return self._savers[name].answer(answer, revision)

    def keep(self, name: str) -> None:
        """Save the group if it has changed, and look at it again when its next deadline comes."""
        self._directory.schedule(self.by_name[name])
        self._savers[name].keep()

    def drop(self, name: str) -> None:
        self.by_name.pop(name).kill()
        self._savers.pop(name).settle()

    def close(self) -> None:
        self._closed = True
        for name, group in self.by_name.items():
            group.kill()
            self._savers[name].close()
