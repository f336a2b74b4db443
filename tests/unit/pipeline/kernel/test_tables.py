"""Tables as topics of changes: looked up by a stream, and joined with each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.pipeline.kernel.clock import TimeRules
from millstream.pipeline.kernel.joins.foreign_key import (
    SENT_AT,
    ForeignKeyJoin,
    ForeignKeyReorder,
    ForeignKeyRoute,
)
from millstream.pipeline.kernel.joins.tables import REMEMBERED, AsOfLookup, LatestLookup, TableJoin
from millstream.pipeline.kernel.program import MAIN, TIMESTAMP
from tests.support.kernel_cases import END, PARTITIONS, Case, Fed, cases
from tests.support.kernel_feed import SECOND, Event, Feed

BASIS = "log time"
CUSTOMERS = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("n", pa.int64()),
        pa.field("log_time", TIMESTAMP),
        pa.field("deleted", pa.bool_()),
    ]
)
ORDERS = pa.schema([pa.field("customer", pa.string()), pa.field("n", pa.int64())])


def change(second: float, n: int, key: str = "a", deleted: bool = False, **more: Any) -> Event:
    at = int(second * SECOND)
    return Event(at, {"id": key, "n": n, "log_time": at, "deleted": deleted}, **more)


def order(second: float, n: int, key: str | None = "a", **more: Any) -> Event:
    return Event(int(second * SECOND), {"customer": key, "n": n}, input=1, **more)


def looked_up(rows: Sequence[Mapping[str, Any]]) -> list[tuple[int, int | None]]:
    return [(row["left_n"], row["right_n"]) for row in rows]


# ---- a stream with a table ---------------------------------------------------------------------------


def as_of(how: str = "left", kind: type[AsOfLookup] = AsOfLookup) -> AsOfLookup:
    return kind(how, 1, "log_time", BASIS)


def test_an_event_sees_the_row_as_it_was_at_its_time() -> None:
    feed = Feed(as_of(), [CUSTOMERS, ORDERS], rules=TimeRules(lateness=100 * SECOND))
    changes = [change(10, 1), change(20, 2), change(30, 0, deleted=True), change(40, 4)]
    feed.batch([order(15, 5), order(9, 6), order(35, 7), order(41, 8), order(20, 9)])
    given = feed.batch([*changes, change(500, 0, "z"), order(500, 0)])[MAIN]
    assert looked_up(given) == [(6, None), (5, 1), (9, 2), (7, None), (8, 4)]
    assert list(given[0]) == ["customer", "left_n", "right_n", "log_time", "join_time", "time_basis"]
    assert (given[1]["log_time"].timestamp(), given[1]["join_time"].timestamp()) == (10, 15)
    assert given[1]["time_basis"] == BASIS


def test_inner_leaves_out_what_finds_nothing() -> None:
    feed = Feed(as_of("inner"), [CUSTOMERS, ORDERS])
    given = feed.batch(
        [change(1, 1), order(2, 2), order(2, 3, "b"), order(2, 4, None), order(9, 5), change(9, 6)]
    )
    assert looked_up(given[MAIN]) == [(2, 1)]


def test_a_quiet_table_does_not_hold_the_stream_up_once_it_is_idle() -> None:
    rules = {0: TimeRules(idle_after=SECOND), 1: TimeRules()}
    feed = Feed(as_of(), [CUSTOMERS, ORDERS], rules=rules)
    assert feed.batch([change(10, 1), order(50, 2), order(60, 3)], now=100 * SECOND) == {}
    assert looked_up(feed.batch([order(70, 4)], now=102 * SECOND)[MAIN]) == [(2, 1), (3, 1)]


def test_a_change_that_comes_late_counts_from_then_on_unless_there_is_a_later_one() -> None:
    rules = {0: TimeRules(idle_after=SECOND), 1: TimeRules()}
    feed = Feed(as_of(), [CUSTOMERS, ORDERS], rules=rules)
    feed.batch([change(10, 1), order(50, 2)], now=100 * SECOND)
    feed.batch([order(60, 3)], now=102 * SECOND)
    given = feed.batch([change(40, 4), change(5, 5), change(61, 6), order(70, 7)], now=103 * SECOND)
    assert looked_up(given[MAIN]) == [(3, 4)]
    assert [(row["n"], row["late_ms"]) for row in given["late.0"]] == [(5, 55_000)]


def test_a_row_that_was_deleted_is_not_brought_back_by_an_older_change_for_a_day() -> None:
    feed = Feed(as_of(), [CUSTOMERS, ORDERS], buckets=1)
    day = REMEMBERED // SECOND
    feed.batch([change(10, 1), change(20, 0, deleted=True), order(1, 1)])
    feed.batch([change(19, 2), order(30, 3), change(30, 4, "b")])
    assert feed.buckets[0].status().entries == 3  # the deletion, and what is not yet past
    given = feed.batch([order(100 + day, 5), change(100 + day, 6, "b")])
    assert looked_up(given[MAIN]) == [(3, None)]
    assert feed.buckets[0].status().entries == 3  # the other key, and what is not yet past
    given = feed.batch([change(19, 7), order(200 + day, 8), change(200 + day, 9, "b")])
    assert looked_up(given[MAIN]) == [(5, 7)]


def test_the_latest_row_is_seen_at_once() -> None:
    feed = Feed(as_of(kind=LatestLookup), [CUSTOMERS, ORDERS])
    assert looked_up(feed.batch([order(50, 1)])[MAIN]) == [(1, None)]
    assert looked_up(feed.batch([order(10, 2), change(90, 3)])[MAIN]) == [(2, 3)]
    given = feed.batch([change(80, 4), order(5, 5)])
    assert looked_up(given[MAIN]) == [(5, 3)]
    assert [row["n"] for row in given["late.0"]] == [4]


def test_a_table_with_nothing_but_its_key_says_who_is_in_it() -> None:
    joined_before = [CUSTOMERS.field("id"), CUSTOMERS.field("deleted"), pa.field("join_time", TIMESTAMP)]
    plan = AsOfLookup("inner", 1, "join_time", BASIS, results=(False, True))
    feed = Feed(plan, [pa.schema(joined_before), ORDERS])
    member = Event(SECOND, {"id": "a", "deleted": False, "join_time": SECOND})
    (row,) = feed.batch([member, order(2, 1), order(2, 2, "b"), order(9, 3), Event(9 * SECOND, member.row)])[
        MAIN
    ]
    assert row.pop("join_time").timestamp() == 2
    assert row == {"customer": "a", "n": 1, "time_basis": BASIS}


def table_rows(number: int) -> st.SearchStrategy[Mapping[str, Any]]:
    """Rows whose time, as the column of the table's, is filled in by ``timed``."""
    keys = st.sampled_from("ab")
    if number == 1:
        return keys.map(lambda k: {"customer": k})
    return st.tuples(keys, st.booleans()).map(lambda one: {"id": one[0], "deleted": one[1]})


