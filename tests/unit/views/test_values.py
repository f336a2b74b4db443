"""Views keep every value of Spark's types exactly, and tell keys apart as Spark does; in both databases."""

from __future__ import annotations

import datetime
import json
import math
import random
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millstream.core.errors import MillstreamError, TopologyError
from millstream.pipeline.run.delivery.changelog import json_object
from millstream.pipeline.run.delivery.view_changes import changes_of
from millstream.views.opening import open_reader, open_store
from millstream.views.values import rank
from millstream.views.views import ChangedRow, Changes, View
from millstream.views.watching import Watcher

NAN = float("nan")


def _single(value: float) -> float:
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    near = st.integers(most - 2, most) | st.integers(-2, 2) | st.integers(-most, most)
    return near.map(lambda digits: Decimal(f"{digits}e-{scale}"))


_odd = st.sampled_from([NAN, -NAN, math.inf, -math.inf, -0.0, 0.0, 5e-324, 1.7976931348623157e308, 0.1])
_when = st.datetimes(datetime.datetime(1, 1, 3), datetime.datetime(9999, 12, 29))  # noqa: DTZ001
_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-128, 127),
    "bigint": st.integers(-(2**63), 2**63 - 1) | st.integers(2**63 - 3, 2**63 - 1),
    "float": _odd.filter(lambda value: value != 1.7976931348623157e308).map(_single) | st.floats(width=32),
    "double": _odd | st.floats(),
    "decimal(9,2)": _decimals(9, 2),
    "decimal(15,15)": _decimals(15, 15),
    "decimal(16,1)": _decimals(16, 1),
    "decimal(18,0)": _decimals(18, 0),
    "decimal(20,0)": _decimals(20, 0),
    "decimal(38,18)": _decimals(38, 18),
    "string": _text | st.sampled_from(["", "NaN", "a", "B", "Ä", "é", "\U0001f600", "\uffff", "1e3", "001"]),
    "binary": st.binary(max_size=4),
    "date": st.dates(),
    "timestamp": _when.map(lambda value: value.replace(tzinfo=datetime.UTC)),
    "timestamp_ntz": _when,
}


