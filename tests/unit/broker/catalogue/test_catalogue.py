"""The catalogue: durable before it is seen, serialised, clear about a file it can't use."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.catalogue.database import CatalogueDatabase
from millstream.broker.groups.committed_offset import CommittedOffset, OffsetToCommit
from millstream.core.errors import CatalogueFailed, DataDirectoryError, RequestRefused
from millstream.core.topic_config import TopicConfig


@contextlib.contextmanager
def opened(path: Path | None, **options: Any) -> Iterator[Catalogue]:
    catalogue = Catalogue(path, **options)
    try:
        yield catalogue
    finally:
        catalogue.close()


def run(path: Path | None, steps: Callable[[Catalogue], Awaitable[Any]]) -> Any:
    """Open the catalogue, let ``steps`` work on it, close it."""

    async def main() -> Any:
        with opened(path) as catalogue:
            return await steps(catalogue)

    return asyncio.run(main())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalogue.db"


def commit(topic: str, partition: int, offset: int, metadata: str = "") -> OffsetToCommit:
    return OffsetToCommit(topic, partition, offset, -1, metadata, 1_700_000_000_000)


def test_what_was_written_is_there_after_reopening(path: Path) -> None:
    async def write(catalogue: Catalogue) -> tuple[uuid.UUID, str]:
        topic = await catalogue.create_topic("payments", 3, {"retention.ms": "1000"})
        await catalogue.create_topic("gone", 1)
        await catalogue.delete_topic("gone")
        await catalogue.add_partitions("payments", 5)
        await catalogue.set_topic_overrides("payments", {"retention.ms": "2000"})
        await catalogue.set_broker_overrides({"num.partitions": "4"})
        await catalogue.commit_offsets("g", [OffsetToCommit("payments", 4, 17, 2, "note", 5, 9)])
        await catalogue.set_group_state("g", "{}")
        return topic.id, catalogue.cluster_id

    topic_id, cluster_id = run(path, write)
    with opened(path) as catalogue:
        topic = catalogue.topics["payments"]
        assert (topic.id, topic.partitions, topic.config.retention_ms) == (topic_id, 5, 2000)
        assert catalogue.by_id[topic_id] is topic
        assert set(catalogue.topics) == {"payments"}
        assert catalogue.broker_overrides == {"num.partitions": "4"}
        assert catalogue.offsets_of("g") == {"payments": {4: CommittedOffset(17, 2, "note", 5, 9)}}
        assert catalogue.group_states == {"g": "{}"}
        assert catalogue.cluster_id == cluster_id
        assert len(cluster_id) == 22


def test_memory_shows_a_change_no_earlier_than_its_future_is_done() -> None:
    async def steps(catalogue: Catalogue) -> None:
        creating = catalogue.create_topic("t", 1)
        assert "t" not in catalogue.topics
        topic = await creating
        assert catalogue.topics["t"] is topic
        committing = catalogue.commit_offsets("g", [commit("t", 0, 5)])
        assert catalogue.offsets_of("g") == {}
        await committing
        assert catalogue.offsets_of("g")["t"][0].offset == 5

    run(None, steps)


def test_of_two_topics_created_at_once_under_one_name_the_second_is_refused() -> None:
    async def steps(catalogue: Catalogue) -> None:
        names = ["same", "same", "a.b", "a_b"]
        results = await asyncio.gather(
            *[catalogue.create_topic(name, 1) for name in names], return_exceptions=True
        )
        assert [getattr(result, "code", None) for result in results] == [None, 36, None, 17]
        assert "a.b" in str(results[3])
        assert set(catalogue.topics) == {"same", "a.b"}
        assert catalogue.topics["same"] is results[0]

    run(None, steps)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "empty"),
        (".", "'.' or '..'"),
        ("..", "'.' or '..'"),
        ("x" * 250, "250 characters"),
        ("white space", "only ASCII letters"),
        ("schön", "only ASCII letters"),
        ("a/b", "only ASCII letters"),
        ("a\n", "only ASCII letters"),
    ],
)
def test_a_name_kafka_would_refuse_is_refused_with_the_reason(name: str, says: str) -> None:
    async def steps(catalogue: Catalogue) -> None:
        with pytest.raises(RequestRefused, match="illegal topic name") as refused:
            await catalogue.create_topic(name, 1)
        assert refused.value.code == 17
        assert says in str(refused.value)
        await catalogue.create_topic("x" * 249, 1)

    run(None, steps)


@pytest.mark.parametrize(
    ("partitions", "overrides", "code"),
    [(0, {}, 37), (-1, {}, 37), (10_001, {}, 37), (1, {"no.such": "1"}, 40), (1, {"retention.ms": "x"}, 40)],
)
def test_a_topic_that_can_not_be_is_refused(partitions: int, overrides: dict[str, str], code: int) -> None:
    async def steps(catalogue: Catalogue) -> None:
        with pytest.raises(RequestRefused) as refused:
            await catalogue.create_topic("t", partitions, overrides)
        assert refused.value.code == code
        assert not catalogue.topics

    run(None, steps)


def test_partitions_can_only_grow() -> None:
    async def steps(catalogue: Catalogue) -> None:
        await catalogue.create_topic("t", 3)
        for total, code in [(3, 37), (2, 37), (10_001, 37)]:
            with pytest.raises(RequestRefused) as refused:
                await catalogue.add_partitions("t", total)
            assert refused.value.code == code
        assert (await catalogue.add_partitions("t", 4)).partitions == 4
        with pytest.raises(RequestRefused) as refused:
            await catalogue.add_partitions("nowhere", 4)
        assert refused.value.code == 3

    run(None, steps)


def test_a_deleted_topic_takes_its_offsets_along(path: Path) -> None:
    async def steps(catalogue: Catalogue) -> None:
        await catalogue.create_topic("t", 1)
        await catalogue.create_topic("u", 1)
        await catalogue.commit_offsets("g", [commit("t", 0, 5), commit("u", 0, 6)])
        await catalogue.commit_offsets("only", [commit("t", 0, 5)])
        # A commit that was under way while the topic went must not reach the topic's next life.
        deleting = catalogue.delete_topic("t")
        late = catalogue.commit_offsets("g", [commit("t", 0, 7), commit("u", 0, 8)])
        await asyncio.gather(deleting, late)
        await catalogue.create_topic("t", 1)
        assert {t: {p: c.offset for p, c in o.items()} for t, o in catalogue.offsets_of("g").items()} == {
            "u": {0: 8}
        }
        assert catalogue.groups_with_offsets() == ["g"]

    run(path, steps)
    with opened(path) as catalogue:
        assert set(catalogue.offsets_of("g")) == {"u"}
        assert not catalogue.offsets_of("only")


def test_offsets_are_deleted_one_by_one_or_all() -> None:
    async def steps(catalogue: Catalogue) -> None:
        await catalogue.create_topic("t", 3)
        await catalogue.commit_offsets("g", [commit("t", p, p) for p in range(3)])
        await catalogue.delete_offsets("g", [("t", 1), ("t", 99), ("nowhere", 0)])
        assert set(catalogue.offsets_of("g")["t"]) == {0, 2}
        await catalogue.delete_offsets("g")
        assert catalogue.offsets_of("g") == {}
        await catalogue.delete_offsets("never seen")

    run(None, steps)


def test_offsets_in_a_memory_topic_do_not_outlive_its_records(path: Path) -> None:
    async def steps(catalogue: Catalogue) -> None:
        await catalogue.create_topic("kept", 1)
        await catalogue.create_topic("lost", 1, {"millstream.storage": "memory"})
        await catalogue.commit_offsets("g", [commit("kept", 0, 5), commit("lost", 0, 5)])

    run(path, steps)
    with opened(path) as catalogue:
        assert set(catalogue.offsets_of("g")) == {"kept"}


def test_producer_ids_are_never_given_twice(path: Path) -> None:
    async def steps(catalogue: Catalogue) -> list[int]:
        return list(await asyncio.gather(*[catalogue.new_producer_id() for _ in range(1500)]))

    first, second = run(path, steps), run(path, steps)
    assert len(set(first + second)) == 3000


def test_many_writes_at_once_share_commits(path: Path) -> None:
    async def steps(catalogue: Catalogue) -> int:
        await catalogue.create_topic("t", 1)
        statements: list[str] = []
        catalogue._database._db.set_trace_callback(statements.append)
        await asyncio.gather(*[catalogue.commit_offsets(f"g{n}", [commit("t", 0, n)]) for n in range(500)])
        catalogue._database._db.set_trace_callback(None)
        return sum(1 for statement in statements if statement == "COMMIT")

    assert 1 <= run(path, steps) <= 100


def test_a_full_disk_fails_the_change_and_nothing_else(path: Path) -> None:
    async def steps(catalogue: Catalogue) -> None:
        await catalogue.create_topic("t", 1)
        await catalogue.commit_offsets("g", [commit("t", 0, 5)])
        pages = catalogue._database._db.execute("PRAGMA page_count").fetchone()[0]
        catalogue._database._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(CatalogueFailed, match="full"):
            await catalogue.commit_offsets("g", [commit("t", 0, 6, "x" * 100_000)])
        assert catalogue.offsets_of("g")["t"][0].offset == 5
        catalogue._database._db.execute("PRAGMA max_page_count = 1000000")
        await catalogue.commit_offsets("g", [commit("t", 0, 7)])

    run(path, steps)
    with opened(path) as catalogue:
        assert catalogue.offsets_of("g")["t"][0].offset == 7


def test_on_a_full_disk_room_is_made_and_the_change_is_tried_once_more(path: Path) -> None:
    made: list[bool] = []

    def make_room() -> bool:
        made.append(len(made) == 0)
        if made[-1]:
            database._db.execute("PRAGMA max_page_count = 1000000")
        return made[-1]

    database = CatalogueDatabase(path, make_room)

    async def main() -> None:
        catalogue = Catalogue(database=database)
        await catalogue.create_topic("t", 1)
        for offset in (6, 7):
            pages = database._db.execute("PRAGMA page_count").fetchone()[0]
            database._db.execute(f"PRAGMA max_page_count = {pages}")
            large = catalogue.commit_offsets("g", [commit("t", 0, offset, "x" * offset * 100_000)])
            if offset == 6:
                await large
            else:  # there is no more to be given back
                with pytest.raises(CatalogueFailed, match="full"):
                    await large
        assert catalogue.offsets_of("g")["t"][0].offset == 6
        assert made == [True, False]
        catalogue.close()

    asyncio.run(main())


def test_a_change_sqlite_can_not_hold_does_not_harm_its_neighbours() -> None:
    async def steps(catalogue: Catalogue) -> None:
        await catalogue.create_topic("t", 1)
        good = catalogue.commit_offsets("g", [commit("t", 0, 1)])
        bad = catalogue.commit_offsets("h", [commit("t", 0, 2**64)])
        await good
        with pytest.raises(CatalogueFailed):
            await bad
        assert catalogue.groups_with_offsets() == ["g"]

    run(None, steps)


def test_closing_writes_what_waits_and_settles_every_future(path: Path) -> None:
    async def main() -> None:
        catalogue = Catalogue(path)
        waiting = [catalogue.create_topic(f"t{n}", 1) for n in range(50)]
        catalogue.close()
        assert all(future.done() and future.exception() is None for future in waiting)
        with pytest.raises(CatalogueFailed, match="shutting down"):
            catalogue.create_topic("late", 1)
        catalogue.close()

    asyncio.run(main())
    with opened(path) as catalogue:
        assert len(catalogue.topics) == 50


def test_a_damaged_file_is_refused_with_advice(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to look like one" * 100)
    with pytest.raises(DataDirectoryError, match="damaged") as error:
        Catalogue(path)
    assert f"`millstream log rebuild-catalogue {path.parent}`" in str(error.value)
    assert str(path) in str(error.value)


def test_a_damaged_page_is_found_at_opening(path: Path) -> None:
    async def steps(catalogue: Catalogue) -> None:
        await catalogue.create_topic("t", 100)
        await catalogue.commit_offsets("g", [commit("t", p, p, "m" * 200) for p in range(100)])

    run(path, steps)
    content = bytearray(path.read_bytes())
    content[4096 * 2 :] = os.urandom(len(content) - 4096 * 2)
    path.write_bytes(content)
    with pytest.raises(DataDirectoryError, match="damaged"):
        Catalogue(path)


def test_another_schema_and_a_foreign_database_are_refused(path: Path, tmp_path: Path) -> None:
    with opened(path):
        pass
    for version, whose in ((1, "older millstream"), (99, "newer millstream")):
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute(f"PRAGMA user_version = {version}")
        with pytest.raises(DataDirectoryError, match=whose):
            Catalogue(path)
    foreign = tmp_path / "foreign.db"
    with contextlib.closing(sqlite3.connect(foreign)) as db:
        db.execute("CREATE TABLE people (name)")
    with pytest.raises(DataDirectoryError, match="not millstream's"):
        Catalogue(foreign)
    with pytest.raises(DataDirectoryError, match="can't open"):
        Catalogue(tmp_path / "no" / "such" / "directory.db")


def test_a_topic_with_settings_of_another_version_is_named(path: Path) -> None:
    async def steps(catalogue: Catalogue) -> None:
        await catalogue.create_topic("odd", 1)

    run(path, steps)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("""UPDATE topics SET overrides = '{"from.the.future": "1"}'""")
    with pytest.raises(DataDirectoryError, match=r"topic odd.*from\.the\.future"):
        Catalogue(path)


def test_a_topic_s_settings_stand_over_the_broker_s_defaults() -> None:
    async def main() -> None:
        with opened(None, defaults=TopicConfig(retention_ms=7, segment_bytes=2048)) as catalogue:
            topic = await catalogue.create_topic("t", 1, {"segment.bytes": "4096"})
            assert (topic.config.retention_ms, topic.config.segment_bytes) == (7, 4096)

    asyncio.run(main())


_WRITER = """
import asyncio, sys
from pathlib import Path
from millstream.broker.catalogue.catalogue import Catalogue
from millstream.broker.groups.committed_offset import OffsetToCommit

async def main():
    catalogue = Catalogue(Path(sys.argv[1]))
    if "t" not in catalogue.topics:
        await catalogue.create_topic("t", 1)
    async def group(name):
        offset = int(sys.argv[2])
        while True:
            offset += 1
            await catalogue.commit_offsets(name, [OffsetToCommit("t", 0, offset, -1, "", 0)])
            print(name, offset, flush=True)
    await asyncio.gather(*[group(f"g{n}") for n in range(8)])

asyncio.run(main())
"""


def test_what_was_answered_survives_a_kill_in_the_middle_of_writing(path: Path) -> None:
    start = 0
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), str(start)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        answered: dict[str, int] = {}
        for count, line in enumerate(process.stdout):
            if not line.endswith("\n"):
                break
            name, offset = line.split()
            answered[name] = int(offset)
            if count == 200:
                process.send_signal(signal.SIGKILL)
        process.stdout.close()
        process.wait()
        assert len(answered) == 8
        with opened(path) as catalogue:
            for name, offset in answered.items():
                assert catalogue.offsets_of(name)["t"][0].offset >= offset
            start = max(answered.values()) + 1000
