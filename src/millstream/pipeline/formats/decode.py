"""Decodes a record's bytes into columns, or gives the reason why not: Spark expressions, no Python per row.

Values that carry the id of a schema are decoded in whole Arrow batches (``schema_decode``). Where JSON
follows the id, it is read as any other JSON.

The source has already read what is plain JSON, in whole Arrow batches (``plain_columns``); such a record has
no value here. ``from_json`` gets the others. It says that a record is corrupt but not why, so the reason is
worked out, for those few rows alone: is it UTF-8, is it JSON, is it an object, which field holds something
that its type can't.

Records of a table may have no value: they delete the row that their key names. The key is the text of the
record's key, or a JSON object with the key's columns. It also supplies key columns that a value does not
have.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from millstream.pipeline.connector.options import PLAIN
from millstream.pipeline.dsl.counts import source_count
from millstream.pipeline.dsl.expressions import with_columns
from millstream.pipeline.dsl.sources import REJECTED_COLUMNS, SourceNode
from millstream.pipeline.formats.value_schemas import DATA, REASON
from millstream.pipeline.kernel.joins.naming import DELETED
from millstream.records.columns.json_values import TYPES
from millstream.sqltypes.ddl import Field, from_ddl, map_parts, quoted

_CORRUPT = "_millstream_corrupt"
_DATA, _REASON, _ENCODED = "_millstream_data", "_millstream_reason", "_millstream_encoded"
_LOG_TIME = quoted("timestamp")
_SPACE = r"' \t\r\n'"
_ANOTHER = r"'\\}\\s*,?\\s*\\{'"
_STRICT = {"allowSingleQuotes": "false"}  # no other JSON reader accepts single quotes
_STRICT_SQL = "map('allowSingleQuotes', 'false')"
# Spark reads a number as a timestamp in seconds, and from 13 digits on its arithmetic may overflow. It also
# reads a time of day as a time of today. Both are looked for only in values that may have them.
_MISREAD = "^(-?[0-9]{13,}| *T?[0-9]{1,2}:.*)$"
_MAY_BE_MISREAD = '[^0-9A-Za-z_."][0-9]{13}|" *T?[0-9]{1,2}:'
# And it reads 128 to 255 as a negative byte.
_MISREAD_BYTE = "^(12[89]|1[3-9][0-9]|2[0-4][0-9]|25[0-5])$"
BETWEEN = "|sample|"  # between the reason and the record, in a sample of the records that did not parse
_SAMPLE = "coalesce(CAST(substring(value, 1, 500) AS string), 'no value')"


def decoded(raw: DataFrame, source: SourceNode) -> DataFrame:
    """The raw records, counted, each with its parsed columns in a struct or the reason why it has none."""
    if source.value_schema is not None:
        raw = raw.withColumn(_ENCODED, _decoding(source)(fn.col("value")))
    plain = PLAIN in raw.columns
    if source.is_json:
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, **_STRICT}
        data = fn.from_json(fn.expr(_text(source)), _json_schema(source), options)
        if plain:
            data = fn.coalesce(PLAIN, data)
    elif source.value_schema is not None:
        data = fn.expr(f"{_ENCODED}.{DATA}")
    else:
        data = fn.expr(f"named_struct('value', {_text(source) if source.format == 'text' else 'value'})")
    rows = raw.withColumn(_DATA, data).withColumn(_REASON, fn.expr(_reason(source, plain=plain)))
    return rows.observe(
        source_count(source.name),
        fn.count(fn.lit(1)).alias("rows"),
        fn.count(_REASON).alias("rejected"),
        # One rejected record, to be shown: any, if it is the same one when the batch is run again.
        fn.max(fn.expr(f"if({_REASON} IS NULL, NULL, concat({_REASON}, '{BETWEEN}', {_SAMPLE}))")).alias(
            "sample"
        ),
    )


def plain_columns(source: SourceNode) -> str | None:
    """The DDL of the plain JSON that the source may read by itself; None where every value must come here:
    for a table (a missing value deletes a row), and for fields of other types."""
    simple = all(field.type in TYPES for field in source.schema.fields)
    if source.format != "json" or source.table is not None or not simple:
        return None
    required = json.dumps([field.name for field in source.schema.fields if _is_required(source, field)])
    return f"{PLAIN} struct<{_json_schema(source)}> COMMENT {_literal(required)}"


def _json_schema(source: SourceNode) -> str:
    return f"{source.schema.ddl()}, {quoted(_CORRUPT)} string"


def _text(source: SourceNode) -> str:
    """The SQL of a value's text; for an encoded value, the text behind the header."""
    return f"cast({f'{_ENCODED}.{DATA}' if source.value_schema is not None else 'value'} AS string)"


