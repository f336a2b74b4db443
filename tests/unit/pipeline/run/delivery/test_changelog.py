"""A view's changelog: how it is declared, and what its records are."""

from __future__ import annotations

import json

import pytest

from millstream import Topology
from millstream.core.errors import TopologyError
from millstream.pipeline.drawing.graph import graph
from millstream.pipeline.planning.plan import plan
from millstream.pipeline.run.delivery.changelog import json_object


def flow() -> Topology:
    return Topology("fraud")


def test_it_is_a_topic_that_the_flow_writes() -> None:
    made = flow()
    cards = made.source("cards", schema="card string, n int")
    cards.to_view("blocked", key="card", changelog="blocked.changes")
    found = plan(made)
    assert found.writes == found.changelogs == ["blocked.changes"]
    assert "its changes to topic blocked.changes" in found.describe()
    assert "blocked.changes" in graph(made).mermaid()


def test_nothing_else_may_write_into_it() -> None:
    made = flow()
    cards = made.source("cards", schema="card string, n int")
    cards.to_view("blocked", key="card", changelog="changes")
    with pytest.raises(TopologyError, match=r"test_changelog.py:\d+: topic 'changes' is the changelog"):
        cards.to_topic("changes")
    with pytest.raises(TopologyError, match="is the changelog of a view"):
        cards.to_view("other", key="card", changelog="changes")
    with pytest.raises(TopologyError, match="can't be a topic's name"):
        cards.to_view("third", key="card", changelog="no spaces")


def test_a_view_of_its_own_changes_is_a_cycle() -> None:
    made = flow()
    cards = made.source("cards", schema="card string, n int")
    cards.to_view("blocked", key="card", changelog="cards")
    with pytest.raises(TopologyError, match="the topics cards -> cards are a cycle"):
        made.check()


def test_a_row_is_plain_json_whichever_database_it_comes_from() -> None:
    kinds = {"b": "boolean", "l": "array<int>", "x": "binary", "f": "double", "s": "string"}
    row = {"b": 1, "l": "[1, 2]", "x": b"\x00", "f": float("inf"), "s": "[1]", "older": 5, "n": None}
    assert json.loads(json_object(row, kinds)) == {
        "b": True,
        "l": [1, 2],
        "x": "AA==",
        "f": "Infinity",
        "s": "[1]",
        "older": 5,
        "n": None,
    }
