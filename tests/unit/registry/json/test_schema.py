"""JSON schemas: what they refer to, and which changes keep old documents valid; jsonschema is the judge."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator

from millstream.core.errors import InvalidSchema
from millstream.registry.json.schema import JsonSchema
from millstream.registry.parsing import parse

CLOSED = {"additionalProperties": False}


def schema(value: Any, *dependencies: tuple[str, str]) -> JsonSchema:
    found = parse("JSON", json.dumps(value), dependencies)
    assert isinstance(found, JsonSchema)
    return found


def obj(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ({"type": "string"}, {"type": "integer"}, "TYPE_CHANGED #/"),
        ({"type": "integer"}, {"type": "number"}, None),
        ({"type": "number"}, {"type": "integer"}, "TYPE_NARROWED #/"),
        ({"type": "string"}, {"type": ["string", "null"]}, None),
        ({"type": ["string", "null"]}, {"type": "string"}, "TYPE_CHANGED #/"),
        ({"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 5}, None),
        ({"type": "string"}, {"type": "string", "pattern": "a"}, "PATTERN_ADDED #/pattern"),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, None),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, "ENUM_ARRAY_NARROWED #/enum"),
        (obj({}, **CLOSED), obj({"a": {}}, **CLOSED), None),
        (
            obj({}, **CLOSED),
            obj({"a": {"type": "string"}}, required=["a"], **CLOSED),
            "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/a",
        ),
        (
            obj({}),
            obj({"a": {"type": "string"}}),
            "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a",
        ),
        (
            obj({"a": {}}, **CLOSED),
            obj({}, **CLOSED),
            "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/a",
        ),
        (obj({"a": {}}), obj({}), None),
        (obj({"a": {}}), obj({"a": {}}, required=["a"]), "REQUIRED_ATTRIBUTE_ADDED #/required/a"),
        (obj({"a": {}}), obj({"a": {}}, **CLOSED), "ADDITIONAL_PROPERTIES_REMOVED #/additionalProperties"),
        (
            {"type": "array", "items": {"type": "string"}},
            {"type": "array", "items": {"type": "integer"}},
            "TYPE_CHANGED #/items",
        ),
        ({"oneOf": [{"type": "string"}]}, {"oneOf": [{"type": "string"}, {"type": "null"}]}, None),
        (
            {"oneOf": [{"type": "string"}, {"type": "null"}]},
            {"oneOf": [{"type": "string"}]},
            "SUM_TYPE_NARROWED #/",
        ),
    ],
)
def test_which_changes_keep_old_documents_valid(before: Any, after: Any, problem: str | None) -> None:
    found = [f"{each.kind} {each.path}" for each in schema(after).problems_reading(schema(before))]
    assert found == ([] if problem is None else [problem])


D4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
D2020 = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
A_STRING, WHOLE = {"type": "string"}, {"type": "integer"}


def kind_is(value: str) -> dict[str, Any]:
    return obj({"kind": {"const": value}}, required=["kind"])


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (obj({}), obj({}, required=["a"]), "REQUIRED_ATTRIBUTE_ADDED #/required/a"),
        (
            obj({}),
            obj({"a": {}}, required=["a"]),
            "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/a",
        ),
        (obj({}), obj({}, propertyNames={"pattern": "^x"}), "PROPERTY_NAMES_ADDED #/propertyNames"),
        (
            obj({"x": {}}, **CLOSED),
            obj({"x": {}}, propertyNames={"pattern": "^x"}, **CLOSED),
            "PROPERTY_NAMES_NOT_CHECKED #/propertyNames",
        ),
        (
            obj({}, propertyNames={"maxLength": 2}),
            obj({}, propertyNames={"maxLength": 1}),
            "MAX_LENGTH_DECREASED #/propertyNames/maxLength",
        ),
        (
            obj({}, patternProperties={"^x": A_STRING}),
            obj({}, patternProperties={"^x": WHOLE}),
            "TYPE_CHANGED #/patternProperties/^x",
        ),
        (
            obj({}),
            obj({}, patternProperties={"^x": WHOLE}),
            "PATTERN_PROPERTIES_ADDED #/patternProperties/^x",
        ),
        (obj({}, **CLOSED), obj({}, patternProperties={"^x": WHOLE}, **CLOSED), None),
        (
            obj({"xy": A_STRING}, **CLOSED),
            obj({"xy": A_STRING}, patternProperties={"^x": WHOLE}, **CLOSED),
            "PATTERN_PROPERTIES_ADDED #/patternProperties/^x",
        ),
        (
            obj({"xy": A_STRING}, **CLOSED),
            obj({"xy": A_STRING}, patternProperties={"^x(?=y)": WHOLE}, **CLOSED),
            "PATTERN_NOT_CHECKED #/patternProperties/^x(?=y)",
        ),
        (
            obj({}, patternProperties={"^x": WHOLE}, **CLOSED),
            obj({}, **CLOSED),
            "PATTERN_PROPERTIES_REMOVED #/patternProperties/^x",
        ),
        ({"type": "array"}, {"type": "array", "contains": WHOLE}, "CONTAINS_ADDED #/contains"),
        (
            {"type": "array", "contains": WHOLE},
            {"type": "array", "contains": A_STRING},
            "TYPE_CHANGED #/contains",
        ),
        (
            {**D2020, "type": "array", "contains": WHOLE, "minContains": 0},
            {**D2020, "type": "array", "contains": WHOLE},
            "MIN_CONTAINS_INCREASED #/minContains",
        ),
        (
            {"if": WHOLE, "then": {"minimum": 0}},
            {"if": WHOLE, "then": {"minimum": 1}},
            "MINIMUM_INCREASED #/then/minimum",
        ),
        ({"if": WHOLE, "then": {"minimum": 1}}, {"if": WHOLE, "then": {"minimum": 0}}, None),
        (
            {"if": WHOLE, "then": {"minimum": 0}},
            {"if": {"type": "number"}, "then": {"minimum": 0}},
            "CONDITION_NOT_CHECKED #/if",
        ),
        (
            {"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}},
            {"type": "object", "if": {"required": ["b"]}, "then": {"required": ["b"]}},
            "CONDITION_NOT_CHECKED #/if",
        ),
        ({"type": "object"}, {"type": "object", "if": {"required": ["a"]}}, "PRODUCT_TYPE_EXTENDED #/"),
        (
            {"oneOf": [{"type": "number"}]},
            {"oneOf": [{"type": "number"}, WHOLE]},
            "SUM_TYPE_OVERLAPS #/oneOf/1",
        ),
        (WHOLE, {"oneOf": [WHOLE, WHOLE]}, "SUM_TYPE_OVERLAPS #/oneOf/0"),
        ({"oneOf": [kind_is("a")]}, {"oneOf": [kind_is("a"), kind_is("b")]}, None),
        (
            {"oneOf": [obj({"a": WHOLE}, required=["a"])]},
            {"oneOf": [obj({"a": WHOLE}, required=["a"]), obj({"b": WHOLE}, required=["b"])]},
            "OVERLAP_NOT_CHECKED #/oneOf/1",
        ),
        ({"maxLength": 1}, {"type": "string", "maxLength": 1}, "TYPE_ADDED #/"),
        (
            {**D4, "type": "number", "maximum": 5},
            {**D4, "type": "number", "maximum": 5, "exclusiveMaximum": True},
            "EXCLUSIVE_MAXIMUM_ADDED #/exclusiveMaximum",
        ),
        (
            {**D2020, "unevaluatedProperties": False, "allOf": [obj({"a": {}})]},
            {**D2020, "unevaluatedProperties": False, "allOf": [obj({"b": {}})]},
            "UNEVALUATED_NOT_CHECKED #/unevaluatedProperties",
        ),
        (
            {"type": "array", "items": A_STRING, "additionalItems": False},
            {"type": "array", "items": [WHOLE]},
            "TYPE_CHANGED #/items/0",
        ),
    ],
)
def test_what_narrows_a_schema_is_found_and_what_cannot_be_judged_is_said_not_to_be_checked(
    before: Any, after: Any, problem: str | None
) -> None:
    found = schema(after).problems_reading(schema(before))
    said = [f"{each.kind} {each.path}" for each in found]
    assert said == [] if problem is None else problem in said
    assert all(("not checked: " in each.message) == ("NOT_CHECKED" in each.kind) for each in found)


def test_a_recursive_schema_is_compared_to_its_end() -> None:
    def tree(value: str) -> dict[str, Any]:
        node = obj({"value": {"type": value}, "left": {"$ref": "#/definitions/node"}})
        return {"$ref": "#/definitions/node", "definitions": {"node": node}}

    assert not schema(tree("string")).problems_reading(schema(tree("string")))
    problems = schema(tree("string")).problems_reading(schema(tree("integer")))
    assert "#/properties/value" in [problem.path for problem in problems]


def test_references_are_found_in_the_schema_and_among_those_handed_in_and_nowhere_else() -> None:
    home = json.dumps(obj({"zip": {"type": "string"}}, **{"$id": "http://shop/home.json"}))
    by_name = schema(obj({"home": {"$ref": "home.json"}}), ("home.json", home))
    by_id = schema(obj({"home": {"$ref": "http://shop/home.json#/properties/zip"}}), ("home.json", home))
    assert by_name.root.schemas("properties")["home"].kind == "object"
    assert by_id.root.schemas("properties")["home"].kind == "string"
    anchored = {"$ref": "#a", "definitions": {"x": {"$id": "#a", "type": "string"}}}
    assert schema(anchored).root.kind == "string"
    for address in ("http://example.com/evil.json", "file:///etc/passwd", "#/definitions/none"):
        with pytest.raises(InvalidSchema, match="leads nowhere"):
            schema({"$ref": address})
    with pytest.raises(InvalidSchema, match="leads to itself"):
        _ = schema({"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}}).root


@pytest.mark.parametrize("value", [7, [], {"type": "strin"}, {"properties": []}, {"required": "a"}])
def test_what_is_not_a_schema_is_refused(value: Any) -> None:
    with pytest.raises(InvalidSchema):
        schema(value)


def test_a_pattern_that_never_ends_is_not_tried() -> None:
    before = {"type": "object", "patternProperties": {"^(a+)+$": {"type": "string"}}, **CLOSED}
    after = obj({"a" * 40 + "b": {"type": "string"}}, **before)
    assert schema(after).problems_reading(schema(before)) == []


_NAMES = ("a", "b", "ab")
_LEAVES: st.SearchStrategy[Any] = st.sampled_from(
    [
        *({"type": kind} for kind in ("string", "integer", "number", "boolean", "null", "object", "array")),
        *({"type": "string", "maxLength": 1}, {"maxLength": 1}, {"minLength": 1}, {"pattern": "^a"}),
        *({"minimum": 0}, {"type": "number", "exclusiveMinimum": 0}, {"multipleOf": 2}),
        *({"type": ["string", "null"]}, {"enum": ["a", 1]}, {"enum": ["a"]}, {"const": 1}, {"const": "a"}),
        *({}, True, False),
    ]
)


def _some(**keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=keywords)


def _within(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parts = st.lists(inner, min_size=1, max_size=3)
    by_name = st.dictionaries(st.sampled_from(_NAMES), inner, max_size=2)
    count = st.integers(0, 2)
    objects = _some(
        type=st.just("object"),
        properties=by_name,
        patternProperties=st.dictionaries(st.sampled_from(["^a", "b$", "^a(?=b)"]), inner, max_size=2),
        additionalProperties=inner,
        unevaluatedProperties=inner,
        required=st.lists(st.sampled_from(_NAMES), max_size=2, unique=True),
        propertyNames=st.sampled_from([{"pattern": "^a"}, {"maxLength": 1}, {"enum": ["a", "b"]}, {}, False]),
        maxProperties=count,
        minProperties=count,
        dependentRequired=st.dictionaries(st.sampled_from(_NAMES), st.just(["a"]), max_size=1),
        dependentSchemas=st.dictionaries(st.sampled_from(_NAMES), inner, max_size=1),
        allOf=parts,
    )
    arrays = _some(
        type=st.just("array"),
        items=inner,
        prefixItems=parts,
        unevaluatedItems=inner,
        contains=inner,
        minContains=count,
        maxContains=count,
        maxItems=count,
        minItems=count,
        uniqueItems=st.booleans(),
    )
    combined = _some(
        anyOf=parts,
        oneOf=parts,
        allOf=parts,
        type=st.sampled_from(["object", "string", ["integer", "object"]]),
        **{"not": inner, "if": inner, "then": inner, "else": inner},
    )
    return st.one_of(objects, objects, arrays, combined)


_SCHEMAS: st.SearchStrategy[Any] = st.recursive(_LEAVES, _within, max_leaves=6)


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """A schema, and what an edit or two made of it."""
    before = draw(_SCHEMAS)
    after = json.loads(json.dumps(before))
    for _ in range(draw(st.integers(1, 2))):
        after = _edited(draw, after)
    return (before, after) if draw(st.booleans()) else (after, before)


def _edited(draw: st.DrawFn, schema: Any) -> Any:
    """A schema with one of its parts replaced, added or left out."""
    if isinstance(schema, dict) and schema and draw(st.integers(0, 3)):
        word = draw(st.sampled_from(sorted(schema)))
        if isinstance(schema[word], dict | bool) and word != "uniqueItems" and draw(st.integers(0, 3)):
            if word in ("properties", "patternProperties", "dependentSchemas") and schema[word]:
                name = draw(st.sampled_from(sorted(schema[word])))
                return {**schema, word: {**schema[word], name: _edited(draw, schema[word][name])}}
            if word not in ("properties", "patternProperties", "dependentSchemas", "dependentRequired"):
                return {**schema, word: _edited(draw, schema[word])}
        if word in ("anyOf", "oneOf", "allOf", "prefixItems") and draw(st.integers(0, 3)):
            at = draw(st.integers(0, len(schema[word])))
            part = draw(_LEAVES) if at == len(schema[word]) else _edited(draw, schema[word][at])
            return {**schema, word: [*schema[word][:at], part, *schema[word][at + 1 :]]}
        if draw(st.booleans()):
            return {key: value for key, value in schema.items() if key != word}
    other = draw(_SCHEMAS)
    return {**schema, **other} if isinstance(schema, dict) and isinstance(other, dict) else other


_DRAFT_7 = {"dependentRequired": "dependencies", "dependentSchemas": "dependencies", "prefixItems": "items"}
_VALUES = (None, True, 0, 1, 2, -1.5, "", "a", "ab", "b", [], {}, [1], {"a": 1})
_DOCUMENTS = (
    *_VALUES,
    *([one, other] for one in _VALUES for other in _VALUES[3:11]),
    *({name: value} for name in (*_NAMES, "c") for value in _VALUES),
    *({one: value, other: "a"} for one in (*_NAMES, "c") for other in _NAMES for value in _VALUES[3:8]),
    *([1, "a", value] for value in _VALUES),
    *([{"a": value}] for value in _VALUES),
    *({"a": {"b": value}} for value in _VALUES),
    *({"a": value, "b": value, "ab": 1} for value in _VALUES),
)


def _in_draft_7(schema: Any) -> Any:
    """The same keywords, as far as draft 7 has them: it ignores the others."""
    if isinstance(schema, list):
        return [_in_draft_7(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {_DRAFT_7.get(word, word): _in_draft_7(value) for word, value in schema.items()}


def _dated(schema: Any, draft: Any) -> Any:
    schema = _in_draft_7(schema) if draft is Draft7Validator else schema
    return {"$schema": draft.META_SCHEMA["$id"], **schema} if isinstance(schema, dict) else schema


@settings(max_examples=150, deadline=None)
@given(_pairs(), st.sampled_from([Draft7Validator, Draft202012Validator]))
def test_what_is_called_compatible_keeps_every_document_valid(pair: tuple[Any, Any], draft: Any) -> None:
    before, after = (_dated(each, draft) for each in pair)
    problems = schema(after).problems_reading(schema(before))
    event("compatible" if not problems else "not compatible")
    if problems:
        return
    valid, still = draft(before).is_valid, draft(after).is_valid
    assert [document for document in _DOCUMENTS if valid(document) and not still(document)] == []


@settings(max_examples=50, deadline=None)
@given(_SCHEMAS, st.sampled_from([Draft7Validator, Draft202012Validator]))
def test_a_schema_is_compatible_with_itself_within_another(same: Any, draft: Any) -> None:
    before = _dated({"title": "one", "properties": {"a": same}}, draft)
    after = _dated({"title": "other", "properties": {"a": same}}, draft)
    assert schema(after).problems_reading(schema(before)) == []
