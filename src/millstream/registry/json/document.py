"""JSON documents with schemas: resolve their ``$ref``, and classify each schema in them.

To be compared, two JSON schemas need the same shape. A schema that makes several statements at once (a type,
an enum, an ``allOf``) becomes a combination of schemas that make one statement each, as in the validator
behind Confluent's registry. ``SchemaNode`` is such a schema.

A reference is looked up in the document, in the documents given with it, and in the published meta-schemas.
Nothing is ever fetched: a schema that makes a server open an address of its choice is an attack.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from millstream.core.errors import InvalidSchema
from millstream.registry.schema import MAX_DEPTH, compact

_STRING = ("minLength", "maxLength", "pattern", "format")
_NUMBER = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_ARRAY = (
    *("items", "prefixItems", "additionalItems", "unevaluatedItems", "minItems", "maxItems", "uniqueItems"),
    *("contains", "minContains", "maxContains"),
)
_OBJECT = (
    *("properties", "required", "minProperties", "maxProperties", "patternProperties", "propertyNames"),
    *(
        "additionalProperties",
        "unevaluatedProperties",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
    ),
)
_OF_TYPE = {"string": _STRING, "number": _NUMBER, "array": _ARRAY, "object": _OBJECT}
COMBINATIONS = ("allOf", "anyOf", "oneOf")
# Keywords that hold values, not schemas: nothing in them is a reference.
_VALUES = ("enum", "const", "default", "examples")
# The meaning of these depends on the path by which a validator got there, or on rules that only draft 3 has.
_NOT_COMPARED = ("$dynamicRef", "$recursiveRef", "extends", "disallow", "divisibleBy")
_BESIDE = ("then", "else", "$id", "id", "title", "description", "default")  # read, but not asserted


class SchemaNode:
    """A schema that makes one statement, or combines other schemas.

    ``kind``: ``any`` and ``none`` (true and false), ``string``, ``number``, ``boolean``, ``null``,
    ``object``, ``array``, ``enum``, ``const``, ``not``, ``if``, ``combined`` (by ``criterion``, of
    ``parts``), or ``unknown`` (a keyword that is not compared). ``raw`` holds only the keywords that the
    schema's draft knows; validators ignore all others.
    """

    __slots__ = ("_document", "_parts", "criterion", "kind", "listed", "raw")

    def __init__(
        self,
        document: SchemaDocument,
        kind: str,
        raw: Any,
        criterion: str = "",
        parts: tuple[SchemaNode, ...] | None = None,
    ) -> None:
        self._document = document
        self._parts = parts
        self.kind = kind
        self.raw: Mapping[str, Any] = raw if isinstance(raw, dict) else {}
        self.criterion = criterion
        self.listed = parts is None  # True if its parts are a list in the schema, under its criterion

    @property
    def parts(self) -> tuple[SchemaNode, ...]:
        if self._parts is None:
            # Made on demand, because a schema may be a part of itself. A repeated part changes nothing,
            # except in a oneOf, where it makes everything that matches it invalid.
            unique: dict[str, Any] = {}
            for at, each in enumerate(self.raw[self.criterion]):
                unique.setdefault(str(at) if self.criterion == "oneOf" else compact(each), each)
            self._parts = tuple(self._document.node(each) for each in unique.values())
        return self._parts

    def get(self, key: str) -> Any:
        return self.raw.get(key)

    def schema(self, key: str) -> SchemaNode | None:
        """The schema under a keyword; None if there is none."""
        value = self.raw.get(key)
        return self._document.node(value) if isinstance(value, bool | dict) else None

    def schemas(self, key: str) -> dict[str, SchemaNode]:
        """The schemas under a keyword, by name."""
        value = self.raw.get(key)
        if not isinstance(value, dict):
            return {}
        return {name: self._document.node(each) for name, each in value.items() if not isinstance(each, list)}

    def tuple(self) -> list[SchemaNode]:
        """The schemas of an array's first elements."""
        value = self.raw.get("prefixItems", self.raw.get("items"))
        return [self._document.node(each) for each in value] if isinstance(value, list) else []

    def anything(self) -> SchemaNode:
        """The schema that accepts everything."""
        return self._document.node(True)

    def identical(self, other: SchemaNode) -> bool:
        """True if two schemas are written identically, in the same draft, with everything they refer to."""
        return self._document.identical(self.raw, other._document, other.raw, set())


