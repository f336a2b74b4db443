"""Which requests are served, in which versions, by which function.

A handler is in the file of its family under ``broker/api`` and declares its versions next to it::

    @serves(12, versions=(0, 4))
    def heartbeat(node: Node, request: Any, client: Client) -> Answer: ...

It takes a parsed request of any of those versions. It returns the fields of the response as a dictionary,
or an awaitable of it if it has to wait. ``wire.codec.answers`` leaves out the fields that the client's
version does not have. The hot requests (Produce, Fetch) bypass this: see ``broker.net.connection``.
Requests between brokers (``wire.api_keys.PRIVATE``) have no schema: their handlers take the body's bytes
and return bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.core.errors import ProtocolError
from millstream.wire.api_keys import PRIVATE, is_flexible, name_of
from millstream.wire.codec.answers import Answer, answer_writer, field_names, request_reader, unknown_fields
from millstream.wire.frame import ANSWER_HEAD, API_VERSIONS, StructError, frame, read_client_id
from millstream.wire.hot.fetch import Part

if TYPE_CHECKING:
    from millstream.broker.node import Node

# Fields, or bytes where the handler encodes a frequent response itself.
Reply = Answer | bytes
Handler = Callable[["Node", Any, "Client"], Reply | Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Client:
    """The client that sent a request, and what its response needs."""

    client_id: str
    host: str
    version: int  # of this request
    # True if the client hung up. A connection is not read from while a handler waits, so the handler has
    # to ask.
    is_gone: Callable[[], bool] = bool


@dataclass(frozen=True, slots=True)
class Served:
    """One kind of request: the versions served, and the function that serves it."""

    api_key: int
    first: int
    last: int
    handler: Handler
    advertised_from: int


HANDLERS: dict[int, Served] = {}
_LONG = 64 * 1024
MAX_SIZE = 8 * 1024 * 1024  # of a request; Produce has the broker's own limit instead


def serves(api_key: int, *, versions: tuple[int, int]) -> Callable[[Handler], Handler]:
    """Register a handler for a kind of request and the versions it serves."""

    def register(handler: Handler) -> Handler:
        if api_key in HANDLERS:
            raise ValueError(f"api key {api_key} is served twice: {HANDLERS[api_key].handler} and {handler}")
        HANDLERS[api_key] = Served(api_key, *versions, handler, versions[0])
        return handler

    return register


def serves_directly(api_key: int, *, versions: tuple[int, int], advertised_from: int | None = None) -> None:
    """Register a kind of request that connections handle themselves, so that it is advertised to clients."""

    def handler(node: Node, request: Any, client: Client) -> Reply:
        raise AssertionError(f"api key {api_key} is handled by the connection")

    floor = versions[0] if advertised_from is None else advertised_from
    HANDLERS[api_key] = Served(api_key, *versions, handler, floor)


def read_request(data: bytes, api_key: int, version: int) -> tuple[Any, str]:
    """Parse the request in a whole frame. Returns it and the client id."""
    if len(data) > MAX_SIZE:
        raise ProtocolError(f"sent {name_of(api_key)} of {len(data)} bytes; {MAX_SIZE} are enough")
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


def encode_answer(api_key: int, version: int, correlation_id: int, reply: Reply) -> list[Part]:
    """A whole response frame, in parts so that a long body is not copied once more."""
    tags = api_key != API_VERSIONS and is_flexible(api_key, version)
    if isinstance(reply, bytes):
        return _in_parts(correlation_id, reply, tags)
    if __debug__ and sys.flags.dev_mode:
        served = HANDLERS[api_key]
        unknown = unknown_fields(reply, field_names(api_key, (served.first, served.last)))
        assert not unknown, f"no version of the answer has {unknown}"
    out = bytearray()
    answer_writer(api_key, version)(out, reply)
    return _in_parts(correlation_id, out, tags)


def _in_parts(correlation_id: int, body: bytes | bytearray, tags: bool) -> list[Part]:
    if len(body) < _LONG:
        return [frame(correlation_id, body, tags=tags)]
    head = ANSWER_HEAD.pack(len(body) + 4 + tags, correlation_id)
    return [head + b"\0" if tags else head, body]
