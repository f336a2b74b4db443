"""A rebuild that was interrupted: the next start of the job finishes it if it was decided, and only then."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millstream import Broker, Topology
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.client.protocol.cluster import Cluster
from millstream.client.text.position import TopicPartition
from millstream.core.errors import ConfigError, MillstreamError
from millstream.pipeline.connector.offsets import to_json
from millstream.pipeline.connector.options import WriteOptions
from millstream.pipeline.planning.plan import plan
from millstream.pipeline.run.checkpoint.checkpoint import Checkpoint
from millstream.pipeline.run.delivery.delivery import Delivery
from millstream.pipeline.run.delivery.ledger import Ledger, LedgerEntry
from millstream.pipeline.run.rebuild.rebuild import Rebuild
from millstream.pipeline.run.rebuild.settling import settle
from millstream.pipeline.run.settings import JobSettings
from millstream.views.naming import beside
from millstream.views.opening import open_reader, open_store
from millstream.views.views import Changes, View, ViewsRebuilt, ViewStore

CARDS = View("cards", (("card", "string"), ("n", "bigint")), ("card",))
PLACE = TopicPartition("payments", 0)


class Scene:
    """A job that has come to offset 5 in batch 3, and its rebuild, in batch 1."""

    def __init__(self, home: Path, address: str, guarantee: str) -> None:
        self.home = home
        self.views = home / "views.db"
        self.connection = Connection(address)
        self.cluster = Cluster(self.connection)
        with Admin(self.connection) as admin:
            admin.create_topic("payments", partitions=1)
        self.store: ViewStore = open_store(self.views)
        for view, query, n in ((CARDS, "old", 1), (replace(CARDS, name=beside("next", "cards")), "new", 2)):
            self.store.prepare(view)
            self.store.apply(query, 3 if query == "old" else 1, [Changes(view, [("a", n)], [False])])
        self.entry = LedgerEntry("new", 1, {PLACE: 5})
        Ledger(self.cluster, "spending").write(LedgerEntry("old", 3, {PLACE: 5}))
        kept = {"job": "spending", "queries": {}, "groups": {"payments": "spending"}}
        self.write("topology.json", {**kept, "directory": "queries"})
        self.write("queries/payments/metadata", {"id": "old"})
        self.write("queries.2/payments/metadata", {"id": "new"})
        noted = {
            **kept,
            "directory": "queries.2",
            "guarantee": guarantee,
            "views": ["cards"],
            "retires": ["old"],
            "entries": {"payments": {"query": "new", "batch": 1, "offsets": to_json(self.entry.offsets)}},
        }
        self.write("rebuild.json", noted)

    def write(self, name: str, value: Any) -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))

    def settle(self) -> bool:
        return settle(Checkpoint(str(self.home)), self.views, self.connection)

    def ledger(self) -> LedgerEntry | None:
        return Ledger(self.cluster, "spending").read(["payments"])

    def n(self) -> Any:
        reader = open_reader(self.views)
        try:
            return reader.query("SELECT n FROM cards")[1][0][0]
        finally:
            reader.close()

    def is_new(self) -> bool:
        """Whether everything is the rebuilt job's; if not, everything has to be the old one's."""
        with_files = Checkpoint(str(self.home)).logs.query_id("payments") == "new"
        with_rows, with_ledger = self.n() == 2, self.ledger() == self.entry
        assert with_files == with_rows == with_ledger
        return with_files

    def close(self) -> None:
        self.store.close()
        self.cluster.close()


@pytest.fixture(params=["exactly-once", "at-least-once"])
def scene(request: pytest.FixtureRequest, tmp_path: Path, millstream_broker: Broker) -> Iterator[Scene]:
    scene = Scene(tmp_path, millstream_broker.address, request.param)
    yield scene
    scene.close()


def test_before_the_decision_everything_is_the_old_jobs(scene: Scene) -> None:
    assert not scene.settle()
    assert not scene.is_new()
    assert scene.store.written("old") == 3


def test_after_the_swap_everything_becomes_the_new_ones(scene: Scene) -> None:
    with scene.store.swapping(["cards"], ["old"]):
        pass
    assert scene.settle()
    assert scene.is_new()
    assert not scene.settle(), "and that once"
    with pytest.raises(ViewsRebuilt):
        scene.store.written("old")
    assert scene.store.written("new") == 1
    assert json.loads((scene.home / "topology.json").read_text())["before"] == "queries"
    Checkpoint(str(scene.home)).clean_up()
    assert not (scene.home / "queries").exists()
    assert Checkpoint(str(scene.home)).logs.query_id("payments") == "new"


def test_the_log_decides_with_exactly_once(tmp_path: Path, millstream_broker: Broker) -> None:
    scene = Scene(tmp_path, millstream_broker.address, "exactly-once")
    Ledger(scene.cluster, "spending").write(scene.entry)
    assert scene.settle()
    assert scene.is_new()
    scene.close()


def test_the_log_does_not_decide_without(tmp_path: Path, millstream_broker: Broker) -> None:
    scene = Scene(tmp_path, millstream_broker.address, "at-least-once")
    Ledger(scene.cluster, "spending").write(scene.entry)
    assert not scene.settle()
    assert scene.n() == 1
    scene.close()


def test_of_several_ledgers_the_rest_is_written_unless_somebody_went_on(
    tmp_path: Path, millstream_broker: Broker
) -> None:
    with Admin(Connection(millstream_broker.address)) as admin:
        admin.create_topic("orders", partitions=1)
    scene = Scene(tmp_path, millstream_broker.address, "exactly-once")
    noted = json.loads((tmp_path / "rebuild.json").read_text())
    noted["groups"]["orders"] = "spending.orders"
    noted["entries"]["orders"] = {"query": "new-too", "batch": 0, "offsets": {"orders": {"0": 7}}}
    scene.write("rebuild.json", noted)
    Ledger(scene.cluster, "spending").write(scene.entry)
    other = Ledger(scene.cluster, "spending.orders")
    other.write(LedgerEntry("old-too", 9, {TopicPartition("orders", 0): 8}))
    with pytest.raises(MillstreamError, match="the old job has continued in group"):
        scene.settle()
    other.write(LedgerEntry("old-too", 8, {TopicPartition("orders", 0): 7}))
    assert scene.settle()
    assert other.read(["orders"]) == LedgerEntry("new-too", 0, {TopicPartition("orders", 0): 7})
    assert scene.is_new()
    scene.close()


def test_what_has_no_views_or_never_ran_is_not_rebuilt(tmp_path: Path, millstream_broker: Broker) -> None:
    flow = Topology("plain")
    flow.source("payments", format="text").to_topic("out")
    settings = JobSettings(Connection(millstream_broker.address), str(tmp_path))
    with pytest.raises(ConfigError, match="writes no views"):
        Rebuild(flow, settings)


def test_a_job_whose_ledger_went_to_a_rebuild_says_so_before_its_views_are_swapped(scene: Scene) -> None:
    """The ledger changes hands a moment before the views do."""
    flow = Topology("spending", guarantee="exactly-once")
    flow.source("payments", schema="card string").to_view("cards", key="card")
    Ledger(scene.cluster, "spending").write(scene.entry)
    overtaken = Delivery(
        plan(flow).queries[0],
        {},
        guarantee="exactly-once",
        ledger=Ledger(scene.cluster, "spending"),
        transactions=None,
        cluster=scene.cluster,
        checkpoint=Checkpoint(str(scene.home)),
        store=scene.store,
        to_topics=WriteOptions.of({"bootstrap": scene.connection.address}),
        stopping=threading.Event(),
    )
    with pytest.raises(ViewsRebuilt, match="Start the job again"):
        overtaken.open()
