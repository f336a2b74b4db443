"""A wrong option or argument, in words for people instead of pydantic's, which typer checks values with."""

from __future__ import annotations

from typing import Any

# By pydantic's kind of error; with the value that was given, and the bound or choices that it missed.
_WORDS = {
    "int_parsing": "{value} is not a whole number",
    "int_from_float": "{value} is not a whole number",
    "float_parsing": "{value} is not a number",
    "bool_parsing": "{value} is neither true nor false",
    "greater_than_equal": "{value} is less than {ge}",
    "less_than_equal": "{value} is more than {le}",
    "greater_than": "{value} is not more than {gt}",
    "less_than": "{value} is not less than {lt}",
    "enum": "{value} is none of {expected}",
    "value_error": "{error}",
}


def said(error: Any) -> str:
    """What an error of the command line's library says, and about which option."""
    validation: Any = getattr(error, "__cause__", None)
    if hasattr(error, "message") and hasattr(validation, "errors"):
        found = validation.errors()
        if found and found[0]["type"] in _WORDS:
            # The value as it was typed: bounds are checked after it was made a number.
            value = found[0]["input"]
            shown = repr(value) if isinstance(value, str) else f"{value}"
            error.message = _WORDS[found[0]["type"]].format(value=shown, **found[0].get("ctx", {}))
    return str(error.format_message()).removesuffix(".")
