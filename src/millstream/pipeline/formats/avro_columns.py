"""Decodes Avro's binary form into Arrow columns, one field at a time over all rows of a batch.

Avro stores a record as the values of its fields, one after another, each with its own length. So every row
has its own position. Reading a field reads it in all rows at once, with numpy, and advances all positions. A
union splits the rows by branch. In arrays, the first items of all rows are read first, then the second items
of all rows that have one, and so on.

A plan (``avro_plan``), built from the classes here, says what is read in which order. A row whose bytes make
no sense is marked with the reason and skipped from then on.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.records.columns.with_numpy import slices
from millstream.registry.avro.types import Enum

Ints = Any  # a numpy array of int64
# Items that take no bytes are not bounded by the size of the value, so a block may have at most this many.
_MOST_EMPTY_ITEMS = 10_000
# The years 1 to 9999, in days and in microseconds: Python and most databases have no others.
DAYS = -719_162, 2_932_896
MICROS = DAYS[0] * 86_400 * 10**6, (DAYS[1] + 1) * 86_400 * 10**6 - 1
_EXACT = decimal.Context(prec=100)


class RowBytes:
    """The rows of a batch: each row's position in the bytes, where it ends, and what is wrong with it."""

    def __init__(self, data: pa.Buffer, at: Ints, end: Ints) -> None:
        self.buffer = data
        self.data = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
        self.at = at
        self.end = end
        self.reasons: dict[int, str] = {}

    def fail(self, rows: Ints, reason: str) -> None:
        for row in rows.tolist():
            self.reasons.setdefault(row, reason)
        self.at[rows] = self.end[rows]

    def byte(self, rows: Ints) -> Ints:
        """The next byte of each row. Where a row has ended, it is 0 and the row is wrong."""
        at = self.at[rows]
        over = at >= self.end[rows]
        if over.any():
            self.fail(rows[over], "the bytes end too early")
            at = np.minimum(at, len(self.data) - 1)
        found = self.data[at]
        self.at[rows] = np.minimum(at + 1, self.end[rows])
        return np.where(over, 0, found) if over.any() else found

    def long(self, rows: Ints) -> Ints:
        """A zigzag varint."""
        first = self.byte(rows)
        value = (first & 0x7F).astype(np.uint64)
        more = np.flatnonzero(first >= 0x80)
        shift = 7
        while len(more):
            if shift >= 70:
                self.fail(rows[more], "a number does not end")
                break
            following = self.byte(rows[more])
            value[more] |= (following & 0x7F).astype(np.uint64) << np.uint64(shift)
            more = more[following >= 0x80]
            shift += 7
        return (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)

    def plain(self, rows: Ints, kind: str) -> Ints:
        """A number of fixed width."""
        width = np.dtype(kind).itemsize
        at = self.take(rows, np.full(len(rows), width, np.int64))
        at = np.minimum(at, max(len(self.data) - width, 0))
        if len(self.data) < width:
            return np.zeros(len(rows), kind)
        return self.data[at[:, None] + np.arange(width)].view(kind).ravel()

    def take(self, rows: Ints, sizes: Ints) -> Ints:
        """Where the next ``sizes`` bytes begin. Moves the rows past them."""
        at = self.at[rows].copy()
        wrong = (sizes < 0) | (sizes > self.end[rows] - at)
        if wrong.any():
            self.fail(rows[wrong], "the bytes end too early")
            sizes[wrong] = 0
            at[wrong] = self.at[rows[wrong]]
        self.at[rows] = at + sizes
        return at

    def bytes(self, rows: Ints, sizes: Ints | None = None) -> pa.Array:
        """Bytes that follow their length, or bytes of the given lengths."""
        if sizes is None:
            sizes = self.long(rows)
        at = self.take(rows, sizes)
        if not len(rows):
            return pa.array([], pa.binary())
        return slices(self.buffer, at, sizes) if self.buffer is not None else pa.array([b""] * len(rows))

    def text(self, rows: Ints) -> pa.Array:
        found = self.bytes(rows)
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            values = []
            for row, data in zip(rows.tolist(), found.to_pylist(), strict=True):
                try:
                    values.append(data.decode())
                except UnicodeDecodeError:
                    self.fail(np.array([row]), "a text is not UTF-8")
                    values.append(None)
            return pa.array(values, pa.string())


class ColumnReader(Protocol):
    """Reads a value in some rows. For no rows at all, it returns an empty column of its type."""

    type: pa.DataType

    @property
    def least(self) -> int:
        """The least number of bytes that a value takes."""

    def read(self, source: RowBytes, rows: Ints) -> pa.Array: ...


# ---- kinds of values ----------------------------------------------------------------------------------