def _decoding(source: SourceNode) -> Any:
    """The function that decodes a column of values, from Arrow to Arrow: no row is converted in between."""
    from millstream.pipeline.formats.schema_decode import decoder

    source_schema, fields = source.value_schema, source.schema.fields
    assert source_schema is not None

    def decode(values: pa.Array) -> pa.Array:
        return decoder(source_schema, fields).decode(values)

    inner = (
        "binary" if source.is_json else f"struct<{','.join(f'{quoted(f.name)}:{f.type}' for f in fields)}>"
    )
    return fn.arrow_udf(decode, f"struct<{DATA}:{inner},{REASON}:string>")


def accepted(rows: DataFrame, source: SourceNode, *extra: Any) -> DataFrame:
    """The rows that parsed: the schema's columns, what else the source includes, and the ``extra`` ones."""
    made = {name: _column(source, name) for name in source.schema.names}
    made |= {f"record_{part}": quoted(part) for part in source.include}
    time = source.time
    if time is not None and time.kind == "log":
        made[time.column] = _LOG_TIME
    elif time is not None and time.kind == "processing":
        made[time.column] = "current_timestamp()"
    if source.table is not None:
        made = {name: sql for name, sql in made.items() if name.lower() != DELETED}
        made[DELETED] = _deletes(source)
    columns = [fn.expr(sql).alias(name) for name, sql in made.items()]
    return rows.where(f"{_REASON} IS NULL").select(*columns, *extra)


def rejected(rows: DataFrame) -> DataFrame:
    """The records that did not parse: the reason, the place in the log, and the bytes as they came."""
    return rows.where(f"{_REASON} IS NOT NULL").withColumnRenamed(_REASON, "reason").select(*REJECTED_COLUMNS)


def _column(source: SourceNode, name: str) -> str:
    """The SQL of a column. A record that deletes has its key and its time outside of its value."""
    parsed = f"{_DATA}.{quoted(name)}"
    if source.table is None:
        return parsed
    if name in source.table.key:
        return f"coalesce({parsed}, {_from_key(source, name)})"
    if source.time is not None and source.time.kind == "event" and name == source.time.column:
        return f"if(value IS NULL, {_LOG_TIME}, {parsed})"
    return parsed


def _from_key(source: SourceNode, name: str) -> str:
    """The SQL of a column of a table's key, read from the record's key."""
    assert source.table is not None
    keys = {key: str(field.type) for key in source.table.key if (field := source.schema.field(key))}
    if keys[name] == "binary" and len(keys) == 1:
        return "key"
    text = "cast(key AS string)"
    ddl = ", ".join(f"{quoted(key)} {kind}" for key, kind in keys.items())
    in_object = f"from_json({text}, {_literal(ddl)}, {_STRICT_SQL}).{quoted(name)}"
    if len(keys) > 1:
        return in_object
    in_object = f"if(startswith({text}, '{{'), {in_object}, NULL)"
    return f"coalesce({in_object}, {text if keys[name] == 'string' else f'try_cast({text} AS {keys[name]})'})"


def _deletes(source: SourceNode) -> str:
    """The SQL of whether a record deletes its key from a table."""
    assert source.table is not None
    if source.table.delete_when is None:
        return "value IS NULL"
    columns = {name: _column(source, name) for name in source.schema.names}
    columns |= {f"record_{part}": quoted(part) for part in source.include}
    if source.time is not None and source.time.kind == "log":
        columns[source.time.column] = _LOG_TIME
    return f"value IS NULL OR coalesce(({with_columns(source.table.delete_when, columns)}), false)"


def _no_value(source: SourceNode) -> list[str]:
    """The cases for a record without a value. One that deletes a row of a table is not rejected."""
    if source.table is None:
        return ["WHEN value IS NULL THEN 'no value'"]
    cases = ["WHEN value IS NULL AND key IS NULL THEN 'neither a value nor a key to be deleted'"]
    for name in source.table.key:
        said = _literal(f"no value, and the key has no {name}")
        cases.append(f"WHEN value IS NULL AND {_from_key(source, name)} IS NULL THEN {said}")
    return [*cases, "WHEN value IS NULL THEN NULL"]


