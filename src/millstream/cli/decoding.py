"""Records with their values decoded by the schemas that they name: ``--decode`` of ``millstream consume`` and
``millstream topic export``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from millstream.cli.output import note
from millstream.errors import UndecodableRecord

if TYPE_CHECKING:
    from millstream.client.template import Record, Template


class Decode(StrEnum):
    AUTO = "auto"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON = "json"


class Decoded:
    """A record whose key or value was decoded: as a template reads it, JSON instead of bytes."""

    def __init__(self, record: Record, structured: dict[str, Any]) -> None:
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
        # A key that is a text is shown as one.
        return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False).encode()


class RecordDecoder:
    """What is asked for by name must be so. With ``auto``, what does not look encoded, or can't be decoded,
    stays as it is, and the first of these is told of.
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
                    raise UndecodableRecord(f"{where}; --decode auto leaves it as it is") from None
                if not self._told:
                    note(f"{where}; left as it is, as others like it will be")
                self._told = True
        return Decoded(record, structured) if structured else record


class Decoding:
    """A template for records that are decoded first."""

    def __init__(self, shape: Template, how: Decode, registry: str) -> None:
        self._shape = shape
        self._decoder = RecordDecoder(how, registry)

    def render(self, records: Iterable[Any]) -> bytes:
        return self._shape.render([self._decoder.decoded(record) for record in records])
