"""The frame around every request and response, and the few encodings that all of them share.

    request   size int32 | api key int16 | version int16 | correlation id int32 | client id string
              | tags, if the version is flexible | body
    response  size int32 | correlation id int32 | tags, if the version is flexible and the request is not
              ApiVersions | body

``size`` counts the bytes after it. The response to ApiVersions has the old header in every version, because a
client that has not read the response can't know which versions the broker speaks (KIP-511).
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812

from millstream.core.errors import ProtocolError

HEAD = Struct(">ihhi")  # size, api key, version, correlation id
HEAD_SIZE = HEAD.size
ANSWER_HEAD = Struct(">ii")  # size, correlation id
SIZE = Struct(">i")
SHORT = Struct(">h")
INT = Struct(">i")

TopicKey = str | bytes  # a topic in a request: its name, or the sixteen bytes of its id
Buffer = bytes | bytearray | memoryview

__all__ = [
    "ANSWER_HEAD",
    "HEAD",
    "HEAD_SIZE",
    "INT",
    "SHORT",
    "SIZE",
    "StructError",
    "TopicKey",
    "compact_bytes",
    "frame",
    "read_client_id",
    "read_compact_string",
    "read_count",
    "read_string",
    "read_unsigned_varint",
    "skip_client_id",
    "skip_tags",
    "string_bytes",
    "unsigned_varint",
]


def unsigned_varint(value: int) -> bytes:
    """``value`` as a varint: groups of seven bits, lowest first."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_unsigned_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The number at ``position`` and the position after it."""
    byte = buffer[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise ProtocolError("a variable-length number does not end within five bytes")


def skip_tags(buffer: Buffer, position: int) -> int:
    """The position after a section of tagged fields, all of which are ignored."""
    count, position = read_unsigned_varint(buffer, position)
    if count > 1024:
        raise ProtocolError(f"{count} tagged fields in one structure")
    for _ in range(count):
        _, position = read_unsigned_varint(buffer, position)
        size, position = read_unsigned_varint(buffer, position)
        position += size
    return position


def read_string(buffer: Buffer, position: int) -> tuple[str | None, int]:
    """A nullable string with a two-byte length."""
    (size,) = SHORT.unpack_from(buffer, position)
    position += 2
    if size < 0:
        return None, position
    return _text(buffer, position, size)


def read_compact_string(buffer: Buffer, position: int) -> tuple[str | None, int]:
    """A nullable string with a varint length."""
    size, position = read_unsigned_varint(buffer, position)
    if size == 0:
        return None, position
    return _text(buffer, position, size - 1)


def _text(buffer: Buffer, position: int, size: int) -> tuple[str, int]:
    end = position + size
    if end > len(buffer):
        raise ProtocolError("a string ends after its request")
    try:
        return str(buffer[position:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise ProtocolError(f"a string is not UTF-8: {error.reason}") from None


def read_count(buffer: Buffer, position: int, end: int, flexible: bool) -> tuple[int, int]:
    """The length of an array, where null counts as empty, and the position after it. Raises ProtocolError if
    the rest of the request can't hold so many elements, before anything is allocated for them."""
    if flexible:
        count, position = read_unsigned_varint(buffer, position)
        count -= 1
    else:
        (count,) = INT.unpack_from(buffer, position)
        position += 4
    if count > end - position:
        raise ProtocolError(f"an array of {count} does not fit in its request")
    return max(count, 0), position


def read_client_id(buffer: Buffer, flexible: bool) -> tuple[str, int]:
    """The client id of a complete request frame, and the position of the body. The client id has a two-byte
    length in every version, so that a broker can read it before it knows the version."""
    client_id, position = read_string(buffer, HEAD_SIZE)
    if flexible:
        position = skip_tags(buffer, position)
    return client_id or "", position


def skip_client_id(buffer: Buffer, position: int, end: int, flexible: bool) -> int:
    """The position of the body of a request whose client id is at ``position`` and which ends at ``end``.
    Raises ProtocolError if the request ends before its body."""
    try:
        position += 2 + max(0, SHORT.unpack_from(buffer, position)[0])
        if flexible:
            position = skip_tags(buffer, position)
    except (StructError, IndexError):
        position = end + 1
    if position > end:
        raise ProtocolError("sent a request that ends inside its header")
    return position


def string_bytes(text: str) -> bytes:
    """A string with a two-byte length."""
    data = text.encode()
    return SHORT.pack(len(data)) + data


def compact_bytes(data: bytes) -> bytes:
    """Bytes, or the bytes of a string, with a varint length."""
    return unsigned_varint(len(data) + 1) + data


def frame(correlation_id: int, body: bytes | bytearray, *, tags: bool) -> bytes:
    """A complete response."""
    if tags:
        return ANSWER_HEAD.pack(len(body) + 5, correlation_id) + b"\0" + body
    return ANSWER_HEAD.pack(len(body) + 4, correlation_id) + body
