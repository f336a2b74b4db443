"""What changed from one JSON schema to another, and which changes keep old data valid.

The kinds of changes and which of them are compatible are those of Confluent's registry; so is the idea of the
content model: a property can be added to an object only if nothing under its name could have been there
before (a closed model), and removed only if anything may still be there (an open one).
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from millstream.pattern import BadPattern, search_pattern
from millstream.registry.json_schema import Node
from millstream.registry.schema import Difference, compact

# Every other change makes some document invalid that was valid before.
_COMPATIBLE = """
    ID_CHANGED DESCRIPTION_CHANGED TITLE_CHANGED DEFAULT_CHANGED SCHEMA_REMOVED TYPE_EXTENDED
    MAX_LENGTH_INCREASED MAX_LENGTH_REMOVED MIN_LENGTH_DECREASED MIN_LENGTH_REMOVED PATTERN_REMOVED
    MAXIMUM_INCREASED MAXIMUM_REMOVED MINIMUM_DECREASED MINIMUM_REMOVED
    EXCLUSIVE_MAXIMUM_INCREASED EXCLUSIVE_MAXIMUM_REMOVED
    EXCLUSIVE_MINIMUM_DECREASED EXCLUSIVE_MINIMUM_REMOVED MULTIPLE_OF_REDUCED MULTIPLE_OF_REMOVED
    REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED REQUIRED_ATTRIBUTE_REMOVED
    DEPENDENCY_ARRAY_NARROWED DEPENDENCY_ARRAY_REMOVED DEPENDENCY_SCHEMA_REMOVED
    MAX_PROPERTIES_INCREASED MAX_PROPERTIES_REMOVED MIN_PROPERTIES_DECREASED MIN_PROPERTIES_REMOVED
    ADDITIONAL_PROPERTIES_ADDED ADDITIONAL_PROPERTIES_EXTENDED
    UNEVALUATED_PROPERTIES_ADDED UNEVALUATED_PROPERTIES_EXTENDED
    PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL
    REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_UNOPEN_CONTENT_MODEL
    OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL
    PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL
    PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    MAX_ITEMS_INCREASED MAX_ITEMS_REMOVED MIN_ITEMS_DECREASED MIN_ITEMS_REMOVED
    MAX_CONTAINS_INCREASED MAX_CONTAINS_REMOVED MIN_CONTAINS_DECREASED MIN_CONTAINS_REMOVED
    UNIQUE_ITEMS_REMOVED ADDITIONAL_ITEMS_ADDED ADDITIONAL_ITEMS_EXTENDED
    UNEVALUATED_ITEMS_ADDED UNEVALUATED_ITEMS_EXTENDED
    ITEM_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL ITEM_ADDED_TO_CLOSED_CONTENT_MODEL
    ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL
    ITEM_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    ITEM_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL
    ENUM_ARRAY_EXTENDED COMBINED_TYPE_EXTENDED PRODUCT_TYPE_NARROWED SUM_TYPE_EXTENDED NOT_TYPE_NARROWED