def same(value: Any) -> Any:
    """What Spark finds equal is equal: NaN and NaN, -0.0 and 0.0."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def back(value: Any, kind: str) -> Any:
    """A value that was read, as Spark has it."""
    if kind == "float":
        return same(_single(float(value)))
    if kind == "double":
        return same(float(value))
    if kind.startswith("decimal"):
        return Decimal(str(value))
    if kind == "date":
        return datetime.date.fromisoformat(value)
    if kind.startswith("timestamp"):
        assert value.endswith("Z") == (kind == "timestamp")
        return datetime.datetime.fromisoformat(value)
    return value


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "SQLite":
        return str(tmp_path / "views.db")
    return str(request.getfixturevalue("database"))


Rows = list[tuple[Any, ...]]


def written(where: str, view: View, batches: list[Rows]) -> tuple[list[ChangedRow], list[str]]:
    """What the last batch changed, as it goes to a changelog; and the columns."""
    store = open_store(where)
    try:
        store.prepare(view)
        for number, rows in enumerate(batches):
            with store.applying(
                f"q {view.name}", number, [Changes(view, rows, [False] * len(rows))], [view.name]
            ) as applied:
                assert applied is not None
        return applied.changed.get(view.name, []), applied.columns.get(view.name, [])
    finally:
        store.close()


def read(where: str, ask: Callable[[Any], Any]) -> Any:
    reader = open_reader(where)
    try:
        return ask(reader)
    finally:
        reader.close()


@pytest.mark.parametrize("kind", VALUES)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_type_is_exact_as_key_as_value_and_as_order(where: str, kind: str, data: st.DataObject) -> None:
    view = View(
        f"v{uuid.uuid4().hex}", (("k", kind), ("o", kind), ("v", kind), ("n", "int")), ("k",), order="o"
    )
    values = VALUES[kind]
    few = data.draw(st.lists(values, min_size=1, max_size=3))
    entries = st.tuples(st.sampled_from(few), st.none() | values, st.none() | values)
    batches = [
        [(*entry, at) for at, entry in enumerate(batch)]
        for batch in data.draw(st.lists(st.lists(entries, min_size=1, max_size=4), min_size=1, max_size=3))
    ]
    model: dict[Any, tuple[Any, ...]] = {}
    for row in (row for batch in batches for row in batch):
        before = model.get(same(row[0]))
        if before is None or rank(row[1]) >= rank(before[1]):
            model[same(row[0])] = row
    written(where, view, batches)
    _, rows = read(where, lambda reader: reader.all(view.name))
    found = {
        back(row[0], kind): (*(None if value is None else back(value, kind) for value in row[1:3]), row[3])
        for row in rows
    }
    assert len(found) == len(rows)
    assert found == {key: (*map(same, row[1:3]), row[3]) for key, row in model.items()}


def test_large_decimals_are_keys_of_their_own_and_can_be_asked_for(where: str) -> None:
    view = View("accounts", (("account", "decimal(20,0)"), ("owed", "decimal(22,2)")), ("account",))
    numbers = [Decimal("12345678901234567891") + n for n in range(3)]
    changed, columns = written(where, view, [[(number, number / 4) for number in numbers]])
    assert len(changed) == 3
    kinds = dict(view.columns)
    records = [json_object(dict(zip(columns, row or (), strict=True)), kinds) for _, row in changed]
    assert sorted(records)[0] == b'{"account":"12345678901234567891","owed":"3086419725308641972.75"}'
    ((_, owed),) = read(where, lambda reader: reader.get("accounts", ["12345678901234567892.0"]))[1]
    assert Decimal(owed) == numbers[1] / 4


def test_sqlite_orders_and_adds_large_decimals_exactly_where_it_is_asked_to(tmp_path: Path) -> None:
    view = View("owed", (("k", "int"), ("owed", "decimal(38,2)")), ("k",))
    values = ["9.00", "100000000000000000000000000000000001.25", "-5.50", "10.00"]
    written(str(tmp_path / "v.db"), view, [[(at, Decimal(value)) for at, value in enumerate(values)]])
    ordered = read(
        str(tmp_path / "v.db"),
        lambda reader: reader.query("SELECT owed FROM owed ORDER BY owed COLLATE decimal")[1],
    )
    assert [value for (value,) in ordered] == ["-5.50", "9.00", "10.00", values[1]]
    total = read(str(tmp_path / "v.db"), lambda reader: reader.query("SELECT decimal_sum(owed) FROM owed")[1])
    assert total == [("100000000000000000000000000000000014.75",)]


def test_a_key_that_is_asked_for_by_text_is_found_by_its_value(where: str) -> None:
    view = View("doubles", (("k", "double"), ("n", "int")), ("k",))
    written(where, view, [[(NAN, 1), (0.0, 2), (math.inf, 3), (-math.inf, 4), (-0.0, 5), (-NAN, 6)]])
    asked = {"NaN": 6, "0": 5, "Infinity": 3, "-Infinity": 4}
    for key, n in asked.items():
        assert [row[1] for row in read(where, lambda r, key=key: r.get("doubles", [key]))[1]] == [n]


def test_a_change_of_the_row_of_nan_is_an_update(where: str) -> None:
    view = View("doubles", (("k", "double"), ("n", "int")), ("k",))
    changed, _ = written(where, view, [[(NAN, 1)], [(-NAN, 2)]])
    assert [row and row[1] for _, row in changed] == [2]
    with Watcher(where, "doubles", start="changes") as watcher:
        assert [change.kind for change in watcher.read(1)] == ["insert", "update"]


def test_nested_values_are_json_with_maps_as_objects(where: str) -> None:
    kind = (
        "struct<m:map<string,int>,e:map<int,string>,d:decimal(38,18),f:double,b:binary,t:timestamp,"
        "l:timestamp_ntz,a:array<map<date,double>>>"
    )
    view = View("nested", (("k", "int"), ("s", kind), ("m", "map<int,double>")), ("k",))
    local = datetime.datetime(2026, 1, 1, 12)  # noqa: DTZ001
    digits = Decimal("12345678901234567890.123456789012345678")
    nested = {
        "m": [("a", 1), ('"', None)],
        "e": [],
        "d": digits,
        "f": NAN,
        "b": b"\xff",
        "t": local.replace(tzinfo=datetime.UTC),
        "l": local,
        "a": [[(local.date(), -math.inf)], []],
    }
    changed, columns = written(where, view, [[(1, nested, [(7, -0.0)])]])
    expected = {
        "m": {"a": 1, '"': None},
        "e": {},
        "d": str(digits),
        "f": "NaN",
        "b": "/w==",
        "t": "2026-01-01T12:00:00.000000Z",
        "l": "2026-01-01T12:00:00.000000",
        "a": [{"2026-01-01": "-Infinity"}, {}],
    }
    ((_, found, numbers),) = read(where, lambda reader: reader.all("nested"))[1]
    assert json.loads(found) == expected
    assert json.loads(numbers) == {"7": 0.0}
    ((_, row),) = changed
    record = json_object(dict(zip(columns, row or (), strict=True)), dict(view.columns))
    assert json.loads(record) == {"k": 1, "s": expected, "m": {"7": 0.0}}


def test_a_key_or_an_order_that_can_t_be_compared_is_refused(where: str) -> None:
    store = open_store(where)
    columns = (("k", "int"), ("m", "array<map<string,int>>"), ("s", "struct<a:int>"))
    with pytest.raises(
        TopologyError, match=r"a.py:1: view 'v': the key 'm' is array<map.* can't be compared"
    ):
        store.prepare(View("v", columns, ("k", "m")), where="a.py:1")
    with pytest.raises(TopologyError, match=r"view 'v': order='s' is struct<a:int>"):
        store.prepare(View("v", columns, ("k",), order="s"))
    store.close()


def test_another_type_of_a_column_is_refused(where: str) -> None:
    store = open_store(where)
    store.prepare(View("v", (("k", "int"), ("d", "decimal(9,2)")), ("k",)))
    with pytest.raises(
        TopologyError, match=r"column 'd' of view 'v' .* remove it there with: millstream view"
    ):
        store.prepare(View("v", (("k", "int"), ("d", "decimal(22,2)")), ("k",)))
    store.close()


NOTES = View("notes", (("k", "string"), ("note", "string"), ("s", "struct<a:string>")), ("k",))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("two", "a\0b", None), r"column 'note' of the row with k='two': .*NUL"),
        (("two", "", {"a": "x\0"}), r"column 's' of the row with k='two': .*u0000"),
        (("two", "\ud800", None), r"column 'note' of the row with k='two': .*surrogates"),
        (("two\0", "", None), r"column 'k' of the row with k='two\\x00': .*NUL"),
        (
            (random.Random(3).randbytes(4000).hex(), "", None),
            r"the row with k='[0-9a-f]+\.\.\. \(8,002 characters\): index row size",
        ),
    ],
)
def test_a_row_that_postgresql_does_not_take_is_named(database: str, row: tuple[Any, ...], said: str) -> None:
    store = open_store(database)
    store.prepare(NOTES)
    rows = [("one", "fine", None), row, ("three", "fine", None)]
    try:
        with pytest.raises(MillstreamError, match=r"view 'notes' in postgresql://.* can't take " + said):
            store.apply("q", 0, [Changes(NOTES, rows, [False] * 3)])
        assert store.apply("q", 0, [Changes(NOTES, rows[::2], [False] * 2)]) == 0
    finally:
        store.close()


def test_a_row_that_sqlite_does_not_take_is_named_and_a_nul_is_kept(tmp_path: Path) -> None:
    where = str(tmp_path / "views.db")
    written(where, NOTES, [[("a\0b", "c\0d", {"a": "\0"}), ("a", "", None)]])
    assert read(where, lambda reader: reader.get("notes", ["a\0b"]))[1] == [
        ("a\0b", "c\0d", '{"a": "\\u0000"}')
    ]
    with pytest.raises(MillstreamError, match=r"column 'note' of the row with k='x': .*surrogates"):
        written(where, View("other", NOTES.columns, ("k",)), [[("x", "\udfff", None)]])


def test_a_value_that_python_has_no_form_of_is_named() -> None:
    view = View("v", (("k", "string"), ("t", "timestamp"), ("s", "string")), ("k",))
    far = pa.array([0, 2**62], pa.timestamp("us", tz="UTC"))
    broken = pa.Array.from_buffers(
        pa.string(), 2, [*pa.array(["ab", "cd"]).buffers()[:2], pa.py_buffer(b"ab\xff\xff")]
    )
    keys, deleted = pa.array(["a", "b"]), pa.array([False, False])
    fine = pa.table([keys, far.slice(0, 1).take([0, 0]), keys, deleted], list("0123"))
    assert changes_of(view, fine).rows[1][2] == "b"
    for column, values, said in ((1, far, "t"), (2, broken, "s")):
        with pytest.raises(MillstreamError, match=rf"view 'v' .* column '{said}' of the row with k='b': "):
            changes_of(view, fine.set_column(column, str(column), values))
