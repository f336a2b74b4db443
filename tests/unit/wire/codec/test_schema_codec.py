"""The writers derived from the schemas, held byte for byte to kio's own writer: every request kind, every
version, both directions."""

from __future__ import annotations

import dataclasses
import datetime
import io
import random
import types
import typing
import uuid
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer

from millstream.wire.codec.schema_codec import (
    answer_reader,
    answer_writer,
    field_names,
    request_reader,
    request_writer,
    unknown_fields,
)

ALL = [
    (key, version) for key, name in sorted(api_key_map.items()) for version in sorted(schema_name_map[name])
]


class Filler:
    """Random values for a schema: as kio's entity, and the same as the plain dictionary our writers take."""

    def __init__(self, seed: int, *, nulls: bool) -> None:
        self.random = random.Random(seed)
        self.nulls = nulls

    def fill(self, entity: type[Any]) -> tuple[Any, dict[str, Any]]:
        theirs, ours = {}, {}
        hints = typing.get_type_hints(entity)
        for field in dataclasses.fields(entity):
            theirs[field.name], ours[field.name] = self._field(field, hints[field.name])
        return entity(**theirs), ours

    def _field(self, field: dataclasses.Field[Any], hint: Any) -> tuple[Any, Any]:
        nullable = False
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            options = [option for option in typing.get_args(hint) if option is not type(None)]
            nullable = len(options) < len(typing.get_args(hint))
            hint = options[0]
        kind = field.metadata.get("kafka_type", "")
        if nullable and self.nulls and kind != "datetime_i64" and "tag" not in field.metadata:
            return None, None
        if typing.get_origin(hint) is tuple:
            item = typing.get_args(hint)[0]
            pairs = [self._value(kind, item) for _ in range(self.random.choice([0, 1, 3]))]
            return tuple(a for a, _ in pairs), [b for _, b in pairs]
        return self._value(kind, hint)

    def _value(self, kind: str, hint: Any) -> tuple[Any, Any]:
        if dataclasses.is_dataclass(hint):
            return self.fill(hint)  # type: ignore[arg-type]
        r = self.random
        if kind.startswith(("int", "uint")):
            bits = int(kind.removeprefix("u").removeprefix("int"))
            value = r.getrandbits(bits) if kind[0] == "u" else r.getrandbits(bits) - 2 ** (bits - 1)
            return value, value
        if kind == "string":
            text = "".join(r.choices("abcäö漢", k=r.choice([0, 1, 5, 127, 200])))
            return text, text
        if kind in ("bytes", "records"):
            data = r.randbytes(r.choice([0, 1, 126, 127, 300]))
            return data, data
        if kind == "bool":
            flag = r.random() < 0.5
            return flag, flag
        if kind == "float64":
            number = r.random()
            return number, number
        if kind == "uuid":
            value_id = uuid.UUID(int=r.getrandbits(128))
            return value_id, value_id
        if kind == "error_code":
            code = r.choice(list(ErrorCode))
            return code, code.value
        if kind.startswith("timedelta"):
            ms = r.randrange(0, 2**31 - 1)
            return datetime.timedelta(milliseconds=ms), ms
        assert kind == "datetime_i64", kind
        ms = r.randrange(0, 2**40)
        return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC), ms


def written_by_kio(entity: type[Any], value: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(entity)(out, value)
    return out.getvalue()


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize(("api_key", "version"), ALL)
def test_a_plan_writes_what_kio_writes(api_key: int, version: int, nulls: bool) -> None:
    for entity, plan, read in (
        (load_request_schema(api_key, version), request_writer, request_reader),
        (load_response_schema(api_key, version), answer_writer, answer_reader),
    ):
        for seed in range(3):
            theirs, ours = Filler(seed, nulls=nulls).fill(entity)
            out = bytearray()
            plan(api_key, version)(out, ours)
            assert bytes(out) == written_by_kio(entity, theirs)
            assert read(api_key, version)(bytes(out), 0) == (theirs, len(out))


@pytest.mark.parametrize(("api_key", "version"), ALL)
def test_fields_left_out_take_the_schemas_defaults(api_key: int, version: int) -> None:
    out = bytearray()
    answer_writer(api_key, version)(out, {})
    value, size = answer_reader(api_key, version)(bytes(out), 0)
    assert size == len(out)
    assert written_by_kio(load_response_schema(api_key, version), value) == bytes(out)


def test_a_misspelt_field_of_an_answer_is_found() -> None:
    known = field_names(3, (0, 13))
    assert unknown_fields({"brokers": [{"node_id": 1, "hosst": "x"}], "cluster_id": "c"}, known) == [
        "brokers.hosst"
    ]
    assert unknown_fields({"topics": [{"partitions": [{"leader_id": 1}]}]}, known) == []
