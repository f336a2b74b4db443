"""Which Avro schema can read what was written with which other: the cases of Avro's own test suite
(TestSchemaCompatibility*, Java) and of Confluent's registry (AvroCompatibilityTest), as facts.

Confluent's registry decides with Avro's library, so producers and consumers rely on these verdicts.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from millstream.registry.parsing import parse
from millstream.registry.schema import ParsedSchema


def record(*fields: Any, name: str = "Record1", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(symbols: str, name: str = "Enum1", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "Fixed") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


A_INT = field("a", "int")
A_DEFAULT = field("a", "int", default=0)
B_INT = field("b", "int")
B_DEFAULT = field("b", "int", default=0)
INT_LIST = record(A_INT, field("tail", "List"), name="List")
LONG_LIST = record(field("a", "long"), field("tail", "List"), name="List")


def nested(namespace: str) -> dict[str, Any]:
    return record(field("f1", ["null", array(record(A_INT, name="Inner", namespace=namespace))]))


# (reader, writer): everything the writer can write can be read.
COMPATIBLE: list[tuple[Any, Any]] = [
    ("null", "null"),
    ("boolean", "boolean"),
    ("int", "int"),
    ("long", "int"),
    ("long", "long"),
    ("float", "int"),
    ("float", "long"),
    ("double", "int"),
    ("double", "long"),
    ("double", "float"),
    ("string", "string"),
    ("bytes", "bytes"),
    ("string", "bytes"),
    ("bytes", "string"),
    (array("int"), array("int")),
    (array("long"), array("int")),
    (array("string"), array("string")),
    (mapping("int"), mapping("int")),
    (mapping("long"), mapping("int")),
    (fixed(4), fixed(4)),
    # enums
    (enum("AB"), enum("AB")),
    (enum("ABC"), enum("AB")),
    (enum("AB", default="A"), enum("ABC")),
    (enum("AB"), enum("AB", namespace="namespace1")),
    (enum("AB", namespace="namespace1"), enum("AB")),
    (enum("AB", namespace="namespace1"), enum("AB", namespace="namespace2")),
    # unions
    ([], []),
    (["float"], []),
    (["int"], []),
    (["string"], []),
    (["bytes"], []),
    (["float"], ["int"]),
    (["float"], ["long"]),
    (["float"], ["int", "long"]),
    (["int"], ["int"]),
    (["int", "string"], ["string", "int"]),
    (["long"], ["int"]),
    (["double"], ["int"]),
    (["double"], ["long"]),
    (["double"], ["float"]),
    (["double"], ["int", "float"]),
    (["string"], ["bytes"]),
    (["bytes"], ["string"]),
    ("float", ["int", "float"]),
    ("long", ["int", "long"]),
    ("double", ["int", "float"]),
    ("double", ["int", "long", "float", "double"]),
    ("float", ["float"]),
    (["int"], "int"),
    ("int", ["int"]),
    # records
    (record(), record()),
    (record(), record(A_INT)),
    (record(A_INT), record(A_INT)),
    (record(A_DEFAULT), record(A_INT)),
    (record(A_DEFAULT), record(A_DEFAULT)),
    (record(A_INT), record(A_DEFAULT)),
    (record(field("a", "long")), record(A_INT)),
    (record(A_INT), record(A_INT, B_INT)),
    (record(B_INT), record(A_INT, B_INT)),
    (record(A_DEFAULT), record(A_INT, B_INT)),
    (record(A_INT, B_DEFAULT), record(A_INT)),
    (record(A_DEFAULT, B_DEFAULT), record()),
    (record(A_DEFAULT, B_DEFAULT), record(A_INT)),
    (record(A_INT, B_INT), record(A_DEFAULT, B_DEFAULT)),
    (INT_LIST, INT_LIST),
    (LONG_LIST, LONG_LIST),
    (LONG_LIST, INT_LIST),
    (record(field("f", enum("AB", default="A"))), record(field("f", enum("ABC", default="A")))),
    (
        record(field("f", enum("AB", default="B"), default="A")),
        record(field("f", enum("ABC", default="A"), default="B")),
    ),
    (nested("ns1"), nested("ns2")),
    (record(A_INT), record(A_INT, name="ns.Record1")),
    # names and aliases
    (record(field("bar", "int", aliases=["a"])), record(A_INT, B_INT)),
    (record(A_INT, name="Other", aliases=["Record1"]), record(A_INT, B_INT)),
]

# (reader, writer, the differences that Avro finds, in its order)
INCOMPATIBLE: list[tuple[Any, Any, list[str]]] = [
    *[
        (reader, writer, ["TYPE_MISMATCH /"])
        for reader, writer in [
            ("null", "int"),
            ("null", "long"),
            ("boolean", "int"),
            ("int", "null"),
            ("int", "boolean"),
            ("int", "long"),
            ("int", "float"),
            ("int", "double"),
            ("int", "string"),
            ("long", "float"),
            ("long", "double"),
            ("float", "double"),
            ("double", "string"),
            (fixed(4), "string"),
            ("string", "boolean"),
            ("string", "int"),
            ("bytes", "null"),
            ("bytes", "int"),
            (record(A_INT), "int"),
            (mapping("int"), array("int")),
            (mapping("string"), array("string")),
            (array("int"), mapping("int")),
            ("int", enum("AB", "Enum2")),
            (enum("AB", "Enum2"), "int"),
        ]
    ],
    (array("int"), array("long"), ["TYPE_MISMATCH /items"]),
    (mapping("int"), mapping("long"), ["TYPE_MISMATCH /values"]),
    ("float", ["int", "long", "float", "double"], ["TYPE_MISMATCH /3"]),
    ("long", ["int", "float"], ["TYPE_MISMATCH /1"]),
    ("int", ["int", "float"], ["TYPE_MISMATCH /1"]),
    (record(A_INT), record(field("a", ["null", "int"])), ["TYPE_MISMATCH /fields/0/type/0"]),
    # a union of the reader lacks a branch
    (["int", "string"], ["int", "string", "long"], ["MISSING_UNION_BRANCH /2"]),
    (["int"], ["int", "string"], ["MISSING_UNION_BRANCH /1"]),
    (["string"], ["int", "string"], ["MISSING_UNION_BRANCH /0"]),
    (["int"], ["int", record(A_INT)], ["MISSING_UNION_BRANCH /1"]),
    (["int", record(A_INT)], ["int", record(A_INT, name="Record2")], ["MISSING_UNION_BRANCH /1"]),
    (["int"], ["int", enum("AB")], ["MISSING_UNION_BRANCH /1"]),
    (["int"], ["int", fixed(4)], ["MISSING_UNION_BRANCH /1"]),
    (["int"], ["int", "boolean"], ["MISSING_UNION_BRANCH /1"]),
    (["int"], ["long"], ["MISSING_UNION_BRANCH /0"]),
    (["int"], ["float"], ["MISSING_UNION_BRANCH /0"]),
    (["int"], ["double"], ["MISSING_UNION_BRANCH /0"]),
    (["int"], ["bytes"], ["MISSING_UNION_BRANCH /0"]),
    (["int"], ["int", array("int")], ["MISSING_UNION_BRANCH /1"]),
    (["int"], ["int", mapping("int")], ["MISSING_UNION_BRANCH /1"]),
    (["int"], ["int", "null"], ["MISSING_UNION_BRANCH /1"]),
    (["int"], ["int", "long", "float", "double"], [f"MISSING_UNION_BRANCH /{at}" for at in (1, 2, 3)]),
    (
        record(A_DEFAULT, field("b", ["int"], default=0)),
        record(A_DEFAULT, field("b", ["int", "string"], default=0)),
        ["MISSING_UNION_BRANCH /fields/1/type/1"],
    ),
    # names
    (enum("AB"), enum("AB", "Enum2"), ["NAME_MISMATCH /name"]),
    (record(name="Record2"), record(), ["NAME_MISMATCH /name"]),
    (fixed(4), fixed(4, "AnotherName"), ["NAME_MISMATCH /name"]),
    (
        record(A_DEFAULT, field("b", enum("AB"))),
        record(A_DEFAULT, field("b", enum("AB", "Enum2"))),
        ["NAME_MISMATCH /fields/1/type/name"],
    ),
    # sizes, symbols, fields
    (fixed(4), fixed(8), ["FIXED_SIZE_MISMATCH /size"]),
    (fixed(8), fixed(4), ["FIXED_SIZE_MISMATCH /size"]),
    (
        record(A_DEFAULT, field("b", fixed(8))),
        record(A_DEFAULT, field("b", fixed(4))),
        ["FIXED_SIZE_MISMATCH /fields/1/type/size"],
    ),
    (enum("AB"), enum("ABC"), ["MISSING_ENUM_SYMBOLS /symbols"]),
    (enum("BC"), enum("ABC"), ["MISSING_ENUM_SYMBOLS /symbols"]),
    (
        record(field("a", enum("AB"))),
        record(field("a", enum("ABC"))),
        ["MISSING_ENUM_SYMBOLS /fields/0/type/symbols"],
    ),
    # the default of a field is for a field that was not written, not for an unknown symbol
    (
        record(field("a", enum("AB"), default="A")),
        record(field("a", enum("ABC"))),
        ["MISSING_ENUM_SYMBOLS /fields/0/type/symbols"],
    ),
    (record(A_INT), record(), ["READER_FIELD_MISSING_DEFAULT_VALUE /fields/0"]),
    (record(A_INT, B_DEFAULT), record(), ["READER_FIELD_MISSING_DEFAULT_VALUE /fields/0"]),
    (record(A_INT, B_INT), record(A_INT), ["READER_FIELD_MISSING_DEFAULT_VALUE /fields/1"]),
    (INT_LIST, LONG_LIST, ["TYPE_MISMATCH /fields/0/type"]),
    # several at once
    (
        record(
            field("symbols", enum("AC", "S")),
            field("name", enum("ABCD", "N")),
            field("type", "string"),
            field(
                "sub",
                record(
                    field("same", "long", default=42),
                    field("extra", "long"),
                    field("size", fixed(4, "F")),
                    field("branches", ["boolean"]),
                    field("branch", ["boolean"]),
                    field(
                        "inner",
                        record(
                            field("same", "boolean", default=True),
                            field("items", array("string")),
                            name="RecordA",
                            namespace="not_nsA",
                        ),
                    ),
                    name="Sub",
                ),
            ),
        ),
        record(
            field("symbols", enum("ABCD", "S")),
            field("name", enum("ABCD", "N_ERR")),
            field("type", "long"),
            field(
                "sub",
                record(
                    field("same", "long", default=42),
                    field("size", fixed(8, "F")),
                    field("branches", ["boolean", "double", "string"]),
                    field("branch", "long"),
                    field(
                        "inner",
                        record(
                            field("same", "boolean", default=True),
                            field("items", array("boolean")),
                            name="RecordA",
                            namespace="nsA",
                        ),
                    ),
                    name="Sub",
                ),
            ),
        ),
        [
            "MISSING_ENUM_SYMBOLS /fields/0/type/symbols",
            "NAME_MISMATCH /fields/1/type/name",
            "TYPE_MISMATCH /fields/2/type",
            "READER_FIELD_MISSING_DEFAULT_VALUE /fields/3/type/fields/1",
            "FIXED_SIZE_MISMATCH /fields/3/type/fields/2/type/size",
            "MISSING_UNION_BRANCH /fields/3/type/fields/3/type/1",
            "MISSING_UNION_BRANCH /fields/3/type/fields/3/type/2",
            "MISSING_UNION_BRANCH /fields/3/type/fields/4/type",
            "TYPE_MISMATCH /fields/3/type/fields/5/type/fields/1/type/items",
        ],
    ),
]


def avro(schema: Any) -> ParsedSchema:
    return parse("AVRO", json.dumps(schema), ())


def differences(reader: Any, writer: Any) -> list[str]:
    return [f"{each.kind} {each.path}" for each in avro(reader).problems_reading(avro(writer))]


@pytest.mark.parametrize(("reader", "writer"), COMPATIBLE)
def test_what_avro_can_read(reader: Any, writer: Any) -> None:
    assert differences(reader, writer) == []


@pytest.mark.parametrize(("reader", "writer", "expected"), INCOMPATIBLE)
def test_what_avro_can_not_read_and_where_it_says_so(reader: Any, writer: Any, expected: list[str]) -> None:
    found = differences(reader, writer)
    if "tail" in str(reader):  # the place where a recursive type is used again is reported as well
        found = found[:1]
    assert found == expected
