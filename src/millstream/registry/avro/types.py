"""The types of Avro: what a schema is parsed into, and what comparing and decoding work on.

A named type is one object wherever it is used, so a recursive schema is a graph with a cycle. Types hold full
names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_WHOLE = {"int": 2**31, "long": 2**63}
# The types that the specification's logical types may annotate. Other logical types, and these on any other
# type, are ignored.
_ANNOTATES: dict[str, tuple[str, ...]] = {
    "decimal": ("bytes", "fixed"),
    "big-decimal": ("bytes",),
    "uuid": ("string", "fixed"),
    "duration": ("fixed",),
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    **{
        f"{local}timestamp-{unit}": ("long",)
        for local in ("", "local-")
        for unit in ("millis", "micros", "nanos")
    },
}
NO_VALUE: Any = object()  # no value, which is different from null


@dataclass(slots=True, eq=False)
class Type:
    """A type. ``properties`` are its attributes beyond those that Avro defines for its kind; ``logicalType``
    is among them."""

    properties: dict[str, Any] = field(default_factory=dict, kw_only=True)

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()

    @property
    def logical(self) -> str | None:
        """The logical type. One that is not valid for this type is ignored, as the specification requires."""
        name = self.properties.get("logicalType")
        if not isinstance(name, str) or self.kind not in _ANNOTATES.get(name, ()):
            return None
        return None if name == "decimal" and not self._is_decimal() else name

    @property
    def digits(self) -> tuple[int, int]:
        """The precision and the scale of a decimal."""
        return self.properties["precision"], self.properties.get("scale", 0)

    def _is_decimal(self) -> bool:
        precision, scale = self.properties.get("precision"), self.properties.get("scale", 0)
        if type(precision) is not int or type(scale) is not int:  # a bool does not count
            return False
        return precision > 0 and 0 <= scale <= precision


@dataclass(slots=True, eq=False)
class Primitive(Type):
    name: str

    @property
    def kind(self) -> str:
        return self.name


@dataclass(slots=True, eq=False)
class Array(Type):
    items: Type


@dataclass(slots=True, eq=False)
class Map(Type):
    values: Type


@dataclass(slots=True, eq=False)
class Union(Type):
    branches: tuple[Type, ...]


@dataclass(slots=True, eq=False)
class Named(Type):
    """A named type. ``name`` and ``aliases`` are full names."""

    name: str
    aliases: tuple[str, ...] = ()
    doc: str | None = None

    @property
    def simple(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        return self.name.rpartition(".")[0]


@dataclass(slots=True, eq=False)
class Fixed(Named):
    size: int = 0


@dataclass(slots=True, eq=False)
class Enum(Named):
    symbols: tuple[str, ...] = ()
    default: str | None = None


@dataclass(slots=True, eq=False)
class Field:
    name: str
    type: Type
    default: Any = NO_VALUE
    aliases: tuple[str, ...] = ()
    doc: str | None = None
    order: str = "ascending"
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def has_default(self) -> bool:
        return self.default is not NO_VALUE


@dataclass(slots=True, eq=False)
class Record(Named):
    fields: tuple[Field, ...] = ()
    is_error: bool = False


def describe(type: Type) -> str:
    """A short description of a type, for messages."""
    if isinstance(type, Union):
        return " or ".join(describe(branch) for branch in type.branches)
    return f"{type.kind} {type.name}" if isinstance(type, Named) else type.kind


def fits(type: Type, value: Any) -> bool:
    """True if a JSON value can be a default of a type. In a union, any branch may match (since Avro 1.12)."""
    match type:
        case Primitive(name="null"):
            return value is None
        case Primitive(name="boolean"):
            return isinstance(value, bool)
        case Primitive(name="int" | "long"):
            whole = isinstance(value, int) and not isinstance(value, bool)
            return whole and -_WHOLE[type.name] <= value < _WHOLE[type.name]
        case Primitive(name="float" | "double"):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            return number or value in ("NaN", "Infinity", "-Infinity")
        case Primitive(name="bytes"):
            return isinstance(value, str) and all(ord(each) < 256 for each in value)
        case Fixed():
            return (
                isinstance(value, str) and len(value) == type.size and all(ord(each) < 256 for each in value)
            )
        case Primitive():
            return isinstance(value, str)
        case Enum():
            return isinstance(value, str) and value in type.symbols
        case Array():
            return isinstance(value, list) and all(fits(type.items, each) for each in value)
        case Map():
            return isinstance(value, dict) and all(fits(type.values, each) for each in value.values())
        case Union():
            return any(fits(branch, value) for branch in type.branches)
        case Record():
            return isinstance(value, dict) and all(
                fits(each.type, value[each.name]) if each.name in value else each.has_default
                for each in type.fields
            )
    raise AssertionError(type)