class SchemaDocument:
    """One JSON document, and the others that it may refer to. ``dialect`` is the validator class of its
    draft, and ``default`` the one for a document that names no draft."""

    def __init__(self, raw: Any, others: Mapping[str, SchemaDocument], default: Any = None) -> None:
        self.raw = raw
        self._others = others
        self._nodes: dict[int, SchemaNode] = {}
        self._ids: dict[str, Any] = {}  # what each $id and $anchor names, by its full address
        self.dialect = dialect_of(raw, default)
        known = self.dialect.VALIDATORS
        self._new = "dependentRequired" in known  # 2019-09 and later
        self._keywords = {*known, *_BESIDE, *(("minContains", "maxContains") if self._new else ())}
        self.base = _id_of(raw)
        self._index(raw, "", 0)

    def _index(self, value: Any, base: str, depth: int) -> None:
        if depth > MAX_DEPTH * 2:
            raise InvalidSchema(f"the schema is nested more than {MAX_DEPTH} levels deep")
        if isinstance(value, list):
            for each in value:
                self._index(each, base, depth + 1)
        elif isinstance(value, dict):
            own = _id_of(value)
            if own:
                base = urljoin(base, own)
                self._ids[base.rstrip("#")] = value
            for word in ("$anchor", "$dynamicAnchor"):
                if isinstance(value.get(word), str):
                    self._ids[f"{base}#{value[word]}"] = value
            for key, each in value.items():
                if key not in _VALUES:
                    self._index(each, base, depth + 1)

    def references(self) -> Iterator[str]:
        """Every ``$ref`` of the document."""
        stack = [self.raw]
        while stack:
            value = stack.pop()
            if isinstance(value, list):
                stack += value
            elif isinstance(value, dict):
                if isinstance(value.get("$ref"), str):
                    yield value["$ref"]
                stack += [each for key, each in value.items() if key not in _VALUES]

    def node(self, raw: Any) -> SchemaNode:
        """The node of a schema in this document; always the same object for the same schema."""
        found = self._nodes.get(id(raw))
        if found is None:
            found = self._nodes[id(raw)] = self._made(raw, 0)
        return found

    def _made(self, raw: Any, hops: int) -> SchemaNode:
        if isinstance(raw, bool):
            return SchemaNode(self, "any" if raw else "none", raw)
        if not isinstance(raw, dict):
            raise InvalidSchema(f"{compact(raw)[:80]} is not a schema: a schema is an object or a boolean")
        found: list[SchemaNode] = []
        if isinstance(raw.get("$ref"), str):
            if hops > MAX_DEPTH:
                raise InvalidSchema(f"$ref {raw['$ref']!r} leads to itself")
            document, target = self.resolve(raw["$ref"])
            there = document._made(target, hops + 1) if "$ref" in _keys(target) else document.node(target)
            if not self._new:
                return there  # in older drafts, keywords beside a $ref are ignored
            found.append(there)
        raw = self._asserted(raw)
        found += self._said(raw)
        if not found:
            return SchemaNode(self, "any", raw)
        return found[0] if len(found) == 1 else SchemaNode(self, "combined", raw, "allOf", tuple(found))

    def _asserted(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        """The keywords of a schema that its draft knows, in the form of later drafts."""
        found = {word: value for word, value in raw.items() if word in self._keywords}
        if "const" not in self._keywords:  # in draft 4, a boolean beside a bound says if it is exclusive
            for bound, excluded in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
                if raw.get(excluded) is True and bound in found:
                    found[excluded] = found.pop(bound)
        return found

    def identical(self, raw: Any, other: SchemaDocument, there: Any, met: set[tuple[int, int]]) -> bool:
        """True if two schemas are written identically. ``met``: pairs of references being compared."""
        if type(raw) is not type(there) or self.dialect is not other.dialect:
            return False
        if isinstance(raw, list):
            return len(raw) == len(there) and all(
                self.identical(mine, other, its, met) for mine, its in zip(raw, there, strict=True)
            )
        if not isinstance(raw, dict):
            return bool(raw == there)
        if raw.keys() != there.keys() or any(word in raw for word in _NOT_COMPARED):
            return False
        if isinstance(raw.get("$ref"), str) and isinstance(there["$ref"], str):
            (mine, at), (its, place) = self.resolve(raw["$ref"]), other.resolve(there["$ref"])
            if (id(at), id(place)) not in met and not mine.identical(
                at, its, place, met | {(id(at), id(place))}
            ):
                return False
        return all(
            compact(raw[word]) == compact(there[word])
            if word in _VALUES or word == "$ref"
            else self.identical(raw[word], other, there[word], met)
            for word in raw
        )

    def _said(self, raw: Mapping[str, Any]) -> Iterator[SchemaNode]:
        if "allOf" not in self._keywords or any(word in raw for word in _NOT_COMPARED):
            yield SchemaNode(self, "unknown", raw)
        for criterion in COMBINATIONS:
            if isinstance(raw.get(criterion), list):
                yield SchemaNode(self, "combined", raw, criterion)
        if isinstance(raw.get("enum"), list):
            yield SchemaNode(self, "enum", raw)
        if "const" in raw:
            yield SchemaNode(self, "const", raw)
        if isinstance(raw.get("not"), bool | dict):
            yield SchemaNode(self, "not", raw)
        if isinstance(raw.get("if"), bool | dict):
            yield SchemaNode(self, "if", raw)
        types = raw.get("type")
        if isinstance(types, str):
            yield self._typed(types, raw)
        elif isinstance(types, list):
            parts = tuple(self._typed(each, raw) for each in types)
            yield parts[0] if len(parts) == 1 else SchemaNode(self, "combined", raw, "anyOf", parts)
        else:
            for kind, keywords in _OF_TYPE.items():
                if any(word in raw for word in keywords):
                    yield SchemaNode(self, kind, raw)

    def _typed(self, type: Any, raw: Mapping[str, Any]) -> SchemaNode:
        if type == "integer":
            return SchemaNode(self, "number", {**raw, "type": "integer"})
        return SchemaNode(self, str(type), {**raw, "type": type})

    def resolve(self, reference: str) -> tuple[SchemaDocument, Any]:
        """The document that a ``$ref`` leads to, and the schema in it. Raises InvalidSchema."""
        address, fragment = urldefrag(reference)
        for name in dict.fromkeys((address, urljoin(self.base, address) if self.base else address)):
            if name in ("", self.base) and (name == address or address == ""):
                found = self._within(fragment)
            elif name in self._ids:
                found = (
                    _pointed(self._ids[name], fragment) if fragment.startswith("/") or not fragment else None
                )
                found = self._ids.get(f"{name}#{fragment}") if found is None else found
            elif name in self._others:
                other = self._others[name]
                found = other._within(fragment)
                if found is not None:
                    return other, found
            else:
                found = None
            if found is not None:
                return self, found
        published = _published(address)
        if published is not None:
            target = published._within(fragment)
            if target is not None:
                return published, target
        raise InvalidSchema(
            f"$ref {reference!r} leads nowhere: it is neither in the schema nor among its references"
            f" ({', '.join(sorted(self._others)) or 'there are none'}), and nothing is fetched from elsewhere"
        )

    def _within(self, fragment: str) -> Any:
        if fragment and not fragment.startswith("/"):
            for base in (self.base, ""):
                if (found := self._ids.get(f"{base}#{fragment}")) is not None:
                    return found
            return None
        return _pointed(self.raw, fragment)


def dialect_of(raw: Any, default: Any = None) -> Any:
    """The validator class of a document's draft. The default is draft 7, as in Confluent's registry."""
    from jsonschema.validators import Draft7Validator, validator_for

    default = default or Draft7Validator
    return validator_for(raw, default=default) if isinstance(raw, dict) else default


def _id_of(value: Any) -> str:
    """The ``$id`` of a schema, which in old drafts may be an anchor (``"#name"``); empty if it has none."""
    if not isinstance(value, dict):
        return ""
    named = value.get("$id", value.get("id"))
    return named.removesuffix("#") if isinstance(named, str) else ""


def _keys(value: Any) -> Any:
    return value if isinstance(value, dict) else ()


def _pointed(value: Any, pointer: str) -> Any:
    """The value that a JSON pointer leads to; None if there is none."""
    for step in pointer.split("/")[1:]:
        step = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


@functools.cache
def _published(address: str) -> SchemaDocument | None:
    """A published meta-schema, from the copies that come with the validator."""
    from jsonschema_specifications import REGISTRY

    for name in (address, address + "#"):
        if name in REGISTRY:
            return SchemaDocument(REGISTRY.contents(name), {})
    return None
