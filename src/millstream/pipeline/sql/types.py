"""Spark's types as values: their names, their Arrow types, and the type that two of them have in common.

The rules are those of Spark's ANSI mode, in which Spark 4 runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Type:
    """``decimal(10,2)`` has a size, ``array<int>`` an inner type, ``struct<a:int>`` names for those too."""

    name: str
    inner: tuple[Type, ...] = ()
    names: tuple[str, ...] = ()
    size: tuple[int, int] = (0, 0)

    @property
    def text(self) -> str:
        """The type as Spark writes it."""
        if self.name == "decimal":
            return f"decimal({self.size[0]},{self.size[1]})"
        if self.name == "struct":
            fields = zip(self.names, self.inner, strict=True)
            return "struct<" + ",".join(f"{name}:{kind.text}" for name, kind in fields) + ">"
        if self.inner:
            return f"{self.name}<{','.join(kind.text for kind in self.inner)}>"
        return _SHOWN.get(self.name, self.name)

    @property
    def element(self) -> Type:
        """The type of an array's elements, or of a map's values."""
        return self.inner[-1]

    def field(self, name: str) -> tuple[str, Type] | None:
        """A field of a struct by its name, whatever its case; None if there is none."""
        for field, kind in zip(self.names, self.inner, strict=True):
            if field.lower() == name.lower():
                return field, kind
        return None


VOID, BOOLEAN, STRING, BINARY = Type("void"), Type("boolean"), Type("string"), Type("binary")
TINYINT, SMALLINT, INT, BIGINT = Type("tinyint"), Type("smallint"), Type("int"), Type("bigint")
FLOAT, DOUBLE = Type("float"), Type("double")
DATE, TIMESTAMP, NTZ = Type("date"), Type("timestamp"), Type("timestamp_ntz")
# The kinds of interval. A date plus an interval of only days is still a date.
DAYS, DAYTIME, MONTHS = Type("days"), Type("daytime"), Type("months")
_SHOWN = {"days": "interval day", "daytime": "interval day to second", "months": "interval year to month"}

INTEGERS = {TINYINT: 8, SMALLINT: 16, INT: 32, BIGINT: 64}
_RANK = [TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE]
_DIGITS = {TINYINT: 3, SMALLINT: 5, INT: 10, BIGINT: 20}
_MOST_DIGITS = 38
_SIMPLE: dict[Type, pa.DataType] = {
    VOID: pa.null(),
    BOOLEAN: pa.bool_(),
    STRING: pa.string(),
    BINARY: pa.binary(),
    TINYINT: pa.int8(),
    SMALLINT: pa.int16(),
    INT: pa.int32(),
    BIGINT: pa.int64(),
    FLOAT: pa.float32(),
    DOUBLE: pa.float64(),
    DATE: pa.date32(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    NTZ: pa.timestamp("us"),
    DAYS: pa.duration("us"),
    DAYTIME: pa.duration("us"),
}
_OF_ARROW = {arrow: kind for kind, arrow in _SIMPLE.items()} | {
    pa.large_string(): STRING,
    pa.large_binary(): BINARY,
}


def decimal(precision: int, scale: int) -> Type:
    """A decimal type within Spark's limit. If there are too many digits, the fraction is cut, but not below
    six digits."""
    if precision > _MOST_DIGITS:
        before = precision - scale
        scale = max(_MOST_DIGITS - before, min(scale, 6))
        precision = _MOST_DIGITS
    return Type("decimal", size=(precision, scale))


def array(element: Type) -> Type:
    return Type("array", (element,))


def struct(fields: dict[str, Type]) -> Type:
    return Type("struct", tuple(fields.values()), tuple(fields))


def mapping(key: Type, value: Type) -> Type:
    return Type("map", (key, value))


def is_number(kind: Type) -> bool:
    return kind in _RANK or kind.name == "decimal"


def is_fraction(kind: Type) -> bool:
    return kind in (FLOAT, DOUBLE)


def as_decimal(kind: Type) -> Type:
    return kind if kind.name == "decimal" else decimal(_DIGITS[kind], 0)


# ---- Arrow and text ----------------------------------------------------------------------------------


def to_arrow(kind: Type) -> pa.DataType:
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if kind.name == "decimal":
        return pa.decimal128(*kind.size)
    if kind.name == "array":
        return pa.list_(to_arrow(kind.element))
    if kind.name == "map":
        return pa.map_(to_arrow(kind.inner[0]), to_arrow(kind.inner[1]))
    if kind.name == "struct":
        fields = zip(kind.names, kind.inner, strict=True)
        return pa.struct([pa.field(name, to_arrow(inner)) for name, inner in fields])
    raise TypeError(f"a column can't be of type {kind.text} here")


def from_arrow(arrow: pa.DataType) -> Type:
    if arrow in _OF_ARROW:
        return _OF_ARROW[arrow]
    if pa.types.is_timestamp(arrow):
        return NTZ if arrow.tz is None else TIMESTAMP
    if pa.types.is_decimal(arrow):
        return Type("decimal", size=(arrow.precision, arrow.scale))
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow):
        return array(from_arrow(arrow.value_type))
    if pa.types.is_map(arrow):
        return mapping(from_arrow(arrow.key_type), from_arrow(arrow.item_type))
    if pa.types.is_struct(arrow):
        return struct({field.name: from_arrow(field.type) for field in arrow})
    raise TypeError(f"Arrow's {arrow} has no type in Spark")


def arrow_schema(fields: dict[str, Type]) -> pa.Schema:
    return pa.schema([pa.field(name, to_arrow(kind)) for name, kind in fields.items()])


def parse(text: str) -> Type:
    """A type as ``sqltypes.ddl`` or Spark writes it: ``struct<`a`:array<int>,b:decimal(10,2)>``."""
    kind, rest = _parse(text.strip())
    if rest:
        raise ValueError(f"{text!r} is not a type")
    return kind


def _parse(text: str) -> tuple[Type, str]:
    end = next((at for at, mark in enumerate(text) if mark in "<(,>"), len(text))
    word, rest = text[:end].strip().lower(), text[end:]
    if word in ("decimal", "dec", "numeric"):
        if not rest.startswith("("):
            return decimal(10, 0), rest
        inside, _, rest = rest[1:].partition(")")
        numbers = [int(number) for number in inside.split(",")]
        return Type("decimal", size=(numbers[0], numbers[1] if len(numbers) > 1 else 0)), rest
    if word in ("char", "varchar"):
        return STRING, rest.partition(")")[2]
    if word == "array":
        element, rest = _parse(rest[1:])
        return array(element), rest[1:]
    if word == "map":
        key, rest = _parse(rest[1:])
        value, rest = _parse(rest[1:])
        return mapping(key, value), rest[1:]
    if word == "struct":
        fields: dict[str, Type] = {}
        rest = rest[1:]
        while not rest.startswith(">"):
            name, rest = _field_name(rest.lstrip(", "))
            fields[name], rest = _parse(rest)
        return struct(fields), rest[1:]
    found = Type(_ALIASES.get(word, word))
    if found not in _SIMPLE:
        raise ValueError(f"{word!r} is not a known type")
    return found, rest


def _field_name(text: str) -> tuple[str, str]:
    if text.startswith("`"):
        end = text.index("`:", 1)
        return text[1:end].replace("``", "`"), text[end + 2 :]
    name, _, rest = text.partition(":")
    return name.strip(), rest


_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}


# ---- what two types have in common -------------------------------------------------------------------


def common(one: Type, other: Type) -> Type | None:
    """The type to which values of both are cast where one type is needed; None if there is none."""
    if one == other or other == VOID:
        return one
    if one == VOID:
        return other
    if is_number(one) and is_number(other):
        return _common_number(one, other)
    for text, kind in ((one, other), (other, one)):
        if text == STRING:
            return _of_text(kind)
    if {one, other} <= {DATE, TIMESTAMP, NTZ}:
        return TIMESTAMP if TIMESTAMP in (one, other) else NTZ
    if one.name == other.name and len(one.inner) == len(other.inner) and one.inner:
        inner = [common(a, b) for a, b in zip(one.inner, other.inner, strict=True)]
        if None not in inner and [n.lower() for n in one.names] == [n.lower() for n in other.names]:
            return Type(one.name, tuple(kind for kind in inner if kind is not None), one.names)
    return None


def _of_text(kind: Type) -> Type | None:
    """The type as which text is read where it meets another type."""
    if kind in INTEGERS:
        return BIGINT
    if is_number(kind):
        return DOUBLE
    return kind if kind in (DATE, TIMESTAMP, NTZ, BOOLEAN, BINARY) else None


def _common_number(one: Type, other: Type) -> Type:
    if "decimal" in (one.name, other.name):
        if is_fraction(one) or is_fraction(other):
            return DOUBLE
        (p1, s1), (p2, s2) = as_decimal(one).size, as_decimal(other).size
        scale = max(s1, s2)
        return decimal(max(p1 - s1, p2 - s2) + scale, scale)
    if FLOAT in (one, other):
        return DOUBLE  # an integer may be too long for a float
    return _RANK[max(_RANK.index(one), _RANK.index(other))]
