"""Convert a record's bytes to plain values and back, one record at a time, for the CLI and other small uses.

Values are those of JSON. Other values of Avro and Protobuf are written as text: times in ISO 8601, decimals
in digits, bytes as in Avro's own JSON (one character per byte) or, for Protobuf, in base64.
"""

from __future__ import annotations

import datetime as dt
import decimal
import io
import json
import time
import uuid
from collections.abc import Callable
from typing import Any

from millstream.client.text.lines import Outgoing, Parse
from millstream.core.errors import InputError, InvalidSchema, RegistryRefused, UndecodableRecord
from millstream.registry.avro.schema import AvroSchema
from millstream.registry.avro.types import (
    Array,
    Enum,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Type,
    Union,
    describe,
)
from millstream.registry.client import RegistryClient
from millstream.registry.framing import framed, message_indexes, unframed
from millstream.registry.json.schema import JsonSchema
from millstream.registry.protobuf.schema import ProtobufSchema
from millstream.registry.schema import ParsedSchema

_NO_SUCH_SCHEMA = 40403
_AGAIN = 10.0  # seconds before an unknown id is requested again; replicas of a registry may learn it late
Read = Callable[[bytes], Any]
Write = Callable[[Any], bytes]


class Decoder:
    """Decodes values by the schema id that they carry. Raises UndecodableRecord, or RegistryUnavailable."""

    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry
        self._readers: dict[int, Read] = {}
        self._without: dict[int, tuple[str, float]] = {}  # why an id has no reader, and until when that holds

    def decode(self, data: bytes | None, type: str | None = None) -> Any:
        """The value of framed bytes. With ``type``, their schema has to be of that type."""
        id_, payload = unframed(data)
        reader = self._readers.get(id_) or self._looked_up(id_)
        if type is not None and self._registry.schema(id_).type != type:
            raise UndecodableRecord(f"schema {id_} is of type {self._registry.schema(id_).type}, not {type}")
        return reader(payload)

    def _looked_up(self, id_: int) -> Read:
        why, until = self._without.get(id_, ("", 0.0))
        if time.monotonic() < until:  # so that a thousand such records do not send a thousand requests
            raise UndecodableRecord(why)
        try:
            reader = self._readers[id_] = reader_of(self._registry.parsed(id_))
            return reader
        except RegistryRefused as error:
            if error.code == _NO_SUCH_SCHEMA:
                why = f"the registry at {self._registry.url} has no schema {id_}"
            elif isinstance(error, InvalidSchema):
                why = f"schema {id_} can't be read: {error}"
            else:
                raise
            self._without[id_] = (why, time.monotonic() + _AGAIN)
            raise UndecodableRecord(why) from None


def reader_of(schema: ParsedSchema) -> Read:
    """A function that reads values of a schema, without their header."""
    if isinstance(schema, AvroSchema):
        return _avro_reader(schema)
    if isinstance(schema, ProtobufSchema):
        return _protobuf_reader(schema)
    return _json_value


def encoder(schema: ParsedSchema, id_: int, message: str | None = None) -> Write:
    """A function that writes values of a schema, with their header. ``message`` names the Protobuf message;
    the default is the first one.

    The function raises UndecodableRecord for a value that does not fit.
    """
    if isinstance(schema, AvroSchema):
        return _avro_writer(schema, id_)
    if isinstance(schema, ProtobufSchema):
        return _protobuf_writer(schema, id_, message)
    assert isinstance(schema, JsonSchema)
    return _json_writer(schema, id_)


# ---- Avro ---------------------------------------------------------------------------------------------


def encoding_json(parse: Parse, encode: Write) -> Parse:
    """A parser of lines that also encodes the values of its records, which are JSON."""

    def parse_and_encode(line: bytes, number: int) -> Outgoing:
        record = parse(line, number)
        if record.value is None:
            return record
        try:
            value = json.loads(record.value)
        except (ValueError, RecursionError) as error:
            raise InputError(
                number, f"a value that is encoded by a schema is JSON; this is not: {error}"
            ) from None
        try:
            return record._replace(value=encode(value))
        except UndecodableRecord as error:
            raise InputError(number, str(error)) from None

    return parse_and_encode


