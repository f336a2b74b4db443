"""The examples that exist, by name."""

from __future__ import annotations

import difflib
import importlib

from millstream.core.errors import ConfigError
from millstream.examples.shape import Example

NAMES = ("fraud", "pricing", "trading", "factory", "intrusion", "search")


def all_examples() -> list[Example]:
    return [find(name) for name in NAMES]


def find(name: str) -> Example:
    """An example by its name. An unknown name is reported as the user's mistake."""
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(NAMES)}"
        raise ConfigError(f"there is no example {name!r}; {hint}")
    found: Example = importlib.import_module(f"millstream.examples.{name}").EXAMPLE
    return found
