"""Makes message classes from .proto files with protoc, as users do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc_tools
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc


def proto_classes(files: Mapping[str, str], directory: Path) -> dict[str, Any]:
    """The classes of all messages in some files, by full name, in a separate descriptor pool."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    out = directory / "set.bin"
    known = Path(grpc_tools.__file__).with_name("_proto")
    arguments = [f"-I{directory}", f"-I{known}", f"--descriptor_set_out={out}", "--include_imports", *files]
    assert protoc.main(["protoc", *arguments]) == 0
    pool = descriptor_pool.DescriptorPool()
    found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    for file in found.file:
        pool.Add(file)
    made = {}
    for file in found.file:
        for message in file.message_type:
            _collect(pool, f"{file.package}.{message.name}", message, made)
    return made


def _collect(pool: Any, name: str, message: Any, made: dict[str, Any]) -> None:
    made[name] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    for nested in message.nested_type:
        _collect(pool, f"{name}.{nested.name}", nested, made)