def _avro_reader(schema: AvroSchema) -> Read:
    import fastavro

    parsed = fastavro.parse_schema(schema.document())

    def read(payload: bytes) -> Any:
        stream = io.BytesIO(payload)
        try:
            value = fastavro.schemaless_reader(stream, parsed, None)
        except Exception as error:  # fastavro raises many kinds of errors for wrong bytes
            reason = str(error) or type(error).__name__
            raise UndecodableRecord(f"not a value of its Avro schema: {reason[:200]}") from None
        if stream.tell() != len(payload):
            raise UndecodableRecord(f"{len(payload) - stream.tell()} bytes too many for its Avro schema")
        return plain(value)

    return read


def _avro_writer(schema: AvroSchema, id_: int) -> Write:
    import fastavro

    parsed = fastavro.parse_schema(schema.document())

    def write(value: Any) -> bytes:
        out = io.BytesIO()
        try:
            fastavro.schemaless_writer(out, parsed, _avro(schema.root, value, ""))
        except UndecodableRecord:
            raise
        except Exception as error:
            raise UndecodableRecord(f"not a value of the Avro schema: {str(error)[:200]}") from None
        return framed(id_, out.getvalue())

    return write


def _avro(type: Type, value: Any, path: str) -> Any:
    """A JSON value in the form that fastavro takes for a type. Raises UndecodableRecord, which says which
    part does not fit."""
    wrong = UndecodableRecord(
        f"{path or 'the value'}: {json.dumps(value, default=str)[:80]} is not {_a(type)}"
    )
    match type:
        case Union():
            for branch in type.branches:
                try:
                    made = _avro(branch, value, path)
                except UndecodableRecord as error:
                    if len(type.branches) == 2 and branch.kind != "null" and value is not None:
                        raise error from None
                    continue
                # A tuple says which branch is meant. Otherwise fastavro would guess.
                return (branch.name, made) if isinstance(branch, Named) else made
            raise wrong
        case Record():
            if not isinstance(value, dict):
                raise wrong
            return _avro_record(type, value, path)
        case Array():
            if not isinstance(value, list):
                raise wrong
            return [_avro(type.items, each, f"{path}[{at}]") for at, each in enumerate(value)]
        case Map():
            if not isinstance(value, dict):
                raise wrong
            return {key: _avro(type.values, each, f"{path}.{key}") for key, each in value.items()}
        case Enum():
            if value not in type.symbols:
                raise wrong
            return value
        case Fixed() | Primitive():
            return _avro_scalar(type, value, wrong)
    raise AssertionError(type)


def _avro_record(type: Record, value: dict[str, Any], path: str) -> dict[str, Any]:
    known = {each.name for each in type.fields}
    for name in value:
        if name not in known:
            raise UndecodableRecord(f"{path or 'the value'}: {type.name} has no field {name!r}")
    made = {}
    for each in type.fields:
        where = f"{path}.{each.name}" if path else each.name
        if each.name in value:
            made[each.name] = _avro(each.type, value[each.name], where)
        elif not each.has_default:
            raise UndecodableRecord(f"{where} is missing, and has no default")
    return made


def _instant(text: str) -> dt.datetime:
    """A time without a time zone is in UTC; fastavro would take it for local time."""
    found = dt.datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)


_PARSERS: dict[str, Callable[[str], Any]] = {
    "timestamp-millis": _instant,
    "timestamp-micros": _instant,
    "local-timestamp-millis": dt.datetime.fromisoformat,
    "local-timestamp-micros": dt.datetime.fromisoformat,
    "date": dt.date.fromisoformat,
    "time-millis": dt.time.fromisoformat,
    "time-micros": dt.time.fromisoformat,
    "decimal": decimal.Decimal,
    "uuid": uuid.UUID,
}


def _avro_scalar(type: Fixed | Primitive, value: Any, wrong: UndecodableRecord) -> Any:
    if type.logical == "uuid" and type.kind == "fixed" and isinstance(value, str) and len(value) > 16:
        try:
            return uuid.UUID(value).bytes
        except ValueError:
            raise wrong from None
    parse = _PARSERS.get(type.logical or "") if type.kind != "fixed" or type.logical == "decimal" else None
    if parse is not None and (isinstance(value, str) or type.logical == "decimal"):
        try:
            return parse(str(value))
        except (ValueError, ArithmeticError):
            raise wrong from None
    if type.kind in ("bytes", "fixed"):
        if not isinstance(value, str) or any(ord(each) > 255 for each in value):
            raise wrong
        return value.encode("latin-1")
    fits = {
        "null": value is None,
        "boolean": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool) and -(2**31) <= value < 2**31,
        "long": isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63,
        "float": isinstance(value, int | float) and not isinstance(value, bool),
        "double": isinstance(value, int | float) and not isinstance(value, bool),
        "string": isinstance(value, str),
    }
    if not fits[type.kind]:
        raise wrong
    return value


