"""Stops and restarts a job: a page that asks for confirmation, and the REST interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from litestar import Request, Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter, URLEncodedBody
from litestar.response import Redirect, Stream

from millstream.console.backend import Backend
from millstream.console.links import pipeline_link
from millstream.console.pipelines.commands import Commanding, command, commanding
from millstream.jobs.control import CommandRefused, Outcome
from millstream.jobs.report import Action

_GET: Literal[303] = 303  # See Other: the client continues with a GET
Run = Annotated[
    str,
    QueryParameter(max_length=100, description="The run's id, if several run under this name."),
]


@dataclass(frozen=True, slots=True)
class ChosenRun:
    """The form: the run whose button was pressed."""

    run: str = ""


async def _page(
    request: Request[Any, Any, Any], backend: Backend, name: str, action: Action, *, status: int = 200
) -> Response[str]:
    asked = await backend.run(lambda: commanding(backend.asking, name, action))
    return _shown(request, backend, asked, status=status)


def _shown(
    request: Request[Any, Any, Any], backend: Backend, asked: Commanding, *, status: int
) -> Response[str]:
    return backend.page(
        request, backend.screen("pipelines"), "pipeline_command.html", status=status, asked=asked
    )


async def _send(
    request: Request[Any, Any, Any], backend: Backend, name: str, action: Action, run: str
) -> Response[Any]:
    try:
        sent = await backend.run(lambda: command(backend.asking, name, action, run))
    except CommandRefused:
        return await _page(request, backend, name, action, status=409)
    return Redirect(pipeline_link(name, done=f"{action}:{sent.result}"), status_code=_GET)


@get("/pipelines/{name:str}/stop", include_in_schema=False)
async def stop_page(
    request: Request[Any, Any, Any], backend: NamedDependency[Backend], name: FromPath[str]
) -> Response[str]:
    return await _page(request, backend, name, "stop")


@get("/pipelines/{name:str}/restart", include_in_schema=False)
async def restart_page(
    request: Request[Any, Any, Any], backend: NamedDependency[Backend], name: FromPath[str]
) -> Response[str]:
    return await _page(request, backend, name, "restart")


@get(["/live/pipelines/{name:str}/stop", "/live/pipelines/{name:str}/restart"], include_in_schema=False)
async def still(backend: NamedDependency[Backend], name: FromPath[str]) -> Stream:
    """Live updates for the page: it doesn't change, but the status of the broker is still sent."""
    return backend.live(lambda snapshot: {})


@post("/pipelines/{name:str}/stop", include_in_schema=False)
async def stop_form(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    name: FromPath[str],
    data: URLEncodedBody[ChosenRun],
) -> Response[Any]:
    return await _send(request, backend, name, "stop", data.run)


@post("/pipelines/{name:str}/restart", include_in_schema=False)
async def restart_form(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    name: FromPath[str],
    data: URLEncodedBody[ChosenRun],
) -> Response[Any]:
    return await _send(request, backend, name, "restart", data.run)


@post(
    "/api/pipelines/{name:str}/stop",
    tags=["pipelines"],
    summary="Tell a job to stop after its current batch; its status tells when it has",
    status_code=202,
)
async def stop_told(backend: NamedDependency[Backend], name: FromPath[str], run: Run = "") -> Outcome:
    return await backend.run(lambda: command(backend.asking, name, "stop", run))


@post(
    "/api/pipelines/{name:str}/restart",
    tags=["pipelines"],
    summary="Tell a job to stop after its current batch, read its file again and start again",
    status_code=202,
)
async def restart_told(backend: NamedDependency[Backend], name: FromPath[str], run: Run = "") -> Outcome:
    return await backend.run(lambda: command(backend.asking, name, "restart", run))


HANDLERS = (stop_page, restart_page, still, stop_form, restart_form, stop_told, restart_told)
