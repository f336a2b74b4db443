"""Schemas from DDL and dataclasses, without Spark."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.sqltypes.ddl import Field, SchemaError, from_ddl, schema_of


def test_ddl_gives_names_types_and_what_is_required() -> None:
    schema = from_ddl("card string NOT NULL, amount DECIMAL(10, 2) COMMENT 'in euros', `paid at` timestamp")
    assert schema.fields == (
        Field("card", "string", required=True),
        Field("amount", "decimal(10,2)"),
        Field("paid at", "timestamp"),
    )


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a long", "bigint"),
        ("a INTEGER", "int"),
        ("a: array<map<string, int>>", "array<map<string,int>>"),
        ("a struct<x: int, y: array<string>>", "struct<`x`:int,`y`:array<string>>"),
        ("a timestamp_ltz", "timestamp"),
    ],
)
def test_types_take_sparks_own_spelling(written: str, meant: str) -> None:
    assert from_ddl(written).fields[0].type == meant


@pytest.mark.parametrize(
    ("ddl", "says"),
    [
        ("", "empty"),
        ("card", "it ends"),
        ("card strong", "'strong'"),
        ("card string amount double", "a comma or the end"),
        ("card string,", "a column's name"),
        ("card array<string", "'>'"),
        ("card string, CARD int", "twice"),
        ("card string NOT", "NULL after NOT"),
        ("1card string", "'1'"),
        ("card varchar", "numbers in parentheses"),
    ],
)
def test_wrong_ddl_says_what_is_wrong(ddl: str, says: str) -> None:
    with pytest.raises(SchemaError, match=says.replace("(", r"\(")):
        from_ddl(ddl)


_simple = st.sampled_from(["string", "int", "double", "binary", "decimal(9,2)", "timestamp", "varchar(5)"])
_types = st.recursive(
    _simple,
    lambda inner: st.one_of(
        inner.map("array<{}>".format),
        st.tuples(inner, inner).map(lambda pair: f"map<{pair[0]},{pair[1]}>"),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda many: "struct<" + ",".join(f"`f{i}`:{t}" for i, t in enumerate(many)) + ">"
        ),
    ),
    max_leaves=6,
)


@given(st.lists(_types, min_size=1, max_size=5))
def test_what_is_written_as_ddl_is_read_back_the_same(types: list[str]) -> None:
    ddl = ", ".join(f"`c{i}` {kind}" for i, kind in enumerate(types))
    assert from_ddl(ddl).ddl() == ddl


@given(st.text(max_size=40))
def test_any_text_is_a_schema_or_a_schema_error(text: str) -> None:
    try:
        schema = from_ddl(text)
    except SchemaError:
        return
    assert from_ddl(schema.ddl()).names == schema.names


@dataclass
class Shop:
    name: str


@dataclass
class Payment:
    card: str
    amount: float
    shop: Shop
    paid_at: datetime.datetime
    price: Decimal | None
    tags: list[str] = field(default_factory=list)
    counts: dict[str, int] | None = None


def test_a_dataclass_is_a_schema_and_what_has_no_default_is_required() -> None:
    assert schema_of(Payment).fields == (
        Field("card", "string", required=True),
        Field("amount", "double", required=True),
        Field("shop", "struct<`name`:string>", required=True),
        Field("paid_at", "timestamp", required=True),
        Field("price", "decimal(38,18)"),
        Field("tags", "array<string>"),
        Field("counts", "map<string,bigint>"),
    )


@dataclass
class Odd:
    what: complex


@pytest.mark.parametrize(("given", "says"), [(Odd, "Odd.what"), (17, "this is 17"), (int, "a dataclass")])
def test_what_is_no_schema_is_refused(given: object, says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        schema_of(given)
