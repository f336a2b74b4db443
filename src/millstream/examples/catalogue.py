"""All examples, by name."""

from __future__ import annotations

import importlib

from millstream.core.errors import ConfigError
from millstream.core.units import did_you_mean
from millstream.examples.example import Example

NAMES = ("fraud", "pricing", "trading", "factory", "intrusion", "search")


def all_examples() -> list[Example]:
    return [find(name) for name in NAMES]


def find(name: str) -> Example:
    """An example by its name. Raises ConfigError, with the names that exist, for an unknown one."""
    if name not in NAMES:
        hint = did_you_mean(name, NAMES) or f"there are: {', '.join(NAMES)}"
        raise ConfigError(f"there is no example {name!r}; {hint}")
    found: Example = importlib.import_module(f"millstream.examples.{name}").EXAMPLE
    return found
