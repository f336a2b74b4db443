"""Measures a broker's files while the broker may be removing some of them."""

from __future__ import annotations

from pathlib import Path


def bytes_of(directory: Path, pattern: str = "*.log*") -> int:
    """The size of a partition's records on disk. The default pattern includes files waiting for removal."""
    total = 0
    for path in directory.glob(pattern):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue  # the broker has just removed it
    return total
