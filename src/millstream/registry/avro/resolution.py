"""Avro's schema resolution: decide whether data written with one schema can be read with another.

The kinds of differences have the names of Avro's own library. Logical types are compared too, which that
library does not do. These do not match: decimals of another precision or scale, times of another unit, and
another logical type altogether (a ``date`` as a ``timestamp-millis``). Readers would silently read the bytes
as other values than those that were written. A type without a logical type matches one that has it: by the
specification, a ``long`` that is read as ``timestamp-millis`` is that many milliseconds.
"""

from __future__ import annotations

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
)
from millstream.registry.schema import Difference

# The types that a value of each type may be read as, besides its own.
PROMOTIONS: dict[str, tuple[str, ...]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_TICKS = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}


def problems(reader: Type, writer: Type) -> list[Difference]:
    """Why data of ``writer`` can't be read as ``reader``; empty if all of it can.

    A pair of named types that contains itself is assumed to fit. If that turns out to be wrong, conclusions
    drawn from it may be wrong too. So everything is compared again, with the pairs that are known not to fit,
    until no new such pair is found.
    """
    failed: frozenset[_Pair] = frozenset()
    while True:
        comparison = _Comparison(failed)
        found = comparison.compare(reader, writer, "/")
        if comparison.failed <= failed:
            return found
        failed |= comparison.failed


_Pair = tuple[int, int]  # the ids of a reader's and a writer's named type


class _Comparison:
    """One comparison. It compares each pair of named types once, so that recursive schemas end, and a type
    that is used in many places is reported in detail once."""

    def __init__(self, failed_before: frozenset[_Pair]) -> None:
        self._failed_before = failed_before
        self._known: dict[_Pair, bool] = {}

    @property
    def failed(self) -> frozenset[_Pair]:
        return frozenset(pair for pair, fits in self._known.items() if not fits)

    def compare(self, reader: Type, writer: Type, path: str) -> list[Difference]:
        if isinstance(writer, Union):
            return self._every_branch(reader, writer, path)
        if isinstance(reader, Union):
            return self._some_branch(reader, writer, path, path)
        if reader.kind != writer.kind:
            if reader.kind in PROMOTIONS.get(writer.kind, ()):
                return _logical(reader, writer, path)
            return [_mismatch(reader, writer, path)]
        if isinstance(reader, Array) and isinstance(writer, Array):
            return self.compare(reader.items, writer.items, f"{path.rstrip('/')}/items")
        if isinstance(reader, Map) and isinstance(writer, Map):
            return self.compare(reader.values, writer.values, f"{path.rstrip('/')}/values")
        if isinstance(reader, Named) and isinstance(writer, Named):
            return self._named(reader, writer, path)
        return _logical(reader, writer, path)

    def _every_branch(self, reader: Type, writer: Union, path: str) -> list[Difference]:
        found = []
        for at, branch in enumerate(writer.branches):
            place = f"{path.rstrip('/')}/{at}"
            if isinstance(reader, Union):
                found += self._some_branch(reader, branch, path, place)
            else:
                found += self.compare(reader, branch, place)
        return found

    def _some_branch(self, reader: Union, writer: Type, path: str, place: str) -> list[Difference]:
        closest: list[Difference] | None = None
        for at, branch in enumerate(reader.branches):
            why = self.compare(branch, writer, f"{path.rstrip('/')}/{at}")
            if not why:
                return []
            if branch.kind == writer.kind and not any(each.kind == "NAME_MISMATCH" for each in why):
                closest = why
        # If a branch of the same type fails, its reason is the useful one.
        return closest or [
            Difference(
                "MISSING_UNION_BRANCH",
                place,
                f"{describe(writer)} may have been written, and is none of {describe(reader)}",
            )
        ]

    def _named(self, reader: Named, writer: Named, path: str) -> list[Difference]:
        pair = id(reader), id(writer)
        if pair in self._known:
            if self._known[pair] and pair not in self._failed_before:
                return []
            return [Difference("TYPE_MISMATCH", path, f"{describe(reader)} has changed, as reported above")]
        if not same_name(reader, writer):
            return [
                Difference("NAME_MISMATCH", f"{path.rstrip('/')}/name", f"{reader.name}, was {writer.name}")
            ]
        self._known[pair] = True  # assumed, until the comparison is done
        found: list[Difference] = []
        if isinstance(reader, Fixed) and isinstance(writer, Fixed):
            if reader.size != writer.size:
                found = [
                    Difference(
                        "FIXED_SIZE_MISMATCH", f"{path.rstrip('/')}/size", f"{reader.size}, was {writer.size}"
                    )
                ]
            found = found or _logical(reader, writer, path)
        elif isinstance(reader, Enum) and isinstance(writer, Enum):
            lost = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
            if lost and reader.default is None:
                found = [
                    Difference(
                        "MISSING_ENUM_SYMBOLS",
                        f"{path.rstrip('/')}/symbols",
                        f"{', '.join(lost)} may have been written, and the enum has no default",
                    )
                ]
        elif isinstance(reader, Record) and isinstance(writer, Record):
            for at, each in enumerate(reader.fields):
                found += self._field(each, writer, f"{path.rstrip('/')}/fields/{at}")
        self._known[pair] = not found
        return found

    def _field(self, each: Field, writer: Record, path: str) -> list[Difference]:
        written = written_field(each, writer)
        if written is not None:
            return self.compare(each.type, written.type, f"{path}/type")
        if each.has_default:
            return []
        return [
            Difference(
                "READER_FIELD_MISSING_DEFAULT_VALUE",
                path,
                f"field {each.name!r} was not written before, and has no default",
            )
        ]


