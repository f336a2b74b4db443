"""JSON schemas: what they refer to, and which changes keep old documents valid; jsonschema is the judge."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from millstream.errors import InvalidSchema
from millstream.registry.json_diff import COMPATIBLE, changes
from millstream.registry.json_schema import JsonSchema
from millstream.registry.schema import parse

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


_LEAVES = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "maxLength": 1},
        {"type": "integer"},
        {"type": "number", "minimum": 0},
        {"type": "boolean"},
        {"type": ["string", "null"]},
        {"enum": ["a", 1]},
        {"enum": ["a"]},
        {},
        True,
    ]
)
_SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.lists(inner, min_size=1, max_size=2).map(lambda parts: {"anyOf": parts}),
        st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
                "required": st.lists(st.sampled_from("ab"), max_size=1),
                "additionalProperties": st.booleans(),
            }
        ),
    ),
    max_leaves=4,
)
_DOCUMENTS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.sampled_from([0, 1, -2, 1.5, "a", "bb"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None)
@given(_SCHEMAS, _SCHEMAS, st.lists(_DOCUMENTS, min_size=1, max_size=8))
def test_what_is_called_compatible_keeps_every_document_valid(
    before: Any, after: Any, documents: list[Any]
) -> None:
    found = changes(schema(before).root, schema(after).root)
    required = isinstance(after, dict) and "required" in json.dumps(after)
    if not all(kind in COMPATIBLE for kind, _ in found) or required:
        return  # that a property with a default may become required is Confluent's rule, not JSON Schema's
    for document in documents:
        if Draft7Validator(before).is_valid(document):
            assert Draft7Validator(after).is_valid(document), (document, found)
