"""``millstream view`` as a user types it, beside a writer; no broker is needed."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.views.opening import open_store
from millstream.views.views import Changes, View, ViewStore
from tests.support.command import CommandLine
from tests.support.waiting import wait_for

CARDS = View("cards", (("card", "string"), ("n", "bigint"), ("blob", "binary")), ("card",))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ViewStore]:
    store = open_store(tmp_path / "views.db")
    store.prepare(CARDS)
    yield store
    store.close()


def write(store: ViewStore, batch: int, *entries: tuple[str, int], delete: bool = False) -> None:
    rows = [(card, n, b"\x00") for card, n in entries]
    store.apply("q", batch, [Changes(CARDS, rows, [delete] * len(rows))])


def test_watch_prints_rows_and_then_changes_as_json_lines(store: ViewStore, tmp_path: Path) -> None:
    write(store, 0, ("a", 1))
    command = CommandLine("127.0.0.1:1")
    arguments = ("view", "watch", "cards", "--views", str(tmp_path / "views.db"), "--output", "json")
    with command.start(*arguments, "-n", "4", stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        assert (first["kind"], first["new"]) == ("row", {"card": "a", "n": 1, "blob": "AA=="})
        write(store, 1, ("a", 2), ("b", 1))
        write(store, 2, ("a", 0), delete=True)
        found = [json.loads(line) for line in watching.stdout]
        assert [(one["kind"], one["key"]["card"], one["batch"]) for one in found] == [
            ("update", "a", 1),
            ("insert", "b", 1),
            ("delete", "a", 2),
        ]
        assert found[0]["old"]["n"] == 1
        assert watching.wait(90) == 0


def test_watch_for_people_shows_what_is_different(store: ViewStore, tmp_path: Path) -> None:
    write(store, 0, ("a", 1))
    write(store, 1, ("a", 2))
    command = CommandLine("127.0.0.1:1")
    views = ("--views", str(tmp_path / "views.db"))
    said = command.ok("view", "watch", "cards", *views, "--from-start", "-n", "2")
    assert "insert  card=a  n=1 blob=AA==" in said
    assert said.rstrip().endswith("update  card=a  n=1->2")
    assert "there is no view 'carts'" in command.refused("view", "watch", "carts", *views)
    assert "exclude each other" in command.refused(
        "view", "watch", "cards", *views, "--from-start", "--from-now", code=2
    )
    assert "colour" in command.refused("view", "watch", "cards", *views, "--where", "colour = 1")


def test_a_single_word_is_the_name_of_a_view(store: ViewStore, tmp_path: Path) -> None:
    write(store, 0, ("a", 1))
    command, views = CommandLine("127.0.0.1:1"), ("--views", str(tmp_path / "views.db"))
    assert command.json("view", "query", "cards", *views) == [{"card": "a", "n": 1, "blob": "AA=="}]
    said = command.refused("view", "query", "carts", *views)
    assert "there is no view 'carts'" in said
    assert "there are: cards" in said


@pytest.mark.parametrize("kind", ["SQLite", "PostgreSQL"])
def test_nested_values_are_json_in_json_and_text_is_text(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    where = str(tmp_path / "views.db") if kind == "SQLite" else str(request.getfixturevalue("database"))
    carts = View(
        "carts", (("k", "int"), ("items", "array<struct<sku:string,n:int>>"), ("s", "string")), ("k",)
    )
    store = open_store(where)
    store.prepare(carts)
    row = (1, [{"sku": "a", "n": 12345678901234567}], '["text"]')
    store.apply("q", 0, [Changes(carts, [row], [False])])
    store.close()
    command, views = CommandLine("127.0.0.1:1"), ("--views", where)
    expected = {"k": 1, "items": [{"sku": "a", "n": 12345678901234567}], "s": '["text"]'}
    assert command.json("view", "query", "carts", *views) == [expected]
    assert command.json("view", "query", "SELECT items, s FROM carts", *views) == [
        {"items": expected["items"], "s": '["text"]'}
    ]
    watched = command.ok("view", "watch", "carts", *views, "--output", "json", "-n", "1")
    assert json.loads(watched)["new"] == expected
    assert '"sku": "a"' in command.ok("view", "query", "carts", *views).replace('":"', '": "')


def test_a_table_shows_small_and_large_numbers_as_they_are(store: ViewStore, tmp_path: Path) -> None:
    command, views = CommandLine("127.0.0.1:1"), ("--views", str(tmp_path / "views.db"))
    sql = "SELECT 1234.5 AS money, 0.0012 AS rate, -5e-324 AS tiny, 1.79e308 AS large"
    said = command.ok("view", "query", sql, *views).splitlines()
    assert said[-1].split() == ["1,234.50", "0.0012", "-5e-324", "1.79e+308"]


def test_watch_ends_with_ctrl_c_and_when_nobody_reads_any_more(store: ViewStore, tmp_path: Path) -> None:
    write(store, 0, ("a", 1), ("b", 1))
    command = CommandLine("127.0.0.1:1")
    arguments = ("view", "watch", "cards", "--views", str(tmp_path / "views.db"))
    with command.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        assert b"card=a" in watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        assert watching.wait(90) == 0
        assert watching.stderr is not None
        assert watching.stderr.read() == b""
    with command.start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as headed:
        assert headed.stdout is not None
        headed.stdout.readline()
        headed.stdout.close()  # as `| head -1` does
        wait_for(lambda: headed.poll() is not None, timeout=90, what="it has ended")
        assert headed.returncode == 0
        assert headed.stderr is not None
        assert headed.stderr.read() == b""


def test_query_finds_keys_of_every_type(store: ViewStore, tmp_path: Path) -> None:
    view = View(
        "kinds", (("i", "int"), ("x", "double"), ("b", "binary"), ("t", "string")), ("i", "x", "b", "t")
    )
    store.prepare(view)
    store.apply("k", 0, [Changes(view, [(7, 1.5, b"bytes", "it's")], [False])])
    command = CommandLine("127.0.0.1:1")
    keys = [part for value in ("7", "1.5", "Ynl0ZXM=", "it's") for part in ("--key", value)]
    views = ("--views", str(tmp_path / "views.db"))
    (found,) = json.loads(command.ok("view", "query", "kinds", *keys, *views, "--output", "json"))
    assert found["i"] == 7
    assert command.run("view", "query", "kinds", *keys[:-1], "its", *views).returncode == 1
