"""Decodes records by the schema ids in them: ``--decode`` of ``consume`` and ``topic export``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from millstream.cli.terminal.output import note
from millstream.core.errors import UndecodableRecord

if TYPE_CHECKING:
    from millstream.client.text.template import ReceivedRecord, Template


class Decode(StrEnum):
    AUTO = "auto"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON = "json"


class Decoded:
    """A record whose key or value was decoded. A template reads JSON from it instead of the bytes."""

    def __init__(self, record: ReceivedRecord, structured: dict[str, Any]) -> None:
        self._record = record
        self.structured = structured

    def __getattr__(self, name: str) -> Any:
        return getattr(self._record, name)

    def key(self) -> bytes | None:
        return self._bytes("key") if "key" in self.structured else self._record.key()

    def value(self) -> bytes | None:
        return self._bytes("value") if "value" in self.structured else self._record.value()

    def _bytes(self, part: str) -> bytes:
        value = self.structured[part]
        # A string is shown as plain text, without JSON's quotes: most keys are strings.
        return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False).encode()


class RecordDecoder:
    """Decodes keys and values by the schemas of a registry.

    With a named format, every value must be encoded in it, and keys are left alone. With ``auto``, keys and
    values that do not look encoded are left alone, and so are those that can't be decoded. The first one
    that can't be decoded is reported.
    """

    def __init__(self, how: Decode, registry: str) -> None:
        from millstream.cli.schema import open_registry
        from millstream.registry import needs_extra

        client = open_registry(registry)
        with needs_extra():
            from millstream.registry.values import Decoder

        self._decoder = Decoder(client)
        self._wanted = None if how is Decode.AUTO else how.value.upper()
        self._told = False

    def decoded(self, record: Any) -> Any:
        from millstream.registry.framing import is_framed

        structured = {}
        for part, data in (("key", record.key()), ("value", record.value())):
            if data is None or (part == "key" and self._wanted is not None):
                continue
            if self._wanted is None and not is_framed(data):
                continue
            try:
                structured[part] = self._decoder.decode(data, self._wanted)
            except UndecodableRecord as error:
                where = f"{record.topic()}[{record.partition()}]@{record.offset()}: {part}: {error}"
                if self._wanted is not None:
                    raise UndecodableRecord(f"{where}; --decode auto leaves it unchanged") from None
                if not self._told:
                    note(f"{where}; left unchanged, and so will others like it")
                self._told = True
        return Decoded(record, structured) if structured else record


class Decoding:
    """Renders records by a template, after decoding them."""

    def __init__(self, shape: Template, how: Decode, registry: str) -> None:
        self._shape = shape
        self._decoder = RecordDecoder(how, registry)

    def render(self, records: Iterable[Any]) -> bytes:
        return self._shape.render([self._decoder.decoded(record) for record in records])
