"""Reads the state of a job's stateful operators from its checkpoint, as of the last committed batch.

Spark's own data source for state returns what the kernel has written: the head, snapshot and changes of every
bucket. From there the state is loaded as a worker loads it (``kernel/state/versions.py``). State on disk is
in the checkpoint as well. For state in a database, the database's address is needed.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.core.errors import ConfigError, MillstreamError
from millstream.pipeline.kernel.clock import NEVER
from millstream.pipeline.kernel.processor.processor import STATES, opened
from millstream.pipeline.kernel.state.backends import open_table
from millstream.pipeline.kernel.state.containers import Keyed, WaitingRows
from millstream.pipeline.kernel.state.disk import DiskTable
from millstream.pipeline.kernel.state.store import KEPT_BESIDE, StateStore
from millstream.pipeline.kernel.state.table import StateTable, TableId
from millstream.pipeline.kernel.state.versions import BucketVersions, StateHead
from millstream.pipeline.run.checkpoint.checkpoint import Checkpoint
from millstream.pipeline.spark.failures import condensed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AT_ONCE = 256 * 1024 * 1024  # bytes of state read at once; a single bucket may have more


@dataclass(frozen=True, slots=True)
class OperatorState:
    """A stateful operator in a checkpoint."""

    query: str
    number: int  # Spark's number for it within the query
    name: str
    heads: dict[int, StateHead]  # by bucket
    batch: int

    @property
    def entries(self) -> int:
        return sum(max(0, head.held - 1) for head in self.heads.values())  # one in every bucket is its clock

    @property
    def bytes(self) -> int:
        """The size of the state in the checkpoint. State in a database is not included."""
        return sum(head.snapshot_bytes + head.changed_bytes for head in self.heads.values())


@dataclass(frozen=True, slots=True)
class StateEntry:
    """A key and its value, or a waiting row, which has no key of its own but its place in the log."""

    operator: str
    bucket: int
    container: str
    key: Any
    value: Any
    due: datetime.datetime | None

    def to_json(self) -> dict[str, Any]:
        return {
            "operator": self.operator,
            "bucket": self.bucket,
            "container": self.container,
            "key": plain(self.key),
            "value": plain(self.value),
            "due": plain(self.due),
        }


class StateReader:
    """Reads the state in a checkpoint. ``state`` is the address of the database that holds it, if one
    does."""

    def __init__(self, spark: SparkSession, checkpoint: Checkpoint, state: str | None = None) -> None:
        checkpoint.files.attach(spark)
        kept = checkpoint.kept()
        if kept is None:
            raise ConfigError(f"{checkpoint.location} is not the checkpoint of a job")
        self._spark = spark
        self._checkpoint = checkpoint
        self._state = state
        self._shapes: dict[str, Any] = kept["queries"]

    def operators(self) -> list[OperatorState]:
        """All operators that keep state on the kernel."""
        found: list[OperatorState] = []
        for query, shape in self._shapes.items():
            if shape.get("operators"):
                found += self._operators_of(query)
        return found

    def find(self, name: str) -> OperatorState:
        found = self.operators()
        named = [one for one in found if one.name == name]
        if not named:
            names = ", ".join(repr(one.name) for one in found) or "none"
            raise ConfigError(
                f"there is no stateful operator {name!r} in this checkpoint; its operators are {names}"
            )
        return named[0]

    def entries(
        self, operator: OperatorState, on_bucket: Callable[[int, int], None] = lambda done, of: None
    ) -> Iterator[StateEntry]:
        """Everything that an operator holds. ``on_bucket`` is called with the number of buckets that have
        been read, and with their total."""
        home = Path(tempfile.mkdtemp(prefix="millstream-state-"))
        read = 0
        try:
            for group in _groups(operator.heads):
                snapshot = self._map(operator, "snapshot", group)
                changes = self._map(operator, "changes", group)
                for bucket in group:
                    head = operator.heads[bucket]
                    kept = BucketVersions(
                        operator.name,
                        TableId(head.space, bucket),
                        _Value(head),
                        _Map(snapshot.get(bucket, {})),
                        _Map(changes.get(bucket, {})),
                        partial(self._table, operator, home),
                    )
                    yield from listed(operator.name, bucket, kept.load(None).store)
                    read += 1
                    on_bucket(read, len(operator.heads))
        finally:
            shutil.rmtree(home, ignore_errors=True)

    def _table(self, operator: OperatorState, home: Path, space: TableId) -> StateTable | None:
        kind = self._shapes[operator.query].get("state") or "memory"
        if kind == "memory":
            return None
        if kind == "disk":
            return DiskTable(home, space)
        if self._state is None:
            raise ConfigError(f"the state of this job is in a database: name it with --state {kind}://...")
        return open_table(self._state, space, "")

    # ---- from Spark ---------------------------------------------------------------------------------

    def _operators_of(self, query: str) -> list[OperatorState]:
        path = self._checkpoint.query(query)
        try:
            known = self._spark.read.format("state-metadata").load(path)
            rows = known.where("operatorName LIKE 'transformWithState%'").collect()
            numbers = {int(row["operatorId"]): int(row["maxBatchId"]) for row in rows}
            found = []
            for number in sorted(numbers):
                heads = {
                    int(row["key"][0]): StateHead.of(tuple(row["value"]))
                    for row in self._variable(query, number, "head").collect()
                }
                names = {head.operator for head in heads.values()}
                if names:
                    found.append((number, names.pop(), heads))
        except Exception as error:
            if isinstance(error, MillstreamError):
                raise
            raise MillstreamError(f"the state in {path} can't be read: {condensed(error)}") from error
        return [OperatorState(query, number, name, heads, numbers[number]) for number, name, heads in found]

    def _variable(self, query: str, number: int, name: str) -> DataFrame:
        reader = self._spark.read.format("statestore").option("operatorId", str(number))
        return reader.option("stateVarName", name).load(self._checkpoint.query(query))

    def _map(
        self, operator: OperatorState, name: str, buckets: list[int]
    ) -> dict[int, dict[tuple[Any, ...], tuple[Any, ...]]]:
        frame = self._variable(operator.query, operator.number, name)
        if len(buckets) < len(operator.heads):
            frame = frame.where(f"key.bucket IN ({', '.join(map(str, buckets))})")
        found: dict[int, dict[tuple[Any, ...], tuple[Any, ...]]] = {}
        for row in frame.collect():
            of_bucket = found.setdefault(int(row["key"][0]), {})
            of_bucket[tuple(row["user_map_key"])] = tuple(row["user_map_value"])
        return found


class _Value:
    def __init__(self, head: StateHead) -> None:
        self._head = head

    def get(self) -> Any:
        return tuple(self._head)

    def update(self, value: tuple[Any, ...]) -> None:
        raise AssertionError("this store is read-only")


class _Map:
    def __init__(self, values: dict[tuple[Any, ...], tuple[Any, ...]]) -> None:
        self._values = values

    def getValue(self, key: tuple[Any, ...]) -> Any:  # noqa: N802 - Spark's names
        return self._values.get(key)

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:  # noqa: N802
        raise AssertionError("this store is read-only")

    def removeKey(self, key: tuple[Any, ...]) -> None:  # noqa: N802
        raise AssertionError("this store is read-only")

    def clear(self) -> None:
        raise AssertionError("this store is read-only")


def _groups(heads: dict[int, StateHead]) -> Iterator[list[int]]:
    """Groups of buckets that can be read together."""
    group: list[int] = []
    size = 0
    for bucket, head in sorted(heads.items()):
        here = head.snapshot_bytes + head.changed_bytes
        if group and size + here > _AT_ONCE:
            yield group
            group, size = [], 0
        group.append(bucket)
        size += here
    if group:
        yield group


def listed(operator: str, bucket: int, store: StateStore) -> Iterator[StateEntry]:
    """Everything that a bucket holds, as it is shown to people."""
    store.open_all()
    for name, container in store.containers():
        if isinstance(container, WaitingRows):
            rows = container.rows()
            for row in [] if rows is None else rows.to_pylist():
                time, *place = (row.pop(part) for part in WaitingRows.ORDER)
                key = dict(zip(("source", "partition", "offset"), place, strict=True))
                yield StateEntry(operator, bucket, name, key, row, moment(time))
        elif isinstance(container, Keyed) and name != KEPT_BESIDE:
            for key, value in container.items():
                shown = _opened(value) if name == STATES else value
                yield StateEntry(operator, bucket, name, key, shown, moment(container.due_of(key)))


def _opened(kept: Any) -> Any:
    """The state of a processor's key. Its classes have to be imported, and may not exist here."""
    try:
        return opened(kept)
    except Exception as error:
        return f"{len(kept)} bytes that can't be unpickled here: {condensed(error)}"


def moment(micros: int | None) -> datetime.datetime | None:
    """A time of the kernel's, for people; None for the bounds before and after all times."""
    if micros is None or not NEVER < micros < -NEVER:
        return None
    try:
        return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=micros)
    except OverflowError:
        return None


def plain(value: Any) -> Any:
    """A value in types that JSON has."""
    if isinstance(value, dict):
        return {k if isinstance(k, str) else text(k): plain(v) for k, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(vars(value))
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [plain(one) for one in value]
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value.hex()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def text(value: Any) -> str:
    """A key or a value on one line."""
    made = plain(value)
    if isinstance(made, list) and len(made) == 1:
        made = made[0]
    return made if isinstance(made, str) else json.dumps(made, ensure_ascii=False)


def has_key(entry: StateEntry, wanted: str) -> bool:
    """True if an entry has the key that a person wrote: all of it, or one of its parts."""
    return wanted == text(entry.key) or wanted in _parts(plain(entry.key))


def _parts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _parts(one)
    else:
        yield text(value)
