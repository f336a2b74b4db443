"""The Nexmark queries: over the same events, they answer what DuckDB answers. All of them in the test driver,
and on Spark those that between them have every way through it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from bench.nexmark import feed, generator
from bench.nexmark.answers import SQL, Answers
from bench.nexmark.queries import QUERIES, Events, add
from millstream import Broker, Topology
from millstream.client.connect import Connection
from millstream.pipeline.run.job import Job
from millstream.pipeline.run.settings import JobSettings
from millstream.testing import Driver
from tests.support.jobs import run_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 3_000
SETTINGS = generator.Settings(seed=7, rate=100)  # half a minute, no two events in the same millisecond
# A window over a window, Spark's own over a union, a processor of two streams with timers, a DataFrame that
# never changes, and a join.
ON_SPARK = ("q5", "q8", "q9", "q13", "q20")


@pytest.fixture(scope="module")
def events() -> dict[str, pa.Table]:
    return generator.tables(COUNT, SETTINGS)


@pytest.fixture(scope="module")
def answers(events: Mapping[str, pa.Table]) -> Iterator[Answers]:
    made = Answers(events)
    yield made
    made.close()


def check(name: str, rows: list[dict[str, Any]], answers: Answers) -> None:
    columns, expected = answers.of(name)
    assert expected, "an empty answer would prove nothing"
    key = QUERIES[name].key
    if name == "q12":  # by the time of processing: how its windows divide the bids is not known
        found = Counter[int]()
        for bidder, count, _ in feed.answer(rows, [*columns, "starttime"], key):
            found[bidder] += count
        assert found == dict(expected)
        return
    assert feed.counted(feed.answer(rows, columns, key)) == feed.counted(expected)


def test_every_query_has_an_answer_to_be_checked_against() -> None:
    assert list(QUERIES) == list(SQL)


def test_the_first_events_do_not_depend_on_how_many_are_made(events: Mapping[str, pa.Table]) -> None:
    few = generator.tables(1_234, SETTINGS)
    assert sum(table.num_rows for table in few.values()) == 1_234
    for kind, table in few.items():
        assert table.equals(events[kind].slice(0, table.num_rows))


@pytest.mark.parametrize("name", [name for name in QUERIES if name != "q13"])  # which has a Spark DataFrame
def test_a_query_answers_what_duckdb_answers(
    name: str, events: Mapping[str, pa.Table], answers: Answers
) -> None:
    flow = Topology(name)
    add(name, Events(flow), "answers")
    last = generator.closing(SETTINGS, COUNT)
    with Driver(flow) as driver:
        for source in flow.sources:
            driver.feed(
                source.topic, [*generator.encoded(events[source.topic]).to_pylist(), last[source.topic]]
            )
        check(name, driver.topic("answers"), answers)


def test_a_bid_at_exactly_the_gap_is_in_the_session_for_both(events: Mapping[str, pa.Table]) -> None:
    first = events["bid"].slice(0, 4)
    at = first["dateTime"][0].value
    times = pa.array([at, at + 10_000, at + 20_000, at + 30_001], pa.int64()).cast(first["dateTime"].type)
    alike = first.set_column(first.schema.get_field_index("dateTime"), "dateTime", times)
    same = alike.set_column(alike.schema.get_field_index("bidder"), "bidder", pa.array([1] * 4, pa.int64()))
    answers = Answers({**events, "bid": same})
    flow = Topology("q11")
    add("q11", Events(flow), "answers")
    with Driver(flow) as driver:
        driver.feed("bid", generator.encoded(same).to_pylist())
        driver.finish()
        check("q11", driver.topic("answers"), answers)
        assert sorted(row["bid_count"] for row in driver.topic("answers")) == [1, 3]
    answers.close()


@pytest.fixture(scope="module")
def answered(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker where queries have been run as one job, by several batches."""
    checkpoint: Path = tmp_path_factory.mktemp("nexmark")
    with Broker(num_partitions=2) as broker:
        feed.write(broker.address, COUNT, SETTINGS)
        flow = Topology("nexmark")
        streams = Events(flow, max_rows=2_000)
        for name in ON_SPARK:
            add(name, streams, f"answers-{name}")
        job = Job(flow, JobSettings(Connection(broker.address), str(checkpoint), available_now=True))
        job.prepare()
        run_once(job, spark)
        yield broker.address


@pytest.mark.parametrize("name", ON_SPARK)
def test_on_spark_it_answers_the_same(name: str, answered: str, answers: Answers) -> None:
    check(name, feed.read(answered, f"answers-{name}"), answers)
