"""Deleted topics' logs go in the background, and none of them is left behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from millstream.broker.server import Server
from millstream.core.config import BrokerConfig
from millstream.log.directory import LogDirectory
from tests.support.asking import ask
from tests.support.fake_peer import FakePeer, with_server
from tests.support.logs import NOW, a_batch
from tests.support.waiting import wait_for

Connect = Callable[[], FakePeer]
DELETE_TOPICS = 20


def directories(data: Path, topic: str) -> list[str]:
    return sorted(path.name for path in data.glob(f"{topic}-*"))


class Held:
    """Holds the thread that takes directories away, until it is let go."""

    def __init__(self, monkeypatch_target: type[LogDirectory]) -> None:
        self.let_go = threading.Event()
        self.calls: list[int] = []
        self._target, self._remove = monkeypatch_target, monkeypatch_target.remove

    def __enter__(self) -> Held:
        def remove(directory: LogDirectory, paths: list[str]) -> None:
            self.calls.append(len(paths))
            assert self.let_go.wait(30)
            self._remove(directory, paths)

        self._target.remove = remove  # type: ignore[assignment, method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go.set()
        self._target.remove = self._remove  # type: ignore[method-assign]


def test_a_deletion_is_acknowledged_before_directories_go_and_a_new_topic_waits_for_them(
    tmp_path: Path,
) -> None:
    async def steps(server: Server, connect: Connect) -> None:
        node = server.node
        for name in ("a", "b", "c"):
            await node.topic_admin.create(name, 20, {})
        partition = node.topics.partition("a", 3)
        assert partition is not None
        partition.log.append(a_batch(b"old"), NOW)
        partition.log.write_staged()
        partition.log.sync()
        node.maintenance.checkpoint()
        with Held(LogDirectory) as held:
            topics = [{"name": name, "topic_id": None} for name in ("a", "b")]
            answer = await ask(node, DELETE_TOPICS, 6, topics=topics, timeout=1000)
            assert [each.error_code for each in answer.responses] == [0, 0]
            assert node.topics.partition("a", 3) is None
            again = asyncio.create_task(node.topic_admin.create("a", 5, {}))
            await node.topic_admin.create("d", 1, {})  # others don't wait
            assert not again.done()
            assert len(directories(tmp_path, "a")) == 20
            held.let_go.set()
            await again
        assert held.calls == [40]  # with one sync
        assert [name for name in directories(tmp_path, "a") if "delete" not in name] == [
            f"a-{index}" for index in range(5)
        ]
        new = node.topics.partition("a", 3)
        assert new is not None
        assert new.log.end_offset == 0
        assert node.catalogue.deleted_topics == set()

    with_server(steps, topics={}, config=BrokerConfig(data=str(tmp_path)))
    # The checkpoint's entry is about the new log, not about the old one, which had a record.
    assert "a 3 1" not in (tmp_path / "recovery-point-offset-checkpoint").read_text()


def test_what_a_killed_broker_left_of_deleted_topics_goes_at_the_next_start(tmp_path: Path) -> None:
    async def killed(server: Server, connect: Connect) -> None:
        await server.node.topic_admin.create("gone", 5, {})
        await server.node.topic_admin.create("stays", 1, {})
        # As if the process had ended right after the deletion was written down.
        await server.node.catalogue.delete_topic("gone")

    with_server(killed, topics={}, config=BrokerConfig(data=str(tmp_path)))
    assert len(directories(tmp_path, "gone")) == 5
    (tmp_path / "unknown-0").mkdir()

    async def started(server: Server, connect: Connect) -> None:
        assert server.node.topics.partition("stays", 0) is not None
        assert server.node.catalogue.deleted_topics == set()
        wait_for(lambda: directories(tmp_path, "gone") == [], timeout=30)

    with_server(started, topics={}, config=BrokerConfig(data=str(tmp_path)))
    (unknown,) = directories(tmp_path, "unknown")
    assert unknown.endswith("-stray")  # what nobody has deleted is set aside, as before


def test_ten_thousand_partitions_in_memory_are_deleted_without_holding_the_loop() -> None:
    async def steps(server: Server, connect: Connect) -> None:
        await server.node.topic_admin.create("wide", 10_000, {})
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        meanwhile = asyncio.create_task(others())
        async with asyncio.timeout(60):
            await server.node.topic_admin.delete("wide")
            await server.node.topic_admin.create("wide", 1, {})
        meanwhile.cancel()
        assert turns > 10
        assert len(server.node.memory.logs) == 1

    with_server(steps, topics={})
