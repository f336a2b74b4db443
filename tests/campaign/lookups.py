"""Check look-ups by time against the timestamps of a log. No I/O.

The right answer is the first offset whose record is as new as the time asked for, or newer. It does not
depend on anything that is appended later, so every answer of a round can be checked at its end.

- **wrong look-up**: another offset, or none although there was one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from tests.campaign.findings import Finding
from tests.campaign.ledger import Content, Place

NONE = -1


@dataclass(frozen=True)
class LookUp:
    timestamp: int
    """The time that was asked for."""
    end: int
    """Where the log ended before the request."""
    answer: int
    """An offset, or ``NONE``."""


def check(part: str, place: Place, content: Content, asked: Iterable[LookUp]) -> Iterator[Finding]:
    newest = np.maximum.accumulate(content.timestamps) if len(content.timestamps) else content.timestamps
    for look_up in asked:
        index = int(np.searchsorted(newest, look_up.timestamp, side="left"))
        right = int(content.offsets[index]) if index < len(newest) else NONE
        if look_up.answer == right or (look_up.answer == NONE and right >= look_up.end):
            continue
        where = f"{place[0]}-{place[1]} at {look_up.timestamp}"
        detail = f"{look_up.answer}, and it is {right} (the log ended at {look_up.end})"
        yield Finding(part, "wrong look-up", f"{where}: {detail}")
