"""Patterns from clients: Python's meaning, without its price."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.broker.pattern import BadPattern, compile_pattern

TREES = st.recursive(
    st.sampled_from(["a", "b", ".", r"\d", r"\.", "[ab]", "[^a]", "[a-c0-9]", r"\w", "é", ""]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        inner.map(lambda part: f"^{part}$"),
    ),
    max_leaves=6,
)


@given(TREES, st.text("abc.1é", max_size=6))
def test_a_pattern_matches_what_pythons_own_would(pattern: str, text: str) -> None:
    assert compile_pattern(pattern)(text) == (re.compile(pattern, re.DOTALL).fullmatch(text) is not None)


def test_a_pattern_that_would_stop_pythons_own_is_done_at_once() -> None:
    matches = compile_pattern("(a+)+(.*)*b")
    assert not matches("a" * 2000)
    assert matches("a" * 2000 + "b")


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a)", "*a", "a|*", "[", "[b-a]", r"\1", r"(a)\1", "(?=a)", "(?P<1>a)", "a(?i)b", r"\Z", "\\",
     "a{3,2}", "(a{1000}){1000}", "(" * 100 + ")" * 100, "x" * 1001],
)  # fmt: skip
def test_what_is_not_served_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        compile_pattern(pattern)


def test_the_case_of_letters_can_be_left_out_of_account() -> None:
    matches = compile_pattern("(?i)orders-[a-c]+")
    assert matches("ORDERS-Abc")
    assert not matches("ORDERS-Abd")


def test_groups_may_have_names_and_the_ends_another_form() -> None:
    matches = compile_pattern(r"\A(?P<one>a)(?<two>b)\z")
    assert matches("ab")
    assert not matches("abb")


def test_what_is_remembered_is_bounded_and_forgotten_safely() -> None:
    matches = compile_pattern("[^b]*b")
    for character in range(0x4E00, 0x4E00 + 12_000):
        assert matches(f"{chr(character)}b")
    assert not matches("bb")


def test_braces_that_count_nothing_are_characters() -> None:
    assert compile_pattern("a{b}")("a{b}")
