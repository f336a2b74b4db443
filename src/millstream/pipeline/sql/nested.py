"""SQL functions of arrays, maps and structs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.pipeline.sql import types
from millstream.pipeline.sql.building import (
    Build,
    Compiled,
    Scope,
    Table,
    applied,
    check_count,
    coerced,
    converted,
    strict,
    together,
)
from millstream.pipeline.sql.casts import BadValue
from millstream.pipeline.sql.nodes import AnalysisError, Unsupported
from millstream.pipeline.sql.operators import ordered
from millstream.pipeline.sql.types import BIGINT, BOOLEAN, INT, STRING, VOID, Type


def needs(name: str, given: Compiled, kind: str) -> Type:
    if given.type.name != kind:
        raise AnalysisError(f"{name} needs {'an' if kind == 'array' else 'a'} {kind}, not {given.type.text}")
    return given.type


def of_array(
    function: Callable[..., Any], *others: types.Type | str | None, result: Callable[[Type], Type] | Type
) -> Build:
    """A function whose first argument is an array."""

    def build(name: str, given: list[Compiled], scope: Scope) -> Compiled:
        check_count(name, given, 1 + len(others), 1 + len(others))
        kind = needs(name, given[0], "array")
        rest = [kind.element if other == "element" else other for other in others]
        made = result if isinstance(result, Type) else result(kind)
        return strict(function, [None, *rest], made)(name, given, scope)

    return build


def of_map(function: Callable[[dict[Any, Any]], Any], result: Callable[[Type], Type]) -> Build:
    def build(name: str, given: list[Compiled], scope: Scope) -> Compiled:
        check_count(name, given, 1, 1)
        return strict(function, [None], result(needs(name, given[0], "map")))(name, given, scope)

    return build


# ---- making them -------------------------------------------------------------------------------------


def _array(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    if not given:
        return Compiled(types.array(VOID), lambda row: [], constant=True)
    values = together(name, given)
    runs = [one.run for one in values]
    constant = all(one.constant for one in values)
    return Compiled(types.array(values[0].type), lambda row: [run(row) for run in runs], constant=constant)


def _map(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    if not given or len(given) % 2:
        raise AnalysisError("map(key, value, ...) takes keys and values alternately")
    keys, values = together(name, given[::2]), together(name, given[1::2])
    pairs = [(key.run, value.run) for key, value in zip(keys, values, strict=True)]

    def run(row: list[Any]) -> dict[Any, Any]:
        return distinct([(key(row), value(row)) for key, value in pairs])

    return Compiled(types.mapping(keys[0].type, values[0].type), run)


def distinct(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, value in pairs:
        if key is None:
            raise BadValue("a map can't have null as a key")
        if key in found:
            raise BadValue(f"the map has the key {key!r} twice")
        found[key] = value
    return found


def _struct(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 1, None)
    names = [one.name or f"col{at}" for at, one in enumerate(given, 1)]
    return _named(names, given)


def _named_struct(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    if not given or len(given) % 2 or not all(one.constant for one in given[::2]):
        raise AnalysisError("named_struct('name', value, ...) takes constant names and values alternately")
    return _named([str(one.run([])) for one in given[::2]], given[1::2])


def _named(names: list[str], values: list[Compiled]) -> Compiled:
    if len({name.lower() for name in names}) != len(names):
        raise Unsupported("a struct with two fields of the same name")
    fields = {name: one.type for name, one in zip(names, values, strict=True)}
    runs = [(name, one.run) for name, one in zip(names, values, strict=True)]
    return Compiled(types.struct(fields), lambda row: {name: run(row) for name, run in runs})


def _sequence(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 2, 3)
    if not all(one.type in types.INTEGERS for one in given):
        raise Unsupported("a sequence of anything but whole numbers")
    values = together(name, given)

    def make(start: int, stop: int, step: int | None = None) -> list[int]:
        step = (1 if stop >= start else -1) if step is None else step
        if step == 0 or (stop != start and (stop > start) != (step > 0)):
            raise BadValue(f"sequence({start}, {stop}, {step}) would not end")
        return list(range(start, stop + (1 if step > 0 else -1), step))

    return strict(make, [None] * len(values), types.array(values[0].type))(name, values, scope)


# ---- taking out of them ------------------------------------------------------------------------------


def field(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    """``value.field``: of a struct, of a map by its key, or of every struct in an array."""
    subject, wanted = given[0], str(given[1].run([]))
    kind = subject.type
    if kind.name == "map" and kind.inner[0] == STRING:
        return Compiled(kind.element, applied(lambda value: value.get(wanted), [subject.run]), wanted)
    inside = kind.element if kind.name == "array" else kind
    found = inside.field(wanted) if inside.name == "struct" else None
    if found is None:
        has = ", ".join(inside.names) if inside.name == "struct" else kind.text
        raise AnalysisError(f"there is no field {wanted!r}; the fields are {has}")
    own, type_of = found
    if kind.name == "array":
        take = applied(lambda value: [None if one is None else one[own] for one in value], [subject.run])
        return Compiled(types.array(type_of), take, own)
    return Compiled(type_of, applied(lambda value: value[own], [subject.run]), own)


def _at(value: list[Any], index: int) -> Any:
    if not 0 <= index < len(value):
        raise BadValue(f"the index {index} is out of bounds: the array has {len(value)} elements")
    return value[index]


def _index(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    subject, index = given
    if subject.type.name == "map":
        key = converted(index, subject.type.inner[0])
        return Compiled(
            subject.type.element, applied(lambda value, at: value.get(at), [subject.run, key.run])
        )
    if subject.type.name == "struct":
        return field(name, given, scope)
    needs("[...]", subject, "array")
    if index.type not in types.INTEGERS:
        raise AnalysisError(f"an array is indexed by a number, not by {index.type.text}")
    return Compiled(subject.type.element, applied(_at, [subject.run, index.run]))


def _element_at(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 2, 2)
    if given[0].type.name == "map":
        return _index(name, given, scope)

    def take(value: list[Any], index: int) -> Any:
        if index == 0:
            raise BadValue("element_at counts from 1")
        return _at(value, index - 1 if index > 0 else len(value) + index)

    return of_array(take, INT, result=lambda kind: kind.element)(name, given, scope)


def _get(value: list[Any], index: int) -> Any:
    return value[index] if 0 <= index < len(value) else None


def _size(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 1, 1)
    if given[0].type.name not in ("array", "map"):
        raise AnalysisError(f"{name} needs an array or a map, not {given[0].type.text}")
    return strict(len, [None], INT)(name, given, scope)


# ---- arrays ------------------------------------------------------------------------------------------


def _contains(value: list[Any], wanted: Any) -> bool | None:
    if wanted in [one for one in value if one is not None]:
        return True
    return None if None in value else False


def _unique(value: list[Any]) -> list[Any]:
    found: list[Any] = []
    for one in value:
        if one not in found:
            found.append(one)
    return found


def _array_join(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 2, 3)
    kind = needs(name, given[0], "array")
    texts = converted(given[0], types.array(STRING)) if kind.element != STRING else given[0]

    def join(value: list[Any], between: str, null: str | None = None) -> str:
        return between.join(
            str(null if one is None else one) for one in value if one is not None or null is not None
        )

    return strict(join, [None, STRING, STRING], STRING, optional=1)(name, [texts, *given[1:]], scope)


def _sorted(nulls_first: bool) -> Build:
    def build(name: str, given: list[Compiled], scope: Scope) -> Compiled:
        check_count(name, given, 1, 2)
        kind = needs(name, given[0], "array")
        key = ordered(kind.element)

        def put(value: list[Any], ascending: bool = True) -> list[Any]:
            there = sorted((one for one in value if one is not None), key=key, reverse=not ascending)
            nulls = [None] * (len(value) - len(there))
            return [*nulls, *there] if nulls_first == ascending else [*there, *nulls]

        return strict(put, [None, BOOLEAN], kind, optional=1)(name, given, scope)

    return build


def _extreme(choose: Callable[..., Any]) -> Build:
    def build(name: str, given: list[Compiled], scope: Scope) -> Compiled:
        check_count(name, given, 1, 1)
        key = ordered(needs(name, given[0], "array").element)

        def find(value: list[Any]) -> Any:
            there = [one for one in value if one is not None]
            return choose(there, key=key) if there else None

        return of_array(find, result=lambda kind: kind.element)(name, given, scope)

    return build


def _two_arrays(function: Callable[[list[Any], list[Any]], Any], result: Type | None = None) -> Build:
    def build(name: str, given: list[Compiled], scope: Scope) -> Compiled:
        check_count(name, given, 2, 2)
        both = together(name, given)
        kind = needs(name, both[0], "array")
        return strict(function, [None, None], result or kind)(name, both, scope)

    return build


def _slice(value: list[Any], start: int, length: int) -> list[Any]:
    if start == 0 or length < 0:
        raise BadValue("slice counts from 1, and its length can't be negative")
    at = start - 1 if start > 0 else len(value) + start
    return value[at : at + length] if at >= 0 else []


def _flatten(value: list[Any]) -> list[Any] | None:
    return None if None in value else [one for inner in value for one in inner]


def _overlap(one: list[Any], other: list[Any]) -> bool | None:
    if any(value is not None and value in other for value in one):
        return True
    return None if one and other and (None in one or None in other) else False


def _appended(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 2, 2)
    kind = needs(name, given[0], "array")
    value, added = given[0].run, coerced(name, given[1], kind.element).run

    def run(row: list[Any]) -> list[Any] | None:
        found = value(row)
        return None if found is None else [*found, added(row)]

    return Compiled(kind, run)


def _array_repeat(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 2, 2)
    value, times = given[0].run, coerced(name, given[1], INT).run

    def run(row: list[Any]) -> list[Any] | None:
        count = times(row)
        return None if count is None else [value(row)] * max(count, 0)

    return Compiled(types.array(given[0].type), run)


def _entries(kind: Type) -> Type:
    return types.array(types.struct({"key": kind.inner[0], "value": kind.inner[1]}))


def _map_from_arrays(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 2, 2)
    keys, values = (needs(name, one, "array") for one in given)

    def make(one: list[Any], other: list[Any]) -> dict[Any, Any]:
        if len(one) != len(other):
            raise BadValue("map_from_arrays needs as many keys as values")
        return distinct(list(zip(one, other, strict=True)))

    return strict(make, [None, None], types.mapping(keys.element, values.element))(name, given, scope)


def _map_contains(name: str, given: list[Compiled], scope: Scope) -> Compiled:
    check_count(name, given, 2, 2)
    kind = needs(name, given[0], "map")
    return strict(lambda value, key: key in value, [None, kind.inner[0]], BOOLEAN)(name, given, scope)


def _same(kind: Type) -> Type:
    return kind


TABLE: Table = {
    "array": _array,
    "map": _map,
    "struct": _struct,
    "named_struct": _named_struct,
    "sequence": _sequence,
    ".": field,
    "[]": _index,
    "element_at": _element_at,
    "get": of_array(_get, INT, result=lambda kind: kind.element),
    "size": _size,
    "cardinality": _size,
    "array_size": _size,
    "array_contains": of_array(_contains, "element", result=BOOLEAN),
    "array_position": of_array(
        lambda value, wanted: value.index(wanted) + 1 if wanted in value else 0, "element", result=BIGINT
    ),
    "array_distinct": of_array(_unique, result=_same),
    "array_compact": of_array(lambda value: [one for one in value if one is not None], result=_same),
    "array_remove": of_array(
        lambda value, gone: [one for one in value if one != gone], "element", result=_same
    ),
    "array_append": _appended,
    "array_join": _array_join,
    "array_max": _extreme(max),
    "array_min": _extreme(min),
    "sort_array": _sorted(nulls_first=True),
    "array_union": _two_arrays(lambda one, other: _unique([*one, *other])),
    "array_intersect": _two_arrays(lambda one, other: _unique([value for value in one if value in other])),
    "array_except": _two_arrays(lambda one, other: _unique([value for value in one if value not in other])),
    "arrays_overlap": _two_arrays(_overlap, BOOLEAN),
    "slice": of_array(_slice, INT, INT, result=_same),
    "flatten": of_array(_flatten, result=lambda kind: kind.element),
    "array_repeat": _array_repeat,
    "map_keys": of_map(lambda value: list(value), lambda kind: types.array(kind.inner[0])),
    "map_values": of_map(lambda value: list(value.values()), lambda kind: types.array(kind.inner[1])),
    "map_entries": of_map(lambda value: [{"key": k, "value": v} for k, v in value.items()], _entries),
    "map_from_arrays": _map_from_arrays,
    "map_contains_key": _map_contains,
}
