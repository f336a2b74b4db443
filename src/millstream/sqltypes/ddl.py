"""The columns of a topic's records: from Spark's DDL, a dataclass or a StructType, without starting Spark.

Types keep Spark's own names. A field is required if it is ``NOT NULL`` in DDL, or if it is a dataclass field
that has no default and is not ``| None``. A record without a required field is rejected.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import re
import types
import typing
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Field:
    """One column. ``type`` is written as Spark writes it, for example ``array<struct<a:int>>``."""

    name: str
    type: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    fields: tuple[Field, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    def field(self, name: str) -> Field | None:
        return next((field for field in self.fields if field.name.lower() == name.lower()), None)

    def ddl(self) -> str:
        """The schema as DDL for Spark. Nothing is NOT NULL here, because required fields are checked
        elsewhere, with a reason for each rejected record."""
        return ", ".join(f"{quoted(field.name)} {field.type}" for field in self.fields)


class SchemaError(ValueError):
    """Not a schema; the message says what is wrong and where."""


def quoted(name: str) -> str:
    """A column's name as an SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def map_parts(kind: str) -> tuple[str, str]:
    """The types of the keys and the values of ``map<string,array<int>>``."""
    depth = 0
    inside = kind[len("map<") : -1]
    for at, mark in enumerate(inside):
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(mark, 0)
        if mark == "," and depth == 0:
            return inside[:at], inside[at + 1 :]
    raise SchemaError(f"{kind} needs a type of keys and one of values")


def schema_of(given: object) -> Schema:
    """The schema that DDL text, a dataclass or a StructType describes. Raises SchemaError for anything
    else."""
    if isinstance(given, str):
        return from_ddl(given)
    if isinstance(given, type) and dataclasses.is_dataclass(given):
        return from_dataclass(given)
    if type(given).__name__ == "StructType":
        return _unique([Field(f.name, f.dataType.simpleString(), not f.nullable) for f in given])  # type: ignore[attr-defined]
    raise SchemaError(
        "a schema is Spark DDL such as 'card string, amount double', a dataclass, or a StructType;"
        f" this is {given!r}"
    )


# ---- DDL ---------------------------------------------------------------------------------------------

_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
_WORDS = """
    boolean tinyint smallint int bigint float double decimal string char varchar binary date timestamp
    timestamp_ntz variant
"""
_SIMPLE = frozenset(_WORDS.split())
_SIZED = {"decimal": (0, 2), "char": (1, 1), "varchar": (1, 1)}
_TOKEN = re.compile(
    r"\s*(?:(?P<word>[^\W\d]\w*|\d+)|`(?P<quoted>(?:[^`]|``)+)`|(?P<text>'[^']*'|\"[^\"]*\")|(?P<mark>\S))"
)


def from_ddl(text: str) -> Schema:
    """``card string NOT NULL, amount double, tags array<string>``"""
    return _unique([Field(name, str(kind), required) for name, kind, required in _Ddl(text).columns()])


def type_tree(text: str) -> TypeTree:
    """The tree of a type, such as ``array<int>``, or of columns, which become those of a struct."""
    ddl = _Ddl(text)
    try:
        found = ddl.type("the type")
        if ddl.at == len(ddl.tokens):
            return found
        ddl.at = 0
    except SchemaError:
        if len(ddl.tokens) < 2 or ddl.at:  # not a list of columns either: columns begin with a name
            raise
    return TypeTree("struct", fields=ddl.columns())


class TypeTree(NamedTuple):
    """A type as in DDL. ``word`` is Spark's name for it; ``inner`` are the types in an array or a map."""

    word: str
    inner: tuple[TypeTree, ...] = ()
    fields: tuple[tuple[str, TypeTree, bool], ...] = ()
    size: tuple[int, ...] = ()

    def __str__(self) -> str:
        inside = [str(each) for each in self.inner]
        inside += [f"{quoted(name)}:{kind}" for name, kind, _ in self.fields]
        if inside:
            return f"{self.word}<{','.join(inside)}>"
        return f"{self.word}({','.join(map(str, self.size))})" if self.size else self.word


