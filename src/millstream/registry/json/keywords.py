"""Compare JSON schema keywords that hold no schemas: bounds, patterns, enums and required names."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from millstream.registry.json.document import SchemaNode
from millstream.registry.schema import compact

Change = tuple[str, str]  # its kind, and where it is: a path relative to the pair of schemas compared

WORDS = {
    "$id": "ID_CHANGED",
    "title": "TITLE_CHANGED",
    "description": "DESCRIPTION_CHANGED",
    "default": "DEFAULT_CHANGED",
}
_NUMBER_KINDS = {
    "maxLength": "MAX_LENGTH",
    "minLength": "MIN_LENGTH",
    "maximum": "MAXIMUM",
    "minimum": "MINIMUM",
    "exclusiveMaximum": "EXCLUSIVE_MAXIMUM",
    "exclusiveMinimum": "EXCLUSIVE_MINIMUM",
    "maxProperties": "MAX_PROPERTIES",
    "minProperties": "MIN_PROPERTIES",
    "maxItems": "MAX_ITEMS",
    "minItems": "MIN_ITEMS",
    "maxContains": "MAX_CONTAINS",
    "minContains": "MIN_CONTAINS",
}


def bounds(original: SchemaNode, update: SchemaNode, words: Sequence[str]) -> list[Change]:
    found: list[Change] = []
    for word in words:
        before, now = _number(original, word), _number(update, word)
        if before == now:
            continue
        if before is None:
            kind = "ADDED"
        elif now is None:
            kind = "REMOVED"
        else:
            kind = "INCREASED" if now > before else "DECREASED"
        found.append((f"{_NUMBER_KINDS[word]}_{kind}", word))
    return found


def _number(node: SchemaNode, word: str) -> Decimal | None:
    value = node.get(word)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Decimal(1) if word == "minContains" else None
    return Decimal(str(value))


def strings(original: SchemaNode, update: SchemaNode) -> list[Change]:
    found = bounds(original, update, ("maxLength", "minLength"))
    before, now = original.get("pattern"), update.get("pattern")
    if before != now:
        kind = "ADDED" if before is None else "REMOVED" if now is None else "CHANGED"
        found.append((f"PATTERN_{kind}", "pattern"))
    return found


def numbers(original: SchemaNode, update: SchemaNode) -> list[Change]:
    words = ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum")
    found = bounds(original, update, words)
    before, now = _number(original, "multipleOf"), _number(update, "multipleOf")
    if before != now:
        if before is None:
            kind = "ADDED"
        elif now is None:
            kind = "REMOVED"
        elif before and now % before == 0:
            kind = "EXPANDED"
        elif now and before % now == 0:
            kind = "REDUCED"
        else:
            kind = "CHANGED"
        found.append((f"MULTIPLE_OF_{kind}", "multipleOf"))
    whole_before, whole_now = original.get("type") == "integer", update.get("type") == "integer"
    if whole_before != whole_now and "type" in original.raw:
        found.append(("TYPE_EXTENDED" if whole_before else "TYPE_NARROWED", ""))
    return found


def enums(original: SchemaNode, update: SchemaNode) -> list[Change]:
    before = {compact(each) for each in original.get("enum")}
    now = {compact(each) for each in update.get("enum")}
    if before == now:
        return []
    kind = "EXTENDED" if now > before else "NARROWED" if before > now else "CHANGED"
    return [(f"ENUM_ARRAY_{kind}", "enum")]


def constants(original: SchemaNode, update: SchemaNode) -> list[Change]:
    same = compact(original.get("const")) == compact(update.get("const"))
    return [] if same else [("ENUM_ARRAY_CHANGED", "const")]


def required(original: SchemaNode, update: SchemaNode) -> list[Change]:
    """Names that became required or no longer are. Newly declared properties are reported elsewhere."""
    found: list[Change] = []
    before, now = original.get("required") or (), update.get("required") or ()
    known, schemas = original.schemas("properties"), update.schemas("properties")
    for name in dict.fromkeys((*before, *now)):
        if name not in now:
            kind = "REMOVED"
        elif name in before or (name in schemas and name not in known):
            continue
        else:
            kind = "WITH_DEFAULT_ADDED" if name in schemas and "default" in schemas[name].raw else "ADDED"
        found.append((f"REQUIRED_ATTRIBUTE_{kind}", f"required/{name}"))
    return found


def needed(node: SchemaNode) -> dict[str, set[str]]:
    """The properties that require other properties, with the names of those."""
    found: dict[str, set[str]] = {}
    for word in ("dependencies", "dependentRequired"):
        value = node.get(word)
        if isinstance(value, dict):
            found |= {name: set(each) for name, each in value.items() if isinstance(each, list)}
    return found
