"""Reads and writes JSON as Spark does, with the SQL functions of JSON."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import math
import re
import uuid
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any

from millstream.pipeline.sql import types
from millstream.pipeline.sql.building import Compiled, Scope, Table, applied, check_count, coerced, strict
from millstream.pipeline.sql.casts import (
    UTC,
    BadValue,
    cast,
    checked,
    double_text,
    fitted,
    float_text,
    from_micros,
    single,
    to_text,
)
from millstream.pipeline.sql.date_patterns import written
from millstream.pipeline.sql.nodes import AnalysisError, Unsupported
from millstream.pipeline.sql.types import INT, STRING, Type

DEFAULT_TIMES = "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"  # how to_json writes times by default
_NOT_NUMBERS = {"NaN": math.nan, "INF": math.inf, "-INF": -math.inf}
_NOT_NUMBERS |= {"Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf, "+INF": math.inf}

_QUOTED = re.compile(r"[\[{,:]\s*'|\\'")  # a text in single quotes begins, or one of them is escaped
_LONE = re.compile("[\ud800-\udfff]")  # half of a character, which Java writes as a question mark

# ---- writing -----------------------------------------------------------------------------------------


def writer(kind: Type, times: str = DEFAULT_TIMES) -> Callable[[Any], str]:
    """A function that writes values that are not null as JSON. Null fields of structs are left out."""
    if kind == STRING:
        return lambda value: json.dumps(value, ensure_ascii=False)
    if kind == types.BOOLEAN or kind in types.INTEGERS:
        return json.dumps
    if types.is_fraction(kind):
        text = float_text if kind == types.FLOAT else double_text
        return lambda value: text(value) if math.isfinite(value) else f'"{text(value)}"'
    if kind.name == "decimal":
        return lambda value: format(value, "f")
    if kind == types.TIMESTAMP:
        return lambda value: f'"{written(value.astimezone(UTC), times)}"'
    if kind == types.NTZ:
        return lambda value: f'"{written(value, times.replace("XXX", ""))}"'
    if kind == types.DATE:
        return lambda value: f'"{value.isoformat()}"'
    if kind == types.BINARY:
        return lambda value: f'"{base64.b64encode(value).decode()}"'
    if kind == types.VOID:
        return lambda value: "null"
    if kind.name == "array":
        element = writer(kind.element, times)
        return lambda value: "[" + ",".join("null" if one is None else element(one) for one in value) + "]"
    if kind.name == "map":
        key, inner = to_text(kind.inner[0]), writer(kind.element, times)
        return lambda value: (
            "{"
            + ",".join(
                f"{json.dumps(key(k), ensure_ascii=False)}:{'null' if v is None else inner(v)}"
                for k, v in value.items()
            )
            + "}"
        )
    if kind.name == "struct":
        parts = [
            (name, json.dumps(name, ensure_ascii=False), writer(inner, times))
            for name, inner in zip(kind.names, kind.inner, strict=True)
        ]
        return lambda value: (
            "{"
            + ",".join(
                f"{shown}:{write(value[name])}" for name, shown, write in parts if value[name] is not None
            )
            + "}"
        )
    raise Unsupported(f"{kind.text} in JSON")


# ---- reading -----------------------------------------------------------------------------------------


class Mismatch(ValueError):
    """A JSON value that its type can't hold."""


