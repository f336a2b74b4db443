"""Run a registry: on a thread of this process, or in a separate process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

from millstream.client.connect import Connection
from millstream.core.errors import ConfigError
from millstream.core.serving import ServedApplication
from millstream.registry.service.registrar import DEFAULT_LEVEL, LEVELS, Registrar
from millstream.registry.service.schema_topic import TOPIC, SchemaTopic
from millstream.registry.service.server import application


class Registry(ServedApplication):
    """A schema registry for a broker, on a thread of this process.

        with millstream.Broker() as broker, Registry(broker.address) as registry:
            client = SchemaRegistryClient({"url": registry.url})

    ``listen`` is the address to serve at, ``HOST:PORT``. Port 0 picks a free port. ``hosts`` are further host
    names that requests may use, besides the machine's own name and any IP address.
    """

    name = "schema registry"

    def __init__(
        self,
        broker: str | Connection,
        *,
        listen: str = "127.0.0.1:0",
        topic: str = TOPIC,
        level: str = DEFAULT_LEVEL,
        hosts: Collection[str] = (),
    ) -> None:
        super().__init__(listen)
        if level.upper() not in LEVELS:
            raise ConfigError(f"{level!r} is not a level of compatibility; there are {', '.join(LEVELS)}")
        connection = Connection.of(broker) if isinstance(broker, str) else broker
        self._schemas = SchemaTopic(connection, topic)
        self._registrar = Registrar(self._schemas.store, level=level.upper())
        self._connection = connection
        self._hosts = hosts

    @asynccontextmanager
    async def application(self) -> AsyncIterator[Any]:
        self._connection.check()
        await asyncio.to_thread(self._schemas.start)
        try:
            yield application(self._schemas, self._registrar, self._hosts)
        finally:
            await asyncio.to_thread(self._schemas.stop)
