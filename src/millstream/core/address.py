"""Parse ``HOST:PORT``, with errors that say which half is wrong."""

from __future__ import annotations

from millstream.core.errors import ConfigError


def host_and_port(address: str, *, listening: bool = False) -> tuple[str, int]:
    """Host and port; an IPv6 host comes without its brackets. With ``listening`` the host may be left out,
    and port 0 takes a free one."""
    host, colon, port = address.rpartition(":")
    if not colon or not port or not (host or listening):
        raise ConfigError(f"{address!r} is not HOST:PORT")
    first = 0 if listening else 1
    if not port.isascii() or not port.isdigit() or not first <= int(port) <= 65535:
        raise ConfigError(f"{address!r}: {port!r} is not a port; ports are the numbers {first} to 65535")
    return host.removeprefix("[").removesuffix("]"), int(port)
