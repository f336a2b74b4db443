"""Rewords errors in options and arguments for people, because typer reports them in pydantic's words."""

from __future__ import annotations

from typing import Any

# By pydantic's type of error. The placeholders are the given value, and the bound or choices it missed.
_WORDS = {
    "int_parsing": "{value} is not a whole number",
    "int_from_float": "{value} is not a whole number",
    "float_parsing": "{value} is not a number",
    "bool_parsing": "{value} is neither true nor false",
    "greater_than_equal": "{value} is less than {ge}",
    "less_than_equal": "{value} is more than {le}",
    "greater_than": "{value} is not more than {gt}",
    "less_than": "{value} is not less than {lt}",
    "enum": "{value} is not one of {expected}",
    "value_error": "{error}",
}


def said(error: Any) -> str:
    """The message of an error of the command-line library, with the option that it is about."""
    validation: Any = getattr(error, "__cause__", None)
    if hasattr(error, "message") and hasattr(validation, "errors"):
        found = validation.errors()
        if found and found[0]["type"] in _WORDS:
            # A string is shown in quotes, as it was typed. Bounds are checked after parsing, on a number.
            value = found[0]["input"]
            shown = repr(value) if isinstance(value, str) else f"{value}"
            error.message = _WORDS[found[0]["type"]].format(value=shown, **found[0].get("ctx", {}))
    return str(error.format_message()).removesuffix(".")
