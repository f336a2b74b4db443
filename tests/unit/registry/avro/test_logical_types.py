"""Every pair of Avro's logical types: a value is read as what was written, or told to be wrong.

fastavro is the model of what bytes mean: by the writer's logical type, and by the reader's where the writer
has none, as the specification says.
"""

from __future__ import annotations

import datetime as dt
import decimal
import io
import itertools
import json
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from millstream.core.errors import InvalidSchema
from millstream.pipeline.formats.avro_columns import decode
from millstream.pipeline.formats.avro_plan import arrow_type, plan
from millstream.registry.avro.schema import AvroSchema
from millstream.registry.parsing import parse

WRONG = object()


def logical(kind: str, meant: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meant, **more}


def number(precision: int, scale: int, kind: str = "bytes") -> dict[str, Any]:
    fixed = {"name": "F", "size": 8} if kind == "fixed" else {}
    return logical(kind, "decimal", precision=precision, scale=scale, **fixed)


TYPES: dict[str, Any] = {
    "int": "int",
    "long": "long",
    "double": "double",
    "bytes": "bytes",
    "string": "string",
    "fixed": {"type": "fixed", "name": "F", "size": 8},
    "date": logical("int", "date"),
    "time-millis": logical("int", "time-millis"),
    "time-micros": logical("long", "time-micros"),
    **{
        f"{local}timestamp-{unit}": logical("long", f"{local}timestamp-{unit}")
        for local in ("", "local-")
        for unit in ("millis", "micros", "nanos")
    },
    "decimal(12,2)": number(12, 2),
    "decimal(12,4)": number(12, 4),
    "decimal(4,2)": number(4, 2),
    "decimal(60,2)": number(60, 2),
    "fixed decimal(12,2)": number(12, 2, "fixed"),
    "fixed decimal(12,4)": number(12, 4, "fixed"),
    "uuid": logical("string", "uuid"),
    "long that is called a date": logical("long", "date"),
    "decimal without a precision": logical("bytes", "decimal"),
}
IGNORED = ("long that is called a date", "decimal without a precision")
TICKS = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
COUNTS = [0, 1, -1, 999, 20454, 86_399_999, -719_162, 2**31 - 1, -(2**31)]
LONGS = [1767225601123, 1767225601123456, 1767225601123456000, 1767225601123456789, 253402300800000]
RAW: dict[str, list[Any]] = {
    "int": COUNTS,
    "long": [*COUNTS, *LONGS, 2**63 - 1, -(2**63)],
    "double": [0.0, 1.5],
    "bytes": [b"", b"\x00\x96", b"\xff", b"\x00\xff", b"\x7f" * 15, b"\x80" + bytes(15), bytes(19) + b"\x07"],
    "string": ["", "a text", "5f3c1c9a-0000-4000-8000-000000000000"],
    "fixed": [bytes(8), b"\0" * 6 + b"\x3b\xff", b"\xff" * 8, b"\x80" + bytes(7)],
}  # fmt: skip


def avro(value: Any) -> AvroSchema:
    found = parse("AVRO", json.dumps(value), ())
    assert isinstance(found, AvroSchema)
    return found


def plain(type_: Any) -> Any:
    return (
        type_
        if isinstance(type_, str)
        else type_["type"]
        if type_["type"] != "fixed"
        else {"type": "fixed", "name": "F", "size": type_["size"]}
    )


def kind(type_: Any) -> str:
    return str(type_ if isinstance(type_, str) else type_["type"])


def meaning(name: str) -> str | None:
    """What a type is one of, besides being numbers or bytes; None if it says nothing of that."""
    if name in RAW or name in IGNORED:
        return None
    return "decimal" if "decimal" in name else name.rpartition("-")[0] or name


def fast(writer: Any, data: bytes, reader: Any = None) -> Any:
    schema = fastavro.parse_schema(reader) if reader is not None else None
    return fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(writer), schema)


def written(type_: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(type_), value)
    return out.getvalue()


def read(reader: Any, writer: Any, rows: list[bytes], *, by_columns: bool = False) -> list[Any]:
    """The values, and a reason where there is none. Raises InvalidSchema."""
    made = plan(avro(reader).root, avro(writer).root, by_columns=by_columns)
    column = pa.array(rows, pa.binary())
    offsets = np.frombuffer(column.buffers()[1], np.int32, len(rows) + 1).astype(np.int64)
    found, wrong = decode(made, column.buffers()[2], offsets[:-1], offsets[1:])
    assert found.type == arrow_type(avro(reader).root)
    found.validate(full=True)
    return [WRONG if at in wrong else value for at, value in enumerate(found.to_pylist())]


