from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from millstream.client.text.position import (
    END,
    START,
    Bounds,
    Position,
    Range,
    parse_duration_ms,
    parse_position,
    parse_range,
)
from millstream.core.errors import ConfigError

NOW = 1_767_225_600_000  # 2026-01-01T00:00:00Z
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("start", START),
        ("earliest", START),
        ("END", END),
        ("47", Position("offset", 47)),
        ("-3", Position("before", 3)),
        ("+3", Position("after", 3)),
        ("@-1h", Position("time", NOW - HOUR)),
        ("@-1d12h", Position("time", NOW - 36 * HOUR)),
        ("@now", Position("time", NOW)),
        ("@2026-01-01", Position("time", NOW)),
        ("@2026-01-01T02:00+02:00", Position("time", NOW)),
        ("@2026-01-01T00:00:00.250Z", Position("time", NOW + 250)),
        ("@2026-01-01 01:00", Position("time", NOW + HOUR)),
        ("@1699999999000", Position("time", 1_699_999_999_000)),
        ("@1699999999", Position("time", 1_699_999_999_000)),
    ],
)
def test_a_place_is_written_as_people_write_it(text: str, position: Position) -> None:
    assert parse_position(text, NOW) == position


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("10:20", Range(Position("offset", 10), Position("offset", 20))),
        (":end", Range(START, END)),
        ("10:", Range(Position("offset", 10))),
        ("-10:-3", Range(Position("before", 10), Position("before", 3))),
        ("@-1h:end", Range(Position("time", NOW - HOUR), END)),
        ("@-2h:-1h", Range(Position("time", NOW - 2 * HOUR), Position("time", NOW - HOUR))),
        ("@2026-01-01:2026-01-02", Range(Position("time", NOW), Position("time", NOW + 24 * HOUR))),
        ("@1767225600000:1767229200000", Range(Position("time", NOW), Position("time", NOW + HOUR))),
        ("@-2h:-100", Range(Position("time", NOW - 2 * HOUR), Position("before", 100))),
        ("47", Range(Position("offset", 47))),
    ],
)
def test_a_range_is_two_places(text: str, wanted: Range) -> None:
    assert parse_range(text, NOW) == wanted


def test_a_time_with_colons_is_one_place_and_two_of_them_are_a_range() -> None:
    assert parse_range("@2026-01-01T01:00", NOW) == Range(Position("time", NOW + HOUR))
    assert parse_range("@2026-01-01T01:00:@2026-01-01T02:00:00", NOW) == Range(
        Position("time", NOW + HOUR), Position("time", NOW + 2 * HOUR)
    )


@pytest.mark.parametrize(
    "text", ["", "x", "1.5", "--3", "@", "@yesterday", "@-1", "@-1y", "@12345", "9" * 30, "٣"]
)
def test_what_is_not_a_place_is_refused_with_what_would_be(text: str) -> None:
    with pytest.raises(ConfigError, match=r"write|digits|larger"):
        parse_position(text, NOW)


@pytest.mark.parametrize("text", ["10:x", "a:b", "1:2:3", "@-1h:then"])
def test_what_is_not_a_range_is_refused_with_what_would_be(text: str) -> None:
    with pytest.raises(ConfigError, match="FROM:UNTIL"):
        parse_range(text, NOW)


def test_durations_add_up() -> None:
    assert parse_duration_ms("1w2d3h4m5.5s6ms") == (((9 * 24 + 3) * 60 + 4) * 60 + 5) * 1000 + 506
    for wrong in ("", "1", "h", "1h 2m", "-1h", "1x"):
        with pytest.raises(ConfigError, match="duration"):
            parse_duration_ms(wrong)


POSITIONS = st.one_of(
    st.sampled_from([START, END]),
    st.builds(Position, st.sampled_from(["offset", "after", "before"]), st.integers(0, 2**63 - 1)),
    st.builds(Position, st.just("time"), st.integers(10**12, 2**62)),
)
BOUNDS = st.builds(
    lambda start, size: Bounds(start, start + size), st.integers(0, 10**9), st.integers(0, 10**9)
)


@given(POSITIONS)
def test_every_position_can_be_written_and_read_back(position: Position) -> None:
    assert parse_position(str(position), NOW) == position


@given(POSITIONS, st.none() | POSITIONS)
def test_every_range_can_be_written_and_read_back(start: Position, stop: Position | None) -> None:
    # after a time, a bare number is a time and not an offset
    assume(stop is None or (start.kind, stop.kind) != ("time", "offset"))
    wanted = Range(start, stop)
    assert parse_range(str(wanted), NOW) == wanted


@given(POSITIONS, BOUNDS, st.none() | st.integers(0, 2**40), st.none() | st.integers(0, 2**40))
def test_a_position_is_always_within_what_the_partition_has(
    position: Position, bounds: Bounds, time_offset: int | None, origin: int | None
) -> None:
    offset = position.resolve(bounds, time_offset=time_offset, origin=origin)
    assert bounds.start <= offset <= bounds.end


def test_positions_count_from_the_ends_or_from_a_given_origin() -> None:
    bounds = Bounds(100, 200)
    assert Position("before", 3).resolve(bounds) == 197
    assert Position("after", 3).resolve(bounds) == 103
    assert Position("before", 3).resolve(bounds, origin=150) == 147
    assert Position("after", 3).resolve(bounds, origin=150) == 153
    assert Position("time", NOW).resolve(bounds, time_offset=120) == 120
    assert Position("time", NOW).resolve(bounds, time_offset=None) == 200
