"""A bucket's state in Spark's store, driven through what happens to tasks: they fail before and after they
have written, are run again by workers that know much or nothing, and go on when they should have ended."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.core.errors import StateError
from millstream.pipeline.kernel.state import containers, versions
from millstream.pipeline.kernel.state.containers import TIME, WaitingRows
from millstream.pipeline.kernel.state.disk import DiskTable
from millstream.pipeline.kernel.state.postgres import PostgresTable
from millstream.pipeline.kernel.state.store import StateStore
from millstream.pipeline.kernel.state.table import StateTable, TableId
from millstream.pipeline.kernel.state.versions import BucketVersions, LoadedBucket, StateHead
from tests.support.spark_state import Variables

SPACE = TableId("job/0", 1)
ROWS = pa.schema([(name, pa.int64()) for name in WaitingRows.ORDER])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that happens now and then happens often."""
    monkeypatch.setattr(versions, "_LEAST_SNAPSHOT", 400)
    monkeypatch.setattr(versions, "_MOST_CHANGES", 7)
    monkeypatch.setattr(versions, "_PART_BYTES", 150)
    monkeypatch.setattr(versions, "_FOLD_ENTRIES", 6)
    monkeypatch.setattr(versions, "_FOLD_VERSIONS", 3)
    monkeypatch.setattr(containers, "PIECE_BYTES", 300)


@dataclass
class Content:
    """What is in a store, plainly."""

    values: dict[int, Any] = field(default_factory=dict)
    dues: dict[int, int] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)
    reached: int = 0

    @classmethod
    def of(cls, store: StateStore) -> Content:
        keyed, rows = store.keyed("keyed"), store.waiting("rows").rows()
        values = dict(keyed.items())
        dues = {key: due for key in values if (due := keyed.due_of(key)) is not None}
        times = [] if rows is None else rows[TIME].to_pylist()
        return cls(values, dues, times, store.in_memory("reached").get("time", 0))

    def copy(self) -> Content:
        return Content(dict(self.values), dict(self.dues), list(self.waiting), self.reached)


@dataclass(frozen=True)
class Work:
    """What a batch does: sets keys, removes keys, lets time pass."""

    put: dict[int, tuple[str, int | None]]
    remove: list[int]
    passes: int

    def on(self, store: StateStore) -> list[tuple[int, int]]:
        """Do it; returns the keys that were due."""
        keyed, single = store.keyed("keyed"), store.in_memory("reached")
        for key, (value, due) in self.put.items():
            keyed.put(key, value, None if due is None else single.get("time", 0) + due)
        for key in self.remove:
            keyed.remove(key)
        now = single.get("time", 0)
        waiting = store.waiting("rows")
        times = [now + key for key in self.put]
        waiting.add(pa.table([times, [0] * len(times), [0] * len(times), list(self.put)], schema=ROWS))
        single.put("time", now + self.passes)
        waiting.let_go(now + self.passes)
        return sorted((due, key) for due, key, _ in keyed.take_due(now + self.passes))

    def on_model(self, model: Content) -> tuple[Content, list[tuple[int, int]]]:
        after = model.copy()
        for key, (value, due) in self.put.items():
            after.values[key] = value
            after.dues.pop(key, None)
            if due is not None:
                after.dues[key] = model.reached + due
        for key in self.remove:
            after.values.pop(key, None)
            after.dues.pop(key, None)
        after.reached += self.passes
        after.waiting = sorted([*after.waiting, *(model.reached + key for key in self.put)])
        after.waiting = [time for time in after.waiting if time >= after.reached]
        due = sorted((due, key) for key, due in after.dues.items() if due <= after.reached)
        for _, key in due:
            del after.values[key], after.dues[key]
        return after, due


