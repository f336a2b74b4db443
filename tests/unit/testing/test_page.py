"""The pages about testing pipelines and about columns: their examples are run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

GUIDES = Path(__file__).resolve().parents[3] / "docs" / "guides"
PAGE, COLUMNS = GUIDES / "testing-pipelines.md", GUIDES / "columns.md"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


@pytest.mark.parametrize(
    "name",
    [
        "test_three_small_payments_and_a_big_one_are_an_alert",
        "test_a_late_payment_is_not_counted_but_not_lost",
    ],
)
def test_the_example_holds(example: dict[str, Any], name: str) -> None:
    example[name]()


def test_the_page_about_columns_holds() -> None:
    first, second = re.findall(r"```python\n(.*?)```", COLUMNS.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(first, str(COLUMNS), "exec"), names)
    names["test_a_column_and_its_text_are_the_same"]()
    exec(compile(second, str(COLUMNS), "exec"), names)


def test_every_test_of_the_example_is_run(example: dict[str, Any]) -> None:
    assert sum(name.startswith("test_") for name in example) == 2


def test_every_method_of_the_driver_is_on_the_page() -> None:
    from millstream.testing import Driver

    text = PAGE.read_text()
    public = [name for name in vars(Driver) if not name.startswith("_") and name != "close"]
    assert [name for name in public if f"driver.{name}" not in text] == []
