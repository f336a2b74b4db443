"""How fast a counter grows, by samples."""

from __future__ import annotations

import pytest

from millstream.broker.horizon.rates import WINDOW, Rate


def sampled(*points: tuple[float, float]) -> float:
    rate = Rate()
    for now, count in points:
        rate.sample(count, now)
    return rate.per_second


def test_a_steady_rate_is_told_from_the_second_sample_on() -> None:
    assert sampled((0, 100)) == 0
    assert sampled((0, 100), (10, 200)) == pytest.approx(10)
    assert sampled((0, 100), (10, 200), (12, 220), (60, 700)) == pytest.approx(10)


def test_what_is_long_ago_counts_for_little() -> None:
    busy = [(float(at), at * 100.0) for at in range(0, 601, 10)]
    quiet = [(600.0 + at, 60_000.0) for at in range(10, round(5 * WINDOW), 10)]
    assert sampled(*busy) == pytest.approx(100)
    assert sampled(*busy, *quiet) < 1


def test_a_counter_that_starts_anew_is_followed_from_there() -> None:
    assert sampled((0, 1000), (10, 1100), (20, 0), (30, 100)) == pytest.approx(10)


def test_two_samples_at_one_time_are_one() -> None:
    assert sampled((0, 100), (10, 200), (10, 5000)) == pytest.approx(10)