def model(reader: str, writer: str, data: bytes) -> Any:
    """What a value is as the reader's column, in the hands of fastavro."""
    as_, of = TYPES[reader], TYPES[writer]
    if meaning(reader) is None or meaning(reader) == "uuid":
        return fast(plain(of), data, plain(as_))
    meant = writer if meaning(writer) is not None else reader
    try:  # a time of day is a column of numbers, of which some are no time
        value = None if meaning(reader) == "time" else fast(TYPES[meant], data)
    except (OverflowError, ValueError):
        return WRONG
    unit = TICKS.get(reader.rpartition("-")[2])
    if meaning(reader) == "decimal":
        value = decimal.Decimal(int.from_bytes(fast(plain(of), data), "big", signed=True))
        value = value.scaleb(-TYPES[meant]["scale"], decimal.Context(prec=100))
        precision, scale = TYPES[reader]["precision"], TYPES[reader]["scale"]
        if precision > 38:
            return fast(plain(of), data)
        counted = value.scaleb(scale, decimal.Context(prec=100))
        return value if counted == int(counted) and abs(counted) < 10**precision else WRONG
    if unit is None:
        return value
    count, counted_in = int(fast(plain(of), data)), TICKS[meant.rpartition("-")[2]]
    if "timestamp" in reader and unit != TICKS["nanos"]:
        if counted_in == TICKS["nanos"]:
            if count % 1000:
                return WRONG
            value = dt.datetime(1970, 1, 1, tzinfo=None if "local" in reader else dt.UTC)
            return value + dt.timedelta(microseconds=count // 1000)
        return value
    exact = count * unit
    if exact % counted_in or not -(2**63) <= exact // counted_in < 2**63:
        return WRONG
    return exact // counted_in


PAIRS = list(itertools.product(TYPES, TYPES))


@pytest.mark.parametrize(("reader", "writer"), PAIRS)
def test_a_value_is_read_as_what_it_means_or_told_to_be_wrong(reader: str, writer: str) -> None:
    of = TYPES[writer]
    rows = [written(plain(of), value) for value in RAW[kind(of)]]
    try:
        found = read(TYPES[reader], of, rows)
    except InvalidSchema:
        assert avro(TYPES[reader]).problems_reading(avro(of)), "what can't be read is not called compatible"
        assert reader != writer
        return
    if kind(of) == "bytes" and kind(TYPES[reader]) == "string":
        return  # which are a text or not, whatever they mean
    assert found == [model(reader, writer, row) for row in rows]


@pytest.mark.parametrize(
    ("writer", "reader", "read_as", "compatible"),
    [
        ("long", "timestamp-millis", "it", True),
        ("int", "timestamp-millis", "it", True),
        ("int", "date", "it", True),
        ("bytes", "decimal(12,2)", "it", True),
        ("fixed", "fixed decimal(12,2)", "it", True),
        ("timestamp-millis", "long", "it", True),
        ("date", "long", "it", True),
        ("decimal(12,2)", "bytes", "it", True),
        ("timestamp-millis", "timestamp-micros", "it", False),
        ("timestamp-nanos", "timestamp-micros", "it", False),
        ("time-millis", "time-micros", "it", False),
        ("decimal(12,2)", "decimal(12,4)", "it", False),
        ("decimal(12,4)", "decimal(12,2)", "it", False),
        ("fixed decimal(12,2)", "fixed decimal(12,4)", "it", False),
        ("decimal(12,2)", "fixed decimal(12,2)", "nothing", False),
        ("decimal(12,2)", "string", "nothing", False),
        ("string", "decimal(12,2)", "nothing", False),
        ("decimal(12,4)", "decimal(60,2)", "nothing", False),
        ("date", "timestamp-millis", "nothing", False),
        ("date", "time-millis", "nothing", False),
        ("time-micros", "timestamp-micros", "nothing", False),
        ("timestamp-millis", "local-timestamp-millis", "nothing", False),
        ("local-timestamp-micros", "timestamp-micros", "nothing", False),
    ],
)
def test_which_types_are_read_as_which(writer: str, reader: str, read_as: str, compatible: bool) -> None:
    """The registry refuses what other readers than ours would misread; a pipeline converts it."""
    assert (avro(TYPES[reader]).problems_reading(avro(TYPES[writer])) == []) is compatible
    if read_as == "it":
        read(TYPES[reader], TYPES[writer], [])
    else:
        with pytest.raises(InvalidSchema):
            read(TYPES[reader], TYPES[writer], [])


def record(*types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{at}", "type": type_} for at, type_ in enumerate(types)]
    return {"type": "record", "name": "R", "fields": fields}


@pytest.mark.parametrize(
    ("around", "value"),
    [
        (lambda inner: ["null", inner], lambda one: one),
        (lambda inner: {"type": "array", "items": inner}, lambda one: [one, one]),
        (lambda inner: {"type": "map", "values": inner}, lambda one: {"k": one}),
        (lambda inner: record(inner), lambda one: {"f0": one}),
    ],
)
@pytest.mark.parametrize("kind", ["bytes", "fixed"])
def test_also_within_others(around: Any, value: Any, kind: str) -> None:
    reader, writer = around(number(12, 4, kind)), around(number(12, 2, kind))
    exact = value(decimal.Decimal("1.50"))
    [found] = read(reader, writer, [written(writer, exact)])
    assert (dict(found) if isinstance(exact, dict) else found) == exact
    [back] = read(writer, reader, [written(reader, value(decimal.Decimal("1.5077")))])
    assert back is WRONG


def test_a_field_that_nobody_reads_is_passed_over_whatever_it_holds() -> None:
    writer = record(TYPES["timestamp-micros"], number(4, 2), "int")
    reader = {"type": "record", "name": "R", "fields": [{"name": "f2", "type": "int"}]}
    raw = written(record("long", "bytes", "int"), {"f0": 2**63 - 1, "f1": b"\x7f" * 20, "f2": 7})
    assert read(reader, writer, [raw]) == [{"f2": 7}]
    assert read(writer, writer, [raw]) == [WRONG]


@pytest.mark.parametrize(
    ("column", "writer", "value", "found"),
    [
        (TYPES["timestamp-micros"], "timestamp-millis", 0, dt.datetime(1970, 1, 1, tzinfo=dt.UTC)),
        (TYPES["decimal(12,4)"], "decimal(12,2)", b"\x00\x96", decimal.Decimal("1.5")),
        (TYPES["decimal(12,4)"], "fixed decimal(12,2)", bytes(7) + b"\x96", decimal.Decimal("1.5")),
        ("bytes", "fixed", b"12345678", b"12345678"),
        ("long", "timestamp-millis", 5, 5),
        (TYPES["timestamp-micros"], "long", 5, "has no logical type that says which time it counts"),
        (TYPES["date"], "int", 5, "has no logical type that says which time it counts"),
        (TYPES["decimal(12,4)"], "bytes", b"\x00", "has no scale"),
        (TYPES["decimal(12,4)"], "fixed", bytes(8), "has no scale"),
        (TYPES["local-timestamp-micros"], "timestamp-millis", 5, "a timestamp-millis is not a local"),
    ],
)  # fmt: skip
def test_columns_take_only_what_says_what_it_is(column: Any, writer: str, value: Any, found: Any) -> None:
    """DDL's ``timestamp`` has no unit that a plain number could be of."""
    row = written(plain(TYPES[writer]), value)
    if isinstance(found, str):
        with pytest.raises(InvalidSchema, match=found):
            read(column, TYPES[writer], [row], by_columns=True)
    else:
        assert read(column, TYPES[writer], [row], by_columns=True) == [found]


def test_a_text_column_takes_the_names_of_an_enum() -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    assert read("string", enum, [written(enum, "B")], by_columns=True) == ["B"]
    with pytest.raises(InvalidSchema):
        read("string", enum, [])


@pytest.mark.parametrize("default", [{"default": 2**62}, {"default": 253402300800000}])
def test_a_default_that_is_no_time_is_told_when_the_schemas_are_compared(default: dict[str, int]) -> None:
    field = {"name": "t", "type": TYPES["timestamp-millis"], **default}
    with pytest.raises(InvalidSchema, match="outside the years 1 to 9999"):
        read({"type": "record", "name": "R", "fields": [field]}, record(), [])
