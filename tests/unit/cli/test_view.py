"""``millstream view``, as far as it needs only a database of views."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millstream.cli import execute
from millstream.views.opening import open_store
from millstream.views.views import View

PLACES = View(
    "places",
    (("id", "string"), ("country", "string"), ("n", "bigint")),
    ("id",),
    indexes=(("country",), ("country", "n")),
)


def test_a_view_is_described_with_its_indexes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(tmp_path / "views.db")
    store.prepare(PLACES)
    store.close()
    views = ["--views", str(tmp_path / "views.db")]
    assert execute(["view", "describe", "places", *views]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[1:4] == ["key id", "index country", "index country, n"]
    assert "country TEXT" in lines
    assert execute(["view", "describe", "places", *views, "--output", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["key"], told["indexes"]) == (["id"], [["country"], ["country", "n"]])
    assert told["columns"][0] == {"name": "id", "type": "TEXT"}
    assert execute(["view", "describe", "place", *views]) == 1
    assert "there is no view 'place'" in capsys.readouterr().err
