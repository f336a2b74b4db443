"""Incremental fetch sessions, rule by rule (see broker.sessions)."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.broker.topics.fetch_sessions import EVICTABLE_AFTER, FetchSession, FetchSessions, SessionError
from millstream.core.clock import ManualClock
from millstream.wire.hot.fetch import FetchRequest, FetchResult

NOT_FOUND, WRONG_EPOCH, TOPIC_ID_ERROR = 70, 71, 106


def request(
    session_id: int, epoch: int, topics: Any = (), forgotten: Any = (), *, offset: int = 0
) -> FetchRequest:
    return FetchRequest(
        500,
        1,
        1000,
        0,
        session_id,
        epoch,
        [(name, [(p, -1, offset, -1, 1000) for p in partitions]) for name, partitions in topics],
        forgotten,
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def sessions(clock: ManualClock) -> FetchSessions:
    return FetchSessions(3, clock)


def opened(sessions: FetchSessions, *partitions: int) -> FetchSession:
    session = sessions.begin(request(0, 0, [("t", partitions or (0, 1))]), by_id=False)
    assert session is not None
    return session


def followed(session: FetchSession | None) -> list[tuple[Any, int, int]]:
    assert session is not None
    return [(f.key, f.wanted[0], f.wanted[2]) for f in session.partitions.values()]


def test_epoch_0_opens_a_session_with_the_partitions_named(sessions: FetchSessions) -> None:
    session = opened(sessions, 0, 1)
    assert session.id > 0
    assert followed(session) == [("t", 0, 0), ("t", 1, 0)]


def test_a_request_without_a_session_has_none(sessions: FetchSessions) -> None:
    assert sessions.begin(request(0, -1, [("t", [0])]), by_id=False) is None
    assert len(sessions) == 0


def test_the_next_epoch_continues_with_only_what_changed(sessions: FetchSessions) -> None:
    session = opened(sessions, 0, 1)
    again = sessions.begin(request(session.id, 1, [("t", [1]), ("u", [5])], offset=9), by_id=False)
    assert again is session
    assert followed(again) == [("t", 0, 0), ("t", 1, 9), ("u", 5, 9)]
    assert sessions.begin(request(session.id, 2), by_id=False) is session


def test_forgotten_partitions_are_left_out(sessions: FetchSessions) -> None:
    session = opened(sessions, 0, 1, 2)
    again = sessions.begin(request(session.id, 1, forgotten=[("t", (0, 2)), ("u", (7,))]), by_id=False)
    assert followed(again) == [("t", 1, 0)]


def test_a_session_left_without_partitions_ends(sessions: FetchSessions) -> None:
    session = opened(sessions, 0)
    assert sessions.begin(request(session.id, 1, forgotten=[("t", (0,))]), by_id=False) is None
    assert len(sessions) == 0


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_full_request_ends_the_session_it_names(sessions: FetchSessions, epoch: int) -> None:
    session = opened(sessions)
    again = sessions.begin(request(session.id, epoch, [("t", [0])]), by_id=False)
    assert (again is None) == (epoch == -1)
    with pytest.raises(SessionError) as refused:
        sessions.begin(request(session.id, 1), by_id=False)
    assert refused.value.code == NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 5])
def test_an_epoch_out_of_order_is_refused_and_changes_nothing(sessions: FetchSessions, epoch: int) -> None:
    session = opened(sessions)
    with pytest.raises(SessionError) as refused:
        sessions.begin(request(session.id, epoch, [("t", [8])]), by_id=False)
    assert refused.value.code == WRONG_EPOCH
    assert len(session.partitions) == 2
    assert sessions.begin(request(session.id, 1), by_id=False) is session


def test_the_same_epoch_twice_is_refused(sessions: FetchSessions) -> None:
    session = opened(sessions)
    sessions.begin(request(session.id, 1), by_id=False)
    with pytest.raises(SessionError) as refused:
        sessions.begin(request(session.id, 1), by_id=False)
    assert refused.value.code == WRONG_EPOCH


def test_epochs_start_over_at_1(sessions: FetchSessions) -> None:
    session = opened(sessions)
    session.epoch = 2**31 - 1
    sessions.begin(request(session.id, 2**31 - 1), by_id=False)
    assert session.epoch == 1


def test_names_and_ids_do_not_mix_in_a_session(sessions: FetchSessions) -> None:
    session = opened(sessions)
    with pytest.raises(SessionError) as refused:
        sessions.begin(request(session.id, 1), by_id=True)
    assert refused.value.code == TOPIC_ID_ERROR


def test_an_unknown_session_is_refused(sessions: FetchSessions) -> None:
    with pytest.raises(SessionError) as refused:
        sessions.begin(request(12345, 3), by_id=False)
    assert refused.value.code == NOT_FOUND


def test_without_room_a_reader_gets_no_session(sessions: FetchSessions) -> None:
    for _ in range(3):
        opened(sessions, 0, 1)
    assert sessions.begin(request(0, 0, [("t", [0, 1])]), by_id=False) is None
    assert len(sessions) == 3


def test_a_larger_session_takes_the_place_of_the_smallest(sessions: FetchSessions) -> None:
    opened(sessions, 0, 1)
    small = opened(sessions, 0)
    opened(sessions, 0, 1)
    assert opened(sessions, 0, 1).id
    assert sessions.evicted == 1
    with pytest.raises(SessionError):
        sessions.begin(request(small.id, 1), by_id=False)


def test_a_session_not_used_for_long_makes_room(sessions: FetchSessions, clock: ManualClock) -> None:
    unused, used, third = (opened(sessions, 0, 1) for _ in range(3))
    clock.advance(EVICTABLE_AFTER - 1)
    sessions.begin(request(used.id, 1), by_id=False)
    sessions.begin(request(third.id, 1), by_id=False)
    clock.advance(2)
    opened(sessions, 0)
    with pytest.raises(SessionError):
        sessions.begin(request(unused.id, 1), by_id=False)
    assert sessions.begin(request(used.id, 2), by_id=False) is used


def test_no_slots_means_no_sessions(clock: ManualClock) -> None:
    assert FetchSessions(0, clock).begin(request(0, 0, [("t", [0])]), by_id=False) is None


class Some:
    size = 10

    def bytes(self) -> bytes:
        return b"x" * 10


def fetched(high: int = 5, start: int = 0, error: int = 0, records: Any = None) -> FetchResult:
    return FetchResult(0, error, high, high, start, records, None)


def test_a_partition_is_told_again_only_if_there_is_news(sessions: FetchSessions) -> None:
    (partition,) = opened(sessions, 0).partitions.values()
    assert partition.is_news(fetched())
    assert not partition.is_news(fetched())
    assert partition.is_news(fetched(records=Some()))
    assert partition.is_news(fetched(high=6))
    assert not partition.is_news(fetched(high=6))
    assert partition.is_news(fetched(high=6, start=1))
    assert not partition.is_news(fetched(high=6, start=1))


def test_an_error_is_told_each_time_and_once_more_when_it_is_over(sessions: FetchSessions) -> None:
    (partition,) = opened(sessions, 0).partitions.values()
    partition.is_news(fetched())
    assert partition.is_news(fetched(high=-1, start=-1, error=3))
    assert partition.is_news(fetched(high=-1, start=-1, error=3))
    assert partition.is_news(fetched())
    assert not partition.is_news(fetched())


def test_a_partition_that_had_its_turn_comes_last(sessions: FetchSessions) -> None:
    session = opened(sessions, 0, 1, 2)
    session.move_to_end(session.partitions["t", 0])
    assert [partition for _, partition, _ in followed(session)] == [1, 2, 0]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["open", "next", "wrong", "end", "forget"]), st.integers(0, 4), st.integers(0, 3)
        ),
        max_size=40,
    )
)
@settings(max_examples=60, deadline=None)
def test_whatever_clients_do_there_are_never_more_sessions_than_slots(steps: Any) -> None:
    sessions = FetchSessions(3, ManualClock())
    known: list[FetchSession] = []
    for action, which, partition in steps:
        if action == "open" or not known:
            session = sessions.begin(request(0, 0, [("t", range(partition + 1))]), by_id=False)
            if session is not None:
                known.append(session)
        else:
            session = known[which % len(known)]
            epoch = {"next": session.epoch, "wrong": session.epoch + 1, "end": -1, "forget": session.epoch}[
                action
            ]
            forgotten = [("t", (partition,))] if action == "forget" else ()
            with contextlib.suppress(SessionError):
                sessions.begin(request(session.id, epoch, forgotten=forgotten), by_id=False)
        assert len(sessions) <= 3
