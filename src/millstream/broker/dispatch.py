"""Which request is served, in which versions, by which function.

A handler stands in the file of its family under ``broker/api`` and declares its versions beside it::

    @serves(12, versions=(0, 4))
    def heartbeat(node: Node, request: Any, client: Client) -> Answer: ...

It takes a parsed request of any of those versions and returns the fields of the answer as a dictionary
(``wire.codec`` leaves out what the client's version does not have), or an awaitable of it where it has to
wait. The hot few (Produce, Fetch) bypass this: see ``broker.connection``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millstream.wire.codec import Answer

if TYPE_CHECKING:
    from millstream.broker.node import Node

Handler = Callable[["Node", Any, "Client"], Answer | Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Client:
    """Who sent a request, and how it wants to be answered."""

    client_id: str
    host: str
    version: int  # of the request at hand


@dataclass(frozen=True, slots=True)
class Served:
    """One request kind: the versions answered, and the function that answers."""

    api_key: int
    first: int
    last: int
    handler: Handler


HANDLERS: dict[int, Served] = {}


def serves(api_key: int, *, versions: tuple[int, int]) -> Callable[[Handler], Handler]:
    """Register a handler for a request kind and the versions it answers."""

    def register(handler: Handler) -> Handler:
        if api_key in HANDLERS:
            raise ValueError(f"api key {api_key} is served twice: {HANDLERS[api_key].handler} and {handler}")
        HANDLERS[api_key] = Served(api_key, *versions, handler)
        return handler

    return register
