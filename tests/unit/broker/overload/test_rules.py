"""Who is held for consumers that are behind, and for how long: the rules alone."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from millstream.broker.overload.rules import ConsumerBacklog, Holding, LagLimits, patience, told_ms


def a_lag(*, records: int = -1, size: int = -1) -> ConsumerBacklog:
    return ConsumerBacklog(LagLimits(records, size))


def test_where_nobody_is_waited_for_nobody_is_held() -> None:
    lag = a_lag(records=0, size=0)
    lag.took(1000)
    assert not lag.is_over(1_000_000)
    assert not lag.is_stable_over(1_000_000)


def test_a_group_may_be_as_far_behind_as_the_limit_says_and_no_further() -> None:
    lag = a_lag(records=10)
    lag.seen(100)
    assert not lag.is_over(110)
    assert lag.is_over(111)
    lag.seen(101)
    assert not lag.is_over(111)


def test_bytes_are_counted_on_from_what_was_looked_up() -> None:
    lag = a_lag(size=1000)
    lag.seen(0, behind_bytes=900)
    lag.took(100)
    assert not lag.is_over(5)
    lag.took(1)
    assert lag.is_over(5)
    lag.seen(3, behind_bytes=500)
    assert not lag.is_over(5)


def test_what_an_open_transaction_keeps_from_readers_does_not_hold_transactions() -> None:
    lag = a_lag(records=10, size=1000)
    lag.seen(100, behind_bytes=5000, stable_bytes=800)
    assert lag.is_over(500)
    assert not lag.is_stable_over(110)
    assert lag.is_stable_over(111)


def test_what_is_reached_first_counts() -> None:
    assert LagLimits(10, 1000).are_passed(11, 0)
    assert LagLimits(10, 1000).are_passed(0, 1001)
    assert not LagLimits(-1, 1000).are_passed(10**9, 1000)


def test_time_runs_for_the_requests_behind_the_one_that_is_held_too() -> None:
    since, deadline = patience(None, 100.0, drained=False, most=10.0)
    assert (since, deadline) == (100.0, 110.0)
    # Let go after four seconds; the next request was behind it all the while.
    assert patience(since, 104.0, drained=False, most=10.0) == (100.0, 110.0)
    # There was nothing behind it: whatever comes was sent later.
    assert patience(since, 104.0, drained=True, most=10.0) == (104.0, 114.0)


def test_clients_are_told_to_wait_for_long_only_where_their_time_was_up() -> None:
    assert told_ms(0.0001, still_full=False) == 1
    assert told_ms(0.05, still_full=False) == 50
    assert told_ms(9.0, still_full=False) == 100
    assert told_ms(9.0, still_full=True) == 1000


def test_those_who_are_let_go_may_fill_the_place_before_the_next_one() -> None:
    holding: Holding[str, str] = Holding()
    for name in "abc":
        holding.hold(name, frozenset("p"), 0.0, 10.0)
    room = 2

    def is_full(place: str) -> bool:
        return room <= 0

    gone = []
    for release in holding.release(1.0, is_full):
        gone.append(release.token)
        room -= 1
    assert gone == ["a", "b"]
    assert holding.count("p") == 1


class Pipe:
    """A model of some partitions and producers around ``Holding``: every request adds one record."""

    def __init__(self, places: int, limit: int) -> None:
        self.limit = limit
        self.behind = [0] * places
        self.holding: Holding[int, int] = Holding()
        self.order: list[deque[int]] = [deque() for _ in range(places)]
        self.deadlines: dict[int, float] = {}
        self.places: dict[int, frozenset[int]] = {}
        self.released: list[int] = []

    def is_full(self, place: int) -> bool:
        return self.behind[place] > self.limit

    def request(self, token: int, places: frozenset[int], now: float, most: float) -> None:
        for place in places:
            self.behind[place] += 1
        full = frozenset(place for place in places if self.is_full(place))
        if full:
            self.holding.hold(token, full, now, now + most)
            self.deadlines[token] = now + most
            self.places[token] = full
            for place in full:
                self.order[place].append(token)

    def release(self, now: float) -> None:
        for release in self.holding.release(now, self.is_full):
            token = release.token
            assert token not in self.released, "let go twice"
            self.released.append(token)
            assert release.backlogs == self.places[token]
            assert release.still_full == any(map(self.is_full, release.backlogs))
            if not release.still_full:
                for place in release.backlogs:
                    older = [t for t in self.order[place] if t < token and t not in self.released]
                    for other in older:  # each of them waits for another place, which is full
                        assert any(map(self.is_full, self.places[other]))
            else:
                assert now >= self.deadlines[token]
        for token, deadline in self.deadlines.items():
            held = token not in self.released
            assert not (held and deadline <= now), "held past its deadline"
            assert not (held and not any(map(self.is_full, self.places[token]))), "held for nothing"


@hypothesis_settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("request"), st.frozensets(st.integers(0, 2), min_size=1)),
            st.tuples(st.just("consume"), st.integers(0, 2)),
            st.tuples(st.just("wait"), st.floats(0, 4)),
        ),
        max_size=60,
    ),
    st.integers(0, 4),
)
def test_everybody_is_let_go_once_in_order_and_in_time(steps: list[tuple[str, object]], limit: int) -> None:
    pipe = Pipe(3, limit)
    now = 0.0
    for number, (what, which) in enumerate(steps):
        if what == "request":
            assert isinstance(which, frozenset)
            pipe.request(number, which, now, 5.0)
        elif what == "consume":
            assert isinstance(which, int)
            pipe.behind[which] = 0
        else:
            assert isinstance(which, float)
            now += which
        pipe.release(now)
    pipe.release(now + 5.0)
    assert sorted(pipe.released) == sorted(pipe.deadlines)
    assert len(pipe.holding) == 0
