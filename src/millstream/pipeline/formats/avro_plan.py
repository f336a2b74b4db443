"""Plans how values written with one Avro schema become the columns of another: Avro's schema resolution.

A plan is made once for a pair of schemas, the writer's and the reader's. Fields that the reader does not want
are skipped, fields that the writer did not have get their default, and types are read as the reader's.

A value that was written with a logical type keeps its meaning. Decimals get another scale, and times another
unit, where the value stays the same; where it can't, the row is wrong. A value that was written without a
logical type means what the reader says, which is Avro's rule. Columns that were named without a schema say
too little for that rule (DDL's ``timestamp`` has no unit), so they take only values whose own schema says
what they are.
"""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa

from millstream.core.errors import InvalidSchema
from millstream.pipeline.formats.avro_columns import (
    DAYS,
    MICROS,
    ArrayItems,
    Booleans,
    Branches,
    Cast,
    ColumnReader,
    Decimals,
    Entries,
    Fields,
    Floats,
    Longs,
    Nulls,
    Slices,
    Symbols,
    Texts,
    UnionMember,
)
from millstream.registry.avro.resolution import clash, same_name, ticks, written_field
from millstream.registry.avro.types import (
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Record,
    Type,
    Union,
    describe,
    fits,
)


def plan(reader: Type, writer: Type, *, by_columns: bool = False) -> ColumnReader:
    """The plan that reads data of the schema ``writer`` as the columns of ``reader``. ``by_columns`` is true
    if the reader's schema was made from columns.

    Raises InvalidSchema if the schemas do not match, or if the reader's schema contains itself and so can't
    become columns.
    """
    return _Planner(by_columns=by_columns).plan(reader, writer)


def arrow_type(type: Type) -> pa.DataType:
    """The Arrow type of the column that a reader's type is read as."""
    return _Planner().target(type)


_MICROS = 10**6  # per second: columns count microseconds
_MOST_DIGITS = 38
_LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}


