"""Decodes values with schema ids to columns, a batch at a time, in Spark's workers and the test driver.

Values are grouped by the id that they begin with. A worker asks the registry for the schema of an id once in
its life, and keeps what follows from it. A value that can't be read (no header, an unknown id, bytes that do
not fit their schema) becomes null with a reason. An unreachable registry is not such a reason but an error:
the batch is run again.
"""

from __future__ import annotations

import decimal
import functools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.core.errors import InvalidSchema, RegistryRefused, UndecodableRecord
from millstream.pipeline.formats import avro_columns, avro_plan
from millstream.pipeline.formats.value_schemas import DATA, OWN, REASON, SourceSchema
from millstream.registry.avro.schema import AvroSchema
from millstream.registry.avro.types import Record
from millstream.registry.client import RegistryClient
from millstream.registry.framing import HEADER, message_indexes
from millstream.registry.protobuf.schema import ProtobufSchema
from millstream.registry.schema import ParsedSchema
from millstream.registry.values import json_text, message_class, message_path
from millstream.sqltypes.arrow import arrow_schema
from millstream.sqltypes.ddl import Field, from_ddl, map_parts

_PATIENCE = 30.0  # seconds to wait for a registry that is being restarted
_NO_SUCH_SCHEMA = 40403
_HEADER = HEADER.size


@functools.lru_cache(maxsize=64)
def decoder(source_schema: SourceSchema, fields: tuple[Field, ...]) -> ColumnDecoder:
    """The decoder of a source, made once and kept for as long as the worker lives."""
    kinds = {"avro": AvroDecoder, "protobuf": ProtobufDecoder, "json-schema": JsonDecoder}
    return kinds[source_schema.format](source_schema, fields)


class ColumnDecoder:
    """Decodes a column of values into structs of ``data`` and ``reason``, of which one is null."""

    def __init__(self, source_schema: SourceSchema, fields: tuple[Field, ...]) -> None:
        self._source_schema = source_schema
        self._registry = RegistryClient(source_schema.registry, patience=_PATIENCE)
        self._known: dict[int, Any] = {}
        self.type: pa.DataType = pa.struct(list(arrow_schema(fields)))

    def decode(self, values: pa.Array) -> pa.Array:
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        if pa.types.is_null(values.type) or values.offset:
            values = pa.array(values.to_pylist(), pa.binary())
        count = len(values)
        offsets = np.frombuffer(values.buffers()[1], np.int32, count + 1).astype(np.int64)
        data = values.buffers()[2]
        starts, ends = offsets[:-1], offsets[1:]
        reasons: dict[int, str] = {}
        ids = self._ids(values, data, starts, ends, reasons)
        parts: list[pa.Array] = []
        places = np.full(count, -1, np.int64)
        taken = 0
        for id_ in np.unique(ids[ids >= 0]).tolist():
            rows = np.flatnonzero(ids == id_)
            found, wrong = self._of_id(id_, data, starts[rows] + _HEADER, ends[rows])
            for at, reason in wrong.items():
                reasons[int(rows[at])] = reason
            if found is not None:
                parts.append(found)
                places[rows] = np.arange(taken, taken + len(rows))
                taken += len(rows)
        made = avro_columns.placed(parts, places, self.type)
        said = pa.array(
            [reasons.get(row) for row in range(count)] if reasons else [None] * count, pa.string()
        )
        return pa.StructArray.from_arrays([made, said], names=[DATA, REASON])

    def _ids(self, values: pa.Array, data: Any, starts: Any, ends: Any, reasons: dict[int, str]) -> Any:
        """The id of every value; -1 where there is none."""
        ids = np.full(len(values), -1, np.int64)
        there = values.is_valid().to_numpy(zero_copy_only=False)
        long_enough = there & (ends - starts >= _HEADER)
        for row in np.flatnonzero(there & ~long_enough).tolist():
            reasons[row] = f"{ends[row] - starts[row]} bytes are too short for the id of a schema"
        rows = np.flatnonzero(long_enough)
        if len(rows):
            heads = np.frombuffer(data, np.uint8)[starts[rows][:, None] + np.arange(_HEADER)]
            framed = heads[:, 0] == 0
            for at in np.flatnonzero(~framed).tolist():
                reasons[int(rows[at])] = (
                    f"it begins with byte {heads[at, 0]}, not with 0 and the id of a schema"
                )
            numbers = np.ascontiguousarray(heads[:, 1:]).view(">u4").ravel().astype(np.int64)
            ids[rows[framed]] = numbers[framed]
        return ids

    def _of_id(self, id_: int, data: Any, at: Any, end: Any) -> tuple[pa.Array | None, dict[int, str]]:
        known = self._known.get(id_)
        if known is None:
            known = self._known[id_] = self._prepared(id_)
        if isinstance(known, str):
            return None, dict.fromkeys(range(len(at)), known)
        return self._decoded(known, data, at, end)

    def _prepared(self, id_: int) -> Any:
        """What decodes the values of a schema, or the reason why nothing can."""
        try:
            if id_ == OWN and self._source_schema.own_ids:
                schema = self._source_schema.parsed() if self._source_schema.text else None
            else:
                found = self._registry.schema(id_)
                if found.type != self._source_schema.type:
                    return f"schema {id_} is of type {found.type}, not {self._source_schema.type}"
                schema = self._registry.parsed(id_)
            return self._plan(schema)
        except InvalidSchema as error:
            return f"schema {id_} does not fit: {error}"
        except RegistryRefused as error:
            if error.code != _NO_SUCH_SCHEMA:
                raise
            return f"the registry at {self._registry.url} has no schema {id_}"

    def _plan(self, schema: ParsedSchema | None) -> Any:
        raise NotImplementedError

    def _decoded(self, plan: Any, data: Any, at: Any, end: Any) -> tuple[pa.Array, dict[int, str]]:
        raise NotImplementedError


