"""A schema with its references, and the interface that the three types of schemas have in common.

Each type (``avro``, ``json``, ``protobuf``) is a class with the methods of ``ParsedSchema``. The rest
of the registry does not look inside a schema. Nothing here reads a schema from the network or from disk: the
schemas that it refers to are passed in with it.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from millstream.core.errors import InvalidSchema

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
TYPES = (JSON, PROTOBUF, AVRO)  # in the order of Confluent's registry

MAX_DEPTH = 100  # of types within types; nobody writes deeper ones, and they would exhaust the stack


@dataclass(frozen=True, slots=True)
class Reference:
    """Another schema that a schema uses, with the name that it uses for it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as it was sent or is stored. ``metadata`` and ``rule_set`` are stored unchanged. A change of
    either is a change of the schema."""

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None

    @property
    def identity(self) -> str:
        """A text that is equal for equal schemas. Schemas with the same identity share an id."""
        references = [(each.name, each.subject, each.version) for each in self.references]
        return json.dumps([self.type, self.text, references, self.metadata, self.rule_set], sort_keys=True)

    @property
    def guid(self) -> str:
        """An identifier that is the same in every registry, unlike the id. For a plain schema it equals that
        of Confluent's registry."""
        digest = hashlib.md5(self.text.encode(), usedforsecurity=False)
        for each in self.references:
            digest.update(each.name.encode() + each.subject.encode() + each.version.to_bytes(4, "big"))
        for kept in (self.metadata, self.rule_set):
            if kept is not None:
                digest.update(b"\x01" + json.dumps(kept, sort_keys=True).encode())
        return str(uuid.UUID(bytes=digest.digest()))


class Difference(NamedTuple):
    """One change from one schema to another. ``kind`` is Confluent's or Avro's name for it."""

    kind: str
    path: str
    message: str = ""

    def __str__(self) -> str:
        said = f": {self.message}" if self.message else ""
        return f"{self.kind} at {self.path}{said}"


class ParsedSchema(Protocol):
    """The interface of every type of schema."""

    def canonical(self) -> str:
        """The text to store. It is the same for texts that differ only in formatting."""

    def normalized(self) -> str:
        """Like ``canonical``, and also the same for texts that differ in order."""

    def problems_reading(self, writer: Any) -> list[Difference]:
        """Why data of the schema ``writer`` can't be read with this one; empty if all of it can."""


def json_document(text: str, what: str) -> Any:
    """The value of a JSON text. Raises InvalidSchema, which says where the text is wrong."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidSchema(f"{what} is not JSON: {reason}") from None


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def compact(value: Any) -> str:
    """A value as JSON in the stored form: without spaces, in the order given."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
