"""Rows for topics with a schema: what is written, what a schema made from columns allows, what can't fit."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
from typing import Any

import fastavro
import jsonschema
import pyarrow as pa
import pytest

from millstream import Topology
from millstream.core.errors import MillstreamError, TopologyError
from millstream.pipeline.formats.encoded_rows import encoded
from millstream.pipeline.formats.value_schemas import avro_schema_of, json_schema_of
from millstream.registry.parsing import parse
from millstream.registry.protobuf.schema import ProtobufSchema
from millstream.registry.values import message_class, message_path
from millstream.sqltypes.arrow import arrow_type
from millstream.sqltypes.ddl import from_ddl
from millstream.testing import Driver

MESSAGES = """
    syntax = "proto3";
    package p;
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/wrappers.proto";
    message Item { string sku = 1; }
    message Event {
      string id = 1; int64 n = 2; bytes raw = 3; double x = 4; repeated Item items = 5;
      map<string, int32> counts = 6; google.protobuf.Timestamp at = 7; Kind kind = 8; bool ok = 9;
      google.protobuf.Int64Value maybe = 10;
      enum Kind { NONE = 0; SOME = 1; }
    }
"""


def rows(columns: str, *values: Any) -> pa.Array:
    return pa.array(list(values), arrow_type(f"struct<{columns}>"))


def fields(columns: str) -> list[tuple[str, str]]:
    return [(field.name, field.type) for field in from_ddl(columns).fields]


# ---- JSON Schema --------------------------------------------------------------------------------------

NESTED = (
    "id string, tags array<string>, counts map<string,int>, parts array<struct<a:int,b:string>>,"
    " deep array<array<double>>"
)


def test_a_schema_made_from_columns_takes_every_null() -> None:
    schema = json_schema_of(fields(NESTED), "t")
    row = {
        "id": None,
        "tags": ["x", None],
        "counts": [("a", None), ("b", 1)],
        "parts": [None, {"a": None, "b": "c"}],
        "deep": [None, [None, 1.5]],
    }
    [value] = encoded(rows(NESTED, row), "JSON", schema, 7).to_pylist()
    assert value[:5] == b"\0\0\0\0\x07"
    written = json.loads(value[5:])
    assert written == {
        "tags": ["x", None],
        "counts": {"a": None, "b": 1},
        "parts": [None, {"b": "c"}],
        "deep": [None, [None, 1.5]],
    }
    jsonschema.Draft7Validator(json.loads(schema)).validate(written)


def test_the_schema_that_allows_nulls_is_compatible_with_the_one_that_did_not() -> None:
    old = json.dumps({
        "title": "t", "type": "object", "additionalProperties": False,
        "properties": {"tags": {"type": "array", "items": {"type": "string"}}},
    })  # fmt: skip
    new = json_schema_of(fields("tags array<string>"), "t")
    assert not parse("JSON", new, ()).problems_reading(parse("JSON", old, ()))


def test_decimals_keep_all_their_digits_and_bytes_are_base64() -> None:
    columns = "d decimal(38,18), b binary"
    number = decimal.Decimal("12345678901234567890.123456789012345678")
    [value] = encoded(
        rows(columns, {"d": number, "b": b"\x01\xff"}), "JSON", json_schema_of(fields(columns), "t"), 1
    ).to_pylist()
    assert value[5:] == b'{"d":12345678901234567890.123456789012345678,"b":"Af8="}'


def test_a_row_that_does_not_fit_is_told_with_what_to_do() -> None:
    schema = json.dumps({"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}})
    with pytest.raises(MillstreamError, match=r"\$\.n: -1 is less.*filter such rows out with \.where"):
        encoded(rows("n int", {"n": 1}, {"n": -1}), "JSON", schema, 1)
    with pytest.raises(MillstreamError, match="nan is not a JSON number"):
        encoded(rows("x double", {"x": float("nan")}), "JSON", json_schema_of([("x", "double")], "t"), 1)


# ---- Protobuf and Avro --------------------------------------------------------------------------------


def test_any_message_of_a_file_is_written() -> None:
    columns = (
        "id string, n bigint, raw binary, x double, items array<struct<sku:string>>,"
        " counts map<string,int>, at timestamp"
    )
    at = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    row = {
        "id": "a", "n": 2**60, "raw": b"\x01\xff\x00abc", "x": float("nan"), "items": [{"sku": "s"}],
        "counts": [("k", 1)], "at": at,
    }  # fmt: skip
    [value] = encoded(rows(columns, row), "PROTOBUF", MESSAGES, 1, "Event").to_pylist()
    schema = parse("PROTOBUF", MESSAGES, ())
    assert isinstance(schema, ProtobufSchema)
    assert value[:7] == b"\0\0\0\0\x01\x02\x02", "the id, and the second message"
    found = message_class(schema, message_path(schema, "Event")).FromString(value[7:])
    assert (found.id, found.n, found.raw, found.items[0].sku) == ("a", 2**60, b"\x01\xff\x00abc", "s")
    assert found.x != found.x
    assert (dict(found.counts), found.at.ToDatetime(dt.UTC)) == ({"k": 1}, at)


def test_avro_is_written_from_all_types_of_columns() -> None:
    columns = "b binary, d decimal(20,5), at timestamp, day date, tags array<string>, m map<string,int>"
    row = {
        "b": b"\x00\xff", "d": decimal.Decimal("123456789012345.00001"),
        "at": dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC), "day": dt.date(2026, 1, 2),
        "tags": ["x", None], "m": [("k", None)],
    }  # fmt: skip
    schema = avro_schema_of(fields(columns), "t")
    [value] = encoded(rows(columns, row), "AVRO", schema, 1).to_pylist()
    parsed = fastavro.parse_schema(json.loads(schema))
    assert fastavro.schemaless_reader(io.BytesIO(value[5:]), parsed, None) == {**row, "m": {"k": None}}


AVRO_EVENT = json.dumps({"type": "record", "name": "Event", "fields": [
    {"name": "id", "type": "string"},
    {"name": "n", "type": ["null", "long"], "default": None},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
    {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"]}, "default": "A"},
]})  # fmt: skip
JSON_EVENT = json.dumps({
    "type": "object", "properties": {"id": {"type": "string"}, "n": {"type": "integer"}},
    "required": ["id"], "additionalProperties": False,
})  # fmt: skip
EVENT = {"format": "protobuf", "schema": MESSAGES, "message": "Event"}
AVRO = {"format": "avro", "schema": AVRO_EVENT}
JSON = {"format": "json-schema", "schema": JSON_EVENT}


@pytest.mark.parametrize(
    ("select", "options", "said"),
    [
        (["id", "n"], {"format": "protobuf", "schema": MESSAGES},
         r"'id' is not a field of p\.Item, the first message.*message= names another: Item, Event"),
        (["id", "n"], {"format": "protobuf", "schema": MESSAGES, "message": "Nobody"}, "no message 'Nobody'"),
        (["id", "n AS m"], EVENT, "'m' is not a field"),
        (["CAST(n AS string) AS n"], EVENT,
         r"column 'n' is string, and field p\.Event\.n is not"),
        (["array(named_struct('s', id)) AS items"],
         {"format": "protobuf", "schema": MESSAGES, "message": "p.Event"}, r"'items\.s' is not a field"),
        (["id AS raw"], EVENT, "column 'raw' is string"),
        (["id", "n AS m"], AVRO, "'m' is not a field of Event"),
        (["n"], AVRO, "field 'id' of Event is no column, and has no default"),
        (["n AS id"], AVRO, "column 'id' is bigint, and the field is string"),
        (["id", "id AS n"], AVRO, "column 'n' is string"),
        (["id", "n > 1 AS at"], AVRO, "is boolean, and the field is timestamp"),
        (["id"], {"format": "avro", "schema": '"string"'}, "rows are records, and the schema is string"),
        (["id", "n AS m"], JSON, "'m' is not a property"),
        (["n"], JSON, "'id' is required, and is no column"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_are_told_before_the_first_row(
    select: list[str], options: dict[str, Any], said: str
) -> None:
    flow = Topology("t")
    flow.source("in", schema="id string, n bigint").select(*select).to_topic("out", **options)
    with pytest.raises(TopologyError, match=said) as error, Driver(flow) as driver:
        driver.feed("in", [])
    assert "test_encoded_rows.py" in str(error.value)
    assert "topic 'out' as" in str(error.value)


@pytest.mark.parametrize(
    ("select", "options"),
    [
        (["id", "n", "timestamp '2026-01-01' AS at", "'SOME' AS kind", "true AS ok", "n AS maybe", "n AS x"],
         EVENT),
        (["id", "NULL AS n"], EVENT),
        (["id", "n", "timestamp '2026-01-01' AS at", "'A' AS e"], AVRO),
        (["id"], AVRO),
        (["id", "n"], JSON),
    ],
)  # fmt: skip
def test_columns_that_fit_are_written(select: list[str], options: dict[str, Any]) -> None:
    flow = Topology("t")
    flow.source("in", schema="id string, n bigint").select(*select).to_topic("out", **options)
    with Driver(flow) as driver:
        driver.feed("in", {"id": "a", "n": 1})
        assert len(driver.topic("out")) == 1


def test_a_message_is_of_protobuf_only() -> None:
    with pytest.raises(TopologyError, match="message= requires"):
        Topology("t").source("in", schema="id string").to_topic("out", format="avro", message="M")
