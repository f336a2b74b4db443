"""Odd JSON: Spark, the driver's own SQL and the source's compiled reader take the same values, and reject the
same records for the same reasons."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from millstream import Topology
from millstream.core.errors import MillstreamError
from millstream.records.columns.json_values import JsonColumns, JsonField
from millstream.testing import Driver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "card string, eur double, n bigint, b boolean, at timestamp, ntz timestamp_ntz, d date, m decimal(10,2),"
    " who struct<at:timestamp>, times array<timestamp>, byname map<string,timestamp>,"
    " y tinyint, in struct<y:tinyint>, bytes array<tinyint>"
)
PLAIN = {"card": "string", "eur": "double", "n": "bigint", "b": "boolean", "at": "timestamp"}
OTHERS = ("ntz", "d", "m", "who", "times", "byname", "y", "in", "bytes")
SMALLER = ": a number counts seconds since 1970, and this one looks like smaller units"
# What is to be said of a record, None if it is taken.
REASONS: dict[str | bytes, str | None] = {
    # single quotes
    "{'card':'a'}": "not JSON",
    "{\"card\":'a'}": "not JSON",
    "{\"card\":{'x':1}}": "not JSON",
    '{"card":"a\\\'b"}': "not JSON",
    '{"card":"it\'s"}': None,
    # numbers as times
    '{"at":1767268800}': None,
    '{"at":-62135596800}': None,
    '{"at":253402300799}': None,
    '{"at":1767268800000}': f"field at: 1767268800000 is not timestamp{SMALLER}",
    '{"at":1767268800000000}': f"field at: 1767268800000000 is not timestamp{SMALLER}",
    '{"at":9223372036854775807}': f"field at: 9223372036854775807 is not timestamp{SMALLER}",  # goes round
    '{"at":18446744073710}': f"field at: 18446744073710 is not timestamp{SMALLER}",  # goes round to 1970
    '{"at":253402300800}': f"field at: 253402300800 is not timestamp{SMALLER}",
    '{"at":1767268800.5}': "field at: 1.7672688005E9 is not timestamp",
    '{"n":1767268800000,"at":1767268800}': None,
    '{"n":1767268800000,"at":1767268800000}': f"field at: 1767268800000 is not timestamp{SMALLER}",
    '{"ntz":1767268800}': "field ntz: 1767268800 is not timestamp_ntz",
    '{"d":20000}': "field d: 20000 is not date",
    '{"who":{"at":1767268800000}}': 'field who: {"at":1767268800000} is not struct<`at`:timestamp>',
    '{"who":{"at":18446744073710}}': 'field who: {"at":18446744073710} is not struct<`at`:timestamp>',
    '{"times":[1,18446744073710]}': "field times: [1,18446744073710] is not array<timestamp>",
    '{"byname":{"x":1767268800000}}': 'field byname: {"x":1767268800000} is not map<string,timestamp>',
    '{"who":{"at":1767268800},"times":[1,"2026-01-01T12:00:00Z"],"byname":{"x":5}}': None,
    # years
    '{"at":"0001-01-01T00:00:00Z"}': None,
    '{"at":"9999-12-31T23:59:59.999999Z"}': None,
    '{"at":"10000-01-01T00:00:00Z"}': "field at: 10000-01-01T00:00:00Z is not timestamp",
    '{"at":"0000-01-01T00:00:00Z"}': "field at: 0000-01-01T00:00:00Z is not timestamp",
    '{"at":"0001-01-01T00:00:00+01:00"}': "field at: 0001-01-01T00:00:00+01:00 is not timestamp",
    '{"at":"9999-12-31T23:59:59-01:00"}': "field at: 9999-12-31T23:59:59-01:00 is not timestamp",
    '{"ntz":"10000-01-01T00:00:00"}': "field ntz: 10000-01-01T00:00:00 is not timestamp_ntz",
    '{"d":"10000-01-01"}': "field d: 10000-01-01 is not date",
    '{"d":"0000-12-31"}': "field d: 0000-12-31 is not date",
    '{"d":"0001-01-01"}': None,
    # times that depend on the day of reading
    '{"card":"a","at":"now"}': "field at: now is not timestamp",
    '{"at":"today"}': "field at: today is not timestamp",
    '{"at":"12:30"}': "field at: 12:30 is not timestamp",
    '{"at":"T12:30:00Z"}': "field at: T12:30:00Z is not timestamp",
    '{"card":"12:30","at":"2026-01-01T12:30:00Z"}': None,
    '{"d":"now"}': "field d: now is not date",
    '{"ntz":"yesterday"}': "field ntz: yesterday is not timestamp_ntz",
    # half of a character
    '{"card":"\\ud800"}': None,
    '{"card":"a\\udc00b \\ud83d\\ude00"}': None,
    '{"card":{"x":"\\ud800"}}': None,
    b'{"card":"\xed\xa0\x80"}': "not UTF-8",
    # numbers
    '{"eur":1e400}': None,
    '{"eur":NaN}': None,
    '{"card":1e400}': None,
    '{"card":NaN}': None,
    '{"m":"1e2"}': None,
    '{"m":".5"}': None,
    '{"m":1e400}': 'field m: "Infinity" is not decimal(10,2)',
    '{"n":1e2}': "field n: 100.0 is not bigint",
    # bytes that Spark makes negative
    '{"y":127}': None,
    '{"y":-128}': None,
    '{"y":128}': "field y: 128 is not tinyint",
    '{"y":255}': "field y: 255 is not tinyint",
    '{"y":256}': "field y: 256 is not tinyint",
    '{"y":-129}': "field y: -129 is not tinyint",
    '{"in":{"y":200}}': 'field in: {"y":200} is not struct<`y`:tinyint>',
    '{"bytes":[1,130]}': "field bytes: [1,130] is not array<tinyint>",
    '{"n":200,"y":-1,"bytes":[-7]}': None,
    # microseconds
    '{"ntz":"2026-01-01T00:00:00.123456","at":"2026-01-01T00:00:00.123456Z"}': None,
    # names twice
    '{"card":"a","card":"b"}': None,
    '{"card":{"a":1,"a":2}}': None,
}


def flow() -> Topology:
    made = Topology("odd")
    records = made.source("records", schema=SCHEMA, include=["offset"])
    records.to_topic("taken")
    return made


def ran(engine: str) -> tuple[list[dict[str, Any]], list[bytes | None], dict[int, str]]:
    with Driver(flow(), engine=engine) as driver:
        driver.feed("records", list(REASONS))
        reasons = {row["offset"]: row["reason"] for row in driver.stream("records.rejected")}
        return driver.stream("records"), [one.value for one in driver.records("taken")], reasons


def test_odd_values_are_taken_and_rejected_alike(spark: SparkSession) -> None:
    expected = {at: reason for at, reason in enumerate(REASONS.values()) if reason is not None}
    own, on_spark = ran("python"), ran("spark")
    assert own[2] == expected
    assert on_spark[2] == expected
    assert repr(own[:2]) == repr(on_spark[:2])  # NaN is not equal to itself


def test_the_compiled_reader_takes_what_spark_takes_as_spark_takes_it() -> None:
    rows = {row["record_offset"]: row for row in ran("python")[0]}
    reader = JsonColumns(JsonField(name, kind) for name, kind in PLAIN.items())
    values = [one if isinstance(one, bytes) else one.encode() for one in REASONS]
    read = reader.read(pa.array(values, pa.binary())).to_pylist()
    compared = 0
    for at, (found, value) in enumerate(zip(read, REASONS, strict=True)):
        if found is None or any(f'"{name}"' in str(value) for name in OTHERS):
            continue
        assert repr(found) == repr({name: _zoned(rows[at][name]) for name in PLAIN}), value
        compared += 1
    assert compared >= 3


def _zoned(value: Any) -> Any:
    from zoneinfo import ZoneInfo

    return value.astimezone(ZoneInfo("UTC")) if isinstance(value, datetime) and value.tzinfo is UTC else value


@pytest.mark.parametrize(
    ("value", "expression"),
    [
        ("{'x': 1}", "from_json(value, 'x int').x"),
        ("{'x': 1}", "get_json_object(value, '$.x')"),
        ("['x']", "json_array_length(value)"),
        ('{"x":-INF}', "from_json(value, 'x double').x"),
        ('{"x":{"a":1,"a":2}}', "from_json(value, 'x map<string,int>').x"),
    ],
)
def test_what_spark_reads_otherwise_the_driver_refuses_by_name(value: str, expression: str) -> None:
    made = Topology("odd")
    made.source("records", format="text").select(f"{expression} AS found").to_topic("out")
    with Driver(made) as driver, pytest.raises(MillstreamError, match="use Driver"):
        driver.feed("records", value)
