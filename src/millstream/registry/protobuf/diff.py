"""Compare two ``.proto`` files: list what changed, and tell which changes keep old data readable.

The kinds of changes are those of Confluent's registry. A field is identified by its number, and its name may
change. Its type may change only to one with the same encoding. Two rules are stricter than Confluent's,
whatever the syntax: a field may not become required, and a number may not become a list or the reverse. Both
make old data unreadable, or readable as something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from google.protobuf import descriptor_pb2

from millstream.registry.protobuf.text import File
from millstream.registry.schema import Difference

Field: TypeAlias = descriptor_pb2.FieldDescriptorProto
Message: TypeAlias = descriptor_pb2.DescriptorProto
Enum: TypeAlias = descriptor_pb2.EnumDescriptorProto

_COMPATIBLE = """
    MESSAGE_ADDED MESSAGE_MOVED ENUM_ADDED ENUM_REMOVED ENUM_CONST_ADDED ENUM_CONST_CHANGED
    ENUM_CONST_REMOVED FIELD_ADDED FIELD_REMOVED FIELD_NAME_CHANGED FIELD_STRING_OR_BYTES_LABEL_CHANGED
    ONEOF_ADDED ONEOF_REMOVED ONEOF_FIELD_ADDED ONEOF_FIELD_MOVED_TO_TOP_LEVEL
"""
COMPATIBLE = frozenset(_COMPATIBLE.split())
_MEANING = {
    "PACKAGE_CHANGED": "the messages have other names now",
    "MESSAGE_REMOVED": "data of this message could not be read any more",
    "FIELD_KIND_CHANGED": "a number or text, a message and a map are encoded in different ways",
    "FIELD_SCALAR_KIND_CHANGED": "the new type reads the bytes of the old one as something else",
    "FIELD_NAMED_TYPE_CHANGED": "it has another message type now",
    "FIELD_NUMERIC_LABEL_CHANGED": "a single number and a list of them are encoded in different ways",
    "REQUIRED_FIELD_ADDED": "older data may not have it",
    "REQUIRED_FIELD_REMOVED": "readers of the older schema require it",
    "ONEOF_FIELD_REMOVED": "older data may have this alternative, and would have none",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "older data may have several of them at once",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "older data may have it together with another field of the oneof",
}
_NUMBERS, _ZIGZAG, _TEXT = "number", "zigzag", "text"
_SCALAR_KINDS = {
    **dict.fromkeys(
        (Field.TYPE_INT32, Field.TYPE_INT64, Field.TYPE_UINT32, Field.TYPE_UINT64, Field.TYPE_BOOL), _NUMBERS
    ),
    Field.TYPE_ENUM: _NUMBERS,
    Field.TYPE_SINT32: _ZIGZAG,
    Field.TYPE_SINT64: _ZIGZAG,
    Field.TYPE_STRING: _TEXT,
    Field.TYPE_BYTES: _TEXT,
    Field.TYPE_FIXED32: "fixed32",
    Field.TYPE_SFIXED32: "fixed32",
    Field.TYPE_FIXED64: "fixed64",
    Field.TYPE_SFIXED64: "fixed64",
    Field.TYPE_FLOAT: "float",
    Field.TYPE_DOUBLE: "double",
}


class Compiled(Protocol):
    """A ``.proto`` file, and the files that it imports, by name."""

    @property
    def root(self) -> File: ...
    @property
    def files(self) -> Mapping[str, File]: ...


def incompatible(original: Compiled, update: Compiled) -> list[Difference]:
    """The changes because of which data of ``original`` can't be read with ``update``."""
    return [
        Difference(kind, path, _MEANING.get(kind, ""))
        for kind, path in changes(original, update)
        if kind not in COMPATIBLE
    ]


def changes(original: Compiled, update: Compiled) -> list[tuple[str, str]]:
    """Every change, and where it is: messages by name, fields by number."""
    comparison = _Comparison(_Types(original), _Types(update))
    if original.root.package != update.root.package:
        comparison.note("PACKAGE_CHANGED")
    comparison.types(original.root, update.root)
    return comparison.found


class _Type(NamedTuple):
    local: str  # its name within its package
    descriptor: Message | Enum
    in_root: bool