def timed(case: Case) -> Case:
    """The same, with the time of an event in its column too."""
    events = tuple(
        Fed(one.second, one.input, one.partition, {**one.row, "log_time": one.second * SECOND}, one.n)
        for one in case.events
    )
    return Case(events, case.lateness, case.cuts, case.reload_after, case.buckets)


def effective(case: Case, event: Fed) -> int:
    """From when on a change counts."""
    watermark = case.watermark(event)
    return event.second if watermark is None else max(event.second, watermark)


def changes_of(case: Case, number: int, key: str) -> list[Fed]:
    """The changes of a key in the order in which they are known."""
    found = [one for one in case.events if one.input == number and one.row["id"] == key]
    return sorted(found, key=lambda one: (effective(case, one), one.partition, one.n))


def version(case: Case, number: int, key: str | None, instant: int) -> Fed | None:
    """The row of a key at an instant: of all changes known by then, that with the latest time."""
    known = [one for one in changes_of(case, number, key or "") if effective(case, one) <= instant]
    latest = max(enumerate(known), key=lambda one: (one[1].second, one[0]), default=None)
    return None if latest is None or latest[1].row["deleted"] else latest[1]


def superseded(case: Case, number: int) -> list[int]:
    """The changes before which a later one was known."""
    found = []
    for key in "ab":
        changes = changes_of(case, number, key)
        for at, one in enumerate(changes):
            if any(other.second > one.second for other in changes[:at]):
                found.append(one.n)
    return sorted(found)


