"""Writes the nested values of views as JSON.

JSON has no NaN, infinity, bytes or decimals, so they become text: ``"NaN"``, ``"Infinity"``, ``"-Infinity"``,
base64, and all digits of the decimal, because most readers of JSON turn a number into a double. A map is an
object whose names are the text of its keys.
"""

from __future__ import annotations

import base64
import datetime
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from millstream.sqltypes.arrow import arrow_type
from millstream.sqltypes.ddl import SchemaError
from millstream.views.values import float_text, local_time_text, time_text


def json_of(kind: str) -> Callable[[Any], str]:
    """A function that writes nested values of a type."""
    try:
        type_ = arrow_type(kind)
    except SchemaError:
        type_ = pa.null()
    return lambda value: json.dumps(_plain(value, type_), ensure_ascii=False)


def _plain(value: Any, type_: pa.DataType) -> Any:
    """A value of Arrow's as JSON has it. Its type is needed only to recognise an empty map: other maps are
    lists of tuples, which nothing else is."""
    if isinstance(value, list | tuple):
        if pa.types.is_map(type_) or (value and isinstance(value[0], tuple)):
            of = type_ if pa.types.is_map(type_) else pa.map_(pa.null(), pa.null())
            return {_name(key, of.key_type): _plain(inner, of.item_type) for key, inner in value}
        inner_type = type_.value_type if pa.types.is_list(type_) else pa.null()
        return [_plain(inner, inner_type) for inner in value]
    if isinstance(value, dict):
        if pa.types.is_struct(type_):
            return {name: _plain(inner, type_.field(name).type) for name, inner in value.items()}
        return {_name(name, pa.null()): _plain(inner, pa.null()) for name, inner in value.items()}
    if isinstance(value, float):
        return value + 0.0 if math.isfinite(value) else float_text(value)
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, datetime.datetime):
        return local_time_text(value) if value.tzinfo is None else time_text(value)
    if isinstance(value, datetime.date):
        return value.isoformat()
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _name(key: Any, type_: pa.DataType) -> str:
    plain = _plain(key, type_)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
