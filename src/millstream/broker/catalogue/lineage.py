"""Which brokers led these logs, one after the other, and how far two copies of a log are the same.

Theory. A log is written by one broker at a time, in leader epochs that only grow. So if two copies have
the same epoch at the same offsets, they have the same records, as long as no two brokers ever wrote in
the same epoch. A broker that restarts after a crash continues in its next epoch. A promoted broker begins
an epoch above all that it has ever heard of. But the old leader may be unreachable then, and could begin
the very same epoch. Therefore every promotion has a unique name, and the epoch it began with:

    [cluster id, 0], [promotion, 7], [promotion, 12]

This is the **lineage**. A broker can follow another one whose lineage begins with its own. What was
written below the first epoch of the first promotion that is not its own is shared history. Epochs from
there on are different, whatever their numbers are.

Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Epochs = Sequence[tuple[int, int]]  # (epoch, first offset), oldest first
NO_LIMIT = 1 << 31


class Promotion(NamedTuple):
    name: str
    epoch: int  # the first one after this promotion


Lineage = Sequence[Promotion]


def descends(lineage: Lineage, ancestor: Lineage) -> bool:
    """True if everything written under ``ancestor`` was there when ``lineage`` continued from it."""
    return [p.name for p in lineage[: len(ancestor)]] == [p.name for p in ancestor]


def first_foreign_epoch(lineage: Lineage, ancestor: Lineage) -> int:
    """The first epoch that is not the same under both. From there on equal numbers mean nothing."""
    return lineage[len(ancestor)].epoch if len(lineage) > len(ancestor) else NO_LIMIT


def common_end(ours: Epochs, our_end: int, theirs: Epochs, their_end: int, limit: int) -> int:
    """The offset up to which both logs are the same, starting where the later of them begins."""
    end = min(our_end, their_end)
    start = max(ours[0][1] if ours else 0, theirs[0][1] if theirs else 0)
    if start >= end:
        return end if start == end else min(start, our_end)
    # Both must agree wherever either of them changes its epoch, and so in between.
    edges = sorted({start, *(at for _, at in (*ours, *theirs) if start < at < end)})
    for at in edges:
        epoch = _epoch_at(ours, at)
        if epoch != _epoch_at(theirs, at) or epoch >= limit:
            return at
    return end


def _epoch_at(epochs: Epochs, offset: int) -> int:
    return next((epoch for epoch, start in reversed(epochs) if start <= offset), -1)
