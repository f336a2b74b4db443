"""A record's bytes as columns, and the reason where they are not: Spark expressions only, no Python per row.

``from_json`` says that a record is corrupt but not why. The reason is worked out for those few rows alone:
is it UTF-8, is it JSON, is it an object, which field holds something that its type can't.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from millstream.pipeline.schema import Field, quoted
from millstream.pipeline.streams import REJECTED_COLUMNS, Source

_CORRUPT = "_millstream_corrupt"
_DATA, _REASON = "_millstream_data", "_millstream_reason"
_TEXT = "cast(value AS string)"
_SPACE = r"' \t\r\n'"


def decoded(raw: DataFrame, source: Source) -> DataFrame:
    """The raw records with their parsed columns in a struct, or the reason why there are none; counted."""
    if source.format == "json":
        schema = f"{source.schema.ddl()}, {quoted(_CORRUPT)} string"
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        data = fn.from_json(fn.expr(_TEXT), schema, options)
    else:
        data = fn.expr(f"named_struct('value', {_TEXT if source.format == 'text' else 'value'})")
    rows = raw.withColumn(_DATA, data).withColumn(_REASON, fn.expr(_reason(source)))
    return rows.observe(
        f"source {source.name}", fn.count(fn.lit(1)).alias("rows"), fn.count(_REASON).alias("rejected")
    )


def accepted(rows: DataFrame, source: Source, *extra: Any) -> DataFrame:
    """The columns the schema names, what else the source was asked for, and ``extra`` ones."""
    columns: list[Any] = [fn.col(f"{_DATA}.{quoted(name)}").alias(name) for name in source.schema.names]
    columns += [fn.col(part).alias(f"record_{part}") for part in source.include]
    time = source.time
    if time is not None and time.kind == "log":
        columns.append(fn.col("timestamp").alias(time.column))
    elif time is not None and time.kind == "processing":
        columns.append(fn.current_timestamp().alias(time.column))
    return rows.where(f"{_REASON} IS NULL").select(*columns, *extra)


def rejected(rows: DataFrame) -> DataFrame:
    """What did not parse: why, where it stands in the log, and the bytes as they came."""
    return rows.where(f"{_REASON} IS NOT NULL").withColumnRenamed(_REASON, "reason").select(*REJECTED_COLUMNS)


def _reason(source: Source) -> str:
    """The SQL that says why a record is rejected, NULL if it is not."""
    cases = ["WHEN value IS NULL THEN 'no value'"]
    if source.format != "binary":
        cases.append(f"WHEN NOT is_valid_utf8({_TEXT}) THEN 'not UTF-8'")
    if source.format == "json":
        wrong = ", ".join(_wrong_type(field) for field in source.schema.fields)
        cases += [
            f"WHEN ({_DATA} IS NULL OR {_DATA}.{_CORRUPT} IS NOT NULL) AND try_parse_json({_TEXT}) IS NULL"
            " THEN 'not JSON'",
            f"WHEN {_DATA} IS NULL OR NOT startswith(trim(LEADING {_SPACE} FROM {_TEXT}), '{{')"
            " THEN 'JSON, but not an object'",
            # from_json stops at the end of the object and does not look further
            f"WHEN NOT endswith(trim(TRAILING {_SPACE} FROM {_TEXT}), '}}')"
            " THEN 'not JSON: it goes on after the object'",
            f"WHEN {_DATA}.{_CORRUPT} IS NOT NULL"
            f" THEN coalesce(nullif(concat_ws('; ', {wrong}), ''), 'does not match the schema')",
        ]
        time = source.time.column if source.time is not None and source.time.kind == "event" else None
        for field in source.schema.fields:
            if field.required or field.name == time:
                column, name = f"{_DATA}.{quoted(field.name)}", _literal(f"field {field.name} is missing")
                cases.append(f"WHEN {column} IS NULL THEN {name}")
    return f"CASE {' '.join(cases)} END"


def _wrong_type(field: Field) -> str:
    """``field amount: "ten" is not a double``, or NULL where the field is right or not there."""
    path = _literal("$['" + field.name.replace("'", "\\'") + "']")
    found = f"get_json_object({_TEXT}, {path})"
    said = (
        f"concat({_literal(f'field {field.name}: ')}, left({found}, 40), {_literal(f' is not {field.type}')})"
    )
    return f"if({_DATA}.{quoted(field.name)} IS NULL AND {found} IS NOT NULL, {said}, NULL)"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
