"""Odd values through a job on Spark: its views keep them exactly, and no state has a floating key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream import Broker, Topology
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.core.errors import TopologyError
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.settings import JobSettings
from millstream.views.opening import open_reader
from tests.support.jobs import produce
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "x double, account decimal(20,0), m map<string,int>, at timestamp_ntz, n int, gone boolean, t timestamp"
)


def accounts(name: str) -> Topology:
    flow = Topology(name)
    events = flow.source("odd", schema=SCHEMA, time="t")
    events.to_view("accounts", key="account", order="n", delete_when="gone")
    events.to_view("numbers", key="x", order="n")
    return flow


def test_views_of_a_job_keep_odd_values_and_are_its_own(
    spark: SparkSession, tmp_path: Path, millstream_broker: Broker
) -> None:
    address = millstream_broker.address
    with Admin(Connection(address)) as admin:
        admin.create_topic("odd", partitions=1)

    def job(flow: Topology, checkpoint: str) -> Job:
        place = str(tmp_path / checkpoint)
        views = tmp_path / "views.db"
        made = Job(flow, JobSettings(Connection(address), place, views=views, available_now=True))
        made.prepare()
        return made

    def run() -> None:
        running = job(accounts("bank"), "checkpoint")
        running.start(spark)
        wait_for(lambda: not running.running, timeout=400, what="the job has processed what is there")
        assert running.failed() is None
        running.close()

    def event(account: int, n: int, *, gone: bool = False) -> bytes:
        fields = {"x": "NaN", "account": account, "m": {"a": n}, "at": "2026-01-01T12:00:00", "n": n}
        return json.dumps({**fields, "gone": gone, "t": "2026-01-01T12:00:00Z"}).encode()

    first = 12345678901234567891
    produce(millstream_broker, [event(first + at, 10) for at in range(3)], "odd")
    produce(millstream_broker, [event(first, 20, gone=True)], "odd")
    run()
    produce(millstream_broker, [event(first, 15)], "odd")  # late, in a batch of its own
    run()
    reader = open_reader(tmp_path / "views.db")
    _, rows = reader.query("SELECT account, m, at FROM accounts ORDER BY account")
    assert rows == [(str(first + at), '{"a": 10}', "2026-01-01T12:00:00.000000") for at in (1, 2)]
    assert reader.query("SELECT x, n FROM numbers")[1] == [("NaN", 20)]
    reader.close()

    stranger = job(accounts("other"), "elsewhere")
    with pytest.raises(TopologyError, match=r"view 'accounts' in .* belongs to job 'bank', not to 'other'"):
        stranger.start(spark)
    stranger.close()

    floating = Topology("floating")
    windows = floating.source("odd", schema=SCHEMA, time="t").window(by="x", size="1 minute", name="wrong")
    windows.agg(n="count(*)").to_topic("out")
    refused = job(floating, "floating")
    with pytest.raises(TopologyError, match=r"test_view_values_job.py:\d+: 'wrong': the key 'x' is double"):
        refused.start(spark)
    refused.close()
