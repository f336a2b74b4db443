"""Compare a compacted topic with a table of the newest values. No I/O.

A writer's life numbers its records over all keys of a partition, so for one key the larger number is the
newer value. Every key belongs to one writer. The value that the log shows last must be the one that was
acknowledged to the writer, or a newer one that it sent and was killed before it heard of it.

- **lost value**: the log's newest value of a key is older than the acknowledged one.
- **unknown value**: nobody sent this value under that key.
- **reordered**: an older value of a key comes after a newer one.
- **came back**: a key that compaction had removed is there again, without a new record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.campaign.findings import Finding

Version = tuple[int, bool]  # number of the record, whether it is a tombstone


@dataclass
class Table:
    """What writers did to the keys of a topic."""

    acknowledged: dict[str, Version] = field(default_factory=dict)
    """The newest version that was acknowledged."""
    pending: dict[str, list[Version]] = field(default_factory=dict)
    """Sent after that, without a response: each may be there."""

    def sent(self, key: str, version: Version) -> None:
        self.pending.setdefault(key, []).append(version)

    def acknowledge(self, key: str, number: int) -> None:
        kept = []
        for version in self.pending.get(key, []):
            if version[0] == number:
                self.acknowledged[key] = version
            elif version[0] > number:
                kept.append(version)
        self.pending[key] = kept

    def settle(self, seen: Mapping[str, Version]) -> None:
        """All writers have ended: from now on, what the log shows is what counts."""
        self.acknowledged, self.pending = dict(seen), {}


def newest(records: Iterable[tuple[str, Version]]) -> tuple[dict[str, Version], list[str]]:
    """The last version of each key in a log, and the keys that have an older version after a newer one."""
    table: dict[str, Version] = {}
    reordered = []
    for key, version in records:
        if key in table and version[0] <= table[key][0]:
            reordered.append(f"{key}: number {version[0]} after {table[key][0]}")
        table[key] = version
    return table, reordered


def check(part: str, records: Iterable[tuple[str, Version]], table: Table) -> Iterator[Finding]:
    """``records`` are those of the log, in its order."""
    seen, reordered = newest(records)
    for detail in reordered:
        yield Finding(part, "reordered", detail)
    for key in sorted(seen.keys() | table.acknowledged.keys()):
        acknowledged = table.acknowledged.get(key)
        candidates = [*([acknowledged] if acknowledged else []), *table.pending.get(key, [])]
        found = seen.get(key)
        if found is None:
            if not any(is_tombstone for _, is_tombstone in candidates):
                yield Finding(part, "lost value", f"{key} is gone, {acknowledged} was acknowledged")
        elif found not in candidates:
            kind = "unknown value" if not candidates or found[0] > candidates[-1][0] else "lost value"
            if acknowledged and acknowledged[1] and kind == "lost value":
                kind = "came back"
            yield Finding(
                part, kind, f"{key} shows {found}; acknowledged {acknowledged}, pending {candidates}"
            )