"""
COMPATIBLE = frozenset(_COMPATIBLE.split())

Change = tuple[str, str]  # its kind, and where: a path below the pair of schemas that was compared
_Pair = tuple[int, int]


def incompatible(original: Node, update: Node) -> list[Difference]:
    """The changes that keep a document which was valid from being valid, and where they are."""
    return [
        Difference(kind, path, _MEANING.get(kind, ""))
        for kind, path in changes(original, update)
        if kind not in COMPATIBLE
    ]


def changes(original: Node, update: Node) -> list[Change]:
    """Every change. Recursive schemas are compared again until nothing new is known to be incompatible: a
    pair that is met within itself is taken to be compatible, and what follows from that may be wrong."""
    failed: dict[_Pair, list[Change]] = {}
    while True:
        comparison = _Comparison(failed)
        found = comparison.compare(original, update)
        now = {pair: made for pair, made in comparison.known.items() if not _compatible(made)}
        if not comparison.assumed or now.keys() <= failed.keys():
            return [(kind, "#/" + path.strip("/")) for kind, path in found]
        failed = {**failed, **now}


def _compatible(found: Sequence[Change]) -> bool:
    return all(kind in COMPATIBLE for kind, _ in found)


def _below(path: str, found: Sequence[Change]) -> list[Change]:
    return [(kind, f"{path}/{rest}" if rest else path) for kind, rest in found]


class _Comparison:
    def __init__(self, failed: dict[_Pair, list[Change]]) -> None:
        self._failed = failed
        self._under_way: set[_Pair] = set()
        self.known: dict[_Pair, list[Change]] = {}
        self.assumed = False

    def compare(self, original: Node | None, update: Node | None) -> list[Change]:
        if original is None or update is None:
            if original is update:
                return []
            return [("SCHEMA_ADDED" if original is None else "SCHEMA_REMOVED", "")]
        pair = id(original), id(update)
        if pair in self.known:
            return self.known[pair]
        if pair in self._under_way:
            if pair in self._failed:
                return self._failed[pair]
            self.assumed = True
            return []
        self._under_way.add(pair)
        found = self._compared(original, update)
        self._under_way.discard(pair)
        self.known[pair] = found
        return found

    def _compared(self, original: Node, update: Node) -> list[Change]:
        if original.kind != "combined" and update.kind == "combined":
            found = self._into_combination(original, update)
            if found is not None:
                return found
        elif original.kind == "combined" and update.kind != "combined":
            found = self._out_of_combination(original, update)
            if found is not None:
                return found
        if original.kind != update.kind:
            if original.kind == "none" or update.kind == "any":
                return []
            return [("TYPE_CHANGED", "")]
        found = [
            (kind, "")
            for word, kind in _WORDS.items()
            if original.get(word) != update.get(word) and original.kind != "combined"
        ]
        compare = {
            "string": _strings,
            "number": _numbers,
            "enum": _enums,
            "const": _constants,
            "combined": self._combinations,
            "not": self._negations,
            "object": self._objects,
            "array": self._arrays,
        }.get(original.kind)
        return found + (compare(original, update) if compare is not None else [])

    # Combinations ------------------------------------------------------------------------------------

    def _into_combination(self, original: Node, update: Node) -> list[Change] | None:
        if len(update.parts) == 1:
            found = self.compare(original, update.parts[0])
            return found if _compatible(found) else None
        if update.criterion != "allOf":
            for part in update.parts:
                found = self.compare(original, part)
                if _compatible(found):
                    return [*found, ("SUM_TYPE_EXTENDED", "")]
        return None

    def _out_of_combination(self, original: Node, update: Node) -> list[Change] | None:
        if len(original.parts) == 1:
            found = self.compare(original.parts[0], update)
            return found if _compatible(found) else None
        if original.criterion == "allOf":
            for part in original.parts:
                found = self.compare(part, update)
                if _compatible(found):
                    return [*found, ("PRODUCT_TYPE_NARROWED", "")]
        return None

    def _combinations(self, original: Node, update: Node) -> list[Change]:
        found: list[Change] = []
        if original.criterion != update.criterion:
            one_before, one_now = len(original.parts) == 1, len(update.parts) == 1
            extended = (
                update.criterion == "anyOf"
                or (one_before and one_now)
                or (one_before and update.criterion == "oneOf")
                or (one_now and original.criterion == "allOf")
            )
            if not extended:
                return [("COMBINED_TYPE_CHANGED", "")]
            found.append(("COMBINED_TYPE_EXTENDED", ""))
        before, now = len(original.parts), len(update.parts)
        if before < now:
            found.append(
                ("PRODUCT_TYPE_EXTENDED" if update.criterion == "allOf" else "SUM_TYPE_EXTENDED", "")
            )
        elif before > now:
            found.append(
                ("PRODUCT_TYPE_NARROWED" if original.criterion == "allOf" else "SUM_TYPE_NARROWED", "")
            )
        edges: dict[int, dict[int, list[Change]]] = {}
        for at, part in enumerate(original.parts):
            for other, candidate in enumerate(update.parts):
                made = self.compare(part, candidate)
                if _compatible(made):
                    edges.setdefault(at, {})[other] = _below(f"{original.criterion}/{at}", made)
        matched = _matching(edges)
        for other, at in matched.items():
            found += edges[at][other]
        if len(matched) < min(before, now):
            found.append(("COMBINED_TYPE_SUBSCHEMAS_CHANGED", ""))
        return found

    def _negations(self, original: Node, update: Node) -> list[Change]:
        # What must not match may only become less.
        fewer = _compatible(self.compare(update.schema("not"), original.schema("not")))
        return [("NOT_TYPE_NARROWED" if fewer else "NOT_TYPE_EXTENDED", "not")]

    # Objects -----------------------------------------------------------------------------------------

    def _objects(self, original: Node, update: Node) -> list[Change]:
        found = _required(original, update)
        before, now = original.schemas("properties"), update.schemas("properties")
        for name in dict.fromkeys((*before, *now)):
            path = f"properties/{name}"
            if name not in now:
                found += _below(path, self._removed(before[name], update, name))
            elif name not in before:
                found += _below(path, self._added(original, update, now[name], name))
            else:
                found += _below(path, self.compare(before[name], now[name]))
        found += self._dependencies(original, update)
        found += self._additional(original, update, "additionalProperties", "ADDITIONAL_PROPERTIES")
        found += self._unevaluated(original, update, "unevaluatedProperties", "UNEVALUATED_PROPERTIES")
        return found + _numbers_of(original, update, ("maxProperties", "minProperties"))

    def _removed(self, schema: Node, update: Node, name: str) -> list[Change]:
        if _is_open(update):
            return [("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", "")]
        covering = _covering(update, name)
        if covering is not None:
            made = self.compare(schema, covering)
            covered = "IS_COVERED" if _compatible(made) else "NOT_COVERED"
            return [*made, (f"PROPERTY_REMOVED_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]
        never = "PROPERTY_WITH_FALSE" if schema.kind == "none" else "PROPERTY"
        return [(f"{never}_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]

    def _added(self, original: Node, update: Node, schema: Node, name: str) -> list[Change]:
        required = name in (update.get("required") or ())
        default = "default" in schema.raw
        if _is_open(original):
            if schema.kind == "any":
                return [("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", "")]
            what = "REQUIRED_PROPERTY_WITH_DEFAULT" if default else "REQUIRED_PROPERTY"
            return [(f"{what if required else 'OPTIONAL_PROPERTY'}_ADDED_TO_OPEN_CONTENT_MODEL", "")]
        found: list[Change] = []
        covering = _covering(original, name)
        if covering is not None:
            made = self.compare(covering, schema)
            covered = "IS_COVERED" if _compatible(made) else "NOT_COVERED"
            found = [*made, (f"PROPERTY_ADDED_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]
        what = "REQUIRED_PROPERTY_WITH_DEFAULT" if default else "REQUIRED_PROPERTY"
        return [*found, (f"{what if required else 'OPTIONAL_PROPERTY'}_ADDED_TO_UNOPEN_CONTENT_MODEL", "")]

    def _dependencies(self, original: Node, update: Node) -> list[Change]:
        found: list[Change] = []
        before, now = _needed(original), _needed(update)
        for name in dict.fromkeys((*before, *now)):
            then, since = before.get(name), now.get(name)
            if since is None:
                kind = "REMOVED"
            elif then is None:
                kind = "ADDED"
            elif then == since:
                continue
            else:
                kind = "EXTENDED" if since > then else "NARROWED" if then > since else "CHANGED"
            found.append((f"DEPENDENCY_ARRAY_{kind}", f"dependencies/{name}"))
        schemas_before = original.schemas("dependencies") | original.schemas("dependentSchemas")
        schemas_now = update.schemas("dependencies") | update.schemas("dependentSchemas")
        for name in dict.fromkeys((*schemas_before, *schemas_now)):
            path = f"dependencies/{name}"
            if name not in schemas_now:
                found.append(("DEPENDENCY_SCHEMA_REMOVED", path))
            elif name not in schemas_before:
                found.append(("DEPENDENCY_SCHEMA_ADDED", path))
            else:
                found += _below(path, self.compare(schemas_before[name], schemas_now[name]))
        return found

    def _additional(self, original: Node, update: Node, word: str, kind: str) -> list[Change]:
        before, now = _rest_of(original, word), _rest_of(update, word)
        if (before == "none") != (now == "none"):
            return [(f"{kind}_{'ADDED' if before == 'none' else 'REMOVED'}", word)]
        if not isinstance(before, Node) and isinstance(now, Node):
            return [(f"{kind}_NARROWED", word)]
        if isinstance(before, Node) and not isinstance(now, Node):
            return [(f"{kind}_EXTENDED", word)]
        if isinstance(before, Node) and isinstance(now, Node):
            return _below(word, self.compare(before, now))
        return []

    def _unevaluated(self, original: Node, update: Node, word: str, kind: str) -> list[Change]:
        before, now = _unevaluated(original, word), _unevaluated(update, word)
        if before is None and now is None:
            return []
        none_before = before is not None and before.kind == "none"
        none_now = now is not None and now.kind == "none"
        if none_before != none_now:
            return [(f"{kind}_{'ADDED' if none_before else 'REMOVED'}", word)]
        if before is None or now is None:
            return [(f"{kind}_{'NARROWED' if before is None else 'EXTENDED'}", word)]
        if (before.kind == "any") != (now.kind == "any"):
            return [(f"{kind}_{'NARROWED' if before.kind == 'any' else 'EXTENDED'}", word)]
        return _below(word, self.compare(before, now))

    # Arrays ------------------------------------------------------------------------------------------

    def _arrays(self, original: Node, update: Node) -> list[Change]:
        found = _below("items", self.compare(_every_item(original), _every_item(update)))
        before, now = original.tuple(), update.tuple()
        for at in range(max(len(before), len(now))):
            path = f"items/{at}"
            if at >= len(now):
                found += _below(path, self._item_removed(before[at], update))
            elif at >= len(before):
                found += _below(path, self._item_added(original, now[at]))
            else:
                found += _below(path, self.compare(before[at], now[at]))
        found += self._additional(original, update, "additionalItems", "ADDITIONAL_ITEMS")
        found += self._unevaluated(original, update, "unevaluatedItems", "UNEVALUATED_ITEMS")
        found += _numbers_of(original, update, ("maxItems", "minItems"))
        if bool(original.get("uniqueItems")) != bool(update.get("uniqueItems")):
            found.append(
                (f"UNIQUE_ITEMS_{'REMOVED' if original.get('uniqueItems') else 'ADDED'}", "uniqueItems")
            )
        return found + _numbers_of(original, update, ("maxContains", "minContains"))

    def _item_removed(self, schema: Node, update: Node) -> list[Change]:
        rest = _rest_of(update, "additionalItems")
        uneval = _unevaluated(update, "unevaluatedItems")
        if rest == "any" and (uneval is None or uneval.kind == "any"):
            return [("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL", "")]
        covering = rest if isinstance(rest, Node) else _partial(rest, uneval)
        if covering is not None:
            made = self.compare(schema, covering)
            covered = "IS_COVERED" if _compatible(made) else "NOT_COVERED"
            return [*made, (f"ITEM_REMOVED_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]
        never = "ITEM_WITH_FALSE" if schema.kind == "none" else "ITEM"
        return [(f"{never}_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]

    def _item_added(self, original: Node, schema: Node) -> list[Change]:
        rest = _rest_of(original, "additionalItems")
        uneval = _unevaluated(original, "unevaluatedItems")
        if rest == "any" and (uneval is None or uneval.kind == "any"):
            what = "ITEM_WITH_EMPTY_SCHEMA" if schema.kind == "any" else "ITEM"
            return [(f"{what}_ADDED_TO_OPEN_CONTENT_MODEL", "")]
        covering = rest if isinstance(rest, Node) else _partial(rest, uneval)
        if covering is not None:
            made = self.compare(covering, schema)
            covered = "IS_COVERED" if _compatible(made) else "NOT_COVERED"
            return [*made, (f"ITEM_ADDED_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]
        return [("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", "")]


# ---- keywords -----------------------------------------------------------------------------------------

_WORDS = {
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


def _numbers_of(original: Node, update: Node, words: Sequence[str]) -> list[Change]:
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


def _number(node: Node, word: str) -> Decimal | None:
    value = node.get(word)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return Decimal(str(value))


def _strings(original: Node, update: Node) -> list[Change]:
    found = _numbers_of(original, update, ("maxLength", "minLength"))
    before, now = original.get("pattern"), update.get("pattern")
    if before != now:
        kind = "ADDED" if before is None else "REMOVED" if now is None else "CHANGED"
        found.append((f"PATTERN_{kind}", "pattern"))
    return found


def _numbers(original: Node, update: Node) -> list[Change]:
    words = ("maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum")
    found = _numbers_of(original, update, words)
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
    if whole_before != whole_now:
        found.append(("TYPE_EXTENDED" if whole_before else "TYPE_NARROWED", ""))
    return found


def _enums(original: Node, update: Node) -> list[Change]:
    before = {compact(each) for each in original.get("enum")}
    now = {compact(each) for each in update.get("enum")}
    if before == now:
        return []
    kind = "EXTENDED" if now > before else "NARROWED" if before > now else "CHANGED"
    return [(f"ENUM_ARRAY_{kind}", "enum")]


def _constants(original: Node, update: Node) -> list[Change]:
    same = compact(original.get("const")) == compact(update.get("const"))
    return [] if same else [("ENUM_ARRAY_CHANGED", "const")]


def _required(original: Node, update: Node) -> list[Change]:
    found: list[Change] = []
    before, now = original.get("required") or (), update.get("required") or ()
    schemas = update.schemas("properties")
    for name in original.schemas("properties"):
        if name in schemas and (name in before) != (name in now):
            with_default = "_WITH_DEFAULT" if "default" in schemas[name].raw else ""
            kind = "REMOVED" if name in before else f"{with_default.lstrip('_')}_ADDED".lstrip("_")
            found.append((f"REQUIRED_ATTRIBUTE_{kind}", f"required/{name}"))
    return found


def _needed(node: Node) -> dict[str, set[str]]:
    """Properties that need others beside them."""
    found: dict[str, set[str]] = {}
    for word in ("dependencies", "dependentRequired"):
        value = node.get(word)
        if isinstance(value, dict):
            found |= {name: set(each) for name, each in value.items() if isinstance(each, list)}
    return found


def _every_item(node: Node) -> Node | None:
    """The schema of all elements of an array; none where there are schemas for the first few."""
    return None if node.tuple() or node.get("prefixItems") is not None else node.schema("items")


def _rest_of(node: Node, word: str) -> Node | str:
    """What may stand where nothing else is said: ``any``, ``none``, or as a schema says."""
    if word == "additionalItems" and node.get("prefixItems") is not None:
        word = "items"  # its name since the draft of 2020
    value = node.get(word)
    if isinstance(value, bool):
        return "any" if value else "none"
    return node.schema(word) or "any"


def _unevaluated(node: Node, word: str) -> Node | None:
    return None if node.old else node.schema(word)


def _partial(rest: Node | str, uneval: Node | None) -> Node | None:
    return uneval if rest == "any" and uneval is not None and uneval.kind not in ("any", "none") else None


def _is_open(node: Node) -> bool:
    """Whether an object may have properties that its schema does not know, of any kind."""
    if _rest_of(node, "additionalProperties") != "any" or node.get("patternProperties"):
        return False
    uneval = _unevaluated(node, "unevaluatedProperties")
    return uneval is None or uneval.kind == "any"


def _covering(node: Node, name: str) -> Node | None:
    """The schema for a property that an object's schema does not name."""
    for pattern, schema in node.schemas("patternProperties").items():
        if _found(pattern, name):
            return schema
    rest = _rest_of(node, "additionalProperties")
    if isinstance(rest, Node):
        return rest
    return _partial(rest, _unevaluated(node, "unevaluatedProperties"))


