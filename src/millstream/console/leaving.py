"""Who asked may leave before there is an answer: a tab is closed, another link is followed. What takes long
should end then."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from litestar import Request

Ended = Callable[[], bool]


@asynccontextmanager
async def leaving(request: Request[Any, Any, Any]) -> AsyncIterator[threading.Event]:
    """An event that is set once the connection is closed, or the block is left. Nothing else may read the
    request's body meanwhile."""
    gone = threading.Event()

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        gone.set()

    watching = asyncio.create_task(watch())
    try:
        yield gone
    finally:
        gone.set()
        watching.cancel()
