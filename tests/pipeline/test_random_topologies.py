"""Random topologies as jobs on Spark, held against a model in plain Python (tests/random_topologies): right
or refused, never wrong. `make topologies` runs many more of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream import Broker
from tests.random_topologies.generate import draw
from tests.random_topologies.on_spark import Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# They have a feedback topic, channels with different columns, mapInPandas, deduplicate, edits and stops.
@pytest.mark.parametrize("seed", [2033, 2039])
def test_a_random_topology_gives_what_the_model_says(
    spark: SparkSession, tmp_path: Path, millstream_broker: Broker, seed: int
) -> None:
    case = draw(seed, on_spark=True)
    trial = Trial(case, spark, millstream_broker, tmp_path)
    wrong = trial.differences()
    assert not wrong, "\n".join([str(case), *trial.log, *wrong])
