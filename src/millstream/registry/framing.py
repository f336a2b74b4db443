"""The header before a value that says which schema it has, in the format of Confluent's serialisers.

0        1 byte      always 0
id       4 bytes     of the schema, big endian
indexes  varints     Protobuf only: the message in the file. A count and then a path, outermost first,
                     all as zigzag varints; a single 0 is short for the file's first message
value                Avro's binary form, JSON text, or a Protobuf message
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from millstream.core.errors import UndecodableRecord

HEADER = Struct(">bI")
MAGIC = 0
_MAX_INDEXES = 100


def framed(id_: int, value: bytes, indexes: Sequence[int] | None = None) -> bytes:
    """A value with its header; ``indexes`` for Protobuf."""
    return HEADER.pack(MAGIC, id_) + (b"" if indexes is None else _written(indexes)) + value


def is_framed(data: bytes | None) -> bool:
    """True if bytes may have a header. Other bytes can look the same."""
    return data is not None and len(data) >= HEADER.size and data[0] == MAGIC


def unframed(data: bytes | None) -> tuple[int, bytes]:
    """The schema's id, and the bytes after the header. Raises UndecodableRecord."""
    if data is None:
        raise UndecodableRecord("there is no value")
    if len(data) < HEADER.size:
        raise UndecodableRecord(f"{len(data)} bytes are too short for the id of a schema")
    magic, id_ = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise UndecodableRecord(f"it begins with byte {data[0]}, not with 0 and the id of a schema")
    return id_, data[HEADER.size :]


def message_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """The indexes of a Protobuf value's message, and the value. Raises UndecodableRecord."""
    count, at = _varint(data, 0)
    if count == 0:
        return (0,), data[at:]
    if not 0 < count <= _MAX_INDEXES:
        raise UndecodableRecord(f"{count} indexes of messages")
    found = []
    for _ in range(count):
        index, at = _varint(data, at)
        found.append(index)
    return tuple(found), data[at:]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise UndecodableRecord("the index of the message does not end")


def _written(indexes: Sequence[int]) -> bytes:
    if list(indexes) == [0]:
        return b"\0"
    out = bytearray()
    for number in (len(indexes), *indexes):
        value = number << 1  # zigzag; none is negative
        while value > 0x7F:
            out.append((value & 0x7F) | 0x80)
            value >>= 7
        out.append(value)
    return bytes(out)
