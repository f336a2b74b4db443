"""A damaged catalogue is rebuilt from its copy and the directories of the logs, and nothing is made up."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from millstream.broker.catalogue.backup import AFTER_OTHERS, AFTER_TOPICS, BackupClock, back_up
from millstream.broker.catalogue.rebuild import rebuild_catalogue
from millstream.broker.catalogue.share_states import SavedShare
from millstream.broker.catalogue.stopped_broker import read_catalogue
from millstream.broker.groups.committed_offset import OffsetToCommit
from millstream.broker.node import Node
from millstream.core.clock import ManualClock
from millstream.core.config import BrokerConfig
from millstream.core.errors import DataDirectoryError
from tests.support.logs import NOW, append

Steps = Callable[[Node], Awaitable[None]]


def run(data: Path, steps: Steps) -> None:
    """Start a broker's node on a directory, take some steps, stop it in order."""

    async def main() -> None:
        node = Node(BrokerConfig(data=str(data)), ManualClock(NOW), asyncio.get_running_loop())
        try:
            await steps(node)
        finally:
            node.close()

    asyncio.run(main())


def fill(node: Node, topic: str, index: int = 0, count: int = 5) -> None:
    partition = node.topics.partition(topic, index)
    assert partition is not None
    for number in range(count):
        append(partition.log, b"%d" % number)
    partition.log.sync()


@pytest.fixture
def ids() -> dict[str, uuid.UUID]:
    return {}


@pytest.fixture
def data(tmp_path: Path, ids: dict[str, uuid.UUID]) -> Path:
    """A stopped broker: what the copy of its catalogue knows, and what came after that."""
    data = tmp_path / "data"

    async def before(node: Node) -> None:
        for name in ("kept", "gone", "again", "lost"):
            await node.topic_admin.create(name, 2, {"retention.ms": "1234567"})
            fill(node, name)
        await node.topic_admin.create("brief", 1, {"millstream.storage": "memory"})
        await node.catalogue.commit_offsets("g", [OffsetToCommit("kept", 0, 3, 0, "", NOW)])
        for name in ("kept", "gone"):
            topic_id = node.catalogue.topics[name].id.bytes
            await node.catalogue.share_states.save({("s", topic_id, 0): SavedShare(2, b"")})
        back_up(data)

    async def after(node: Node) -> None:
        await node.topic_admin.delete("gone")
        await node.topic_admin.delete("again")
        await node.topic_admin.create("again", 1, {})
        await node.topic_admin.create("new", 3, {"cleanup.policy": "compact"})
        await node.topic_admin.add_partitions("kept", 4)
        fill(node, "new", 2)
        fill(node, "kept", 3)
        ids.update({name: topic.id for name, topic in node.catalogue.topics.items()})

    run(data, before)
    run(data, after)
    for index in range(2):
        shutil.rmtree(data / f"lost-{index}")
    return data


def damage_page(data: Path) -> None:
    path = data / "catalogue.db"
    content = bytearray(path.read_bytes())
    content[4096 : 4096 * 3] = bytes(4096 * 2)
    path.write_bytes(content)


def remove(data: Path) -> None:
    (data / "catalogue.db").unlink()


def empty(data: Path) -> None:
    (data / "catalogue.db").write_bytes(b"")


def damage_fact(data: Path) -> None:
    with sqlite3.connect(data / "catalogue.db") as db:
        db.execute("INSERT OR REPLACE INTO facts VALUES ('client.quotas', '[[')")
    db.close()


DAMAGES = [damage_page, remove, empty, damage_fact]


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_message_leads_to_the_rebuild_which_brings_back_what_the_copy_and_the_logs_know(
    data: Path, ids: dict[str, uuid.UUID], damage: Callable[[Path], None]
) -> None:
    damage(data)
    advice = f"`millstream log rebuild-catalogue {data}`"
    for _ in range(2):  # the first try must not make the second one say something else
        with pytest.raises(DataDirectoryError) as refused:
            run(data, lambda node: asyncio.sleep(0))
        assert advice in str(refused.value)
    assert advice in read_catalogue(data).problem

    result = rebuild_catalogue(data)
    assert result.backup_time is not None
    assert (result.topics, result.partitions) == (5, 4 + 1 + 3 + 2 + 1)
    told = "\n".join(result.unrecovered)
    assert "no longer have a directory: gone" in told
    assert "they have the defaults, but for what their files show: again, new" in told
    assert "committed offsets" in told
    assert "transactional ids" in told

    async def served(node: Node) -> None:
        topics = node.catalogue.topics
        assert sorted(topics) == ["again", "brief", "kept", "lost", "new"]
        assert {name: topic.id for name, topic in topics.items()} == ids
        assert topics["kept"].overrides == {"retention.ms": "1234567"}
        assert topics["brief"].overrides == {"millstream.storage": "memory"}
        assert node.catalogue.offsets_of("g")["kept"][0].offset == 3
        assert node.catalogue.share_states.of("s") == {(ids["kept"].bytes, 0): SavedShare(2, b"")}
        ends = {str(p): p.log.end_offset for p in node.topics.partitions()}
        assert (ends["kept-0"], ends["kept-3"], ends["again-0"], ends["new-2"]) == (5, 5, 0, 5)
        assert "synced up to offset 5" in str(node.topics.partition("lost", 0).log.offline)  # type: ignore[union-attr]
        assert await node.catalogue.new_producer_id() >= 1 << 32

    run(data, served)
    assert read_catalogue(data).problem == ""


