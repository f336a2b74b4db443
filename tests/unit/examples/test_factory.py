"""The factory: sessions that a limit opens, the machine at fault among its neighbours, and late readings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from millstream.examples.catalogue import find
from millstream.testing import Driver

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EVERY = 4  # seconds between two readings


@pytest.fixture
def driver() -> Iterator[Driver]:
    with Driver(find("factory").pipeline) as driver:
        yield driver


def reading(machine: str, second: float, vibration: float) -> dict[str, object]:
    at = NOON + timedelta(seconds=second)
    return {"line": "l1", "machine": machine, "vibration": vibration, "read_at": at}


def shaking(machine: str, start: int, end: int, peak: float) -> list[dict[str, object]]:
    """Readings from ``start`` to ``end``, then a calm one."""
    high = [reading(machine, second, peak) for second in range(start, end, EVERY)]
    return [*high, reading(machine, end, 2.0)]


def blamed(driver: Driver) -> list[tuple[str, list[str]]]:
    return [(fault["machine"], fault["shaken"]) for fault in driver.topic("faults")]


def in_order(*parts: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted((one for part in parts for one in part), key=lambda one: str(one["read_at"]))


def test_the_strongest_of_the_machines_that_shake_together_is_at_fault(driver: Driver) -> None:
    driver.feed("readings", in_order(shaking("m1", 8, 40, 8.5), shaking("m2", 0, 40, 12.0)))
    driver.finish()
    assert blamed(driver) == [("m2", ["m1", "m2"])]
    assert driver.view("machines_at_fault")["m2"]["peak"] == 12.0


def test_two_incidents_of_a_line_that_are_apart_have_a_machine_each(driver: Driver) -> None:
    driver.feed("readings", in_order(shaking("m1", 0, 40, 9.0), shaking("m2", 120, 160, 12.0)))
    driver.finish()
    assert blamed(driver) == [("m1", ["m1"]), ("m2", ["m2"])]


def test_one_high_reading_is_a_glitch_however_high_it_is(driver: Driver) -> None:
    glitch = [reading("m5", 10, 20.0), reading("m5", 14, 2.0)]
    driver.feed("readings", in_order(shaking("m1", 0, 40, 9.0), glitch))
    driver.finish()
    assert blamed(driver) == [("m1", ["m1"])]


def test_a_sensor_that_falls_silent_while_it_shakes_is_told_of_all_the_same(driver: Driver) -> None:
    driver.feed("readings", shaking("m1", 0, 40, 9.0)[:-1])
    driver.feed("readings", [reading("m2", second, 2.0) for second in range(40, 200, EVERY)])
    assert blamed(driver) == [("m1", ["m1"])]


def test_what_a_gateway_sends_minutes_later_blames_nobody_and_is_not_lost(driver: Driver) -> None:
    driver.feed("readings", reading("m1", 300, 2.0))
    late = shaking("m1", 60, 100, 12.0)
    driver.feed("readings", late)
    driver.finish()
    assert blamed(driver) == []
    assert len(driver.topic("readings.late")) == len(late)
