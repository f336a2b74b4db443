"""Kafka's checkpoint files: small text files that give an offset per partition.

0                      version
2                      number of entries
payments 0 1200        topic, partition, offset
payments 1 980
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from millstream.log.storage.files import Files, read_file, replace_file

_log = logging.getLogger(__name__)

RECOVERY_POINTS = "recovery-point-offset-checkpoint"  # everything below it was synced
LOG_START_OFFSETS = "log-start-offset-checkpoint"  # where the records begin, if not where the files do

Offsets = dict[tuple[str, int], int]


def read_lines(files: Files, path: str) -> list[list[str]] | None:
    """The entries of a checkpoint file, split into words; None if it is missing or damaged."""
    try:
        entries = checkpoint_entries(read_file(files, path))
    except FileNotFoundError:
        return None
    if entries is None:
        _log.warning("%s is damaged and ignored; it is written again", path)
    return entries


def checkpoint_entries(data: bytes) -> list[list[str]] | None:
    """The entries in a checkpoint's text; None if it is not a checkpoint."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        lines = []
    if len(lines) >= 2 and lines[0] == "0" and lines[1].isdigit() and len(lines) == 2 + int(lines[1]):
        return [line.split(" ") for line in lines[2:]]
    return None


def checkpoint_text(lines: list[str]) -> bytes:
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def write_lines(files: Files, path: str, lines: list[str], *, sync: bool = True) -> None:
    replace_file(files, path, checkpoint_text(lines), sync=sync)


def read_offsets(files: Files, path: str) -> Offsets:
    """The offsets in a checkpoint file; none if it is missing or damaged."""
    offsets: Offsets = {}
    for words in read_lines(files, path) or []:
        try:
            topic, partition, offset = words
            offsets[topic, int(partition)] = int(offset)
        except ValueError:
            _log.warning("%s: %r is not an entry; skipped", path, " ".join(words))
    return offsets


def write_offsets(files: Files, path: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Durable once this returns."""
    write_lines(
        files,
        path,
        [f"{topic} {partition} {offsets[topic, partition]}" for topic, partition in sorted(offsets)],
    )
