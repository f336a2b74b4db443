"""The examples of jobs in docstrings do what they say. Those of everything else are tested without Spark, in
``tests/unit/test_docstrings.py``.
"""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream import Broker, Topology
from millstream.pipeline.run.handle import JobHandle
from tests.support.jobs import produce
from tests.support.waiting import wait_for
from tools.reference.python import is_about_jobs, public_docstrings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLES = {name: text for name, text in public_docstrings() if is_about_jobs(name)}
STARTING = ("Topology.run", "Topology.start")
ENDING = ("JobHandle", "JobHandle.stop")
LOOKING = [name for name in EXAMPLES if name not in STARTING + ENDING]


@pytest.fixture
def names(
    spark: SparkSession, millstream_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    from millstream.client.connect import Connection
    from millstream.client.librdkafka.admin import Admin

    with Admin(Connection(millstream_broker.address)) as admin:
        admin.create_topic("payments")
    produce(millstream_broker, [b'{"card": "c1"}', b'{"card": "c2"}'], "payments")
    flow = Topology("fraud")
    flow.source("payments", schema="card string").to_topic("copy")
    return {"flow": flow, "spark": spark, "address": millstream_broker.address}


@pytest.fixture
def job(names: dict[str, Any]) -> Iterator[JobHandle]:
    with names["flow"].start(names["spark"], broker=names["address"]) as job:
        wait_for(lambda: job.progress.rows_in == 2, what="the first batch")
        yield job


def check(name: str, names: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name], dict(names), name, None, None)
    found: list[str] = []
    failed, tried = doctest.DocTestRunner().run(test, out=found.append)
    assert tried, f"add an example to the docstring of {name}"
    assert not failed, "".join(found)


@pytest.mark.parametrize("name", STARTING)
def test_a_job_is_started(name: str, names: dict[str, Any]) -> None:
    check(name, names)


@pytest.mark.parametrize("name", ENDING)
def test_a_job_is_looked_at_and_stopped(name: str, names: dict[str, Any], job: JobHandle) -> None:
    for each in (*LOOKING, name):
        check(each, {**names, "job": job})
    assert not job.is_active