def _found(pattern: str, name: str) -> bool:
    """Whether a name matches. A pattern that RE2 does not serve counts as one that matches nothing."""
    try:
        return search_pattern(pattern)(name)
    except BadPattern:
        return False


_MEANING = {
    "TYPE_CHANGED": "it is of another type now",
    "TYPE_NARROWED": "a number that is not whole was valid before",
    "REQUIRED_ATTRIBUTE_ADDED": "it was optional before, and has no default",
    "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": "older data lacks it, or has something else there",
    "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL": "older data may have something else there, as"
    ' "additionalProperties" was not false',
    "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL": "older data may have something else there,"
    ' as "additionalProperties" was not false',
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": "older data does not have it, and there is no default",
    "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL": "older data may have it, and"
    ' "additionalProperties" is false',
    "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "what older data has there does not fit"
    " what is allowed there now",
    "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": "older data may have what does not fit",
    "ADDITIONAL_PROPERTIES_REMOVED": "older data may have properties that are not named",
    "ADDITIONAL_PROPERTIES_NARROWED": "older data may have any properties",
    "ENUM_ARRAY_NARROWED": "values are missing that older data may have",
    "ENUM_ARRAY_CHANGED": "values are missing that older data may have",
    "SUM_TYPE_NARROWED": "there are fewer alternatives",
    "PRODUCT_TYPE_EXTENDED": "there are more conditions",
    "COMBINED_TYPE_CHANGED": "its parts are combined in another way",
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": "its parts have changed",
}


def _matching(edges: dict[int, dict[int, list[Change]]]) -> dict[int, int]:
    """As many pairs as can be made: the right side of each, and its left."""
    matched: dict[int, int] = {}

    def place(left: int, seen: set[int]) -> bool:
        for right in edges[left]:
            if right not in seen:
                seen.add(right)
                if right not in matched or place(matched[right], seen):
                    matched[right] = left
                    return True
        return False

    for left in edges:
        place(left, set())
    return matched
