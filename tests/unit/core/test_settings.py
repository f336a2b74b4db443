"""Values of settings: what is taken, and what is refused in words."""

from __future__ import annotations

import pytest

from millstream.core.config import with_changes
from millstream.core.errors import ConfigError
from millstream.core.topic_config import TopicConfig


@pytest.mark.parametrize("text", ["1_000", "١٢", "1e3", "0x10", "", "1.5", "٣٤"])
def test_a_whole_number_is_written_as_kafka_writes_it(text: str) -> None:
    with pytest.raises(ConfigError, match=r"retention\.ms: .* is not a whole number"):
        with_changes(TopicConfig(), {"retention.ms": text})


@pytest.mark.parametrize("text", ["9223372036854775808", "99999999999999999999"])
@pytest.mark.parametrize("name", ["retention.ms", "retention.bytes", "segment.ms", "file.delete.delay.ms"])
def test_a_number_has_64_bits(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: {text} does not fit"):
        with_changes(TopicConfig(), {name: text})


def test_the_largest_number_is_taken() -> None:
    assert with_changes(TopicConfig(), {"retention.ms": str(2**63 - 1)}).retention_ms == 2**63 - 1


@pytest.mark.parametrize("text", ["NaN", "nan", "inf", "1_0", "-0.1", "1.1"])
def test_a_ratio_is_a_number_from_0_to_1(text: str) -> None:
    with pytest.raises(ConfigError, match=r"min\.cleanable\.dirty\.ratio: .* is not a number from 0 to 1"):
        with_changes(TopicConfig(), {"min.cleanable.dirty.ratio": text})


@pytest.mark.parametrize(("text", "value"), [("0.5", 0.5), ("1", 1.0), (".25", 0.25), ("1e-3", 0.001)])
def test_ratios_that_are_taken(text: str, value: float) -> None:
    assert with_changes(TopicConfig(), {"min.cleanable.dirty.ratio": text}).min_cleanable_dirty_ratio == value
