"""Records that a test feeds to a topic, and records that come out of one."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millstream.pipeline.sql import types
from millstream.pipeline.sql.jsons import json_ready

_HEADERS = types.array(types.struct({"key": types.STRING, "value": types.BINARY}))
RAW = types.arrow_schema(  # as a source reads them
    {
        "key": types.BINARY,
        "value": types.BINARY,
        "topic": types.STRING,
        "partition": types.INT,
        "offset": types.BIGINT,
        "timestamp": types.TIMESTAMP,
        "timestampType": types.INT,
        "headers": _HEADERS,
    }
)


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a topic, as it is in the log.

    >>> Record(b'{"card": "c1"}', key=b"c1", headers={"trace": b"17"}, partition=2).partition
    2
    """

    value: bytes | None
    key: bytes | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    timestamp: dt.datetime | None = None
    partition: int = 0
    offset: int = 0


def raw_table(topic: str, records: Sequence[Record]) -> pa.Table:
    columns: dict[str, list[Any]] = {
        "key": [record.key for record in records],
        "value": [record.value for record in records],
        "topic": [topic] * len(records),
        "partition": [record.partition for record in records],
        "offset": [record.offset for record in records],
        "timestamp": [record.timestamp for record in records],
        "timestampType": [0] * len(records),
        "headers": [
            [{"key": name, "value": value} for name, value in record.headers.items()] or None
            for record in records
        ],
    }
    return pa.table(columns, schema=RAW)


def to_bytes(given: object) -> bytes | None:
    """A value as a producer would send it: objects as JSON, text in UTF-8, bytes and None as they are."""
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    if dataclasses.is_dataclass(given) and not isinstance(given, type):
        given = dataclasses.asdict(given)
    return json.dumps(given, default=json_ready, ensure_ascii=False).encode()
