"""Plain JSON as columns: equal to what a general reader reads, and null wherever that is not sure."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.records.columns.json_values import JsonColumns, JsonField

pytest.importorskip("millstream.records.columns._json", reason="there was no compiler")

FIELDS = [
    JsonField("id", "bigint", required=True),
    JsonField("name", "string"),
    JsonField("näme", "string"),
    JsonField("price", "double"),
    JsonField("paid", "boolean"),
    JsonField("small", "tinyint"),
    JsonField("short", "smallint"),
    JsonField("number", "int"),
    JsonField("at", "timestamp"),
]
RANGES = {"small": 2**7, "short": 2**15, "number": 2**31, "id": 10**18 - 1}


def read(*values: bytes | None) -> list[Any]:
    found = JsonColumns(FIELDS).read(pa.array(values, pa.binary()))
    found.validate(full=True)
    return found.to_pylist()


def whole(name: str) -> st.SearchStrategy[int]:
    most = RANGES[name]
    return st.integers(-most if name != "id" else -most + 1, most - 1)


# Half of a character can't be written as UTF-8, and JSON that spells it out is left to others.
texts = st.text(st.characters(exclude_categories=["Cs"]))
times = st.datetimes(
    datetime.fromisoformat("1600-01-02"),
    datetime.fromisoformat("9999-12-30"),
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-3))]),
)
values = st.fixed_dictionaries(
    {"id": whole("id")},
    optional={
        "name": st.none() | texts,
        "näme": texts,
        "price": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "paid": st.booleans(),
        "small": whole("small"),
        "short": whole("short"),
        "number": st.none() | whole("number"),
        "at": times,
        "other": st.recursive(
            st.none() | st.booleans() | st.integers() | texts,
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
            max_leaves=5,
        ),
    },
)


def written(value: dict[str, Any], *, ascii: bool = False, indent: int | None = None) -> bytes:
    plain = {name: each.isoformat() if isinstance(each, datetime) else each for name, each in value.items()}
    return json.dumps(plain, ensure_ascii=ascii, indent=indent).encode()


@given(st.lists(values, min_size=1, max_size=5), st.sampled_from([None, 2]))
def test_what_json_writes_is_plain(rows: list[dict[str, Any]], indent: int | None) -> None:
    found = read(*(written(row, indent=indent) for row in rows))
    assert found == [{field.name: row.get(field.name) for field in FIELDS} for row in rows]


@given(values, st.data())
def test_what_is_plain_is_what_a_general_reader_reads(row: dict[str, Any], data: st.DataObject) -> None:
    """Of bytes that were changed at random: nothing is read that is not JSON, or otherwise than as JSON."""
    text = bytearray(written(row, ascii=data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        change = data.draw(
            st.sampled_from([b"", b'"', b"\\", b"0", b"-", b"e", b",", b"{", b"}", b"\xc3", b" "])
        )
        text[at : at + data.draw(st.integers(0, 2))] = change
        text = text or bytearray(b" ")
    (found,) = read(bytes(text))
    if found is None:
        return
    expected = json.loads(text.decode(), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    for field in FIELDS:
        value = expected.get(field.name)
        if field.kind == "timestamp" and value is not None:
            value = datetime.fromisoformat(value)
        assert found[field.name] == value, (field, text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "null",
        "[]",
        "{}",  # lacks what is required
        '{"id": null}',
        '{"id": 1',
        '{"id": 1,}',
        '{"id": 1} {"id": 2}',
        '{"id": 1} x',
        '{"id": 01}',
        '{"id": -0}',
        '{"id": 1.0}',
        '{"id": 1e3}',
        '{"id": "1"}',
        '{"id": 9223372036854775808}',
        '{"id": 1, "small": 128}',
        '{"id": 1, "number": 2147483648}',
        '{"id": 1, "name": 7}',
        '{"id": 1, "name": "a\nb"}',
        '{"id": 1, "name": "\\x"}',
        '{"id": 1, "name": "\\ud83d\\ude00"}',  # a character in two halves
        '{"id": 1, "na\\u006de": "a"}',
        '{"id": 1, "price": NaN}',
        '{"id": 1, "price": -0}',
        '{"id": 1, "price": 1e400}',
        '{"id": 1, "price": .5}',
        '{"id": 1, "price": 5.}',
        '{"id": 1, "paid": "true"}',
        '{"id": 1, "paid": truex}',
        '{"id": 1, "at": "2026-02-29T00:00:00Z"}',
        '{"id": 1, "at": "2026-02-01T24:00:00Z"}',
        '{"id": 1, "at": "2026-02-01T00:00:00"}',  # in whose zone?
        '{"id": 1, "at": "2026-02-01T00:00:00.1234567Z"}',
        '{"id": 1, "at": "2026-02-01"}',
        '{"id": 1, "at": 1700000000}',
        "{'id': 1}",
        '{"id": 1, "other": [1, 2}',
        '{"id": 1, "other": tru}',
        '{"id": 1, "other": ' + "[" * 100 + "]" * 100 + "}",
    ],
)
def test_what_is_not_plain_is_left_to_others(text: str) -> None:
    assert read(text.encode(), b'{"id": 7}')[0] is None
    assert read(text.encode(), b'{"id": 7}')[1]["id"] == 7


@pytest.mark.parametrize(
    "bad", [b"\xff", b"\xc3", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"]
)
def test_what_is_not_utf8_is_not_plain(bad: bytes) -> None:
    assert read(b'{"id": 1, "name": "' + bad + b'"}', b'{"id": 1, "o' + bad + b'": 2}') == [None, None]


def test_what_has_no_value_is_not_plain_and_slices_are_read_where_they_stand() -> None:
    values = pa.array([b'{"id": 1}', None, b'{"id": 3}', b""], pa.binary())
    columns = JsonColumns([JsonField("id", "bigint")])
    assert columns.read(values).to_pylist() == [{"id": 1}, None, {"id": 3}, None]
    assert columns.read(values.slice(1, 2)).to_pylist() == [None, {"id": 3}]
    assert columns.read(values.slice(0, 0)).to_pylist() == []
    assert columns.read(pa.array([None], pa.binary())).to_pylist() == [None]


def test_of_two_fields_with_one_name_the_later_counts() -> None:
    assert [row["id"] for row in read(b'{"id": 1, "id": 2}')] == [2]
    assert read(b'{"id": 1, "id": null}') == [None]


@given(st.integers(-(10**25), 10**25), st.integers(-330, 300))
def test_numbers_are_rounded_as_python_rounds_them(mantissa: int, exponent: int) -> None:
    text = f"{mantissa}.{abs(mantissa) % 977}e{exponent}"
    (found,) = read(f'{{"id": 1, "price": {text}}}'.encode())
    if math.isinf(float(text)):
        assert found is None
    else:
        assert found["price"] == float(text)
