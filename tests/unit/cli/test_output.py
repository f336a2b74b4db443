from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.cli.terminal.output import ask, show_json, show_table, table_lines
from millstream.core.errors import ConfigError
from millstream.core.units import bytes_text, count, duration_text, listed


def test_a_table_in_a_pipe_is_plain_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(["topic", "records", "age"], [["a", 1_234_567, "1 h"], ["long-name", 5, None]])
    assert capsys.readouterr().out.splitlines() == [
        "topic      records  age",
        "a          1234567  1 h",
        "long-name        5  -",
    ]


def test_a_terminal_gets_grouped_numbers_and_bold_titles() -> None:
    assert list(table_lines(["topic", "records"], [["a", 1_234_567]], 80)) == [
        "\033[1mtopic    records\033[0m",
        "a      1,234,567",
    ]


def test_a_name_too_wide_is_folded_and_a_number_never_cut() -> None:
    lines = list(table_lines(["topic", "records"], [["a-very-long-name-of-a-topic", 1_234_567]], 30))
    assert lines[1:] == ["a-very-long-name-of  1,234,567", "-a-topic"]
    assert len(lines[1]) == 30


@given(
    st.lists(st.tuples(st.text("abc", max_size=60), st.integers(0, 10**12)), min_size=1, max_size=5),
    st.integers(20, 120),
)
def test_whatever_the_width_everything_is_shown(rows: list[tuple[str, int]], width: int) -> None:
    shown = "".join("".join(table_lines(["name", "number"], rows, width)).split())
    for name, number in rows:
        assert f"{number:,}" in shown
        assert all(letter in shown for letter in name)


def test_json_is_readable_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    show_json([{"name": "é", "value": None}])
    out = capsys.readouterr().out
    assert json.loads(out) == [{"name": "é", "value": None}]
    assert "é" in out


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (49_312, "49.3 s"),
        (60_000, "1 min"),
        (90_000, "1 min 30 s"),
        (3_600_000, "1 h"),
        (11_520_000, "3 h 12 min"),
        (86_400_000, "1 d"),
        (10 * 86_400_000 + 5 * 3_600_000, "10 d 5 h"),
        (-5, "0 ms"),
    ],
)
def test_durations_have_their_two_largest_units(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (10_900, "10.9 kB"),
        (999_600, "1 MB"),
        (1_500_000, "1.5 MB"),
        (3_210_000_000, "3.21 GB"),
        (5 * 10**12, "5 TB"),
    ],
)
def test_sizes_are_said_as_people_say_them(size: int, text: str) -> None:
    assert bytes_text(size) == text


def test_counts_have_a_plural() -> None:
    assert [count(n, "record") for n in (0, 1, 12_000)] == ["0 records", "1 record", "12,000 records"]


def test_a_long_list_is_cut_and_says_by_how_much() -> None:
    assert listed(["a", "b", "c"]) == "a, b, c"
    assert listed(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


def test_without_a_terminal_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    ask("Really?", yes=True)
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115 - closed with the test
    with pytest.raises(ConfigError, match="pass --yes"):
        ask("Really?", yes=False)
