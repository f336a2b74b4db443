"""Views: the list, the rows of a view as they change, and one row with its history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from litestar import Request, Response, get
from litestar.di import NamedDependency, Provide
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream

from millstream.console.backend import Backend, Screen
from millstream.console.parameters import PageNumber
from millstream.console.views import sql_pages as sql
from millstream.console.views.databases import ViewDatabase
from millstream.console.views.tables import (
    PER_PAGE,
    Order,
    Row,
    RowPage,
    RowQuery,
    ViewList,
    column_digits,
    differences,
    row_of,
    rows_of,
)
from millstream.views.query import QueryRefused

DATABASE = "Which database, where several have the view."


async def asked(
    search: Annotated[
        str, QueryParameter(max_length=300, description="Words, each of which must be in one of the columns.")
    ] = "",
    where: Annotated[str, QueryParameter(max_length=2000, description="A condition in SQL.")] = "",
    sort: Annotated[str, QueryParameter(max_length=300, description="A column; left out: the key.")] = "",
    order: FromQuery[Order] = "asc",
    page: PageNumber = 1,
    per_page: Annotated[int, QueryParameter(ge=1, le=1000, description="Rows on a page.")] = PER_PAGE,
) -> RowQuery:
    return RowQuery(search, where, sort, order, page, per_page)


async def find_database(
    backend: NamedDependency[Backend],
    name: FromPath[str],
    database: Annotated[str, QueryParameter(max_length=2000, description=DATABASE)] = "",
) -> ViewDatabase:
    return await backend.views.holding(name, database)


_ROW = {"place": Provide(find_database)}
_ROWS = {**_ROW, "wanted": Provide(asked)}


# The list ------------------------------------------------------------------------------------------------


@get("/views", include_in_schema=False)
async def page(request: Request[Any, Any, Any], backend: NamedDependency[Backend]) -> Response[str]:
    return backend.page(request, SCREEN, "views.html", listed=await backend.views.listed())


@get("/live/views", include_in_schema=False)
async def live(backend: NamedDependency[Backend]) -> Stream:
    async def fragments() -> Mapping[str, str]:
        return {"table": backend.fragment("views_table.html", listed=await backend.views.listed())}

    return backend.follow(backend.views.places(), fragments)


@get("/api/views", tags=["views"], summary="The views that pipelines keep")
async def listed(backend: NamedDependency[Backend]) -> ViewList:
    return await backend.views.listed()


# Rows ----------------------------------------------------------------------------------------------------


@get("/views/{name:str}", include_in_schema=False, dependencies=_ROWS)
async def rows_page(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    name: FromPath[str],
    place: NamedDependency[ViewDatabase],
    wanted: NamedDependency[RowQuery],
) -> Response[str]:
    error = None
    try:
        shown = await _rows(backend, place, name, wanted)
    except QueryRefused as refused:
        if not wanted.where:
            raise
        error = refused
        shown = await _rows(backend, place, name, RowQuery(where="1 = 0"))
    values = {**_table(backend, place, shown, None), "wanted": wanted, "error": error}
    if error is not None:
        values["live"] = ""
    return backend.page(request, SCREEN, "view.html", status=200 if error is None else 400, **values)


@get("/live/views/{name:str}", include_in_schema=False, dependencies=_ROWS)
async def rows_live(
    backend: NamedDependency[Backend],
    name: FromPath[str],
    place: NamedDependency[ViewDatabase],
    wanted: NamedDependency[RowQuery],
) -> Stream:
    before: RowPage | None = None

    async def fragments() -> Mapping[str, str]:
        nonlocal before
        now = await _rows(backend, place, name, wanted)
        values = _table(backend, place, now, before)
        before = now
        return {
            part: backend.fragment(f"view_{part}.html", **values) for part in ("figures", "table", "pages")
        }

    return backend.follow([place], fragments)


@get(
    "/api/views/{name:str}",
    tags=["views"],
    summary="A view's rows: searched, sorted, by page",
    dependencies=_ROWS,
)
async def rows(
    backend: NamedDependency[Backend],
    name: FromPath[str],
    place: NamedDependency[ViewDatabase],
    wanted: NamedDependency[RowQuery],
) -> RowPage:
    return await _rows(backend, place, name, wanted)


async def _rows(backend: Backend, place: ViewDatabase, name: str, wanted: RowQuery) -> RowPage:
    shown = await backend.views.ask(place, lambda reader: rows_of(reader, name, wanted, place.jobs))
    if shown is None:
        raise NotFoundException(f"there is no view {name!r} in {place.name}")
    return shown


def _table(backend: Backend, place: ViewDatabase, shown: RowPage, before: RowPage | None) -> dict[str, Any]:
    """The values for the templates of a view's rows."""
    names = [column.name for column in shown.view.columns]
    at = [names.index(name) for name in shown.view.key]
    return {
        "shown": shown,
        "digits": column_digits(shown.rows, len(names)),
        "changed": differences(before, shown),
        "key_at": at[0],
        "keys": [[row[i] for i in at] for row in shown.rows],
        "database": _named(backend, place),
    }


def _named(backend: Backend, place: ViewDatabase) -> dict[str, str]:
    """The query parameters that links to this view need: its database, if there are several."""
    return {"database": place.name} if len(backend.views.places()) > 1 else {}


# One row ---------------------------------------------------------------------------------------------------

Key = Annotated[
    list[str],
    QueryParameter(
        min_items=1, max_items=50, description="The value of each column of the key, in its order."
    ),
]


@get("/views/{name:str}/row", include_in_schema=False, dependencies=_ROW)
async def row_page(
    request: Request[Any, Any, Any],
    backend: NamedDependency[Backend],
    name: FromPath[str],
    place: NamedDependency[ViewDatabase],
    key: Key,
) -> Response[str]:
    shown = await _row(backend, place, name, key)
    return backend.page(request, SCREEN, "view_row.html", shown=shown, database=_named(backend, place))


@get("/live/views/{name:str}/row", include_in_schema=False, dependencies=_ROW)
async def row_live(
    backend: NamedDependency[Backend], name: FromPath[str], place: NamedDependency[ViewDatabase], key: Key
) -> Stream:
    async def fragments() -> Mapping[str, str]:
        shown = await _row(backend, place, name, key)
        return {"row": backend.fragment("view_row_details.html", shown=shown)}

    return backend.follow([place], fragments)


@get(
    "/api/views/{name:str}/row",
    tags=["views"],
    summary="One row by its key, and what happened to it",
    dependencies=_ROW,
)
async def row(
    backend: NamedDependency[Backend], name: FromPath[str], place: NamedDependency[ViewDatabase], key: Key
) -> Row:
    return await _row(backend, place, name, key)


async def _row(backend: Backend, place: ViewDatabase, name: str, key: list[str]) -> Row:
    shown = await backend.views.ask(place, lambda reader: row_of(reader, name, key, place.jobs))
    if shown is None:
        raise NotFoundException(f"there is no row {', '.join(key)} in view {name!r} of {place.name}")
    return shown


_HANDLERS = (page, live, listed, rows_page, rows_live, rows, row_page, row_live, row)
SCREEN = Screen("views", "Views", "/views", shortcut="v", handlers=(*_HANDLERS, *sql.HANDLERS))
