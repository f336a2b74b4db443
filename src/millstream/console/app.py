"""Builds the console as one ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from litestar import Litestar
from litestar.config.app import AppConfig
from litestar.datastructures import CacheControlHeader, State
from litestar.di import Provide
from litestar.handlers import HTTPRouteHandler
from litestar.middleware import DefineMiddleware
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.static_files import create_static_files_router

from millstream.console import guards, problems
from millstream.console.backend import Backend
from millstream.console.screens import SCREENS
from millstream.console.settings import ConsoleSettings
from millstream.core.http_origin import own_names

_HERE = Path(__file__).parent


def console_app(settings: ConsoleSettings) -> Litestar:
    """The application. It queries the broker for as long as its lifespan lasts. Its handlers use
    ``app.state.backend``.
    """
    backend = Backend(settings, SCREENS)
    handlers: list[Any] = [handler for screen in SCREENS for handler in screen.handlers]

    @asynccontextmanager
    async def looking(app: Litestar) -> AsyncIterator[None]:
        backend.start()
        try:
            yield
        finally:
            await backend.stop()

    async def given() -> Backend:
        return backend

    return Litestar(
        [
            *handlers,
            create_static_files_router(
                "/static",
                [_HERE / "static"],
                include_in_schema=False,
                cache_control=CacheControlHeader(max_age=3600),
            ),
        ],
        lifespan=[looking],
        state=State({"backend": backend}),
        dependencies={"backend": Provide(given)},
        middleware=[DefineMiddleware(guards.Front, names=own_names(settings.hosts))],
        guards=[guards.only_own_pages_write, *([guards.nothing_writes] if settings.read_only else [])],
        exception_handlers={Exception: problems.answer},
        openapi_config=OpenAPIConfig(
            title="millstream console",
            version=version("millstream"),
            description="What the console shows, for programs. Errors are problem details (RFC 7807).",
            path="/api/openapi.json",  # the only path under /api that the library serves
            render_plugins=[JsonRenderPlugin(path="/")],
        ),
        on_app_init=[_with_problems],
        logging_config=None,
        signature_types=[Backend],
    )


def _with_problems(config: AppConfig) -> AppConfig:
    """Add the same error responses to every operation of the REST interface."""
    for handler in config.route_handlers:
        if isinstance(handler, HTTPRouteHandler) and any(path.startswith("/api/") for path in handler.paths):
            handler.responses = {**problems.RESPONSES, **(handler.responses or {})}
    return config
