"""Runs the kernel as a Spark operator, with its state in Spark's checkpoint and a copy in the worker.

``kernel/state/versions.py`` says what is in Spark's store, and how a worker's copy is brought up to date.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from millstream.core.errors import StateError
from millstream.pipeline.kernel.bucket import Bucket, KeyedOperator
from millstream.pipeline.kernel.clock import BatchTime
from millstream.pipeline.kernel.packing import unpacked
from millstream.pipeline.kernel.state.backends import MEMORY, open_table
from millstream.pipeline.kernel.state.containers import to_bytes
from millstream.pipeline.kernel.state.limit import too_large
from millstream.pipeline.kernel.state.table import StateTable, TableId
from millstream.pipeline.kernel.state.versions import CHANGES, HEAD, SNAPSHOT, BucketVersions, LoadedBucket

NOW = "millstream.now"  # the local property with the time of a batch
FINISH = "millstream.finish"  # the local property with the event time to advance to after the end
STATUS = "status"  # the channel on which an operator reports its status
RESULTS = "channel string, blob binary"
_UNUSED_S = 900.0  # after which an unused copy is forgotten
_RESULT_BYTES = 16 * 1024 * 1024  # of rows in one blob, so that a hot key's results are split


@dataclass(frozen=True, slots=True)
class StateLocation:
    """Where an operator's state is kept, under which name, and how large it may become."""

    state: str = MEMORY  # or disk, or a database's address
    name: str = ""
    most_bytes: int | None = None


def time_of_batch() -> BatchTime:
    """The time of the batch that a task belongs to, in microseconds. The driver takes it from the offset
    log, so a batch that is run again has the time that it had before."""
    from pyspark import TaskContext

    task = TaskContext.get()
    told = task.getLocalProperty(NOW) if task is not None else None
    if told is None:
        raise RuntimeError(f"the driver has not set {NOW}")
    finish = task.getLocalProperty(FINISH)
    return BatchTime(int(told), None if finish is None else int(finish))


@dataclass(slots=True)
class _Copy:
    """A bucket that this worker has in memory."""

    known: LoadedBucket
    bucket: Bucket
    used: float = 0.0


_copies: dict[tuple[str, str, int], _Copy] = {}
_frozen = 0  # entries of state that are hidden from the garbage collector


class KernelProcessor(StatefulProcessor):
    """A stateful operator for ``transformWithState``, grouped by bucket. ``run`` identifies a job's run."""

    def __init__(self, operator: KeyedOperator, run: str, location: StateLocation) -> None:
        self._operator = operator
        self._run = run
        self._location = location

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._head = handle.getValueState("head", HEAD)
        self._snapshot = handle.getMapState("snapshot", *SNAPSHOT)
        self._changes = handle.getMapState("changes", *CHANGES)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        number = int(key[0])
        name = self._run, self._operator.name, number
        batch = unpacked([row["blob"] for row in rows])
        versions = self._versions(number)
        # Forget the copy until everything is written: a failure leaves it half changed.
        copy = _copies.pop(name, None)
        known = versions.load(None if copy is None else copy.known)
        if copy is None:
            _forget()
        if copy is None or copy.known is not known:
            copy = _Copy(known, Bucket(self._operator, known.store))
        versions.begin(known)
        given = copy.bucket.step(batch)
        versions.save(known)
        copy.used = time.monotonic()
        _copies[name] = copy
        self._check_size()
        _leave_alone()
        for channel, table in given.items():
            yield from (Row(channel=channel, blob=to_bytes(part)) for part in _parts(table))
        clock = copy.bucket.clock
        told = {
            "operator": self._operator.name,
            "bucket": number,
            **asdict(copy.bucket.status()),
            "bytes": known.size,
            "inputs": [clock.input_watermark(one) for one in range(len(self._operator.inputs))],
        }
        yield Row(channel=STATUS, blob=json.dumps(told).encode())

    def close(self) -> None:
        pass

    def _versions(self, number: int) -> BucketVersions:
        space = TableId(self._location.name, number)
        return BucketVersions(
            self._operator.name, space, self._head, self._snapshot, self._changes, self._table
        )

    def _table(self, space: TableId) -> StateTable | None:
        return open_table(self._location.state, space, self._run)

    def _check_size(self) -> None:
        """Stop while there is memory left, if this worker's share of the state alone exceeds the limit."""
        most = self._location.most_bytes
        if most is not None:
            here = self._run, self._operator.name
            size = sum(copy.known.size for name, copy in _copies.items() if name[:2] == here)
            if size > most:
                raise StateError(too_large(self._operator.name, size, most))


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """A table in parts of bounded size."""
    rows = max(1, int(_RESULT_BYTES / max(1, table.nbytes / table.num_rows)))
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def _forget() -> None:
    """Drop copies that have long been unused: of buckets that other workers have now, and of ended jobs."""
    old = time.monotonic() - _UNUSED_S
    for name in [name for name, copy in _copies.items() if copy.used < old]:
        table = _copies.pop(name).known.store.table
        if table is not None:
            table.close()


def _leave_alone() -> None:
    """Hide state from the garbage collector when it has grown by half. Spark collects garbage after every
    task, and would go through all of the state each time, though state is never garbage."""
    global _frozen
    entries = sum(len(copy.known.store) for copy in _copies.values())
    if entries > 10_000 and entries > 1.5 * _frozen:
        gc.collect()
        gc.freeze()
        _frozen = entries
