"""The overview page: health, disks and how long they last, rates, and what needs attention."""

from __future__ import annotations

from typing import Any

from litestar import Request, Response, get
from litestar.di import NamedDependency
from litestar.response import Stream

from millstream.console.backend import Backend, Screen
from millstream.console.observing.history import Columns
from millstream.console.observing.snapshot import Snapshot
from millstream.console.overview.overview import Overview, overview


@get("/", include_in_schema=False)
async def page(request: Request[Any, Any, Any], backend: NamedDependency[Backend]) -> Response[str]:
    shown = overview(await backend.sampler.first())
    return backend.page(request, SCREEN, "overview.html", overview=shown, point=_point(backend))


@get("/live", include_in_schema=False)
async def live(backend: NamedDependency[Backend]) -> Stream:
    def fragments(snapshot: Snapshot) -> dict[str, str]:
        shown = overview(snapshot)
        return {
            "figures": backend.fragment("overview_figures.html", overview=shown),
            "details": backend.fragment("overview_details.html", overview=shown),
            "point": backend.fragment("chart_point.html", chart="rates", point=_point(backend)),
        }

    return backend.live(fragments)


@get("/live/status", include_in_schema=False)
async def status(backend: NamedDependency[Backend]) -> Stream:
    """Live updates for a page that waits for the broker."""
    return backend.live(lambda snapshot: {})


@get("/api/overview", tags=["overview"], summary="Health, disks, rates, and what needs attention first")
async def as_json(backend: NamedDependency[Backend]) -> Overview:
    return overview(await backend.sampler.first())


@get("/api/rates", tags=["overview"], summary="Records in and out per second, over the last hour")
async def rates(backend: NamedDependency[Backend]) -> Columns:
    await backend.sampler.first()
    return backend.sampler.rates()


def _point(backend: Backend) -> list[float | None]:
    """The newest point of the chart, its time first."""
    return backend.sampler.observer.history.last("in", "out")


SCREEN = Screen("overview", "Overview", "/", shortcut="o", handlers=(page, live, status, as_json, rates))
