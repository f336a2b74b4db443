"""Every public name has an example in its docstring, and the examples do what they say.

They run in the namespace that the reference describes: ``flow``, ``payments`` and ``cards`` are declared anew
for each, ``driver`` runs a small flow, and ``address`` is a broker's.
"""

from __future__ import annotations

import datetime
import doctest
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from pyspark.sql import functions as F  # noqa: N812

import millstream
from millstream import Broker, Processor, Stream, Table, Topology, client, testing
from millstream.pipeline import register
from millstream.sqltypes.expressions import NoSqlError
from millstream.sqltypes.recorded import recording
from millstream.testing import Driver
from tools.reference.python import is_about_jobs, public_docstrings

# Jobs need Spark: tests/pipeline/test_docstrings_of_jobs.py runs those examples.
EXAMPLES = {name: text for name, text in public_docstrings() if not is_about_jobs(name)}
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SCHEMA = "card string, eur double, country string, at timestamp"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.address})
        for topic in ("orders", "bills"):
            producer.produce(topic, b"17", b"c1")
        producer.flush()
        yield broker.address


@pytest.fixture(scope="module")
def view_file() -> Iterator[Path]:
    flow = Topology("latest")
    flow.source("payments", schema="card string, eur double").to_view("latest", key="card")
    with Driver(flow) as driver:
        driver.feed("payments", {"card": "c1", "eur": 2.0})
        yield driver._file


def processed(processor: type[Processor], output: str, *rows: object) -> list[dict[str, Any]]:
    """The rows that a processor emits for payments."""
    flow = Topology("processed")
    payments = flow.source("payments", schema=SCHEMA, time="at")
    given = [{"at": "2026-01-01T10:00:00Z", **row} for row in rows if isinstance(row, dict)]
    made = payments.process(key="card", with_=processor, output=output, name="made")
    made.to_topic("made")
    with Driver(flow) as driver:
        driver.feed("payments", given)
        driver.finish()
        return driver.stream("made")


def totals() -> Topology:
    flow = Topology("totals")
    payments = flow.source("payments", schema=SCHEMA, time="at", lateness="10 seconds", name="payments")
    paid = payments.select("card", "eur")
    paid.to_topic("paid", key="card")
    paid.to_view("latest", key="card", order="eur")
    counted = payments.window(by="card", size="1 minute", emit="final", name="totals").agg(n="count(*)")
    counted.to_topic("totals", key="card")
    return flow


def namespace(name: str, request: pytest.FixtureRequest, text: str, stack: ExitStack) -> dict[str, Any]:
    names: dict[str, Any] = {one: getattr(millstream, one) for one in millstream.__all__}
    names |= {one: getattr(client, one) for one in client.__all__}
    names |= {one: getattr(testing, one) for one in testing.__all__}
    names |= {"F": F, "millstream": millstream, "register": register, "processed": processed}
    names |= {"confluent_kafka": confluent_kafka, "sqlite3": sqlite3, "datetime": datetime}
    flow = names["flow"] = Topology("fraud")
    names["payments"] = flow.source(
        "payments", schema=SCHEMA, time="at", lateness="10 seconds", name="payments"
    )
    names["cards"] = flow.table("cards", schema="card string, limit double", key="card", name="cards")
    if name.startswith("Driver."):
        names["driver"] = stack.enter_context(Driver(totals()))
    for fixture in ("address", "view_file"):
        if fixture in text:
            names[fixture] = request.getfixturevalue(fixture)
    return names


def shown(value: object) -> None:
    """What Python's prompt prints, without the streams that declarations give."""
    if value is not None and not isinstance(value, Stream | Table):
        print(repr(value))


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_public_name_has_an_example_that_holds(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = EXAMPLES[name]
    assert ">>>" in text, f"add an example to the docstring of {name}"
    with ExitStack() as stack:
        stack.enter_context(recording(NoSqlError))  # a session of another test may be running
        globs = namespace(name, request, text, stack)
        test = doctest.DocTestParser().get_doctest(text, globs, name, None, None)
        found: list[str] = []
        monkeypatch.setattr(sys, "__displayhook__", shown)
        failed, tried = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=found.append)
    assert tried
    assert not failed, "".join(found)