class _Types:
    """The messages and enums of a file and of all it imports, by their full names."""

    def __init__(self, schema: Compiled) -> None:
        self._found: dict[str, _Type] = {}
        for file in schema.files.values():
            prefix = f".{file.package}" if file.package else ""
            self._collect(file, prefix, "", file is schema.root)

    def _collect(self, scope: File | Message, prefix: str, local: str, in_root: bool) -> None:
        for each in (*_declared(scope), *scope.enum_type):
            name = f"{local}.{each.name}" if local else each.name
            self._found[f"{prefix}.{name}"] = _Type(name, each, in_root)
            if _is_message(each):
                self._collect(each, prefix, name, in_root)

    def __getitem__(self, name: str) -> _Type:
        return self._found[name]

    def map_entry(self, field: Field) -> Message | None:
        if field.type != Field.TYPE_MESSAGE or field.label != Field.LABEL_REPEATED:
            return None
        found = self._found[field.type_name].descriptor
        return found if found.options.map_entry else None


class _Comparison:
    def __init__(self, before: _Types, now: _Types) -> None:
        self._before = before
        self._now = now
        self._path: list[str] = []
        self._under_way: set[tuple[int, int]] = set()
        self.found: list[tuple[str, str]] = []

    def note(self, kind: str, *steps: object) -> None:
        self.found.append((kind, "#/" + "/".join((*self._path, *map(str, steps)))))

    def types(self, before: File | Message, now: File | Message) -> None:
        then, since = _messages(before), _messages(now)
        order_then, order_since = list(then), list(since)
        for name in dict.fromkeys((*then, *since)):
            if name not in since:
                self.note("MESSAGE_REMOVED", name)
            elif name not in then:
                self.note("MESSAGE_ADDED", name)
            else:
                self._path.append(name)
                self.message(then[name], since[name])
                if order_then.index(name) != order_since.index(name):
                    self.note("MESSAGE_MOVED")
                self._path.pop()
        enums_then = {enum.name: enum for enum in before.enum_type}
        enums_since = {enum.name: enum for enum in now.enum_type}
        for name in dict.fromkeys((*enums_then, *enums_since)):
            if name not in enums_since:
                self.note("ENUM_REMOVED", name)
            elif name not in enums_then:
                self.note("ENUM_ADDED", name)
            else:
                self._enum(enums_then[name], enums_since[name])

    def _enum(self, before: Enum, now: Enum) -> None:
        then = {value.number: value.name for value in before.value}
        since = {value.number: value.name for value in now.value}
        for number in dict.fromkeys((*then, *since)):
            if number not in since:
                self.note("ENUM_CONST_REMOVED", now.name, number)
            elif number not in then:
                self.note("ENUM_CONST_ADDED", now.name, number)
            elif then[number] != since[number]:
                self.note("ENUM_CONST_CHANGED", now.name, number)

    def message(self, before: Message, now: Message) -> None:
        pair = id(before), id(now)
        if pair in self._under_way:
            return
        self._under_way.add(pair)
        self._fields(before, now)
        self.types(before, now)
        self._under_way.discard(pair)

    def _fields(self, before: Message, now: Message) -> None:
        then = {field.number: field for field in before.field}
        since = {field.number: field for field in now.field}
        oneofs_then, oneofs_since = _oneofs(before), _oneofs(now)
        groups_then = {number: name for name, numbers in oneofs_then.items() for number in numbers}
        groups_since = {number: name for name, numbers in oneofs_since.items() for number in numbers}
        for name, numbers in oneofs_since.items():
            # Fields that exclude each other now must have done so before. New fields were never in old data.
            origins = {groups_then.get(number, f" {number}") for number in numbers if number in then}
            if len(origins) > 1:
                several = sum(origin.startswith(" ") for origin in origins) > 1
                self.note(
                    "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if several else "FIELD_MOVED_TO_EXISTING_ONEOF", name
                )
        for name in sorted({*oneofs_then, *oneofs_since}):
            if name not in oneofs_since:
                self.note("ONEOF_REMOVED", name)
            elif name not in oneofs_then:
                self.note("ONEOF_ADDED", name)
        # A oneof that is gone with all its fields is a removal like any other. If only some of its fields are
        # gone, each of those is reported.
        dissolved = {
            name
            for name, numbers in oneofs_then.items()
            if name not in oneofs_since and not any(number in since for number in numbers)
        }
        for number in sorted({*then, *since}):
            old, new = then.get(number), since.get(number)
            group = groups_since.get(number)
            place = (group, number) if group is not None else (number,)
            if new is None:
                assert old is not None
                was_in = groups_then.get(number)
                if was_in is None:
                    required = old.label == Field.LABEL_REQUIRED
                    self.note("REQUIRED_FIELD_REMOVED" if required else "FIELD_REMOVED", number)
                elif was_in not in dissolved:
                    self.note("ONEOF_FIELD_REMOVED", was_in, number)
            elif old is None:
                required = new.label == Field.LABEL_REQUIRED
                plain = "ONEOF_FIELD_ADDED" if group is not None else "FIELD_ADDED"
                self.note("REQUIRED_FIELD_ADDED" if required else plain, *place)
            else:
                if number in groups_then and group is None:
                    self.note("ONEOF_FIELD_MOVED_TO_TOP_LEVEL", number)
                self._path += map(str, place)
                if old.name != new.name:
                    self.note("FIELD_NAME_CHANGED")
                self._field(old, new)
                del self._path[-len(place) :]

    def _field(self, old: Field, new: Field) -> None:
        entry_then, entry_since = self._before.map_entry(old), self._now.map_entry(new)
        kinds = _kind(old, entry_then), _kind(new, entry_since)
        if kinds[0] != kinds[1]:
            self.note("FIELD_KIND_CHANGED")
        elif entry_then is not None and entry_since is not None:
            for part in (0, 1):
                self._field(entry_then.field[part], entry_since.field[part])
        elif kinds[0] == "message":
            self._named(old.type_name, new.type_name)
            if new.label == Field.LABEL_REQUIRED != old.label:
                self.note("REQUIRED_FIELD_ADDED")
        else:
            self._scalar(old, new)

    def _scalar(self, old: Field, new: Field) -> None:
        kind = _SCALAR_KINDS[old.type]
        if kind != _SCALAR_KINDS[new.type]:
            self.note("FIELD_SCALAR_KIND_CHANGED")
        elif new.label == Field.LABEL_REQUIRED != old.label:
            self.note("REQUIRED_FIELD_ADDED")
        elif (old.label == Field.LABEL_REPEATED) != (new.label == Field.LABEL_REPEATED):
            text = kind == _TEXT
            self.note("FIELD_STRING_OR_BYTES_LABEL_CHANGED" if text else "FIELD_NUMERIC_LABEL_CHANGED")

    def _named(self, before: str, now: str) -> None:
        then, since = self._before[before], self._now[now]
        if then.local != since.local:
            self.note("FIELD_NAMED_TYPE_CHANGED")
            return
        if then.in_root and since.in_root:
            return  # compared at its declaration
        outer, self._path = self._path, since.local.split(".")
        start = len(self.found)
        self.message(then.descriptor, since.descriptor)
        self._path = outer
        if any(kind not in COMPATIBLE for kind, _ in self.found[start:]):
            self.note("FIELD_NAMED_TYPE_CHANGED")


def _is_message(descriptor: Message | Enum) -> bool:
    return bool(descriptor.DESCRIPTOR.name == "DescriptorProto")


def _declared(scope: File | Message) -> Any:
    """The messages that are declared directly in a file or a message."""
    return scope.nested_type if _is_message(scope) else scope.message_type


def _messages(scope: File | Message) -> dict[str, Message]:
    return {each.name: each for each in _declared(scope) if not each.options.map_entry}


def _oneofs(message: Message) -> dict[str, list[int]]:
    """The field numbers of each oneof, without the synthetic ones for proto3's ``optional``."""
    found: dict[str, list[int]] = {}
    for field in message.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            found.setdefault(message.oneof_decl[field.oneof_index].name, []).append(field.number)
    return found


def _kind(field: Field, entry: Message | None) -> str:
    if entry is not None:
        return "map"
    return "message" if field.type in (Field.TYPE_MESSAGE, Field.TYPE_GROUP) else "scalar"