def _a(type: Type) -> str:
    said = type.logical or describe(type)
    return f"an {said}" if said[0] in "aeiou" else f"a {said}"


def plain(value: Any) -> Any:
    """A value from fastavro, in the form of Avro's JSON."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bytes | bytearray):
        return value.decode("latin-1")
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    return value


# ---- Protobuf -----------------------------------------------------------------------------------------


def message_class(schema: ProtobufSchema, indexes: tuple[int, ...]) -> Any:
    """The class of the message with these indexes."""
    from google.protobuf import message_factory

    scope, name = schema.root.message_type, schema.root.package
    for index in indexes:
        if not 0 <= index < len(scope):
            raise UndecodableRecord(f"its schema has no message {list(indexes)}")
        name = f"{name}.{scope[index].name}" if name else scope[index].name
        scope = scope[index].nested_type
    return message_factory.GetMessageClass(schema.pool.FindMessageTypeByName(name))


def _protobuf_reader(schema: ProtobufSchema) -> Read:
    from google.protobuf import json_format
    from google.protobuf.message import DecodeError

    classes: dict[tuple[int, ...], Any] = {}

    def read(payload: bytes) -> Any:
        indexes, rest = message_indexes(payload)
        if indexes not in classes:
            classes[indexes] = message_class(schema, indexes)
        try:
            message = classes[indexes].FromString(rest)
            return json_format.MessageToDict(
                message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
            )
        except (DecodeError, ValueError, TypeError) as error:
            raise UndecodableRecord(f"not a {classes[indexes].DESCRIPTOR.full_name}: {error}") from None

    return read


def message_path(schema: ProtobufSchema, name: str | None) -> tuple[int, ...]:
    """The indexes of the message with a name, with or without the package. None means the first message."""
    if name is None:
        return (0,)
    wanted = name.removeprefix(f"{schema.root.package}.") if schema.root.package else name
    scope, path = schema.root.message_type, []
    for part in wanted.split("."):
        at = next((at for at, message in enumerate(scope) if message.name == part), None)
        if at is None:
            raise InvalidSchema(f"the schema has no message {name!r}")
        path.append(at)
        scope = scope[at].nested_type
    return tuple(path)


def _protobuf_writer(schema: ProtobufSchema, id_: int, name: str | None) -> Write:
    from google.protobuf import json_format
    from google.protobuf.message import EncodeError

    indexes = message_path(schema, name)
    kind = message_class(schema, indexes)

    def write(value: Any) -> bytes:
        try:
            data = json_format.ParseDict(value, kind()).SerializeToString()
        except (json_format.ParseError, EncodeError, TypeError, ValueError, AttributeError) as error:
            raise UndecodableRecord(f"not a {kind.DESCRIPTOR.full_name}: {str(error)[:200]}") from None
        return framed(id_, data, indexes)

    return write


# ---- JSON ---------------------------------------------------------------------------------------------


def _json_value(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise UndecodableRecord(f"not JSON: {error}") from None


def _with_floats(value: Any) -> Any:
    """A value with floats instead of decimals, because validators don't calculate with decimals."""
    if isinstance(value, dict):
        return {key: _with_floats(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_floats(each) for each in value]
    return float(value) if isinstance(value, decimal.Decimal) else value


def json_text(value: Any) -> str:
    """JSON, with all digits of decimals. Raises UndecodableRecord for a number that JSON does not have."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_text(str(key))}:{json_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    if isinstance(value, decimal.Decimal):
        return str(value)
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise UndecodableRecord(f"{value} is not a JSON number") from None


def _json_writer(schema: JsonSchema, id_: int) -> Write:
    validator = schema.validator()

    def write(value: Any) -> bytes:
        error = next(iter(validator.iter_errors(_with_floats(value))), None)
        if error is not None:
            raise UndecodableRecord(f"{error.json_path}: {error.message[:200]}")
        return framed(id_, json_text(value).encode())

    return write
