"""Keeps numbers over the last hour in memory, in series of bounded length."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass

POINTS = 3600


@dataclass(frozen=True, slots=True)
class Columns:
    """The data of a chart: times in seconds since 1970, and for each name a list of values at those times.
    None is a gap.
    """

    times: list[float]
    series: dict[str, list[float | None]]


class History:
    """Named numbers over time, the last ``points`` of each. A name that is added later begins with gaps."""

    def __init__(self, points: int = POINTS) -> None:
        self._points = points
        self._times = array("d")
        self._series: dict[str, array[float]] = {}

    def __len__(self) -> int:
        return len(self._times)

    def add(self, at_ms: int, values: Mapping[str, float | None]) -> None:
        """Append one moment. A name that is no longer in ``values`` is dropped once it has only gaps left."""
        before = len(self._times)
        self._times.append(at_ms / 1000)
        for name in values:
            if name not in self._series:
                self._series[name] = array("f", [math.nan]) * before
        for name, series in self._series.items():
            value = values.get(name)
            series.append(math.nan if value is None else value)
        if (
            len(self._times) > self._points + self._points // 10
        ):  # not at every step, because cutting moves all the remaining numbers
            self._cut(len(self._times) - self._points)

    def _cut(self, excess: int) -> None:
        del self._times[:excess]
        for name, series in list(self._series.items()):
            del series[:excess]
            if all(map(math.isnan, series)):
                del self._series[name]

    def last(self, *names: str) -> list[float | None]:
        """The newest point of some names, its time first. Empty before the first point."""
        if not self._times:
            return []
        values = [self._series[name][-1] if name in self._series else math.nan for name in names]
        return [round(self._times[-1], 3), *(None if math.isnan(v) else round(v, 3) for v in values)]

    def columns(self, *names: str, most: int = 600) -> Columns:
        """The history of some names, averaged down to at most ``most`` points."""
        step = max(1, math.ceil(len(self._times) / most))
        gaps = array("f", [math.nan]) * len(self._times)
        return Columns(
            [round(self._times[min(at + step, len(self._times)) - 1], 3) for at in range(0, len(self), step)],
            {
                name: [
                    _mean(self._series.get(name, gaps)[at : at + step]) for at in range(0, len(self), step)
                ]
                for name in names
            },
        )


def _mean(values: array[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return round(sum(known) / len(known), 3) if known else None
