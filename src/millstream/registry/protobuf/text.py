"""Write a file descriptor as a ``.proto`` file, in one canonical form: declarations in order, no comments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, text_format

File: TypeAlias = descriptor_pb2.FileDescriptorProto
Field: TypeAlias = descriptor_pb2.FieldDescriptorProto
Message: TypeAlias = descriptor_pb2.DescriptorProto

_SCALARS = {
    Field.TYPE_DOUBLE: "double",
    Field.TYPE_FLOAT: "float",
    Field.TYPE_INT64: "int64",
    Field.TYPE_UINT64: "uint64",
    Field.TYPE_INT32: "int32",
    Field.TYPE_FIXED64: "fixed64",
    Field.TYPE_FIXED32: "fixed32",
    Field.TYPE_BOOL: "bool",
    Field.TYPE_STRING: "string",
    Field.TYPE_BYTES: "bytes",
    Field.TYPE_UINT32: "uint32",
    Field.TYPE_SFIXED32: "sfixed32",
    Field.TYPE_SFIXED64: "sfixed64",
    Field.TYPE_SINT32: "sint32",
    Field.TYPE_SINT64: "sint64",
}
_LAST_FIELD = 536_870_911
_LAST_ENUM = 2**31 - 1


def json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def ordered(file: File) -> File:
    """The same file, with everything sorted whose order has no meaning. Messages keep their order, because
    records name them by position."""
    copy = File()
    copy.CopyFrom(file)
    if not copy.public_dependency and not copy.weak_dependency:
        copy.dependency[:] = sorted(copy.dependency)
    for message in copy.message_type:
        _order(message)
    for enum in copy.enum_type:
        _order_enum(enum)
    return copy


def _order(message: Message) -> None:
    fields = sorted(message.field, key=lambda field: field.number)
    del message.field[:]
    message.field.extend(fields)
    message.reserved_name.sort()
    message.reserved_range.sort(key=lambda each: each.start)
    message.extension_range.sort(key=lambda each: each.start)
    for nested in message.nested_type:
        _order(nested)
    for enum in message.enum_type:
        _order_enum(enum)


def _order_enum(enum: descriptor_pb2.EnumDescriptorProto) -> None:
    first, *rest = enum.value  # the first value is the default, whatever its number is
    values = [first, *sorted(rest, key=lambda value: (value.number, value.name))]
    copies = [type(value).FromString(value.SerializeToString()) for value in values]
    del enum.value[:]
    enum.value.extend(copies)


def written(file: File) -> str | None:
    """The text of a file; None if this module can't write it."""
    if file.syntax not in ("", "proto2", "proto3"):
        return None
    proto3 = file.syntax == "proto3"
    parts = [f'syntax = "{file.syntax or "proto2"}";']
    if file.package:
        parts.append(f"package {file.package};")
    imports = []
    for at, name in enumerate(file.dependency):
        how = "public " if at in file.public_dependency else "weak " if at in file.weak_dependency else ""
        imports.append(f'import {how}"{name}";')
    if imports:
        parts.append("\n".join(imports))
    options = [f"option {text};" for text in _options(file.options)]
    if options:
        parts.append("\n".join(options))
    parts += ["\n".join(_message(message, proto3, "")) for message in file.message_type]
    parts += ["\n".join(_enum(enum, "")) for enum in file.enum_type]
    parts += ["\n".join(_extensions(file.extension, proto3, ""))] if file.extension else []
    parts += ["\n".join(_service(service)) for service in file.service]
    return "\n\n".join(parts) + "\n"


def _options(options: Any) -> Iterator[str]:
    """``name = value`` for every option that is set."""
    for field, value in options.ListFields():
        if field.name == "uninterpreted_option":
            continue
        for each in value if field.is_repeated else [value]:
            yield f"{field.name} = {_option_value(field, each)}"


def _option_value(field: Any, value: Any) -> str:
    if field.type == field.TYPE_ENUM:
        return str(field.enum_type.values_by_number[value].name)
    if field.type == field.TYPE_BOOL:
        return "true" if value else "false"
    if field.type == field.TYPE_STRING:
        return _quoted(value.encode())
    if field.type == field.TYPE_MESSAGE:
        return f"{{ {text_format.MessageToString(value, as_one_line=True)} }}"
    return str(value)


