"""Durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.core.units import DurationError, duration_ms, exact_duration


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("30s", 30_000),
        ("2 minutes", 120_000),
        ("1 hour 30 minutes", 5_400_000),
        ("0.5 s", 500),
        ("10 ms", 10),
    ],
)
def test_durations_are_read_as_people_write_them(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["", "2", "minutes", "2 fortnights", "-1 s", "0 s", None, 5, "1 s and a bit"]
)
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(DurationError):
        duration_ms(text)


@given(st.integers(min_value=1, max_value=10**12))
def test_a_duration_is_said_so_that_it_reads_back(ms: int) -> None:
    assert duration_ms(exact_duration(ms)) == ms
