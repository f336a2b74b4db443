"""Protobuf schemas: parse a ``.proto`` file, or its descriptor in base64, which some serialisers send.

Both become descriptors, made by protoc, the compiler that also generates everyone's classes. Comparing,
decoding and the stored text all use the descriptors. The text is written from the descriptor
(``text``), so the same file has the same id in either form.
Comments are not kept. A file that can't be written back without loss (editions, custom options) is kept
unchanged.
"""

from __future__ import annotations

import ast
import base64
import binascii
import functools
import re
import tempfile
import threading
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError

from millstream.core.errors import InvalidSchema
from millstream.registry.protobuf.diff import incompatible
from millstream.registry.protobuf.text import File, json_name, ordered, written
from millstream.registry.schema import Difference

_SERIALIZED = re.compile(rb"AddSerializedFile\((b(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"))\)", re.DOTALL)
_compiling = threading.Lock()  # the process has only one compiler


class ProtobufSchema:
    """A ``.proto`` file with all files that it imports."""

    def __init__(self, text: str, dependencies: tuple[tuple[str, str], ...] = ()) -> None:
        self._text = text
        self._dependencies = dependencies
        imported = dict(dependencies)
        for name in imported:
            _check_name(name)
        self.name = "schema.proto"
        while self.name in imported:
            self.name = "_" + self.name
        given = _decoded(text)
        if given is None:
            files = _compiled(self.name, text, imported)
        else:
            given.name = self.name
            files = [*_imports_of(given, imported), given]
        self.files = {file.name: file for file in files}
        self.root = self.files[self.name]
        self.pool = _pool(files)
        if not self.root.message_type and not self.root.enum_type:
            raise InvalidSchema("the schema has no message")

    def canonical(self) -> str:
        return self._written(self.root)

    def normalized(self) -> str:
        return self._written(ordered(self.root))

    def _written(self, file: File) -> str:
        text = written(file)
        if text is not None:
            try:
                again = _compiled(self.name, text, dict(self._dependencies))[-1]
            except InvalidSchema:
                again = None
            if again is not None and _stripped(again) == _stripped(file):
                return text
        return self._text.strip()

    def serialized(self) -> str:
        """The file's descriptor in base64, which Confluent's clients request with ``format=serialized``."""
        return base64.b64encode(self.root.SerializeToString()).decode("ascii")

    def problems_reading(self, writer: ProtobufSchema) -> list[Difference]:
        return incompatible(writer, self)


def _decoded(text: str) -> File | None:
    """The descriptor that a text has in base64; None if it has none, and so must be a .proto file."""
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
        found = File.FromString(data) if data else None
    except (binascii.Error, ValueError, DecodeError):
        return None
    return found if found is not None and (found.message_type or found.enum_type) else None


def _stripped(file: File) -> bytes:
    """The descriptor's bytes without the parts that don't matter when two files are compared."""
    copy = File()
    copy.CopyFrom(file)
    copy.ClearField("source_code_info")
    copy.name = ""
    if copy.syntax == "proto2":
        copy.ClearField("syntax")
    for message in copy.message_type:
        _strip_message(message)
    for field in copy.extension:
        field.ClearField("json_name")
    return bytes(copy.SerializeToString(deterministic=True))


def _strip_message(message: descriptor_pb2.DescriptorProto) -> None:
    for field in (*message.field, *message.extension):
        if field.json_name == json_name(field.name):
            field.ClearField("json_name")
    for nested in message.nested_type:
        _strip_message(nested)


def _check_name(name: str) -> None:
    parts = name.split("/")
    if not name or name.startswith("/") or "\\" in name or any(part in ("", ".", "..") for part in parts):
        raise InvalidSchema(
            f"{name!r} can't be the name of a file that is imported: write it as dir/file.proto"
        )
    if len(name) > 200 or any(ord(each) < 32 for each in name):
        raise InvalidSchema("the name of a reference is too long, or has control characters in it")


def _imports_of(file: File, imported: dict[str, str]) -> list[File]:
    found: dict[str, File] = {}
    for name in file.dependency:
        source = imported.get(name)
        if source is None and not name.startswith("google/protobuf/"):
            raise InvalidSchema(f"the schema imports {name!r}, and there is no reference of that name")
        for each in _compiled(name, source, imported):
            found.setdefault(each.name, each)
    return list(found.values())


def _compiled(name: str, text: str | None, imported: dict[str, str]) -> list[File]:
    """The descriptors of a file and of all that it imports, imports first. Google's own are in
    ``grpc_tools``."""
    import grpc_tools
    from grpc_tools import _protoc_compiler as compiler

    own = Path(grpc_tools.__file__).with_name("_proto")
    with tempfile.TemporaryDirectory(prefix="millstream-proto-") as directory, _compiling:
        for path, source in {**imported, **({name: text} if text is not None else {})}.items():
            _check_name(path)
            decoded = _decoded(source)
            if decoded is not None:
                source = _as_text(decoded, path)
            place = Path(directory, path)
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(source, encoding="utf-8")
            except (OSError, UnicodeEncodeError) as error:
                raise InvalidSchema(f"{path!r} can't be written for the compiler: {error}") from None
        try:
            made = compiler.get_protos(name.encode(), [directory.encode(), str(own).encode()])
        except compiler.ProtocErrors as errors:
            raise InvalidSchema("not a .proto file: " + _said(errors, name)) from None
    return [_file_of(source) for _, source in made]


def _as_text(file: File, path: str) -> str:
    text = written(file)
    if text is None:
        raise InvalidSchema(f"{path!r} is a descriptor that has no text as a .proto file")
    return text


def _file_of(source: bytes) -> File:
    """The descriptor in a Python module made by the compiler, which contains it as a literal."""
    match = _SERIALIZED.search(source)
    assert match is not None, "the compiler's output has another form"
    return File.FromString(ast.literal_eval(match[1].decode("ascii")))


def _said(errors: Any, root: str) -> str:
    found = []
    for error in errors.errors():
        file = error.filename.decode(errors="replace")
        where = f"line {error.line + 1}" if file == root else f"{file}, line {error.line + 1}"
        message = error.message.decode(errors="replace")
        found.append(f"{where}: {message}" if error.line >= 0 else f"{file}: {message}")
    return "; ".join(found[:5])


def _pool(files: list[File]) -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        try:
            pool.Add(file)
        except (TypeError, DecodeError) as error:
            raise InvalidSchema(
                f"the descriptor is incomplete: {' '.join(str(error).split())[:300]}"
            ) from None
    return pool


@functools.lru_cache(maxsize=1000)
def message_names(schema: ProtobufSchema) -> tuple[str, ...]:
    """The full names of a file's top-level messages, in order."""
    prefix = f"{schema.root.package}." if schema.root.package else ""
    return tuple(prefix + message.name for message in schema.root.message_type)
