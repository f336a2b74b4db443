"""Sends blocking requests to a broker from a server that must not block.

All requests share one admin client (librdkafka's is made for that) and a bounded pool of threads. However
many people use the console, the broker has at most that many of its requests at once.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from millstream.client.connect import Connection
from millstream.client.librdkafka.admin import Admin
from millstream.core.errors import BrokerUnavailable

T = TypeVar("T")

_THREADS = 8
_PATIENCE = 3.0  # seconds; after that, a page should say that the broker is away
_TIMEOUT = 10.0


class RequestPool:
    """Sends requests to one broker from a pool of threads."""

    def __init__(self, connection: Connection) -> None:
        self.connection = dataclasses.replace(connection, patience=min(_PATIENCE, connection.patience))
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="console")
        self._lock = threading.Lock()
        self._admin: Admin | None = None

    async def ask(self, question: Callable[[Admin], T]) -> T:
        """Call ``question`` on a thread and return its result; raises what it raises."""
        return await self.run(lambda: self._asked(question))

    async def run(self, work: Callable[[], T]) -> T:
        """Do other blocking work on the same threads."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._admin = None

    def _asked(self, question: Callable[[Admin], T]) -> T:
        with self._lock:
            if self._admin is None:
                self._admin = Admin(self.connection, timeout=_TIMEOUT)
            admin = self._admin
        try:
            return question(admin)
        except BrokerUnavailable:
            with self._lock:
                if self._admin is admin:
                    self._admin = None  # it would remember the broker as away even after it is back
            raise