class Object(dict[str, Any]):
    """A JSON object with all its fields. Of two with one name the last counts, but Spark shows both."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs


_DECODER = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=Object)
# Functions that take a path, and json_array_length, also accept control characters in texts.
_LENIENT = json.JSONDecoder(parse_float=Decimal, object_pairs_hook=Object, strict=False)


def first_value(text: str, *, strict: bool = True, single_quotes: bool = True) -> Any:
    """The first JSON value in a text. ValueError if there is none."""
    try:
        return (_DECODER if strict else _LENIENT).raw_decode(text.strip(" \t\r\n"))[0]
    except ValueError:
        if single_quotes and _QUOTED.search(text):
            raise Unsupported("JSON with single quotes") from None
        if "-INF" in text:
            raise Unsupported("-INF in JSON") from None
        raise


def compact(value: Any) -> str:
    """A JSON value as text; a string without quotes."""
    return _LONE.sub("?", value) if isinstance(value, str) else _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, Decimal | float):
        number = double_text(float(value))
        return number if math.isfinite(float(value)) else f'"{number}"'
    if isinstance(value, Object):
        inside = (f"{_plain(key)}:{_plain(one)}" for key, one in value.pairs)
        return "{" + ",".join(inside) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_plain, value)) + "]"
    return _LONE.sub(lambda match: f"\\u{ord(match[0]):04X}", json.dumps(value, ensure_ascii=False))


def reader(kind: Type) -> Callable[[Any], tuple[Any, bool]]:
    """A function from a JSON value to a value of the type, and True if all of it could be read. What could
    not be read is null: in a struct the single field, in an array or a map the whole."""
    if kind.name == "array":
        return _list_reader(kind)
    if kind.name in ("map", "struct"):
        return _object_reader(kind)
    convert = _CONVERT.get(kind) or (_to_decimal(kind) if kind.name == "decimal" else None)
    if convert is None:
        raise Unsupported(f"{kind.text} in JSON")

    def read(value: Any) -> tuple[Any, bool]:
        if value is None:
            return None, True
        try:
            return convert(value), True
        except (Mismatch, BadValue, Unsupported, binascii.Error):
            return None, False  # including texts that a cast would read as a time of today

    return read


def _list_reader(kind: Type) -> Callable[[Any], tuple[Any, bool]]:
    element = reader(kind.element)

    def read(value: Any) -> tuple[Any, bool]:
        if value is None:
            return None, True
        if not isinstance(value, list):
            return None, False
        found = [element(one) for one in value]
        if any(one is None and not good for one, good in found):
            return None, False
        return [one for one, _ in found], all(good for _, good in found)

    return read


def _object_reader(kind: Type) -> Callable[[Any], tuple[Any, bool]]:
    if kind.name == "map":
        inner = reader(kind.element)

        def read_map(value: Any) -> tuple[Any, bool]:
            if value is None:
                return None, True
            if not isinstance(value, Object):
                return None, False
            if len(value) < len(value.pairs):
                raise Unsupported("a map with a key twice in JSON")
            found = {compact(key): inner(one) for key, one in value.items()}
            if any(one is None and not good for one, good in found.values()):
                return None, False
            return {key: one for key, (one, _) in found.items()}, all(good for _, good in found.values())

        return read_map
    fields = {name: reader(inner) for name, inner in zip(kind.names, kind.inner, strict=True)}

    def read(value: Any) -> tuple[Any, bool]:
        if value is None:
            return None, True
        if not isinstance(value, dict):
            return None, False
        found = {name: one(value.get(name)) for name, one in fields.items()}
        return {name: one for name, (one, _) in found.items()}, all(good for _, good in found.values())

    return read


def _to_boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Mismatch
    return value


def _to_integer(kind: Type) -> Callable[[Any], int]:
    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Mismatch
        return checked(value, kind)

    return convert


def _to_fraction(value: Any) -> float:
    if isinstance(value, str) and value in _NOT_NUMBERS:
        return _NOT_NUMBERS[value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise Mismatch
    return float(value)


def _to_decimal(kind: Type) -> Callable[[Any], Decimal]:
    def convert(value: Any) -> Decimal:
        if isinstance(value, str):
            if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", value, re.ASCII):
                raise Mismatch
        elif isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise Mismatch
        try:
            return fitted(Decimal(value), kind)
        except InvalidOperation:
            raise Mismatch from None  # more digits than any decimal has

    return convert


def _of_text(kind: Type) -> Callable[[Any], Any]:
    convert = cast(STRING, kind)

    def read(value: Any) -> Any:
        if kind == types.TIMESTAMP and isinstance(value, int) and not isinstance(value, bool):
            return from_micros(value * 1_000_000)
        if not isinstance(value, str):
            raise Mismatch
        return convert(value)

    return read


def _to_binary(value: Any) -> bytes:
    if not isinstance(value, str):
        raise Mismatch
    return base64.b64decode(value, validate=True)


_CONVERT: dict[Type, Callable[[Any], Any]] = {
    STRING: compact,
    types.BOOLEAN: _to_boolean,
    **{kind: _to_integer(kind) for kind in types.INTEGERS},
    types.DOUBLE: _to_fraction,
    types.FLOAT: lambda value: single(_to_fraction(value)),
    types.DATE: _of_text(types.DATE),
    types.TIMESTAMP: _of_text(types.TIMESTAMP),
    types.NTZ: _of_text(types.NTZ),
    types.BINARY: _to_binary,
}

# ---- functions ---------------------------------------------------------------------------------------


def _to_json(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 1, 2)
    if given[0].type.name not in ("struct", "array", "map"):
        raise AnalysisError(f"to_json takes a struct, an array or a map, not {given[0].type.text}")
    times = DEFAULT_TIMES
    if len(given) == 2:
        options = given[1].run([])
        times = options.get("timestampFormat", times)
        without_zone = times.replace("XXX", "")  # as ``writer`` writes them
        known = {"timestampFormat": times, "timestampNTZFormat": without_zone}
        if not options.items() <= known.items():
            raise Unsupported(f"to_json with the options {options}")
    return Compiled(STRING, applied(writer(given[0].type, times), [given[0].run]))


def _from_json(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    from millstream.sqltypes.ddl import SchemaError, from_ddl

    check_count(name, given, 2, 3)
    options = given[2].run([]) if len(given) == 3 else {}
    corrupt = _corrupt_column(options)
    single_quotes = options.get("allowSingleQuotes", "true").lower() == "true"
    if not given[1].constant:
        raise AnalysisError("from_json needs a constant schema")
    text = str(given[1].run([]))
    try:
        kind = types.parse(text)
    except (ValueError, IndexError):
        try:
            kind = types.struct({field.name: types.parse(field.type) for field in from_ddl(text).fields})
        except SchemaError as error:
            raise AnalysisError(str(error)) from None
    read = reader(kind)

    def convert(value: str) -> Any:
        """What can't be read is null. The whole text then goes to the column for corrupt records, if any."""
        try:
            found, good = read(first_value(value, single_quotes=single_quotes))
        except Unsupported:
            raise
        except ValueError:
            found, good = None, False
        if kind.name != "struct":
            return found
        if found is None:
            if not value.strip():
                return None
            found, good = dict.fromkeys(kind.names), False
        if corrupt is None:
            return found
        return found | {corrupt: None if good else value.encode("utf-8", "replace").decode()}

    return Compiled(kind, applied(convert, [coerced(name, given[0], STRING).run]))


