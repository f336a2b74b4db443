"""The Nexmark queries on Spark: over the same events, they answer what DuckDB answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.nexmark import feed, generator
from bench.nexmark.answers import SQL, Answers
from bench.nexmark.queries import QUERIES, Events, add
from millstream import Broker, Topology
from millstream.client.connect import Connection
from millstream.pipeline.job import Job, Settings
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 5_000
ON_KERNEL = ("q3", "q4", "q5", "q9", "q19", "q20")
SETTINGS = generator.Settings(seed=7, rate=100)  # fifty seconds, no two events in the same millisecond


@pytest.fixture(scope="module")
def answers() -> Iterator[Answers]:
    made = Answers(generator.tables(EVENTS, SETTINGS))
    yield made
    made.close()


def run(spark: SparkSession, address: str, names: Iterable[str], checkpoint: Path) -> None:
    """Several queries as one job, to their end."""
    flow = Topology(checkpoint.name)
    events = Events(flow, max_rows=2_000)
    for name in names:
        add(name, events, f"answers-{name}")
    job = Job(flow, Settings(Connection(address), str(checkpoint), available_now=True))
    job.prepare()
    job.start(spark)
    wait_for(lambda: not job.running, timeout=240, what=f"{', '.join(names)} have ended")
    problem = job.failed()
    job.close()
    if problem is not None:
        raise problem


@pytest.fixture(scope="module")
def answered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker where all queries have been run."""
    scratch = tmp_path_factory.mktemp("nexmark")
    with Broker(num_partitions=2) as broker:
        feed.write(broker.address, EVENTS, SETTINGS)
        run(spark, broker.address, [name for name in QUERIES if name not in ON_KERNEL], scratch / "native")
        run(spark, broker.address, ON_KERNEL, scratch / "kernel")
        yield broker.address


def test_every_query_has_an_answer_to_be_checked_against() -> None:
    assert list(QUERIES) == list(SQL)


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_answers_what_duckdb_answers(name: str, answered: str, answers: Answers) -> None:
    columns, expected = answers.of(name)
    assert expected, "an empty answer would prove nothing"
    rows = feed.read(answered, f"answers-{name}")
    if name == "q12":  # by the time of processing: how its windows divide the bids is not known
        found = Counter[int]()
        for bidder, count, _ in feed.answer(rows, [*columns, "starttime"], QUERIES[name].key):
            found[bidder] += count
        assert found == dict(expected)
        return
    assert feed.counted(feed.answer(rows, columns, QUERIES[name].key)) == feed.counted(expected)
