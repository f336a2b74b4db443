"""One Spark session for all pipeline tests: starting one costs as much as all of them together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    pytest.importorskip("pyspark")
    from millstream.pipeline.engine import end_engine
    from millstream.pipeline.session import spark_session

    log_file = tmp_path_factory.mktemp("spark") / "spark.log"
    session = spark_session("millstream-tests", master="local[2]", log_file=log_file)
    yield session
    end_engine(session)
