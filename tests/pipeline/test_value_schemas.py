"""Values that carry the id of a schema, on Spark: Confluent's serialisers' read, and theirs written."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from millstream import Broker, Topology
from millstream.core.errors import TopologyError
from millstream.registry.service.running import Registry
from millstream.views.opening import open_reader
from tests.support.proto_classes import proto_classes
from tests.support.topics import consume

OLD = {
    "type": "record",
    "name": "Payment",
    "fields": [{"name": "card", "type": "string"}, {"name": "n", "type": "int"}],
}
NEW = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "eur", "type": ["null", "double"], "default": None},
        {"name": "card", "type": "string"},
        {"name": "n", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
    ],
}
PROTO = {
    "order.proto": """
        syntax = "proto3";
        package shop;
        message Order { string id = 1; repeated int32 ns = 2; Place to = 3; }
        message Place { string zip = 1; }
    """
}
PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}


@pytest.fixture
def registry(millstream_broker: Broker) -> Iterator[Registry]:
    with Registry(millstream_broker.address) as running:
        yield running


@pytest.fixture
def client(registry: Registry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as made:
        yield made


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def produce(address: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": address})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def test_records_of_several_schemas_are_read_as_one_and_what_is_not_is_rejected(
    run: Callable[..., Any], millstream_broker: Broker, registry: Registry, client: SchemaRegistryClient
) -> None:
    old = AvroSerializer(client, json.dumps(OLD))
    values = [old({"card": f"c{n}", "n": n}, value_of("payments")) for n in range(50)]
    new = AvroSerializer(client, json.dumps(NEW))
    values += [
        new({"eur": n / 2 if n % 2 else None, "card": f"c{n}", "n": n, "at": 1000 * n}, value_of("payments"))
        for n in range(50, 100)
    ]
    number = fastavro.parse_schema({**NEW, "fields": [*NEW["fields"][:3], {"name": "at", "type": "long"}]})
    beyond = io.BytesIO()
    fastavro.schemaless_writer(beyond, number, {"eur": None, "card": "x", "n": 1, "at": 2**62})
    produce(
        millstream_broker.address,
        "payments",
        [*values, b"no header", b"\0\0\0\xff\xffxx", values[0][:-1], values[-1][:5] + beyond.getvalue()],
    )

    flow = Topology("reads")
    payments = flow.source("payments", format="avro", registry=registry.url)
    assert payments.columns == ("eur", "card", "n", "at"), "those of the latest version"
    payments.to_view("payments", key="card")
    payments.rejected.to_topic("bad")
    job, _ = run(flow)

    reader = open_reader(job.views)
    names, rows = reader.all("payments")
    reader.close()
    found = {row[names.index("card")]: dict(zip(names, row, strict=True)) for row in rows}
    assert len(found) == 100
    assert (found["c7"]["n"], found["c7"]["eur"], found["c7"]["at"][:10]) == (7, None, "1970-01-01")
    assert (found["c51"]["eur"], found["c51"]["at"][:19]) == (25.5, "1970-01-01T00:00:51")
    bad = [record for _, record in consume(millstream_broker.address, "bad", 1)]
    said = sorted((dict(record.headers)["millstream-reason"] or b"").decode() for record in bad)
    assert said[0] == "a time is outside of the years 1 to 9999"
    assert said[1].startswith("it begins with byte 110")
    assert said[2] == "the bytes end too early"
    assert said[3].endswith("has no schema 65535")


def test_protobuf_and_json_are_read_into_the_columns_of_their_schemas(
    run: Callable[..., Any],
    millstream_broker: Broker,
    registry: Registry,
    client: SchemaRegistryClient,
    tmp_path: Path,
) -> None:
    order = proto_classes(PROTO, tmp_path)["shop.Order"]
    to_proto = ProtobufSerializer(order, client, {"use.deprecated.format": False})
    value = to_proto(order(id="o1", ns=[1, 2], to={"zip": "z"}), value_of("orders"))
    produce(millstream_broker.address, "orders", [value])
    to_json = JSONSerializer(json.dumps(PERSON), client)
    person = to_json({"name": "ann", "age": 3}, value_of("people"))
    produce(millstream_broker.address, "people", [person, person[:5] + b"{"])

    flow = Topology("reads")
    orders = flow.source("orders", format="protobuf", registry=registry.url)
    people = flow.source("people", format="json-schema", registry=registry.url)
    both = flow.union(
        orders.select("id AS name", "ns[1] AS n", "to.zip AS zip"), people.select("name", "age AS n")
    )
    both.to_topic("both")
    people.rejected.select("reason AS name").to_topic("both")
    run(flow)

    found = [json.loads(record.value or b"") for _, record in consume(millstream_broker.address, "both", 1)]
    assert sorted(found, key=lambda row: row["name"]) == [
        {"name": "ann", "n": 3},
        {"name": "not JSON"},
        {"name": "o1", "n": 2, "zip": "z"},
    ]


def test_rows_are_written_by_a_schema_that_is_registered_and_read_by_confluents_deserialisers(
    run: Callable[..., Any],
    millstream_broker: Broker,
    registry: Registry,
    client: SchemaRegistryClient,
    tmp_path: Path,
) -> None:
    first_row = b'{"card": "c1", "eur": 9.5, "at": "2026-01-02T03:04:05Z", "tags": ["a", null]}'
    produce(millstream_broker.address, "payments", [first_row, b'{"card": "c2"}'])

    def flow() -> Topology:
        made = Topology("writes")
        rows = made.source(
            "payments", schema="card string, eur decimal(6,2), at timestamp, tags array<string>"
        )
        rows.to_topic("as-avro", key="card", format="avro", registry=registry.url, delete_when="eur IS NULL")
        rows.to_topic("as-json", value=["card", "tags"], format="json-schema", registry=registry.url)
        orders = rows.select("card AS id", "array(1, 2) AS ns")
        proto = {"format": "protobuf", "schema": PROTO["order.proto"], "registry": registry.url}
        orders.to_topic("as-proto", **proto)
        rows.select("card AS zip").to_topic("as-place", message="Place", **proto)
        return made

    run(flow())

    def values(topic: str, read: Any) -> list[Any]:
        found = [record.value for _, record in consume(millstream_broker.address, topic, 1)]
        return [read(value, value_of(topic)) for value in found]

    first, second = sorted(values("as-avro", AvroDeserializer(client)), key=lambda row: row is None)
    assert (first["card"], str(first["eur"]), first["at"].isoformat()) == (
        "c1",
        "9.50",
        "2026-01-02T03:04:05+00:00",
    )
    assert second is None, "deleted"
    people = values("as-json", JSONDeserializer(None, schema_registry_client=client))
    assert sorted(people, key=str) == [{"card": "c1", "tags": ["a", None]}, {"card": "c2"}]
    order = proto_classes(PROTO, tmp_path)["shop.Order"]
    read = ProtobufDeserializer(order, {"use.deprecated.format": False}, client)
    assert sorted((one.id, list(one.ns)) for one in values("as-proto", read)) == [
        ("c1", [1, 2]),
        ("c2", [1, 2]),
    ]
    read = ProtobufDeserializer(
        proto_classes(PROTO, tmp_path)["shop.Place"], {"use.deprecated.format": False}, client
    )
    assert sorted(one.zip for one in values("as-place", read)) == ["c1", "c2"]

    unfit = Topology("writes")
    unfit.source("payments", schema="card string").to_topic(
        "as-place", format="protobuf", schema=PROTO["order.proto"], registry=registry.url
    )
    with pytest.raises(TopologyError, match=r"'card' is not a field of shop\.Order, the first message"):
        run(unfit, "unfit")

    client.set_compatibility("as-avro-value", "FORWARD")
    changed = Topology("writes")
    rows = changed.source("payments", schema="card int")
    rows.to_topic("as-avro", format="avro", registry=registry.url)
    with pytest.raises(TopologyError, match=r"as-avro.*incompatible"):
        run(changed, "another")
