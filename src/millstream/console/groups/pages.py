"""Consumer groups: the list, and the page of one with its lag over time.

``change_pages`` has the forms that change a group.
"""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, Response, get
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream

from millstream.client.insight.lag import missed_by
from millstream.client.librdkafka.admin import Admin
from millstream.console.backend import Backend, Screen
from millstream.console.groups import change_pages as group_changes
from millstream.console.groups.change_pages import find_group
from millstream.console.groups.group import GroupDetail, group_detail, lag_over_time
from millstream.console.groups.listing import GroupPage, GroupQuery, Only, Sort, group_list
from millstream.console.links import group_named
from millstream.console.observing.history import Columns
from millstream.console.observing.snapshot import Snapshot
from millstream.console.paging import PER_PAGE, Order
from millstream.console.parameters import PageNumber, Search
from millstream.console.pipelines.listing import owner_of


async def asked(
    search: Search = "",
    sort: FromQuery[Sort] = "name",
    order: FromQuery[Order] = "asc",
    page: PageNumber = 1,
    per_page: Annotated[int, QueryParameter(ge=1, le=1000, description="Groups on a page.")] = PER_PAGE,
    only: Annotated[
        Only, QueryParameter(description="Those that are behind, have members or none, or lose records.")
    ] = "",
) -> GroupQuery:
    return GroupQuery(search, sort, order, page, per_page, only)


_ASKED = {"wanted": Provide(asked)}


def _listed(backend: Backend, snapshot: Snapshot, wanted: GroupQuery) -> GroupPage:
    return group_list(snapshot, backend.sampler.observer.groups.lag, wanted)


# The list --------------------------------------------------------------------------------------------


@get("/groups", include_in_schema=False, dependencies=_ASKED)
async def page(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    wanted: NamedDependency[GroupQuery],
    done: FromQuery[str] = "",
) -> Response[str]:
    shown = _listed(backend, await backend.sampler.first(), wanted)
    return backend.page(request, SCREEN, "groups.html", listed=shown, done=done)


@get("/live/groups", include_in_schema=False, dependencies=_ASKED)
async def live(backend: NamedDependency[Backend], wanted: NamedDependency[GroupQuery]) -> Stream:
    def fragments(snapshot: Snapshot) -> dict[str, str]:
        return {"table": backend.fragment("groups_table.html", listed=_listed(backend, snapshot, wanted))}

    return backend.live(fragments)


@get(
    "/api/groups", tags=["groups"], summary="Consumer groups: searched, sorted, by page", dependencies=_ASKED
)
async def listed(backend: NamedDependency[Backend], wanted: NamedDependency[GroupQuery]) -> GroupPage:
    return _listed(backend, await backend.sampler.first(), wanted)


# One group -------------------------------------------------------------------------------------------


async def _detail(backend: Backend, name: str) -> GroupDetail:
    state, owner = await find_group(backend, name)

    def missed(admin: Admin) -> GroupDetail:
        return group_detail(state, missed_by(admin, state.name), owner)

    return await backend.ask(missed)


@get("/groups/{name:str}", include_in_schema=False)
async def group_page(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    name: FromPath[str],
    done: FromQuery[str] = "",
) -> Response[str]:
    shown = await _detail(backend, name)
    return backend.page(
        request, SCREEN, "group.html", group=shown, fresh=_fresh(backend, shown.name), done=done
    )


@get("/live/groups/{name:str}", include_in_schema=False)
async def group_live(backend: NamedDependency[Backend], name: FromPath[str]) -> Stream:
    named = group_named(name)

    def fragments(snapshot: Snapshot) -> dict[str, str]:
        state = snapshot.groups.get(named)
        if state is None:
            gone = backend.fragment("group_gone.html", name=named) if snapshot.detailed else ""
            return {"figures": gone} if gone else {}
        shown = group_detail(state, owner=owner_of(snapshot, named))
        return {
            "figures": backend.fragment("group_figures.html", group=shown),
            "members": backend.fragment("group_members.html", group=shown),
            "partitions": backend.fragment("group_partitions.html", group=shown),
            "fresh": backend.fragment("chart_fresh.html", chart="lag", fresh=_fresh(backend, named)),
        }

    return backend.live(fragments)


@get("/api/groups/{name:str}", tags=["groups"], summary="One group: members, partitions, what it missed")
async def as_json(backend: NamedDependency[Backend], name: FromPath[str]) -> GroupDetail:
    return await _detail(backend, name)


@get(
    "/api/groups/{name:str}/lag",
    tags=["groups"],
    summary="Lag over the last hour, of the partitions that are furthest behind",
)
async def lag(
    backend: NamedDependency[Backend],
    name: FromPath[str],
    most: Annotated[int, QueryParameter(ge=1, le=100, description="Partitions.")] = 8,
) -> Columns:
    state, _ = await find_group(backend, name)
    return lag_over_time(state, backend.sampler.observer.groups.partitions.get(state.name), most)


def _fresh(backend: Backend, name: str) -> float:
    """The time of the newest point of the chart."""
    history = backend.sampler.observer.groups.partitions.get(name)
    newest = [] if history is None else history.last()
    return newest[0] or 0.0 if newest else 0.0


SCREEN = Screen(
    "groups",
    "Groups",
    "/groups",
    shortcut="g",
    handlers=(page, live, listed, group_page, group_live, as_json, lag, *group_changes.HANDLERS),
)
