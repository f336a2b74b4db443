"""The types that request handlers take and return, with the parser before them and the encoder after them.

A handler returns the fields of the response as a dictionary. ``wire.codec.schema_codec`` leaves out the
fields that the client's version does not have. Requests between brokers (``wire.api_keys.PRIVATE``) have no
schema: their handlers take the body's bytes and return bytes. ``broker.api.handlers`` says which handlers
there are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from millstream.core.errors import ProtocolError
from millstream.wire.api_keys import API_VERSIONS, PRIVATE, is_flexible, name_of
from millstream.wire.codec.schema_codec import (
    Answer,
    answer_writer,
    field_names,
    request_reader,
    unknown_fields,
)
from millstream.wire.frame import ANSWER_HEAD, StructError, frame, read_client_id
from millstream.wire.hot.fetch import Part

# Fields, or bytes where the handler encodes a frequent response itself.
Reply = Answer | bytes


@dataclass(frozen=True, slots=True)
class Client:
    """The client that sent a request, and what its response needs."""

    client_id: str
    host: str
    version: int  # of this request
    # True if the client hung up. A connection is not read from while a handler waits, so the handler has
    # to ask.
    is_gone: Callable[[], bool] = bool


class ServedVersions(Protocol):
    """The versions of a request that are served."""

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...


_LONG = 64 * 1024
MAX_SIZE = 8 * 1024 * 1024  # of a request; Produce has the broker's own limit instead


def read_request(data: bytes, api_key: int, version: int) -> tuple[Any, str]:
    """Parse the request in a whole frame. Returns it and the client id."""
    if len(data) > MAX_SIZE:
        raise ProtocolError(f"sent {name_of(api_key)} of {len(data)} bytes; at most {MAX_SIZE} are accepted")
    try:
        client_id, position = read_client_id(data, is_flexible(api_key, version))
        if api_key == API_VERSIONS:
            return None, client_id  # nothing in it matters, and it comes first, when kio may still be loading
        if api_key in PRIVATE:
            return data[position:], client_id
        request, _ = request_reader(api_key, version)(data, position)
    except (ProtocolError, StructError, IndexError) as error:
        raise ProtocolError(f"sent {name_of(api_key)} that can't be read: {error}") from error
    return request, client_id


def encode_answer(
    api_key: int, version: int, correlation_id: int, reply: Reply, versions: ServedVersions
) -> list[Part]:
    """A whole response frame, in parts so that a long body is not copied once more. In Python's development
    mode, its fields are checked against those of the versions that are served."""
    tags = api_key != API_VERSIONS and is_flexible(api_key, version)
    if isinstance(reply, bytes):
        return _in_parts(correlation_id, reply, tags)
    if __debug__ and sys.flags.dev_mode:
        unknown = unknown_fields(reply, field_names(api_key, (versions.first, versions.last)))
        assert not unknown, f"no version of the response has {unknown}"
    out = bytearray()
    answer_writer(api_key, version)(out, reply)
    return _in_parts(correlation_id, out, tags)


def _in_parts(correlation_id: int, body: bytes | bytearray, tags: bool) -> list[Part]:
    if len(body) < _LONG:
        return [frame(correlation_id, body, tags=tags)]
    head = ANSWER_HEAD.pack(len(body) + 4 + tags, correlation_id)
    return [head + b"\0" if tags else head, body]
