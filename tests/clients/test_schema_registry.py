"""The schema registry, by the client and the serialisers that Confluent gives to Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from millstream import Broker
from millstream.registry.service.running import Registry
from tests.support.proto_classes import proto_classes

USER = {
    "type": "record",
    "name": "User",
    "namespace": "shop",
    "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "int"}],
}
PERSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def registry(broker: Broker) -> Iterator[Registry]:
    with Registry(broker.address) as running:
        yield running


@pytest.fixture
def client(registry: Registry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url, "max.retries": 0}) as made:
        yield made


@pytest.fixture
def http(registry: Registry) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=registry.url) as made:
        yield made


def avro(*fields: dict[str, Any], name: str = "User") -> Schema:
    return Schema(json.dumps({"type": "record", "name": name, "fields": list(fields)}), "AVRO")


def field(name: str, kind: Any = "string", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


# ---- serialisers --------------------------------------------------------------------------------------


def test_avro_travels_through_a_topic(broker: Broker, client: SchemaRegistryClient) -> None:
    write = AvroSerializer(client, json.dumps(USER))
    producer = Producer({"bootstrap.servers": broker.address})
    for age in range(10):
        producer.produce("users", write({"name": f"u{age}", "age": age}, value_of("users")))
    assert producer.flush(60) == 0
    consumer = Consumer(
        {"bootstrap.servers": broker.address, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["users"])
    read = AvroDeserializer(client)
    found = [read(message.value(), value_of("users")) for message in consumer.consume(10, timeout=90)]
    consumer.close()
    assert found == [{"name": f"u{age}", "age": age} for age in range(10)]


def test_avro_of_an_older_schema_is_read_with_a_newer_one(client: SchemaRegistryClient) -> None:
    old = AvroSerializer(client, json.dumps(USER))
    newer = {**USER, "fields": [*USER["fields"], field("mail", ["null", "string"], default=None)]}
    data = old({"name": "a", "age": 1}, value_of("evolving"))
    AvroSerializer(client, json.dumps(newer))({"name": "b", "age": 2, "mail": "x"}, value_of("evolving"))
    read = AvroDeserializer(client, json.dumps(newer))
    assert read(data, value_of("evolving")) == {"name": "a", "age": 1, "mail": None}
    assert client.get_versions("evolving-value") == [1, 2]


def test_avro_with_references(client: SchemaRegistryClient) -> None:
    money = {"type": "record", "name": "Money", "namespace": "shop", "fields": [field("cents", "long")]}
    client.register_schema("money", Schema(json.dumps(money), "AVRO"))
    order = {"type": "record", "name": "Order", "namespace": "shop", "fields": [field("total", "shop.Money")]}
    schema = Schema(json.dumps(order), "AVRO", [SchemaReference("shop.Money", "money", 1)])
    write = AvroSerializer(client, schema)
    data = write({"total": {"cents": 5}}, value_of("orders"))
    assert AvroDeserializer(client)(data, value_of("orders")) == {"total": {"cents": 5}}
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_version("money", 1)
    assert refused.value.error_code == 42206


def test_auto_registration_off_needs_the_schema_to_be_there(client: SchemaRegistryClient) -> None:
    write = AvroSerializer(client, json.dumps(USER), conf={"auto.register.schemas": False})
    with pytest.raises(SchemaRegistryError) as refused:
        write({"name": "a", "age": 1}, value_of("manual"))
    assert refused.value.error_code == 40401
    id_ = client.register_schema("manual-value", Schema(json.dumps(USER), "AVRO"))
    assert write({"name": "a", "age": 1}, value_of("manual"))[1:5] == id_.to_bytes(4, "big")


def test_the_latest_version_can_be_used_whatever_the_writer_has(client: SchemaRegistryClient) -> None:
    id_ = client.register_schema("latest-value", Schema(json.dumps(USER), "AVRO"))
    conf = {"auto.register.schemas": False, "use.latest.version": True}
    write = AvroSerializer(client, None, conf=conf)
    assert write({"name": "a", "age": 1}, value_of("latest"))[1:5] == id_.to_bytes(4, "big")


def test_json_travels_and_what_does_not_fit_is_refused(client: SchemaRegistryClient) -> None:
    write = JSONSerializer(json.dumps(PERSON), client)
    data = write({"name": "a", "age": 3}, value_of("people"))
    read = JSONDeserializer(None, schema_registry_client=client)
    assert read(data, value_of("people")) == {"name": "a", "age": 3}
    with pytest.raises(Exception, match="not of type 'integer'"):
        write({"name": "a", "age": "old"}, value_of("people"))


def test_json_with_references(client: SchemaRegistryClient) -> None:
    address = {"$id": "http://shop/address.json", "type": "object", "properties": {"zip": {"type": "string"}}}
    client.register_schema("address", Schema(json.dumps(address), "JSON"))
    person = {"type": "object", "properties": {"home": {"$ref": "http://shop/address.json"}}}
    references = [SchemaReference("http://shop/address.json", "address", 1)]
    schema = Schema(json.dumps(person), "JSON", references)
    write = JSONSerializer(schema, client)
    data = write({"home": {"zip": "1"}}, value_of("homes"))
    assert JSONDeserializer(schema, schema_registry_client=client)(data, value_of("homes")) == {
        "home": {"zip": "1"}
    }


def test_protobuf_travels_with_imports_nested_messages_and_known_types(
    client: SchemaRegistryClient, tmp_path: Path
) -> None:
    files = {
        "shop/money.proto": 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }',
        "shop/order.proto": """
            syntax = "proto3";
            package shop;
            import "shop/money.proto";
            import "google/protobuf/timestamp.proto";
            message Order {
              message Line { string sku = 1; optional int32 n = 2; map<string, Money> prices = 3; }
              repeated Line lines = 1;
              google.protobuf.Timestamp at = 2;
              oneof paid { Money cash = 3; string card = 4; }
            }
            """,
    }
    classes = proto_classes(files, tmp_path)
    order, line = classes["shop.Order"], classes["shop.Order.Line"]
    message = order(lines=[line(sku="a", n=2)], card="c1")
    message.at.FromSeconds(1_700_000_000)
    message.lines[0].prices["eur"].cents = 5
    write = ProtobufSerializer(order, client, {"use.deprecated.format": False})
    data = write(message, value_of("proto-orders"))
    read = ProtobufDeserializer(order, {"use.deprecated.format": False}, client)
    assert read(data, value_of("proto-orders")) == message
    nested = ProtobufSerializer(line, client, {"use.deprecated.format": False})
    bytes_of_line = nested(line(sku="b"), value_of("lines"))
    reader = ProtobufDeserializer(line, {"use.deprecated.format": False}, client)
    assert reader(bytes_of_line, value_of("lines")).sku == "b"
    # What was sent as a descriptor is kept as a .proto file, and has the id of the same file sent as text.
    kept = client.get_latest_version("lines-value").schema
    assert "message Order {" in kept.schema_str
    again = Schema(files["shop/order.proto"], "PROTOBUF", kept.references)
    assert client.register_schema("as-text", again) == client.get_latest_version("lines-value").schema_id


# ---- subjects, versions, ids --------------------------------------------------------------------------


def test_the_same_schema_has_one_id_however_it_is_written(client: SchemaRegistryClient) -> None:
    first = client.register_schema("one", Schema('{"type": "record", "name": "Same", "fields": []}', "AVRO"))
    again = client.register_schema("two", Schema('{ "name":"Same", "fields":[], "type":"record" }', "AVRO"))
    assert first == again
    assert {each.subject for each in client.get_schema_versions(first)} == {"one", "two"}
    with pytest.raises(SchemaRegistryError):
        client.lookup_schema("one", Schema('"string"', "AVRO"))


def test_versions_are_looked_up_by_number_latest_and_schema(client: SchemaRegistryClient) -> None:
    for count in range(3):
        fields = [field(f"f{n}", default="") for n in range(count)]
        client.register_schema("numbered", avro(*fields))
    assert client.get_versions("numbered") == [1, 2, 3]
    assert client.get_latest_version("numbered").version == 3
    assert client.lookup_schema("numbered", avro(field("f0", default=""))).version == 2
    guid = client.get_version("numbered", 2).guid
    assert client.get_schema_by_guid(guid) == client.get_version("numbered", 2).schema


def test_a_deleted_version_is_hidden_but_its_data_is_read(client: SchemaRegistryClient) -> None:
    id_ = client.register_schema("going", avro(name="Going"))
    client.register_schema("going", avro(field("x", default=""), name="Going"))
    assert client.delete_version("going", 1) == 1
    assert client.get_versions("going") == [2]
    assert client.get_schema(id_).schema_type == "AVRO"
    assert client.delete_subject("going") == [2]
    assert "going" not in client.get_subjects()
    assert "going" in client.get_subjects(deleted=True)
    assert client.delete_subject("going", permanent=True) == [1, 2]
    assert client.register_schema("going", avro(name="Anew")) > id_ + 1, "an id is never given twice"


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/subjects/nobody/versions", None, 40401),
        ("GET", "/subjects/nobody/versions/latest", None, 40401),
        ("GET", "/subjects/known/versions/7", None, 40402),
        ("GET", "/subjects/known/versions/0", None, 42202),
        ("GET", "/subjects/known/versions/newest", None, 42202),
        ("GET", "/schemas/ids/99999", None, 40403),
        ("GET", "/schemas/ids/first", None, 404),
        ("GET", "/config/known", None, 40408),
        ("GET", "/mode/known", None, 40409),
        ("PUT", "/config", {"compatibility": "SOMEHOW"}, 42203),
        ("PUT", "/mode", {"mode": "SOMEHOW"}, 42204),
        ("DELETE", "/subjects/known?permanent=true", None, 40405),
        ("DELETE", "/subjects/known/versions/1?permanent=true", None, 40407),
        ("POST", "/subjects/known/versions", {"schema": '{"type": "nothing"}'}, 42201),
        ("POST", "/subjects/known/versions", {"schema": "{", "schemaType": "JSON"}, 42201),
        ("POST", "/subjects/known/versions", {"schema": "message {", "schemaType": "PROTOBUF"}, 42201),
        ("POST", "/subjects/known/versions", {"schema": '"int"', "schemaType": "THRIFT"}, 42201),
        ("POST", "/subjects/known/versions", {"nothing": 1}, 42201),
        ("POST", "/subjects/known/versions", {"schema": '"int"', "references": [{"name": "x"}]}, 42201),
        ("POST", "/subjects/known/versions", {"schema": '"int"', "id": 7}, 42205),
        ("POST", "/subjects/known/versions", {"schema": '"boolean"'}, 40901),
        ("POST", "/subjects/known", {"schema": '"boolean"'}, 40403),
        ("POST", "/compatibility/subjects/known/versions/9", {"schema": '"int"'}, 40402),
        ("PATCH", "/subjects", None, 405),
    ],
)
def test_what_is_wrong_is_told_with_confluents_codes(
    http: httpx.Client, method: str, path: str, body: Any, code: int
) -> None:
    known = http.post("/subjects/known/versions", json={"schema": '"int"'})
    assert known.status_code == 200
    answer = http.request(method, path, json=body)
    assert answer.json()["error_code"] == code
    assert answer.status_code == int(str(code)[:3])
    assert answer.headers["content-type"].startswith("application/vnd.schemaregistry.v1+json")
    assert answer.json()["message"]


def test_a_body_that_is_not_json_or_too_large_is_refused(http: httpx.Client) -> None:
    assert http.post("/subjects/s/versions", content=b"{").status_code == 400
    assert http.post("/subjects/s/versions", content=b"[" * 100_000).status_code == 400
    assert http.post("/subjects/s/versions", content=b" " * 5_000_000).status_code == 413
    large = {"schema": json.dumps({"type": "record", "name": "R", "doc": "x" * 960_000, "fields": []})}
    assert http.post("/subjects/s/versions", json=large).json()["error_code"] == 42209


def test_subjects_may_have_slashes_and_other_letters(client: SchemaRegistryClient) -> None:
    name = "teams/søk & co?-value"
    client.register_schema(name, avro(name="Slash"))
    assert name in client.get_subjects()
    assert client.get_latest_version(name).subject == name


# ---- compatibility, levels, modes -------------------------------------------------------------------


def test_levels_are_global_or_of_a_subject(client: SchemaRegistryClient) -> None:
    assert client.get_compatibility() == "BACKWARD"
    client.set_compatibility("own", "FULL_TRANSITIVE")
    assert client.get_compatibility("own") == "FULL_TRANSITIVE"
    client.set_compatibility("own", "NONE")
    client.register_schema("own", avro(field("a"), name="Own"))
    client.register_schema("own", avro(field("b", "int"), name="Own"))
    assert client.get_versions("own") == [1, 2]


def test_a_check_says_why(client: SchemaRegistryClient, http: httpx.Client) -> None:
    client.register_schema("checked", avro(field("a"), name="Checked"))
    assert client.test_compatibility("checked", avro(field("a"), field("b", default=""), name="Checked"))
    assert not client.test_compatibility("checked", avro(field("b"), name="Checked"))
    body = {"schema": avro(field("b"), name="Checked").schema_str}
    answer = http.post("/compatibility/subjects/checked/versions/latest?verbose=true", json=body).json()
    assert answer["is_compatible"] is False
    assert "READER_FIELD_MISSING_DEFAULT_VALUE at /fields/0" in answer["messages"][0]
    assert http.post("/compatibility/subjects/unheard/versions", json=body).json() == {"is_compatible": True}


def test_a_registry_may_be_read_only_or_be_filled_with_given_ids(http: httpx.Client) -> None:
    assert http.put("/mode/frozen", json={"mode": "READONLY"}).json() == {"mode": "READONLY"}
    refused = http.post("/subjects/frozen/versions", json={"schema": '"int"'})
    assert refused.json()["error_code"] == 42205
    http.put("/mode/imported", json={"mode": "IMPORT"})
    schema = {"schema": '{"type":"record","name":"Imp","fields":[]}', "id": 5000, "version": 3}
    assert http.post("/subjects/imported/versions", json=schema).json()["id"] == 5000
    assert http.get("/subjects/imported/versions").json() == [3]
    http.put("/mode/imported", json={"mode": "READWRITE"})
    again = http.post(
        "/subjects/elsewhere/versions", json={"schema": '{"type":"record","name":"N","fields":[]}'}
    )
    assert again.json()["id"] > 5000


def test_metadata_and_rules_are_kept_and_are_part_of_the_schema(http: httpx.Client) -> None:
    schema = {
        "schema": '"string"',
        "metadata": {"properties": {"owner": "a"}},
        "ruleSet": {"domainRules": []},
    }
    first = http.post("/subjects/owned/versions", json=schema).json()
    assert http.get(f"/schemas/ids/{first['id']}").json()["metadata"] == {"properties": {"owner": "a"}}
    other = http.post("/subjects/owned/versions", json={**schema, "metadata": {"properties": {"owner": "b"}}})
    assert other.json()["id"] != first["id"]
    found = http.get("/subjects/owned/metadata?key=owner&value=a").json()
    assert (found["version"], found["ruleSet"]) == (1, {"domainRules": []})


# ---- several registries, and what is in the topic ---------------------------------------------------


def test_what_one_registry_takes_in_another_on_the_topic_knows_at_once(broker: Broker) -> None:
    with Registry(broker.address, topic="_shared") as one, Registry(broker.address, topic="_shared") as two:
        here, there = SchemaRegistryClient({"url": one.url}), SchemaRegistryClient({"url": two.url})
        ids = []
        for count in range(6):
            writer, reader = (here, there) if count % 2 else (there, here)
            ids.append(writer.register_schema(f"s{count}", avro(name=f"R{count}")))
            assert json.loads(reader.get_schema(ids[-1]).schema_str)["name"] == f"R{count}"
        assert ids == [1, 2, 3, 4, 5, 6]
        here.close()
        there.close()


def test_a_registry_starts_again_with_all_it_knew(broker: Broker) -> None:
    with Registry(broker.address, topic="_kept") as first, httpx.Client(base_url=first.url) as http:
        assert http.post("/subjects/a/versions", json={"schema": '"int"'}).json()["id"] == 1
        http.post("/subjects/b/versions", json={"schema": '"string"'})
        http.put("/config/a", json={"compatibility": "FULL"})
        http.delete("/subjects/b")
        http.delete("/subjects/b?permanent=true")
    with Registry(broker.address, topic="_kept") as second, httpx.Client(base_url=second.url) as http:
        assert http.get("/subjects").json() == ["a"]
        assert http.get("/config/a").json() == {"compatibilityLevel": "FULL"}
        assert http.post("/subjects/b/versions", json={"schema": '"long"'}).json()["id"] == 3


def test_records_are_those_of_confluents_registry(broker: Broker) -> None:
    with Registry(broker.address, topic="_format") as running, httpx.Client(base_url=running.url) as http:
        http.post("/subjects/s/versions", json={"schema": '"int"'})
        http.put("/config", json={"compatibility": "FULL"})
        http.delete("/subjects/s")
    consumer = Consumer(
        {"bootstrap.servers": broker.address, "group.id": "f", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["_format"])
    found = [(message.key(), json.loads(message.value())) for message in consumer.consume(3, timeout=90)]
    consumer.close()
    assert found == [
        (
            b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
            {"subject": "s", "version": 1, "id": 1, "schema": '"int"', "deleted": False},
        ),
        (b'{"keytype":"CONFIG","subject":null,"magic":0}', {"compatibilityLevel": "FULL"}),
        (b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', {"subject": "s", "version": 1}),
    ]


def test_a_page_of_another_site_changes_nothing(http: httpx.Client) -> None:
    schema = {"schema": json.dumps("string")}
    path = "/subjects/cross-site/versions"
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert http.post(path, json=schema, headers=headers).status_code == 403
    assert http.post(path, json=schema, headers={"Host": "evil.example"}).status_code == 421
    assert http.get(path).status_code == 404
    assert http.post(path, json=schema).status_code == 200
    assert http.delete("/subjects/cross-site", headers={"Origin": "https://evil.example"}).status_code == 403
    assert http.get(path).json() == [1]
