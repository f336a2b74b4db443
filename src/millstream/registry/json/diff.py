"""Compare two JSON schemas: list what changed, and tell which changes keep old data valid.

The kinds of changes are those of Confluent's registry, and so is the idea of the content model. A property
can be added to an object only if no property of that name could have been there before (a closed model), and
removed only if any property may still be there (an open model). Unlike in Confluent's registry, a change is
compatible only if it follows from the schemas that every valid document stays valid. There is one exception,
which is Confluent's: a property with a default may become required, because readers fill it in.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.registry.json.content import REST, Content, Elements, depends_on_others, matches_pattern
from millstream.registry.json.document import SchemaNode
from millstream.registry.json.keywords import (
    WORDS,
    Change,
    bounds,
    constants,
    enums,
    needed,
    numbers,
    required,
    strings,
)
from millstream.registry.json.overlap import TYPES, Overlaps, accepts_all
from millstream.registry.json.verdicts import COMPATIBLE, MEANING
from millstream.registry.schema import Difference

_Pair = tuple[int, int]


def incompatible(original: SchemaNode, update: SchemaNode) -> list[Difference]:
    """The changes that may make a valid document invalid, and where they are."""
    return [
        Difference(kind, path, MEANING.get(kind, ""))
        for kind, path in changes(original, update)
        if kind not in COMPATIBLE
    ]


def changes(original: SchemaNode, update: SchemaNode) -> list[Change]:
    """Every change. A pair of schemas that contains itself is assumed to be compatible, and conclusions drawn
    from that may be wrong. So recursive schemas are compared until no new incompatible pair is found."""
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
    return [(kind, f"{path}/{rest}".strip("/")) for kind, rest in found]


class _Comparison:
    def __init__(self, failed: dict[_Pair, list[Change]]) -> None:
        self._failed = failed
        self._under_way: set[_Pair] = set()
        self.known: dict[_Pair, list[Change]] = {}
        self._overlaps = Overlaps()
        self.assumed = False

    def compare(self, original: SchemaNode, update: SchemaNode) -> list[Change]:
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

    def _covers(self, update: SchemaNode, original: SchemaNode) -> bool:
        """True if everything that is valid by ``original`` is valid by ``update``."""
        return _compatible(self.compare(original, update))

    def _compared(self, original: SchemaNode, update: SchemaNode) -> list[Change]:
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
            return [("KEYWORD_NOT_CHECKED" if update.kind == "unknown" else "TYPE_CHANGED", "")]
        found = [
            (kind, "")
            for word, kind in WORDS.items()
            if original.get(word) != update.get(word) and original.kind != "combined"
        ]
        if original.kind in TYPES and "type" in update.raw and "type" not in original.raw:
            found.append(("TYPE_ADDED", ""))
        compare = {
            "string": strings,
            "number": numbers,
            "enum": enums,
            "const": constants,
            "combined": self._combinations,
            "not": self._negations,
            "if": self._conditions,
            "unknown": _unknown,
            "object": self._objects,
            "array": self._arrays,
        }.get(original.kind)
        return found + (compare(original, update) if compare is not None else [])

    # Combinations ------------------------------------------------------------------------------------

    def _into_combination(self, original: SchemaNode, update: SchemaNode) -> list[Change] | None:
        if len(update.parts) == 1:
            found = self.compare(original, update.parts[0])
            return found if _compatible(found) else None
        overlapping: list[Change] = []
        for at, part in enumerate(update.parts):
            found = self.compare(original, part)
            if not _compatible(found):
                continue
            if update.criterion == "allOf":
                return [("PRODUCT_TYPE_EXTENDED", "")]
            overlapping = self._overlapping(original, {0: at}, update)
            if not overlapping:
                return [*found, ("SUM_TYPE_EXTENDED", "")]
        return overlapping or None

    def _out_of_combination(self, original: SchemaNode, update: SchemaNode) -> list[Change] | None:
        if len(original.parts) == 1:
            found = self.compare(original.parts[0], update)
            return found if _compatible(found) else None
        if original.criterion == "allOf":
            for part in original.parts:
                found = self.compare(part, update)
                if _compatible(found):
                    return [*found, ("PRODUCT_TYPE_NARROWED", "")]
        return None

    def _combinations(self, original: SchemaNode, update: SchemaNode) -> list[Change]:
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
        paths = [f"{original.criterion}/{at}" if original.listed else "" for at in range(before)]
        for at, part in enumerate(original.parts):
            for other, candidate in enumerate(update.parts):
                made = self.compare(part, candidate)
                if _compatible(made):
                    edges.setdefault(at, {})[other] = _below(paths[at], made)
        matched = _matching(edges)
        for other, at in matched.items():
            found += edges[at][other]
        if len(matched) < min(before, now):
            found.append(("COMBINED_TYPE_SUBSCHEMAS_CHANGED", ""))
            # A part without a match was likely changed from the part at the same position.
            for at, (part, candidate) in enumerate(zip(original.parts, update.parts, strict=False)):
                if at not in matched and part.kind == candidate.kind:
                    found += _below(paths[at], self.compare(part, candidate))
        return found + self._overlapping(original, {at: other for other, at in matched.items()}, update)

    def _overlapping(self, original: SchemaNode, chosen: dict[int, int], update: SchemaNode) -> list[Change]:
        """The places where data that fits one alternative may fit another as well, and so is no longer valid.
        ``chosen``: the alternative of ``update`` that takes over each part of ``original``."""
        if update.criterion != "oneOf":
            return []
        found: list[Change] = []
        parts = original.parts if original.kind == "combined" else (original,)
        exclusive = original.kind == "combined" and original.criterion == "oneOf"
        types = self._valid_types(original, parts)
        taken_from = {other: at for at, other in chosen.items()}
        for at, other in chosen.items():
            for third, candidate in enumerate(update.parts):
                source = taken_from.get(third)
                if third == other or self._overlaps.disjoint(parts[at], candidate, types):
                    continue
                if exclusive and source is not None and self._covers(parts[source], candidate):
                    continue  # data that fits it also fitted its predecessor, and so no other part
                shown = self._covers(candidate, parts[at]) or self._covers(parts[at], candidate)
                kind = "SUM_TYPE_OVERLAPS" if shown else "OVERLAP_NOT_CHECKED"
                found.append((kind, f"oneOf/{third}"))
        return list(dict.fromkeys(found))

    def _valid_types(self, original: SchemaNode, parts: Sequence[SchemaNode]) -> frozenset[str]:
        """The types that valid data may have had. If two alternatives of a oneOf accept all values of a type,
        no such value was valid. For example, an alternative without ``type`` that has only keywords for
        objects accepts every string."""
        if original.kind != "combined" or original.criterion != "oneOf":
            return TYPES
        given = original.get("type")
        named = {given} if isinstance(given, str) else set(given or TYPES)
        named = {"number" if type == "integer" else type for type in named}
        return frozenset(type for type in named if sum(accepts_all(part, type) for part in parts) < 2)

    def _negations(self, original: SchemaNode, update: SchemaNode) -> list[Change]:
        # The set of values that must not match may only shrink.
        before, now = original.schema("not"), update.schema("not")
        assert before is not None
        assert now is not None
        return [("NOT_TYPE_NARROWED" if self._covers(before, now) else "NOT_TYPE_EXTENDED", "not")]

    def _conditions(self, original: SchemaNode, update: SchemaNode) -> list[Change]:
        before, now = (node.schema("if") or node.anything() for node in (original, update))
        if not (self._covers(before, now) and self._covers(now, before)):
            return [("CONDITION_NOT_CHECKED", "if")]
        found: list[Change] = []
        for word in ("then", "else"):
            before, now = (node.schema(word) or node.anything() for node in (original, update))
            found += _below(word, self.compare(before, now))
        return found

    # Objects -----------------------------------------------------------------------------------------

    def _objects(self, original: SchemaNode, update: SchemaNode) -> list[Change]:
        if depends_on_others(update, "unevaluatedProperties"):
            identical = original.identical(update)
            return [] if identical else [("UNEVALUATED_NOT_CHECKED", "unevaluatedProperties")]
        found = required(original, update)
        before, now = Content.of(original), Content.of(update)
        for name in dict.fromkeys((*before.named, *now.named)):
            path = f"properties/{name}"
            if name not in now.named:
                found += _below(path, self._removed(before.named[name], now, name))
            elif name not in before.named:
                found += _below(path, self._added(before, update, now.named[name], name))
            else:
                found += _below(path, self.compare(before.named[name], now.named[name]))
        found += self._patterns(before, now)
        found += self._dependencies(original, update)
        found += self._rest(before, now)
        found += self._names(original, update, before)
        return found + bounds(original, update, ("maxProperties", "minProperties"))

    def _removed(self, schema: SchemaNode, now: Content, name: str) -> list[Change]:
        applying, _ = now.by_pattern(name)
        if applying:
            return []  # compared in _patterns
        if now.rest.kind == "any":
            return [("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", "")]
        if now.rest.kind == "none":
            never = "PROPERTY_WITH_FALSE" if schema.kind == "none" else "PROPERTY"
            return [(f"{never}_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]
        made = self.compare(schema, now.rest)
        covered = "IS_COVERED" if _compatible(made) else "NOT_COVERED"
        return [*made, (f"PROPERTY_REMOVED_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]

    def _added(self, before: Content, update: SchemaNode, schema: SchemaNode, name: str) -> list[Change]:
        what = "OPTIONAL_PROPERTY"
        if name in (update.get("required") or ()):
            what = "REQUIRED_PROPERTY_WITH_DEFAULT" if "default" in schema.raw else "REQUIRED_PROPERTY"
        applying = before.certain(name)
        if all(each.kind == "any" for each in applying):
            if schema.kind == "any" and what != "REQUIRED_PROPERTY":
                return [("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", "")]
            return [(f"{what}_ADDED_TO_OPEN_CONTENT_MODEL", "")]
        found: list[Change] = []
        if not any(each.kind == "none" for each in applying):
            made = next(
                (made for each in applying if _compatible(made := self.compare(each, schema))),
                self.compare(applying[0], schema),
            )
            covered = "IS_COVERED" if _compatible(made) else "NOT_COVERED"
            found = [*made, (f"PROPERTY_ADDED_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]
        return [*found, (f"{what}_ADDED_TO_UNOPEN_CONTENT_MODEL", "")]

    def _patterns(self, before: Content, now: Content) -> list[Change]:
        """Compare pattern properties: what was allowed under each matching name must fit the new schema."""
        found: list[Change] = []
        for pattern, schema in now.patterns.items():
            path = f"patternProperties/{pattern}"
            if pattern in before.patterns:
                found += _below(path, self.compare(before.patterns[pattern], schema))
                continue
            if not all(self._covers(schema, each) for each in (before.rest, *before.patterns.values())):
                found.append(("PATTERN_PROPERTIES_ADDED", path))
            for name in dict.fromkeys((*before.named, *now.named)):
                if (matches := matches_pattern(pattern, name)) is False:
                    continue
                if any(self._covers(schema, each) for each in before.certain(name)):
                    continue
                found.append(("PATTERN_NOT_CHECKED" if matches is None else "PATTERN_PROPERTIES_ADDED", path))
        for pattern, schema in before.patterns.items():
            if pattern not in now.patterns and not self._covers(now.rest, schema):
                found.append(("PATTERN_PROPERTIES_REMOVED", f"patternProperties/{pattern}"))
        return list(dict.fromkeys(found))

    def _names(self, original: SchemaNode, update: SchemaNode, before: Content) -> list[Change]:
        then, since = original.schema("propertyNames"), update.schema("propertyNames")
        if since is None or since.kind == "any":
            return []
        if then is not None:
            return _below("propertyNames", self.compare(then, since))
        open_names = before.rest.kind != "none"
        return [(f"PROPERTY_NAMES_{'ADDED' if open_names else 'NOT_CHECKED'}", "propertyNames")]

    def _dependencies(self, original: SchemaNode, update: SchemaNode) -> list[Change]:
        found: list[Change] = []
        before, now = needed(original), needed(update)
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

    def _rest(self, before: Content | Elements, now: Content | Elements) -> list[Change]:
        """Compare the schemas for all other properties or elements."""
        word = now.word if now.rest.kind != "any" else before.word
        kind = REST[word]
        then, since = before.rest, now.rest
        if (then.kind == "none") != (since.kind == "none"):
            return [(f"{kind}_{'ADDED' if then.kind == 'none' else 'REMOVED'}", word)]
        if (then.kind == "any") != (since.kind == "any"):
            return [(f"{kind}_{'NARROWED' if then.kind == 'any' else 'EXTENDED'}", word)]
        return [] if then.kind in ("any", "none") else _below(word, self.compare(then, since))

    # Arrays ------------------------------------------------------------------------------------------

    def _arrays(self, original: SchemaNode, update: SchemaNode) -> list[Change]:
        if depends_on_others(update, "unevaluatedItems"):
            return [] if original.identical(update) else [("UNEVALUATED_NOT_CHECKED", "unevaluatedItems")]
        before, now = Elements.of(original), Elements.of(update)
        found: list[Change] = []
        if before.word == now.word == "items":
            if before.rest.kind == now.rest.kind or "any" not in (before.rest.kind, now.rest.kind):
                found += _below("items", self.compare(before.rest, now.rest))
            else:
                found.append((f"SCHEMA_{'ADDED' if before.rest.kind == 'any' else 'REMOVED'}", "items"))
        else:
            for at in range(max(len(before.first), len(now.first))):
                found += _below(f"items/{at}", self._element(before, now, at))
            found += self._rest(before, now)
        found += bounds(original, update, ("maxItems", "minItems"))
        if bool(original.get("uniqueItems")) != bool(update.get("uniqueItems")):
            found.append(
                (f"UNIQUE_ITEMS_{'REMOVED' if original.get('uniqueItems') else 'ADDED'}", "uniqueItems")
            )
        return found + self._contained(original, update)

    def _element(self, before: Elements, now: Elements, at: int) -> list[Change]:
        if at < len(before.first) and at < len(now.first):
            return self.compare(before.first[at], now.first[at])
        added = at < len(now.first)
        rest, schema = (before.rest, now.first[at]) if added else (now.rest, before.first[at])
        what = "ITEM_ADDED" if added else "ITEM_REMOVED"
        if rest.kind == "any":
            empty = added and schema.kind == "any"
            where = "TO_OPEN" if added else "FROM_OPEN"
            word = "ITEM_WITH_EMPTY_SCHEMA_ADDED" if empty else what
            return [(f"{word}_{where}_CONTENT_MODEL", "")]
        if rest.kind == "none":
            never = not added and schema.kind == "none"
            where = "TO_CLOSED" if added else "FROM_CLOSED"
            word = "ITEM_WITH_FALSE_REMOVED" if never else what
            return [(f"{word}_{where}_CONTENT_MODEL", "")]
        made = self.compare(rest, schema) if added else self.compare(schema, rest)
        covered = "IS_COVERED" if _compatible(made) else "NOT_COVERED"
        return [*made, (f"{what}_{covered}_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]

    def _contained(self, original: SchemaNode, update: SchemaNode) -> list[Change]:
        then, since = original.schema("contains"), update.schema("contains")
        least, most = update.get("minContains"), update.get("maxContains")
        if since is None or (least == 0 and most is None):
            return []
        if then is None:
            return [("CONTAINS_ADDED", "contains")]
        found = bounds(original, update, ("maxContains", "minContains"))
        if least != 0:
            found += _below("contains", self.compare(then, since))
        if most is not None and not self._covers(then, since):
            found.append(("MAX_CONTAINS_COUNTS_MORE", "contains"))
        return found


def _unknown(original: SchemaNode, update: SchemaNode) -> list[Change]:
    return [] if original.identical(update) else [("KEYWORD_NOT_CHECKED", "")]


def _matching(edges: dict[int, dict[int, list[Change]]]) -> dict[int, int]:
    """A maximum matching: the left side of each pair by its right side."""
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
