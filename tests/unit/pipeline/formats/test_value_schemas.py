"""Sources whose values carry the id of a schema, in the test driver: columns, evolution, what is rejected."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import io
import json
import uuid
from pathlib import Path
from typing import Any

import fastavro
import pytest

from millstream import Topology
from millstream.core.errors import TopologyError
from millstream.testing import Driver

PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "card", "type": "string"},
        {"name": "eur", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "paid_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
        {"name": "where", "type": ["null", {"type": "record", "name": "Place", "fields": [
            {"name": "country", "type": "string"}]}], "default": None},
    ],
}  # fmt: skip
PROTO = """
    syntax = "proto3";
    package shop;
    import "google/protobuf/timestamp.proto";
    message Order {
      string id = 1;
      repeated Line lines = 2;
      google.protobuf.Timestamp at = 3;
      State state = 4;
      optional int32 n = 5;
      map<string, double> prices = 6;
      message Line { string sku = 1; }
      enum State { NEW = 0; PAID = 1; }
    }
"""
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": ["integer", "null"]},
        "born": {"type": "string", "format": "date"},
        "home": {"$ref": "#/definitions/home"},
    },
    "required": ["name"],
    "definitions": {"home": {"type": "object", "properties": {"zip": {"type": "string"}}}},
}


def test_avro_has_the_columns_of_its_schema_and_goes_by_its_time() -> None:
    flow = Topology("t")
    payments = flow.source("payments", format="avro", schema=json.dumps(PAYMENT), time="paid_at")
    assert payments.columns == ("card", "eur", "paid_at", "tags", "where")
    payments.select("card", "eur + 1 AS more", "size(tags) AS n", "where.country AS country").to_topic("out")
    with Driver(flow) as driver:
        driver.feed("payments", {
            "card": "c", "eur": "9.50", "paid_at": "2026-01-02T03:04:05+00:00", "where": {"country": "DE"},
        })  # fmt: skip
        assert driver.topic("out") == [{"card": "c", "more": 10.5, "n": 0, "country": "DE"}]
        assert driver.now == dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def test_protobuf_has_the_columns_of_its_message() -> None:
    flow = Topology("t")
    orders = flow.source("orders", format="protobuf", schema=PROTO)
    orders.select(
        "id", "size(lines) AS n", "lines[0].sku AS sku", "state", "prices['a'] AS a", "n AS m"
    ).to_topic("out")
    with Driver(flow) as driver:
        driver.feed("orders", {"id": "o1", "lines": [{"sku": "x"}], "state": "PAID", "prices": {"a": 1.5}})
        assert driver.topic("out") == [{"id": "o1", "n": 1, "sku": "x", "state": "PAID", "a": 1.5}]


def test_json_with_a_schema_has_the_columns_of_its_properties_and_needs_what_is_required() -> None:
    flow = Topology("t")
    people = flow.source("people", format="json-schema", schema=json.dumps(PERSON))
    assert people.columns == ("name", "age", "born", "home")
    people.select("name", "year(born) AS year", "home.zip AS zip").to_topic("out")
    people.rejected.to_topic("bad")
    with Driver(flow) as driver:
        driver.feed("people", {"name": "a", "born": "2001-02-03", "home": {"zip": "1"}})
        driver.feed("people", b'\0\0\0\0\0{"age": 3}')
        assert driver.topic("out") == [{"name": "a", "year": 2001, "zip": "1"}]
        [reason] = [row["reason"] for row in driver.stream("people.rejected")]
        assert reason == "field name is missing"


@pytest.mark.parametrize("number", ["1.0", "1e0", "10e-1", "0.1e1", "1.000"])
def test_what_json_schema_calls_an_integer_is_read_as_one(number: str) -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "x": {"type": "number"},
            "ns": {"type": "array", "items": {"type": "integer"}},
            "in": {"type": "object", "properties": {"n": {"type": "integer"}}},
        },
    }
    flow = Topology("t")
    flow.source("s", format="json-schema", schema=json.dumps(schema)).to_topic("out")
    with Driver(flow) as driver:
        text = f'{{"n": {number}, "x": 2.50, "ns": [{number}, 2], "in": {{"n": {number}}}}}'
        driver.feed("s", bytes(5) + text.encode())
        driver.feed("s", bytes(5) + b'{"n": 1.5}')
        driver.feed("s", bytes(5) + b'{"n": 1e999999999}')
        driver.feed("s", bytes(5) + b'{"n": 1.0')
        assert driver.topic("out") == [{"n": 1, "x": 2.5, "ns": [1, 2], "in": {"n": 1}}]
        reasons = [row["reason"] for row in driver.stream("s.rejected")]
        assert len(reasons) == 3
        assert reasons[0] == "field n: 1.5 is not bigint"


@dataclasses.dataclass
class Native:
    raw: bytes
    id: uuid.UUID
    short: uuid.UUID
    at: dt.datetime
    of_day: dt.time
    d: decimal.Decimal
    more: tuple[bytes, ...]


def test_a_dict_of_pythons_own_values_is_encoded_as_they_are() -> None:
    def field(called: str, kind: Any, /, **more: Any) -> dict[str, Any]:
        return {"name": called, "type": {"type": kind, **more} if more else kind}

    fields = [
        field("raw", "bytes"),
        field("id", "string", logicalType="uuid"),
        field("short", "fixed", name="U", size=16, logicalType="uuid"),
        field("at", "long", logicalType="timestamp-micros"),
        field("of_day", "long", logicalType="time-micros"),
        field("d", "bytes", logicalType="decimal", precision=30, scale=10),
        field("more", "array", items="bytes"),
    ]
    one = uuid.UUID(int=2**100 + 7)
    at = dt.datetime(2026, 1, 2)  # noqa: DTZ001  (without a zone, which means UTC wherever the test runs)
    number = decimal.Decimal("12345678901234567890.0123456789")
    given = Native(b"\x01\xff", one, one, at, dt.time(0, 0, 1), number, (b"\xfe",))
    flow = Topology("t")
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    flow.source("s", format="avro", schema=schema).to_topic("out")
    with Driver(flow) as driver:
        driver.feed("s", given)
        driver.feed("s", dataclasses.asdict(given))
        expected = {
            "raw": b"\x01\xff",
            "id": str(one),
            "short": one.bytes,
            "at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
            "of_day": 1_000_000,
            "d": number,
            "more": [b"\xfe"],
        }
        assert driver.stream("s") == [expected, expected]


def test_a_dict_with_a_uuid_and_a_time_of_day_is_json() -> None:
    flow = Topology("t")
    flow.source("s", schema="id string, at string").to_topic("out")
    with Driver(flow) as driver:
        driver.feed("s", {"id": uuid.UUID(int=7), "at": dt.time(1, 2)})
        assert driver.topic("out") == [{"id": str(uuid.UUID(int=7)), "at": "01:02:00"}]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\0\0", "2 bytes are too short for the id of a schema"),
        (b"hello", "it begins with byte 104, not with 0 and the id of a schema"),
        (b"\0\0\0\0\0\x04ab", "the bytes end too early"),
        (b"\0\0\0\0\0\x04ab\x02\x01\x00\x00\x00more", "4 bytes more than its schema says"),
        (b"\0\0\0\0\0\x04\xff\xfe\x02\x01\x00\x00\x00", "a text is not UTF-8"),
        (b"\0\0\0\0\0\x04ab\x02\x01\x00\x00\x08", "a branch that its union does not have"),
        (None, "no value"),
    ],
)
def test_what_can_not_be_read_is_rejected_with_the_reason(value: bytes | None, reason: str) -> None:
    flow = Topology("t")
    payments = flow.source("payments", format="avro", schema=json.dumps(PAYMENT))
    payments.to_topic("out")
    payments.rejected.to_topic("bad")
    with Driver(flow) as driver:
        driver.feed("payments", value)
        assert driver.topic("out") == []
        assert [row["reason"] for row in driver.stream("payments.rejected")] == [reason]
        assert [record.value for record in driver.records("bad")] == [value]


@pytest.mark.parametrize(
    ("kind", "number", "reason"),
    [
        ({"type": "long", "logicalType": "timestamp-micros"}, 1767225601123000000, "a time is outside"),
        ({"type": "long", "logicalType": "timestamp-millis"}, 2**63 - 1, "a time is outside"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, -(2**63), "a time is outside"),
        ({"type": "int", "logicalType": "date"}, 2**31 - 1, "a date is outside"),
        ({"type": "array", "items": {"type": "long", "logicalType": "timestamp-millis"}}, [2**62], "a time"),
    ],
)  # fmt: skip
def test_a_time_outside_of_the_years_1_to_9999_is_rejected(kind: Any, number: Any, reason: str) -> None:
    def record(type_: Any) -> dict[str, Any]:
        return {"type": "record", "name": "R", "fields": [{"name": "x", "type": type_}]}

    plain = {"type": "array", "items": "long"} if isinstance(number, list) else kind["type"]
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(record(plain)), {"x": number})
    flow = Topology("t")
    events = flow.source("events", format="avro", schema=json.dumps(record(kind)))
    events.to_topic("out")
    with Driver(flow) as driver:
        driver.feed("events", bytes(5) + out.getvalue())
        assert driver.topic("out") == []
        [rejected] = driver.stream("events.rejected")
        assert rejected["reason"].startswith(reason)


def test_columns_may_be_named_with_ddl_whatever_else_was_written() -> None:
    flow = Topology("t")
    flow.source("payments", format="avro", schema="card string, country string, paid_at timestamp").to_topic(
        "out"
    )
    with Driver(flow) as driver:
        driver.feed("payments", {"card": "c"})
        assert driver.topic("out") == [{"card": "c"}]


def test_a_schema_may_stand_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "payment.avsc").write_text(json.dumps(PAYMENT))
    flow = Topology("t")
    assert "eur" in (flow.source("p", format="avro", schema=tmp_path / "payment.avsc").columns or ())
    with pytest.raises(TopologyError, match="can't read the schema"):
        flow.source("q", format="avro", schema=str(tmp_path / "nothing.avsc"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": "avro", "schema": '{"type": "nothing"}'}, "there is no type 'nothing'"),
        ({"format": "protobuf", "schema": "id string"}, "takes its schema from a .proto file"),
        ({"format": "protobuf", "schema": PROTO, "message": "Nobody"}, "no message 'Nobody'"),
        ({"format": "avro", "schema": "x string", "message": "M"}, "message= requires"),
        ({"format": "json", "schema": "x string", "subject": "s"}, "has no schema in a registry"),
        ({"format": "avro", "registry": "http://127.0.0.1:1"}, "no schema registry answers at"),
        ({"format": "avro", "registry": "localhost"}, "is not the address of a schema registry"),
    ],
)
def test_a_mistake_is_told_at_its_line(options: dict[str, str], said: str) -> None:
    with pytest.raises(TopologyError, match=said) as error:
        Topology("t").source("s", **options)  # type: ignore[arg-type]
    assert "test_value_schemas.py" in str(error.value)