@settings(max_examples=100, deadline=None)
@given(case=cases(table_rows).map(timed), how=st.sampled_from(["inner", "left"]))
def test_what_is_looked_up_is_what_was_known_at_that_time_however_the_input_was_cut(
    case: Case, how: str
) -> None:
    def last(number: int) -> dict[str, Any]:
        return {"id": "end", "deleted": False, "log_time": END * SECOND, "customer": "end", "n": -1}

    output = case.run(as_of(how), [CUSTOMERS, ORDERS], last)
    for key in "ab":
        wanted = []
        for one in case.on_time:
            if one.input == 1 and one.row["customer"] == key:
                found = version(case, 0, key, one.second)
                if found is not None or how == "left":
                    wanted.append((one.n, None if found is None else found.n))
        assert looked_up([row for row in output.get(MAIN, []) if row["customer"] == key]) == wanted
    assert sorted(row["n"] for row in output.get("late.0", [])) == superseded(case, 0)
    late = [one.n for one in case.late if one.input == 1]
    assert sorted(row["n"] for row in output.get("late.1", [])) == late


# ---- two tables --------------------------------------------------------------------------------------

PROFILES = pa.schema([pa.field("customer", pa.string()), *list(CUSTOMERS)[1:]])


def same_key(how: str) -> TableJoin:
    return TableJoin(how, 1, ("log_time", "log_time"), BASIS)


def profile(second: float, n: int, key: str = "a", deleted: bool = False) -> Event:
    made = change(second, n, key, deleted)
    return Event(made.time, {"customer": key, **made.row}, input=1)


def told(rows: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (row["change_time"].timestamp(), "gone")
        if row["deleted"]
        else (row["change_time"].timestamp(), row["left_n"], row["right_n"])
        for row in rows
    ]


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ("inner", [(2, 1, 2), (3, 3, 2), (4, "gone")]),
        ("left", [(1, 1, None), (2, 1, 2), (3, 3, 2), (4, "gone")]),
        ("right", [(2, 1, 2), (3, 3, 2), (4, None, 2), (5, "gone")]),
        ("outer", [(1, 1, None), (2, 1, 2), (3, 3, 2), (4, None, 2), (5, "gone")]),
    ],
)
def test_a_joined_table_changes_with_both(how: str, wanted: list[tuple[Any, ...]]) -> None:
    feed = Feed(same_key(how), [CUSTOMERS, PROFILES], buckets=1)
    changes = [change(1, 1), profile(2, 2), change(3, 3), change(4, 0, deleted=True)]
    changes += [profile(5, 0, deleted=True), change(9, 9, "z"), profile(9, 9, "y")]
    given = feed.batch(changes)[MAIN]
    assert told([row for row in given if row["id"] == "a"]) == wanted
    assert list(given[0])[-3:] == ["deleted", "change_time", "time_basis"]


def test_changes_of_one_instant_are_one_change() -> None:
    feed = Feed(same_key("outer"), [CUSTOMERS, PROFILES])
    changes = [change(1, 1), profile(1, 2), change(1, 3), change(9, 9, "z"), profile(9, 9, "y")]
    assert told(feed.batch(changes)[MAIN]) == [(1, 3, 2)]


