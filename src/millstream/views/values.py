"""Values of Spark's types as views keep them: keys, numbers, times, and what ``order=`` compares.

Rule 1: a value is kept exactly, or the view is refused before it is written.

Rule 2: two values that Spark finds equal are one key in either database. So NaN equals NaN and is greater
than any other number, and -0.0 equals 0.0.

Nothing here needs Arrow or Spark, because readers of views have neither. ``view_json`` is for nested values.
"""

from __future__ import annotations

import base64
import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from millstream.core.errors import MillstreamError

NESTED = ("array", "map", "struct", "variant")
TEXTS = ("string", "char", "varchar")
EXACT = "DECIMAL TEXT"  # the type of SQLite's columns for decimals with more digits than its numbers have
COLLATION = "decimal"  # the collation that orders them; SQLite's shell also has one of this name
_ORDERED = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal"),
    *(*TEXTS, "binary", "date", "timestamp", "timestamp_ntz"),
)


class JsonText(str):
    """A nested value as readers return it: its JSON. The separate class tells it from plain text."""

    __slots__ = ()


def base_of(kind: str) -> str:
    """``decimal`` of ``decimal(9,2)``, ``array`` of ``array<int>``."""
    return kind.partition("(")[0].partition("<")[0]


def has_order(kind: str) -> bool:
    """True if Spark and both databases order values of a type alike."""
    return base_of(kind) in _ORDERED


def is_key(kind: str) -> bool:
    """True if values of a type can be told apart: Spark does not compare maps."""
    return "map<" not in kind and base_of(kind) != "variant"


def key_bytes(value: str, column: str) -> bytes:
    """The bytes of a binary key as a person gives it: in base64, as binary values are shown."""
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:  # also for text that is not ASCII
        raise MillstreamError(
            f"the key column {column!r} is binary: give its value in base64, as `view query` shows it"
        ) from None


# ---- numbers -----------------------------------------------------------------------------------------


def digits_of(kind: str) -> tuple[int, int]:
    """Precision and scale of a decimal."""
    precision, _, scale = kind.partition("(")[2].rstrip(")").partition(",")
    return int(precision or 10), int(scale or 0)


def is_number(kind: str) -> bool:
    """True if a double or a 64-bit integer keeps all decimals of a type distinct and in order. A double does
    so up to 15 digits."""
    precision, scale = digits_of(kind)
    return precision <= 15 or (scale == 0 and precision <= 18)


def decimal_text(kind: str) -> Callable[[Any], str]:
    """A function that gives the one text of a decimal: all digits of its scale, no exponent, no negative
    zero."""
    scale = digits_of(kind)[1]

    def text(value: Any) -> str:
        number = Decimal(str(value))
        return f"{number or Decimal(0):.{scale}f}"

    return text


def compare_decimals(one: str, other: str) -> int:
    """The comparison for the collation ``decimal``."""
    try:
        a, b = Decimal(one), Decimal(other)
    except ArithmeticError:
        return (one > other) - (one < other)
    return (a > b) - (a < b)


def float_text(value: float) -> str:
    """The text of a double that is NaN or infinite."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def rank(value: Any) -> tuple[Any, ...]:
    """The sort key for values of an order column: nulls first, NaN last."""
    if value is None:
        return (0,)
    return (2,) if value != value else (1, value)


# ---- times -------------------------------------------------------------------------------------------


def time_text(value: datetime.datetime) -> str:
    """``2026-01-31T12:00:00.000000Z``: always UTC and of one length, so that text order is time order."""
    if value.tzinfo is None:
        value = value.astimezone()  # Spark returns timestamps in the machine's own zone
    return value.astimezone(datetime.UTC).isoformat(timespec="microseconds")[:26] + "Z"


def local_time_text(value: datetime.datetime) -> str:
    """``2026-01-31T12:00:00.000000``: a wall-clock time without a zone."""
    return value.replace(tzinfo=None).isoformat(timespec="microseconds")
