"""Notices when a client disconnects before it has its response, so that long work can end early.

Clients disconnect when a tab is closed or another link is followed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from litestar import Request

HasEnded = Callable[[], bool]


@asynccontextmanager
async def leaving(request: Request[Any, Any, Any]) -> AsyncIterator[threading.Event]:
    """An event that is set once the client disconnects, or the context is left. Nothing else may read the
    request's body within the context.
    """
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
