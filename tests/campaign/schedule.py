"""Which parts take part in a round, for how long, and which faults strike when: all from a seed. No I/O.

Two campaigns with one seed have the same schedule. What the processes make of it differs, because their
timing does: a seed narrows a defect down, but does not replay it to the instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

KILL_BROKER = "kill broker"
RESTART_BROKER = "restart broker"
STOP_BROKER = "stop broker"
KILL_CLIENT = "kill client"
STOP_CLIENT = "stop client"
FILL_DISK = "fill disk"
ARCHIVE_AWAY = "archive away"

# How often each fault is chosen, and how long it lasts in seconds (0: it is over at once).
FAULTS: dict[str, tuple[int, tuple[float, float]]] = {
    KILL_BROKER: (5, (0, 0)),
    RESTART_BROKER: (2, (0, 0)),
    STOP_BROKER: (2, (0.1, 4)),
    KILL_CLIENT: (6, (0, 0)),
    STOP_CLIENT: (4, (0.5, 9)),
    FILL_DISK: (2, (0.5, 5)),
    ARCHIVE_AWAY: (2, (0.5, 8)),
}


@dataclass(frozen=True)
class Fault:
    at: float
    """Seconds after the round began."""
    kind: str
    seconds: float
    pick: float
    """Which client, as a fraction of the list of clients."""


@dataclass(frozen=True)
class Round:
    number: int
    seconds: float
    parts: tuple[str, ...]
    faults: tuple[Fault, ...]
    restart_and_check: bool
    """True if the broker is stopped afterwards and its directory is checked."""


@dataclass(frozen=True)
class Pace:
    """How long rounds are, how far apart faults are, and how many parts work at once."""

    seconds: tuple[float, float] = (30, 90)
    between_faults: tuple[float, float] = (1.5, 7)
    parts: tuple[int, int] = (5, 8)


def plan_round(seed: int, number: int, parts: Sequence[str], faults: Sequence[str], pace: Pace) -> Round:
    """Round ``number`` of a campaign over these parts and faults."""
    chance = Random(f"{seed}/{number}")
    seconds = chance.uniform(*pace.seconds)
    count = min(chance.randint(*pace.parts), len(parts))
    chosen = set(chance.sample(list(parts), count))
    weights = [FAULTS[kind][0] for kind in faults]
    struck = []
    at = chance.uniform(*pace.between_faults)
    while faults and at < seconds:
        kind = chance.choices(list(faults), weights)[0]
        lasts = chance.uniform(*FAULTS[kind][1])
        struck.append(Fault(round(at, 2), kind, round(lasts, 2), chance.random()))
        at += chance.uniform(*pace.between_faults)
    in_order = tuple(name for name in parts if name in chosen)
    return Round(number, seconds, in_order, tuple(struck), chance.random() < 0.3)
