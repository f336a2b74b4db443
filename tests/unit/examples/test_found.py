"""Every example finds what was planted: its generator's events through the test driver, and its own check."""

from __future__ import annotations

import pytest

from millstream.errors import ConfigError
from millstream.examples.catalogue import NAMES, find
from millstream.examples.trial import trial

SECONDS = {
    "fraud": 40.0,
    "pricing": 600.0,
    "trading": 600.0,
    "factory": 500.0,
    "intrusion": 600.0,
    "search": 50.0,
}  # of event time: long enough for every kind to be planted


@pytest.mark.parametrize("name", NAMES)
def test_what_was_planted_is_found_and_nothing_else(name: str) -> None:
    example = find(name)
    generator = example.generator(seed=7, seconds=SECONDS[name])
    results = trial(example.pipeline, generator, example.results)
    scores = example.check(generator.planted, results)
    assert all(score.planted for score in scores), f"not every kind was planted: {scores}"
    assert example.reached(scores), scores


def test_a_name_that_is_not_there_is_said_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'fraud'"):
        find("frud")