def _quoted(data: bytes) -> str:
    out = []
    for byte in data:
        char = chr(byte)
        out.append(char if 32 <= byte < 127 and char not in '"\\' else f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def _message(message: Message, proto3: bool, indent: str) -> Iterator[str]:
    yield f"{indent}message {message.name} {{"
    yield from _body(message, proto3, indent + "  ")
    yield f"{indent}}}"


def _body(message: Message, proto3: bool, indent: str) -> Iterator[str]:
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    groups = {field.type_name.rpartition(".")[2] for field in message.field if field.type == Field.TYPE_GROUP}
    for text in _options(message.options):
        yield f"{indent}option {text};"
    done: set[int] = set()
    for field in message.field:
        in_oneof = field.HasField("oneof_index") and not field.proto3_optional
        if not in_oneof:
            yield from _field(field, message, entries, proto3, indent)
        elif field.oneof_index not in done:
            done.add(field.oneof_index)
            oneof = message.oneof_decl[field.oneof_index]
            yield f"{indent}oneof {oneof.name} {{"
            for text in _options(oneof.options):
                yield f"{indent}  option {text};"
            for member in message.field:
                if member.HasField("oneof_index") and member.oneof_index == field.oneof_index:
                    yield from _field(member, message, entries, proto3, indent + "  ", bare=True)
            yield f"{indent}}}"
    yield from _reserved(message.reserved_range, message.reserved_name, indent, _LAST_FIELD, exclusive=True)
    for each in message.extension_range:
        last = "max" if each.end - 1 >= _LAST_FIELD else str(each.end - 1)
        yield f"{indent}extensions {each.start}" + (f" to {last};" if each.end - 1 > each.start else ";")
    yield from _extensions(message.extension, proto3, indent)
    for nested in message.nested_type:
        if nested.name not in entries and nested.name not in groups:
            yield from _message(nested, proto3, indent)
    for enum in message.enum_type:
        yield from _enum(enum, indent)


def _field(
    field: Field,
    message: Message,
    entries: dict[str, Message],
    proto3: bool,
    indent: str,
    *,
    bare: bool = False,
) -> Iterator[str]:
    label = _label(field, proto3) if not bare else ""
    kind = _SCALARS.get(field.type) or field.type_name
    entry = entries.get(field.type_name.rpartition(".")[2]) if field.label == Field.LABEL_REPEATED else None
    if entry is not None:
        key, value = (_SCALARS.get(each.type) or each.type_name for each in entry.field)
        kind, label = f"map<{key}, {value}>", ""
    options = []
    if field.HasField("default_value"):
        options.append(f"default = {_default(field)}")
    if field.HasField("json_name") and field.json_name != json_name(field.name):
        options.append(f'json_name = "{field.json_name}"')
    options += _options(field.options)
    tail = f" [{', '.join(options)}]" if options else ""
    if field.type == Field.TYPE_GROUP:
        name = field.type_name.rpartition(".")[2]
        group = next(nested for nested in message.nested_type if nested.name == name)
        yield f"{indent}{label}group {name} = {field.number}{tail} {{"
        yield from _body(group, proto3, indent + "  ")
        yield f"{indent}}}"
        return
    yield f"{indent}{label}{kind} {field.name} = {field.number}{tail};"


def _label(field: Field, proto3: bool) -> str:
    if field.label == Field.LABEL_REPEATED:
        return "repeated "
    if field.label == Field.LABEL_REQUIRED:
        return "required "
    return "optional " if field.proto3_optional or not proto3 else ""


def _default(field: Field) -> str:
    if field.type == Field.TYPE_STRING:
        return _quoted(field.default_value.encode())
    if field.type == Field.TYPE_BYTES:
        return f'"{field.default_value}"'  # already escaped
    return str(field.default_value)


def _reserved(ranges: Any, names: Any, indent: str, last: int, *, exclusive: bool) -> Iterator[str]:
    said = []
    for each in ranges:
        end = each.end - 1 if exclusive else each.end
        if end == each.start:
            said.append(str(each.start))
        else:
            said.append(f"{each.start} to {'max' if end >= last else end}")
    if said:
        yield f"{indent}reserved {', '.join(said)};"
    if names:
        quoted = [_quoted(name.encode()) for name in names]
        yield f"{indent}reserved {', '.join(quoted)};"


def _enum(enum: descriptor_pb2.EnumDescriptorProto, indent: str) -> Iterator[str]:
    yield f"{indent}enum {enum.name} {{"
    for text in _options(enum.options):
        yield f"{indent}  option {text};"
    for value in enum.value:
        options = list(_options(value.options))
        tail = f" [{', '.join(options)}]" if options else ""
        yield f"{indent}  {value.name} = {value.number}{tail};"
    yield from _reserved(enum.reserved_range, enum.reserved_name, indent + "  ", _LAST_ENUM, exclusive=False)
    yield f"{indent}}}"


def _extensions(extensions: Any, proto3: bool, indent: str) -> Iterator[str]:
    for field in extensions:
        yield f"{indent}extend {field.extendee} {{"
        yield from _field(field, Message(), {}, proto3, indent + "  ")
        yield f"{indent}}}"


def _service(service: descriptor_pb2.ServiceDescriptorProto) -> Iterator[str]:
    yield f"service {service.name} {{"
    for text in _options(service.options):
        yield f"  option {text};"
    stream: Callable[[bool], str] = lambda yes: "stream " if yes else ""  # noqa: E731
    for method in service.method:
        head = (
            f"  rpc {method.name} ({stream(method.client_streaming)}{method.input_type}) returns"
            f" ({stream(method.server_streaming)}{method.output_type})"
        )
        options = [f"    option {text};" for text in _options(method.options)]
        yield f"{head} {{" if options else f"{head};"
        if options:
            yield from options
            yield "  }"
    yield "}"
