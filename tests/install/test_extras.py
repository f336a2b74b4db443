"""``pip install 'millstream[EXTRA]'`` in a fresh environment: what it brings is enough for what it is for."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.apache_kafka import free_port
from tests.support.environments import Environment, environment
from tests.support.serve import ServeProcess
from tests.support.waiting import wait_for

DRIVER = """
from millstream import Topology
from millstream.testing import Driver
flow = Topology("small")
flow.source("payments", schema="card string, eur double").where("eur > 10").to_topic("large")
with Driver(flow) as driver:
    driver.feed("payments", [{"card": "a", "eur": 5.0}, {"card": "b", "eur": 50.0}])
    assert [value["card"] for value in driver.topic("large")] == ["b"]
"""
SPARK = """
from pathlib import Path
from millstream.pipeline.spark.session import spark_session
session = spark_session("small", master="local[1]", log_file=Path("spark.log"))
assert session.range(3).count() == 3
session.stop()
"""
SCHEMAS = """
from millstream.registry.parsing import parse
parse("AVRO", '"int"')
parse("JSON", "{}")
parse("PROTOBUF", 'syntax = "proto3"; message M {}')
"""


def driver(made: Environment) -> None:
    ran(made, DRIVER)


def spark(made: Environment) -> None:
    ran(made, SPARK)


def postgres(made: Environment) -> None:
    done = made.run("millstream", "view", "query", "v", "--views", "postgresql://nobody@127.0.0.1:1/none")
    assert "refused" in done.stderr, "the driver tried to connect"


def cassandra(made: Environment) -> None:
    ran(made, "from cassandra.cluster import Cluster")


def registry(made: Environment) -> None:
    answers(made, "--registry", "/subjects", "[]")
    ran(made, SCHEMAS)


def console(made: Environment) -> None:
    answers(made, "--console", "/", "<html")


def everything(made: Environment) -> None:
    for check in (spark, postgres, cassandra, registry, console, driver):
        check(made)


@pytest.mark.parametrize(
    ("extra", "check", "megabytes"),
    [
        ("testing", driver, 450),
        ("postgres", postgres, 90),
        ("cassandra", cassandra, 90),
        ("registry", registry, 130),
        ("console", console, 110),
        ("spark", spark, 900),
        ("all", everything, 1000),
    ],
)
def test_an_extra_brings_what_it_needs(
    extra: str,
    check: Callable[[Environment], None],
    megabytes: int,
    plain_wheel: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = environment(tmp_path / "env", plain_wheel, extra)
    with capsys.disabled():
        print(f"\nmillstream[{extra}]: {len(made.packages())} packages, {made.megabytes():.0f} MB")
    assert made.megabytes() < megabytes
    check(made)


def ran(made: Environment, program: str) -> None:
    done = made.run("python", "-c", program)
    assert done.returncode == 0, done.stderr[-3000:]


def answers(made: Environment, option: str, path: str, text: str) -> None:
    """True of ``millstream serve`` with a server beside it: that one serves a page that contains ``text``."""
    at = f"127.0.0.1:{free_port()}"
    with ServeProcess(made.path / "data", program=made.millstream, more=(option, at)):

        def page() -> str:
            try:
                with urllib.request.urlopen(f"http://{at}{path}", timeout=10) as found:
                    return str(found.read().decode())
            except OSError:
                return ""

        assert text in wait_for(page, what=f"an answer from {option}")