def test_without_a_copy_the_directories_tell_topics_ids_and_partitions(
    data: Path, ids: dict[str, uuid.UUID]
) -> None:
    (data / "catalogue-backup.db").unlink()
    damage_page(data)
    result = rebuild_catalogue(data)
    assert result.backup_time is None
    assert "the committed offsets of all groups" in "\n".join(result.unrecovered)

    async def served(node: Node) -> None:
        assert {name: topic.partitions for name, topic in node.catalogue.topics.items()} == {
            "again": 1, "kept": 4, "new": 3,
        }  # fmt: skip
        assert all(topic.id == ids[name] for name, topic in node.catalogue.topics.items())

    run(data, served)


def test_a_damaged_copy_is_not_used(data: Path) -> None:
    damage_page(data)
    shutil.copyfile(data / "catalogue.db", data / "catalogue-backup.db")
    result = rebuild_catalogue(data)
    assert result.backup_time is None
    assert "the copy of the catalogue was not used" in "\n".join(result.unrecovered)


def test_a_topic_without_an_id_gets_a_new_one_and_that_is_told(data: Path) -> None:
    remove(data)
    for path in data.glob("new-*/partition.metadata"):
        path.unlink()
    told = "\n".join(rebuild_catalogue(data).unrecovered)
    assert (
        "the ids of these topics; they have new ones, and what they have in an archive is not found: new"
        in told
    )


def test_the_old_catalogue_is_kept(data: Path) -> None:
    damage_page(data)
    before = (data / "catalogue.db").read_bytes()
    result = rebuild_catalogue(data)
    assert (data / result.kept_as).read_bytes() == before


def test_a_sound_catalogue_or_one_of_another_version_is_not_rebuilt(data: Path, tmp_path: Path) -> None:
    before = (data / "catalogue.db").read_bytes()
    with pytest.raises(DataDirectoryError, match="is in order; there is nothing to rebuild"):
        rebuild_catalogue(data)
    assert (data / "catalogue.db").read_bytes() == before
    with sqlite3.connect(data / "catalogue.db") as db:
        db.execute("PRAGMA user_version = 1000")
    db.close()
    with pytest.raises(DataDirectoryError, match="written by a newer millstream"):
        rebuild_catalogue(data)
    with pytest.raises(DataDirectoryError, match="not the data directory of a broker"):
        rebuild_catalogue(tmp_path)


def test_damage_does_not_get_into_the_copy(data: Path) -> None:
    before = (data / "catalogue-backup.db").read_bytes()
    damage_page(data)
    with pytest.raises((DataDirectoryError, sqlite3.DatabaseError)):
        back_up(data)
    assert (data / "catalogue-backup.db").read_bytes() == before
    assert not (data / "catalogue-backup.db.tmp").exists()


def test_a_copy_is_due_soon_after_topics_changed_and_later_after_other_changes() -> None:
    clock = BackupClock()
    assert clock.is_due(0.0, 0, 0)
    clock.made(0.0, 0, 0)
    assert not clock.is_due(AFTER_OTHERS, 0, 0)
    assert not clock.is_due(AFTER_TOPICS - 1, 1, 1)
    assert clock.is_due(AFTER_TOPICS, 1, 1)
    assert not clock.is_due(AFTER_OTHERS - 1, 0, 1)
    assert clock.is_due(AFTER_OTHERS, 0, 1)
    clock.failed(100.0)
    assert not clock.is_due(159.0, 1, 1)
    assert clock.is_due(160.0, 1, 1)


def test_a_broker_that_runs_keeps_a_copy(tmp_path: Path) -> None:
    async def steps(node: Node) -> None:
        await node.topic_admin.create("t", 1, {})
        await node.maintenance.back_up_catalogue()

    run(tmp_path, steps)
    with sqlite3.connect(tmp_path / "catalogue-backup.db") as db:
        assert [json.loads(row[0]) for row in db.execute("SELECT overrides FROM topics")] == [{}]
    db.close()
