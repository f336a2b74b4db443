"""Random topologies in the test driver, held against a model in plain Python (tests/random_topologies):
right, never wrong. `make topologies` runs many more of them, on Spark too."""

from __future__ import annotations

import pytest

from tests.random_topologies.generate import draw
from tests.random_topologies.on_driver import differences


@pytest.mark.parametrize("seed", range(40))
def test_a_random_topology_gives_what_the_model_says(seed: int) -> None:
    case = draw(seed)
    wrong = differences(case)
    assert not wrong, "\n".join([str(case), *wrong])