def _reason(source: SourceNode, *, plain: bool) -> str:
    """The SQL of the reason why a record is rejected; NULL if it is not. Plain records never are."""
    cases, text = _no_value(source), _text(source)
    if source.value_schema is not None:
        cases.append(f"WHEN {_ENCODED}.{REASON} IS NOT NULL THEN {_ENCODED}.{REASON}")
    if source.is_json or source.format == "text":
        cases.append(f"WHEN NOT is_valid_utf8({text}) THEN 'not UTF-8'")
    if source.is_json:
        cases += [
            f"WHEN ({_DATA} IS NULL OR {_DATA}.{_CORRUPT} IS NOT NULL) AND try_parse_json({text}) IS NULL"
            " THEN 'not JSON'",
            f"WHEN {_DATA} IS NULL OR NOT startswith(trim(LEADING {_SPACE} FROM {text}), '{{')"
            " THEN 'JSON, but not an object'",
            # from_json stops at the end of the object and does not look further. Trimming scans the whole
            # text, so it is done only where the last character is not the brace.
            f"WHEN NOT endswith({text}, '}}') AND NOT endswith(trim(TRAILING {_SPACE} FROM {text}), '}}')"
            " THEN 'not JSON: it continues after the object'",
            # Another object may follow. '},{' is also valid, within an array: the text is one element then.
            f"WHEN {text} RLIKE {_ANOTHER} AND NOT (json_array_length(concat('[', {text}, ']')) <=> 1)"
            " THEN 'not JSON: it continues after the object'",
            f"WHEN {_DATA}.{_CORRUPT} IS NOT NULL OR {_read_wrongly(source.schema.fields, text)}"
            f" THEN {_wrong_types(source.schema.fields, text)}",
        ]
    if source.is_json or source.value_schema is not None:
        required = [field for field in source.schema.fields if _is_required(source, field)]
        places = [field for field in required if _is_place(source, field)]
        cases += _missing(source, places, "")
        # A record that deletes needs none of the others.
        unless = "" if source.table is None else f"NOT ({_deletes(source)}) AND "
        cases += _missing(source, [field for field in required if field not in places], unless)
    if plain:
        cases.insert(0, f"WHEN {PLAIN} IS NOT NULL THEN NULL")
    return f"CASE {' '.join(cases)} END"


def _is_required(source: SourceNode, field: Field) -> bool:
    return field.required or _is_place(source, field)


def _is_place(source: SourceNode, field: Field) -> bool:
    """True if a row can't be placed without the field: its time, or a part of a table's key."""
    time = source.time.column if source.time is not None and source.time.kind == "event" else None
    return field.name == time or (source.table is not None and field.name in source.table.key)


def _missing(source: SourceNode, required: list[Field], unless: str) -> list[str]:
    """The case of a required field that is missing. It is one case for any number of fields, because Spark
    copies conditions into each other when it optimizes a plan."""
    if not required:
        return []
    gone = ", ".join(f"{_column(source, field.name)} IS NULL" for field in required)
    names = ", ".join(_literal(field.name) for field in required)
    first = f"element_at(array({names}), CAST(array_position(array({gone}), true) AS int))"
    return [f"WHEN {unless}array_contains(array({gone}), true) THEN concat('field ', {first}, ' is missing')"]


def _wrong_types(fields: tuple[Field, ...], text: str) -> str:
    """``field amount: "ten" is not double``, for every field that is there and could not be read. The SQL
    loops over the fields, so that the expression only grows in proportion to them."""
    names = ", ".join(_literal(field.name) for field in fields)
    paths = ", ".join(_literal("$['" + field.name.replace("'", "\\'") + "']") for field in fields)
    kinds = ", ".join(_literal(str(field.type)) for field in fields)
    wrong = ", ".join(
        f"{_DATA}.{quoted(field.name)} IS NULL OR {_beyond(f'{_DATA}.{quoted(field.name)}', field.type)}"
        for field in fields
    )
    misread = _misread(fields, text)
    wrong = f"element_at(array({wrong}), n)" + (f" OR element_at({misread}, n)" if misread else "")
    found = f"get_json_object({text}, element_at(array({paths}), n))"
    kind = f"element_at(array({kinds}), n)"
    said = (
        f"concat('field ', element_at(array({names}), n), ': ', left({found}, 40), ' is not ', {kind},"
        f" if({kind} = 'timestamp' AND {found} RLIKE '^-?[0-9]{{12,}}$',"
        f" ': a number counts seconds since 1970, and this one looks like smaller units', ''))"
    )
    numbers = f"filter(sequence(1, {len(fields)}), n -> ({wrong}) AND {found} IS NOT NULL)"
    return (
        f"CASE WHEN size({numbers}) = 0 THEN 'does not match the schema'"
        f" ELSE array_join(transform({numbers}, n -> {said}), '; ') END"
    )


