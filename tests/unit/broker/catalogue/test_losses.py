"""What a group missed is written down when it is deleted: how many records, from when to when."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.catalogue.database import FILE_NAME
from millstream.broker.catalogue.losses import Loss
from millstream.broker.groups.committed_offset import OffsetToCommit
from millstream.broker.node import Node
from millstream.core.clock import ManualClock
from millstream.core.config import BrokerConfig
from tests.support.asking import Run, ask
from tests.support.logs import append

MINUTE = 60_000
GROUP = 32


@pytest.fixture
def start(node: Node, run: Run, clock: ManualClock) -> int:
    """Ten records, one a minute and each a segment, in a topic that keeps an hour; when the first was."""
    run(node.topic_admin.create("t", 1, {"segment.bytes": "1024", "retention.ms": "3600000"}))
    return fill(node, clock)


def fill(node: Node, clock: ManualClock, count: int = 10) -> int:
    log = log_of(node)
    begun = clock.now_ms()
    for _ in range(count):
        append(log, b"x" * 900, at=clock.now_ms())
        clock.advance(60)
    return begun


def log_of(node: Node) -> Any:
    partition = node.topics.partition("t", 0)
    assert partition is not None
    return partition.log


def commit(node: Node, run: Run, group: str, offset: int) -> None:
    async def steps() -> None:
        await node.catalogue.commit_offsets(group, [OffsetToCommit("t", 0, offset, -1, "", 0)])

    run(steps())


def delete(node: Node, run: Run, upto: int) -> None:
    """As an administrator does."""

    async def steps() -> None:
        log_of(node).delete_records(upto)

    run(steps())


def after_minutes(node: Node, run: Run, clock: ManualClock, minutes: float) -> None:
    """Retention looks, so long after the first record."""
    clock.advance(minutes * 60 - (clock.monotonic()))
    run(node.maintenance.apply_retention())


def losses(node: Node, group: str) -> Loss | None:
    return node.catalogue.losses.of(group).get(("t", 0))


def test_a_group_that_retention_overtakes_has_its_loss_written_down(
    node: Node, run: Run, clock: ManualClock, start: int, caplog: pytest.LogCaptureFixture
) -> None:
    commit(node, run, "slow", 2)
    commit(node, run, "quick", 9)
    with caplog.at_level(logging.WARNING):
        after_minutes(node, run, clock, 64.5)  # five records are older than an hour
    assert log_of(node).log_start_offset == 5
    now = clock.now_ms()
    assert losses(node, "slow") == Loss(2, 5, start + 2 * MINUTE, start + 4 * MINUTE, now, 3)
    assert losses(node, "quick") is None
    (line,) = [record.getMessage() for record in caplog.records]
    assert "group slow fell behind the start of t-0: 3 records (offsets 2 to 4, written from" in line


def test_a_loss_that_goes_on_is_one_loss_and_is_not_logged_each_time(
    node: Node, run: Run, clock: ManualClock, start: int, caplog: pytest.LogCaptureFixture
) -> None:
    commit(node, run, "slow", 0)
    with caplog.at_level(logging.WARNING):
        for minutes in range(60, 69):
            after_minutes(node, run, clock, minutes + 0.5)
    loss = losses(node, "slow")
    assert loss is not None
    assert (loss.first_offset, loss.next_offset, loss.total) == (0, 9, 9)
    assert (loss.first_ms, loss.last_ms) == (start, start + 8 * MINUTE)
    assert len(caplog.records) == 4  # at one, two, four and eight records


def test_a_group_that_went_on_and_fell_off_again_has_its_latest_loss_and_the_sum(
    node: Node, run: Run, clock: ManualClock, start: int
) -> None:
    commit(node, run, "slow", 0)
    after_minutes(node, run, clock, 61.5)
    commit(node, run, "slow", 5)
    after_minutes(node, run, clock, 66.5)
    loss = losses(node, "slow")
    assert loss is not None
    assert (loss.first_offset, loss.next_offset, loss.records, loss.total) == (5, 7, 2, 4)


def test_records_deleted_by_an_administrator_are_missed_too(node: Node, run: Run, start: int) -> None:
    commit(node, run, "slow", 4)
    delete(node, run, 6)
    loss = losses(node, "slow")
    assert loss is not None
    assert (loss.first_offset, loss.next_offset) == (4, 6)


def test_a_group_s_losses_are_told_by_describe_configs(
    node: Node, run: Run, clock: ManualClock, start: int
) -> None:
    commit(node, run, "slow", 4)
    delete(node, run, 6)
    asked = [{"resource_type": GROUP, "resource_name": "slow", "configuration_keys": None}]
    (result,) = run(ask(node, 32, 4, resources=asked)).results
    (entry,) = [entry for entry in result.configs if entry.name == "millstream.losses"]
    assert entry.read_only
    assert json.loads(entry.value) == [
        {
            "topic": "t",
            "partition": 0,
            "first_offset": 4,
            "next_offset": 6,
            "first_ms": start + 4 * MINUTE,
            "last_ms": start + 5 * MINUTE,
            "lost_ms": clock.now_ms(),
            "total": 2,
        }
    ]


def test_losses_go_with_their_group_and_with_their_topic(node: Node, run: Run, start: int) -> None:
    for group in ("a", "b"):
        commit(node, run, group, 0)
    delete(node, run, 6)
    run(node.coordinator.directory.delete("a"))
    assert losses(node, "a") is None
    assert losses(node, "b") is not None
    run(node.topic_admin.delete("t"))
    assert losses(node, "b") is None


def test_losses_outlive_the_broker(tmp_path: Path, run: Run, loop: Any, clock: ManualClock) -> None:
    node = Node(BrokerConfig(data=str(tmp_path)), clock, loop)
    run(node.topic_admin.create("t", 1, {}))
    fill(node, clock)
    commit(node, run, "slow", 3)
    delete(node, run, 6)
    expected = losses(node, "slow")
    node.close()
    catalogue = Catalogue(tmp_path / FILE_NAME)
    assert catalogue.losses.of("slow") == {("t", 0): expected}
    catalogue.close()


def test_a_fetch_of_what_was_deleted_is_counted_and_logged(
    caplog: pytest.LogCaptureFixture, node: Node, run: Run, start: int
) -> None:
    partition = node.topics.partition("t", 0)
    assert partition is not None
    delete(node, run, 6)
    with caplog.at_level(logging.WARNING):
        partition.missed(2)
    assert partition.missed_reads == 1
    assert "asked for offset 2, but the log starts at 6: 4 records were deleted" in caplog.text
