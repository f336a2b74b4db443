"""Pipelines: the list of jobs that report their status, and the page of each with its live graph."""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, Response, get
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream

from millstream.console.backend import Backend, Screen
from millstream.console.observing.snapshot import Snapshot
from millstream.console.parameters import Search
from millstream.console.pipelines import change_pages as pipeline_changes
from millstream.console.pipelines import command_pages as pipeline_commands
from millstream.console.pipelines.change_pages import known
from millstream.console.pipelines.listing import PipelineList, pipeline_list
from millstream.console.pipelines.picture import picture
from millstream.console.pipelines.pipeline import Pipeline, chosen_node, timelines
from millstream.jobs.report import RUNNING

Chosen = Annotated[str, QueryParameter(max_length=100, description="The box of the graph to show in detail.")]


@get("/pipelines", include_in_schema=False)
async def page(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    search: Search = "",
    done: FromQuery[str] = "",
) -> Response[str]:
    shown = pipeline_list(await backend.sampler.first(), search)
    return backend.page(request, SCREEN, "pipelines.html", listed=shown, done=done)


@get("/live/pipelines", include_in_schema=False)
async def live(backend: NamedDependency[Backend], search: Search = "") -> Stream:
    def fragments(snapshot: Snapshot) -> dict[str, str]:
        return {"table": backend.fragment("pipelines_table.html", listed=pipeline_list(snapshot, search))}

    return backend.live(fragments)


@get(
    "/api/pipelines",
    tags=["pipelines"],
    summary="Jobs that report their status; those that need attention first",
)
async def listed(backend: NamedDependency[Backend], search: Search = "") -> PipelineList:
    return pipeline_list(await backend.sampler.first(), search)


# One pipeline ----------------------------------------------------------------------------------------


@get("/pipelines/{name:str}", include_in_schema=False)
async def one_page(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    name: FromPath[str],
    node: Chosen = "",
    done: FromQuery[str] = "",
) -> Response[str]:
    values = _shown(await backend.sampler.first(), name, node)
    return backend.page(request, SCREEN, "pipeline.html", done=done, **values)


@get("/live/pipelines/{name:str}", include_in_schema=False)
async def one_live(backend: NamedDependency[Backend], name: FromPath[str], node: Chosen = "") -> Stream:
    def fragments(snapshot: Snapshot) -> dict[str, str]:
        if name not in snapshot.jobs:
            return {"figures": backend.fragment("pipeline_gone.html", name=name)}
        values = _shown(snapshot, name, node)
        return {
            part: backend.fragment(f"pipeline_{part}.html", **values)
            for part in ("actions", "figures", "graph", "timeline", "errors")
        }

    return backend.live(fragments)


@get("/api/pipelines/{name:str}", tags=["pipelines"], summary="The complete status of a job")
async def as_json(backend: NamedDependency[Backend], name: FromPath[str]) -> Pipeline:
    return known(await backend.sampler.first(), name)


def _shown(snapshot: Snapshot, name: str, node: str) -> dict[str, Any]:
    """The values for the templates of a pipeline's page."""
    found = known(snapshot, name)
    alive = found.summary.state in RUNNING
    return {
        "job": found.summary,
        "told": found.status,
        "now_ms": snapshot.at_ms if alive else found.status.at_ms,
        "alive": alive,
        "picture": picture(
            found.status, snapshot.at_ms if alive else found.status.at_ms, chosen=node, alive=alive
        ),
        "chosen": chosen_node(found.status, node),
        "timelines": timelines(found.status),
    }


SCREEN = Screen(
    "pipelines",
    "Pipelines",
    "/pipelines",
    shortcut="p",
    handlers=(
        page,
        live,
        listed,
        one_page,
        one_live,
        as_json,
        *pipeline_changes.HANDLERS,
        *pipeline_commands.HANDLERS,
    ),
)
