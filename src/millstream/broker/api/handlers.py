"""Which requests are served, in which versions, by which function.

A handler is in the file of its family in this package and declares its versions next to it::

    @serves(HEARTBEAT, versions=(0, 4))
    def heartbeat(node: Node, request: Any, client: Client) -> Answer: ...

It takes a parsed request of any of those versions. It returns the response, or an awaitable of it if it has
to wait (``broker.handler_types``). The hot requests (Produce, Fetch) bypass this: see ``broker.api.serving``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from millstream.broker.api.node_connection import NodeConnection
from millstream.broker.handler_types import Client, Reply
from millstream.broker.node import Node

Handler = Callable[[Node, Any, Client], Reply | Awaitable[Reply]]
# Responds by itself, now or later: the connection, the request, its version and correlation id.
ConnectionHandler = Callable[[NodeConnection, Any, int, int], None]


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """One kind of request: the versions served, and the function that serves it."""

    api_key: int
    first: int
    last: int
    handler: Handler
    advertised_from: int
    connection_handler: ConnectionHandler | None = None


HANDLERS: dict[int, ServedRequest] = {}


def serves(api_key: int, *, versions: tuple[int, int]) -> Callable[[Handler], Handler]:
    """Register a handler for a kind of request and the versions it serves."""

    def register(handler: Handler) -> Handler:
        if api_key in HANDLERS:
            raise ValueError(f"api key {api_key} is served twice: {HANDLERS[api_key].handler} and {handler}")
        HANDLERS[api_key] = ServedRequest(api_key, *versions, handler, versions[0])
        return handler

    return register


def serves_directly(api_key: int, *, versions: tuple[int, int], advertised_from: int | None = None) -> None:
    """Register a kind of request that connections handle themselves, so that it is advertised to clients."""

    def handler(node: Node, request: Any, client: Client) -> Reply:
        raise AssertionError(f"api key {api_key} is handled by the connection")

    floor = versions[0] if advertised_from is None else advertised_from
    HANDLERS[api_key] = ServedRequest(api_key, *versions, handler, floor)


def serves_on_connection(
    api_key: int, *, versions: tuple[int, int]
) -> Callable[[ConnectionHandler], ConnectionHandler]:
    """Register a handler that queues its response itself: it waits like Fetch, or sends from files."""

    def register(handler: ConnectionHandler) -> ConnectionHandler:
        serves_directly(api_key, versions=versions)
        HANDLERS[api_key] = dataclasses.replace(HANDLERS[api_key], connection_handler=handler)
        return handler

    return register
