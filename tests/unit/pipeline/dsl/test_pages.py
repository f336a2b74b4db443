"""The pages about patterns, processors, UDFs and others: their examples are run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[4] / "docs"


@pytest.mark.parametrize(
    ("page", "tests"),
    [("patterns", 3), ("processors", 1), ("udfs", 1), ("deduplicate", 1), ("topics-by-pattern", 1)],
)
def test_the_example_of_the_page_holds(page: str, tests: int) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "guides" / f"{page}.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": page}
    exec(compile(code, f"{page}.md", "exec"), names)
    found = [value for name, value in names.items() if name.startswith("test_")]
    assert len(found) == tests
    for test in found:
        test()
