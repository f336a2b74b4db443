"""The catalogue's commits as statements: run again on a copy, they make the same catalogue."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.catalogue.feed import KEPT_BYTES, CatalogueFeed
from millstream.broker.groups.committed_offset import OffsetToCommit
from millstream.broker.transactions.decisions import NOTHING_ADDED
from millstream.broker.transactions.transaction import first_state
from millstream.core.errors import RequestRefused
from tests.support.asking import Run


def rows_of(path: Path) -> dict[str, list[Any]]:
    db = sqlite3.connect(path)
    try:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {t: db.execute(f'SELECT * FROM "{t}"').fetchall() for t in tables if not t.startswith("copy_")}
    finally:
        db.close()


def offset(topic: str, partition: int, at: int, metadata: str = "") -> OffsetToCommit:
    return OffsetToCommit(topic, partition, at, 0, metadata, 1, -1)


def test_the_same_statements_make_the_same_catalogue(tmp_path: Path, run: Run) -> None:
    async def steps() -> None:
        leader, copy = Catalogue(tmp_path / "leader.db"), Catalogue(tmp_path / "copy.db")
        number, reader = await leader.pinned()
        reader.close()
        feed = leader.follow(lambda: None)
        assert feed.number == number
        await leader.create_topic("t", 2, {"retention.ms": "5"})
        await leader.create_topic("gone", 1)
        await leader.commit_offsets("g", [offset("t", 0, 7, "a\0b\"'é"), offset("gone", 0, 1)])
        await leader.set_group_state("g", '{"generation": 3}')
        await leader.decisions.save(first_state("x", 4, 1000, 1), NOTHING_ADDED)
        await leader.allocate_producer_ids(1000)
        with pytest.raises(RequestRefused):
            await leader.create_topic("t", 2)
        await leader.delete_topic("gone")
        statements = feed.since(number)
        assert statements is not None

        def write(db: sqlite3.Connection) -> None:
            db.execute("UPDATE facts SET value = ? WHERE name = 'cluster.id'", (leader.cluster_id,))
            for statement, rows in statements:
                db.executemany(statement, rows)

        await copy.copy(write)
        assert copy.topics["t"].id == leader.topics["t"].id
        assert copy.topics["t"].config.retention_ms == 5
        leader.close()
        copy.close()

    run(steps())
    assert rows_of(tmp_path / "copy.db") == rows_of(tmp_path / "leader.db")


def test_a_pinned_catalogue_is_of_the_moment_of_its_number(tmp_path: Path, run: Run) -> None:
    async def steps() -> None:
        catalogue = Catalogue(tmp_path / "c.db")
        feed = catalogue.follow(lambda: None)
        first = catalogue.create_topic("before", 1)
        pinned = catalogue.pinned()
        second = catalogue.create_topic("after", 1)
        number, reader = await pinned
        await asyncio.gather(first, second)
        seen = {name for (name,) in reader.execute("SELECT name FROM topics")}
        reader.close()
        later = {
            rows[0][0] for text, rows in feed.since(number) or () if text.startswith("INSERT INTO topics")
        }
        assert seen | later == {"before", "after"}
        assert not seen & later, "what the copy has must not be told again"
        catalogue.close()

    run(steps())


def test_a_catalogue_that_another_broker_leads_takes_no_changes(run: Run) -> None:
    async def steps() -> None:
        catalogue = Catalogue()
        catalogue.refuse(RequestRefused(41, "another leads"))
        with pytest.raises(RequestRefused, match="another leads") as refused:
            catalogue.create_topic("t", 1)
        assert refused.value.code == 41
        catalogue.refuse(None)
        await catalogue.create_topic("t", 1)
        catalogue.close()

    run(steps())


def test_what_is_kept_for_those_behind_is_bounded_and_they_are_told() -> None:
    calls: list[None] = []
    feed = CatalogueFeed(0, lambda: calls.append(None))
    for number in range(1, 6):
        feed.add(number, [("INSERT", [("x" * (KEPT_BYTES // 3),)])])
    assert len(calls) == 5
    assert feed.since(5) == []
    assert feed.since(4) is not None
    assert feed.since(1) is None
    assert feed.since(9) is None, "a number of another process"
    feed.forget(5)
    assert feed.since(4) is None
