"""Rewords errors in options and arguments: the command-line library speaks of its own types."""

from __future__ import annotations

import re
from typing import Any

_WORDS = (
    (r"(.+) is not a valid int(?:eger)?(?: range)?", r"\1 is not a whole number"),
    (r"(.+) is not a valid float(?: range)?", r"\1 is not a number"),
    (r"(.+) is not a valid boolean.*", r"\1 is neither true nor false"),
    (r"(.+) is not in the range (\S+?)<=?x<=?(\S+)", r"\1 is not between \2 and \3"),
    (r"(.+) is not in the range x>=(\S+)", r"\1 is less than \2"),
    (r"(.+) is not in the range x>(\S+)", r"\1 is not more than \2"),
    (r"(.+) is not in the range x<=(\S+)", r"\1 is more than \2"),
    (r"(.+) is not in the range x<(\S+)", r"\1 is not less than \2"),
)


def said(error: Any) -> str:
    """The message of an error of the command-line library, with the option that it is about."""
    text = str(getattr(error, "message", "")).removesuffix(".")
    for pattern, words in _WORDS:
        if (found := re.fullmatch(pattern, text)) is not None:
            error.message = found.expand(words)
            break
    return str(error.format_message()).removesuffix(".")
