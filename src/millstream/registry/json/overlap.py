"""Decide whether a document can be valid by two JSON schemas at once.

``oneOf`` needs this: a document that fits two of its alternatives is invalid. Schemas are called disjoint
only if that is certain. The checks are the ways in which people distinguish alternatives: types, values, and
a required property that has different values in each, or that the other one forbids.
"""

from __future__ import annotations

from typing import Any

from millstream.registry.json.document import SchemaNode
from millstream.registry.schema import compact

TYPES = frozenset(("string", "number", "boolean", "null", "object", "array"))


class Overlaps:
    """Answers for pairs of schemas. Each answer is computed once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, frozenset[str]], bool] = {}
        self._types: dict[int, frozenset[str]] = {}

    def disjoint(self, one: SchemaNode, other: SchemaNode, types: frozenset[str] = TYPES) -> bool:
        """True if certainly no document of one of these types is valid by both."""
        asked = id(one), id(other), types
        if asked not in self._known:
            self._known[asked] = False  # until computed: the answer where a schema contains itself
            self._known[asked] = self._disjoint(one, other, types)
        return self._known[asked]

    def types(self, node: SchemaNode) -> frozenset[str]:
        """The types that a valid document may have."""
        if id(node) not in self._types:
            self._types[id(node)] = TYPES  # until computed: the answer where a schema contains itself
            self._types[id(node)] = self._types_of(node)
        return self._types[id(node)]

    def _types_of(self, node: SchemaNode) -> frozenset[str]:
        if node.kind == "none":
            return frozenset()
        if node.kind == "combined":
            parts = [self.types(part) for part in node.parts]
            if node.criterion == "allOf":
                return TYPES.intersection(*parts)
            return frozenset().union(*parts)
        if node.kind in ("enum", "const"):
            return frozenset(map(_type_of, _values(node)))
        return frozenset((node.kind,)) if node.kind in TYPES and "type" in node.raw else TYPES

    def _disjoint(self, one: SchemaNode, other: SchemaNode, types: frozenset[str]) -> bool:
        common = types & self.types(one) & self.types(other)
        if not common:
            return True
        for node, beside in ((one, other), (other, one)):
            if node.kind == "combined":
                apart = (self.disjoint(part, beside, common) for part in node.parts)
                return any(apart) if node.criterion == "allOf" else all(apart)
        if {one.kind, other.kind} <= {"enum", "const"}:
            return not set(map(_key, _values(one))) & set(map(_key, _values(other)))
        return one.kind == other.kind == "object" and common == {"object"} and self._told_apart(one, other)

    def _told_apart(self, one: SchemaNode, other: SchemaNode) -> bool:
        for name in {*(one.get("required") or ()), *(other.get("required") or ())}:
            mine, its = _property(one, name), _property(other, name)
            if any(each is not None and each.kind == "none" for each in (mine, its)):
                return True
            if mine is not None and its is not None and self.disjoint(mine, its):
                return True
        return False


def accepts_all(node: SchemaNode, type: str) -> bool:
    """True if every value of a type is certainly valid."""
    untyped = node.kind in TYPES and node.kind != type and "type" not in node.raw
    return node.kind == "any" or untyped


def _property(node: SchemaNode, name: str) -> SchemaNode | None:
    """The schema of a property, or that of properties without a name in the schema; None if unknown."""
    if name in (named := node.schemas("properties")):
        return named[name]
    return None if node.get("patternProperties") else node.schema("additionalProperties")


def _values(node: SchemaNode) -> list[Any]:
    return list(node.get("enum")) if node.kind == "enum" else [node.get("const")]


def _type_of(value: Any) -> str:
    if value is None:
        return "null"
    for kind, name in ((bool, "boolean"), (str, "string"), (list, "array"), (dict, "object")):
        if isinstance(value, kind):
            return name
    return "number"


def _key(value: Any) -> str:
    """A key that is the same for values that are equal in JSON Schema: 1 and 1.0, properties in any order."""
    return compact(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
