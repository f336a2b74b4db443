"""Calls a request handler as a client of any version would, through the bytes of that version, both ways."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import millstream.broker.api  # noqa: F401  (registers the handlers)
from millstream.broker.api.handlers import HANDLERS
from millstream.broker.handler_types import Client
from millstream.wire.codec.schema_codec import (
    answer_reader,
    answer_writer,
    field_names,
    request_reader,
    request_writer,
    unknown_fields,
)

Run = Callable[[Awaitable[Any]], Any]  # the type of the fixture that runs a step on the test's loop


async def ask(node: Any, api_key: int, version: int, client_id: str = "test", **fields: Any) -> Any:
    """The response, parsed by kio. Fields that the version does not have are left out of the request."""
    served = HANDLERS[api_key]
    assert served.first <= version <= served.last
    body = bytearray()
    request_writer(api_key, version)(body, fields)
    request, size = request_reader(api_key, version)(bytes(body), 0)
    assert size == len(body)
    answer = served.handler(node, request, Client(client_id, "127.0.0.1", version))
    if inspect.isawaitable(answer):
        answer = await answer
    written = bytearray()
    if isinstance(answer, bytes):
        written += answer
    else:
        assert not unknown_fields(answer, field_names(api_key, (served.first, served.last)))
        answer_writer(api_key, version)(written, answer)
    parsed, size = answer_reader(api_key, version)(bytes(written), 0)
    assert size == len(written)
    return parsed


def versions(api_key: int, first: int | None = None) -> list[int]:
    """Every version that is served of a kind of request, from ``first`` on."""
    served = HANDLERS[api_key]
    return list(range(served.first if first is None else first, served.last + 1))


def join(node: Any, version: int, member_id: str = "", **more: Any) -> Any:
    """JoinGroup, by default of a consumer in the group "g"."""
    fields = {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 60_000,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"meta"}],
        "reason": "because",
        **more,
    }
    return ask(node, 11, version, "client", **fields)


def sync(node: Any, version: int, member_id: str, generation: int, assignments: dict[str, bytes]) -> Any:
    """SyncGroup in the group "g"."""
    return ask(
        node,
        14,
        version,
        group_id="g",
        generation_id=generation,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[{"member_id": each, "assignment": part} for each, part in assignments.items()],
    )
