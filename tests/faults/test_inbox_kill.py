"""kill -9 of a service whose effects are in a database: every message has its effect once.

The service is a program of its own on a real broker and a real database. It is killed in the gaps that matter
(aimed: before the database commits, and between that and the commit of the group's offsets) and anywhere.
"""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.serve import ServeProcess
from tests.support.topics import create_topic, produce, values
from tests.support.waiting import wait_for

MESSAGES = 400

SERVICE = textwrap.dedent("""
    import os, signal, sqlite3, sys
    import psycopg
    from millstream import client
    from millstream.client.librdkafka.batches import GroupReader

    address, topic, where, gap, after, by_id = sys.argv[1:]
    database = psycopg.connect(where) if where.startswith("postgresql:") else sqlite3.connect(where)
    mark = "%s" if where.startswith("postgresql:") else "?"
    batches_done = 0

    def die(this):
        if this == gap and batches_done >= int(after):
            os.kill(os.getpid(), signal.SIGKILL)

    commit = GroupReader.commit

    def commit_offsets(self, offsets):
        die("between the commits")
        commit(self, offsets)

    GroupReader.commit = commit_offsets
    known_by = (lambda message: message.value().decode()) if by_id == "by id" else None
    inbox = client.Inbox(database, "service")
    with inbox.read(address, [topic], most=20, wait=None, id=known_by,
                    consumer={"session.timeout.ms": 6000, "group.instance.id": "service"}) as batches:
        for messages in batches:
            for message in messages:
                database.execute(f"INSERT INTO effects VALUES ({mark})", (message.value().decode(),))
            die("before the database commits")
            batches_done += 1
""")


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "SQLite":
        path = str(tmp_path / "effects.db")
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE effects (message TEXT)")
        return path
    url = str(request.getfixturevalue("database"))
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE effects (message TEXT)")
    return url


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with ServeProcess(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker


def effects(where: str) -> list[str]:
    if where.startswith("postgresql:"):
        with psycopg.connect(where) as connection:
            return [text for (text,) in connection.execute("SELECT message FROM effects").fetchall()]
    database = sqlite3.connect(where, timeout=10)
    try:
        return [text for (text,) in database.execute("SELECT message FROM effects").fetchall()]
    finally:
        database.close()


class Service:
    """The program, started and started again."""

    def __init__(self, broker: ServeProcess, topic: str, where: str, program: Path, by_id: bool) -> None:
        program.write_text(SERVICE)
        self._command = [sys.executable, str(program), broker.address, topic, where]
        self._by_id = "by id" if by_id else "by offset"

    def start(self, gap: str = "nowhere", after: int = 0) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*self._command, gap, str(after), self._by_id])


@pytest.mark.parametrize("by_id", [False, True], ids=["offsets", "ids"])
def test_killed_in_every_gap_and_anywhere_each_message_has_one_effect(
    broker: ServeProcess, where: str, tmp_path: Path, by_id: bool
) -> None:
    topic = create_topic(broker.address, f"{tmp_path.name}")
    produce(broker.address, topic, values(*range(MESSAGES // 2)))
    produce(broker.address, topic, values(*range(MESSAGES // 2, MESSAGES)), partition=1)
    service = Service(broker, topic, where, tmp_path / "service.py", by_id)
    for gap in ("before the database commits", "between the commits"):
        for after in (0, 2):
            process = service.start(gap, after)
            assert process.wait(400) == -9, "it killed itself in the gap"
            assert len(effects(where)) == len(set(effects(where)))
    chance = random.Random(4)
    for _ in range(3):
        process = service.start()
        before = len(effects(where))
        wait_for(
            lambda before=before: len(effects(where)) > min(before, MESSAGES - 1), timeout=60, what="effects"
        )
        time.sleep(chance.uniform(0, 0.03))  # not a wait: anywhere in a batch
        process.kill()
        process.wait()
    process = service.start()
    try:
        wait_for(lambda: len(effects(where)) >= MESSAGES, timeout=60, what="all messages")
        produce(broker.address, topic, values("last"))
        wait_for(lambda: "last" in effects(where), timeout=60, what="the service is at the end")
    finally:
        process.kill()
        process.wait()
    assert sorted(effects(where)) == sorted([*map(str, range(MESSAGES)), "last"])
