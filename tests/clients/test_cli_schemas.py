"""``millstream registry`` and ``millstream schema``, and records that are encoded by schemas."""

from __future__ import annotations

import json
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream import Broker
from millstream.registry.service.running import Registry
from tests.support.apache_kafka import free_port
from tests.support.command import CommandLine
from tests.support.waiting import wait_for

PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "card", "type": "string"},
        {"name": "eur", "type": "double"},
        {
            "name": "at",
            "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}],
            "default": None,
        },
    ],
}


@pytest.fixture(scope="module")
def millstream() -> Iterator[CommandLine]:
    """The command line with a broker and a registry in its environment."""
    with Broker() as broker, Registry(broker.address) as registry:
        found = CommandLine(broker.address)
        found.environment["MILLSTREAM_REGISTRY"] = registry.url
        yield found


@pytest.fixture
def avsc(tmp_path: Path) -> Path:
    file = tmp_path / "payment.avsc"
    file.write_text(json.dumps(PAYMENT))
    return file


def test_a_schema_is_registered_shown_checked_and_deleted(millstream: CommandLine, avsc: Path) -> None:
    assert "id" in millstream.ok("schema", "register", "pay-value", str(avsc))
    assert json.loads(millstream.ok("schema", "show", "pay-value")) == PAYMENT
    [listed] = [row for row in millstream.json("schema", "list") if row["subject"] == "pay-value"]
    assert (listed["type"], listed["version"], listed["compatibility"]) == ("avro", 1, "backward")
    assert json.loads(millstream.ok("schema", "show", "--id", str(listed["id"]))) == PAYMENT

    assert "is compatible" in millstream.ok("schema", "check", "pay-value", str(avsc))
    other = json.loads(avsc.read_text())
    other["fields"].append({"name": "country", "type": "string"})
    avsc.write_text(json.dumps(other))
    done = millstream.run("schema", "check", "pay-value", str(avsc))
    assert done.returncode == 1
    assert b"READER_FIELD_MISSING_DEFAULT_VALUE at /fields/3" in done.stdout
    assert "incompatible" in millstream.refused("schema", "register", "pay-value", str(avsc))

    assert "pay-value: none" in millstream.ok("schema", "config", "pay-value", "--set", "none")
    millstream.ok("schema", "register", "pay-value", str(avsc))
    assert "pay-value: backward" in millstream.ok("schema", "config", "pay-value", "--unset")

    assert "deleted 2 versions" in millstream.ok("schema", "delete", "pay-value")
    assert "not found" in millstream.refused("schema", "show", "pay-value")
    millstream.ok("schema", "delete", "pay-value", "--permanent", "-y")
    assert "pay-value" not in millstream.ok("schema", "list", "--deleted")


def test_values_are_produced_and_consumed_by_their_schema(millstream: CommandLine, avsc: Path) -> None:
    lines = '{"card": "c1", "eur": 9.5, "at": "2026-01-02T03:04:05+00:00"}\n{"card": "c2", "eur": 1}\n'
    millstream.ok("produce", "payments", "--create", "--schema", str(avsc), stdin=lines)
    shown = [
        json.loads(line)
        for line in millstream.ok("consume", "payments", "-o", ":end", "--decode", "avro").splitlines()
    ]
    assert shown == [
        {"card": "c1", "eur": 9.5, "at": "2026-01-02T03:04:05+00:00"},
        {"card": "c2", "eur": 1.0, "at": None},
    ]
    first = json.loads(
        millstream.ok("consume", "payments", "-o", ":end", "--decode", "auto", "-J").splitlines()[0]
    )
    assert first["value"]["card"] == "c1"
    assert "not PROTOBUF" in millstream.refused("consume", "payments", "-o", ":end", "--decode", "protobuf")
    out = avsc.parent / "out"
    millstream.ok("topic", "export", "payments", "--to", str(out), "--decode", "auto")
    exported = [json.loads(line) for path in out.iterdir() for line in path.read_text().splitlines()]
    assert [line["value"] for line in exported] == shown


def test_a_value_that_does_not_fit_its_schema_is_refused_with_its_line(
    millstream: CommandLine, avsc: Path
) -> None:
    millstream.ok("topic", "create", "strict")
    wrong = '{"card": "c1", "eur": 1}\n{"card": "c1", "eur": "much"}\n'
    done = millstream.run("produce", "strict", "--schema", str(avsc), stdin=wrong)
    assert done.returncode == 1
    assert b'line 2: eur: "much" is not a double' in done.stderr
    assert millstream.ok("consume", "strict", "-o", ":end", "--decode", "auto").count("\n") == 1


def test_protobuf_and_json_values_are_told_apart_from_others(millstream: CommandLine, tmp_path: Path) -> None:
    proto = tmp_path / "order.proto"
    proto.write_text('syntax = "proto3"; package shop; message Line { string sku = 1; int32 n = 2; }')
    schema = tmp_path / "order.json"
    schema.write_text('{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}')
    millstream.ok(
        "produce",
        "mixed",
        "--create",
        "--schema",
        str(proto),
        "--subject",
        "p",
        stdin='{"sku": "a", "n": 2}\n',
    )
    millstream.ok("produce", "mixed", "--schema", str(schema), "--subject", "j", stdin='{"n": 3}\n')
    millstream.ok("produce", "mixed", stdin="plain\n")
    millstream.ok("produce", "mixed", "--format", "raw", stdin=b"\0\0\0\x0f\xffxyz")
    done = millstream.run("consume", "mixed", "-o", ":end", "--decode", "auto")
    lines = done.stdout.split(b"\n")
    assert [json.loads(line) for line in lines[:2]] == [{"sku": "a", "n": 2}, {"n": 3}]
    assert lines[2:4] == [b"plain", b"\0\0\0\x0f\xffxyz"]
    assert b"has no schema 4095" in done.stderr
    refused = millstream.run(
        "produce", "mixed", "--schema", str(schema), "--subject", "j", stdin='{"n": "x"}\n'
    )
    assert b"is not of type 'integer'" in refused.stderr


def test_a_registry_that_is_not_there_is_said_so(avsc: Path) -> None:
    millstream = CommandLine("127.0.0.1:1")
    said = millstream.refused("schema", "list", "--registry", "http://user:secret@127.0.0.1:1")
    assert "no schema registry answers at http://127.0.0.1:1" in said
    assert "secret" not in said


def test_one_command_serves_a_broker_and_a_registry(tmp_path: Path) -> None:
    port, out = free_port(), tmp_path / "out"
    shell = CommandLine("127.0.0.1:1")
    with out.open("wb") as stdout:
        process = shell.start("serve", "--listen", "127.0.0.1:0", "--registry", f":{port}", stdout=stdout)
    try:

        def answers() -> bytes | None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/subjects") as answer:
                    found: bytes = answer.read()
                    return found
            except OSError:
                return None

        assert wait_for(answers, what="the registry answers") == b"[]"
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(400) == 0
    assert answers() is None
