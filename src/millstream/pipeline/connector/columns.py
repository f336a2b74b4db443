"""The columns in which records are read and written: those of Spark's own Kafka source."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructType

from millstream.core.errors import ConfigError
from millstream.pipeline.connector.options import PLAIN, ReadOptions

HEADERS = "array<struct<key:string,value:binary>>"
COLUMNS: Mapping[str, str] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": HEADERS,
}


def schema_of(options: ReadOptions) -> str:
    """The columns, with the names, types and order of Spark's own Kafka source."""
    return ", ".join(
        f"{name} {kind}" for name, kind in COLUMNS.items() if options.headers or name != "headers"
    )


def check_schema(schema: StructType) -> None:
    """Refuse a user's schema that does more than select columns: it can't change their types."""
    for column in schema.fields:
        if column.name == PLAIN:
            continue
        kind = COLUMNS.get(column.name)
        if kind is None:
            raise ConfigError(
                f"there is no column {column.name!r} to read; the columns are {', '.join(COLUMNS)}"
            )
        if column.dataType.simpleString() != kind:
            raise ConfigError(
                f"column {column.name!r} is {kind}, not {column.dataType.simpleString()}; cast it later"
            )
