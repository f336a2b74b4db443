"""State that knows what changed in it: saved and loaded at any point, it is what a dictionary is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.pipeline.kernel.state import containers
from millstream.pipeline.kernel.state.containers import OFFSET, PARTITION, SOURCE, TIME, Keyed, WaitingRows
from millstream.pipeline.kernel.state.disk import DiskTable
from millstream.pipeline.kernel.state.keyed_on_table import KeyedOnTable, decode, encode
from millstream.pipeline.kernel.state.store import StateStore
from millstream.pipeline.kernel.state.table import TableId

KEYS = st.integers(0, 12).map(lambda number: ("card", number))
VALUES = st.integers() | st.text(max_size=5) | st.tuples(st.integers(), st.none())
OPERATIONS = st.one_of(
    st.tuples(st.just("put"), KEYS, VALUES, st.none() | st.integers(0, 20)),
    st.tuples(st.just("put_all"), st.dictionaries(KEYS, VALUES, max_size=4), st.none() | st.integers(0, 20)),
    st.tuples(st.just("remove"), KEYS),
    st.tuples(st.just("take_due"), st.integers(0, 20)),
    st.tuples(st.just("fetch"), st.lists(KEYS, max_size=5)),
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("save")),
    st.tuples(st.just("load")),
    st.tuples(st.just("snapshot")),
)


class Model:
    """The same, plainly."""

    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}
        self.dues: dict[Any, int] = {}

    def put(self, key: Any, value: Any, due: int | None) -> None:
        self.values[key] = value
        self.dues.pop(key, None)
        if due is not None:
            self.dues[key] = due

    def remove(self, key: Any) -> None:
        self.values.pop(key, None)
        self.dues.pop(key, None)

    def take_due(self, until: int) -> list[tuple[int, Any, Any]]:
        found = [(due, key, self.values[key]) for key, due in self.dues.items() if due <= until]
        for _, key, _ in found:
            self.remove(key)
        return found


def check_same(keyed: Keyed[Any, Any], model: Model) -> None:
    assert dict(keyed.items()) == model.values
    assert {key: keyed.due_of(key) for key in model.values} == {
        key: model.dues.get(key) for key in model.values
    }
    assert keyed.next_due() == min(model.dues.values(), default=None)
    assert all((key in keyed) == (key in model.values) for key in [("card", number) for number in range(13)])


@settings(max_examples=150, deadline=None)
@given(st.lists(OPERATIONS, max_size=40))
def test_keyed_state_is_a_dictionary_with_due_times_however_it_is_saved_and_loaded(
    operations: list[tuple[Any, ...]],
) -> None:
    store, model = StateStore(), Model()
    keyed = store.keyed("cards")
    saved: list[bytes] = []
    for name, *arguments in operations:
        if name == "put":
            keyed.put(*arguments)
            model.put(*arguments)
        elif name == "put_all":
            keyed.put_all(*arguments)
            for key, value in arguments[0].items():
                model.put(key, value, arguments[1])
        elif name == "remove":
            keyed.remove(*arguments)
            model.remove(*arguments)
        elif name == "take_due":
            taken, expected = keyed.take_due(*arguments), model.take_due(*arguments)
            assert sorted(taken, key=repr) == sorted(expected, key=repr)
            assert [due for due, _, _ in taken] == sorted(due for due, _, _ in expected)
        elif name == "get":
            assert keyed.get(*arguments) == model.values.get(*arguments)
        elif name == "save":
            saved.append(store.changes())
        elif name in ("load", "snapshot"):
            saved.append(store.changes())
            if name == "snapshot":
                saved = list(store.snapshot())
            store = StateStore()
            for blob in saved:
                store.apply(blob)
            keyed = store.keyed("cards")
        check_same(keyed, model)
        assert len(keyed) == len(model.values)


@settings(max_examples=60, deadline=None)
@given(operations=st.lists(OPERATIONS, max_size=40))
def test_keyed_state_on_a_table_is_the_same_whenever_the_table_takes_it_in(
    operations: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Here ``save`` is the end of a batch, ``load`` folds, and ``snapshot`` begins again in front of it."""
    table = DiskTable(tmp_path_factory.mktemp("state"), TableId("job/0", 3))
    store, model = StateStore(table), Model()
    keyed = store.keyed("cards")
    assert isinstance(keyed, KeyedOnTable)
    version, unfolded = 0, []
    for name, *arguments in operations:
        if name in ("save", "load", "snapshot"):
            unfolded.append(store.changes())
            assert len(keyed) == len(model.values)
            version += 1
            if name == "load":
                table.fold(version, {"cards": keyed.in_front()})
                keyed.folded()
                unfolded = list(store.snapshot())  # what stands in front of the table, and how much is in it
            elif name == "snapshot":
                store = StateStore(table)
                for blob in unfolded:
                    store.apply(blob)
                keyed = store.keyed("cards")
                assert isinstance(keyed, KeyedOnTable)
        elif name == "put":
            keyed.put(*arguments)
            model.put(*arguments)
        elif name == "put_all":
            keyed.put_all(*arguments)
            for key, value in arguments[0].items():
                model.put(key, value, arguments[1])
        elif name == "remove":
            keyed.remove(*arguments)
            model.remove(*arguments)
        elif name == "take_due":
            taken, expected = keyed.take_due(*arguments), model.take_due(*arguments)
            assert sorted(taken, key=repr) == sorted(expected, key=repr)
            assert [due for due, _, _ in taken] == sorted(due for due, _, _ in expected)
        elif name == "fetch":
            keyed.fetch(*arguments)
        elif name == "get":
            assert keyed.get(*arguments) == model.values.get(*arguments)
        check_same(keyed, model)
    table.close()


ROWS = pa.schema([(name, pa.int64()) for name in (*WaitingRows.ORDER, "n")])


