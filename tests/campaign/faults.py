"""Apply faults, and end those that last."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.campaign.broker import BrokerUnderTest
from tests.campaign.findings import Finding
from tests.campaign.processes import Client
from tests.campaign.schedule import (
    ARCHIVE_AWAY,
    FILL_DISK,
    KILL_BROKER,
    KILL_CLIENT,
    RESTART_BROKER,
    STOP_BROKER,
    STOP_CLIENT,
    Fault,
)
from tests.support.small_disk import Ballast


class Faults:
    """Applies faults to a broker, its clients, its disk and its archive. Ends those that last, in time."""

    def __init__(
        self, broker: BrokerUnderTest, archive: Path, ballast: Ballast | None, say: Callable[[str], None]
    ) -> None:
        self._broker, self._archive, self._ballast, self._say = broker, archive, ballast, say
        # The archive is a link to its real directory. While it is away, the link points to an empty one, like
        # a mount point when nothing is mounted there.
        self._really, self._nothing = (
            archive.with_name(archive.name + end) for end in (".real", ".unmounted")
        )
        for directory in (self._really, self._nothing):
            directory.mkdir()
        archive.symlink_to(self._really)
        self._is_away = False
        self._disk_is_full = False
        self._order = itertools.count()
        self._endings: list[tuple[float, int, Callable[[], None]]] = []
        self.counts: Counter[str] = Counter()

    def strike(self, fault: Fault, now: float, clients: list[Client]) -> Iterator[Finding]:
        kind, ends = fault.kind, now + fault.seconds
        mortal = [client for client in clients if client.mortal and not client.is_stopped]
        target = mortal[int(fault.pick * len(mortal))] if mortal else None
        if (target is None and kind in (KILL_CLIENT, STOP_CLIENT)) or (
            kind == ARCHIVE_AWAY and self._is_away
        ):
            return  # no client to strike, or the archive is away already
        lasts = f" for {fault.seconds:g} s" if fault.seconds else ""
        whom = f" {target.name}" if target is not None and kind in (KILL_CLIENT, STOP_CLIENT) else ""
        self._say(f"{kind}{whom}{lasts}")
        self.counts[kind] += 1
        self._broker.struck.add(kind)
        if kind == KILL_BROKER:
            self._broker.kill()
            yield from self.start_broker()
        elif kind == RESTART_BROKER:
            yield from self._broker.stop()
            yield from self.start_broker()
        elif kind == STOP_BROKER:
            self._broker.pause()
            self._later(ends, self._broker.resume)
        elif kind == KILL_CLIENT and target is not None:
            target.kill()
        elif kind == STOP_CLIENT and target is not None:
            target.pause()
            self._later(ends, target.resume)
        elif kind == FILL_DISK and self._ballast is not None:
            self._ballast.take_free()
            self._disk_is_full = True
            self._later(ends, self._give_room)
        elif kind == ARCHIVE_AWAY:
            self._link_archive(self._nothing)
            self._later(ends, lambda: self._link_archive(self._really))

    def _later(self, at: float, ending: Callable[[], None]) -> None:
        heapq.heappush(self._endings, (at, next(self._order), ending))

    def end_due(self, now: float) -> None:
        while self._endings and self._endings[0][0] <= now:
            heapq.heappop(self._endings)[2]()

    def end_all(self) -> None:
        self.end_due(float("inf"))

    def start_broker(self) -> Iterator[Finding]:
        try:
            self._broker.start()
            return
        except AssertionError as error:
            # A disk without a single free byte is a good reason not to start, if the broker says so.
            said = str(error)
            if (
                not self._disk_is_full
                or "Traceback" in said
                or not any(reason in said for reason in ("disk is full", "No space left"))
            ):
                yield Finding("broker", "did not start", said)
        self._say("the broker did not start on the full disk: room is given back")
        self._give_room()
        try:
            self._broker.start()
        except AssertionError as error:
            yield Finding("broker", "did not start", str(error))

    def _give_room(self) -> None:
        if self._disk_is_full and self._ballast is not None:
            self._ballast.give_back()
        self._disk_is_full = False

    def _link_archive(self, target: Path) -> None:
        link = self._archive.with_name(self._archive.name + ".link")
        link.symlink_to(target)
        link.rename(self._archive)
        self._is_away = target == self._nothing
