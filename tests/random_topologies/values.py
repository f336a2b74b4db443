"""Values of every kind, including odd ones: how they are drawn, written as JSON, and compared.

In the model a timestamp is its microseconds since 1970. Every other value is the obvious Python value.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

SECOND = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOON = (datetime(2026, 1, 1, 12, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)

_STRINGS = ["", "a", "b", "\0", "a\0b", "é", "😀", "null", '"quoted"', "a\nb", " b "]
_DOUBLES = [0.0, -0.0, 1.5, -2.25, 1e10, float("nan"), float("inf"), float("-inf")]
_DECIMALS = ["0.00", "-0.01", "12345678901234567.89", "12345678901234567.88", "5.00", "5", "99.10"]


@dataclass(frozen=True)
class Kind:
    """The type of a column: its name in Spark, how values are drawn, and how JSON writes and reads them."""

    ddl: str
    draw: Callable[[Random], Any]
    to_json: Callable[[Any], Any] = lambda value: value
    from_json: Callable[[Any], Any] = lambda value: value


def time_text(micros: int) -> str:
    return (EPOCH + timedelta(microseconds=micros)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def micros_of(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1)


def _double_text(value: float) -> Any:
    return value if math.isfinite(value) else str(value).replace("inf", "Infinity").replace("nan", "NaN")


KINDS = {
    "string": Kind("string", lambda rng: rng.choice(_STRINGS)),
    "key": Kind("string", lambda rng: rng.choice(["a", "b", "c\0", ""])),
    "bigint": Kind("bigint", lambda rng: rng.randrange(20)),
    "boolean": Kind("boolean", lambda rng: rng.random() < 0.5),
    "double": Kind("double", lambda rng: rng.choice(_DOUBLES), _double_text, float),
    "real": Kind("double", lambda rng: rng.choice(_DOUBLES), _double_text, lambda value: float(value) + 0.0),
    "decimal": Kind("decimal(20,2)", lambda rng: Decimal(rng.choice(_DECIMALS)), str, Decimal),
    "binary": Kind(
        "binary",
        lambda rng: rng.choice([b"", b"\0", b"\xff\xfe", b"a"]),
        lambda value: base64.b64encode(value).decode(),
        base64.b64decode,
    ),
    "timestamp": Kind(
        "timestamp",
        lambda rng: NOON + rng.choice([0, 1, -1, 86_400 * SECOND, -(10**15)]),
        time_text,
        micros_of,
    ),
    "map": Kind(
        "map<string,int>", lambda rng: dict.fromkeys(rng.sample(["a", "b", ""], rng.randrange(3)), 7)
    ),
    "nested": Kind(
        "struct<a:bigint,b:array<string>>",
        lambda rng: {"a": rng.choice([None, 1, 2]), "b": rng.choice([None, [], ["x", None], ["\0"]])},
    ),
    "list": Kind("array<bigint>", lambda rng: [rng.randrange(5)]),
}


class _Digits(str):
    """A JSON number with a fraction, as it is written."""


def record(columns: dict[str, str], values: dict[str, Any]) -> bytes:
    """A JSON record. Decimals are numbers with all their digits."""
    fields = []
    for name, kind in columns.items():
        value = values[name]
        text = "null" if value is None else json.dumps(KINDS[kind].to_json(value))
        if kind == "decimal" and value is not None:
            text = str(value)
        fields.append(f"{json.dumps(name)}: {text}")
    return ("{" + ", ".join(fields) + "}").encode()


def read(columns: dict[str, str], value: bytes) -> dict[str, Any]:
    """The columns of a JSON record that millstream wrote. Columns that are null may be missing."""
    found = json.loads(value, parse_float=_Digits)
    unknown = found.keys() - columns.keys() - {"time_basis"}
    if unknown:
        raise AssertionError(f"columns nobody asked for: {sorted(unknown)} in {value!r}")
    return {name: from_json(kind, found.get(name)) for name, kind in columns.items()}


def from_json(kind: str, value: Any) -> Any:
    return None if value is None else KINDS[kind].from_json(value)


def canonical(kind: str, value: Any) -> str:
    """The same text for equal values. A double's two zeros differ; those of a result (``real``) don't."""
    if kind == "real" and value is not None:
        value = value + 0.0
    if isinstance(value, Decimal):
        value = f"{value:.2f}".replace("-0.00", "0.00")
    if kind == "nested" and value is not None:
        value = {name: value.get(name) for name in ("a", "b")}
    if isinstance(value, dict):
        value = dict(sorted(value.items()))
    return repr(value)


def order(value: Any) -> Any:
    """The key by which Spark compares: NaN is the largest number, and all NaN are equal."""
    if isinstance(value, float) and math.isnan(value):
        return (1, 0.0)
    return (0, value) if isinstance(value, float) else value