def check_changelog(
    rows: Sequence[Mapping[str, Any]], key: str, table_at: Mapping[int, Mapping[Any, Any]]
) -> None:
    """A changelog that, read up to any instant, gives the table of that instant; in order, with one change
    a key and instant, and no deletion of what is not there."""
    told = [row for row in rows if row["change_time"].timestamp() < END]
    last: dict[Any, float] = {}
    for row in told:
        assert last.get(row[key], -1) < row["change_time"].timestamp()
        last[row[key]] = row["change_time"].timestamp()
    for instant, wanted in table_at.items():
        table: dict[Any, Any] = {}
        for row in told:
            if row["change_time"].timestamp() <= instant:
                if row["deleted"]:
                    del table[row[key]]
                else:
                    table[row[key]] = (row["left_n"], row["right_n"])
        assert table == wanted


def both_tables(number: int) -> st.SearchStrategy[Mapping[str, Any]]:
    one = st.tuples(st.sampled_from("ab"), st.booleans(), st.sampled_from(["a", "b", None]))
    return one.map(lambda made: {"id": made[0], "deleted": made[1], "customer": made[2]})


@settings(max_examples=100, deadline=None)
@given(case=cases(both_tables, most=25).map(timed), how=st.sampled_from(["inner", "left", "right", "outer"]))
def test_a_joined_table_is_at_every_instant_the_join_of_the_tables(case: Case, how: str) -> None:
    def last(number: int) -> dict[str, Any]:
        return {"id": "end", "deleted": True, "log_time": END * SECOND, "n": -1}

    output = case.run(same_key(how), [CUSTOMERS, CUSTOMERS], last)
    table_at = {}
    for instant in range(31):
        table_at[instant] = {
            key: (None if left is None else left.n, None if right is None else right.n)
            for key in "ab"
            for left, right in [(version(case, 0, key, instant), version(case, 1, key, instant))]
            if (left is not None and right is not None)
            or (left is not None and how in ("left", "outer"))
            or (right is not None and how in ("right", "outer"))
        }
    check_changelog(output.get(MAIN, []), "id", table_at)
    for number in (0, 1):
        assert sorted(row["n"] for row in output.get(f"late.{number}", [])) == superseded(case, number)


# ---- by a foreign key --------------------------------------------------------------------------------

INVOICES = pa.schema([pa.field("id", pa.string()), pa.field("customer", pa.string()), *list(CUSTOMERS)[1:]])


class ByForeignKey:
    """The three operators in a row, as Spark would run them."""

    def __init__(self, how: str, buckets: int, lateness: Sequence[int], partitions: int) -> None:
        rules = [TimeRules(lateness=late * SECOND) for late in lateness]
        assign = ForeignKeyRoute(1, ("customer",), "log_time")
        self._assign = Feed(assign, [INVOICES], buckets=buckets, rules=rules[0], partitions=partitions)
        sent = assign.channels([INVOICES])[MAIN]
        self._sent = pa.schema([sent.field("customer"), *(one for one in sent if one.name != "customer")])
        match = ForeignKeyJoin(how, 1, ("id",), "log_time", BASIS)
        self._match = Feed(
            match,
            [self._sent, CUSTOMERS],
            buckets=buckets,
            rules={0: TimeRules(), 1: rules[1]},
            partitions=partitions,
        )
        self._joined = match.channels([self._sent, CUSTOMERS])[MAIN]
        self._settle = Feed(ForeignKeyReorder(1), [self._joined], buckets=buckets, partitions=partitions)
        self._partitions = max(1, partitions)
        self.late: list[list[int]] = [[], []]

    def batch(self, events: Sequence[Event]) -> list[dict[str, Any]]:
        sent = self._assign.batch([one for one in events if one.input == 0])
        rights = [one for one in events if one.input == 1]
        results = self._results(self._assign, self._sent, sent.get(MAIN, []), SENT_AT)
        matched = self._match.batch([*results, *rights])
        settled = self._results(self._match, self._joined, matched.get(MAIN, []), "change_time")
        self.late[0] += [row["n"] for row in sent.get("late.0", [])]
        self.late[1] += [row["n"] for row in matched.get("late.1", [])]
        return self._settle.batch(settled).get(MAIN, [])

    def reload(self) -> None:
        for feed in (self._assign, self._match, self._settle):
            feed.reload()

    def _results(
        self, feed: Feed, schema: pa.Schema, rows: Sequence[Mapping[str, Any]], time: str
    ) -> list[Event]:
        """What an operator gave, and how far it has come."""
        results = [Event(round(row[time].timestamp() * SECOND), row) for row in rows]
        watermark = feed.buckets[0].clock.watermark
        if watermark > 0:
            nothing = dict.fromkeys(schema.names)
            partitions = range(self._partitions)
            results += [Event(watermark, nothing, clock=True, partition=one) for one in partitions]
        return sorted(results, key=lambda one: one.time)