class _Ddl:
    """A DDL parser with one token of look-ahead. Its errors quote the token that it found."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        position = 0
        while (match := _TOKEN.match(text, position)) is not None:
            kind = str(match.lastgroup)
            self.tokens.append((kind, match[kind], match.start(kind)))
            position = match.end()
        self.at = 0

    def columns(self) -> tuple[tuple[str, TypeTree, bool], ...]:
        if not self.tokens:
            raise SchemaError("the schema is empty; write it as 'card string, amount double'")
        fields = self.fields()
        if self.at < len(self.tokens):
            raise self.wrong("a comma or the end")
        return fields

    def fields(self) -> tuple[tuple[str, TypeTree, bool], ...]:
        fields = [self.column()]
        while self.take(","):
            fields.append(self.column())
        return tuple(fields)

    def column(self) -> tuple[str, TypeTree, bool]:
        name = self.name()
        self.take(":")
        kind = self.type(name)
        required = False
        if self.take("not"):
            if not self.take("null"):
                raise self.wrong("NULL after NOT")
            required = True
        if self.take("comment") and not self.take_kind("text"):
            raise self.wrong("a quoted text after COMMENT")
        return name, kind, required

    def name(self) -> str:
        kind, text, _ = self.peek()
        if kind == "quoted":
            self.at += 1
            return text.replace("``", "`")
        if kind != "word" or text[0].isdigit():
            raise self.wrong("a column's name")
        self.at += 1
        return text

    def type(self, column: str) -> TypeTree:
        kind, text, _ = self.peek()
        word = _ALIASES.get(text.lower(), text.lower())
        if kind != "word" or not (word in _SIMPLE or word in ("array", "map", "struct")):
            known = ", ".join(sorted(_SIMPLE)) + ", array<...>, map<...>, struct<...>"
            raise self.wrong(f"the type of column {column!r} (one of {known})")
        self.at += 1
        if word == "array":
            self.expect("<")
            inner = self.type(column)
            self.expect(">")
            return TypeTree(word, (inner,))
        if word == "map":
            self.expect("<")
            key = self.type(column)
            self.expect(",")
            value = self.type(column)
            self.expect(">")
            return TypeTree(word, (key, value))
        if word == "struct":
            self.expect("<")
            fields = self.fields()
            self.expect(">")
            return TypeTree(word, fields=fields)
        return TypeTree(word, size=self.size(word))

    def size(self, word: str) -> tuple[int, ...]:
        least, most = _SIZED.get(word, (0, 0))
        numbers: list[str] = []
        if most and self.take("("):
            while True:
                kind, text, _ = self.peek()
                if kind != "word" or not text.isdigit():
                    raise self.wrong(f"a number in {word}(...)")
                numbers.append(text)
                self.at += 1
                if not self.take(","):
                    break
            self.expect(")")
        if not least <= len(numbers) <= most:
            raise SchemaError(
                f"{word} needs {least} to {most} numbers in parentheses, as varchar(20) or decimal(10,2)"
            )
        return tuple(map(int, numbers))

    def peek(self) -> tuple[str, str, int]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "", len(self.text))

    def take(self, text: str) -> bool:
        kind, found, _ = self.peek()
        if kind in ("word", "mark") and found.lower() == text:
            self.at += 1
            return True
        return False

    def take_kind(self, wanted: str) -> bool:
        if self.peek()[0] == wanted:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise self.wrong(repr(text))

    def wrong(self, expected: str) -> SchemaError:
        kind, found, position = self.peek()
        there = "it ends" if kind == "end" else f"there is {found!r} (character {position + 1})"
        return SchemaError(f"in the schema {self.text!r}, {expected} is expected, but {there}")


def _unique(fields: list[Field]) -> Schema:
    seen: set[str] = set()
    for field in fields:
        if field.name.lower() in seen:
            raise SchemaError(f"the schema names column {field.name!r} twice")
        seen.add(field.name.lower())
    return Schema(tuple(fields))


# ---- dataclasses -------------------------------------------------------------------------------------

_PYTHON = {
    str: "string",
    int: "bigint",
    float: "double",
    bool: "boolean",
    bytes: "binary",
    datetime.datetime: "timestamp",
    datetime.date: "date",
    decimal.Decimal: "decimal(38,18)",
}


def from_dataclass(cls: type) -> Schema:
    try:
        hints = typing.get_type_hints(cls)
    except NameError as error:
        raise SchemaError(f"dataclass {cls.__name__}: {error}") from None
    fields = []
    for field in dataclasses.fields(cls):
        kind, optional = _spark_type(hints[field.name], f"{cls.__name__}.{field.name}")
        has_default = (
            field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        )
        fields.append(Field(field.name, kind, required=not optional and not has_default))
    if not fields:
        raise SchemaError(f"dataclass {cls.__name__} has no fields")
    return _unique(fields)


def _spark_type(hint: Any, where: str) -> tuple[str, bool]:
    """Spark's type of an annotation, and whether None is allowed."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kept = [argument for argument in arguments if argument is not type(None)]
        if len(kept) == 1 and len(arguments) == 2:
            return _spark_type(kept[0], where)[0], True
    elif hint in _PYTHON:
        return _PYTHON[hint], False
    elif origin is list and arguments:
        return f"array<{_spark_type(arguments[0], where)[0]}>", False
    elif origin is dict and len(arguments) == 2:
        return f"map<{_spark_type(arguments[0], where)[0]},{_spark_type(arguments[1], where)[0]}>", False
    elif isinstance(hint, type) and dataclasses.is_dataclass(hint):
        inner = from_dataclass(hint)
        return "struct<" + ",".join(f"{quoted(f.name)}:{f.type}" for f in inner.fields) + ">", False
    known = ", ".join(kind.__name__ for kind in _PYTHON)
    raise SchemaError(
        f"{where}: {hint!r} has no Spark type; use {known}, list[...], dict[..., ...], a dataclass,"
        " or one of these with | None"
    )
