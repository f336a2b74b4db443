"""Records by their schemas: the registry is a process of its own, and Confluent's serialisers wrote them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from millstream import Broker
from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.console.run import Console
from millstream.console.settings import ConsoleSettings
from tests.support.apache_kafka import free_port
from tests.support.browser import keep, window
from tests.support.command import CommandLine
from tests.support.proto_classes import proto_classes

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "card", "type": "string"},
        {"name": "eur", "type": "double"},
        {"name": "paid_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "country", "type": ["null", "string"], "default": None},
    ],
}
PERSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string"}},
}
ORDER = {"order.proto": 'syntax = "proto3"; package shop; message Order { string sku = 1; int32 n = 2; }'}
UNKNOWN = b"\0" + (9999).to_bytes(4, "big") + b"\x02\x04"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        with Admin(Connection.of(started.address)) as admin:
            for name in ("payments", "people", "orders", "strange"):
                admin.create_topic(name, partitions=1)
        yield started


@pytest.fixture(scope="module")
def registry(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its URL; what is written with it is in the topics."""
    shell = CommandLine(broker.address)
    process = shell.start("registry", "--listen", "127.0.0.1:0", stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().decode().strip()
        write_records(broker.address, url, tmp_path_factory.mktemp("proto"))
        yield url
    finally:
        process.terminate()
        process.wait(400)
        process.stdout.close()


def write_records(address: str, url: str, directory: Any) -> None:
    producer = Producer({"bootstrap.servers": address})

    def send(topic: str, write: Any, value: Any) -> None:
        producer.produce(topic, write(value, SerializationContext(topic, MessageField.VALUE)), key="k")

    with SchemaRegistryClient({"url": url}) as client:
        avro = AvroSerializer(client, json.dumps(PAYMENT))
        for number in range(5):
            payment = {"card": f"c{number}", "eur": 10.5 * number, "paid_at": 1_767_261_600_000}
            send("payments", avro, {**payment, "country": "DE" if number % 2 else None})
        send("people", JSONSerializer(json.dumps(PERSON), client), {"name": "Ada"})
        order = proto_classes(ORDER, directory)["shop.Order"]
        send("orders", ProtobufSerializer(order, client), order(sku="apple", n=3))
    producer.produce("strange", UNKNOWN)
    producer.produce("strange", b'{"plain": true}')
    assert producer.flush(30) == 0


@pytest.fixture(scope="module")
def console(broker: Broker, registry: str) -> Iterator[Console]:
    with Console(ConsoleSettings(Connection.of(broker.address), registry=registry)) as started:
        yield started


def value(console: Console, topic: str, offset: int = 0, **query: str) -> dict[str, Any]:
    answer = httpx.get(f"{console.url}/api/topics/{topic}/messages/0/{offset}", params=query, timeout=30)
    assert answer.status_code == 200
    shown: dict[str, Any] = answer.json()["value"]
    return shown


def test_avro_is_shown_and_searched_by_its_fields(browser: Browser, console: Console) -> None:
    with window(browser) as page:
        page.goto(f"{console.url}/topics/payments")
        assert page.locator(".messages .value", has_text='"card": "c4", "eur": 42.0').count() == 1
        page.get_by_label("Where").fill('$.eur > 10 and $.country = "DE"')
        page.get_by_role("button", name="Show").click()
        page.wait_for_url("**where=*")
        page.locator(".messages .value", has_text='"card": "c3"').wait_for()
        assert page.locator(".messages > li").count() == 2
        page.locator(".messages summary").first.click()
        page.get_by_text("by its schema (schema 1)").wait_for()
        assert '"paid_at": "2026-01-01T10:00:00' in page.locator(".messages pre").last.inner_text()
        keep(page, "messages-avro-day")


def test_json_schemas_and_protobuf_are_shown_too_and_the_wrong_kind_is_said(console: Console) -> None:
    assert json.loads(value(console, "people")["text"]) == {"name": "Ada"}
    order = value(console, "orders", format="protobuf")
    assert (json.loads(order["text"]), order["format"]) == ({"sku": "apple", "n": 3}, "protobuf")
    wrong = value(console, "orders", format="avro")
    assert (wrong["format"], wrong["note"]) == ("hex", "schema 3 is of type PROTOBUF, not AVRO")


def test_a_schema_that_nobody_knows_is_said_and_the_bytes_are_shown(
    browser: Browser, console: Console, registry: str
) -> None:
    said = f"the registry at {registry} has no schema 9999"
    shown = value(console, "strange")
    assert (shown["format"], shown["note"]) == ("hex", said)
    assert "00 00 00 27 0f 02 04" in shown["text"]
    assert json.loads(value(console, "strange", 1)["text"]) == {"plain": True}
    with window(browser) as page:
        page.goto(f"{console.url}/topics/strange")
        page.get_by_text(f"1 value could not be decoded, and is shown as bytes or text: {said}").wait_for()
        page.get_by_text("00 00 00 27 0f 02 04").wait_for()


def test_a_registry_that_is_away_is_said_and_the_bytes_are_shown(browser: Browser, broker: Broker) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    with (
        Console(ConsoleSettings(Connection.of(broker.address), registry=away)) as console,
        window(browser) as page,
    ):
        page.goto(f"{console.url}/topics/payments")
        page.get_by_text("5 values could not be decoded").wait_for()
        assert away in page.locator("p.notice.warning").inner_text()
        page.locator(".messages .value", has_text="00 00 00 00 01 04 63 34").wait_for()
        keep(page, "messages-registry-away-day")
        shown = value(console, "payments")
        assert away in shown["note"]
        assert shown["text"].startswith("00000000  00 00 00 00 01")


def test_without_a_registry_avro_says_what_to_start(browser: Browser, broker: Broker, registry: str) -> None:
    with Console(broker.address) as console, window(browser) as page:
        assert "--registry URL" in value(console, "payments", format="avro")["note"]
        page.goto(f"{console.url}/topics/payments")
        assert page.locator("option[value=avro]").is_disabled()
