"""Read topics by name or by pattern over a range of positions, and follow new partitions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from millstream.client.librdkafka.admin import Admin
from millstream.client.librdkafka.consume import Gap, PartitionReader
from millstream.client.protocol.unreadable import Unreadable
from millstream.client.text.position import Range, TopicPartition, chosen_partitions

_LOOK_FOR_NEW_EVERY = 5.0  # seconds


class RangeReader(PartitionReader):
    """Reads ``topics``, and all whose whole name matches ``pattern``, from the range's start to its end.

    Without an end it follows them, and adds partitions and matching topics that are created meanwhile, unless
    ``partitions`` were chosen. ``on_gap`` and ``on_unreadable`` are as for PartitionReader.
    """

    def __init__(
        self,
        admin: Admin,
        topics: Iterable[str],
        pattern: re.Pattern[str] | None,
        wanted: Range,
        partitions: Sequence[int] = (),
        *,
        on_gap: Callable[[Gap], None],
        on_unreadable: Callable[[Unreadable], None] | None = None,
    ) -> None:
        names = list(topics)
        names += _matching(admin.topics(), pattern, names)
        places = chosen_partitions(admin.partitions(names), partitions)
        bounds = admin.bounds(places, committed_only=wanted.stop is not None)
        starts = admin.resolve(dict.fromkeys(places, wanted.start), bounds=bounds)
        stops = None
        if wanted.stop is not None:
            stops = admin.resolve(dict.fromkeys(places, wanted.stop), bounds=bounds)
        if wanted.start.kind == "offset":
            for place in places:
                if wanted.start.value < bounds[place].start:
                    on_gap(Gap(place, wanted.start.value, bounds[place].start))
        super().__init__(admin.connection, starts, stops, on_gap=on_gap, on_unreadable=on_unreadable)
        self._names = names
        self._pattern = pattern
        self._adds = stops is None and not partitions
        self._look_again = time.monotonic() + _LOOK_FOR_NEW_EVERY

    def read(self, most: int, wait: float) -> list[Any]:
        if self._adds and time.monotonic() > self._look_again:
            self._add_new()
            self._look_again = time.monotonic() + _LOOK_FOR_NEW_EVERY
        return super().read(most, wait)

    def _add_new(self) -> None:
        """Add new partitions of the topics being read, and those of new topics that match."""
        topics = self.topics(timeout=2.0)
        self._names += _matching(topics, self._pattern, self._names)
        known = set(self.partitions())
        fresh = {
            TopicPartition(name, index): 0
            for name in self._names
            for index in range(topics.get(name, 0))
            if TopicPartition(name, index) not in known
        }
        if fresh:
            self.add(fresh)


def _matching(topics: Iterable[str], pattern: re.Pattern[str] | None, already: Sequence[str]) -> list[str]:
    """The topics that match, without those that are known already and those that are internal."""
    if pattern is None:
        return []
    return [
        name
        for name in topics
        if pattern.fullmatch(name) and name not in already and not name.startswith("__")
    ]
