"""The format of millstream's private requests: from a standby to its leader, and from a person to either.

    body      size int32 | fields, JSON | attached bytes, if any

They are sent in Kafka's frames like all other requests, under separate keys (``wire.api_keys.PRIVATE``). The
fields carry the version of this protocol. Both sides must have the same version, or they don't talk. Bytes,
which SQLite has and JSON lacks, are written as ``{"b": "..."}`` in base 64.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from millstream.core.errors import ProtocolError
from millstream.wire.frame import INT, Buffer, StructError

SPOKEN = 2  # the version of this protocol
STANDBY_CLIENT = "millstream-standby"  # these requests are announced to clients with this client id


def write_message(fields: Mapping[str, Any], attached: bytes = b"") -> bytes:
    text = json.dumps(fields, default=_text_of_bytes, separators=(",", ":")).encode()
    return INT.pack(len(text)) + text + attached


def read_message(body: Buffer) -> tuple[dict[str, Any], Buffer]:
    """The fields, and the bytes after them. Raises ProtocolError if the message is invalid."""
    try:
        (size,) = INT.unpack_from(body)
        if not 0 <= size <= len(body) - 4:
            raise ValueError(f"{size} bytes of fields are announced, {len(body) - 4} are there")
        fields = json.loads(bytes(body[4 : 4 + size]), object_hook=_bytes_of_text)
    except (StructError, ValueError) as problem:
        raise ProtocolError(f"sent a message between brokers that can't be read: {problem}") from None
    if not isinstance(fields, dict):
        raise ProtocolError("sent a message between brokers that has no fields")
    return fields, body[4 + size :]


def _text_of_bytes(value: Any) -> dict[str, str]:
    return {"b": base64.b64encode(value).decode()}


def _bytes_of_text(fields: dict[str, Any]) -> Any:
    return base64.b64decode(fields["b"]) if fields.keys() == {"b"} else fields
