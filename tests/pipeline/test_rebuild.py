"""Views rebuilt with other code beside the job that is running, until they take the place of the old ones."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Topology
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.core.errors import MillstreamError
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.rebuild import rebuild
from millstream.pipeline.run.rebuild.rebuild import Rebuild
from millstream.pipeline.run.settings import JobSettings
from millstream.views.opening import open_reader
from millstream.views.views import ViewsRebuilt
from millstream.views.watching import Watcher
from tests.pipeline.test_job import SCHEMA, payment, produce, records
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream import Broker


def flow(version: str, size: str, guarantee: str) -> Topology:
    made = Topology("spending", guarantee=guarantee)
    payments = made.source("payments", schema=SCHEMA, time="paid_at")
    counts = payments.window(by="card", size=size).agg(n="count(*)", spent="sum(amount)")
    coded = counts.select("*", f"'{version}' AS code", *["n * 2 AS twice"] * (version == "v2"))
    coded.to_topic("alerts", key="card")
    coded.to_view("spending", key="card", changelog="spending.changes")
    return made


class Reading(threading.Thread):
    """Reads the view in a loop, as somebody who depends on it does; ``seen`` are the versions it was of, and
    whether it had the column that is new."""

    def __init__(self, views: Path) -> None:
        super().__init__(daemon=True)
        self.views = views
        self.ended = threading.Event()
        self.seen: list[tuple[tuple[str, ...], bool]] = []
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.ended.is_set():
                reader = open_reader(self.views)
                columns, rows = reader.query("SELECT * FROM spending")
                reader.close()
                codes = {row[columns.index("code")] for row in rows}
                found = tuple(sorted(codes)), "twice" in columns
                if self.seen[-1:] != [found]:
                    self.seen.append(found)
        except BaseException as problem:
            self.problem = problem


def rows(views: Path) -> list[tuple[Any, ...]]:
    reader = open_reader(views)
    try:
        return reader.query("SELECT card, n, spent, code FROM spending ORDER BY card")[1]
    finally:
        reader.close()


def latest(broker: Broker, topic: str) -> dict[str, Any]:
    """What a reader of a changelog ends up with."""
    found: dict[str, Any] = {}
    for record in records(broker, topic):
        key = json.loads(record.key())["card"]
        if record.value() is None:
            found.pop(key)
        else:
            found[key] = json.loads(record.value())
    return found


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_the_views_are_swapped_under_their_readers_and_the_new_checkpoint_goes_on(
    spark: SparkSession,
    tmp_path: Path,
    millstream_broker: Broker,
    guarantee: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = Connection(millstream_broker.address)
    with Admin(connection) as admin:
        admin.create_topic("payments", partitions=2)
    settings = JobSettings(connection, str(tmp_path / "checkpoint"))
    produce(millstream_broker, [payment("a", 5, 1), payment("a", 7, 70), payment("b", 1, 3)])
    old = Job(flow("v1", "1 minute", guarantee), settings)
    assert "spending.changes" in old.prepare()
    with Admin(connection) as admin:
        config = {value.name: value.value for value in admin.topic_config("spending.changes")}
        assert config["cleanup.policy"] == "compact"
    old.start(spark)
    views = tmp_path / "checkpoint" / "views.db"
    wait_for(lambda: len(rows(views)) == 2, timeout=400, what="the old job has filled its view")
    reading = Reading(views)
    watcher = Watcher(views, "spending", start="now")
    reading.start()
    try:
        new = Rebuild(flow("v2", "1 hour", guarantee), settings)
        with monkeypatch.context() as patched:  # it dies in the last moment, after the decision

            def die(*_: Any) -> None:
                raise MillstreamError("killed")

            patched.setattr(rebuild, "finish", die)
            with pytest.raises(MillstreamError, match="killed"):
                new.run(spark, views)
        produce(millstream_broker, [payment("b", 2, 4)])
        error = wait_for(old.failed, timeout=60, what="the old job has noticed")
        assert isinstance(error, ViewsRebuilt)
    finally:
        old.stop()
        reading.ended.set()
        reading.join()
    assert reading.problem is None
    assert reading.seen == [(("v1",), False), (("v2",), True)], (
        "the old view or the new one, and never both or none"
    )
    changes = [(one.kind, one.key["card"], one.new and one.new["n"]) for one in watcher.read(1)]
    assert changes == [("update", "a", 2), ("update", "b", 1)]
    written = [json.loads(record.value())["code"] for record in records(millstream_broker, "alerts")]
    again = Job(
        flow("v2", "1 hour", guarantee), JobSettings(connection, settings.checkpoint, available_now=True)
    )
    again.prepare()  # finishes what was cut short
    assert not (tmp_path / "checkpoint" / "rebuild.json").exists()
    again.start(spark)
    wait_for(lambda: not again.running, timeout=60, what="the new job has gone on")
    assert again.failed() is None
    again.close()
    assert rows(views) == [("a", 2, 12.0, "v2"), ("b", 2, 3.0, "v2")]
    told = latest(millstream_broker, "spending.changes")
    assert {card: (row["n"], row["code"]) for card, row in told.items()} == {"a": (2, "v2"), "b": (2, "v2")}
    alerts = [json.loads(record.value())["code"] for record in records(millstream_broker, "alerts")]
    assert written.count("v2") == 0, "results in topics are not written again"
    assert alerts.count("v2") == 1
    if guarantee == "exactly-once":
        assert alerts.count("v1") == 3
    watcher.close()
