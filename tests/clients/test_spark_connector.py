"""Spark's own Kafka connector, from its jar, against our broker: batch and stream, both ways."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream import Broker
from tests.support.maven import REPOSITORY, JarsUnavailable, fetch_jars

POM = REPOSITORY / "tests" / "support" / "spark_kafka" / "pom.xml"


def test_sparks_own_connector_reads_and_writes(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    try:
        jars = ",".join(str(jar) for jar in sorted(fetch_jars(POM).glob("*.jar")))
    except JarsUnavailable as reason:
        pytest.skip(str(reason))
    with Broker(num_partitions=3) as broker:
        program = [sys.executable, "-m", "tests.support.spark_connector", broker.address, jars, str(tmp_path)]
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(
            program, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr[-3000:]

    found = json.loads(done.stdout.splitlines()[-1])

    assert found == {"batch": 1000, "partitions": [0, 1, 2], "by_time": 1000, "stream": 1000}
