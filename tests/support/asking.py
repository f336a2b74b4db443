"""Asking a request handler as a client of any version would: through the bytes of that version, both ways."""

from __future__ import annotations

import inspect
from typing import Any

import millstream.broker.api  # noqa: F401  (registers the handlers)
from millstream.broker.dispatch import HANDLERS, Client
from millstream.wire.codec import (
    answer_reader,
    answer_writer,
    field_names,
    request_reader,
    request_writer,
    unknown_fields,
)


async def ask(node: Any, api_key: int, version: int, client_id: str = "test", **fields: Any) -> Any:
    """The answer, parsed by kio. Fields that the version does not have are left out of the request."""
    served = HANDLERS[api_key]
    assert served.first <= version <= served.last
    body = bytearray()
    request_writer(api_key, version)(body, fields)
    request, size = request_reader(api_key, version)(bytes(body), 0)
    assert size == len(body)
    answer = served.handler(node, request, Client(client_id, "127.0.0.1", version))
    if inspect.isawaitable(answer):
        answer = await answer
    assert not unknown_fields(answer, field_names(api_key, (served.first, served.last)))
    written = bytearray()
    answer_writer(api_key, version)(written, answer)
    parsed, size = answer_reader(api_key, version)(bytes(written), 0)
    assert size == len(written)
    return parsed


def versions(api_key: int, first: int | None = None) -> list[int]:
    """Every version served of a request kind, from ``first`` on."""
    served = HANDLERS[api_key]
    return list(range(served.first if first is None else first, served.last + 1))
