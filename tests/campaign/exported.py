"""Compare the files that ``millstream topic export`` wrote with the log. Reads files, asks no broker.

- **not exported**, **exported twice**: a record of the log is in no file, or in more than one.
- **wrong export**: a file holds an offset that its name does not cover, or another record than the log.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from tests.campaign.findings import Finding
from tests.campaign.ledger import Content, Place

Exported = dict[int, list[tuple[int, str]]]  # partition: offset and value, in the order of the files


def read_export(part: str, directory: Path, topic: str) -> tuple[Exported, list[Finding]]:
    """What the files hold, and what is wrong with them on their own."""
    found: Exported = defaultdict(list)
    wrong = []
    for path in sorted(directory.glob(f"{topic}.*.jsonl")):  # the topic's id is in between
        partition, first, last = (int(piece) for piece in path.stem.rsplit("-", 3)[-3:])
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if not first <= record["offset"] <= last:
                wrong.append(Finding(part, "wrong export", f"{path.name} holds offset {record['offset']}"))
            found[partition].append((record["offset"], record["value"]))
    wrong += [
        Finding(part, "wrong export", f"{path.name} is left over") for path in directory.glob(".*.part*")
    ]
    return found, wrong


def check(part: str, topic: str, exported: Exported, log: Mapping[Place, Content]) -> Iterator[Finding]:
    for (name, partition), content in log.items():
        if name != topic:
            continue
        where = f"{topic}-{partition}"
        lines = exported.get(partition, [])
        offsets = np.array([offset for offset, _ in lines], dtype=np.int64)
        once, counts = np.unique(offsets, return_counts=True)
        for offset in once[counts > 1][:5]:
            yield Finding(part, "exported twice", f"{where}: offset {offset}")
        missing = np.setdiff1d(content.offsets, once)
        if len(missing):
            yield Finding(part, "not exported", f"{where}: {len(missing)} records, the first at {missing[0]}")
        at = {int(offset): index for index, offset in enumerate(content.offsets)}
        for offset, value in lines:
            index = at.get(offset)
            life, number = value.split(":", 2)[:2]
            if index is None:
                if offset >= content.start:
                    yield Finding(
                        part, "wrong export", f"{where}: offset {offset} holds no record in the log"
                    )
            elif (content.names[content.lives[index]], int(content.numbers[index])) != (life, int(number)):
                yield Finding(part, "wrong export", f"{where}: offset {offset} is {life} number {number}")
