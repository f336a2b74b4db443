"""Avro schemas: parse them into types, check them by the specification, and write them back.

``canonical`` shortens names the way Avro's own library does. Confluent's registry stores schemas in that
form, so the same text is the same schema in both registries.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from millstream.core.errors import InvalidSchema
from millstream.registry.avro.resolution import problems
from millstream.registry.avro.types import (
    NO_VALUE,
    PRIMITIVES,
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Type,
    Union,
    describe,
    fits,
)
from millstream.registry.schema import MAX_DEPTH, Difference, compact, json_document

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ORDERS = ("ascending", "descending", "ignore")


class AvroSchema:
    """An Avro schema, with all the named types that it can use."""

    def __init__(self, text: str, dependencies: tuple[tuple[str, str], ...] = ()) -> None:
        names: dict[str, Named] = {}
        for name, referred in dependencies:
            _Parser(names).document(referred, f"the schema referred to as {name!r}")
        self.foreign = frozenset(names)
        self.root = _Parser(names).document(text, "the schema")
        self.names = names

    def canonical(self) -> str:
        return compact(_Writer(self.foreign).written(self.root, ""))

    def normalized(self) -> str:
        return compact(_Writer(self.foreign, full_names=True).written(self.root, ""))

    def problems_reading(self, writer: AvroSchema) -> list[Difference]:
        return problems(self.root, writer.root)

    def document(self) -> Any:
        """The complete schema as one JSON value. Referenced types are written out at their first use."""
        return _Writer(frozenset()).written(self.root, "")


# ---- reading ------------------------------------------------------------------------------------------


class _Parser:
    def __init__(self, names: dict[str, Named]) -> None:
        self._names = names
        self._defaults: list[tuple[Field, str]] = []

    def document(self, text: str, what: str) -> Type:
        stripped = text.strip()
        # Avro's own parser accepts "string" without quotes, and people write it.
        value = stripped if stripped in PRIMITIVES else json_document(text, what)
        root = self.type(value, "", "/", 0)
        # Checked last, because the type of a default may be incomplete at the time the default is parsed.
        for each, path in self._defaults:
            if not fits(each.type, each.default):
                raise InvalidSchema(
                    f"{path}: the default of field {each.name!r}, {compact(each.default)}, is not a"
                    f" {describe(each.type)}"
                )
        return root

    def type(self, value: Any, namespace: str, path: str, depth: int) -> Type:
        if depth > MAX_DEPTH:
            raise InvalidSchema(f"the schema is nested more than {MAX_DEPTH} levels deep")
        if isinstance(value, str):
            return self._by_name(value, namespace, path)
        if isinstance(value, list):
            return self._union(value, namespace, path, depth)
        if not isinstance(value, dict):
            raise InvalidSchema(f"{path}: {compact(value)} is not a type; it is a name, an object or a list")
        kind = value.get("type", NO_VALUE)
        if kind is NO_VALUE:
            raise InvalidSchema(f"{path}: no type: {compact(value)[:80]}")
        if not isinstance(kind, str):
            # {"type": {"type": "string"}} or {"type": ["null", "string"]}: a type in an extra pair of braces
            inner = self.type(kind, namespace, path, depth + 1)
            if not isinstance(inner, Named):  # a named type may be used elsewhere without these properties
                inner.properties |= _rest(value, ("type",))
            return inner
        if kind in ("record", "error"):
            return self._record(value, namespace, path, depth)
        if kind == "enum":
            return self._enum(value, namespace, path)
        if kind == "fixed":
            return self._fixed(value, namespace, path)
        if kind == "array":
            items = self._part(value, "items", namespace, path, depth)
            return Array(items, properties=_rest(value, ("type", "items")))
        if kind == "map":
            values = self._part(value, "values", namespace, path, depth)
            return Map(values, properties=_rest(value, ("type", "values")))
        if kind in PRIMITIVES:
            return Primitive(kind, properties=_rest(value, ("type",)))
        return self._by_name(kind, namespace, path)

    def _by_name(self, name: str, namespace: str, path: str) -> Type:
        if name in PRIMITIVES:
            return Primitive(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._names.get(full) or self._names.get(name)
        if found is None:
            known = f"; known are {', '.join(sorted(self._names))}" if self._names else ""
            raise InvalidSchema(
                f"{path}: there is no type {full!r}{known}. A type of another schema needs a reference to it"
            )
        return found

    def _part(self, value: Mapping[str, Any], key: str, namespace: str, path: str, depth: int) -> Type:
        if key not in value:
            raise InvalidSchema(f"{path}: a type {value['type']!r} needs {key!r}")
        return self.type(value[key], namespace, _within(path, key), depth + 1)

    def _union(self, value: list[Any], namespace: str, path: str, depth: int) -> Type:
        branches = tuple(
            self.type(each, namespace, _within(path, at), depth + 1) for at, each in enumerate(value)
        )
        seen: set[str] = set()
        for branch in branches:
            if isinstance(branch, Union):
                raise InvalidSchema(f"{path}: a union can't contain a union")
            name = branch.name if isinstance(branch, Named) else branch.kind
            if name in seen:
                raise InvalidSchema(f"{path}: a union has {name!r} twice")
            seen.add(name)
        return Union(branches)

    def _named(self, value: Mapping[str, Any], namespace: str, path: str) -> dict[str, Any]:
        given = value.get("name")
        if not isinstance(given, str):
            raise InvalidSchema(f"{path}: a type {value['type']!r} needs a name")
        space = value.get("namespace", namespace)
        if space is None:
            space = ""
        if not isinstance(space, str):
            raise InvalidSchema(f"{path}: namespace {compact(space)} is not text")
        name = _full_name(given, space, path)
        if name in PRIMITIVES:
            raise InvalidSchema(f"{path}: {name!r} is the name of one of Avro's own types")
        if name in self._names:
            raise InvalidSchema(f"{path}: {name!r} is defined twice")
        own = name.rpartition(".")[0]
        aliases = tuple(_full_name(alias, own, path) for alias in _texts(value, "aliases", path))
        return {"name": name, "aliases": aliases, "doc": _text_or_none(value, "doc")}

    def _record(self, value: Mapping[str, Any], namespace: str, path: str, depth: int) -> Record:
        known = ("type", "name", "namespace", "aliases", "doc", "fields")
        record = Record(
            **self._named(value, namespace, path),
            is_error=value["type"] == "error",
            properties=_rest(value, known),
        )
        self._names[record.name] = record
        fields = value.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchema(f"{path}: record {record.name!r} needs a list of fields")
        made: list[Field] = []
        seen: set[str] = set()
        for at, each in enumerate(fields):
            where = _within(_within(path, "fields"), at)
            made.append(self._field(each, record.namespace, where, depth))
            if made[-1].name in seen:
                raise InvalidSchema(f"{where}: record {record.name!r} has two fields {made[-1].name!r}")
            seen.add(made[-1].name)
        record.fields = tuple(made)
        return record

    def _field(self, value: Any, namespace: str, path: str, depth: int) -> Field:
        if not isinstance(value, dict):
            raise InvalidSchema(f"{path}: a field is an object, not {compact(value)[:80]}")
        name = value.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidSchema(f"{path}: {compact(name)} can't be a field's name")
        if "type" not in value:
            raise InvalidSchema(f"{path}: field {name!r} has no type")
        order = value.get("order", "ascending")
        if order not in _ORDERS:
            raise InvalidSchema(f"{path}: order {compact(order)} is not one of {', '.join(_ORDERS)}")
        known = ("name", "type", "default", "aliases", "doc", "order")
        made = Field(
            name,
            self.type(value["type"], namespace, _within(path, "type"), depth + 1),
            value.get("default", NO_VALUE),
            tuple(_texts(value, "aliases", path)),
            _text_or_none(value, "doc"),
            order,
            _rest(value, known),
        )
        if made.has_default:
            self._defaults.append((made, path))
        return made

    def _enum(self, value: Mapping[str, Any], namespace: str, path: str) -> Enum:
        named = self._named(value, namespace, path)
        symbols = tuple(_texts(value, "symbols", path, needed=True))
        for symbol in symbols:
            if not _NAME.fullmatch(symbol):
                raise InvalidSchema(f"{path}: {symbol!r} can't be a symbol of enum {named['name']!r}")
        if len(set(symbols)) != len(symbols):
            raise InvalidSchema(f"{path}: enum {named['name']!r} has a symbol twice")
        default = _text_or_none(value, "default")
        if default is not None and default not in symbols:
            raise InvalidSchema(f"{path}: the default {default!r} is not a symbol of enum {named['name']!r}")
        known = ("type", "name", "namespace", "aliases", "doc", "symbols", "default")
        made = Enum(**named, symbols=symbols, default=default, properties=_rest(value, known))
        self._names[made.name] = made
        return made

    def _fixed(self, value: Mapping[str, Any], namespace: str, path: str) -> Fixed:
        named = self._named(value, namespace, path)
        size = value.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**31:
            raise InvalidSchema(f"{path}: fixed {named['name']!r} needs a size in bytes")
        known = ("type", "name", "namespace", "aliases", "doc", "size")
        made = Fixed(**named, size=size, properties=_rest(value, known))
        self._names[made.name] = made
        return made


def _within(path: str, step: object) -> str:
    return f"{path.rstrip('/')}/{step}"


def _rest(value: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    return {name: each for name, each in value.items() if name not in known}


def _full_name(name: str, namespace: str, path: str) -> str:
    full = name if "." in name or not namespace else f"{namespace}.{name}"
    full = full.removeprefix(".")
    if not all(_NAME.fullmatch(part) for part in full.split(".")):
        raise InvalidSchema(f"{path}: {full!r} can't be a name: letters, digits and _, with dots between")
    return full


def _texts(value: Mapping[str, Any], key: str, path: str, *, needed: bool = False) -> Iterator[str]:
    given = value.get(key, NO_VALUE if needed else [])
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise InvalidSchema(f"{path}: {key} must be a list of names")
    return iter(given)


def _text_or_none(value: Mapping[str, Any], key: str) -> str | None:
    given = value.get(key)
    return given if isinstance(given, str) else None


# ---- writing ------------------------------------------------------------------------------------------


class _Writer:
    """Writes types as JSON. A named type is written out at its first use, and later by its name. Types in
    ``foreign``, which belong to other schemas, are always written by name."""

    def __init__(self, foreign: frozenset[str], *, full_names: bool = False) -> None:
        self._seen = set(foreign)
        self._full_names = full_names

    def written(self, type: Type, namespace: str) -> Any:
        if isinstance(type, Primitive):
            return {"type": type.name, **self._rest(type)} if type.properties else type.name
        if isinstance(type, Union):
            return [self.written(branch, namespace) for branch in type.branches]
        if isinstance(type, Array):
            return {"type": "array", "items": self.written(type.items, namespace), **self._rest(type)}
        if isinstance(type, Map):
            return {"type": "map", "values": self.written(type.values, namespace), **self._rest(type)}
        named = cast(Named, type)
        if named.name in self._seen:
            near = named.namespace == namespace and not self._full_names
            return named.simple if near and named.simple not in PRIMITIVES else named.name
        self._seen.add(named.name)
        made = self._head(named, namespace)
        if isinstance(named, Record):
            made["fields"] = [self._field(each, named.namespace) for each in named.fields]
        elif isinstance(named, Enum):
            made["symbols"] = list(named.symbols)
            if named.default is not None:
                made["default"] = named.default
        elif isinstance(named, Fixed):
            made["size"] = named.size
        made |= self._rest(named)
        if named.aliases:
            made["aliases"] = [self._alias(alias, named.namespace) for alias in named.aliases]
        return made

    def _head(self, named: Named, namespace: str) -> dict[str, Any]:
        kind = "error" if isinstance(named, Record) and named.is_error else named.kind
        made: dict[str, Any] = {"type": kind}
        if self._full_names:
            made["name"] = named.name
        else:
            made["name"] = named.simple
            if named.namespace != namespace:
                made["namespace"] = named.namespace
        if named.doc is not None:
            made["doc"] = named.doc
        return made

    def _alias(self, alias: str, namespace: str) -> str:
        near = alias.rpartition(".")[0] == namespace and not self._full_names
        return alias.rpartition(".")[2] if near else alias

    def _field(self, each: Field, namespace: str) -> dict[str, Any]:
        made: dict[str, Any] = {"name": each.name, "type": self.written(each.type, namespace)}
        if each.doc is not None:
            made["doc"] = each.doc
        if each.has_default:
            made["default"] = each.default
        if each.order != "ascending":
            made["order"] = each.order
        if each.aliases:
            made["aliases"] = list(each.aliases)
        return {**made, **self._sorted(each.properties)}

    def _rest(self, type: Type) -> dict[str, Any]:
        return self._sorted(type.properties)

    def _sorted(self, properties: dict[str, Any]) -> dict[str, Any]:
        return dict(sorted(properties.items())) if self._full_names else properties
