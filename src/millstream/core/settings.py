"""How a setting is declared: a dataclass field that knows its meaning, its bounds and its text form."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from millstream.core.errors import ConfigError

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Setting:
    """One declared setting: enough to document it, to check a value and to print one."""

    name: str
    kind: type  # bool, int, float, str, or tuple for a comma-separated list
    default: Any
    doc: str
    at_least: float | None = None
    at_most: float | None = None
    one_of: tuple[str, ...] | None = None
    dynamic: bool = True  # can be changed while the broker runs
    secret: bool = False  # never shown to anyone
    each_like: str | None = None  # a regular expression for each part of a list

    def parse(self, text: str) -> Any:
        """The value that ``text`` means. Raises a ConfigError that says what would be accepted."""
        value: Any
        try:
            if self.kind is bool:
                value = {"true": True, "false": False}[text.strip().lower()]
            elif self.kind is tuple:
                value = tuple(part.strip() for part in text.split(",") if part.strip())
            else:
                value = self.kind(text.strip())
                if self.kind is not str and not _NUMBER.fullmatch(text.strip()):
                    raise ValueError  # Python also takes 1_000, digits of other scripts, and NaN
        except (ValueError, KeyError):
            raise ConfigError(f"{self.name}: {text!r} is not {self.accepted()}") from None
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        if self.kind is int and not -(2**63) <= value < 2**63:
            raise ConfigError(f"{self.name}: {value} does not fit into Kafka's 64-bit numbers")
        if self.at_least is not None and value < self.at_least:
            raise ConfigError(f"{self.name}: {value} is not {self.accepted()}")
        if self.at_most is not None and value > self.at_most:
            raise ConfigError(f"{self.name}: {value} is not {self.accepted()}")
        if self.one_of is not None:
            for part in value if isinstance(value, tuple) else (value,):
                if part not in self.one_of:
                    raise ConfigError(f"{self.name}: {part!r} is not {self.accepted()}")

        if self.each_like is not None:
            for part in value:
                if not re.fullmatch(self.each_like, part):
                    raise ConfigError(f"{self.name}: {part!r} is not {self.accepted()}")

    def accepted(self) -> str:
        """What is accepted, in words that finish the sentence "... is not"."""
        if self.one_of is not None:
            words = ", ".join(self.one_of)
            return f"one of {words}" if self.kind is not tuple else f"a list of {words}"
        if self.each_like is not None:
            return f"a list whose parts are like {self.each_like}"
        noun = {
            bool: "true or false",
            int: "a whole number",
            float: "a number",
            str: "text",
            tuple: "a list",
        }[self.kind]
        if self.at_least is not None and self.at_most is not None:
            return f"{noun} from {self.at_least:,} to {self.at_most:,}"
        if self.at_least is not None:
            return f"{noun} of at least {self.at_least:,}"
        if self.at_most is not None:
            return f"{noun} of at most {self.at_most:,}"
        return noun

    def text(self, value: Any) -> str:
        """The value as Kafka writes it in a configuration entry."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)


def setting(
    default: Any,
    doc: str,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    one_of: tuple[str, ...] | None = None,
    dynamic: bool = True,
    secret: bool = False,
    each_like: str | None = None,
) -> Any:
    """Declare a setting as a dataclass field."""
    return field(
        default=default,
        metadata={
            "doc": " ".join(doc.split()),
            "at_least": at_least,
            "at_most": at_most,
            "one_of": one_of,
            "dynamic": dynamic,
            "secret": secret,
            "each_like": each_like,
        },
    )
