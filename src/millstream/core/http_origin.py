"""Which HTTP requests may reach a server that has no log-in: the console, the schema registry.

Anyone who reaches its port may use it. So another site's web page, open in a browser on the same machine,
must not reach it: neither by a name that it points at this machine (the Host is checked), nor by sending
forms and scripted requests from another origin.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

SAFE_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE")


def may_be_called(host: str, names: Collection[str]) -> bool:
    """True if a Host header names this server. An address always does: nobody can point it elsewhere."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name == "localhost" or name.endswith(".localhost") or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def own_names(more: Collection[str]) -> frozenset[str]:
    """The names of this machine, and those that it was given besides."""
    return frozenset(name.lower() for name in (*more, socket.gethostname(), socket.getfqdn()))


def is_same_origin(headers: Any) -> bool:
    """True if a request comes from the server's own pages, or from no page at all (a program)."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return bool(site in ("same-origin", "none"))
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host", "")


def objection(method: str, headers: Mapping[str, str], names: Collection[str]) -> tuple[int, str] | None:
    """The status and message with which a request is refused; None if it may pass. For a server without
    pages, which no site's page has any business calling."""
    host = headers.get("host", "")
    if not may_be_called(host, names):
        return (
            421,
            f"this server is not called {host!r}; use its IP address, or start it with --allow-host NAME",
        )
    if method not in SAFE_METHODS and not is_same_origin(headers):
        return 403, "this request comes from another site's page; nothing was changed"
    return None
