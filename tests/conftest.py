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

# No deadline for examples: on a shared machine, the time that one takes means nothing.
settings.register_profile("millstream", deadline=None)
settings.load_profile("millstream")

# A shell that runs the tests in the background makes them ignore SIGINT, and every process that they start
# would inherit that: a process that should end at Ctrl-C would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# For every Spark that a test starts, also through `millstream run` or the demo, and for the small JVM that
# works out its command line. In the seconds that they live, the second compiler costs more than it gains, and
# so does loading classes.
os.environ["SPARK_SUBMIT_OPTS"] = quick_spark()
os.environ["SPARK_LAUNCHER_OPTS"] = QUICK_JAVA


@pytest.fixture(autouse=True, scope="module")
def _no_client_outlives_its_module() -> Iterator[None]:
    """Collect garbage after each module. confluent-kafka's clients end only when they are collected, and
    their callbacks often refer to them. Without this, they keep connecting to brokers that are gone.
    """
    yield
    gc.collect()


@pytest.hookimpl(tryfirst=True)  # before xdist reads its marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the tests for xdist: each group runs in one process. A group is a file, except that tests that
    use Spark form two groups (with one session for each; a single one would keep the other processes
    waiting), and tests on the one Apache Kafka form another. These groups come first and the quick tests
    last, so that no process ends long before the others.
    """

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
    """One local Spark session for all tests that run a pipeline, because starting one takes as long as all
    of them: two cores, two shuffle partitions, quick to start.
    """
    pytest.importorskip("pyspark")
    from millstream.pipeline.spark.jvm import end_engine
    from millstream.pipeline.spark.session import spark_session

    with quick_python() as python:
        with pytest.MonkeyPatch.context() as environment:  # for this session only: others start as users do
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
    """A PostgreSQL server that the tests share. Each uses its own database, and leaves the server running."""
    try:
        with postgres() as server:
            yield server
    except PostgresUnavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def database(postgres_server: Postgres) -> str:
    """The URL of a new, empty database."""
    return postgres_server.create_database(f"t_{uuid.uuid4().hex[:12]}")
