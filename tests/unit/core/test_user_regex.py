"""Patterns from users: RE2/J's meaning, in bounded time and memory."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.core import user_regex
from millstream.core.user_regex import BadPattern, compile_pattern, search_pattern

TREES = st.recursive(
    st.sampled_from(["a", "b", ".", r"\d", r"\.", "[ab]", "[^a]", "[a-c0-9]", r"\w", "[{3000}]", ""]),
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


@given(TREES, st.text("abc.1{", max_size=6))
def test_a_pattern_matches_what_pythons_own_would(text: str, name: str) -> None:
    assert compile_pattern(text)(name) == (re.compile(text).fullmatch(name) is not None)
    assert search_pattern(text)(name) == (re.compile(text).search(name) is not None)


@pytest.mark.parametrize("text", ["(a+)+(.*)*b", "a*a*a*a*a*a*a*a*b", "(.?){1000}b"])
def test_a_pattern_that_would_stop_pythons_own_is_done_at_once(text: str) -> None:
    matches = compile_pattern(text)
    assert not matches("a" * 249)
    assert matches("a" * 248 + "b")


@pytest.mark.parametrize(
    "text",
    ["(){2000000000}", "a{1001}", "a{1,1001}", "a{1001,}", "a{99999999999999999999}", r"\\{5000}",
     "[]]{2000}", r"\Qa\E{2000}", "[[:alpha:]]{2000}"],
)  # fmt: skip
def test_more_than_a_thousand_repetitions_are_refused_and_named(text: str) -> None:
    with pytest.raises(BadPattern, match="repeats more than 1000 times"):
        compile_pattern(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [("x{0,1000}" * 3640, "add up to more than 2000"), ("x{0,1000}" * 3, "add up to more than 2000"),
     (r"(?i)[^\pL]" * 3000, "more than 100 Unicode classes"), (r"[\PN\pL]" * 51, "more than 100 Unicode")],
)  # fmt: skip
def test_what_re2_would_expand_for_long_is_refused_before_it_sees_it(text: str, why: str) -> None:
    with pytest.raises(BadPattern, match=why):
        compile_pattern(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [("a{1000}", "a" * 1000), (r"\{5000\}", "{5000}"), ("[{5000}]{2}", "50"), (r"\Q{5000}\E", "{5000}"),
     ("a{b}", "a{b}"), ("{,5000}", "{,5000}")],
)  # fmt: skip
def test_braces_that_count_nothing_are_characters(text: str, name: str) -> None:
    assert compile_pattern(text)(name)


@pytest.mark.parametrize(
    "text",
    ["(", ")", "a)", "*a", "a|*", "[", "[b-a]", r"\1", r"(a)\1", "(?=a)", r"\Z", "\\",
     "a{3,2}", "(a{1000}){1000}", "((a{100}){100}){100}", r"(\pL{900}|.{900}){2}", "[" * 32_000,
     "[[:" * 10_000, "x" * 32_768, "\ud800"],
    ids=lambda text: ascii(text[:20]),
)  # fmt: skip
def test_what_is_no_pattern_or_takes_too_much_memory_is_refused(text: str) -> None:
    with pytest.raises(BadPattern) as refused:
        compile_pattern(text)
    assert str(refused.value)


def test_nothing_is_written_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadPattern):
        compile_pattern("(never closed")
    assert capfd.readouterr().err == ""


def test_the_case_of_letters_can_be_left_out_of_account() -> None:
    matches = compile_pattern("(?i)orders-[a-c]+")
    assert matches("ORDERS-Abc")
    assert not matches("ORDERS-Abd")


def test_groups_may_have_names_and_the_ends_another_form() -> None:
    matches = compile_pattern(r"\A(?P<one>a)(?<two>b)\z")
    assert matches("ab")
    assert not matches("abb")


def test_what_is_remembered_is_bounded_and_forgotten_safely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_regex, "_REMEMBERED", 10)
    matches = compile_pattern("remember-[0-9]*[02468]")
    for _ in range(2):
        assert [matches(f"remember-{number}") for number in range(25)] == [n % 2 == 0 for n in range(25)]


class TestWithoutRe2:
    @pytest.fixture(autouse=True)
    def _without(self, monkeypatch: pytest.MonkeyPatch) -> None:
        compile_pattern.cache_clear()
        monkeypatch.setattr(user_regex, "re2", None)
        yield
        compile_pattern.cache_clear()

    @pytest.mark.parametrize("text", ["orders-.*", "^orders-.*$"])
    def test_a_prefix_is_served(self, text: str) -> None:
        matches = compile_pattern(text)
        assert matches("orders-1")
        assert not matches("my-orders-1")

    def test_a_name_is_served(self) -> None:
        matches = compile_pattern(r"orders\.v1")
        assert matches("orders.v1")
        assert not matches("orders.v12")

    @pytest.mark.parametrize("text", ["orders.v1", "a|b", "a+", "(a)", ".*b", "[a]", r"\d"])
    def test_anything_else_is_refused_with_what_to_do(self, text: str) -> None:
        with pytest.raises(BadPattern, match="install"):
            compile_pattern(text)
        with pytest.raises(BadPattern, match="install"):
            search_pattern(text)