def same_name(reader: Named, writer: Named) -> bool:
    """True if two named types correspond: by their names without the namespace, or by an alias."""
    return reader.simple == writer.simple or writer.name in reader.aliases


def written_field(each: Field, writer: Record) -> Field | None:
    """The field of the writer's record from which a reader's field is read; None if there is none."""
    for name in (each.name, *each.aliases):
        for field in writer.fields:
            if field.name == name:
                return field
    return None


def ticks(type: Type) -> int | None:
    """The number of a type's time units in a second; None if it is not a time."""
    return _TICKS.get((type.logical or "").rpartition("-")[2])


def clash(reader: Type, writer: Type) -> str | None:
    """Why values of one scalar type never have the meaning that the other type would give them. None if they
    have it, if one of the two types has no logical type, or if only a unit or a scale differs."""
    numbers = ("decimal", "big-decimal")
    if (reader.kind == "string" and writer.logical in numbers) or (
        writer.kind == "string" and reader.logical in numbers
    ):
        return f"{_said(writer)} is not {_said(reader)}"
    if reader.logical is None or writer.logical is None or _family(reader) == _family(writer):
        return None
    return f"{_said(writer)} is not {_said(reader)}"


def _family(type: Type) -> str | None:
    return type.logical if ticks(type) is None else str(type.logical).rpartition("-")[0]


def _said(type: Type) -> str:
    return f"a {type.logical or type.kind}"


def _mismatch(reader: Type, writer: Type, path: str) -> Difference:
    return Difference("TYPE_MISMATCH", path, f"{describe(reader)}, was {describe(writer)}")


def _logical(reader: Type, writer: Type, path: str) -> list[Difference]:
    """The differences of logical types: the bytes can be read, but with another meaning."""
    wrong = clash(reader, writer)
    if wrong is not None:
        return [Difference("LOGICAL_TYPE_MISMATCH", path, wrong)]
    if reader.logical == writer.logical == "decimal":
        then, now = writer.digits, reader.digits
        if then != now:
            return [
                Difference(
                    "DECIMAL_MISMATCH",
                    path,
                    f"precision and scale {now[0]}, {now[1]}, were {then[0]}, {then[1]}",
                )
            ]
    then_ticks, now_ticks = ticks(writer), ticks(reader)
    if then_ticks is not None and now_ticks is not None and then_ticks != now_ticks:
        return [Difference("UNIT_MISMATCH", path, f"{reader.logical}, was {writer.logical}")]
    return []
