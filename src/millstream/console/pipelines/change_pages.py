"""Forgets a pipeline that no longer runs: a page that asks for confirmation, and the REST interface."""

from __future__ import annotations

from typing import Any, Literal

from litestar import Request, Response, delete, get, post
from litestar.di import NamedDependency
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from litestar.response import Redirect, Stream

from millstream.console.backend import Backend
from millstream.console.observing.snapshot import Snapshot
from millstream.console.pipelines.changes import Forgetting, forget, forgetting
from millstream.console.pipelines.pipeline import Pipeline, pipeline
from millstream.jobs.owners import JobRuns

_GET: Literal[303] = 303  # See Other: the client continues with a GET


def known(snapshot: Snapshot, name: str) -> Pipeline:
    found = pipeline(snapshot, name)
    if found is None:
        raise NotFoundException(f"no job {name!r} has reported to {snapshot.address}")
    return found


@get("/pipelines/{name:str}/forget", include_in_schema=False)
async def forget_page(
    request: Request[Any, Any, Any], backend: NamedDependency[Backend], name: FromPath[str]
) -> Response[str]:
    return _shown(request, backend, forgetting(known(await backend.sampler.look_now(), name)))


def _shown(
    request: Request[Any, Any, Any], backend: Backend, lost: Forgetting, *, status: int = 200
) -> Response[str]:
    return backend.page(
        request, backend.screen("pipelines"), "pipeline_forget.html", status=status, lost=lost
    )


@get("/live/pipelines/{name:str}/forget", include_in_schema=False)
async def still(backend: NamedDependency[Backend], name: FromPath[str]) -> Stream:
    """Live updates for the page: it doesn't change, but the status of the broker is still sent."""
    return backend.live(lambda snapshot: {})


@post("/pipelines/{name:str}/forget", include_in_schema=False)
async def forget_form(
    request: Request[Any, Any, Any], backend: NamedDependency[Backend], name: FromPath[str]
) -> Response[Any]:
    told = known(await backend.sampler.look_now(), name)
    try:
        await backend.run(lambda: forget(backend.asking, told))
    except JobRuns:
        return _shown(request, backend, forgetting(told), status=409)
    await backend.sampler.look_now()
    return Redirect("/pipelines", query_params={"done": f"forgot:{name}"}, status_code=_GET)


@delete(
    "/api/pipelines/{name:str}",
    tags=["pipelines"],
    summary="Forget a job that no longer runs; only its last report is lost",
    status_code=200,
)
async def forget_told(backend: NamedDependency[Backend], name: FromPath[str]) -> Forgetting:
    told = known(await backend.sampler.look_now(), name)
    lost = await backend.run(lambda: forget(backend.asking, told))
    await backend.sampler.look_now()
    return lost


HANDLERS = (forget_page, still, forget_form, forget_told)