class _Planner:
    """With ``raw``, values are read only to get past them, and logical types are ignored."""

    def __init__(self, *, by_columns: bool = False, raw: bool = False) -> None:
        self._by_columns = by_columns
        self._raw = raw
        self._within: list[int] = []  # ids of the records that are being planned

    # The reader's side -------------------------------------------------------------------------------

    def target(self, type: Type) -> pa.DataType:
        logical = None if self._raw else type.logical
        if logical == "decimal" and type.digits[0] <= _MOST_DIGITS:
            return pa.decimal128(*type.digits)
        if logical in _LOGICAL:
            return _LOGICAL[str(logical)]
        if isinstance(type, Array):
            return pa.list_(self.target(type.items))
        if isinstance(type, Map):
            return pa.map_(pa.string(), self.target(type.values))
        if isinstance(type, Union):
            return self._union_target(type)
        if isinstance(type, Record):
            with_name = self._entered(type)
            fields = [pa.field(each.name, self.target(each.type)) for each in type.fields]
            self._within.remove(with_name)
            return pa.struct(fields)
        return _PLAIN[type.kind]

    def _entered(self, type: Record) -> int:
        if id(type) in self._within:
            raise InvalidSchema(f"{type.name} contains itself, so it can't become columns; read it as bytes")
        self._within.append(id(type))
        return id(type)

    def _union_target(self, union: Union) -> pa.DataType:
        branches = [branch for branch in union.branches if branch.kind != "null"]
        if not branches:
            return pa.null()
        if len(branches) == 1:
            return self.target(branches[0])
        kinds = {branch.kind for branch in branches if self._raw or branch.logical is None}
        if len(kinds) == len(branches) and kinds in ({"int", "long"}, {"float", "double"}):
            return pa.int64() if "int" in kinds else pa.float64()
        # As in Spark's own Avro reader: one column for each branch, of which one is filled.
        return pa.struct([pa.field(f"member{at}", self.target(b)) for at, b in enumerate(branches)])

    # The pair ----------------------------------------------------------------------------------------

    def plan(self, reader: Type, writer: Type) -> ColumnReader:
        if isinstance(writer, Union):
            return Branches(self.target(reader), [self._or_wrong(reader, each) for each in writer.branches])
        if isinstance(reader, Union):
            return self._into_union(reader, writer)
        target = self.target(reader)
        if isinstance(reader, Array) and isinstance(writer, Array):
            return ArrayItems(target, self.plan(reader.items, writer.items))
        if isinstance(reader, Map) and isinstance(writer, Map):
            return Entries(target, self.plan(reader.values, writer.values))
        if isinstance(reader, Record) and isinstance(writer, Record):
            return self._record(reader, writer, target)
        if isinstance(reader, Enum) and isinstance(writer, Enum):
            return Symbols(reader, writer)
        if not self._raw:
            self._check_meaning(reader, writer)
        if isinstance(reader, Fixed) and isinstance(writer, Fixed) and reader.size == writer.size:
            return self._bytes(reader, writer, target, writer.size)
        if self._by_columns and isinstance(writer, Enum) and reader.kind == "string":
            return Symbols(writer, writer)
        if self._by_columns and isinstance(writer, Fixed) and reader.kind == "bytes":
            return self._bytes(reader, writer, target, writer.size)
        return self._scalar(reader, writer, target)

    def _check_meaning(self, reader: Type, writer: Type) -> None:
        wrong = clash(reader, writer)
        if wrong is not None:
            raise InvalidSchema(wrong)
        if self._by_columns and reader.logical is not None and writer.logical is None:
            alike = {"long": ("int", "long"), "int": ("int",), "bytes": ("bytes", "fixed")}
            if writer.kind in alike.get(reader.kind, ()):
                raise InvalidSchema(_unclear(reader, writer))

    def _bytes(self, reader: Type, writer: Type, target: pa.DataType, size: int | None) -> ColumnReader:
        scale = (writer if writer.logical == "decimal" else reader).digits[1] if _is_number(reader) else 0
        if pa.types.is_decimal(target):
            return Decimals(target, scale, size)
        if _is_number(reader) and not self._raw and scale != reader.digits[1]:
            raise InvalidSchema(
                f"decimals of more than {_MOST_DIGITS} digits are read as bytes, so their scale can't"
                f" change from {scale} to {reader.digits[1]}"
            )
        return Slices(size)

    def _or_wrong(self, reader: Type, writer: Type) -> ColumnReader | str:
        """A branch that the reader does not know makes only the rows that have it wrong."""
        if writer.kind == "null" and not _takes_null(reader):
            return f"it is null, not {describe(reader)}"
        try:
            return self.plan(reader, writer)
        except InvalidSchema as error:
            return str(error)

    def _into_union(self, reader: Union, writer: Type) -> ColumnReader:
        target = self.target(reader)
        branches = [branch for branch in reader.branches if branch.kind != "null"]
        if writer.kind == "null":
            return Nulls(target)
        exact = [
            b for b in branches if b.kind == writer.kind and (not isinstance(b, Named) or _same(b, writer))
        ]
        problem: InvalidSchema | None = None
        for branch in [*exact, *(b for b in branches if b not in exact)]:
            try:
                found = self.plan(branch, writer)
            except InvalidSchema as error:
                problem = problem or error
                continue
            if len(branches) == 1:
                return found
            if not pa.types.is_struct(target) or not target.num_fields or target.field(0).name != "member0":
                return Cast(target, found)
            return UnionMember(target, branches.index(branch), found)
        raise problem or InvalidSchema(f"{describe(writer)} does not match {describe(reader)}")

    def _record(self, reader: Record, writer: Record, target: pa.DataType) -> ColumnReader:
        entered = self._entered(reader)
        reading: dict[str, tuple[int, Type]] = {}
        defaults: dict[int, Any] = {}
        for at, each in enumerate(reader.fields):
            written = written_field(each, writer)
            if written is not None:
                reading[written.name] = at, each.type
            elif each.has_default:
                defaults[at] = _default(each, target.field(at).type)
            else:
                raise InvalidSchema(
                    f"field {each.name!r} is missing in the writer's schema and has no default"
                )
        steps: list[tuple[int | None, ColumnReader]] = []
        for field in writer.fields:
            if field.name in reading:
                at, wanted = reading[field.name]
                try:
                    steps.append((at, self.plan(wanted, field.type)))
                except InvalidSchema as error:
                    raise InvalidSchema(f"field {field.name!r}: {error}") from None
            else:
                steps.append((None, self._skipping(field.type)))
        self._within.remove(entered)
        return Fields(target, steps, defaults)

    def _skipping(self, writer: Type) -> ColumnReader:
        """Reads a value only to get past it. Raises InvalidSchema for a record that contains itself."""
        return _Planner(raw=True).plan(writer, writer)

    def _scalar(self, reader: Type, writer: Type, target: pa.DataType) -> ColumnReader:
        wrong = InvalidSchema(f"{describe(writer)} can't be read as {describe(reader)}")
        if reader.kind == writer.kind == "null":
            return Nulls(target)
        if reader.kind == writer.kind == "boolean":
            return Booleans()
        if writer.kind in ("int", "long") and reader.kind in ("int", "long", "float", "double"):
            if writer.kind == "long" and reader.kind == "int":
                raise wrong
            if self._raw or ticks(reader) is None:
                return Longs(target)
            wanted = _MICROS if pa.types.is_timestamp(target) else ticks(reader)
            return Longs(target, ticks(writer) or ticks(reader) or _MICROS, wanted or _MICROS)
        if writer.kind in ("float", "double") and reader.kind in ("float", "double"):
            if writer.kind == "double" and reader.kind == "float":
                raise wrong
            return Cast(target, Floats("<f4" if writer.kind == "float" else "<f8"))
        if writer.kind in ("bytes", "string") and reader.kind in ("bytes", "string"):
            return Texts() if reader.kind == "string" else self._bytes(reader, writer, target, None)
        raise wrong