WORK = st.builds(
    Work,
    st.dictionaries(
        st.integers(0, 25), st.tuples(st.text(max_size=30), st.none() | st.integers(0, 9)), max_size=8
    ),
    st.lists(st.integers(0, 25), max_size=3),
    st.integers(0, 4),
)
# A batch, by which of three workers it is done in the end, and who tried before: each fails at some point, or
# hangs and goes on when another has done its work. What they did need not be what is done in the end: a
# user's function may ask the time, or a die.
BATCHES = st.lists(
    st.tuples(
        WORK,
        st.lists(
            st.tuples(
                WORK,
                st.integers(0, 2),
                st.sampled_from(["load", "step", "save", "forget", "hang", "hang at once"]),
            ),
            max_size=3,
        ),
        st.integers(0, 2),
    ),
    max_size=25,
)


class Cluster:
    """Workers with their memories, and the store that they share."""

    def __init__(self, open_table: Callable[[TableId], StateTable | None]) -> None:
        self._open_table = open_table
        self._memories: list[dict[str, LoadedBucket]] = [{}, {}, {}]
        self.committed = Variables()
        self.model = Content()
        self._hanging: list[tuple[BucketVersions, LoadedBucket, Work, bool]] = []

    def run(self, work: Work, failures: list[tuple[Work, int, str]], worker: int) -> None:
        for other, number, where in failures:
            self._attempt(other, number, where)
        variables, due = self._attempt(work, worker, None)
        after, expected = work.on_model(self.model)
        assert due == expected
        self.model, self.committed = after, variables
        self._wake()

    def _attempt(self, work: Work, worker: int, fails: str | None) -> tuple[Variables, list[tuple[int, int]]]:
        variables, memory = self.committed.copy(), self._memories[worker]
        kept = BucketVersions(
            "test", SPACE, variables.head, variables.snapshot, variables.changes, self._open_table
        )
        if fails == "forget":
            memory.clear()
        known = kept.load(memory.pop("bucket", None))
        if fails in ("load", "forget"):
            return variables, []
        if fails == "hang at once":
            self._hanging.append((kept, known, work, False))
            return variables, []
        assert Content.of(known.store) == self.model
        kept.begin(known)
        assert Content.of(known.store) == self.model
        if fails == "hang":
            self._hanging.append((kept, known, work, True))
            return variables, []
        due = work.on(known.store)
        if fails == "step":
            return variables, []
        kept.save(known)
        assert len(known.store.keyed("keyed")) == len(dict(known.store.keyed("keyed").items()))
        memory["bucket"] = known
        return variables, due

    def _wake(self) -> None:
        """What hung goes on, on what is now an old copy of everything; nothing may come of it."""
        for kept, known, work, begun in self._hanging[:-3]:
            known.store.keyed("keyed")
            with suppress(StateError):
                if not begun:
                    kept.begin(known)
                work.on(known.store)
                kept.save(known)
        self._hanging = self._hanging[-3:]


def drive(cluster: Cluster, batches: list[Any]) -> None:
    for work, failures, worker in batches:
        cluster.run(work, failures, worker)
    variables = cluster.committed.copy()
    kept = BucketVersions(
        "test", SPACE, variables.head, variables.snapshot, variables.changes, cluster._open_table
    )
    assert Content.of(kept.load(None).store) == cluster.model


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES)
def test_state_in_memory_is_that_of_the_batches_that_count(batches: list[Any]) -> None:
    drive(Cluster(lambda space: None), batches)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES, losses=st.sets(st.integers(0, 24), max_size=3))
def test_state_on_disk_is_that_of_the_batches_that_count_even_if_files_are_lost(
    batches: list[Any], losses: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("state")
    lost = 0
    opened: list[DiskTable] = []

    def table(space: TableId) -> DiskTable:
        opened.append(DiskTable(home / str(lost), space))
        return opened[-1]

    cluster = Cluster(table)
    for number, (work, failures, worker) in enumerate(batches):
        if number in losses:
            lost += 1
            cluster._memories = [{}, {}, {}]
        cluster.run(work, failures, worker)
    drive(cluster, [])
    for one in opened:
        one.close()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches=BATCHES)
def test_state_in_postgresql_is_that_of_the_batches_that_count(batches: list[Any], database: str) -> None:
    opened: list[PostgresTable] = []

    def table(space: TableId) -> PostgresTable:
        opened.append(PostgresTable(database, space))
        return opened[-1]

    table(SPACE).drop()
    drive(Cluster(table), batches)
    for one in opened:
        one.close()


