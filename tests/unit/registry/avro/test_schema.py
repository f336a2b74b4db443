"""Avro schemas: what is one, how it is kept, and what can be read with what; fastavro is the judge."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from millstream.core.errors import InvalidSchema, RegistryRefused
from millstream.pipeline.formats.avro_columns import decode
from millstream.pipeline.formats.avro_plan import plan
from millstream.registry.avro.schema import AvroSchema
from millstream.registry.parsing import parse


def avro(value: Any, *dependencies: tuple[str, str]) -> AvroSchema:
    found = parse("AVRO", value if isinstance(value, str) else json.dumps(value), dependencies)
    assert isinstance(found, AvroSchema)
    return found


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def kinds(reader: Any, writer: Any) -> list[str]:
    return [f"{each.kind} {each.path}" for each in avro(reader).problems_reading(avro(writer))]


# ---- what is a schema ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("7", "is not a type"),
        ('{"type": "strin"}', "no type 'strin'"),
        ('["int", "int"]', "'int' twice"),
        ('["int", ["long"]]', "union can't contain a union"),
        ('{"type": "record", "name": "R"}', "needs a list of fields"),
        ('{"type": "record", "fields": []}', "needs a name"),
        ('{"type": "record", "name": "a-b", "fields": []}', "can't be a name"),
        ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "a symbol twice"),
        ('{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}', "not a symbol"),
        ('{"type": "fixed", "name": "F", "size": -1}', "needs a size"),
        ('{"type": "array"}', "needs 'items'"),
        (json.dumps(record(field("a", "int", default="x"))), "default of field 'a'"),
        (json.dumps(record(field("a", "int"), field("a", "int"))), "two fields 'a'"),
        (json.dumps(record(field("a", record()))), "'R' is defined twice"),
        (json.dumps(record(field("a", "other.T"))), "needs a reference"),
    ],
)
def test_what_is_not_a_schema_is_told_with_where_and_why(text: str, said: str) -> None:
    with pytest.raises(InvalidSchema, match=said):
        avro(text)


def test_a_schema_that_would_exhaust_the_stack_or_memory_is_refused() -> None:
    deep: Any = "int"
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    with pytest.raises(InvalidSchema, match="more than 100 levels"):
        avro(deep)
    with pytest.raises(InvalidSchema):
        avro("[" * 50_000)
    with pytest.raises(RegistryRefused, match=r"at most .* are allowed"):
        avro(record(doc="x" * 1_000_000))


def test_it_is_kept_as_avros_own_library_writes_it() -> None:
    given_ = {
        "fields": [
            {"type": {"type": "string"}, "name": "a", "doc": "d"},
            {"name": "b", "type": ["null", "x.y.R"], "default": None},
            {"name": "c", "type": {"name": "E", "symbols": ["A"], "type": "enum"}, "order": "ignore"},
        ],
        "namespace": "x.y",
        "name": "R",
        "type": "record",
        "owner": "me",
    }
    assert avro(given_).canonical() == (
        '{"type":"record","name":"R","namespace":"x.y","fields":[{"name":"a","type":"string","doc":"d"},'
        '{"name":"b","type":["null","R"],"default":null},'
        '{"name":"c","type":{"type":"enum","name":"E","symbols":["A"]},"order":"ignore"}],"owner":"me"}'
    )


def test_types_of_other_schemas_are_used_by_name_and_not_copied() -> None:
    money = json.dumps(record(field("cents", "long"), name="shop.Money"))
    order = avro(record(field("total", "shop.Money"), name="shop.Order"), ("money", money))
    assert order.canonical() == (
        '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"total","type":"Money"}]}'
    )
    assert order.document()["fields"][0]["type"]["name"] == "Money"


# ---- what can be read with what -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reader", "writer", "problems"),
    [
        ("long", "int", []),
        ("int", "long", ["TYPE_MISMATCH /"]),
        ("double", "float", []),
        ("bytes", "string", []),
        (["null", "int"], "int", []),
        ("int", ["null", "int"], ["TYPE_MISMATCH /0"]),
        (["null", "string"], ["null", "int"], ["MISSING_UNION_BRANCH /1"]),
        (record(field("a", "int", default=1)), record(), []),
        (record(field("a", "int")), record(), ["READER_FIELD_MISSING_DEFAULT_VALUE /fields/0"]),
        (record(field("b", "int", aliases=["a"])), record(field("a", "int")), []),
        (record(name="x.R"), record(name="y.R"), []),
        (record(name="S"), record(name="R"), ["NAME_MISMATCH /name"]),
        (record(name="S", aliases=["R"]), record(name="R"), []),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            ["MISSING_ENUM_SYMBOLS /symbols"],
        ),
        (
            {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            [],
        ),
        (
            {"type": "fixed", "name": "F", "size": 2},
            {"type": "fixed", "name": "F", "size": 3},
            ["FIXED_SIZE_MISMATCH /size"],
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
            ["DECIMAL_MISMATCH /"],
        ),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            {"type": "long", "logicalType": "timestamp-millis"},
            ["UNIT_MISMATCH /"],
        ),
        (
            record(field("next", ["null", "R"]), field("v", "string")),
            record(field("next", ["null", "R"]), field("v", "int")),
            ["TYPE_MISMATCH /fields/1/type"],
        ),
    ],
)
def test_the_rules_of_resolution(reader: Any, writer: Any, problems: list[str]) -> None:
    found = kinds(reader, writer)
    if len(problems) == 1 and "next" in json.dumps(reader):
        assert problems[0] in found, "and the place where the type is used again"
    else:
        assert found == problems


_NAMES = st.sampled_from(["a", "b", "c"])
_SCALARS = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
_DEFAULTS: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "int": 7,
    "long": 8,
    "float": 1.5,
    "double": 2.5,
    "bytes": "x",
    "string": "s",
}


@st.composite
def types(draw: Any, depth: int = 2) -> Any:
    kind = draw(st.sampled_from(["scalar", "scalar", "union", "array", "map", "record", "enum", "fixed"]))
    if kind == "scalar" or depth == 0:
        return draw(_SCALARS)
    if kind == "union":
        return draw(st.lists(_SCALARS, min_size=1, max_size=3, unique=True))
    if kind == "array":
        return {"type": "array", "items": draw(types(depth=depth - 1))}
    if kind == "map":
        return {"type": "map", "values": draw(types(depth=depth - 1))}
    if kind == "enum":
        return {
            "type": "enum",
            "name": "E",
            "symbols": draw(st.sampled_from([["A"], ["A", "B"], ["B", "A"]])),
        }
    if kind == "fixed":
        return {"type": "fixed", "name": "F", "size": draw(st.integers(1, 3))}
    fields = []
    for name in draw(st.lists(_NAMES, max_size=3, unique=True)):
        type_ = draw(_SCALARS if draw(st.booleans()) else types(depth=depth - 1))
        default = {"default": _DEFAULTS[type_]} if isinstance(type_, str) and draw(st.booleans()) else {}
        fields.append(field(name, type_, **default))
    return record(*fields, name=f"R{depth}")


def values(type_: Any) -> st.SearchStrategy[Any]:
    if isinstance(type_, list):
        return st.one_of([values(each) for each in type_])
    kind = type_ if isinstance(type_, str) else type_["type"]
    if kind == "array":
        return st.lists(values(type_["items"]), max_size=3)
    if kind == "map":
        return st.dictionaries(st.text(max_size=3), values(type_["values"]), max_size=3)
    if kind == "enum":
        return st.sampled_from(type_["symbols"])
    if kind == "fixed":
        return st.binary(min_size=type_["size"], max_size=type_["size"])
    if kind == "record":
        return st.fixed_dictionaries({each["name"]: values(each["type"]) for each in type_["fields"]})
    return {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "bytes": st.binary(max_size=5),
        "string": st.text(max_size=5),
    }[str(kind)]


def unique_names(type_: Any) -> bool:
    try:
        avro(type_)
    except InvalidSchema:
        return False
    return True


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_what_is_called_compatible_is_read_and_as_fastavro_reads_it(data: st.DataObject) -> None:
    writer = data.draw(types().filter(unique_names))
    reader = writer if data.draw(st.booleans()) else data.draw(types().filter(unique_names))
    if avro(reader).problems_reading(avro(writer)):
        return
    rows = data.draw(st.lists(values(writer), min_size=1, max_size=4))
    encoded = [written(writer, row) for row in rows]
    try:
        expected = [
            _narrowed(
                fastavro.schemaless_reader(
                    io.BytesIO(each), fastavro.parse_schema(writer), fastavro.parse_schema(reader)
                ),
                reader,
            )
            for each in encoded
        ]
    except UnicodeDecodeError:
        return  # bytes may be read as a string, if they are one
    column = pa.array(encoded, pa.binary())
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(rows) + 1).astype(np.int64)
    found, wrong = decode(
        plan(avro(reader).root, avro(writer).root), column.buffers()[2], offsets[:-1], offsets[1:]
    )
    assert wrong == {}
    assert _flat(found.to_pylist(maps_as_pydicts="lossy")) == expected


def _narrowed(value: Any, schema: Any) -> Any:
    """What fastavro read, with 32 bits where the schema says so: it keeps an int that is read as a float in
    64 bits."""
    if isinstance(schema, list):
        if (
            {"float", "double"} <= set(schema)
            and isinstance(value, float)
            and value != float(np.float32(value))
        ):
            reject()  # the value does not tell as which of the two it was read
        return _narrowed(value, "float") if "float" in schema else value
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "float" and isinstance(value, float):
        return float(np.float32(value))
    if kind == "record" and isinstance(value, dict):
        return {each["name"]: _narrowed(value[each["name"]], each["type"]) for each in schema["fields"]}
    if kind == "array" and isinstance(value, list):
        return [_narrowed(each, schema["items"]) for each in value]
    if kind == "map" and isinstance(value, dict):
        return {name: _narrowed(each, schema["values"]) for name, each in value.items()}
    return value


def _flat(value: Any) -> Any:
    """A union of several types is a column for each, of which one is filled."""
    if isinstance(value, dict):
        if "member0" in value:
            return next((_flat(each) for each in value.values() if each is not None), None)
        return {name: _flat(each) for name, each in value.items()}
    return [_flat(each) for each in value] if isinstance(value, list) else value


@settings(max_examples=150, deadline=None)
@given(types().filter(unique_names), st.binary(max_size=40))
def test_bytes_of_any_kind_are_read_or_told_to_be_wrong(schema: Any, junk: bytes) -> None:
    column = pa.array([junk, junk[1:]], pa.binary())
    offsets = np.frombuffer(column.buffers()[1], np.int32, 3).astype(np.int64)
    made = plan(avro(schema).root, avro(schema).root)
    found, wrong = decode(made, column.buffers()[2], offsets[:-1], offsets[1:])
    assert len(found) == 2
    found.validate(full=True)
    for row in wrong:
        assert not found[row].is_valid


@settings(max_examples=100, deadline=None)
@given(types().filter(unique_names))
def test_what_is_kept_means_the_same(schema: Any) -> None:
    once = avro(schema)
    again = avro(once.canonical())
    assert again.canonical() == once.canonical()
    assert avro(once.normalized()).normalized() == once.normalized()
    assert not again.problems_reading(once)
    assert not once.problems_reading(again)
