"""Attacks: what is one, what only comes close, and that the order of arrival can't be seen."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.examples.catalogue import find
from millstream.testing import Driver

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
STRANGER = "2001:db8::1"
Row = dict[str, object]


@pytest.fixture
def driver() -> Iterator[Driver]:
    with Driver(find("intrusion").pipeline) as driver:
        yield driver


def logged(second: float, host: str, peer: str, kind: str, **more: object) -> Row:
    return {
        "site": "s",
        "host": host,
        "peer": peer,
        "kind": kind,
        "at": NOON + timedelta(seconds=second),
        **more,
    }


def scan(second: float, host: str, peer: str, ports: int = 10) -> list[Row]:
    return [logged(second + n, host, peer, "connect", port=n, ok=False) for n in range(ports)]


def logins(second: float, host: str, peer: str, failed: int = 4) -> list[Row]:
    """Failed logins, and then one that succeeds."""
    return [logged(second + n, host, peer, "login", ok=n == failed) for n in range(failed + 1)]


def break_in(second: float, host: str, peer: str) -> list[Row]:
    return scan(second, host, peer) + logins(second + 20, host, peer)


def transfers(second: float, host: str, *sizes: int) -> list[Row]:
    return [logged(second + n, host, "2001:db8::f", "transfer", bytes=size) for n, size in enumerate(sizes)]


def theft(second: float, host: str) -> list[Row]:
    return transfers(second, host, 10, 10, 10, 900)


def by_time(*parts: list[Row]) -> list[Row]:
    return sorted((row for part in parts for row in part), key=lambda row: str(row["at"]))


def ways(driver: Driver) -> list[tuple[str, str, list[str], str]]:
    return [(one["attacker"], one["entered"], one["then"], one["robbed"]) for one in driver.topic("attacks")]


def test_an_attacker_is_followed_from_host_to_host_until_data_leaves(driver: Driver) -> None:
    first = break_in(0, "10.0.0.1", STRANGER)
    hops = break_in(100, "10.0.0.2", "10.0.0.1") + break_in(200, "10.0.0.3", "10.0.0.1")
    driver.feed("network", by_time(first, hops, theft(300, "10.0.0.3")))
    driver.finish()
    assert ways(driver) == [(STRANGER, "10.0.0.1", ["10.0.0.2", "10.0.0.3"], "10.0.0.3")]
    assert driver.view("attacks")[STRANGER]["bytes"] == 900


def test_attacks_that_go_on_at_the_same_time_are_told_apart(driver: Driver) -> None:
    one = break_in(0, "10.0.0.1", STRANGER) + theft(200, "10.0.0.1")
    other = break_in(50, "10.0.0.2", "2001:db8::2") + theft(100, "10.0.0.2")
    driver.feed("network", by_time(one, other))
    driver.finish()
    assert ways(driver) == [
        ("2001:db8::2", "10.0.0.2", [], "10.0.0.2"),
        (STRANGER, "10.0.0.1", [], "10.0.0.1"),
    ]


CLOSE = {  # to a break-in, by what is missing; each on a host of its own
    "a scan before": logins(0, "10.0.0.1", STRANGER, failed=9),
    "enough ports": scan(0, "10.0.0.2", STRANGER, ports=9) * 3 + logins(60, "10.0.0.2", STRANGER),
    "enough guesses": scan(0, "10.0.0.3", STRANGER) + logins(20, "10.0.0.3", STRANGER, failed=3),
    "a right guess": scan(0, "10.0.0.4", STRANGER) + logins(20, "10.0.0.4", STRANGER)[:-1],
    "the same peer": scan(0, "10.0.0.5", STRANGER) + logins(20, "10.0.0.5", "2001:db8::2"),
    "haste": scan(0, "10.0.0.6", STRANGER) + logins(620, "10.0.0.6", STRANGER),
}


def test_what_comes_close_to_a_break_in_is_none(driver: Driver) -> None:
    left = [theft(700, f"10.0.0.{number}") for number, _ in enumerate(CLOSE, 1)]
    driver.feed("network", by_time(*CLOSE.values(), *left))
    driver.finish()
    assert driver.topic("break-ins") == []
    assert driver.topic("attacks") == []
    assert len(driver.stream("transfers")) == len(CLOSE)


def test_a_break_in_without_a_theft_is_no_attack(driver: Driver) -> None:
    broken = [break_in(0, f"10.0.0.{number}", STRANGER) for number in (1, 2, 3)]
    always_much = transfers(200, "10.0.0.1", 900, 900, 900, 900)
    too_late = theft(2000, "10.0.0.2")
    not_held = break_in(100, "10.0.0.5", "10.0.0.4") + theft(200, "10.0.0.5")
    driver.feed("network", by_time(*broken, always_much, too_late, not_held))
    driver.finish()
    assert sorted(one["host"] for one in driver.topic("break-ins")) == [f"10.0.0.{n}" for n in (1, 2, 3, 5)]
    assert driver.topic("attacks") == []


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_the_order_of_arrival_within_the_lateness_can_not_be_seen(random: object) -> None:
    rows = by_time(
        break_in(0, "10.0.0.1", STRANGER),
        break_in(60, "10.0.0.2", "10.0.0.1"),
        scan(65, "10.0.0.4", STRANGER),
        theft(100, "10.0.0.2"),
    )
    delays = [random.uniform(0, 9) for _ in rows]  # type: ignore[attr-defined]
    sent = sorted(
        range(len(rows)),
        key=lambda n: (rows[n]["at"] + timedelta(seconds=delays[n]), n),  # type: ignore[operator]
    )
    with Driver(find("intrusion").pipeline) as driver:
        for begin in range(0, len(sent), 40):
            driver.feed("network", [rows[n] for n in sent[begin : begin + 40]])
        driver.finish()
        assert driver.topic("network.late") == []
        assert ways(driver) == [(STRANGER, "10.0.0.1", ["10.0.0.2"], "10.0.0.2")]
