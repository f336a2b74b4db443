from __future__ import annotations

import gc
import os
import signal
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.support.postgres import Postgres, PostgresUnavailable, postgres
from tests.support.python_server import quick_python
from tests.support.shared_classes import QUICK_JAVA, quick_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long one example takes says nothing on a shared machine.
settings.register_profile("millstream", deadline=None)
settings.load_profile("millstream")

# A shell that runs the tests in the background has them ignore SIGINT, and so would every process that they
# start: one that is to end at Ctrl-C would go on for good.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Every Spark that a test starts, also through `millstream run` or the demo, and the little Java that works
# out how: the second compiler costs more than it gains in the seconds they live, and so does reading classes.
os.environ["SPARK_SUBMIT_OPTS"] = quick_spark()
os.environ["SPARK_LAUNCHER_OPTS"] = QUICK_JAVA


@pytest.fixture(autouse=True, scope="module")
def _no_client_outlives_its_module() -> Iterator[None]:
    """confluent-kafka's clients end when they are collected, and their callbacks often refer to them: without
    this, they go on connecting to brokers that are gone."""
    yield
    gc.collect()


@pytest.hookimpl(tryfirst=True)  # before xdist looks for its marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What processes may take apart: files, but for those that share a Spark session (of two: one would
    keep everybody waiting) or the one Apache Kafka. These come first and the quick ones last, so that no one
    process ends long before the others."""

    def place(item: pytest.Item) -> int:
        folder = item.path.parent.name if "unit" not in item.path.parts else "unit"
        return {"pipeline": 0, "faults": 1, "clients": 2, "console": 3}.get(folder, 4)

    on_spark = sorted({item.path for item in items if "spark" in getattr(item, "fixturenames", ())})

    def shared(item: pytest.Item) -> str | None:
        if item.path in on_spark and "spark" in getattr(item, "fixturenames", ()):
            return f"spark {on_spark.index(item.path) % 2}"
        given = getattr(item, "callspec", None)
        return "kafka" if given is not None and given.params.get("address") == "Apache Kafka" else None

    for item in items:
        item.add_marker(pytest.mark.xdist_group(shared(item) or item.nodeid.partition("::")[0]))
    items.sort(key=lambda item: (shared(item) is None, place(item)))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One local session for all that run a pipeline (starting one costs as much as all of them): two cores,
    two shuffle partitions, quick to start."""
    pytest.importorskip("pyspark")
    from millstream.pipeline.engine import end_engine
    from millstream.pipeline.session import spark_session

    with quick_python() as python:
        with pytest.MonkeyPatch.context() as environment:  # of this session alone: others start what users do
            environment.setenv("PYSPARK_PYTHON", python)
            environment.setenv("PYSPARK_DRIVER_PYTHON", python)
            session = spark_session(
                "millstream-tests",
                master="local[2]",
                settings={
                    "spark.sql.shuffle.partitions": "2",
                    "spark.driver.memory": "1g",
                },
                log_file=tmp_path_factory.mktemp("spark") / "spark.log",
            )
        yield session
        end_engine(session)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A PostgreSQL that the tests share: each uses a database of its own, and leaves the server running."""
    try:
        with postgres() as server:
            yield server
    except PostgresUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def database(postgres_server: Postgres) -> str:
    """The URL of a new, empty database."""
    return postgres_server.create_database(f"t_{uuid.uuid4().hex[:12]}")