def _read_wrongly(fields: tuple[Field, ...], text: str) -> str:
    """The SQL of whether Spark misread something: a time that is none or is outside of the years 1 to 9999
    (Python and most databases have no others), or a byte of 128 to 255, which it makes negative."""
    beyond = [_beyond(f"{_DATA}.{quoted(field.name)}", field.type) for field in fields]
    asked = ", ".join(one for one in beyond if one != "false")
    misread = _misread(fields, text)
    found = [f"array_contains(array({asked}), true)"] if asked else []
    if misread:
        suspect = f"{text} RLIKE '{_MAY_BE_MISREAD}'"
        negative = [_holds(f"{_DATA}.{quoted(field.name)}", field.type, _negative_byte) for field in fields]
        if small := ", ".join(one for one in negative if one != "false"):
            suspect += f" OR array_contains(array({small}), true)"
        found.append(f"(({suspect}) AND array_contains({misread}, true))")
    return " OR ".join(found) or "false"


def _misread(fields: tuple[Field, ...], text: str) -> str | None:
    """The SQL of an array that says for each field whether it holds what Spark misreads; None if no field
    can. It reads the whole value again, as text."""
    each = [_holds(f"t.{quoted(field.name)}", field.type, _is_misread) for field in fields]
    if all(one == "false" for one in each):
        return None
    ddl = ", ".join(f"{quoted(field.name)} {_as_text(field.type)}" for field in fields)
    read = f"from_json({text}, {_literal(ddl)}, {_STRICT_SQL})"
    return f"flatten(transform(array({read}), t -> array({', '.join(each)})))"


def _beyond(value: str, kind: str) -> str:
    def test(one: str, kind: str) -> str:
        return "false" if kind == "tinyint" else f"coalesce(year({one}) NOT BETWEEN 1 AND 9999, false)"

    return _holds(value, kind, test)


def _is_misread(value: str, kind: str) -> str:
    pattern = {"timestamp": _MISREAD, "tinyint": _MISREAD_BYTE}.get(kind)
    return f"coalesce({value} RLIKE '{pattern}', false)" if pattern is not None else "false"


def _negative_byte(value: str, kind: str) -> str:
    return f"coalesce({value} < 0, false)" if kind == "tinyint" else "false"


def _holds(value: str, kind: str, test: Callable[[str, str], str], depth: int = 0) -> str:
    """The SQL of whether a value is, or contains, a time or a byte for which the test holds."""
    if kind in ("timestamp", "timestamp_ntz", "date", "tinyint"):
        return test(value, kind)
    one = f"x{depth}"
    parts: list[str] = []
    if kind.startswith("struct<"):
        fields = from_ddl(kind[len("struct<") : -1]).fields
        parts = [_holds(f"{value}.{quoted(field.name)}", field.type, test, depth) for field in fields]
    elif kind.startswith("array<"):
        inner = _holds(one, kind[len("array<") : -1], test, depth + 1)
        parts = [f"coalesce(exists({value}, {one} -> {inner}), false)"] if inner != "false" else []
    elif kind.startswith("map<"):
        inner = _holds(one, map_parts(kind)[1], test, depth + 1)
        parts = (
            [f"coalesce(exists(map_values({value}), {one} -> {inner}), false)"] if inner != "false" else []
        )
    asked = [part for part in parts if part != "false"]
    return f"({' OR '.join(asked)})" if asked else "false"


def _as_text(kind: str) -> str:
    """A type with text in place of everything that may be misread: what it was before it was read."""
    if kind in ("timestamp", "tinyint"):
        return "string"
    if kind.startswith("struct<"):
        fields = from_ddl(kind[len("struct<") : -1]).fields
        return f"struct<{','.join(f'{quoted(field.name)}:{_as_text(field.type)}' for field in fields)}>"
    if kind.startswith("array<"):
        return f"array<{_as_text(kind[len('array<') : -1])}>"
    if kind.startswith("map<"):
        key, value = map_parts(kind)
        return f"map<{key},{_as_text(value)}>"
    return kind


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