class Nulls:
    least = 0

    def __init__(self, type: pa.DataType) -> None:
        self.type = type

    def read(self, source: RowBytes, rows: Ints) -> pa.Array:
        return pa.nulls(len(rows), self.type)


class Booleans:
    least = 1
    type = pa.bool_()

    def read(self, source: RowBytes, rows: Ints) -> pa.Array:
        found = source.byte(rows)
        wrong = found > 1
        if wrong.any():
            source.fail(rows[wrong], "a boolean is neither 0 nor 1")
        return pa.array(found == 1)


class Longs:
    """Whole numbers, read as integers, as floating-point numbers or as times.

    ``written`` and ``wanted`` are the units per second before and after, where the unit changes.
    """

    least = 1

    def __init__(self, type: pa.DataType, written: int = 1, wanted: int = 1) -> None:
        self.type = type
        self._times, self._over = max(wanted // written, 1), max(written // wanted, 1)
        self._least, self._most, self._beyond = -(2**63), 2**63 - 1, "a time does not fit 64 bits"
        if pa.types.is_int32(type):
            self._least, self._most, self._beyond = -(2**31), 2**31 - 1, "a number does not fit 32 bits"
        elif pa.types.is_date32(type):
            self._least, self._most, self._beyond = *DAYS, "a date is outside of the years 1 to 9999"
        elif pa.types.is_timestamp(type):
            self._least, self._most, self._beyond = *MICROS, "a time is outside of the years 1 to 9999"

    def read(self, source: RowBytes, rows: Ints) -> pa.Array:
        found = source.long(rows)
        if self._over > 1:
            found = self._coarser(source, rows, found)
        wrong = (found < -(-self._least // self._times)) | (found > self._most // self._times)
        if wrong.any():
            source.fail(rows[wrong], self._beyond)
            found = np.where(wrong, 0, found)
        found = found * self._times
        if pa.types.is_date32(self.type):
            return pa.array(found.astype(np.int32)).view(self.type)
        if pa.types.is_timestamp(self.type):
            return pa.array(found).view(self.type)
        return pa.array(found.astype(self.type.to_pandas_dtype()), self.type)

    def _coarser(self, source: RowBytes, rows: Ints, found: Ints) -> Ints:
        lost = found % self._over != 0
        if lost.any():
            source.fail(rows[lost], "a time is finer than microseconds")
        return found // self._over


class Floats:
    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.least = np.dtype(kind).itemsize
        self.type = pa.float32() if kind == "<f4" else pa.float64()

    def read(self, source: RowBytes, rows: Ints) -> pa.Array:
        return pa.array(source.plain(rows, self._kind))


class Cast:
    def __init__(self, type: pa.DataType, inner: ColumnReader) -> None:
        self.type = type
        self.least = inner.least
        self._inner = inner

    def read(self, source: RowBytes, rows: Ints) -> pa.Array:
        found = self._inner.read(source, rows)
        return found if found.type == self.type else found.cast(self.type)


class Texts:
    least = 1
    type = pa.string()

    def read(self, source: RowBytes, rows: Ints) -> pa.Array:
        return source.text(rows)


class Slices:
    type = pa.binary()

    def __init__(self, size: int | None) -> None:
        self.least = 1 if size is None else size
        self._size = size

    def read(self, source: RowBytes, rows: Ints) -> pa.Array:
        sizes = None if self._size is None else np.full(len(rows), self._size, np.int64)
        return source.bytes(rows, sizes)


class Decimals:
    """Decimals: big-endian two's complement of any length, read as Arrow's little-endian 128 bits.

    ``scale`` is the writer's. A row is wrong if the column can't hold the same value: no digit is lost.
    """

    def __init__(self, type: pa.DataType, scale: int, size: int | None) -> None:
        self.type = type
        self.least = 1 if size is None else size
        self._scale = scale
        self._size = size
        # A value of so many bytes has no more digits than Arrow's decimals, before and after rescaling.
        digits = 38 - max(type.scale - scale, 0)
        self._fast = (10**digits).bit_length() // 8 if digits > 0 and scale <= 38 else 0

    def read(self, source: RowBytes, rows: Ints) -> pa.Array:
        sizes = source.long(rows) if self._size is None else np.full(len(rows), self._size, np.int64)
        at = source.take(rows, sizes)
        if not len(rows):
            return pa.array([], self.type)
        if (sizes > self._fast).any():
            return self._one_by_one(source, rows, at, sizes)
        last = len(source.data) - 1
        negative = (source.data[np.minimum(at, last)] >= 0x80) & (sizes > 0)
        sign = np.where(negative, 0xFF, 0).astype(np.uint8)
        places = at[:, None] + sizes[:, None] - 1 - np.arange(16)
        within = np.arange(16) < sizes[:, None]
        digits = np.where(within, source.data[np.clip(places, 0, last)], sign[:, None]).astype(np.uint8)
        made = pa.Array.from_buffers(
            pa.decimal128(38, self._scale), len(rows), [None, pa.py_buffer(np.ascontiguousarray(digits))]
        )
        try:
            return made.cast(self.type)
        except pa.ArrowInvalid:
            return self._one_by_one(source, rows, at, sizes)

    def _one_by_one(self, source: RowBytes, rows: Ints, at: Ints, sizes: Ints) -> pa.Array:
        """Does the same with Python's integers of any size, to separate the values that don't fit."""
        limit = 10**self.type.precision
        made: list[decimal.Decimal | None] = []
        for row, first, size in zip(rows.tolist(), at.tolist(), sizes.tolist(), strict=True):
            number = int.from_bytes(source.data[first : first + size].tobytes(), "big", signed=True)
            more = self.type.scale - self._scale
            number, rest = (number * 10**more, 0) if more >= 0 else divmod(number, 10**-more)
            fits = not rest and abs(number) < limit
            if not fits:
                source.fail(np.array([row]), f"a decimal does not fit {_said(self.type)}")
            made.append(decimal.Decimal(number).scaleb(-self.type.scale, _EXACT) if fits else None)
        return pa.array(made, self.type)


def _said(type: pa.DataType) -> str:
    return f"decimal({type.precision},{type.scale})"


class Symbols:
    least = 1
    type = pa.string()

    def __init__(self, reader: Enum, writer: Enum) -> None:
        known = {symbol: symbol for symbol in reader.symbols}
        self._symbols = [known.get(symbol, reader.default) for symbol in writer.symbols]
        self._written = writer.symbols
        self._array = pa.array(self._symbols, pa.string())

    def read(self, source: RowBytes, rows: Ints) -> pa.Array:
        found = source.long(rows)
        beyond = (found < 0) | (found >= len(self._symbols))
        if beyond.any():
            source.fail(rows[beyond], "a symbol that its enum does not have")
            found = np.where(beyond, 0, found)
        if not self._symbols:
            return pa.nulls(len(rows), self.type)
        for at, symbol in enumerate(self._symbols):
            if symbol is None and (found == at).any():
                source.fail(
                    rows[found == at], f"the symbol {self._written[at]}, which the reader does not know"
                )
        return self._array.take(pa.array(found))


class Branches:
    """A union: the number of the branch, then the value."""

    least = 1

    def __init__(self, type: pa.DataType, branches: Sequence[ColumnReader | str]) -> None:
        self.type = type
        self._branches = branches

    def read(self, source: RowBytes, rows: Ints) -> pa.Array:
        found = source.long(rows)
        beyond = (found < 0) | (found >= len(self._branches))
        if beyond.any():
            source.fail(rows[beyond], "a branch that its union does not have")
        parts: list[pa.Array] = []
        places = np.full(len(rows), -1, np.int64)
        count = 0
        for at, branch in enumerate(self._branches):
            own = np.flatnonzero(found == at)
            if not len(own):
                continue
            if isinstance(branch, str):
                source.fail(rows[own], branch)
            elif not isinstance(branch, Nulls):
                part = branch.read(source, rows[own])
                if len(own) == len(rows):
                    return part
                parts.append(part)
                places[own] = np.arange(count, count + len(own))
                count += len(own)
        return placed(parts, places, self.type)


def placed(parts: list[pa.Array], places: Ints, type: pa.DataType) -> pa.Array:
    """The values of the parts, each in its place; null where ``places`` is -1."""
    if not parts:
        return pa.nulls(len(places), type)
    whole = pa.concat_arrays(parts) if len(parts) > 1 else parts[0]
    missing = places < 0
    return whole.take(pa.array(np.where(missing, 0, places), mask=missing if missing.any() else None))


class UnionMember:
    """A value of a union of several types: it fills one of the union's columns."""

    def __init__(self, type: pa.DataType, at: int, inner: ColumnReader) -> None:
        self.type = type
        self.least = inner.least
        self._at = at
        self._inner = inner

    def read(self, source: RowBytes, rows: Ints) -> pa.Array:
        arrays = [pa.nulls(len(rows), field.type) for field in self.type]
        arrays[self._at] = self._inner.read(source, rows)
        return pa.StructArray.from_arrays(arrays, fields=list(self.type))


class Fields:
    """A record: its fields in the order in which they were written."""

    def __init__(
        self, type: pa.DataType, steps: Sequence[tuple[int | None, ColumnReader]], defaults: dict[int, Any]
    ) -> None:
        self.type = type
        self.least = sum(step.least for _, step in steps)
        self._steps = steps
        self._defaults = defaults

    def read(self, source: RowBytes, rows: Ints) -> pa.Array:
        arrays: list[pa.Array] = [None] * self.type.num_fields
        for at, step in self._steps:
            found = step.read(source, rows)
            if at is not None:
                arrays[at] = found
        for at, value in self._defaults.items():
            kind = self.type.field(at).type
            arrays[at] = (
                pa.nulls(len(rows), kind) if value is None else pa.repeat(pa.scalar(value, kind), len(rows))
            )
        if not arrays:
            return pa.array([{}] * len(rows), self.type)
        return pa.StructArray.from_arrays(arrays, fields=list(self.type))


class ArrayItems:
    """An array: blocks of items, each preceded by its count. A block with a count of 0 ends the array."""

    least = 1

    def __init__(self, type: pa.DataType, item: ColumnReader) -> None:
        self.type = type
        self._item = item

    def read(self, source: RowBytes, rows: Ints) -> pa.Array:
        parts, owners, counts = _blocks(source, rows, self._item.read, self._item.least)
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        if not parts:
            return pa.ListArray.from_arrays(
                pa.array(offsets), pa.nulls(0, self.type.value_type), type=self.type
            )
        values = pa.concat_arrays(parts).take(pa.array(np.argsort(owners, kind="stable")))
        return pa.ListArray.from_arrays(pa.array(offsets), values, type=self.type)


class Entries:
    """A map: blocks of keys and values."""

    least = 1

    def __init__(self, type: pa.DataType, value: ColumnReader) -> None:
        self.type = type
        self._value = value

    def read(self, source: RowBytes, rows: Ints) -> pa.Array:
        keys: list[pa.Array] = []

        def read(source: RowBytes, rows: Ints) -> pa.Array:
            keys.append(source.text(rows).fill_null(""))
            return self._value.read(source, rows)

        parts, owners, counts = _blocks(source, rows, read, 1)
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        order = pa.array(np.argsort(owners, kind="stable"))
        key = pa.concat_arrays(keys).take(order) if keys else pa.array([], pa.string())
        value = pa.concat_arrays(parts).take(order) if parts else pa.nulls(0, self.type.item_type)
        return pa.MapArray.from_arrays(pa.array(offsets), key, value, type=self.type)


def _blocks(
    source: RowBytes, rows: Ints, read: Callable[[RowBytes, Ints], pa.Array], least: int
) -> tuple[list[pa.Array], Ints, Ints]:
    """The items of all rows, the row that each item belongs to, and the number of items of each row."""
    parts: list[pa.Array] = []
    owners: list[Ints] = []
    counts = np.zeros(len(rows), np.int64)
    open_ = np.arange(len(rows))
    while len(open_):
        found = source.long(rows[open_])
        sized = np.flatnonzero(found < 0)
        if len(sized):
            source.long(rows[open_[sized]])  # the block's size in bytes, for readers that skip the block
            found[sized] = -found[sized]
        left = source.end[rows[open_]] - source.at[rows[open_]]
        beyond = found > (left // least if least else _MOST_EMPTY_ITEMS)
        if beyond.any():
            source.fail(rows[open_[beyond]], "more items than there are bytes")
            found[beyond] = 0
        open_, found = open_[found > 0], found[found > 0]
        active, waiting = open_, found.copy()
        while len(active):
            part = read(source, rows[active])
            parts.append(part)
            owners.append(active)
            counts[active] += 1
            waiting -= 1
            alive = waiting > 0
            if source.reasons:
                alive &= np.array([row not in source.reasons for row in rows[active].tolist()], bool)
            active, waiting = active[alive], waiting[alive]
        if source.reasons:
            open_ = open_[[row not in source.reasons for row in rows[open_].tolist()]]
    return parts, np.concatenate(owners) if owners else np.zeros(0, np.int64), counts


def decode(made: ColumnReader, data: pa.Buffer, at: Ints, end: Ints) -> tuple[pa.Array, dict[int, str]]:
    """All rows as a column, and what is wrong with the rows that can't be read, which are null."""
    source = RowBytes(data, at.astype(np.int64), end.astype(np.int64))
    rows = np.arange(len(at))
    found = made.read(source, rows)
    left = source.end - source.at
    for row in np.flatnonzero(left > 0).tolist():
        source.reasons.setdefault(row, f"{left[row]} bytes more than its schema says")
    if source.reasons:
        good = np.ones(len(at), bool)
        good[list(source.reasons)] = False
        found = pc.if_else(pa.array(good), found, pa.nulls(len(at), found.type))
    return found, source.reasons
