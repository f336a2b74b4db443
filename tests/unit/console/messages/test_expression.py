"""The language that records are filtered by."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.console.messages.expression import ExpressionError, parse

VALUE: dict[str, Any] = {
    "user": {"id": 7, "name": "Ann", "admin": True},
    "eur": 12.5,
    "country": "DE",
    "items": [{"sku": "A-1", "n": 1}, {"sku": "B-2", "n": 3}],
    "tags": ["new", "gift"],
    "coupon": None,
    "strange name": 1,
    "and": 2,
}
RECORD = {
    "value": VALUE,
    "key": "c1",
    "header": {"trace": "00-ab"},
    "offset": 100,
    "partition": 3,
    "size": 64,
    "timestamp": 1_700_000_000_000,
}


def matches(text: str, record: dict[str, Any] = RECORD) -> bool:
    return parse(text).matches(record)


@pytest.mark.parametrize(
    "text",
    [
        "$.user.id = 7",
        "$.user.id == 7.0",
        "$.user.id != 8",
        "$.eur > 12 and $.eur <= 12.5",
        '$.country = "DE"',
        "$.country = 'DE'",
        '$.country >= "DA"',
        "$.user.admin = true",
        "$.coupon = null",
        "$.coupon",
        "$.items[0].sku = 'A-1'",
        "$.items[-1].n = 3",
        "$.items[*].sku startswith 'B'",
        "$.items[*].n > 2",
        "$.*.name endswith 'nn'",
        "$.tags contains 'gift'",
        "$.user.name contains 'nn'",
        '$["strange name"] = 1',
        "$.and = 2",
        "not $.nothing",
        "not $.nothing = 1 and ($.eur < 1 or $.eur > 1)",
        "key = 'c1' and header.trace contains 'ab'",
        "offset >= 100 and partition = 3 and size < 100 and timestamp > 1",
        "$.user.id=7 AND NOT $.user.id=8",
    ],
)
def test_holds(text: str) -> None:
    assert matches(text)


@pytest.mark.parametrize(
    "text",
    [
        "$.user.id = 8",
        "$.user.id = '7'",  # like with like
        "$.user.admin = 1",
        "$.eur > '1'",
        "$.nothing != 1",  # what is not there satisfies nothing
        "$.nothing = null",
        "$.items[7]",
        "$.items.sku",
        "$.coupon > 0",
        "$.tags contains 'gif'",
        "$.eur contains '2'",
        "header.nothing",
        "$.user.id = 7 and $.eur = 0",
        "not ($.user.id = 7 or $.eur = 0)",
    ],
)
def test_does_not_hold(text: str) -> None:
    assert not matches(text)


def test_and_binds_closer_than_or() -> None:
    assert matches("$.user.id = 7 or $.user.id = 8 and $.eur = 0")


def test_a_value_that_is_no_document_is_a_text() -> None:
    assert matches("$ contains 'ell'", {**RECORD, "value": "hello"})
    assert not matches("$.user.id = 7", {**RECORD, "value": "hello"})
    assert matches("$ = null", {**RECORD, "value": None})


@pytest.mark.parametrize(
    ("text", "at", "said"),
    [
        ("", 0, "expected a path"),
        ("user.id = 7", 0, "expected a path"),
        ("$.user.id = ", 12, "expected a value"),
        ("$.user.id = seven", 12, "expected a value"),
        ("$.user.id 7", 10, "expected `and`, `or` or the end"),
        ("$.user. = 7", 8, "expected the name of a field"),
        ("$.items[x]", 8, "expected an index"),
        ("$.items[0", 9, "expected `]`"),
        ("($.a = 1", 8, "expected `)`"),
        ("$.a = 1 and", 11, "expected a path"),
        ("$.a ~ 1", 4, "'~' is not valid here"),
        ("$.a = 'x", 6, "is not valid here"),
        ("$.a = 007", 6, "007 is not a number"),
        (r"$.a = 'x\q'", 6, "as JSON writes it"),
        ("(" * 60 + "$.a" + ")" * 60, 51, "nested too deeply"),
        ("$.a = " + "1" * 2000, 1000, "at most 1000 characters"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, at: int, said: str) -> None:
    with pytest.raises(ExpressionError) as raised:
        parse(text)
    assert said in str(raised.value)
    assert raised.value.at == at


def test_it_tells_what_it_looks_at() -> None:
    assert parse("key = 'a' or $.b").uses == {"key", "value"}
    assert parse("offset > 1").uses == {"offset"}


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
SAID = "$ .a .b [0] [*] .* = != < contains 1 'x' null true and or not ( ) key é \""
words = st.sampled_from(SAID.split()).flatmap(lambda word: st.sampled_from([word, f" {word} "]))


@given(st.lists(words, max_size=12).map("".join), documents)
def test_whatever_is_typed_it_is_an_answer_or_a_mistake(text: str, value: Any) -> None:
    try:
        expression = parse(text)
    except ExpressionError as error:
        mistake: ExpressionError | None = error
    else:
        mistake = None
    if mistake is not None:
        assert 0 <= mistake.at <= len(text)
        return
    answer = expression.matches({"value": value, "key": None})
    assert answer in (True, False)
    assert parse(f"not ({text})").matches({"value": value, "key": None}) is not answer
