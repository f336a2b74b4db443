"""What a broker makes of the transactions that its last process left, however that one ended."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.net.loop_turn import LoopTurn
from millstream.broker.node import Node
from millstream.broker.topics.syncing import Syncer
from millstream.broker.transactions.transaction import NO_TIMEOUT, NOBODY, ProducerIdentity, TxnState
from millstream.core.clock import ManualClock
from millstream.core.config import BrokerConfig
from millstream.core.errors import LogFailed
from tests.support.asking import Run
from tests.support.logs import contents
from tests.support.transacting import (
    NAME,
    add,
    commit_offset,
    end,
    held_back,
    init,
    produce,
    producer,
    stable_offset,
    time_has_its_effect,
)

Start = Callable[..., Node]


@pytest.fixture
def start(tmp_path: Path, loop: asyncio.AbstractEventLoop, clock: ManualClock) -> Iterator[Start]:
    """Start a broker; with ``after``, on what is on the disk of that one, as if it had been killed."""
    running: list[tuple[Node, Syncer]] = []

    def start(after: Node | None = None) -> Node:
        data = tmp_path / str(len(running))
        if after is not None:
            shutil.copytree(after.logs.data_path, data)
            (data / ".lock").unlink(missing_ok=True)
        node = Node(BrokerConfig(data=str(data)), clock, loop)
        syncer = Syncer(loop, clock, threads=1)
        node.transactions.start(LoopTurn(loop, clock, syncer, node.counters), syncer)
        running.append((node, syncer))
        return node

    yield start
    for node, syncer in running:
        syncer.close()
        node.coordinator.close()
        node.close()
    loop.run_until_complete(asyncio.sleep(0))


@pytest.fixture
def node(start: Start, run: Run) -> Node:
    node = start()
    run(node.topic_admin.create("t", 3, {}))
    return node


def state(node: Node) -> TxnState:
    found = node.transactions.describe(NAME)
    assert found is not None
    return found.transaction.state


def partitions(node: Node) -> list[int]:
    found = node.transactions.describe(NAME)
    assert found is not None
    return [index for _, index in found.partitions]


def full(*_: Any, **__: Any) -> int:
    raise LogFailed("t: can't write: No space left on device")


def test_an_open_transaction_goes_on(node: Node, start: Start, run: Run) -> None:
    me = run(producer(node))
    for index in (0, 2):
        run(produce(node, me, index))
    run(commit_offset(node, me, 5))
    after = start(node)
    assert (state(after), partitions(after), held_back(after)) == (TxnState.ONGOING, [0, 2], [0, 2])
    assert run(stable_offset(after)) == (88, -1)
    assert run(produce(after, me, 0, 1)) == 0
    assert run(end(after, me)).error_code == 0
    assert held_back(after) == []
    assert run(stable_offset(after)) == (0, 5)


@pytest.mark.parametrize("written_down", [True, False])
def test_its_time_runs_on_where_it_was_written_down_and_else_anew(
    node: Node, start: Start, run: Run, clock: ManualClock, written_down: bool
) -> None:
    me = run(producer(node))
    if written_down:
        run(add(node, me, [0]))
    run(produce(node, me))
    clock.advance(20)
    after = start(node)
    clock.advance(9 if written_down else 29)
    run(time_has_its_effect(after))
    assert held_back(after) == [0]
    clock.advance(2)
    run(time_has_its_effect(after))
    assert held_back(after) == []
    assert run(end(after, me)).error_code == 90


def test_partitions_that_were_announced_are_known_before_they_have_records(
    node: Node, start: Start, run: Run
) -> None:
    me = run(producer(node))
    run(add(node, me, [1]))
    after = start(node)
    assert (state(after), partitions(after)) == (TxnState.ONGOING, [1])
    assert run(produce(after, me, 1, version=9)) == 0
    assert run(produce(after, me, 0, version=9)) == 48


@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_that_a_log_was_not_told_is_told(
    node: Node, start: Start, run: Run, monkeypatch: pytest.MonkeyPatch, commit: bool
) -> None:
    me = run(producer(node))
    for index in (0, 1):
        run(produce(node, me, index))
    run(commit_offset(node, me, 5))
    partition = node.topics.partition("t", 1)
    assert partition is not None
    monkeypatch.setattr(partition.log, "append_marker", full)
    answer = run(end(node, me, commit=commit))
    assert answer.error_code == 0
    assert held_back(node) == [1]
    after = start(node)
    assert held_back(after) == []
    assert state(after) is (TxnState.COMPLETE_COMMIT if commit else TxnState.COMPLETE_ABORT)
    assert run(stable_offset(after)) == (0, 5 if commit else -1)
    told = after.topics.partition("t", 1)
    assert told is not None
    assert bool(told.log.aborted(0, 10)) is not commit
    # A partition that already had its marker gets no second one: a record and a marker each.
    assert [p.log.end_offset for p in after.topics.partitions()] == [2, 2, 0]
    assert [len(contents(p.log)) for p in after.topics.partitions()] == [1, 1, 0]


def test_a_marker_that_is_owed_does_not_hit_the_next_transaction(node: Node, start: Start, run: Run) -> None:
    """The first protocol keeps producer id and epoch; only the first offset tells the two apart."""
    me = run(producer(node))
    run(add(node, me, [0]))
    run(produce(node, me, version=9))
    run(end(node, me, version=3))
    run(add(node, me, [0]))
    run(produce(node, me, 0, 1, version=9))
    after = start(node)  # the row of the first one's marker is there still
    assert (state(after), held_back(after)) == (TxnState.ONGOING, [0])
    assert run(end(after, me, commit=False, version=3)).error_code == 0
    log = after.topics.partitions()[0].log
    assert log.aborted(0, 10) == [(me.producer_id, 2)]


def test_rows_are_forgotten_once_their_markers_are_synced(node: Node, run: Run, clock: ManualClock) -> None:
    me = run(producer(node))
    run(produce(node, me))
    run(end(node, me))

    def owed() -> int:
        with sqlite3.connect(Path(node.logs.data_path) / "catalogue.db") as db:
            return int(db.execute("SELECT count(*) FROM owed_markers").fetchone()[0])

    assert owed() == 1
    partition = node.topics.partition("t", 0)
    assert partition is not None

    async def until_synced() -> None:
        clock.advance(2)
        node.transactions.tick()
        while partition.log.synced_offset < partition.log.written_offset:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        clock.advance(2)
        node.transactions.tick()
        await node.catalogue.set_broker_overrides({})  # written after it

    run(until_synced())
    assert owed() == 0


def test_what_nobody_could_end_is_aborted(
    node: Node, start: Start, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    me = run(producer(node))
    run(produce(node, me))

    async def forget() -> None:
        await node.catalogue.decisions.forget([NAME])

    run(forget())
    after = start(node)
    assert held_back(after) == []
    assert "belong to no transactional id" in caplog.text
    log = after.topics.partitions()[0].log
    assert log.aborted(0, 10) == [(me.producer_id, 0)]


def test_a_prepared_transaction_survives_and_is_decided_later(node: Node, start: Start, run: Run) -> None:
    me = run(producer(node, 6, enable2_pc=True))
    run(produce(node, me))
    after = start(node)
    back = run(init(after, 6, enable2_pc=True, keep_prepared_txn=True))
    assert (back.ongoing_txn_producer_id, back.ongoing_txn_producer_epoch) == me
    again = start(after)  # it is kept over the next restart, too
    found = again.transactions.describe(NAME)
    assert found is not None
    assert (found.transaction.kept, found.transaction.timeout_ms) == (me, NO_TIMEOUT)
    mine = ProducerIdentity(back.producer_id, back.producer_epoch)
    assert run(end(again, mine)).error_code == 0
    assert held_back(again) == []
    found = again.transactions.describe(NAME)
    assert found is not None
    assert found.transaction.kept == NOBODY
