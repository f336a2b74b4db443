"""The settings of a console, given when it starts."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.client.connect import Connection


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """``registry`` is the URL of a schema registry, and ``views`` are the databases of views. ``hosts`` are
    further names under which browsers may reach the console, besides IP addresses, localhost and the
    machine's own name.
    """

    connection: Connection
    read_only: bool = False
    registry: str | None = None
    views: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
