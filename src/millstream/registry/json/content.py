"""The schemas of properties and elements in a JSON schema: by name, by pattern, by position, and the rest."""

from __future__ import annotations

from typing import NamedTuple

from millstream.core.user_regex import BadPattern, search_pattern
from millstream.registry.json.document import COMBINATIONS, SchemaNode

# If a schema has one of these, ``unevaluated...`` depends on more than its own properties and items.
_IN_PLACE = (*COMBINATIONS, "$ref", "$dynamicRef", "$recursiveRef", "if", "dependentSchemas")


class Content(NamedTuple):
    """The schemas of an object's properties: by name, by pattern, and the rest, with the rest's keyword."""

    named: dict[str, SchemaNode]
    patterns: dict[str, SchemaNode]
    rest: SchemaNode
    word: str

    @classmethod
    def of(cls, node: SchemaNode) -> Content:
        word, rest = _rest_of(node, "additionalProperties", "unevaluatedProperties")
        return cls(node.schemas("properties"), node.schemas("patternProperties"), rest, word)

    def by_pattern(self, name: str) -> tuple[list[SchemaNode], bool]:
        """The schemas whose pattern matches, and whether every pattern could be checked."""
        matched = [(matches_pattern(pattern, name), schema) for pattern, schema in self.patterns.items()]
        certain = all(matches is not None for matches, _ in matched)
        return [schema for matches, schema in matched if matches], certain

    def certain(self, name: str) -> list[SchemaNode]:
        """The schemas that certainly apply to the property with this name."""
        by_pattern, certain = self.by_pattern(name)
        if name in self.named:
            return [self.named[name], *by_pattern]
        return by_pattern or ([self.rest] if certain else [])


class Elements(NamedTuple):
    """The schemas of an array's elements: the first few, and the rest, with the rest's keyword."""

    first: list[SchemaNode]
    rest: SchemaNode
    word: str

    @classmethod
    def of(cls, node: SchemaNode) -> Elements:
        first = node.tuple()
        word = "additionalItems" if first and node.get("prefixItems") is None else "items"
        word, rest = _rest_of(node, word, "unevaluatedItems")
        return cls(first, rest, "additionalItems" if first and word == "items" else word)


REST = {
    "additionalProperties": "ADDITIONAL_PROPERTIES",
    "unevaluatedProperties": "UNEVALUATED_PROPERTIES",
    "items": "ADDITIONAL_ITEMS",
    "additionalItems": "ADDITIONAL_ITEMS",
    "unevaluatedItems": "UNEVALUATED_ITEMS",
}


def _rest_of(node: SchemaNode, additional: str, unevaluated: str) -> tuple[str, SchemaNode]:
    for word in (additional, unevaluated):
        schema = node.schema(word)
        if schema is not None and not (word == unevaluated and depends_on_others(node, word)):
            return word, schema
    return additional, node.anything()


def depends_on_others(node: SchemaNode, word: str) -> bool:
    """True if what ``unevaluated...`` applies to depends on what is combined with the schema."""
    schema = node.schema(word)
    beside = (*_IN_PLACE, "contains") if word == "unevaluatedItems" else _IN_PLACE
    return schema is not None and schema.kind != "any" and any(each in node.raw for each in beside)


def matches_pattern(pattern: str, name: str) -> bool | None:
    """True if a name matches the pattern; None if RE2 does not support the pattern."""
    try:
        return search_pattern(pattern)(name)
    except BadPattern:
        return None