def _corrupt_column(options: dict[str, str]) -> str | None:
    unknown = set(options) - {"mode", "columnNameOfCorruptRecord", "allowSingleQuotes"}
    if unknown or options.get("mode", "PERMISSIVE").upper() != "PERMISSIVE":
        raise Unsupported(f"from_json with the options {options}")
    return options.get("columnNameOfCorruptRecord")


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _try_parse(text: str) -> Any:
    """A variant, which is used here only to test whether there is one. Stricter than ``from_json``."""
    try:
        return (json.loads(text, parse_constant=_no_number),)
    except ValueError:
        return None


def _array_length(text: str) -> int | None:
    try:
        value = json.loads(text, parse_constant=_no_number, strict=False)
    except ValueError:
        if _QUOTED.search(text):
            raise Unsupported("JSON with single quotes") from None
        return None
    return len(value) if isinstance(value, list) else None


_STEP = re.compile(r"\.([^.\[\]*']+)|\['((?:[^'\\]|\\.)*)'\]|\[(\d+)\]")


def _json_object(text: str, path: str) -> str | None:
    """Evaluate a path like ``$.a.b[0]`` on a JSON text."""
    if not path.startswith("$") or "".join(m[0] for m in _STEP.finditer(path, 1)) != path[1:]:
        raise Unsupported(f"the JSON path {path!r}")
    try:
        value = first_value(text, strict=False)
    except Unsupported:
        raise
    except ValueError:
        return None
    for step in _STEP.finditer(path, 1):
        name = step[1] if step[1] is not None else step[2] and step[2].replace("\\", "")
        if name is not None:
            if not isinstance(value, dict) or name not in value:
                return None
            value = value[name]
        else:
            if not isinstance(value, list) or int(step[3]) >= len(value):
                return None
            value = value[int(step[3])]
    return None if value is None else compact(value)


def json_ready(value: Any) -> Any:
    """A value that ``json.dumps`` does not know, as a source of JSON would write it."""
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    raise TypeError(f"{value!r} can't be written as JSON")


TABLE: Table = {
    "to_json": _to_json,
    "from_json": _from_json,
    "try_parse_json": strict(_try_parse, (STRING,), Type("variant")),
    "json_array_length": strict(_array_length, (STRING,), INT),
    "get_json_object": strict(_json_object, (STRING, STRING), STRING),
}
