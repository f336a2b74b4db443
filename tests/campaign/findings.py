"""What was wrong: one finding is one sentence about one part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    part: str
    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.part}: {self.kind}: {self.detail}"


def bounded(findings: Iterable[Finding], most: int = 5) -> Iterator[Finding]:
    """The first of each kind and part: a thousand lost records are one story."""
    counts: dict[tuple[str, str], int] = {}
    for finding in findings:
        key = finding.part, finding.kind
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= most:
            yield finding
    for (part, kind), count in counts.items():
        if count > most:
            yield Finding(part, kind, f"... {count - most:,} more")
