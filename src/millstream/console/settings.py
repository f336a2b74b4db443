"""What a console is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.client.connect import Connection


@dataclass(frozen=True, slots=True)
class Settings:
    """``registry`` is a schema registry's URL, ``views`` the databases of pipelines' views. ``hosts`` are
    the names that browsers may call it by, beside IP addresses, localhost and the machine's own name."""

    connection: Connection
    read_only: bool = False
    registry: str | None = None
    views: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
