"""Readings of vibration sensors, with planted faults and outages, from a seed.

Every machine of a line sends a reading every few seconds. On each line one incident follows another:

    fault     a machine shakes, its neighbours shake later and less, and then somebody stops the machine. At
              the same time a healthy machine of the line has a single reading higher than all of these
    cut off   a fault during which the line's gateway goes offline
    outage    the gateway goes offline, and a machine shakes in the meantime. When it is back, the gateway
              sends new readings first and then the stored ones
    glitch    one machine has a single reading that is far too high
    hum       the whole line vibrates more than usual, but stays below the limit

The machines at fault and the readings that come too late are recorded. The same seed gives the same readings.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from millstream.examples.example import BEGINNING_MS, Event, iso
from millstream.examples.feed import main

TOPIC = "readings"
FAULT, LATE = "fault", "late reading"
LINES, MACHINES = 4, 8  # machines per line
EVERY_MS = 4_000  # between two readings of a machine
LATENESS_MS = 30_000  # the pipeline's. Not a multiple of EVERY_MS, so that no reading falls on the edge
_DECK = ("fault", "outage", "fault", "glitch", "cut off", "hum")
_TOLD_MS = 240_000  # from the start of any incident until the pipeline has reported it


@dataclass(frozen=True, slots=True)
class Planted:
    """A machine at fault from ``at_ms`` on, or a reading of that time that comes too late."""

    kind: str
    machine: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class _Incident:
    kind: str
    start: int
    end: int
    place: int = 0
    strength: float = 0.0  # how much the machine at ``place`` shakes
    shakes: tuple[int, int] = (0, 0)  # start and end
    offline: tuple[int, int] = (0, 0)
    glitch: tuple[int, int] = (-1, 0)  # the machine with one reading that is too high, and from when on

    def vibration(self, rng: random.Random, place: int, now: int) -> float:
        """The vibration of the machine at a place. Two places away, little is left of a fault."""
        usual = min(max(rng.gauss(2.0, 0.3), 0.5), 3.2)
        if self.glitch[0] == place and self.glitch[1] <= now < self.glitch[1] + EVERY_MS:
            return rng.uniform(15, 20)
        if self.kind == "hum" and self.start <= now < self.end:
            return rng.uniform(4.8, 6.8)
        away = abs(place - self.place)
        begin, end = self.shakes
        if begin + 8_000 * away <= now < end and away <= 2:
            return self.strength * (1.0, 0.75, 0.5)[away] + rng.uniform(-0.1, 0.1)
        return usual


@dataclass(slots=True)
class _Line:
    number: int
    incident: _Incident
    drawn: int  # cards from the deck; each line starts with another one
    kept: dict[int, list[Event]] = field(default_factory=dict)  # readings stored while offline, by place


@dataclass(slots=True)
class Generator:
    """Readings from ``start_ms`` on. ``planted`` grows as they are taken."""

    seed: int = 7
    start_ms: int = BEGINNING_MS
    seconds: float | None = None
    planted: list[Planted] = field(default_factory=list)

    def events(self) -> Iterator[Event]:
        """The events, in the order in which they are sent."""
        rng = random.Random(self.seed)
        begin = _Incident("calm", self.start_ms, self.start_ms)
        lines = [_Line(number, begin, drawn=number) for number in range(LINES)]
        machines = [
            (rng.randrange(EVERY_MS), line, place) for line in range(LINES) for place in range(MACHINES)
        ]
        for tick in count():
            for phase, line, place in sorted(machines):
                now = self.start_ms + tick * EVERY_MS + phase
                if self.seconds is not None and now >= self.start_ms + self.seconds * 1000:
                    return
                yield from self._read(rng, lines[line], place, now)

    def _read(self, rng: random.Random, line: _Line, place: int, now: int) -> Iterator[Event]:
        """A machine's reading, unless the gateway is offline. Its stored readings follow when it is back."""
        if now >= line.incident.end:
            self._next(rng, line)
        machine = _machine(line.number, place)
        reading = {
            "line": _line(line.number),
            "machine": machine,
            "vibration": round(line.incident.vibration(rng, place, now), 2),
            "read_at": iso(now),
        }
        event = Event(now, TOPIC, machine, json.dumps(reading).encode())
        begin, end = line.incident.offline
        if begin <= now < end:
            line.kept.setdefault(place, []).append(event)
            return
        yield event
        for old in line.kept.pop(place, ()):
            if old.at_ms < now - LATENESS_MS:
                self.planted.append(Planted(LATE, machine, old.at_ms))
            yield Event(now, TOPIC, machine, old.value)

    def _next(self, rng: random.Random, line: _Line) -> None:
        """The line's next incident, after some calm. None if the pipeline could not report it in time."""
        start = line.incident.end + rng.randrange(100_000, 140_000)
        if line.incident.kind == "calm":
            start = self.start_ms + rng.randrange(20_000, 60_000)
        kind = _DECK[line.drawn % len(_DECK)]
        line.drawn += 1
        if self.seconds is not None and start + _TOLD_MS > self.start_ms + self.seconds * 1000:
            line.incident = _Incident("calm to the end", start, start + 10**12)
            return
        place, strength = rng.randrange(MACHINES), rng.uniform(10.5, 13.5)
        far = (place + 4) % MACHINES
        if kind == "fault":
            end = start + rng.randrange(40_000, 70_000)
            glitch = (far, start + 12_000)
            line.incident = _Incident(kind, start, end, place, strength, (start, end), glitch=glitch)
        elif kind == "cut off":
            offline = (start + 24_000, start + 24_000 + rng.randrange(110_000, 150_000))
            line.incident = _Incident(
                kind, start, offline[1], place, strength, (start, start + 50_000), offline
            )
        elif kind == "outage":
            offline = (start, start + rng.randrange(120_000, 160_000))
            shakes = (start + 8_000, start + 60_000)
            line.incident = _Incident(kind, start, offline[1], place, strength, shakes, offline)
        elif kind == "glitch":
            line.incident = _Incident(kind, start, start + 20_000, glitch=(place, start))
        else:
            line.incident = _Incident(kind, start, start + 60_000)
        if kind in ("fault", "cut off"):
            self.planted.append(Planted(FAULT, _machine(line.number, place), start))


def _line(number: int) -> str:
    return f"line-{number + 1}"


def _machine(line: int, place: int) -> str:
    return f"{_line(line)}/press-{place + 1}"


if __name__ == "__main__":
    main(Generator)