def put(count: int, due: int | None = None) -> Work:
    return Work(dict.fromkeys(range(count), ("x" * 20, due)), [], 0)


def test_a_worker_that_is_one_version_behind_reads_that_one_and_no_snapshot() -> None:
    cluster = Cluster(lambda space: None)
    cluster.run(put(20), [], 0)
    cluster.run(put(20), [], 0)  # begins with a snapshot
    cluster.run(put(20), [], 1)
    variables = cluster.committed.copy()
    asked: list[Any] = []
    real = variables.changes.getValue
    variables.changes.getValue = lambda key: asked.append(key) or real(key)  # type: ignore[method-assign]
    variables.snapshot.getValue = None  # type: ignore[assignment,method-assign]
    kept = BucketVersions(
        "test", SPACE, variables.head, variables.snapshot, variables.changes, lambda space: None
    )
    known = kept.load(cluster._memories[0]["bucket"])
    assert Content.of(known.store) == cluster.model
    head = StateHead.of(variables.head.get())
    assert {slot for slot, _ in asked} == {head.version - head.base - 1, head.version - head.base}


def test_a_batch_writes_what_it_changed_and_not_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_MOST_CHANGES", 400)
    monkeypatch.setattr(versions, "_LEAST_SNAPSHOT", 10_000)
    cluster = Cluster(lambda space: None)
    cluster.run(Work(dict.fromkeys(range(500), ("x" * 100, None)), [], 30_000), [], 0)
    cluster.run(put(1), [], 0)
    before = cluster.committed.bytes
    cluster.run(put(1), [], 0)
    assert 0 < cluster.committed.bytes - before < 1000


def test_expired_keys_are_gone_from_the_checkpoint_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_MOST_CHANGES", 400)
    cluster = Cluster(lambda space: None)
    cluster.run(Work(dict.fromkeys(range(300), ("x" * 100, 5)), [], 0), [], 0)
    cluster.run(put(1), [], 0)
    full = StateHead.of(cluster.committed.head.get())
    cluster.run(Work({}, [], 1000), [], 0)
    cluster.run(put(1), [], 0)
    empty = StateHead.of(cluster.committed.head.get())
    assert full.snapshot_bytes > 30_000
    assert empty.snapshot_bytes + empty.changed_bytes < 2000
    assert cluster.committed.bytes < 2000


def test_a_file_is_not_made_again_after_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[DiskTable] = []

    def table(space: TableId) -> DiskTable:
        opened.append(DiskTable(tmp_path, space))
        return opened[-1]

    cluster = Cluster(table)
    for worker in (0, 1, 2, 0, 1, 2):
        cluster.run(put(20), [], worker)
    assert StateHead.of(cluster.committed.head.get()).base > 1, "there have been snapshots"
    monkeypatch.setattr(DiskTable, "rebuild", None)
    cluster._memories = [{}, {}, {}]
    cluster.run(put(20), [], 1)
    for one in opened:
        one.close()


def test_an_old_copy_of_the_checkpoint_does_not_go_with_a_newer_database(database: str) -> None:
    def table(space: TableId) -> PostgresTable:
        return PostgresTable(database, space)

    cluster = Cluster(table)
    cluster.run(put(20), [], 0)
    old = cluster.committed
    for _ in range(3):
        cluster.run(put(20), [], 0)
    kept = BucketVersions("cards", SPACE, old.head, old.snapshot, old.changes, table)
    with pytest.raises(StateError, match=r"'cards', bucket 1 is ahead of the checkpoint.*--checkpoint"):
        kept.load(None)


def test_a_database_that_has_lost_its_tables_is_refused(database: str) -> None:
    def table(space: TableId) -> PostgresTable:
        return PostgresTable(database, space)

    cluster = Cluster(table)
    for _ in range(3):
        cluster.run(put(20), [], 0)
    table(SPACE).drop()
    variables = cluster.committed
    kept = BucketVersions("cards", SPACE, variables.head, variables.snapshot, variables.changes, table)
    with pytest.raises(StateError, match="behind the checkpoint"):
        kept.load(None)
