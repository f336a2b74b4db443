"""Every example finds what was planted: its generator's events through the test driver, and its own check."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from millstream.core.errors import ConfigError
from millstream.examples.catalogue import NAMES, find
from millstream.examples.trial import trial

# A smaller world, where the example's own takes long to go through.
SMALLER: dict[str, dict[str, Any]] = {"fraud": {"cards": 2000, "rate": 40.0}}


@pytest.mark.parametrize("name", NAMES)
def test_what_was_planted_is_found_and_nothing_else(name: str) -> None:
    example = find(name)
    generator: Any = example.generator(seed=7, seconds=example.seconds)
    generator = replace(generator, **SMALLER.get(name, {}))
    results = trial(example.pipeline, generator, example.results)
    scores = example.check(generator.planted, results)
    assert all(score.planted for score in scores), f"not every kind was planted: {scores}"
    assert example.reached(scores), scores


def test_a_name_that_is_not_there_is_said_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'fraud'"):
        find("frud")