def _is_number(type: Type) -> bool:
    return type.logical == "decimal"


def _unclear(reader: Type, writer: Type) -> str:
    """Why a column does not take a value that does not say what it is, and what to do about it."""
    if reader.logical == "decimal":
        return f"{describe(writer)} has no scale, so it is no decimal; name the column as binary"
    kind = "bigint" if writer.kind == "long" else "int"
    return (
        f"{describe(writer)} has no logical type that says which time it counts; name the column as {kind}"
        f" and make a time of it, or give an Avro schema with the logical type"
    )


def _takes_null(reader: Type) -> bool:
    return reader.kind == "null" or (
        isinstance(reader, Union) and any(branch.kind == "null" for branch in reader.branches)
    )


def _same(branch: Named, writer: Type) -> bool:
    return isinstance(writer, Named) and same_name(branch, writer)


def _default(each: Field, target: pa.DataType) -> Any:
    made = _default_value(each.type, each.default, target)
    try:
        pa.scalar(made, target)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise InvalidSchema(f"the default of field {each.name!r} is not a {target}: {error}") from None
    return made


def _default_value(type: Type, value: Any, target: pa.DataType) -> Any:
    """Converts a default from its JSON form to what Arrow takes for a column."""
    if isinstance(type, Union):
        branch = next(branch for branch in type.branches if fits(branch, value))
        return None if value is None else _default_value(branch, value, target)
    if value is None:
        return None
    if isinstance(type, Record):
        made = {}
        for at, each in enumerate(type.fields):
            given = value.get(each.name, each.default if each.has_default else None)
            made[each.name] = _default_value(each.type, given, target.field(at).type)
        return made
    if isinstance(type, Array):
        return [_default_value(type.items, each, target.value_type) for each in value]
    if isinstance(type, Map):
        return [(key, _default_value(type.values, each, target.item_type)) for key, each in value.items()]
    if pa.types.is_decimal(target):
        number = int.from_bytes(value.encode("latin-1"), "big", signed=True)
        return decimal.Decimal(number).scaleb(-target.scale)
    if type.kind in ("bytes", "fixed"):
        return value.encode("latin-1")
    if pa.types.is_timestamp(target) or pa.types.is_date(target):
        least, most = MICROS if pa.types.is_timestamp(target) else DAYS
        value *= _MICROS // (ticks(type) or _MICROS)
        if not least <= value <= most:
            raise InvalidSchema("a default is a time outside the years 1 to 9999")
        return value
    return float(value) if type.kind in ("float", "double") else value
