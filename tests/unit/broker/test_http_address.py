"""Where metrics and health are served: for others only if that is said."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from millstream.broker.http import HttpServer


@pytest.mark.parametrize(
    ("host", "bound"), [("", "127.0.0.1"), ("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "0.0.0.0")]
)
def test_without_a_host_it_is_for_this_machine(host: str, bound: str) -> None:
    async def started() -> str:
        server = HttpServer(cast(Any, None), cast(Any, None), lambda: True)
        await server.start(host, 0)
        await server.stop()
        return server.address

    assert asyncio.run(started()).rpartition(":")[0] == bound
