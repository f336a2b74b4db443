"""When a standby may take its leader's place."""

from __future__ import annotations

import pytest

from millstream.broker.catalogue.copy_state import CopyState
from millstream.broker.standby.lag_account import MissingRecords
from millstream.broker.standby.promotion import StandbyState, judge, state_when_stopped
from millstream.core.errors import DataDirectoryError

WHOLE = (1_700_000_000_000, 1_700_000_000_005)
SOUND = StandbyState("db1:9092", WHOLE, False, 1_700_000_001_000, False, (), 0)
MISSING = [MissingRecords("payments", 3, 100, 120)]


def test_a_copy_with_everything_may_lead_when_the_leader_is_gone_and_says_what_it_knows() -> None:
    verdict = judge(SOUND, force=False)
    assert verdict.allowed
    assert not verdict.reasons
    assert verdict.note == (
        "what the leader had at 2023-11-14T22:13:20.000+00:00 is here; it was last heard from at "
        "2023-11-14T22:13:21.000+00:00, and what it acknowledged after that is unknown"
    )


def test_only_a_leader_that_said_so_has_nothing_unknown() -> None:
    stopped = SOUND._replace(is_last=True, was_connected=True)
    verdict = judge(stopped, force=False)
    assert verdict.allowed
    assert verdict.note == (
        "the leader shut down cleanly at 2023-11-14T22:13:20.000+00:00, and everything it had is here"
    )
    assert not judge(stopped._replace(missing=MISSING), force=False).allowed


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (SOUND._replace(answers=True), "the leader at db1:9092 answers"),
        (
            SOUND._replace(missing=MISSING),
            "20 records that the leader had are not here: payments-3: offsets 100",
        ),
        (SOUND._replace(behind_commits=2), "are not here: 2 or more"),
        (SOUND._replace(heard_ms=None), "not shut down cleanly"),
        (SOUND._replace(was_connected=True), "while the leader was running"),
    ],
)
def test_what_may_be_lost_is_said_and_only_force_goes_on(state: StandbyState, reason: str) -> None:
    refused = judge(state, force=False)
    assert not refused.allowed
    assert reason in refused.reasons[0]
    forced = judge(state, force=True)
    assert forced.allowed
    assert forced.reasons == refused.reasons
    assert list(forced.lost) == list(state.missing)


def test_a_copy_that_was_never_whole_never_leads() -> None:
    assert not judge(SOUND._replace(whole=None), force=True).allowed


def test_a_standby_that_was_killed_knows_only_its_last_complete_point() -> None:
    state = state_when_stopped(CopyState({"leader": "db1:9092", "whole": WHOLE}))
    assert state.heard_ms is None
    assert not judge(state, force=False).allowed


def test_directories_that_another_broker_leads_for_do_not_start_as_leaders() -> None:
    CopyState().check_may_lead("./data")
    CopyState({"leader": "db1:9092", "promoted": True}).check_may_lead("./data")
    with pytest.raises(DataDirectoryError, match="--follow db1:9092"):
        CopyState({"leader": "db1:9092"}).check_may_lead("./data")
    with pytest.raises(DataDirectoryError, match="db2:9092 was promoted in place of"):
        CopyState({"fenced": "db2:9092"}).check_may_lead("./data")