def invoice(second: float, n: int, customer: str | None, key: str = "i", deleted: bool = False) -> Event:
    made = change(second, n, key, deleted)
    return Event(made.time, {**made.row, "customer": customer})


def customer(second: float, n: int, key: str = "a", deleted: bool = False) -> Event:
    return change(second, n, key, deleted, input=1)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_rows_follow_their_foreign_key_and_what_it_names(how: str) -> None:
    chain = ByForeignKey(how, 2, (0, 0), 0)
    given = chain.batch([customer(1, 1), invoice(2, 2, "a"), invoice(2, 3, "a", "j"), customer(3, 4)])
    given += chain.batch([invoice(4, 5, "b"), customer(5, 6, "b"), invoice(6, 0, None, deleted=True)])
    given += chain.batch([customer(7, 0, "a", deleted=True), invoice(9, 9, "z", "k"), customer(9, 9, "y")])
    invoices = told([row for row in given if row["id"] == "i"])
    moved = [(4, 5, None)] if how == "left" else [(4, "gone")]
    assert invoices == [(2, 2, 1), (3, 2, 4), *moved, (5, 5, 6), (6, "gone")]
    others = told([row for row in given if row["id"] == "j"])
    assert others == [(2, 3, 1), (3, 3, 4), (7, 3, None) if how == "left" else (7, "gone")]
    assert list(given[0]) == [
        *("id", "customer", "left_n", "left_log_time", "right_n", "right_log_time"),
        *("deleted", "change_time", "time_basis"),
    ]


@settings(max_examples=100, deadline=None)
@given(case=cases(both_tables, most=25).map(timed), how=st.sampled_from(["inner", "left"]))
def test_a_table_joined_by_foreign_key_is_at_every_instant_the_join_of_the_tables(
    case: Case, how: str
) -> None:
    chain = ByForeignKey(how, case.buckets, case.lateness, PARTITIONS)
    fed = [
        Event(one.second * SECOND, one.row, partition=one.partition, input=one.input) for one in case.events
    ]
    end = {"id": "end", "customer": "none", "n": -1, "log_time": END * SECOND, "deleted": True}
    fed += [
        Event(END * SECOND, end, partition=partition, input=number)
        for number in (0, 1)
        for partition in range(PARTITIONS)
    ]
    given: list[dict[str, Any]] = []
    start = 0
    for number, cut in enumerate([*sorted(at for at in case.cuts if at < len(fed)), len(fed)]):
        given += chain.batch(fed[start:cut])
        start = cut
        if number in case.reload_after:
            chain.reload()
    table_at: dict[int, dict[str, Any]] = {}
    for instant in range(31):
        table_at[instant] = {}
        for key in "ab":
            left = version(case, 0, key, instant)
            if left is not None:
                right = version(case, 1, left.row["customer"], instant)
                if right is not None or how == "left":
                    table_at[instant][key] = (left.n, None if right is None else right.n)
    check_changelog(given, "id", table_at)
    for number in (0, 1):
        assert sorted(chain.late[number]) == superseded(case, number)
