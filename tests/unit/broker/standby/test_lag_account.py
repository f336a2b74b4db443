"""What a standby lacks, by what its leader told it."""

from __future__ import annotations

from millstream.broker.standby.lag_account import LagAccount, LeaderReport, MissingRecords

ORDERS = bytes(16)


def told(end: int, size: int = 10, partition: int = 0) -> LeaderReport:
    return LeaderReport((ORDERS, partition), "orders", end, size)


def whole(end: int = 100) -> LagAccount:
    """A copy of ``end`` records, after its first point."""
    account = LagAccount({})
    account.begin(7, [told(end)], first=True)
    account.complete(1, 7, {(ORDERS, 0): end})
    return account


def test_a_complete_copy_lacks_nothing() -> None:
    account = whole()
    assert (account.missing, account.records, account.bytes, account.commits) == ([], 0, 0, 0)


def test_a_point_counts_until_it_is_whole_however_much_of_it_is_copied() -> None:
    account = whole()
    account.begin(9, [told(115)], first=False)
    assert account.missing == [MissingRecords("orders", 0, 100, 115)]
    assert (account.records, account.bytes, account.commits) == (15, 10, 2)
    account.complete(2, 9, {(ORDERS, 0): 115})
    assert (account.missing, account.commits) == ([], 0)


def test_the_latest_report_counts_before_any_point_includes_it() -> None:
    """The leader took fifteen records while the copy was whole, and died before the next point."""
    account = whole()
    account.heard(1, 8, [told(115)])
    assert account.missing == [MissingRecords("orders", 0, 100, 115)]
    assert account.commits == 1


def test_the_latest_report_adds_to_the_point_that_is_being_copied() -> None:
    account = whole()
    account.begin(7, [told(110)], first=False)
    account.heard(2, 7, [told(130), told(5, partition=1)])
    assert account.missing == [MissingRecords("orders", 0, 100, 130), MissingRecords("orders", 1, 0, 5)]
    account.complete(2, 7, {(ORDERS, 0): 110})
    assert account.missing == [MissingRecords("orders", 0, 110, 130), MissingRecords("orders", 1, 0, 5)]
    account.complete(3, 7, {(ORDERS, 0): 130, (ORDERS, 1): 5})
    assert account.missing == []


def test_a_report_that_overtakes_a_point_does_not_hide_what_the_point_has() -> None:
    account = whole()
    account.heard(1, 7, [told(110)])
    account.heard(2, 7, [told(3, partition=1)])  # point 2 has the ten records, and did not arrive
    assert account.records == 13


def test_a_topic_that_was_deleted_is_lacking_no_more() -> None:
    account = whole()
    account.heard(1, 7, [LeaderReport((b"\1" * 16, 0), "gone", 50, 10)])
    assert account.records == 50
    account.begin(8, [], first=False)
    account.complete(2, 8, {})
    assert account.missing == []


def test_a_leader_that_begins_anew_is_believed_anew() -> None:
    """It lost its tail in a crash; and how many changes of its catalogue are missing it can't say."""
    account = whole()
    account.heard(1, 9, [told(150)])
    account.begin(3, [told(90)], first=True)
    assert account.missing == []
    assert account.commits == 1
    account.complete(1, 3, {(ORDERS, 0): 90})
    assert account.commits == 0