def rows_at(times: list[int], first: int) -> pa.Table:
    rows = [
        {TIME: time, SOURCE: 0, PARTITION: time % 2, OFFSET: first + at, "n": first + at}
        for at, time in enumerate(times)
    ]
    return pa.Table.from_pylist(rows, schema=ROWS)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.lists(st.integers(0, 30), max_size=6)),
            st.tuples(st.just("let_go"), st.integers(0, 10)),
            st.tuples(st.just("load"), st.booleans()),
        ),
        max_size=30,
    )
)
def test_rows_wait_in_order_until_they_are_let_go_however_they_are_saved_and_loaded(
    operations: list[tuple[str, Any]],
) -> None:
    store = StateStore()
    waiting, saved = store.waiting("rows"), list[bytes]()
    model: list[tuple[int, int, int]] = []
    added, reached = 0, 0
    for name, argument in operations:
        if name == "add":
            times = [reached + time for time in argument]
            waiting.add(rows_at(times, added))
            model += [(time, time % 2, added + at) for at, time in enumerate(times)]
            added += len(times)
        elif name == "let_go":
            reached += argument
            expected = sorted(row for row in model if row[0] < reached)
            model = [row for row in model if row[0] >= reached]
            gone = waiting.let_go(reached)
            assert ([] if gone is None else gone["n"].to_pylist()) == [n for _, _, n in expected]
        else:
            saved.append(store.changes())
            if argument:
                saved = list(store.snapshot())
            store = StateStore()
            for blob in saved:
                store.apply(blob)
            waiting = store.waiting("rows")
        assert len(waiting) == len(model)
        assert waiting.earliest() == min((time for time, _, _ in model), default=None)
        left = waiting.rows()
        assert ([] if left is None else left["n"].to_pylist()) == [n for _, _, n in sorted(model)]


def test_what_nobody_has_asked_for_yet_is_kept_all_the_same() -> None:
    store = StateStore()
    store.keyed("cards").put("a", 1)
    blob = store.changes()
    other = StateStore()
    other.apply(blob)
    third = StateStore()
    for piece in other.snapshot():
        third.apply(piece)
    assert third.keyed("cards").get("a") == 1


def test_a_snapshot_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "PIECE_BYTES", 2000)
    store = StateStore()
    keyed = store.keyed("cards")
    for number in range(1000):
        keyed.put(number, "x" * 20, due=number)
    waiting = store.waiting("rows")
    waiting.add(rows_at(list(range(1000)), 0))
    pieces = list(store.snapshot())
    assert len(pieces) > 20
    assert max(len(piece) for piece in pieces) < 6000
    other = StateStore()
    for piece in pieces:
        other.apply(piece)
    assert dict(other.keyed("cards").items()) == dict(keyed.items())
    assert other.keyed("cards").due_of(7) == 7
    assert other.waiting("rows").rows() == waiting.rows()


def test_times_at_which_nothing_is_due_any_more_are_forgotten() -> None:
    """A key whose life is extended with every event must not leave a trace of each."""
    keyed = Keyed[str, int]()
    for number in range(10_000):
        keyed.put("a", number, due=number)
    assert keyed.next_due() == 9999
    assert len(keyed._order) < 200


@pytest.mark.parametrize(
    "key",
    [
        ("a", 1),
        "a",
        None,
        (None, 1.5, b"x", True),
        (datetime(2026, 1, 1, tzinfo=UTC), "a"),
        (Decimal("1.50"),),
    ],
)
def test_a_key_has_one_encoding(key: Any) -> None:
    assert decode(encode(key)) == key
    text = "ab"
    assert encode((text, text)) == encode(("ab", "".join(["a", "b"])))


def test_equal_parts_of_a_key_need_not_be_the_same_object() -> None:
    one = datetime(2026, 1, 1, tzinfo=UTC)
    other = datetime(2026, 1, 1, tzinfo=UTC)
    assert encode((one, one)) == encode((one, other))


@pytest.fixture
def table(tmp_path: Path) -> Iterator[DiskTable]:
    made = DiskTable(tmp_path, TableId("job/0", 0))
    yield made
    made.close()


def test_keys_that_are_fetched_need_no_trip_each(table: DiskTable, monkeypatch: pytest.MonkeyPatch) -> None:
    store = StateStore(table)
    keyed = store.keyed("cards")
    keyed.put_all(dict.fromkeys(range(100), "x"))
    store.changes()
    assert isinstance(keyed, KeyedOnTable)
    table.fold(1, {"cards": keyed.in_front()})
    keyed.folded()
    trips: list[int] = []
    real = table.get_many
    monkeypatch.setattr(
        table, "get_many", lambda container, keys: trips.append(len(keys)) or real(container, keys)
    )
    keyed.fetch(range(110))
    assert [keyed.get(key) for key in range(110)] == ["x"] * 100 + [None] * 10
    keyed.put(200, "y")  # unread: how much there is has to be looked up once, for all such keys
    keyed.put(201, "y")
    store.changes()
    assert trips == [110, 2]
    assert len(keyed) == 102


def test_the_size_of_what_is_on_a_table_follows_it(table: DiskTable) -> None:
    store = StateStore(table)
    keyed = store.keyed("cards")
    assert isinstance(keyed, KeyedOnTable)
    keyed.put_all(dict.fromkeys(range(50), "x" * 100), due=10)
    store.changes()
    full = keyed.size
    assert full > 5000
    table.fold(1, {"cards": keyed.in_front()})
    keyed.folded()
    keyed.put(0, "", due=20)
    store.changes()
    assert full - 110 < keyed.size < full
    assert len(keyed.take_due(10)) == 49
    store.changes()
    assert len(keyed) == 1
    assert keyed.size < 20
