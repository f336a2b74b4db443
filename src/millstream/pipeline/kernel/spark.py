"""The kernel as an operator of Spark's: its state in Spark's store and checkpoint, a copy in the worker.

What stands in Spark's store for a bucket:

    head        the version (it grows by one a batch), a mark that no other write of it has, where the last
                snapshot stands, and how large all of it is
    snapshot    all of the state as it was at some version, in parts
    changes     what each version since then changed, in slots that are used again after the next snapshot

So a batch writes what it changed and nothing else. A worker keeps the buckets it has seen: if the version
and the mark are those it knows, nothing is read at all; if it fell behind because other workers had the
bucket for a while, it reads the changes since; otherwise everything. A version that was never committed has
a mark that nobody finds again.
"""

from __future__ import annotations

import gc
import json
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from millstream.pipeline.kernel.packing import unpacked
from millstream.pipeline.kernel.state import Store, to_bytes
from millstream.pipeline.kernel.step import Bucket, Operator

NOW = "millstream.now"  # the local property with the time of a batch
STATUS = "status"  # the channel on which an operator tells how it stands
RESULTS = "channel string, blob binary"
_HEAD = "version bigint, mark string, base bigint, parts int, snapshot_bytes bigint, changed_bytes bigint"
_PART_BYTES = 8 * 1024 * 1024
_LEAST_SNAPSHOT = 256 * 1024  # bytes of changes that are not yet worth a snapshot
_MOST_CHANGES = 400  # to be read one after another when a bucket is loaded
_RESULT_ROWS = 200_000  # in one blob


def time_of_batch() -> int:
    """The time of the batch that a task is part of, in microseconds, as the driver has it from the log of
    offsets: a batch that is run again has the time it had before."""
    from pyspark import TaskContext

    task = TaskContext.get()
    told = task.getLocalProperty(NOW) if task is not None else None
    if told is None:
        raise RuntimeError(f"the driver has not set {NOW}")
    return int(told)


@dataclass(slots=True)
class _Known:
    """A bucket that this worker has in memory."""

    version: int
    mark: str
    store: Store
    bucket: Bucket


_known: dict[tuple[str, str, int], _Known] = {}
_frozen = 0  # entries of state that the garbage collector has been told to leave alone


class KernelProcessor(StatefulProcessor):
    """A stateful operator, for ``transformWithState`` grouped by bucket. ``run`` tells runs of jobs apart."""

    def __init__(self, operator: Operator, run: str) -> None:
        self._operator = operator
        self._run = run

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._head = handle.getValueState("head", _HEAD)
        self._snapshot = handle.getMapState("snapshot", "part int", "blob binary")
        self._changes = handle.getMapState("changes", "slot int", "mark string, blob binary")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        number = int(key[0])
        batch = unpacked([row["blob"] for row in rows])
        head = self._head.get()
        known = self._load(number, head)
        given = known.bucket.step(batch)
        size = self._save(known, head)
        _known[self._name(number)] = known
        _leave_alone()
        for channel, table in given.items():
            for start in range(0, table.num_rows, _RESULT_ROWS):
                yield Row(channel=channel, blob=to_bytes(table.slice(start, _RESULT_ROWS)))
        clock = known.bucket.clock
        told = {
            "operator": self._operator.name,
            "bucket": number,
            **asdict(known.bucket.status()),
            "bytes": size,
            "inputs": [clock.input_watermark(one) for one in range(len(self._operator.inputs))],
        }
        yield Row(channel=STATUS, blob=json.dumps(told).encode())

    def close(self) -> None:
        pass

    def _name(self, bucket: int) -> tuple[str, str, int]:
        return self._run, self._operator.name, bucket

    # ---- reading ------------------------------------------------------------------------------------

    def _load(self, number: int, head: Any) -> _Known:
        """The bucket, which is not known any more until all is written: what fails leaves it half changed."""
        known = _known.pop(self._name(number), None)
        if head is None:
            store = Store()
            return _Known(0, "", store, Bucket(self._operator, store))
        version, mark, base = int(head[0]), str(head[1]), int(head[2])
        if known is not None and (known.version, known.mark) == (version, mark):
            return known
        if known is not None and base < known.version < version:
            slot = known.version - base
            there = self._changes.getValue((slot,))
            if there is not None and there[0] == known.mark:
                for later in range(slot + 1, version - base + 1):
                    known.store.apply(self._changes.getValue((later,))[1])
                return _Known(version, mark, known.store, Bucket(self._operator, known.store))
        store = Store()
        if int(head[3]):
            store.apply(b"".join(bytes(self._snapshot.getValue((part,))[0]) for part in range(int(head[3]))))
        for slot in range(1, version - base + 1):
            store.apply(self._changes.getValue((slot,))[1])
        return _Known(version, mark, store, Bucket(self._operator, store))

    # ---- writing ------------------------------------------------------------------------------------

    def _save(self, known: _Known, head: Any) -> int:
        """Write what changed, or a snapshot if that is no more; returns how large all of it is."""
        base, parts, snapshot, changed = (0, 0, 0, 0) if head is None else (int(part) for part in head[2:6])
        known.version += 1
        known.mark = uuid.uuid4().hex
        blob = known.store.changes()
        changed += len(blob)
        if changed > max(snapshot, _LEAST_SNAPSHOT) or known.version - base > _MOST_CHANGES:
            whole = known.store.snapshot()
            cuts = range(0, len(whole), _PART_BYTES)
            for part, start in enumerate(cuts):
                self._snapshot.updateValue((part,), (whole[start : start + _PART_BYTES],))
            for part in range(len(cuts), parts):
                self._snapshot.removeKey((part,))
            base, parts, snapshot, changed = known.version, len(cuts), len(whole), 0
        else:
            self._changes.updateValue((known.version - base,), (known.mark, blob))
        self._head.update((known.version, known.mark, base, parts, snapshot, changed))
        return snapshot + changed


def _leave_alone() -> None:
    """Spark collects garbage after every task, and goes through all of the state each time. What is state is
    no garbage: when it has grown by half, it is taken out of the collector's sight."""
    global _frozen
    entries = sum(len(known.store) for known in _known.values())
    if entries > 10_000 and entries > 1.5 * _frozen:
        gc.collect()
        gc.freeze()
        _frozen = entries
