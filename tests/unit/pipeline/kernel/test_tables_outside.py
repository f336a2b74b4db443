"""Tables outside the process behave alike, and programs don't notice them; a hot key is no special case."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.core.errors import StateConnectionError, StateError
from millstream.pipeline.kernel import packing
from millstream.pipeline.kernel.state.cassandra import CassandraTable, parsed
from millstream.pipeline.kernel.state.disk import DiskTable
from millstream.pipeline.kernel.state.postgres import PostgresTable
from millstream.pipeline.kernel.state.table import StateTable, TableEntry, TableId
from tests.support.cassandra_server import cassandra
from tests.support.counting_plan import Count
from tests.support.kernel_feed import SECOND, Event, Feed
from tests.support.maven import JarsUnavailable

SCHEMA = pa.schema([("key", pa.string())])
_names = itertools.count()


@pytest.fixture(scope="session")
def cassandra_url() -> Iterator[str]:
    pytest.importorskip("cassandra")
    try:
        with cassandra() as url:
            yield url
    except JarsUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture(params=["disk", "postgresql", "cassandra"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateTable]:
    space = TableId(f"job/{next(_names)}", 3)
    made: StateTable
    if request.param == "disk":
        made = DiskTable(tmp_path, space)
    elif request.param == "postgresql":
        made = PostgresTable(request.getfixturevalue("database"), space)
    else:
        made = CassandraTable(request.getfixturevalue("cassandra_url"), space)
    yield made
    made.drop()
    assert made.folded() == 0
    made.close()


def entry(text: str, due: int | None = None) -> TableEntry:
    return TableEntry(text.encode(), due)


def test_a_table_holds_what_was_folded(table: StateTable) -> None:
    assert table.folded() == 0
    table.fold(1, {"cards": {b"a": entry("1", 5), b"b": entry("2")}, "shops": {b"a": entry("other")}})
    table.fold(2, {"cards": {b"b": entry("3", 4), b"c": entry("4", 9)}})
    table.fold(4, {"cards": {b"a": None, b"nobody": None}})
    assert table.folded() == 4
    assert table.get_many("cards", [b"a", b"b", b"c", b"z"]) == {b"b": entry("3", 4), b"c": entry("4", 9)}
    assert sorted(table.scan("cards")) == [(b"b", entry("3", 4)), (b"c", entry("4", 9))]
    assert list(table.scan("shops")) == [(b"a", entry("other"))]


def test_a_version_that_a_table_is_past_changes_nothing(table: StateTable) -> None:
    table.fold(1, {"cards": {b"a": entry("1", 5), b"b": entry("1", 5)}})
    table.fold(3, {"cards": {b"a": entry("3", 7), b"b": None}})
    table.fold(3, {"cards": {b"a": entry("again", 1)}})
    table.fold(1, {"cards": {b"a": entry("1", 5), b"b": entry("1", 5), b"c": entry("1")}})
    assert table.folded() == 3
    assert list(table.scan("cards")) == [(b"a", entry("3", 7))]
    assert table.due("cards", 100, None) == [(b"a", entry("3", 7))]


def test_in_cassandra_what_is_written_too_late_is_not_seen(
    cassandra_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that hung between looking and writing writes what counted once, and does not any more."""
    table = CassandraTable(cassandra_url, TableId(f"job/{next(_names)}", 3))
    first = {"cards": {b"a": entry("1", 5), b"b": entry("1", 5), b"c": entry("1", 6)}}
    table.fold(1, first)
    table.fold(2, {"cards": {b"a": entry("2", 7), b"b": None}})
    monkeypatch.setattr(table, "folded", lambda: 0)
    table.fold(1, first)
    monkeypatch.undo()
    assert table.folded() == 2
    assert sorted(table.scan("cards")) == [(b"a", entry("2", 7)), (b"c", entry("1", 6))]
    assert table.due("cards", 100, None) == [(b"c", entry("1", 6)), (b"a", entry("2", 7))]


def test_entries_come_in_the_order_in_which_they_are_due(table: StateTable) -> None:
    many = {f"{n:05}".encode(): entry("x", 3000 - n) for n in range(3000)}
    table.fold(1, {"cards": {**many, b"never": entry("x")}})
    table.fold(2, {"cards": {b"00000": entry("x", 1), b"02999": entry("x")}})
    found: list[tuple[bytes, TableEntry]] = []
    after = None
    while page := table.due("cards", 2999, after):
        found += page
        after = page[-1][1].due or 0, page[-1][0]
    expected = {key: one for key, one in many.items() if key not in (b"00000", b"02999")}
    expected[b"00000"] = entry("x", 1)
    assert [(one.due, key) for key, one in found] == sorted(
        (one.due or 0, key) for key, one in expected.items()
    )


def test_many_keys_are_read_at_once(table: StateTable) -> None:
    many = {str(n).encode(): entry(str(n)) for n in range(2000)}
    table.fold(1, {"cards": many})
    assert table.get_many("cards", [*many, b"nobody"]) == many


def test_a_program_on_a_table_gives_what_it_gives_in_memory(table: StateTable) -> None:
    chance = random.Random(5)
    events = [Event(n // 3 * SECOND, {"key": f"k{chance.randrange(20)}"}) for n in range(400)]
    batches = [events[at : at + 37] for at in range(0, len(events), 37)]
    plan = Count(time_to_live_us=9 * SECOND)
    memory, outside = Feed(plan, [SCHEMA], buckets=1), Feed(plan, [SCHEMA], buckets=1, table=table)
    for batch in batches:
        assert outside.batch(batch) == memory.batch(batch)
        (one,), (other,) = memory.buckets, outside.buckets
        assert one.status() == other.status()


def test_nine_of_ten_rows_of_one_key_are_counted_in_blobs_of_bounded_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packing, "_MOST_BYTES", 20_000)
    chance = random.Random(3)
    keys = ["hot" if chance.random() < 0.9 else f"k{chance.randrange(500)}" for _ in range(20_000)]
    feed = Feed(Count(), [SCHEMA], buckets=4)
    for at in range(0, len(keys), 5000):
        feed.batch([Event(at * SECOND // 5000, {"key": key}) for key in keys[at : at + 5000]])
    most: dict[str, int] = {}
    for row in feed.given[""]:
        most[row["key"]] = max(row["n"], most.get(row["key"], 0))
    assert most == Counter(keys)
    assert sum(bucket.status().entries for bucket in feed.buckets) == len(most)


def test_a_database_that_does_not_answer_is_told_from_one_that_refuses() -> None:
    with pytest.raises(StateConnectionError, match="can't keep state in PostgreSQL"):
        PostgresTable("postgresql://nobody@127.0.0.1:1/nothing", TableId("job/0", 0)).folded()
    pytest.importorskip("cassandra")
    with pytest.raises(StateConnectionError, match=r"keyspace 'nothing' at 127\.0\.0\.1"):
        CassandraTable("cassandra://127.0.0.1:1/nothing", TableId("job/0", 0))


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("cassandra://host/keep", (["host"], 9042, "keep", "", "")),
        ("cassandra://me:p%40ss@a,b:9999/keep", (["a", "b"], 9999, "keep", "me", "p@ss")),
    ],
)
def test_the_address_of_a_keyspace(url: str, found: Any) -> None:
    assert parsed(url) == found


def test_hosts_with_different_ports_are_refused() -> None:
    with pytest.raises(StateError, match="one port for all"):
        parsed("cassandra://a:1,b:2/keep")