class AvroDecoder(ColumnDecoder):
    def _plan(self, schema: ParsedSchema | None) -> avro_columns.ColumnReader:
        reader = self._source_schema.parsed()
        assert isinstance(schema, AvroSchema)
        assert isinstance(reader, AvroSchema)
        return avro_plan.plan(reader.root, schema.root, by_columns=self._source_schema.by_columns)

    def _decoded(self, plan: Any, data: Any, at: Any, end: Any) -> tuple[pa.Array, dict[int, str]]:
        found, wrong = avro_columns.decode(plan, data, at, end)
        reader = self._source_schema.parsed()
        assert isinstance(reader, AvroSchema)
        if not isinstance(reader.root, Record):
            found = pa.StructArray.from_arrays([found], names=["value"])
        return found.cast(self.type), wrong


class ProtobufDecoder(ColumnDecoder):
    """Reads values with the reader's message type, as is usual for Protobuf's evolution. The writer's schema
    only says which message it is."""

    def __init__(self, source_schema: SourceSchema, fields: tuple[Field, ...]) -> None:
        from millstream.pipeline.formats.protobuf_columns import message_values

        super().__init__(source_schema, fields)
        reader = source_schema.parsed()
        assert isinstance(reader, ProtobufSchema)
        self._class = message_class(reader, message_path(reader, source_schema.message))
        self._values = message_values(self._class.DESCRIPTOR)

    def _plan(self, schema: ParsedSchema | None) -> ProtobufSchema:
        assert isinstance(schema, ProtobufSchema)
        return schema

    def _decoded(self, plan: Any, data: Any, at: Any, end: Any) -> tuple[pa.Array, dict[int, str]]:
        whole = memoryview(data)
        rows: list[Any] = []
        wrong: dict[int, str] = {}
        names: dict[bytes, str] = {}
        wanted = self._class.DESCRIPTOR.full_name
        parse, values = self._class.FromString, self._values
        for row, (first, last) in enumerate(zip(at.tolist(), end.tolist(), strict=True)):
            payload = bytes(whole[first:last])
            try:
                if payload[:1] == b"\0":
                    head, rest = b"\0", payload[1:]
                    name = names.get(head) or names.setdefault(
                        head, message_class(plan, (0,)).DESCRIPTOR.full_name
                    )
                else:
                    indexes, rest = message_indexes(payload)
                    head = payload[: len(payload) - len(rest)]
                    name = names.get(head) or names.setdefault(
                        head, message_class(plan, indexes).DESCRIPTOR.full_name
                    )
                if name != wanted:
                    raise UndecodableRecord(f"a message {name}, not {wanted}")
                rows.append(values(parse(rest)))
            except Exception as error:  # arbitrary bytes can raise anything
                rows.append(None)
                wrong[row] = (
                    str(error) if isinstance(error, UndecodableRecord) else f"not a {wanted}: {error}"
                )
        return pa.array(rows, self.type), wrong


