"""Compare what was found with what was planted: machines at fault, and readings that came too late."""

from __future__ import annotations

from collections.abc import Sequence

from millstream.examples.example import Results, Score, exact, milliseconds
from millstream.examples.factory.generate import FAULT, LATE, Planted

_NEAR_MS = 10_000  # a fault is seen in the first reading after it began; neighbours shake later


def check(planted: Sequence[Planted], results: Results) -> list[Score]:
    """A fault is identified by its machine and start, a late reading by machine and time."""
    faults = [(one.machine, one.at_ms) for one in planted if one.kind == FAULT]
    blamed = [(row["machine"], milliseconds(row["since"])) for row in results.get("faults", ())]
    late = {(one.machine, one.at_ms) for one in planted if one.kind == LATE}
    told = [(row["machine"], milliseconds(row["read_at"])) for row in results.get("readings.late", ())]
    return [
        Score(
            FAULT,
            planted=len(faults),
            found=sum(any(_same(fault, one) for one in blamed) for fault in faults),
            given=len(blamed),
            right=sum(any(_same(fault, one) for fault in faults) for one in blamed),
        ),
        exact(LATE, late, told),
    ]


def _same(fault: tuple[str, int], blamed: tuple[str, int]) -> bool:
    return fault[0] == blamed[0] and 0 <= blamed[1] - fault[1] < _NEAR_MS
