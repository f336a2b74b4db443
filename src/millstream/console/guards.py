"""Decides which requests the console accepts, and what its pages may load.

The console has no log-in, so the Host and the origin of requests are checked. ``millstream.core.http_origin``
says why.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from litestar.connection import ASGIConnection
from litestar.datastructures import MutableScopeHeaders
from litestar.enums import ScopeType
from litestar.exceptions import PermissionDeniedException
from litestar.handlers.base import BaseRouteHandler
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from millstream.core.http_origin import SAFE_METHODS, is_same_origin, may_be_called

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_WRONG_HOST = (
    b"This console is not called by that name. Use its IP address, or start it with --allow-host NAME.\n"
)


class Front:
    """Middleware before everything else: checks the Host, and adds ``HEADERS`` to every response."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableScopeHeaders.from_message(message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
        if not may_be_called(host, self._names):
            await sending(
                {
                    "type": "http.response.start",
                    "status": 421,
                    "headers": [(b"content-type", b"text/plain; charset=utf-8")],
                }
            )
            await sending({"type": "http.response.body", "body": _WRONG_HOST, "more_body": False})
            return
        await self._app(scope, receive, sending)


def _method(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    return str(connection.scope.get("method", ""))


def only_own_pages_write(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    if _method(connection) not in SAFE_METHODS and not is_same_origin(connection.headers):
        raise PermissionDeniedException("this request comes from another site's page; nothing was changed")


def nothing_writes(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Refuse writes, for --read-only. A POST handler that only reads is marked ``opt={"reads": True}``."""
    if _method(connection) not in SAFE_METHODS and not handler.opt.get("reads"):
        raise PermissionDeniedException("this console is read-only; nothing was changed")