class JsonDecoder(ColumnDecoder):
    """Only checks the header: the text after it is then read as in any JSON source. But 1.0 is an integer in
    JSON Schema, while JSON readers take it for something else, so it is rewritten as 1."""

    def __init__(self, source_schema: SourceSchema, fields: tuple[Field, ...]) -> None:
        super().__init__(source_schema, fields)
        self._whole = _whole_fields(fields)
        self.type = pa.binary()

    def _plan(self, schema: ParsedSchema | None) -> bool:
        return True

    def _decoded(self, plan: Any, data: Any, at: Any, end: Any) -> tuple[pa.Array, dict[int, str]]:
        from millstream.records.columns.with_numpy import slices

        found = slices(data, at, end - at)
        if self._whole is not None:
            rows = np.flatnonzero(
                pc.match_substring_regex(found, _MAYBE_WHOLE).to_numpy(zero_copy_only=False)
            )
            if len(rows):
                texts = found.to_pylist()
                for row in rows.tolist():
                    texts[row] = _with_whole(texts[row], self._whole)
                found = pa.array(texts, pa.binary())
        return found, {}


# A whole number that does not look like one: 1.0, 2e3, 1.5e1.
_MAYBE_WHOLE = r"[0-9]\.0+[\s,}\]]|[0-9][eE][+-]?[0-9]"
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_MOST_DIGITS = 20  # more than a bigint has
Change = Callable[[Any], Any]


def _with_whole(text: bytes, change: Change) -> bytes:
    """A JSON text with its integers written as integers. Invalid JSON stays as it is, and is reported
    later."""
    try:
        value = json.loads(text, parse_float=decimal.Decimal, parse_constant=decimal.Decimal)
        made = change(value)
        return json_text(made).encode()
    except (ValueError, ArithmeticError, RecursionError):
        return text


def _whole_fields(fields: tuple[Field, ...]) -> Change | None:
    parts = {field.name: made for field in fields if (made := _whole(field.type)) is not None}
    if not parts:
        return None

    def change(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: parts[name](each) if name in parts else each for name, each in value.items()}

    return change


def _whole(kind: str) -> Change | None:
    """A function that makes the integers in a value of this type whole; None if the type has none."""
    if kind in _INTEGERS:
        return _as_whole
    if kind.startswith("struct<"):
        return _whole_fields(from_ddl(kind[len("struct<") : -1]).fields)
    if kind.startswith("array<"):
        item = _whole(kind[len("array<") : -1])
        return item and (lambda value: [item(each) for each in value] if isinstance(value, list) else value)
    if kind.startswith("map<"):
        inner = _whole(map_parts(kind)[1])
        return inner and (
            lambda value: {k: inner(each) for k, each in value.items()} if isinstance(value, dict) else value
        )
    return None


def _as_whole(value: Any) -> Any:
    if not isinstance(value, decimal.Decimal) or not value.is_finite() or value.adjusted() > _MOST_DIGITS:
        return value
    whole = int(value)
    return whole if whole == value else value
