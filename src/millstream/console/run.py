"""Runs the console in a process of its own, or on a thread of this one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from millstream.client.connect import Connection
from millstream.console.app import console_app
from millstream.console.backend import Backend
from millstream.console.settings import ConsoleSettings
from millstream.core.serving import ServedApplication


class Console(ServedApplication):
    """The console for the broker at an address, served by this process or on one of its threads.

    with millstream.Broker() as broker, Console(broker.address) as console:
        webbrowser.open(console.url)
    """

    name = "console"

    def __init__(self, broker: str | Connection | ConsoleSettings, *, listen: str = "127.0.0.1:0") -> None:
        super().__init__(listen)
        if isinstance(broker, str):
            broker = Connection.of(broker)
        self._settings = ConsoleSettings(broker) if isinstance(broker, Connection) else broker
        self._backend: Backend | None = None

    @asynccontextmanager
    async def application(self) -> AsyncIterator[Any]:
        app = console_app(self._settings)
        self._backend = app.state.backend
        async with app.lifespan():
            yield app

    def ending(self) -> None:
        if self._backend is not None:
            self._backend.close()
